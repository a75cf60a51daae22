/*
 * See rogue.h. Life of the server, its rules and its records; what happens on a
 * connection is in rogue_conn.c. One thread accepts while the server listens.
 */
#include "rogue.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/un.h>

#include "clock.h"
#include "rogue_i.h"

enum { BACKLOG = 128 };

static void *must(void *p)
{
	if (!p)
		abort();
	return p;
}

static char *copy(const char *s)
{
	return s ? must(strdup(s)) : NULL;
}

static char *copy_bytes(const char *bytes, size_t *len)
{
	char *p;

	if (!bytes)
		return NULL;
	if (!*len)
		*len = strlen(bytes);
	p = must(malloc(*len + 1));
	memcpy(p, bytes, *len);
	p[*len] = '\0';
	return p;
}

/* ---- listening ---- */

static int open_socket(const struct rogue *r)
{
	int fd CLEANUP_FD = socket(r->address.sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int on = 1;

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
	    bind(fd, (const struct sockaddr *)&r->address.sa, r->address.len) < 0)
		return -errno;
	return steal_fd(&fd);
}

/*
 * A socket that is bound and never listens keeps the port ours, so that nobody
 * else gets it while the server is deaf.
 */
static int choose_port(struct rogue *r)
{
	struct sockaddr_in *in4 = (struct sockaddr_in *)&r->address.sa;

	in4->sin_family = AF_INET;
	in4->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	r->address.len = sizeof(*in4);
	r->port_fd = open_socket(r);
	if (r->port_fd < 0)
		return r->port_fd;
	if (getsockname(r->port_fd, (struct sockaddr *)in4, &r->address.len) < 0)
		return -errno;
	if (asprintf(&r->url, "http://127.0.0.1:%u", ntohs(in4->sin_port)) < 0)
		abort();
	return 0;
}

static int choose_path(struct rogue *r)
{
	if (!scratch_dir(r->dir))
		return -errno;
	if (asprintf(&r->socket, "%s/rogue", r->dir) < 0)
		abort();
	r->url = copy("http://localhost");
	return address_set_unix(&r->address, r->socket);
}

static void reap(struct rogue *r)
{
	struct conn *gone = NULL, *c, *next;

	lock(&r->lock);
	for (c = r->conns; c; c = next) {
		next = c->next;
		if (!c->done)
			continue;
		*(c->prev ? &c->prev->next : &r->conns) = c->next;
		if (c->next)
			c->next->prev = c->prev;
		c->next = gone;
		gone = c;
	}
	unlock(&r->lock);
	for (c = gone; c; c = next) {
		next = c->next;
		pthread_join(c->thread, NULL);
		close(c->wake_fd);
		free(c);
	}
}

static void *conn_main(void *arg)
{
	struct conn *c = arg;
	struct rogue *r = c->rogue;

	rogue_conn_run(c);
	lock(&r->lock);
	c->done = true;
	pthread_cond_broadcast(&r->changed);
	unlock(&r->lock);
	return NULL;
}

static void serve(struct rogue *r, int fd)
{
	struct conn *c = must(calloc(1, sizeof(*c)));

	c->rogue = r;
	c->fd = fd;
	c->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (c->wake_fd < 0)
		abort();
	lock(&r->lock);
	c->number = r->connections;
	c->next = r->conns;
	if (c->next)
		c->next->prev = c;
	r->conns = c;
	pthread_cond_broadcast(&r->changed);
	unlock(&r->lock);
	if (pthread_create(&c->thread, NULL, conn_main, c))
		abort();
}

static void *accept_main(void *arg)
{
	struct rogue *r = arg;
	bool refused;
	int on = 1, buffer = 128 * 1024, fd;

	/* rogue_stop_listening() shuts the socket down, which ends this. */
	while ((fd = accept4(r->listen_fd, NULL, NULL, SOCK_CLOEXEC)) >= 0 || errno == EINTR ||
	       errno == ECONNABORTED) {
		reap(r);
		if (fd < 0)
			continue;
		lock(&r->lock);
		r->connections++;
		refused = r->refuse > 0;
		r->refuse -= refused;
		unlock(&r->lock);
		if (refused) {
			close(fd);
			continue;
		}
		if (!r->socket) {
			setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
			/* It would take megabytes that the client has not asked for yet. */
			setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer));
		}
		serve(r, fd);
	}
	return NULL;
}

