/*
 * Leases in Redis, exactly as deer-flow's gateways keep them, so that each
 * respects the other's: PREFIX:ID is "own:OWNER" or "del:OWNER" (its owner is
 * stopping it) with a time to live, and every change is one script, which Redis
 * runs as a whole.
 *
 * hiredis resolves names and waits in system calls, so one worker talks to the
 * server, over one connection that is made when it is needed. What is known to
 * fail is not waited for again and again: when the server has not answered,
 * whoever had asked before that gets the same answer at once.
 */
#include "ownership.h"

#include <errno.h>

#if HAVE_HIREDIS

#include <curl/curl.h>
#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "log.h"
#include "workers.h"

enum { ANSWER_S = 5, PORT = 6379, WHY_MAX = 200 };

struct redis_store {
	struct ownership base;
	/* immutable */
	char *host, *socket; /* one of them */
	char *user, *password;
	int port;
	unsigned db;
	char *prefix;
	char ttl[24], own[OWNERSHIP_OWNER_MAX + 4], del[OWNERSHIP_OWNER_MAX + 4];
	/* loop thread only */
	struct workers *workers;
	/* the worker's */
	redisContext *redis; /* NULL: not connected */
	int64_t down_ms;     /* when the last question failed that got no answer; 0: none did */
	int down_error;
	char down_why[WHY_MAX];
};

struct request {
	struct work work;
	struct redis_store *s;
	struct ownership_op *op;
	enum ownership_verb verb;
	int64_t asked_ms;
	char *key;
	int error;
	char why[WHY_MAX];
};

static struct redis_store *store_of(struct ownership *o)
{
	return CONTAINER_OF(o, struct redis_store, base);
}

/* ---- the scripts: KEYS[1] is the lease, ARGV "own:me", "del:me", the time to live in ms ---- */

#define GET    "local v = redis.call('GET', KEYS[1]) "
#define SET(n) "redis.call('SET', KEYS[1], ARGV[" n "], 'PX', ARGV[3]) return 1"

static const char *const scripts[OWNERSHIP_VERBS] = {
	[OWNERSHIP_TAKE] = GET "if v and string.sub(v, 1, 4) == 'del:' then return 0 end " SET("1"),
	[OWNERSHIP_CLAIM] = GET "if v and v ~= ARGV[1] then return 0 end " SET("1"),
	[OWNERSHIP_CONDEMN] =
		GET "if v and v ~= ARGV[1] and v ~= ARGV[2] then return 0 end " SET("2"),
	[OWNERSHIP_RENEW] = GET "if not v then return -1 end if v ~= ARGV[1] then return 0 end "
				"redis.call('PEXPIRE', KEYS[1], ARGV[3]) return 1",
	[OWNERSHIP_RELEASE] = GET "if v == ARGV[1] or v == ARGV[2] then "
				  "redis.call('DEL', KEYS[1]) return 1 end return 0",
};

/* ---- on the worker ---- */

/* Nothing is known of what was sent, so nothing more can be read. */
static int hang_up(struct redis_store *s, char why[WHY_MAX])
{
	int error = EIO;

	snprintf(why, WHY_MAX, "no connection");
	if (s->redis) {
		snprintf(why, WHY_MAX, "%s", s->redis->errstr);
		if (s->redis->err == REDIS_ERR_IO && errno)
			error = errno == EAGAIN || errno == EINPROGRESS ? ETIMEDOUT : errno;
		else if (s->redis->err == REDIS_ERR_EOF)
			error = ECONNRESET;
		else if (s->redis->err == REDIS_ERR_OTHER)
			error = EHOSTUNREACH; /* the name does not resolve */
		if (error == ETIMEDOUT)
			snprintf(why, WHY_MAX, "no answer within %d s", ANSWER_S);
		redisFree(STEAL(s->redis));
	}
	return -error;
}

static redisReply *command(struct redis_store *s, int argc, const char **argv)
{
	errno = 0;
	return redisCommandArgv(s->redis, argc, argv, NULL);
}

/* For AUTH and SELECT: anything but a good answer ends the connection. */
static int greet(struct redis_store *s, int argc, const char **argv, char why[WHY_MAX])
{
	redisReply *reply = command(s, argc, argv);
	int r = 0;

	if (!reply)
		return hang_up(s, why);
	if (reply->type == REDIS_REPLY_ERROR) {
		snprintf(why, WHY_MAX, "%s", reply->str);
		redisFree(STEAL(s->redis));
		r = -EACCES;
	}
	freeReplyObject(reply);
	return r;
}

