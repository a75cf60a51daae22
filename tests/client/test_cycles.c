/*
 * Open, one request, close, again and again: nothing adds up. TFS_CYCLES says
 * how often (300). Straight to the real server: a proxy's sockets would be ours.
 */
#include <stdio.h>
#include <string.h>

#include "every.h"
#include "fixture.h"

enum {
	WARM_UP = 100,         /* allocators and caches find their size */
	GROWTH_MAX_KIB = 2048, /* however many cycles */
};

static unsigned cycles(void)
{
	const char *given = getenv("TFS_CYCLES");
	unsigned long n = given ? strtoul(given, NULL, 10) : 300;

	return (unsigned)MIN(MAX(n, 1ul), 1000000ul);
}

static struct sandbox *open_direct(const struct fixture *f)
{
	const struct sandbox_config config = { .socket = daemon_socket(f->daemon) };
	struct sandbox *sb;

	assert_int_equal(sandbox_new(f->loop, &config, &sb, NULL), 0);
	return sb;
}

static int do_ping(struct sandbox *sb, const struct fixture *f UNUSED)
{
	return SYNC(sb, sandbox_ping);
}

/* In 1.0 that makes a session, which is deleted in the end. */
static int do_lstat(struct sandbox *sb, const struct fixture *f)
{
	struct attr attr;

	return SYNC(sb, sandbox_lstat, f->dir, &attr);
}

static void cycle(const struct fixture *f, unsigned n,
		  int (*ask)(struct sandbox *, const struct fixture *))
{
	for (unsigned i = 0; i < n; i++) {
		struct sandbox *sb = open_direct(f);

		assert_int_equal(ask(sb, f), 0);
		sandbox_unref(sb);
	}
}

static void stays_flat(const struct fixture *f, unsigned n,
		       int (*ask)(struct sandbox *, const struct fixture *))
{
	size_t rss, after, grown;
	unsigned fds;

	cycle(f, MIN(n, (unsigned)WARM_UP), ask);
	fds = count_fds();
	rss = rss_kib();
	cycle(f, n, ask);
	after = rss_kib();
	grown = after > rss ? after - rss : 0;
	assert_int_equal(count_fds(), fds);
	assert_int_equal(count_sockets_to(daemon_socket(f->daemon)), 0);
	print_message("%u cycles: %u descriptors, %zu KiB and %zu more\n", n, fds, rss, grown);
	if (!measuring_is_vain())
		assert_in_range(grown, 0, GROWTH_MAX_KIB);
}

static void test_cycles_of_open_ask_close(void **state)
{
	stays_flat(*state, cycles(), do_ping);
}

static void test_cycles_with_a_command(void **state)
{
	stays_flat(*state, MAX(cycles() / 10, 1u), do_lstat);
}

static void test_cycles_of_close_without_a_request(void **state)
{
	struct fixture *f = *state;
	unsigned fds = count_fds();

	for (unsigned i = 0; i < cycles(); i++)
		sandbox_unref(open_direct(f));
	assert_int_equal(count_fds(), fds);
}

static void test_cycles_of_loops(void **state)
{
	struct fixture *f = *state;
	struct loop *kept = f->loop;
	unsigned fds = count_fds();

	for (unsigned i = 0; i < MIN(cycles(), 100u); i++) {
		assert_int_equal(loop_new(&f->loop), 0);
		cycle(f, 1, do_ping);
		loop_free(f->loop);
	}
	f->loop = kept;
	loop_free(NULL);
	assert_int_equal(count_fds(), fds);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		FIXTURE_TEST(test_cycles_of_open_ask_close),
		FIXTURE_TEST(test_cycles_with_a_command),
		FIXTURE_TEST(test_cycles_of_close_without_a_request),
		FIXTURE_TEST(test_cycles_of_loops),
	};

	return FIXTURE_RUN(tests);
}
