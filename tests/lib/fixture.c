/* What most tests of client/ need; see the header. Main thread, except the paths. */
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static struct daemon *shared; /* one per program: starting it takes a while */
static char noted[600];

static const char *dialect(void)
{
	return getenv("TFS_DIALECT") ?: "aiod";
}

const char *const fixture_roomy[] = {
	"--max-sessions", "400", "--max-watchers", "400", "--max-bash-sessions", "400", NULL
};

static struct daemon *start_daemon(const char *const *args)
{
	struct daemon *d =
		daemon_start(&(struct daemon_options){ .dialect = dialect(), .args = args });

	assert_non_null(d);
	return d;
}

static void connect_to(struct fixture *f, struct daemon *d)
{
	static unsigned number;

	f->daemon = d;
	f->rogue = rogue_new(daemon_socket(d), getenv("TFS_TCP"));
	assert_non_null(f->rogue);
	snprintf(f->dir, sizeof(f->dir), "/mnt/user-data/t%u", ++number);
	snprintf(f->host_dir, sizeof(f->host_dir), "%s/t%u", daemon_data(d), number);
	assert_int_equal(mkdir(f->host_dir, 0777), 0);
	f->sb = fixture_open(f, NULL);
}

static void disconnect(struct fixture *f)
{
	sandbox_unref(STEAL(f->sb));
	rogue_free(STEAL(f->rogue));
}

int fixture_setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	noted[0] = 0;
	if (!shared)
		shared = start_daemon(NULL);
	f->dialect = dialect();
	f->has_bash = strcmp(f->dialect, "1.0") != 0;
	assert_int_equal(loop_new(&f->loop), 0);
	connect_to(f, shared);
	*state = f;
	return 0;
}

int fixture_teardown(void **state)
{
	struct fixture *f = *state;
	int r = 0;

	if (noted[0])
		fprintf(stderr, "last failed call: %s\n", noted);
	disconnect(f);
	loop_free(f->loop);
	if (f->daemon != shared)
		r = daemon_stop(f->daemon);
	free(f);
	return r;
}

int fixture_group_teardown(void **state UNUSED)
{
	int r = shared ? daemon_stop(shared) : 0;

	shared = NULL;
	return r;
}

struct sandbox *fixture_open(struct fixture *f, const char *root)
{
	const char *socket = rogue_socket(f->rogue);
	struct sandbox_config config = {
		.socket = socket,
		.url = socket ? NULL : rogue_url(f->rogue),
		.root = root,
		.label = "test",
	};
	struct sandbox *sb = NULL;

	assert_int_equal(sandbox_new(f->loop, &config, &sb, NULL), 0);
	return sb;
}

void fixture_own_daemon(struct fixture *f)
{
	disconnect(f);
	connect_to(f, start_daemon(NULL));
}

void fixture_roomy_daemon(struct fixture *f)
{
	disconnect(f);
	connect_to(f, start_daemon(fixture_roomy));
}

static const char *join(const char *dir, const char *name)
{
	static __thread char paths[4][4800];
	static __thread unsigned next;
	char *to = paths[next++ % ARRAY_SIZE(paths)];

	snprintf(to, sizeof(paths[0]), "%s/%s", dir, name);
	return to;
}

const char *fixture_path(const struct fixture *f, const char *name)
{
	return join(f->dir, name);
}

const char *fixture_host_path(const struct fixture *f, const char *name)
{
	return join(f->host_dir, name);
}

void fixture_note(const char *op, const struct call *call)
{
	if (call->error)
		snprintf(noted, sizeof(noted), "%s: %d, %s", op, call->error,
			 call->message ?: "no words");
}
