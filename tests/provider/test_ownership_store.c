/*
 * The stores of leases by themselves: every cell of the table of verbs, with a
 * real Redis and in memory; times to live, names of keys and owners, addresses,
 * and a server that is away. The tests' names are those of the reference.
 */
#include "ownership.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

#include "redis.h"

#define ID  "0123456789abcdef"
#define KEY OWNERSHIP_KEY_PREFIX ":" ID

struct fixture {
	char dir[SCRATCH_MAX];
	struct loop *loop;
	struct redis redis;
	struct ownership *me, *peer;
};

static struct ownership *open_store(struct fixture *f, const struct ownership_config *c)
{
	struct ownership *o = NULL;
	const char *why = NULL;

	if (ownership_new(f->loop, c, &o, &why) < 0) {
		print_error("%s\n", why);
		fail();
	}
	return o;
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct ownership_config c = { .type = OWNERSHIP_REDIS };

	if (!f || !scratch_dir(f->dir) || loop_new(&f->loop) < 0)
		return -1;
	f->redis = redis_start(f->dir, false);
	c.redis_url = f->redis.url;
	f->me = open_store(f, &c);
	f->peer = open_store(f, &c);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	ownership_free(f->me);
	ownership_free(f->peer);
	loop_free(f->loop);
	redis_end(&f->redis);
	scratch_remove(f->dir);
	free(f);
	return 0;
}

/* ---- asking and waiting ---- */

struct question {
	struct ownership_op op;
	struct ownership *store;
	enum ownership_verb verb;
	const char *id;
	sem_t answered;
};

static void on_answered(struct ownership_op *op)
{
	sem_post(&CONTAINER_OF(op, struct question, op)->answered);
}

static void ask_on_loop(void *ctx)
{
	struct question *q = ctx;

	ownership_ask(q->store, &q->op, q->verb, q->id);
}

static void begin(struct question *q, struct ownership *o, enum ownership_verb verb, const char *id)
{
	*q = (struct question){ .op = { .done = on_answered }, .store = o, .verb = verb, .id = id };
	sem_init(&q->answered, 0, 0);
	loop_run(o->loop, ask_on_loop, q);
}

static void wait_for(struct question *q)
{
	while (sem_wait(&q->answered) < 0)
		;
	sem_destroy(&q->answered);
}

enum { NO_ANSWER = -100 };

/* The verdict, or NO_ANSWER. */
static int get(struct ownership *o, enum ownership_verb verb)
{
	struct question q;
	int verdict;

	begin(&q, o, verb, ID);
	wait_for(&q);
	verdict = q.op.error < 0 ? NO_ANSWER : (int)q.op.verdict;
	ownership_op_clear(&q.op);
	return verdict;
}

/* "own:me", "del:peer" …; "" for nobody. Valid until the next call. */
static const char *look(struct fixture *f, struct ownership *o)
{
	static char text[400];
	struct question q;
	const char *who;

	begin(&q, o, OWNERSHIP_LOOK, ID);
	wait_for(&q);
	assert_int_equal(q.op.error, 0);
	text[0] = '\0';
	if (q.op.owner) {
		who = strcmp(q.op.owner, f->me->owner) == 0     ? "me"
		      : strcmp(q.op.owner, f->peer->owner) == 0 ? "peer"
								: q.op.owner;
		snprintf(text, sizeof(text), "%s:%s", q.op.condemned ? "del" : "own", who);
	}
	ownership_op_clear(&q.op);
	return text;
}

static void pause_ms(int64_t ms)
{
	nanosleep(&(struct timespec){ ms / 1000, ms % 1000 * 1000000 }, NULL);
}

/* ---- the table ---- */

static const char *const befores[] = { "", "own:me", "del:me", "own:peer", "del:peer" };

static const struct {
	enum ownership_verb verb;
	struct {
		int verdict;
		const char *after; /* NULL: as before, and not extended */
	} cell[ARRAY_SIZE(befores)];
} table[] = {
	{ OWNERSHIP_TAKE, { { 1, "own:me" }, { 1, "own:me" }, { 0 }, { 1, "own:me" }, { 0 } } },
	{ OWNERSHIP_CLAIM, { { 1, "own:me" }, { 1, "own:me" }, { 0 }, { 0 }, { 0 } } },
	{ OWNERSHIP_CONDEMN, { { 1, "del:me" }, { 1, "del:me" }, { 1, "del:me" }, { 0 }, { 0 } } },
	{ OWNERSHIP_RENEW, { { -1 }, { 1, "own:me" }, { 0 }, { 0 }, { 0 } } },
	{ OWNERSHIP_RELEASE, { { 0 }, { 1, "" }, { 1, "" }, { 0 }, { 0 } } },
	{ OWNERSHIP_LOOK, { { 0 }, { 0 }, { 0 }, { 0 }, { 0 } } },
};

