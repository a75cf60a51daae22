/*
 * A sandbox's life: made from its configuration, closed once, freed with the
 * last reference. What it can do is in the other files.
 */
#include "sandbox.h"

#include <errno.h>
#include <string.h>
#include <sys/un.h>
#include <utlist.h>

#include "clock.h"
#include "log.h"
#include "pool.h"
#include "sandbox_i.h"
#include "url.h"
#include "view.h"

enum {
	QUICK_MAX = 8,
	STREAMS_MAX = 64,
	WAITS_MAX = 64,
	FAREWELL_MS = 500,        /* when somebody waits for the sandbox to be closed */
	FAREWELL_OPEN_MS = 10000, /* before */
	FAREWELL_PAUSE_MS = 100,  /* then twice as long each time */
	FAREWELL_TRIES = 3,       /* in the end; about 0.3 s */
	FAREWELL_OPEN_TRIES = 6,  /* before; about 3 s */
	FAREWELLS_UNHEARD_MAX = 64,
};

/* A request of the last moment: an operation of its own, with its own call. */
struct farewell {
	struct op op;
	struct call call;
	struct exchange x;
	const char *method; /* static */
	char *target;
	struct farewell *prev, *next; /* sb->farewells until it is sent */
	bool insists;                 /* it is said several times */
	unsigned tries;
	ev_timer again;
};

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;

static void init_curl(void)
{
	curl_global_init(CURL_GLOBAL_DEFAULT);
}

/* ---- from the configuration ---- */

static bool is_header_value(const char *s)
{
	for (; *s; s++) {
		if ((unsigned char)*s < 0x20 || *s == 0x7f)
			return false;
	}
	return true;
}

static int add_credential(struct sandbox *sb, const char *name, const char *value)
{
	char *line CLEANUP_FREE = NULL;
	struct curl_slist *more;

	if (asprintf(&line, "%s%s", name, value) < 0)
		return -ENOMEM;
	more = curl_slist_append(sb->credentials, line);
	if (!more)
		return -ENOMEM;
	sb->credentials = more;
	return 0;
}

static int set_credentials(struct sandbox *sb, const struct sandbox_config *config,
			   const char **ret_why)
{
	/* A server of the last generation knows the key as a bearer only. */
	const char *bearer = config->bearer ?: config->api_key;
	int r = 0;

	if ((bearer && !is_header_value(bearer)) ||
	    (config->api_key && !is_header_value(config->api_key))) {
		*ret_why = "the key holds control characters";
		return -EINVAL;
	}
	if (config->api_key)
		r = add_credential(sb, "X-AIO-API-Key: ", config->api_key);
	if (r == 0 && bearer)
		r = add_credential(sb, "Authorization: Bearer ", bearer);
	return r;
}

static int set_socket(struct sandbox *sb, const char *path, const char **ret_why)
{
	struct sockaddr_un *to = (struct sockaddr_un *)&sb->at.addr;

	if (strlen(path) >= sizeof(to->sun_path)) {
		*ret_why = "the socket's path is too long";
		return -EINVAL;
	}
	to->sun_family = AF_UNIX;
	strcpy(to->sun_path, path);
	sb->at.len = sizeof(*to);
	sb->bypass_proxy = true;
	sb->socket = strdup(path);
	sb->base_url = strdup("http://sandbox");
	return sb->socket && sb->base_url ? 0 : -ENOMEM;
}

static int set_address(struct sandbox *sb, const struct sandbox_config *config,
		       const char **ret_why)
{
	if (!config->url == !config->socket) {
		*ret_why = "either a URL or a socket is needed";
		return -EINVAL;
	}
	if (config->url) {
		sb->bypass_proxy = url_is_local(config->url);
		return url_tidy(config->url, &sb->base_url, ret_why);
	}
	return set_socket(sb, config->socket, ret_why);
}

