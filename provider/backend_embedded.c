/*
 * The embedded backend: its life, and the questions that only look. Who may do
 * what is decided by locks on files (embedded_i.h), never by what this process
 * remembers: it remembers only the locks it has and the children it must reap.
 * Loop thread, but for new and free, and what runs on workers.
 */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <utlist.h>

#include "beside.h"
#include "clock.h"
#include "embedded_i.h"
#include "filelock.h"
#include "ident.h"
#include "io.h"
#include "log.h"
#include "paths.h"

#define PROGRAM "threadfs-sandboxd"

enum {
	WORKERS = 2,
	READY_MS = 60000,
	PATIENCE_MS = 250, /* a lock may be held for a moment by a fork on its way to exec */
	BUSY_MS = 10000,   /* as long as stopping one may take */
};

static struct embedded *embedded_of(struct backend *b)
{
	return CONTAINER_OF(b, struct embedded, b);
}

/* ---- sandboxes that we use ---- */

static void drop_resident(struct embedded *e, struct resident *s)
{
	HASH_DEL(e->residents, s);
	close(s->users);
	free(s);
}

int embedded_take(struct embedded *e, const char *id)
{
	struct resident *s;
	int fd = -1;

	HASH_FIND_STR(e->residents, id, s);
	if (s) {
		HASH_DEL(e->residents, s);
		fd = s->users;
		free(s);
	}
	return fd;
}

void embedded_keep(struct embedded *e, const char *id, int users)
{
	struct resident *s;

	HASH_FIND_STR(e->residents, id, s);
	if (s) {
		close(s->users);
		s->users = users;
		return;
	}
	s = calloc(1, sizeof(*s));
	if (!s) {
		close(users); /* others may stop it; we would notice and start another */
		return;
	}
	memcpy(s->id, id, sizeof(s->id));
	s->users = users;
	HASH_ADD_STR(e->residents, id, s);
	if (!HASH_TOOK(hh, s)) {
		close(users);
		free(s);
	}
}

static void embedded_forget(struct backend *b, const char *id)
{
	struct embedded *e = embedded_of(b);
	struct resident *s;
	struct task *t;

	HASH_FIND_STR(e->residents, id, s);
	if (s)
		drop_resident(e, s);
	DL_FOREACH (e->tasks, t)
		if (strcmp(t->id, id) == 0)
			t->forgotten = true;
}

/* ---- is_alive ---- */

static void run_is_alive(struct task *t)
{
	t->r = den_is_alive(&t->den);
}

static void end_is_alive(struct task *t)
{
	if (t->r < 0) {
		task_say(t, "cannot look at %s: %s", t->den.dir, strerrordesc_np(-t->r));
		task_end(t, t->r);
		return;
	}
	t->op->alive = t->r > 0;
	task_end(t, 0);
}

static void embedded_is_alive(struct backend *b, struct backend_op *op, const char *id)
{
	struct task *t = task_new(embedded_of(b), op, id, 0);

	if (t)
		task_work(t, run_is_alive, end_is_alive);
}

/* ---- discover ---- */

static int discover(struct task *t)
{
	int users CLEANUP_FD = den_lock_users(&t->den, false, false);
	int r;

	if (users < 0 && users != -EAGAIN)
		return users;
	r = den_is_alive(&t->den);
	if (r <= 0)
		return r < 0 ? r : -ENOENT;
	if (users < 0)
		return -EAGAIN; /* somebody stops it, or looks whether it may be adopted */
	r = den_place(&t->den, &t->op->place);
	if (r == 0)
		t->users = steal_fd(&users);
	return r;
}

static void run_discover(struct task *t)
{
	t->r = discover(t);
}

static void end_discover(struct task *t)
{
	if (t->r == -EAGAIN && task_may_wait(t)) {
		task_again(t);
		return;
	}
	if (t->r < 0 && t->cancelled) {
		task_end(t, -ECANCELED);
		return;
	}
	if (t->r < 0 && t->r != -ENOENT)
		task_say(t, "cannot look at %s: %s", t->den.dir, strerrordesc_np(-t->r));
	task_end(t, t->r < 0 ? -ENOENT : 0);
}

static void embedded_discover(struct backend *b, struct backend_op *op, const char *id)
{
	struct task *t = task_new(embedded_of(b), op, id, -ENOENT);

	if (!t)
		return;
	t->give_up_ms = clock_ms() + BUSY_MS;
	task_work(t, run_discover, end_discover);
}

/* ---- adopt ---- */