static int connect_store(struct redis_store *s, char why[WHY_MAX])
{
	const struct timeval wait = { .tv_sec = ANSWER_S };
	char db[12];
	int r = 0;

	errno = 0;
	s->redis = s->socket ? redisConnectUnixWithTimeout(s->socket, wait)
			     : redisConnectWithTimeout(s->host, s->port, wait);
	if (!s->redis || s->redis->err)
		return hang_up(s, why);
	(void)fcntl(s->redis->fd, F_SETFD, FD_CLOEXEC);
	if (redisSetTimeout(s->redis, wait) != REDIS_OK)
		return hang_up(s, why);
	if (s->password && s->user)
		r = greet(s, 3, (const char *[]){ "AUTH", s->user, s->password }, why);
	else if (s->password)
		r = greet(s, 2, (const char *[]){ "AUTH", s->password }, why);
	if (r == 0 && s->db > 0) {
		snprintf(db, sizeof(db), "%u", s->db);
		r = greet(s, 2, (const char *[]){ "SELECT", db }, why);
	}
	return r;
}

/* "own:OWNER" or "del:OWNER"; anything else was not written by these rules. */
static int read_owner(struct request *q, const redisReply *reply)
{
	if (reply->type == REDIS_REPLY_NIL)
		return 0;
	if (reply->type != REDIS_REPLY_STRING || reply->len <= 4 ||
	    memchr(reply->str, '\0', reply->len) ||
	    (memcmp(reply->str, "own:", 4) != 0 && memcmp(reply->str, "del:", 4) != 0)) {
		snprintf(q->why, WHY_MAX, "%s holds something else than a lease", q->key);
		return -EBADMSG;
	}
	q->op->owner = strndup(reply->str + 4, (size_t)reply->len - 4);
	q->op->condemned = reply->str[0] == 'd';
	return q->op->owner ? 0 : -ENOMEM;
}

static int read_reply(struct request *q, const redisReply *reply)
{
	if (reply->type == REDIS_REPLY_ERROR) {
		snprintf(q->why, WHY_MAX, "%s", reply->str);
		return -EIO;
	}
	if (q->verb == OWNERSHIP_LOOK)
		return read_owner(q, reply);
	if (reply->type != REDIS_REPLY_INTEGER || reply->integer < -1 || reply->integer > 1) {
		snprintf(q->why, WHY_MAX, "an answer that is none");
		return -EBADMSG;
	}
	q->op->verdict = (enum ownership_verdict)reply->integer;
	return 0;
}

/* Returns whether there was an answer, good or bad; without, the connection has ended. */
static bool exchange(struct request *q)
{
	struct redis_store *s = q->s;
	redisReply *reply;

	if (q->verb == OWNERSHIP_LOOK)
		reply = command(s, 2, (const char *[]){ "GET", q->key });
	else
		reply = command(s, 7,
				(const char *[]){ "EVAL", scripts[q->verb], "1", q->key, s->own,
						  s->del, s->ttl });
	if (!reply) {
		q->error = hang_up(s, q->why);
		return false;
	}
	q->error = read_reply(q, reply);
	freeReplyObject(reply);
	return true;
}

static bool connect_and_exchange(struct request *q)
{
	struct redis_store *s = q->s;
	bool reused = s->redis;

	if (!reused) {
		q->error = connect_store(s, q->why);
		return q->error == 0 && exchange(q);
	}
	if (exchange(q))
		return true;
	/* The server may have closed it long ago; each script may run twice. */
	if (q->error == -ETIMEDOUT)
		return false;
	q->error = connect_store(s, q->why);
	return q->error == 0 && exchange(q);
}

static void run_request(struct work *w)
{
	struct request *q = CONTAINER_OF(w, struct request, work);
	struct redis_store *s = q->s;

	if (s->down_ms > 0 && q->asked_ms < s->down_ms) {
		q->error = s->down_error;
		memcpy(q->why, s->down_why, WHY_MAX);
		return;
	}
	if (connect_and_exchange(q)) {
		if (s->down_ms > 0)
			log_info("the ownership store answers again");
		s->down_ms = 0;
		return;
	}
	if (s->down_ms == 0)
		log_warn("the ownership store does not answer: %s", q->why);
	s->down_ms = clock_ms();
	s->down_error = q->error;
	memcpy(s->down_why, q->why, WHY_MAX);
}