static void put_before(struct fixture *f, const char *before)
{
	const char *owner = strstr(before, "peer") ? f->peer->owner : f->me->owner;
	char value[400];

	snprintf(value, sizeof(value), "%.4s%s", before, owner);
	redis_do(&f->redis, "DEL %s", KEY);
	if (before[0])
		redis_do(&f->redis, "SET %s %s PX 5000", KEY, value);
}

static void test_every_cell_of_the_table_with_redis(void **state)
{
	struct fixture *f = *state;
	long left;

	for (size_t v = 0; v < ARRAY_SIZE(table); v++) {
		for (size_t b = 0; b < ARRAY_SIZE(befores); b++) {
			const char *after = table[v].cell[b].after ?: befores[b];

			put_before(f, befores[b]);
			assert_int_equal(get(f->me, table[v].verb), table[v].cell[b].verdict);
			assert_string_equal(look(f, f->peer), after);
			left = strtol(redis_do(&f->redis, "PTTL %s", KEY), NULL, 10);
			if (!after[0])
				assert_int_equal(left, -2); /* there is none */
			else if (!table[v].cell[b].after)
				assert_in_range(left, 1, 5000); /* as it was */
			else
				assert_in_range(left, 115000, 120000);
		}
	}
}

/* In memory there are no peers. */
static void test_every_cell_of_the_table_in_memory(void **state)
{
	struct fixture *f = *state;
	const enum ownership_verb makes[] = { OWNERSHIP_RELEASE, OWNERSHIP_TAKE,
					      OWNERSHIP_CONDEMN };

	ownership_free(f->me);
	f->me = open_store(f, NULL);
	assert_false(f->me->sees_peers);
	assert_true(f->peer->sees_peers);
	for (size_t v = 0; v < ARRAY_SIZE(table); v++) {
		for (size_t b = 0; b < ARRAY_SIZE(makes); b++) {
			int expected =
				table[v].verb == OWNERSHIP_LOOK ? 1 : table[v].cell[b].verdict;

			get(f->me, OWNERSHIP_RELEASE);
			get(f->me, makes[b]);
			assert_string_equal(look(f, f->me), befores[b]);
			assert_int_equal(get(f->me, table[v].verb), expected);
			assert_string_equal(look(f, f->me), table[v].cell[b].after ?: befores[b]);
		}
	}
	assert_string_equal(redis_do(&f->redis, "DBSIZE"), "0");
}

/* ---- two of them ---- */

static void test_claim_is_exclusive_across_instances(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(get(f->peer, OWNERSHIP_CLAIM), 1);
	assert_int_equal(get(f->me, OWNERSHIP_CLAIM), 0);
	assert_string_equal(look(f, f->me), "own:peer");
	assert_int_equal(get(f->peer, OWNERSHIP_RENEW), 1); /* it was not stolen */

	/* It is released for a peer, and by nobody but its owner. */
	assert_int_equal(get(f->me, OWNERSHIP_RELEASE), 0);
	assert_int_equal(get(f->peer, OWNERSHIP_RELEASE), 1);
	assert_int_equal(get(f->me, OWNERSHIP_CLAIM), 1);
}

static void test_take_makes_the_previous_owners_renew_report_lost(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(get(f->peer, OWNERSHIP_TAKE), 1);
	assert_int_equal(get(f->me, OWNERSHIP_TAKE), 1);
	assert_int_equal(get(f->peer, OWNERSHIP_RENEW), 0);
	assert_int_equal(get(f->peer, OWNERSHIP_RELEASE), 0);
	assert_string_equal(look(f, f->peer), "own:me");
}

static void test_take_is_allowed_once_the_teardown_marker_is_released(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(get(f->peer, OWNERSHIP_CONDEMN), 1);
	assert_int_equal(get(f->me, OWNERSHIP_TAKE), 0);
	assert_int_equal(get(f->me, OWNERSHIP_CONDEMN), 0);
	assert_int_equal(get(f->peer, OWNERSHIP_RELEASE), 1);
	assert_int_equal(get(f->me, OWNERSHIP_TAKE), 1);
}