/* -EAGAIN, -ENOLCK: others use it; what we had before may be lost then. */
static int lock_for_adoption(struct task *t)
{
	int r;

	if (t->users < 0) {
		r = den_lock_users(&t->den, true, false);
		if (r >= 0)
			t->users = r;
	} else {
		r = filelock_change(t->users, true);
		if (r == -ENOLCK)
			close(steal_fd(&t->users));
	}
	return MIN(r, 0);
}

/* Exclusive for a moment proves that nobody else uses it. */
static int adopt(struct task *t)
{
	int r, alive;

	r = lock_for_adoption(t);
	if (r < 0)
		return r == -ENOENT || den_is_alive(&t->den) == 0 ? -ENOENT : r;
	alive = den_is_alive(&t->den);
	if (alive == 0) {
		if (den_bury(&t->den, t->users) == 0)
			t->users = -1;
		return -ENOENT;
	}
	/* Also if it cannot be told: kept exclusively it would be nobody else's for ever. */
	r = filelock_change(t->users, false);
	if (r < 0)
		close(steal_fd(&t->users));
	if (alive < 0 || r < 0)
		return alive < 0 ? alive : r;
	return den_place(&t->den, &t->op->place);
}

static void run_adopt(struct task *t)
{
	t->r = adopt(t);
	/* Nothing was gained; what we had is not to be lost either. */
	if (t->r < 0 && t->r != -ENOENT && t->users < 0 && t->was_resident) {
		int r = den_lock_users(&t->den, false, false);

		t->users = MAX(r, -1);
	}
}

static void end_adopt(struct task *t)
{
	bool busy = t->r == -EAGAIN || t->r == -ENOLCK;

	if (busy && task_may_wait(t)) {
		task_again(t);
		return;
	}
	if (t->r == -ENOENT && t->users >= 0)
		close(steal_fd(&t->users)); /* dead: nothing to keep it for */
	if (t->r < 0 && t->users >= 0 && t->was_resident && !t->forgotten)
		embedded_keep(t->e, t->id, steal_fd(&t->users));
	if (busy)
		task_say(t, "another program uses it");
	else if (t->r < 0 && t->r != -ENOENT)
		task_say(t, "cannot look at %s: %s", t->den.dir, strerrordesc_np(-t->r));
	task_end(t, t->r < 0 && t->cancelled ? -ECANCELED : busy ? -EBUSY : t->r);
}

static void embedded_adopt(struct backend *b, struct backend_op *op, const char *id)
{
	struct embedded *e = embedded_of(b);
	struct task *t = task_new(e, op, id, -ENOENT);

	if (!t)
		return;
	t->users = embedded_take(e, id);
	t->was_resident = t->users >= 0;
	t->cancel = end_adopt;
	t->give_up_ms = clock_ms() + PATIENCE_MS;
	task_work(t, run_adopt, end_adopt);
}

/* ---- list_running ---- */

/* What a crash left. Nothing happens to what somebody uses or just makes. */
static void bury_if_unused(const struct den *d)
{
	int users = den_lock_users(d, true, true);

	if (users >= 0 && den_bury(d, users) < 0)
		close(users);
}

static int add_place(struct task *t, const struct den *d)
{
	struct backend_op *op = t->op;
	struct place p = { 0 }, *more;
	int r;

	r = den_place(d, &p);
	if (r < 0)
		return r;
	more = reallocarray(op->places, op->nplaces + 1, sizeof(*more));
	if (!more) {
		place_release(&p);
		return -ENOMEM;
	}
	op->places = more;
	op->places[op->nplaces++] = p;
	return 0;
}

/* What is no directory of ours is none of our business; other errors are. */
static int list_one(struct task *t, const char *id)
{
	struct den d;
	int alive;

	den_init(&d, t->e->root, id);
	alive = den_is_alive(&d);
	if (alive == -ELOOP || alive == -ENOTDIR || alive == -EPERM || alive == -EACCES)
		return 0;
	if (alive == 0)
		bury_if_unused(&d);
	return alive > 0 ? add_place(t, &d) : alive;
}

static int list(struct task *t)
{
	int fd = den_open_root(t->e->root);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *e;
	int r = 0;

	if (!dir) {
		r = fd < 0 ? fd : -errno;
		cleanup_fd_(&fd);
		return r == -ENOENT ? 0 : r;
	}
	while (r == 0 && (e = dir_next(dir, &r))) {
		if (den_is_id(e->d_name))
			r = list_one(t, e->d_name);
	}
	closedir(dir);
	return r;
}

static void run_list(struct task *t)
{
	t->r = list(t);
}