static int set_up(struct sandbox *sb, const struct sandbox_config *config, const char **ret_why)
{
	int r = set_address(sb, config, ret_why);

	if (r == 0)
		r = set_credentials(sb, config, ret_why);
	if (r == 0) {
		r = view_root(config->root ?: "/mnt/user-data", &sb->root);
		if (r == -EINVAL)
			*ret_why = "the root must be an absolute path without ..";
	}
	if (r < 0)
		return r;
	sb->label = strdup(config->label ?: config->socket ?: sb->base_url);
	if (!sb->label)
		return -ENOMEM;
	if (config->cacert && !(sb->cacert = strdup(config->cacert)))
		return -ENOMEM;
	sb->insecure = config->insecure;
	sb->no_link_local = config->no_link_local;
	r = posix_channel_new(&sb->posix);
	if (r == 0)
		r = command_channel_new(&sb->commands);
	if (r == 0)
		r = run_channel_new(&sb->runs);
	return r;
}

static void sandbox_free(struct sandbox *sb)
{
	assert(!sb->pool && !sb->wires && !sb->ops && !sb->farewells);
	posix_channel_free(sb->posix);
	command_channel_free(sb->commands);
	run_channel_free(sb->runs);
	if (sb->info)
		sandbox_info_release(sb->info);
	free(sb->info);
	curl_slist_free_all(sb->credentials);
	free(sb->base_url);
	free(sb->socket);
	free(sb->label);
	free(sb->root);
	free(sb->cacert);
	pthread_cond_destroy(&sb->cond);
	lock_destroy(&sb->lock);
	free(sb);
}

int sandbox_new(struct loop *loop, const struct sandbox_config *config, struct sandbox **ret,
		const char **ret_why)
{
	struct sandbox *sb = calloc(1, sizeof(*sb));
	const char *why = NULL;
	int r;

	if (!sb)
		return -ENOMEM;
	pthread_once(&curl_once, init_curl);
	lock_init(&sb->lock);
	pthread_cond_init(&sb->cond, NULL);
	sb->loop = loop;
	sb->heard_ms = clock_ms();
	atomic_init(&sb->refs, 1);
	atomic_init(&sb->closed, false);
	sb->lanes[LANE_QUICK].max = QUICK_MAX;
	sb->lanes[LANE_STREAM].max = STREAMS_MAX;
	sb->lanes[LANE_WAIT].max = WAITS_MAX;
	r = set_up(sb, config, &why);
	if (r < 0) {
		if (ret_why)
			*ret_why = why;
		sandbox_free(sb);
		return r;
	}
	*ret = sb;
	return 0;
}

int64_t sandbox_heard_ms(const struct sandbox *sb)
{
	return sb->heard_ms;
}

/* ---- references ---- */

struct sandbox *sandbox_ref(struct sandbox *sb)
{
	atomic_fetch_add(&sb->refs, 1);
	return sb;
}

static void put(struct sandbox *sb, int refs)
{
	if (atomic_fetch_sub(&sb->refs, refs) == refs)
		sandbox_free(sb);
}

void sandbox_put(struct sandbox *sb)
{
	put(sb, 1);
}

void sandbox_unref(struct sandbox *sb)
{
	if (!sb)
		return;
	sandbox_close(sb);
	sandbox_put(sb);
}

/* ---- paths ---- */

/* A stranger's path on one line of the log. */
static void printable(char *to, size_t size, const char *s)
{
	size_t i;

	for (i = 0; i + 1 < size && s[i]; i++)
		to[i] = s[i] >= 0x20 && s[i] < 0x7f ? s[i] : '?';
	to[i] = 0;
}

bool sandbox_allows(struct sandbox *sb, struct call *call, const char *path)
{
	char shown[256];
	const char *why = NULL;
	int r = view_check(sb->root, path, &why);

	if (r == 0)
		return true;
	if (r != -ENAMETOOLONG) { /* that is anybody's mistake, the others are the caller's */
		printable(shown, sizeof(shown), path);
		log_error("%s: refused path %s: %s", sb->label, shown, why);
	}
	op_reject(sb, call, r, "%s", why);
	return false;
}