static void test_concurrent_claims_serialize_to_one_winner(void **state)
{
	enum { N = 12 };
	struct fixture *f = *state;
	struct ownership *o[N];
	struct question q[N];
	int won = 0;

	for (size_t i = 0; i < N; i++)
		o[i] = open_store(f, &(struct ownership_config){ .type = OWNERSHIP_REDIS,
								 .redis_url = f->redis.url });
	for (size_t i = 0; i < N; i++)
		begin(&q[i], o[i], OWNERSHIP_CLAIM, ID);
	for (size_t i = 0; i < N; i++) {
		wait_for(&q[i]);
		assert_int_equal(q[i].op.error, 0);
		won += q[i].op.verdict == OWNERSHIP_GRANTED;
		ownership_op_clear(&q[i].op);
		ownership_free(o[i]);
	}
	assert_int_equal(won, 1);
}

/* ---- time ---- */

/* Leases of 2 s. */
static void use_short_leases(struct fixture *f)
{
	struct ownership_config c = { .type = OWNERSHIP_REDIS,
				      .redis_url = f->redis.url,
				      .renewal_interval_s = 1,
				      .ttl_multiplier = 2 };

	ownership_free(f->me);
	ownership_free(f->peer);
	f->me = open_store(f, &c);
	f->peer = open_store(f, &c);
	assert_int_equal(f->me->ttl_ms, 2000);
}

static void test_claim_succeeds_once_a_lease_expires(void **state)
{
	struct fixture *f = *state;

	use_short_leases(f);
	assert_int_equal(get(f->peer, OWNERSHIP_CLAIM), 1);
	assert_int_equal(get(f->me, OWNERSHIP_CLAIM), 0);
	pause_ms(2500);
	/* Lapsed, not lost; and renewing does not take it back. */
	assert_int_equal(get(f->peer, OWNERSHIP_RENEW), -1);
	assert_string_equal(look(f, f->peer), "");
	assert_int_equal(get(f->me, OWNERSHIP_CLAIM), 1);
}

static void test_a_stale_teardown_marker_expires(void **state)
{
	struct fixture *f = *state;

	use_short_leases(f);
	assert_int_equal(get(f->peer, OWNERSHIP_CONDEMN), 1);
	assert_int_equal(get(f->peer, OWNERSHIP_RENEW), 0); /* does not keep it alive */
	assert_int_equal(get(f->me, OWNERSHIP_TAKE), 0);
	pause_ms(2500);
	assert_int_equal(get(f->me, OWNERSHIP_TAKE), 1);
}

static void test_renew_extends_the_lease(void **state)
{
	struct fixture *f = *state;

	use_short_leases(f);
	assert_int_equal(get(f->me, OWNERSHIP_TAKE), 1);
	for (int i = 0; i < 6; i++) {
		pause_ms(500);
		assert_int_equal(get(f->me, OWNERSHIP_RENEW), 1);
	}
	assert_string_equal(look(f, f->peer), "own:me");
}

/* ---- names ---- */

static void test_keys_values_and_times_are_the_reference_s(void **state)
{
	struct fixture *f = *state;
	char host[256] = "", expected[300];
	const char *value;
	struct ownership *o;
	long left;

	assert_int_equal(get(f->me, OWNERSHIP_TAKE), 1);
	assert_string_equal(redis_do(&f->redis, "EXISTS deerflow:sandbox:owner:%s", ID), "1");
	left = strtol(redis_do(&f->redis, "PTTL deerflow:sandbox:owner:%s", ID), NULL, 10);
	assert_in_range(left, 115000, 120000);
	gethostname(host, sizeof(host) - 1);
	snprintf(expected, sizeof(expected), "own:%s:", host);
	value = redis_do(&f->redis, "GET deerflow:sandbox:owner:%s", ID);
	assert_memory_equal(value, expected, strlen(expected));
	value += strlen(expected);
	assert_int_equal(strspn(value, "0123456789abcdef"), 32);
	assert_int_equal(strlen(value), 32);
	assert_int_equal(get(f->me, OWNERSHIP_CONDEMN), 1);
	value = redis_do(&f->redis, "GET deerflow:sandbox:owner:%s", ID);
	assert_memory_equal(value, "del:", 4);

	/* Another prefix; colons at its end do not count. */
	o = open_store(f, &(struct ownership_config){ .type = OWNERSHIP_REDIS,
						      .redis_url = f->redis.url,
						      .renewal_interval_s = 1.5,
						      .ttl_multiplier = 2.5,
						      .key_prefix = (char[]){ "mine::" } });
	assert_int_equal(o->ttl_ms, 3750);
	assert_int_equal(get(o, OWNERSHIP_TAKE), 1);
	assert_string_equal(redis_do(&f->redis, "EXISTS mine:%s", ID), "1");
	ownership_free(o);
}

