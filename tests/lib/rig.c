/* See rig.h. */
#include "rig.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "backend_embedded.h"
#include "clock.h"
#include "daemon.h"
#include "ident.h"
#include "provider_i.h"

enum { WAIT_MS = 20000, ERRAND_MS = 60000 };

static void pause_ms(int64_t ms)
{
	nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 }, NULL);
}

/* ---- life ---- */

int rig_setup(void **state)
{
	struct rig *r = calloc(1, sizeof(*r));

	if (!r || !scratch_dir(r->dir))
		return -1;
	snprintf(r->data, sizeof(r->data), "%s/data", r->dir);
	snprintf(r->runtime, sizeof(r->runtime), "%s/run", r->dir);
	r->clock = (struct fake_clock)FAKE_CLOCK_INIT;
	r->fds = count_fds();
	*state = r;
	return loop_new(&r->loop);
}

static struct provider *make_provider(struct rig *r, struct faulty **ret_faults)
{
	const struct rig_options *o = &r->options;
	struct backend *inner = NULL, *b;
	struct provider *p = NULL;
	const char *why = NULL;
	char *words = NULL;

	if (backend_embedded_new(r->loop,
				 &(struct embedded_config){
					 .data = r->data,
					 .runtime = r->runtime,
					 .program = o->program ?: getenv("SANDBOXD"),
					 .no_isolation = o->no_isolation,
				 },
				 &inner, &words) < 0) {
		print_error("%s\n", words);
		fail();
	}
	b = faulty_new(inner, ret_faults);
	assert_non_null(b);
	faulty_set_pid_of(*ret_faults, rig_pid, r);
	assert_int_equal(provider_new(
				 &(struct provider_config){
					 .loop = r->loop,
					 .backend = b,
					 .data = r->data,
					 .start_timeout_ms = o->start_timeout_ms,
					 .idle_timeout_ms = o->idle_timeout_ms,
					 .janitor_ms = o->janitor_ms,
					 .replicas = o->replicas,
					 .no_auto_restart = o->no_auto_restart,
					 .ownership = o->ownership,
					 .now_ms = fake_clock_now,
					 .now_ctx = &r->clock,
					 .make_id = o->make_id,
				 },
				 &p, &why),
			 0);
	assert_int_equal(rig_reconcile(p), 0);
	return p;
}

struct rig *rig_start(void **state, const struct rig_options *options)
{
	struct rig *r = *state;

	if (options)
		r->options = *options;
	rig_restart_provider(r);
	return r;
}

void rig_restart_provider(struct rig *r)
{
	assert_null(r->provider);
	r->provider = make_provider(r, &r->faults);
}

void rig_end_provider(struct rig *r)
{
	assert_int_equal(provider_shutdown(r->provider), 0);
	provider_free(STEAL(r->provider));
	r->faults = NULL;
}

struct provider *rig_peer(struct rig *r, struct faulty **ret_faults)
{
	struct faulty *faults;