/* ---- closing ---- */

static void tell_closed(struct sandbox *sb)
{
	if (sb->on_closed)
		sb->on_closed(sb->on_closed_ctx);
}

static void run_dismissed(struct job *job)
{
	struct sandbox *sb = CONTAINER_OF(job, struct sandbox, dismissed_job);

	tell_closed(sb);
	sandbox_put(sb);
}

/*
 * Loop thread: closes the sockets; nothing uses them any more. Gives up the caller's
 * reference, and that of who dismissed it.
 */
static void tear_down(struct sandbox *sb)
{
	bool dismissed;

	pool_free(STEAL(sb->pool));
	wires_free(STEAL(sb->wires));
	lock(&sb->lock);
	sb->torn_down = true;
	dismissed = sb->dismissed;
	pthread_cond_broadcast(&sb->cond);
	unlock(&sb->lock);
	if (dismissed)
		tell_closed(sb);
	put(sb, dismissed ? 2 : 1);
}

/* After the last farewell. A job, as that ends inside the pool, which goes now. */
static void run_end(struct job *job)
{
	tear_down(CONTAINER_OF(job, struct sandbox, end_job));
}

static struct op *next_to_interrupt(const struct sandbox *sb)
{
	struct op *op;

	DL_FOREACH (sb->ops, op) {
		if (!op->farewell)
			break;
	}
	return op;
}

static void hurry_farewells(struct sandbox *sb);

static void run_close(struct job *job)
{
	struct sandbox *sb = CONTAINER_OF(job, struct sandbox, close_job);
	struct op *op;

	sb->closing = true;
	sb->farewells_running++; /* none of them is the last one before all have begun */
	/* Their owners cannot start others: the sandbox is closed already. */
	while ((op = next_to_interrupt(sb)))
		op_interrupt(op, -ENOTCONN);
	run_channel_close(sb);
	hurry_farewells(sb);
	while (sb->farewells)
		sandbox_say_farewell(sb, sb->farewells);
	if (--sb->farewells_running == 0)
		tear_down(sb);
	else
		sandbox_put(sb);
}

static void begin_close(struct sandbox *sb)
{
	if (!atomic_exchange(&sb->closed, true)) {
		sandbox_ref(sb);
		sb->close_job.run = run_close;
		loop_post(sb->loop, &sb->close_job);
	}
}

void sandbox_dismiss(struct sandbox *sb, void (*closed)(void *ctx), void *ctx)
{
	lock(&sb->lock);
	assert(!sb->dismissed);
	sb->dismissed = true;
	sb->on_closed = closed;
	sb->on_closed_ctx = ctx;
	sb->dismissed_job.run = run_dismissed;
	sandbox_ref(sb); /* the callback may give up the last one before we are through */
	if (sb->torn_down)
		loop_post(sb->loop, &sb->dismissed_job);
	unlock(&sb->lock);
	begin_close(sb);
	sandbox_put(sb);
}

void sandbox_close(struct sandbox *sb)
{
	begin_close(sb);
	if (loop_is_current(sb->loop))
		return;
	lock(&sb->lock);
	while (!sb->torn_down)
		pthread_cond_wait(&sb->cond, &sb->lock.mutex);
	unlock(&sb->lock);
}

/* ---- farewells ---- */

struct sandbox *sandbox_hold(struct sandbox *sb)
{
	sb->farewells_running++;
	return sandbox_ref(sb);
}

void sandbox_let_go(struct sandbox *sb)
{
	if (--sb->farewells_running > 0 || !sb->closing) {
		sandbox_put(sb);
		return;
	}
	sb->end_job.run = run_end; /* takes over the reference */
	loop_post(sb->loop, &sb->end_job);
}

struct farewell *sandbox_add_farewell(struct sandbox *sb, const char *method, const char *target)
{
	struct farewell *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->method = method;
	f->target = strdup(target);
	if (!f->target) {
		free(f);
		return NULL;
	}
	DL_APPEND(sb->farewells, f);
	return f;
}