/* ---- on the loop ---- */

static void request_done(struct work *w)
{
	struct request *q = CONTAINER_OF(w, struct request, work);
	char why[WHY_MAX + 40];

	snprintf(why, sizeof(why), "the ownership store: %s", q->why);
	ownership_answer(&q->s->base, q->op, q->error, q->error < 0 ? why : NULL);
	free(q->key);
	free(q);
}

static void redis_ask(struct ownership *o, struct ownership_op *op, enum ownership_verb verb,
		      const char *id)
{
	struct redis_store *s = store_of(o);
	struct request *q = calloc(1, sizeof(*q));

	if (!q || asprintf(&q->key, "%s:%s", s->prefix, id) < 0) {
		free(q);
		ownership_answer(o, op, -ENOMEM, NULL);
		return;
	}
	q->work = (struct work){ .run = run_request, .done = request_done };
	q->s = s;
	q->op = op;
	q->verb = verb;
	q->asked_ms = clock_ms();
	/* What a worker that is told to end does not come to. */
	q->error = -ECANCELED;
	workers_submit(s->workers, &q->work);
}

/* ---- the address ---- */

static void free_secret(char *secret)
{
	if (secret)
		explicit_bzero(secret, strlen(secret));
	free(secret);
}

/* A part of the URL, decoded; NULL if it has none. */
static char *part(CURLU *url, CURLUPart what)
{
	char *text = NULL, *copy;

	if (curl_url_get(url, what, &text, CURLU_URLDECODE) != CURLUE_OK)
		return NULL;
	copy = text[0] ? strdup(text) : NULL;
	explicit_bzero(text, strlen(text)); /* it may be a password */
	curl_free(text);
	return copy;
}

static int set_db(struct redis_store *s, const char *text, const char **ret_why)
{
	char *end = NULL;
	unsigned long n;

	errno = 0;
	n = strtoul(text, &end, 10);
	if (text[0] < '0' || text[0] > '9' || *end || errno || n > 1000000) {
		*ret_why = "ownership: the number of the Redis database is none";
		return -EINVAL;
	}
	s->db = (unsigned)n;
	return 0;
}

/* db=N; a user and a password of a unix socket may stand here, too. */
static int take_query(struct redis_store *s, char *query, const char **ret_why)
{
	char *save = NULL;
	int r = 0;

	for (char *item = strtok_r(query, "&", &save); item && r == 0;
	     item = strtok_r(NULL, "&", &save)) {
		char **to = NULL;

		if (strncmp(item, "db=", 3) == 0)
			r = set_db(s, item + 3, ret_why);
		else if (strncmp(item, "password=", 9) == 0)
			to = &s->password;
		else if (strncmp(item, "username=", 9) == 0)
			to = &s->user;
		if (to) {
			free(*to);
			*to = strdup(strchr(item, '=') + 1);
			r = *to ? 0 : -ENOMEM;
		}
	}
	return r;
}

static int take_parts(struct redis_store *s, CURLU *url, const char **ret_why)
{
	char *scheme CLEANUP_FREE = part(url, CURLUPART_SCHEME);
	char *port CLEANUP_FREE = part(url, CURLUPART_PORT);
	char *path CLEANUP_FREE = part(url, CURLUPART_PATH);
	char *query CLEANUP_FREE = part(url, CURLUPART_QUERY);
	bool is_unix = scheme && strcmp(scheme, "unix") == 0;
	size_t len;
	int r = 0;

	if (scheme && strcmp(scheme, "rediss") == 0) {
		*ret_why = "ownership: rediss:// is not supported: this build has no TLS for Redis "
			   "(a stunnel on this machine does it)";
		return -EOPNOTSUPP;
	}
	if (!scheme || (!is_unix && strcmp(scheme, "redis") != 0)) {
		*ret_why = "ownership: expected redis://HOST:PORT/DB or unix:///PATH?db=N";
		return -EINVAL;
	}
	s->user = part(url, CURLUPART_USER);
	s->password = part(url, CURLUPART_PASSWORD);
	if (is_unix) {
		s->socket = STEAL(path);
		if (!s->socket || strcmp(s->socket, "/") == 0) {
			*ret_why = "ownership: unix:// needs the path of a socket";
			return -EINVAL;
		}
	} else {
		s->host = part(url, CURLUPART_HOST);
		if (!s->host)
			s->host = strdup("localhost");
		len = s->host ? strlen(s->host) : 0;
		if (len > 2 && s->host[0] == '[') { /* an address of IPv6 */
			memmove(s->host, s->host + 1, len - 2);
			s->host[len - 2] = '\0';
		}
		s->port = port ? (int)strtoul(port, NULL, 10) : PORT;
		if (path && strlen(path) > 1)
			r = set_db(s, path + 1, ret_why);
		if (!s->host)
			r = -ENOMEM;
	}
	return r == 0 && query ? take_query(s, query, ret_why) : r;
}