	return make_provider(r, ret_faults ?: &faults);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

/* Locks and sockets below the runtime directory, and of starts in the data root. */
static unsigned leftovers;

static int count_leftover(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	const char *dot = strrchr(path, '.');

	if (type != FTW_D && (!strstr(path, "/data/") || (dot && strcmp(dot, ".lock") == 0))) {
		print_error("left behind: %s\n", path);
		leftovers++;
	}
	return 0;
}

int rig_teardown(void **state)
{
	struct rig *r = *state;
	int bad = 0;

	if (r->provider) {
		bad |= provider_shutdown(r->provider);
		provider_free(r->provider);
	}
	loop_free(r->loop);
	if (rig_processes(r) > 0) {
		print_error("%u sandboxes are left\n", rig_processes(r));
		bad = -1;
	}
	leftovers = 0;
	nftw(r->data, count_leftover, 16, FTW_PHYS);
	nftw(r->runtime, count_leftover, 16, FTW_PHYS);
	if (leftovers > 0)
		bad = -1;
	if (count_fds() > r->fds) {
		print_error("%u descriptors before, %u after\n", r->fds, count_fds());
		bad = -1;
	}
	nftw(r->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	free(r);
	return bad;
}

/* ---- tenants and errands ---- */

struct tenant *rig_tenant_of(struct provider *p, const char *user, const char *thread)
{
	struct tenant *t = NULL;

	assert_int_equal(tenant_get(p, user, thread, &t), 0);
	return t;
}

struct tenant *rig_tenant(struct rig *r, const char *thread)
{
	return rig_tenant_of(r->provider, "u", thread);
}

static int run_tenant(void (*fn)(struct tenant *, struct errand *), struct tenant *t, int64_t ms)
{
	struct errand e;
	int r;

	call_init(&e.call, ms);
	fn(t, &e);
	r = call_wait(&e.call);
	call_release(&e.call);
	return r;
}

static int run_provider(void (*fn)(struct provider *, struct errand *), struct provider *p)
{
	struct errand e;
	int r;

	call_init(&e.call, ERRAND_MS);
	fn(p, &e);
	r = call_wait(&e.call);
	call_release(&e.call);
	return r;
}

int rig_acquire(struct tenant *t)
{
	return rig_acquire_ms(t, ERRAND_MS);
}

int rig_acquire_ms(struct tenant *t, int64_t timeout_ms)
{
	return run_tenant(tenant_acquire, t, timeout_ms);
}

int rig_find(struct tenant *t)
{
	return run_tenant(tenant_find, t, ERRAND_MS);
}

int rig_destroy(struct tenant *t)
{
	return run_tenant(tenant_destroy, t, ERRAND_MS);
}

int rig_forget(struct tenant *t)
{
	return run_tenant(tenant_forget, t, ERRAND_MS);
}

int rig_tick(struct provider *p)
{
	return run_provider(provider_tick, p);
}

int rig_reconcile(struct provider *p)
{
	return run_provider(provider_reconcile, p);
}

static void do_nothing(void *ctx)
{
}

/* Jobs run in order: whatever was posted before has been begun then. */
static void let_begin(struct errand *e)
{
	loop_run(e->provider->loop, do_nothing, NULL);
}

void rig_begin(struct errand *e, void (*fn)(struct tenant *, struct errand *), struct tenant *t)
{
	call_init(&e->call, ERRAND_MS);
	fn(t, e);
	let_begin(e);
}

void rig_begin_round(struct errand *e, void (*fn)(struct provider *, struct errand *),
		     struct provider *p)
{
	call_init(&e->call, ERRAND_MS);
	fn(p, e);
	let_begin(e);
}

int rig_end(struct errand *e)
{
	int r = call_wait(&e->call);

	call_release(&e->call);
	return r;
}

bool rig_is_open(struct errand *e)
{
	bool open;

	lock(&e->call.lock);
	open = !e->call.finished;
	unlock(&e->call.lock);
	return open;
}

int rig_ping(struct tenant *t)
{
	struct sandbox *sb = tenant_sandbox(t);
	struct call c;
	int r;

	if (!sb)
		return -ENOTCONN;
	call_init(&c, ERRAND_MS);
	sandbox_ping(sb, &c);
	r = call_wait(&c);
	call_release(&c);
	if (r < 0)
		tenant_report(t, sb, r);
	sandbox_put(sb);
	return r;
}

/* ---- looking ---- */

static struct tenant_status look(struct tenant *t)
{
	struct tenant_status s, strings;

	assert_int_equal(tenant_status(t, &s), 0);
	strings = s;
	tenant_status_release(&strings);
	return s;
}

enum tenant_state rig_state(struct tenant *t)
{
	return look(t).state;
}

unsigned rig_leases(struct tenant *t)
{
	return look(t).leases;
}

unsigned rig_starts(struct tenant *t)
{
	return look(t).starts;
}

bool rig_is_ours(struct tenant *t)
{
	return look(t).ours;
}

const char *rig_owner(struct tenant *t)
{
	static char owner[400];
	struct tenant_status s;

	assert_int_equal(tenant_status(t, &s), 0);
	snprintf(owner, sizeof(owner), "%s", s.owner ?: "");
	tenant_status_release(&s);
	return owner;
}

bool rig_wait_state(struct tenant *t, enum tenant_state state)
{
	for (int64_t until = clock_ms() + WAIT_MS; rig_state(t) != state;) {
		if (clock_ms() > until)
			return false;
		pause_ms(2);
	}
	return true;
}

/* ---- processes, sockets, files ---- */

static void run_path(const struct rig *r, const char *id, const char *name, char *to, size_t size)
{
	char hash[13], *real CLEANUP_FREE = realpath(r->data, NULL);

	ident_digest(real ?: r->data, hash, 12);
	snprintf(to, size, "%s/%s/%s/%s", r->runtime, hash, id, name);
}

pid_t rig_pid(void *ctx, const char *id)
{
	char path[256];
	long pid = 0;
	FILE *f;

	run_path(ctx, id, "pid", path, sizeof(path));
	f = fopen(path, "re");
	if (!f)
		return 0;
	if (fscanf(f, "%ld", &pid) != 1)
		pid = 0;
	fclose(f);
	return (pid_t)pid;
}

static bool is_dead(pid_t pid)
{
	char path[64], line[256] = "";
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	f = fopen(path, "re");
	if (!f)
		return true;
	if (!fgets(line, sizeof(line), f))
		line[0] = '\0';
	fclose(f);
	return strstr(line, ") Z ") || strstr(line, ") X ");
}

/* Whether anybody listens. */
static bool answers(struct rig *r, struct tenant *t)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	int fd CLEANUP_FD = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	char path[256];

	assert_true(fd >= 0);
	run_path(r, tenant_id(t), "sock", path, sizeof(path));
	assert_true(strlen(path) < sizeof(to.sun_path));
	memcpy(to.sun_path, path, strlen(path));
	return connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0 || errno == EAGAIN;
}

void rig_kill(struct rig *r, struct tenant *t)
{
	pid_t pid = rig_pid(r, tenant_id(t));

	assert_true(pid > 1);
	assert_int_equal(kill(pid, SIGKILL), 0);
	/* The server inside takes a moment longer to notice. */
	for (int64_t until = clock_ms() + WAIT_MS; !is_dead(pid) || answers(r, t);) {
		assert_true(clock_ms() < until);
		pause_ms(1);
	}
}

/* The supervisor has our directory in its command line; the server inside has not. */
unsigned rig_processes(struct rig *r)
{
	DIR *proc = opendir("/proc");
	struct dirent *d;
	unsigned n = 0;

	assert_non_null(proc);
	while ((d = readdir(proc))) {
		char path[300], line[4096];
		size_t len;
		FILE *f;

		if (d->d_name[0] < '1' || d->d_name[0] > '9')
			continue;
		snprintf(path, sizeof(path), "/proc/%s/cmdline", d->d_name);
		f = fopen(path, "re");
		if (!f)
			continue;
		len = fread(line, 1, sizeof(line) - 1, f);
		fclose(f);
		line[len] = '\0';
		for (size_t i = 0; i < len; i++)
			line[i] = line[i] ?: ' ';
		n += strstr(line, "--socket") && strstr(line, r->runtime);
	}
	closedir(proc);
	return n;
}

unsigned rig_sockets(struct rig *r, struct tenant *t)
{
	char path[256];

	run_path(r, tenant_id(t), "sock", path, sizeof(path));
	return count_sockets_to(path);
}

bool rig_wait_no_sockets(struct rig *r, struct tenant *t)
{
	for (int64_t until = clock_ms() + WAIT_MS; rig_sockets(r, t) > 0;) {
		if (clock_ms() > until)
			return false;
		pause_ms(2);
	}
	return true;
}

const char *rig_host_path(struct rig *r, const char *thread, const char *name)
{
	static char path[512];

	snprintf(path, sizeof(path), "%s/users/u/threads/%s/user-data/%s", r->data, thread, name);
	return path;
}

const char *rig_run_path(struct rig *r, struct tenant *t, const char *name)
{
	static char path[256];

	run_path(r, tenant_id(t), name, path, sizeof(path));
	return path;
}

/* ---- the log ---- */

void rig_begin_log(struct rig *r)
{
	r->log_fd = memfd_create("log", MFD_CLOEXEC);
	r->stderr_fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	assert_true(r->log_fd >= 0 && r->stderr_fd >= 0);
	assert_int_equal(dup2(r->log_fd, STDERR_FILENO), STDERR_FILENO);
}

char *rig_end_log(struct rig *r)
{
	off_t size = lseek(r->log_fd, 0, SEEK_END);
	char *text = calloc(1, (size_t)size + 1);

	dup2(r->stderr_fd, STDERR_FILENO);
	close(r->stderr_fd);
	assert_non_null(text);
	assert_int_equal(pread(r->log_fd, text, (size_t)size, 0), size);
	close(r->log_fd);
	return text;
}