static void free_farewell(struct farewell *f)
{
	free(f->target);
	free(f);
}

void sandbox_drop_farewell(struct sandbox *sb, struct farewell *f)
{
	if (!f)
		return;
	DL_DELETE(sb->farewells, f);
	free_farewell(f);
}

static void start_farewell(struct op *op);

static void on_farewell_again(struct ev_loop *ev UNUSED, ev_timer *w, int revents UNUSED)
{
	start_farewell(w->data);
}

/*
 * A 404 may mean that it overtook what it is to undo: a request that its caller
 * gave up, still on its way to the server on another connection. If that makes anew what was
 * there before, not even the answer tells.
 */
static void on_farewell_answer(struct exchange *x, int err)
{
	struct farewell *f = CONTAINER_OF(x, struct farewell, x);
	unsigned tries = x->op->sb->closing ? FAREWELL_TRIES : FAREWELL_OPEN_TRIES;

	if (err || !(x->status == 404 || f->insists) || f->tries >= tries) {
		op_finish(x->op, err);
		return;
	}
	ev_timer_init(&f->again, on_farewell_again, (FAREWELL_PAUSE_MS << (f->tries - 1)) / 1e3,
		      0.);
	f->again.data = &f->op;
	ev_timer_start(loop_ev(f->op.sb->loop), &f->again);
}

static void start_farewell(struct op *op)
{
	struct farewell *f = (struct farewell *)op;

	if (op->sb->closing)
		op_hurry(op, FAREWELL_MS);
	f->tries++;
	exchange_release(&f->x);
	exchange_init(&f->x, op, f->method, f->target, on_farewell_answer);
	f->x.lane = LANE_WAIT; /* nobody waits for it */
	exchange_start(&f->x);
}

static void release_farewell_op(struct op *op)
{
	struct farewell *f = (struct farewell *)op;

	ev_timer_stop(loop_ev(op->sb->loop), &f->again);
	exchange_release(&f->x);
}

/* From now on somebody waits for them. What is between two tries has one more. */
static void hurry_farewells(struct sandbox *sb)
{
	struct op *op;

	DL_FOREACH (sb->ops, op) {
		struct farewell *f = (struct farewell *)op;

		if (op->start != start_farewell)
			continue;
		op_hurry(op, FAREWELL_MS);
		if (ev_is_active(&f->again)) {
			ev_timer_stop(loop_ev(sb->loop), &f->again);
			f->tries = MAX(f->tries, FAREWELL_TRIES - 1);
			start_farewell(op);
		}
	}
}

static void on_farewell_done(struct call *call)
{
	struct farewell *f = CONTAINER_OF(call, struct farewell, call);
	struct sandbox *sb = call->ctx;
	bool unheard = call->error;

	call_release(call);
	if (unheard && !sb->closing && sb->farewells_unheard < FAREWELLS_UNHEARD_MAX) {
		sb->farewells_unheard++;
		DL_APPEND(sb->farewells, f); /* once more in the end */
	} else {
		free_farewell(f);
	}
	sandbox_let_go(sb);
}

void sandbox_say_farewell(struct sandbox *sb, struct farewell *f)
{
	if (!f)
		return;
	DL_DELETE(sb->farewells, f);
	call_init(&f->call, FAREWELL_OPEN_MS);
	f->call.done = on_farewell_done;
	f->call.ctx = sandbox_hold(sb);
	f->op = (struct op){ .farewell = true };
	f->tries = 0;
	op_submit(&f->op, sb, &f->call, start_farewell, release_farewell_op);
}

void sandbox_insist_farewell(struct sandbox *sb, struct farewell *f)
{
	if (!f)
		return;
	f->insists = true;
	sandbox_say_farewell(sb, f);
}

const char *sandbox_root(const struct sandbox *sb)
{
	return sb->root;
}