static int start_listening(struct rogue *r)
{
	int fd CLEANUP_FD = -1;

	if (r->socket)
		unlink(r->socket);
	fd = open_socket(r);
	if (fd < 0)
		return fd;
	if (listen(fd, BACKLOG) < 0)
		return -errno;
	r->listen_fd = steal_fd(&fd);
	if (pthread_create(&r->acceptor, NULL, accept_main, r))
		abort();
	return 0;
}

void rogue_listen(struct rogue *r)
{
	int ret = r->listen_fd < 0 ? start_listening(r) : 0;

	if (ret < 0) {
		fprintf(stderr, "rogue: cannot listen again: %s\n", strerrordesc_np(-ret));
		abort();
	}
}

void rogue_stop_listening(struct rogue *r)
{
	if (r->listen_fd < 0)
		return;
	shutdown(r->listen_fd, SHUT_RDWR);
	pthread_join(r->acceptor, NULL);
	close(r->listen_fd);
	r->listen_fd = -1;
}

void rogue_refuse(struct rogue *r, unsigned connections)
{
	lock(&r->lock);
	r->refuse = connections;
	unlock(&r->lock);
}

/* ---- life ---- */

static int set_upstream(struct rogue *r, const char *upstream)
{
	if (!upstream)
		return 0;
	if (upstream[0] == '/')
		return address_set_unix(&r->upstream, upstream);
	if (strncmp(upstream, "http://", 7) == 0)
		upstream += 7;
	return address_set_loopback(&r->upstream, upstream);
}

struct rogue *rogue_new(const char *upstream, bool tcp)
{
	struct rogue *r = must(calloc(1, sizeof(*r)));
	pthread_condattr_t attr;
	int ret;

	r->listen_fd = r->port_fd = -1;
	lock_init(&r->lock);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&r->changed, &attr);
	pthread_condattr_destroy(&attr);
	ret = set_upstream(r, upstream);
	if (ret == 0)
		ret = tcp ? choose_port(r) : choose_path(r);
	if (ret == 0)
		ret = start_listening(r);
	if (ret < 0) {
		fprintf(stderr, "rogue: cannot start: %s\n", strerrordesc_np(-ret));
		rogue_free(r);
		return NULL;
	}
	return r;
}

static void record_free(struct record *rec)
{
	rogue_request_release(&rec->q);
	buf_release(&rec->body);
	free(rec);
}

static void rule_free(struct rule *rule)
{
	free((char *)rule->want.method);
	free((char *)rule->want.path);
	free((char *)rule->want.body_contains);
	free((char *)rule->want.reply.headers);
	free((char *)rule->want.reply.body);
	free((char *)rule->want.reply.unit);
	free((char *)rule->want.reply.tail);
	free((char *)rule->want.reply.raw);
	free((char *)rule->want.reply.endless_head);
	free(rule);
}

void rogue_free(struct rogue *r)
{
	struct rule *rule;

	if (!r)
		return;
	rogue_stop_listening(r);
	rogue_close_connections(r, false);
	reap(r);
	while ((rule = r->rules)) {
		r->rules = rule->next;
		rule_free(rule);
	}
	for (size_t i = 0; i < r->records_len; i++)
		record_free(r->records[i]);
	free(r->records);
	if (r->port_fd >= 0)
		close(r->port_fd);
	if (r->socket)
		unlink(r->socket);
	if (r->dir[0])
		rmdir(r->dir);
	free(r->socket);
	free(r->url);
	pthread_cond_destroy(&r->changed);
	lock_destroy(&r->lock);
	free(r);
}

const char *rogue_url(const struct rogue *r)
{
	return r->url;
}

const char *rogue_socket(const struct rogue *r)
{
	return r->socket;
}

/* ---- rules ---- */

struct rogue_reply rogue_json_string(uint64_t bytes)
{
	return (struct rogue_reply){
		.body = "{\"success\":true,\"data\":\"", .unit = "a", .units = bytes, .tail = "\"}"
	};
}

struct rogue_reply rogue_json_numbers(uint64_t bytes)
{
	return (struct rogue_reply){ .body = "{\"success\":true,\"data\":[",
				     .unit = "1234567,",
				     .units = bytes / 8,
				     .tail = "0]}" };
}