static void test_owner_ids_are_unique_per_instance(void **state)
{
	struct fixture *f = *state;
	struct ownership *o = open_store(f, NULL);

	assert_string_not_equal(f->me->owner, f->peer->owner);
	assert_string_not_equal(f->me->owner, o->owner);
	ownership_free(o);
}

/* Something else under the key says nothing about the sandbox. */
static void test_what_is_no_lease_is_no_answer(void **state)
{
	struct fixture *f = *state;
	struct question q;

	redis_do(&f->redis, "SET %s nonsense", KEY);
	begin(&q, f->me, OWNERSHIP_LOOK, ID);
	wait_for(&q);
	assert_int_equal(q.op.error, -EBADMSG);
	ownership_op_clear(&q.op);
	/* the beginning of which is a name */
	redis_do(&f->redis, "EVAL %s 1 %s", "return redis.call('SET', KEYS[1], 'own:a\\0b')", KEY);
	begin(&q, f->me, OWNERSHIP_LOOK, ID);
	wait_for(&q);
	assert_int_equal(q.op.error, -EBADMSG);
	ownership_op_clear(&q.op);
	redis_do(&f->redis, "DEL %s", KEY);
	redis_do(&f->redis, "HSET %s a b", KEY);
	assert_int_equal(get(f->me, OWNERSHIP_LOOK), NO_ANSWER);
	assert_int_equal(get(f->me, OWNERSHIP_CLAIM), NO_ANSWER);
	assert_string_equal(redis_do(&f->redis, "HGET %s a", KEY), "b");
}

/* ---- addresses ---- */

static int try_config(struct fixture *f, const struct ownership_config *c, const char **ret_why)
{
	struct ownership *o = NULL;
	int r = ownership_new(f->loop, c, &o, ret_why);

	ownership_free(o);
	return r;
}

static void test_bad_settings_are_refused_with_words(void **state)
{
	static const struct {
		const char *url;
		int error;
		const char *words;
	} urls[] = {
		{ "rediss://host:6379/0", -EOPNOTSUPP, "no TLS" },
		{ "http://host", -EINVAL, "expected redis://" },
		{ "redis://host/zero", -EINVAL, "database" },
		{ "redis://host/1x", -EINVAL, "database" },
		{ "redis://host?db=-1", -EINVAL, "database" },
		{ "unix:///", -EINVAL, "socket" },
		{ "not a url", -EINVAL, "" },
		{ NULL, -EINVAL, "not a URL" },
	};
	struct fixture *f = *state;
	struct ownership_config c = { .type = OWNERSHIP_REDIS, .redis_url = f->redis.url };
	const char *why = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(urls); i++) {
		char *url CLEANUP_FREE = urls[i].url ? strdup(urls[i].url) : NULL;

		why = NULL;
		c.redis_url = url;
		assert_int_equal(try_config(f, &c, &why), urls[i].error);
		assert_non_null(why);
		assert_non_null(strstr(why, urls[i].words));
	}
	c.redis_url = f->redis.url;
	c.ttl_multiplier = 1.9; /* test_ttl_multiplier_below_two_is_rejected */
	assert_int_equal(try_config(f, &c, &why), -EINVAL);
	assert_non_null(strstr(why, "two renewal intervals"));
	c.ttl_multiplier = 2;
	assert_int_equal(try_config(f, &c, &why), 0);
	c.renewal_interval_s = -1;
	assert_int_equal(try_config(f, &c, &why), -EINVAL);
}

