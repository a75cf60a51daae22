/*
 * Another program that uses the same directories, for tests to kill:
 *
 *	provider_holder life DATA RUNTIME THREAD…
 *		acquires the threads (all at once), says "ready", and keeps them
 *	provider_holder lock FILE
 *		has the file lock, says "ready", and keeps it
 *
 * until its stdin ends: then it leaves in good order. So it does not outlive a
 * test that crashes. The program to start is $SANDBOXD. With $HOLDER_REDIS, its
 * URL, leases are there, and renewed every $HOLDER_RENEWAL seconds.
 */
#include <stdio.h>
#include <string.h>

#include "backend_embedded.h"
#include "filelock.h"
#include "provider.h"

enum { THREADS_MAX = 64 };

static void say_ready_and_wait(void)
{
	char c;

	puts("ready");
	fflush(stdout);
	while (read(STDIN_FILENO, &c, 1) > 0)
		;
}

static int hold_lock(const char *path)
{
	int fd = filelock_try(path, true);

	if (fd < 0)
		return 1;
	say_ready_and_wait();
	close(fd);
	return 0;
}

static int acquire_all(struct provider *p, char **names, size_t n, struct tenant **tenants)
{
	struct errand errands[THREADS_MAX];
	int bad = 0;

	for (size_t i = 0; i < n; i++) {
		if (tenant_get(p, "u", names[i], &tenants[i]) < 0)
			abort();
		call_init(&errands[i].call, 60000);
		tenant_acquire(tenants[i], &errands[i]);
	}
	for (size_t i = 0; i < n; i++) {
		bad |= call_wait(&errands[i].call);
		call_release(&errands[i].call);
	}
	return bad;
}

static int live(const char *data, const char *runtime, char **names, size_t n)
{
	struct tenant *tenants[THREADS_MAX];
	const char *renewal = getenv("HOLDER_RENEWAL");
	struct ownership_config leases = {
		.redis_url = getenv("HOLDER_REDIS"),
		.renewal_interval_s = renewal ? strtod(renewal, NULL) : 0,
	};
	struct backend *b = NULL;
	struct provider *p = NULL;
	struct loop *loop = NULL;
	const char *why = NULL;
	int bad;

	if (leases.redis_url)
		leases.type = OWNERSHIP_REDIS;
	if (n > THREADS_MAX || loop_new(&loop) < 0 ||
	    backend_embedded_new(loop,
				 &(struct embedded_config){ .data = data,
							    .runtime = runtime,
							    .program = getenv("SANDBOXD") },
				 &b, NULL) < 0 ||
	    provider_new(
		    &(struct provider_config){
			    .loop = loop, .backend = b, .data = data, .ownership = &leases },
		    &p, &why) < 0)
		return 1;
	bad = acquire_all(p, names, n, tenants);
	if (bad == 0)
		say_ready_and_wait();
	for (size_t i = 0; i < n; i++)
		tenant_put(tenants[i]);
	provider_free(p);
	loop_free(loop);
	return bad != 0;
}

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "lock") == 0)
		return hold_lock(argv[2]);
	if (argc > 4 && strcmp(argv[1], "life") == 0)
		return live(argv[2], argv[3], argv + 4, (size_t)argc - 4);
	fprintf(stderr, "usage: provider_holder life DATA RUNTIME THREAD... | lock FILE\n");
	return 2;
}