struct rogue_reply rogue_json_deep(uint64_t depth)
{
	return (struct rogue_reply){ .unit = "[", .units = depth };
}

void rogue_add(struct rogue *r, const struct rogue_rule *from)
{
	struct rule *rule = must(calloc(1, sizeof(*rule))), **last;
	struct rogue_rule *want = &rule->want;
	struct rogue_reply *reply = &want->reply;

	*want = *from;
	want->method = copy(want->method);
	want->path = copy(want->path);
	want->body_contains = copy(want->body_contains);
	reply->headers = copy(reply->headers);
	reply->body = copy_bytes(reply->body, &reply->body_len);
	reply->unit = copy(reply->unit);
	reply->tail = copy(reply->tail);
	reply->raw = copy_bytes(reply->raw, &reply->raw_len);
	reply->endless_head = copy(reply->endless_head);
	lock(&r->lock);
	for (last = &r->rules; *last; last = &(*last)->next)
		;
	*last = rule;
	unlock(&r->lock);
}

void rogue_answer(struct rogue *r, const char *method, const char *path, int status,
		  const char *body)
{
	rogue_add(r, &(struct rogue_rule){ .method = method,
					   .path = path,
					   .action = ROGUE_ANSWER,
					   .reply = { .status = status, .body = body } });
}

void rogue_clear(struct rogue *r)
{
	lock(&r->lock);
	for (struct rule *rule = r->rules; rule; rule = rule->next)
		rule->off = true;
	unlock(&r->lock);
}

static bool matches(const struct record *rec, const char *method, const char *path)
{
	size_t len = path ? strlen(path) : 0;

	if (method && strcmp(method, rec->q.method))
		return false;
	if (len && path[len - 1] == '$')
		return strcspn(rec->q.target, "?") == len - 1 &&
		       !strncmp(rec->q.target, path, len - 1);
	return !len || !strncmp(rec->q.target, path, len);
}

static bool body_has(const struct record *rec, const char *text)
{
	return !*text ||
	       (rec->body.len && memmem(rec->body.data, rec->body.len, text, strlen(text)));
}

static bool rule_might_match_locked(const struct rule *rule, const struct conn *c)
{
	return !rule->off && (!rule->want.reused || c->requests > 1) &&
	       matches(c->rec, rule->want.method, rule->want.path);
}

bool rogue_wants_body(struct conn *c)
{
	struct rogue *r = c->rogue;
	bool wants = false;

	lock(&r->lock);
	for (struct rule *rule = r->rules; rule && !wants; rule = rule->next)
		wants = rule->want.body_contains && rule_might_match_locked(rule, c);
	unlock(&r->lock);
	return wants;
}

const struct rogue_rule *rogue_match(struct conn *c)
{
	static const struct rogue_rule otherwise = { .action = ROGUE_FORWARD };
	const struct rogue_rule *found = &otherwise;
	struct rogue *r = c->rogue;

	lock(&r->lock);
	for (struct rule *rule = r->rules; rule; rule = rule->next) {
		const struct rogue_rule *want = &rule->want;

		if (!rule_might_match_locked(rule, c) ||
		    (want->body_contains && !body_has(c->rec, want->body_contains)) ||
		    rule->matched++ < want->skip || (want->times && rule->used >= want->times))
			continue;
		rule->used++;
		found = want;
		break;
	}
	c->rec->ruled = true;
	pthread_cond_broadcast(&r->changed);
	unlock(&r->lock);
	return found;
}

/* ---- connections ---- */

void rogue_release(struct rogue *r)
{
	lock(&r->lock);
	r->released = r->events;
	for (struct conn *c = r->conns; c; c = c->next)
		if (c->pausing)
			eventfd_write(c->wake_fd, 1);
	unlock(&r->lock);
}

static bool ending_locked(const struct rogue *r) NEEDS(&r->lock)
{
	for (const struct conn *c = r->conns; c; c = c->next)
		if (c->ended && !c->done)
			return true;
	return false;
}