static void test_a_port_a_password_and_a_database(void **state)
{
	struct fixture *f = *state;
	char url[160];
	struct ownership_config c = { .type = OWNERSHIP_REDIS, .redis_url = url };
	struct ownership *o;
	struct question q;

	redis_end(&f->redis);
	f->redis = redis_start(f->dir, true);
	redis_do(&f->redis, "CONFIG SET requirepass s%%crt");
	redis_do(&f->redis, "AUTH s%%crt");

	/* Without it, and with a wrong one: an error in words that do not tell it. */
	snprintf(url, sizeof(url), "redis://127.0.0.1:%d", f->redis.port);
	o = open_store(f, &c);
	begin(&q, o, OWNERSHIP_TAKE, ID);
	wait_for(&q);
	assert_int_equal(q.op.error, -EIO);
	assert_non_null(strstr(q.op.why, "NOAUTH"));
	ownership_op_clear(&q.op);
	ownership_free(o);
	snprintf(url, sizeof(url), "redis://:hunter2@127.0.0.1:%d", f->redis.port);
	o = open_store(f, &c);
	begin(&q, o, OWNERSHIP_TAKE, ID);
	wait_for(&q);
	assert_int_equal(q.op.error, -EACCES);
	assert_null(strstr(q.op.why, "hunter2"));
	ownership_op_clear(&q.op);
	ownership_free(o);

	snprintf(url, sizeof(url), "redis://:s%%25crt@127.0.0.1:%d/3", f->redis.port);
	o = open_store(f, &c);
	assert_int_equal(get(o, OWNERSHIP_TAKE), 1);
	ownership_free(o);
	redis_do(&f->redis, "SELECT 3");
	assert_string_equal(redis_do(&f->redis, "EXISTS %s", KEY), "1");
	redis_do(&f->redis, "SELECT 0");
	assert_string_equal(redis_do(&f->redis, "EXISTS %s", KEY), "0");

	/* The same by its socket, and with a user. */
	snprintf(url, sizeof(url), "unix://default:s%%25crt@%s?db=3", f->redis.socket);
	o = open_store(f, &c);
	assert_int_equal(get(o, OWNERSHIP_CLAIM), 0);
	ownership_free(o);
}

/* ---- a server that is away ---- */

static void test_redis_backend_error_is_wrapped_not_leaked(void **state)
{
	struct fixture *f = *state;
	struct question q;

	assert_int_equal(get(f->me, OWNERSHIP_TAKE), 1);
	redis_end(&f->redis);
	begin(&q, f->me, OWNERSHIP_RENEW, ID);
	wait_for(&q);
	assert_true(q.op.error < 0);
	assert_non_null(strstr(q.op.why, "the ownership store: "));
	ownership_op_clear(&q.op);

	/* It comes back, without what it knew, and the connection with it. */
	redis_restart(&f->redis);
	assert_int_equal(get(f->me, OWNERSHIP_RENEW), -1);
	assert_int_equal(get(f->me, OWNERSHIP_CLAIM), 1);

	/* A connection that the server closed is made anew, unnoticed. */
	redis_do(&f->redis, "CLIENT KILL TYPE normal SKIPME yes");
	assert_int_equal(get(f->me, OWNERSHIP_RENEW), 1);
}

/* Many wait no longer than one, and the loop goes on meanwhile. */
static void test_a_store_that_stops_answering_and_comes_back(void **state)
{
	enum { N = 50 };
	struct fixture *f = *state;
	struct question q[N];
	int64_t begun;

	assert_int_equal(get(f->me, OWNERSHIP_TAKE), 1);
	kill(f->redis.pid, SIGSTOP);
	begun = clock_ms();
	for (size_t i = 0; i < N; i++)
		begin(&q[i], f->me, OWNERSHIP_RENEW, ID);
	/* loop_run() waits for the loop; an answer would be, for 5 s. */
	assert_true(clock_ms() - begun < 4000);
	for (size_t i = 0; i < N; i++) {
		wait_for(&q[i]);
		assert_int_equal(q[i].op.error, -ETIMEDOUT);
		ownership_op_clear(&q[i].op);
	}
	assert_in_range(clock_ms() - begun, 4000, 20000);
	kill(f->redis.pid, SIGCONT);
	assert_int_equal(get(f->me, OWNERSHIP_RENEW), 1);
}

#define TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_every_cell_of_the_table_with_redis),
		TEST(test_every_cell_of_the_table_in_memory),
		TEST(test_claim_is_exclusive_across_instances),
		TEST(test_take_makes_the_previous_owners_renew_report_lost),
		TEST(test_take_is_allowed_once_the_teardown_marker_is_released),
		TEST(test_concurrent_claims_serialize_to_one_winner),
		TEST(test_claim_succeeds_once_a_lease_expires),
		TEST(test_a_stale_teardown_marker_expires),
		TEST(test_renew_extends_the_lease),
		TEST(test_keys_values_and_times_are_the_reference_s),
		TEST(test_owner_ids_are_unique_per_instance),
		TEST(test_what_is_no_lease_is_no_answer),
		TEST(test_bad_settings_are_refused_with_words),
		TEST(test_a_port_a_password_and_a_database),
		TEST(test_redis_backend_error_is_wrapped_not_leaked),
		TEST(test_a_store_that_stops_answering_and_comes_back),
	};

	if (!redis_program()) {
		fprintf(stderr, "there is no redis-server (Debian: redis-tools)\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