/* unix://[USER:PASSWORD@]/PATH has no host, which curl does not like. For the caller to free. */
static char *with_host(const char *text)
{
	static const char scheme[] = "unix://";
	size_t upto;
	char *copy;

	if (strncmp(text, scheme, strlen(scheme)) != 0)
		return strdup(text);
	upto = strlen(scheme) + strcspn(text + strlen(scheme), "/?");
	if (asprintf(&copy, "%.*slocalhost%s", (int)upto, text, text + upto) < 0)
		return NULL;
	return copy;
}

static int take_url(struct redis_store *s, const char *text, const char **ret_why)
{
	char *whole = with_host(text ?: "");
	CURLU *url = curl_url();
	int r = -ENOMEM;

	if (url && whole &&
	    curl_url_set(url, CURLUPART_URL, whole, CURLU_NON_SUPPORT_SCHEME) == CURLUE_OK) {
		r = take_parts(s, url, ret_why);
	} else if (url && whole) {
		*ret_why = "ownership: the address of Redis is not a URL";
		r = -EINVAL;
	}
	curl_url_cleanup(url);
	free_secret(whole);
	return r;
}

/* ---- life ---- */

static void release(struct redis_store *s)
{
	if (s->redis)
		redisFree(s->redis);
	free(s->host);
	free(s->socket);
	free(s->user);
	free_secret(s->password);
	free(s->prefix);
	free(s);
}

static void end_on_loop(void *ctx)
{
	struct redis_store *s = ctx;

	workers_free(STEAL(s->workers));
}

static void redis_free(struct ownership *o)
{
	struct redis_store *s = store_of(o);

	loop_run(o->loop, end_on_loop, s);
	release(s);
}

static const struct ownership_ops ops = { .ask = redis_ask, .free = redis_free };

struct beginning {
	struct redis_store *s;
	int r;
};

static void begin_on_loop(void *ctx)
{
	struct beginning *b = ctx;

	b->r = workers_new(loop_ev(b->s->base.loop), 1, &b->s->workers);
}

int ownership_redis_new(struct loop *loop, const struct ownership_config *config,
			struct ownership **ret, const char **ret_why)
{
	struct redis_store *s = calloc(1, sizeof(*s));
	struct beginning begin = { .s = s };
	size_t len;
	int r;

	if (!s)
		return -ENOMEM;
	r = ownership_init(&s->base, &ops, loop, config, ret_why);
	if (r == 0)
		r = take_url(s, config->redis_url, ret_why);
	if (r == 0) {
		s->base.sees_peers = true;
		s->prefix = strdup(config->key_prefix ?: OWNERSHIP_KEY_PREFIX);
		r = s->prefix ? 0 : -ENOMEM;
	}
	if (r == 0) {
		for (len = strlen(s->prefix); len > 0 && s->prefix[len - 1] == ':'; len--)
			s->prefix[len - 1] = '\0';
		snprintf(s->own, sizeof(s->own), "own:%s", s->base.owner);
		snprintf(s->del, sizeof(s->del), "del:%s", s->base.owner);
		snprintf(s->ttl, sizeof(s->ttl), "%lld", (long long)s->base.ttl_ms);
		loop_run(loop, begin_on_loop, &begin);
		r = begin.r;
	}
	if (r < 0) {
		release(s);
		return r;
	}
	*ret = &s->base;
	return 0;
}

#else

int ownership_redis_new(struct loop *loop UNUSED, const struct ownership_config *config UNUSED,
			struct ownership **ret UNUSED, const char **ret_why)
{
	*ret_why = "ownership: this build cannot talk to Redis (it needs hiredis)";
	return -EOPNOTSUPP;
}

#endif