void rogue_close_connections(struct rogue *r, bool idle_only)
{
	lock(&r->lock);
	for (struct conn *c = r->conns; c; c = c->next) {
		if (idle_only && c->rec)
			continue;
		c->ended = true;
		/* One that is just finishing an answer finds out by itself. */
		if (c->fd >= 0 && (!idle_only || c->reading))
			shutdown(c->fd, SHUT_RDWR);
	}
	while (ending_locked(r))
		pthread_cond_wait(&r->changed, &r->lock.mutex);
	unlock(&r->lock);
}

static unsigned open_locked(const struct rogue *r) NEEDS(&r->lock)
{
	unsigned n = 0;

	for (const struct conn *c = r->conns; c; c = c->next)
		n += c->fd >= 0;
	return n;
}

unsigned rogue_connections_open(struct rogue *r)
{
	unsigned n;

	lock(&r->lock);
	n = open_locked(r);
	unlock(&r->lock);
	return n;
}

unsigned rogue_connections_total(struct rogue *r)
{
	unsigned n;

	lock(&r->lock);
	n = r->connections;
	unlock(&r->lock);
	return n;
}

/* Returns false once the time is over. */
static bool wait_locked(struct rogue *r, const struct timespec *deadline) NEEDS(&r->lock)
{
	return pthread_cond_timedwait(&r->changed, &r->lock.mutex, deadline) != ETIMEDOUT;
}

static struct timespec deadline_in(int ms)
{
	int64_t at = clock_ms() + ms;

	return (struct timespec){ .tv_sec = at / 1000, .tv_nsec = at % 1000 * 1000000 };
}

bool rogue_wait_connections(struct rogue *r, unsigned open, int timeout_ms)
{
	struct timespec deadline = deadline_in(timeout_ms);
	bool reached;

	lock(&r->lock);
	while (!(reached = open_locked(r) == open) && wait_locked(r, &deadline))
		;
	unlock(&r->lock);
	return reached;
}

/* ---- records ---- */

void rogue_record_begin(struct conn *c)
{
	struct record *rec = must(calloc(1, sizeof(*rec)));
	struct rogue *r = c->rogue;

	rec->body = BUF_INIT(ROGUE_BODY_KEPT);
	rec->q = (struct rogue_request){ .method = copy(c->head.method),
					 .target = copy(c->head.target),
					 .headers = copy(c->head.text),
					 .body_done = c->body.done,
					 .connection = c->number,
					 .on_connection = c->requests,
					 .start_ms = clock_ms() };
	lock(&r->lock);
	if (r->records_len == r->records_cap) {
		r->records_cap = MAX(r->records_cap * 2, (size_t)64);
		r->records = must(realloc(r->records, r->records_cap * sizeof(*r->records)));
	}
	r->records[r->records_len++] = rec;
	rec->began = ++r->events;
	rec->q.in_flight = ++r->in_flight;
	c->rec = rec;
	c->reading = false;
	pthread_cond_broadcast(&r->changed);
	unlock(&r->lock);
}

void rogue_record_body(struct conn *c, const char *data, size_t len)
{
	struct rogue *r = c->rogue;
	struct record *rec;

	lock(&r->lock);
	rec = c->rec;
	if (rec) {
		size_t room = ROGUE_BODY_KEPT - rec->body.len;

		buf_append(&rec->body, data, MIN(len, room));
		rec->q.body_total += len;
		pthread_cond_broadcast(&r->changed);
	}
	unlock(&r->lock);
}

void rogue_record_body_done(struct conn *c)
{
	lock(&c->rogue->lock);
	if (c->rec)
		c->rec->q.body_done = true;
	unlock(&c->rogue->lock);
}

void rogue_record_end(struct conn *c)
{
	struct rogue *r = c->rogue;
	struct record *rec;

	lock(&r->lock);
	rec = c->rec;
	c->rec = NULL;
	if (rec) {
		rec->ended = ++r->events;
		rec->ruled = true;
		rec->q.end_ms = clock_ms();
		rec->q.status = c->status;
		r->in_flight--;
		pthread_cond_broadcast(&r->changed);
	}
	unlock(&r->lock);
}

void rogue_forget(struct rogue *r)
{
	size_t kept = 0;

	lock(&r->lock);
	for (size_t i = 0; i < r->records_len; i++) {
		if (r->records[i]->ended)
			record_free(r->records[i]);
		else
			r->records[kept++] = r->records[i];
	}
	r->records_len = kept;
	unlock(&r->lock);
}