static void end_list(struct task *t)
{
	struct backend_op *op = t->op;

	if (t->r < 0) {
		for (size_t i = 0; i < op->nplaces; i++)
			place_release(&op->places[i]);
		free(STEAL(op->places));
		op->nplaces = 0;
		task_say(t, "cannot read %s: %s", t->e->root, strerrordesc_np(-t->r));
	}
	task_end(t, t->r);
}

static void embedded_list(struct backend *b, struct backend_op *op)
{
	struct task *t = task_new(embedded_of(b), op, NULL, 0);

	if (t)
		task_work(t, run_list, end_list);
}

/* ---- tend ---- */

static void run_tend(struct task *t)
{
	for (size_t i = 0; i < t->nids; i++)
		log_rotate(t->e->data, t->ids[i], t->e->log_max);
}

static void end_tend(struct task *t)
{
	t->e->tending = false;
	task_end(t, 0);
}

static void embedded_tend(struct backend *b)
{
	struct embedded *e = embedded_of(b);
	struct resident *s, *next;
	struct task *t;

	if (e->tending || !e->residents)
		return;
	t = task_new(e, NULL, NULL, 0);
	if (!t)
		return;
	t->ids = calloc(HASH_COUNT(e->residents), sizeof(*t->ids));
	if (!t->ids) {
		task_end(t, -ENOMEM);
		return;
	}
	HASH_ITER (hh, e->residents, s, next)
		memcpy(t->ids[t->nids++], s->id, sizeof(s->id));
	e->tending = true;
	task_work(t, run_tend, end_tend);
}

static void embedded_cancel(struct backend *b UNUSED, struct backend_op *op)
{
	if (op->priv)
		task_cancel(op->priv);
}

/* ---- life ---- */

struct beginning {
	struct embedded *e;
	int r;
};

static void begin_on_loop(void *ctx)
{
	struct beginning *begin = ctx;
	struct embedded *e = begin->e;

	begin->r = workers_new(loop_ev(e->b.loop), WORKERS, &e->workers);
}

static void end_on_loop(void *ctx)
{
	struct embedded *e = ctx;
	struct resident *s, *next;
	struct child *c, *next_child;

	workers_free(STEAL(e->workers));
	assert(!e->tasks);
	HASH_ITER (hh, e->residents, s, next)
		drop_resident(e, s);
	DL_FOREACH_SAFE (e->children, c, next_child) {
		process_unwatch(&c->process, loop_ev(e->b.loop));
		process_release(&c->process);
		DL_DELETE(e->children, c);
		free(c);
	}
}

static void release(struct embedded *e)
{
	free(e->data);
	free(e->root);
	free(e->program);
	free(e->dialect);
	free(e);
}

static void embedded_free(struct backend *b)
{
	struct embedded *e = embedded_of(b);

	loop_run(b->loop, end_on_loop, e);
	release(e);
}

static const struct backend_ops ops = {
	.name = "embedded",
	.is_shared = true,
	.create = embedded_create,
	.destroy = embedded_destroy,
	.is_alive = embedded_is_alive,
	.discover = embedded_discover,
	.adopt = embedded_adopt,
	.list_running = embedded_list,
	.forget = embedded_forget,
	.tend = embedded_tend,
	.cancel = embedded_cancel,
	.free = embedded_free,
};

/* ---- making it ---- */

static int refuse(char **ret_why, int r, const char *fmt, ...) PRINTF_LIKE(3, 4);
static int refuse(char **ret_why, int r, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(ret_why, fmt, ap) < 0)
		*ret_why = NULL;
	va_end(ap);
	return r;
}

/* DIR/NAME if it is a program; NULL otherwise. */
static char *program_in(const char *dir, size_t len, const char *name)
{
	char *path CLEANUP_FREE = NULL;
	struct stat st;

	if (asprintf(&path, "%.*s/%s", (int)len, dir, name) < 0) {
		path = NULL;
		return NULL;
	}
	if (path[0] != '/' || stat(path, &st) < 0 || !S_ISREG(st.st_mode) || access(path, X_OK) < 0)
		return NULL;
	return STEAL(path);
}

static char *program_in_path(const char *name)
{
	const char *path = getenv("PATH");
	char *found = NULL;

	for (path = path ? path : "/usr/local/bin:/usr/bin:/bin"; !found; path++) {
		size_t len = strcspn(path, ":");

		found = program_in(path, len, name);
		path += len;
		if (!*path)
			break;
	}
	return found;
}