static size_t count_locked(const struct rogue *r, const char *method, const char *path,
			   const char *text) NEEDS(&r->lock)
{
	size_t n = 0;

	for (size_t i = 0; i < r->records_len; i++)
		n += matches(r->records[i], method, path) && body_has(r->records[i], text);
	return n;
}

size_t rogue_count_body(struct rogue *r, const char *method, const char *path, const char *text)
{
	size_t n;

	lock(&r->lock);
	n = count_locked(r, method, path, text);
	unlock(&r->lock);
	return n;
}

size_t rogue_count(struct rogue *r, const char *method, const char *path)
{
	return rogue_count_body(r, method, path, "");
}

static bool has_ruled_locked(const struct rogue *r, const char *method, const char *path,
			     size_t count) NEEDS(&r->lock)
{
	size_t n = 0;

	for (size_t i = 0; i < r->records_len; i++)
		n += r->records[i]->ruled && matches(r->records[i], method, path);
	return n >= count;
}

bool rogue_wait_for(struct rogue *r, const char *method, const char *path, size_t count,
		    int timeout_ms)
{
	struct timespec deadline = deadline_in(timeout_ms);
	bool reached;

	lock(&r->lock);
	while (!(reached = has_ruled_locked(r, method, path, count)) && wait_locked(r, &deadline))
		;
	unlock(&r->lock);
	return reached;
}

static bool has_body_locked(const struct rogue *r, const char *method, const char *path,
			    uint64_t bytes) NEEDS(&r->lock)
{
	for (size_t i = 0; i < r->records_len; i++)
		if (r->records[i]->ruled && matches(r->records[i], method, path) &&
		    r->records[i]->q.body_total >= bytes)
			return true;
	return false;
}

bool rogue_wait_body(struct rogue *r, const char *method, const char *path, uint64_t bytes,
		     int timeout_ms)
{
	struct timespec deadline = deadline_in(timeout_ms);
	bool reached;

	lock(&r->lock);
	while (!(reached = has_body_locked(r, method, path, bytes)) && wait_locked(r, &deadline))
		;
	unlock(&r->lock);
	return reached;
}

static int earlier(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

unsigned rogue_max_in_flight(struct rogue *r, const char *path)
{
	uint64_t *ends CLEANUP_FREE = NULL;
	unsigned now = 0, most = 0;
	size_t n = 0, over = 0;

	lock(&r->lock);
	ends = must(calloc(r->records_len + 1, sizeof(*ends)));
	for (size_t i = 0; i < r->records_len; i++)
		if (matches(r->records[i], NULL, path) && r->records[i]->ended)
			ends[n++] = r->records[i]->ended;
	qsort(ends, n, sizeof(*ends), earlier);
	/* The records are in the order in which they began. */
	for (size_t i = 0; i < r->records_len; i++) {
		if (!matches(r->records[i], NULL, path))
			continue;
		for (; over < n && ends[over] < r->records[i]->began; over++)
			now--;
		now++;
		most = MAX(most, now);
	}
	unlock(&r->lock);
	return most;
}

static void copy_locked(const struct record *rec, struct rogue_request *ret)
{
	*ret = rec->q;
	ret->method = copy(rec->q.method);
	ret->target = copy(rec->q.target);
	ret->headers = copy(rec->q.headers);
	ret->body_len = rec->body.len;
	ret->body = must(malloc(rec->body.len + 1));
	if (rec->body.len)
		memcpy(ret->body, rec->body.data, rec->body.len);
	ret->body[rec->body.len] = '\0';
}

void rogue_copy_request(struct conn *c, struct rogue_request *ret)
{
	lock(&c->rogue->lock);
	copy_locked(c->rec, ret);
	unlock(&c->rogue->lock);
}

bool rogue_request(struct rogue *r, size_t i, struct rogue_request *ret)
{
	bool is;

	lock(&r->lock);
	is = i < r->records_len;
	if (is)
		copy_locked(r->records[i], ret);
	unlock(&r->lock);
	return is;
}

void rogue_request_release(struct rogue_request *q)
{
	free(q->method);
	free(q->target);
	free(q->headers);
	free(q->body);
	*q = (struct rogue_request){ 0 };
}

char *rogue_header(const struct rogue_request *q, const char *name)
{
	return wire_header(q->headers, name);
}