static int find_program(struct embedded *e, const char *given, char **ret_why)
{
	struct stat st;
	int r = 0;

	if (given && strchr(given, '/')) {
		/* The working directory may change, and sandboxes start elsewhere. */
		e->program = realpath(given, NULL);
		if (!e->program || stat(e->program, &st) < 0 || access(e->program, X_OK) < 0)
			r = -errno;
		else if (!S_ISREG(st.st_mode))
			r = S_ISDIR(st.st_mode) ? -EISDIR : -EACCES;
		return r == 0 ? 0
			      : refuse(ret_why, r, "cannot run %s: %s", given, strerrordesc_np(-r));
	}
	if (!given)
		r = beside_find(PROGRAM, &e->program);
	if (r == -EPERM)
		log_warn(PROGRAM " beside this program is a stranger's: it is not run");
	if (!e->program)
		e->program = program_in_path(given ? given : PROGRAM);
	if (!e->program)
		return refuse(ret_why, -ENOENT, "%s was not found%s in PATH; is it installed?",
			      given ? given : PROGRAM, given ? "" : " beside this program nor");
	return 0;
}

static int find_data(struct embedded *e, const char *data, char **ret_why)
{
	int r;

	if (!data || data[0] != '/')
		return refuse(ret_why, -EINVAL, "the data root must be an absolute path");
	r = paths_make(data, 0700);
	if (r == 0) {
		e->data = realpath(data, NULL);
		if (!e->data || access(e->data, W_OK | X_OK) < 0)
			r = -errno;
	}
	if (r < 0)
		return refuse(ret_why, r, "cannot use the data root %s: %s", data,
			      strerrordesc_np(-r));
	return 0;
}

/* RUNTIME/HASH; whoever could write there could make us talk to a sandbox of theirs. */
static int find_root(struct embedded *e, const char *given, char **ret_why)
{
	char *runtime CLEANUP_FREE = NULL;
	int fd CLEANUP_FD = -1;
	char hash[DEN_HASH + 1];
	int r = 0;

	if (given && given[0] != '/')
		return refuse(ret_why, -EINVAL, "the runtime directory must be an absolute path");
	if (given)
		runtime = strdup(given);
	else
		r = paths_runtime(&runtime);
	if (r < 0)
		return refuse(ret_why, r, "there is no runtime directory: %s", strerrordesc_np(-r));
	ident_digest(e->data, hash, DEN_HASH);
	if (!runtime || asprintf(&e->root, "%s/%s", runtime, hash) < 0) {
		e->root = NULL;
		return -ENOMEM;
	}
	if (!den_fits(e->root))
		return refuse(
			ret_why, -ENAMETOOLONG,
			"the runtime directory %s is too long: sockets below it would not fit",
			runtime);
	r = paths_make(e->root, 0700);
	if (r == 0) {
		fd = den_open_root(e->root);
		r = MIN(fd, 0);
	}
	if (r < 0)
		return refuse(ret_why, r, "cannot use the runtime directory %s: %s", e->root,
			      r == -EPERM ? "it is not ours alone" : strerrordesc_np(-r));
	return 0;
}

static int configure(struct embedded *e, const struct embedded_config *config, char **ret_why)
{
	int r;

	e->no_isolation = config->no_isolation;
	e->net_host = config->net_host;
	e->ready_ms = config->ready_ms > 0 ? config->ready_ms : READY_MS;
	e->log_max = config->log_max > 0 ? config->log_max : (int64_t)MIB;
	if (config->dialect) {
		e->dialect = strdup(config->dialect);
		if (!e->dialect)
			return -ENOMEM;
	}
	r = find_program(e, config->program, ret_why);
	if (r == 0)
		r = find_data(e, config->data, ret_why);
	if (r == 0)
		r = find_root(e, config->runtime, ret_why);
	return r;
}

int backend_embedded_new(struct loop *loop, const struct embedded_config *config,
			 struct backend **ret, char **ret_why)
{
	struct embedded *e = calloc(1, sizeof(*e));
	char *why = NULL;
	int r = -ENOMEM;

	if (e) {
		e->b = (struct backend){ .ops = &ops, .loop = loop };
		r = configure(e, config, &why);
	}
	if (r == 0) {
		struct beginning begin = { .e = e };

		loop_run(loop, begin_on_loop, &begin);
		r = begin.r;
	}
	if (r == 0) {
		*ret = &e->b;
		return 0;
	}
	if (e)
		release(e);
	if (!why)
		why = strdup(strerrordesc_np(-r));
	if (ret_why)
		*ret_why = STEAL(why);
	free(why);
	return r;
}
