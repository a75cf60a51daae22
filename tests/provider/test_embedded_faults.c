/*
 * The embedded backend when things go wrong: programs that do not start,
 * cancelled questions, logs that grow, a directory that somebody else has had
 * his hands in. Victims are always files of the test itself.
 */
#include "embedded.h"

#include <grp.h>
#include <sys/file.h>

#include "every.h"

#define ID "00112233445566aa"
static const struct whom whom = { ID, "ann", "t1" };

enum { NOBODY = 65534, SKIPPED = 77 };

#define SERVES "echo $$ >\"$PID\"; echo READY=1 >$READY; forever"

/* Its directory or a file in it. */
static const char *den(const struct world *w, const char *name)
{
	static char paths[4][256];
	static unsigned next;
	char *to = paths[next++ % 4];

	snprintf(to, sizeof(paths[0]), "%s/%s%s%s", w->root, ID, *name ? "/" : "", name);
	return to;
}

static void assert_text(const char *path, const char *expected)
{
	char *text CLEANUP_FREE = text_of(path);

	assert_string_equal(text, expected);
}

/* ---- starts that fail ---- */

/* A create that must fail so, saying so, and leave nothing. */
static void assert_start_fails(struct world *w, int error, const char *why)
{
	struct ask q;

	ask_start(&q, w->b, ASK_CREATE, &whom);
	assert_int_equal(answer(&q), error);
	assert_non_null(q.op.why);
	if (!strstr(q.op.why, why))
		fail_msg("'%s' does not say '%s'", q.op.why, why);
	assert_null(q.op.place.socket);
	ask_release(&q);
	assert_false(alive(w->b, ID));
	assert_nothing_left(w);
}

static void use_script(struct world *w, const char *body, int64_t ready_ms)
{
	reopen(w, &(struct embedded_config){ .program = script(w, body), .ready_ms = ready_ms });
}

static void test_program_that_ends_is_quoted(void **state)
{
	static const struct {
		const char *body, *why;
	} cases[] = {
		{ "echo noise; echo 'sandboxd: error: no luck today' >&2; exit 3",
		  "no luck today" },
		{ "echo only noise; exit 3", "only noise" },
		{ "exit 3", "ended with status 3" },
		{ "kill -9 $$", "killed by signal 9" },
		{ "echo READY=0 >$READY; exit 0", "ended with status 0" },
		/* Its children end with it. */
		{ "sleep 1000 & exit 4", "ended with status 4" },
	};
	struct world *w = *state;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		use_script(w, cases[i].body, 0);
		assert_start_fails(w, -EIO, cases[i].why);
	}
	/* An old line in the log is not what this one said. */
	use_script(w, "exit 5", 0);
	assert_start_fails(w, -EIO, "ended with status 5");
}

static void test_program_that_is_never_ready(void **state)
{
	struct world *w = *state;

	/* It has the time to say so. */
	use_script(w, "echo 'sandboxd: error: still waiting'; sleep 1000", 3000);
	assert_start_fails(w, -ETIMEDOUT,
			   "not ready within 3000 ms; its last words: still waiting");
	use_script(w, "sleep 1000", 500);
	assert_start_fails(w, -ETIMEDOUT, "not ready within 500 ms");
	/* Nonsense is no answer while there could be more of it. */
	use_script(w, "echo READY=0 >$READY; forever", 500);
	assert_start_fails(w, -ETIMEDOUT, "not ready within 500 ms");
}

static void test_program_that_says_nonsense(void **state)
{
	struct world *w = *state;

	use_script(w, "head -c 100 /dev/zero >$READY; forever", 0);
	assert_start_fails(w, -EIO, "something else than that it is ready");
	use_script(w, "echo XREADY=2 and whatever else it may say >$READY; forever", 0);
	assert_start_fails(w, -EIO, "something else than that it is ready");
	use_script(w, "n=${READY##*/}; eval \"exec $n>&-\"; forever", 0);
	assert_start_fails(w, -EIO, "gave up getting ready but did not end");
}

static void test_program_that_cannot_be_run(void **state)
{
	struct world *w = *state;
	const char *path;

	if (is_under_valgrind()) /* it does not survive an exec that fails */
		skip();
	path = script(w, SERVES);
	reopen(w, &(struct embedded_config){ .program = path });
	write_text(path, "#!/nonexistent/interpreter\n");
	assert_start_fails(w, -EIO, "cannot run");
}

static void test_without_bwrap(void **state)
{
	struct world *w = *state;
	char *path CLEANUP_FREE = strdup(getenv("PATH"));

	assert_int_equal(mkdir(in_world(w, "empty"), 0700), 0);
	assert_int_equal(setenv("PATH", in_world(w, "empty"), 1), 0);
	assert_start_fails(w, -EIO, "bwrap");
	assert_int_equal(setenv("PATH", path, 1), 0);
}

/* We still hold the dead one's lock then; that must not keep its remains. */
static void test_failed_start_after_a_death_leaves_nothing(void **state)
{
	struct world *w = *state;

	use_script(w, "[ -e \"$DIR/fail\" ] && exit 3\n" SERVES, 0);
	assert_int_equal(get(w->b, ASK_CREATE, whom), 0);
	assert_int_equal(get(w->b, ASK_CREATE, whom), -EEXIST);
	assert_true(pid_of(w, ID) > 1);
	assert_int_equal(kill(pid_of(w, ID), SIGKILL), 0);
	EVENTUALLY(!alive(w->b, ID));
	write_text(in_world(w, "fail"), "");
	assert_start_fails(w, -EIO, "ended with status 3");
}

/* ---- cancelling ---- */

static void test_cancelled_start_leaves_nothing(void **state)
{
	static const char *const bodies[] = {
		": >\"$DIR/started\"; forever",
		/* Has to be killed. */
		"trap '' TERM; : >\"$DIR/started\"; forever",
		/* Is on its way out already. */
		"trap '' TERM; : >\"$DIR/started\"; n=${READY##*/}; eval \"exec $n>&-\"; forever",
	};
	struct world *w = *state;

	for (size_t i = 0; i < ARRAY_SIZE(bodies); i++) {
		struct ask q;
		int r;

		use_script(w, bodies[i], 0);
		ask_start(&q, w->b, ASK_CREATE, &whom);
		EVENTUALLY(exists(in_world(w, "started")));
		ask_cancel(&q);
		ask_cancel(&q);
		r = answer(&q);
		assert_true(r == -ECANCELED || (i == 2 && r == -EIO));
		ask_release(&q);
		assert_nothing_left(w);
		assert_int_equal(unlink(in_world(w, "started")), 0);
	}
}

static void test_start_cancelled_at_any_moment(void **state)
{
	enum { ROUNDS = 30 };
	struct world *w = *state;
	unsigned made = 0, cancelled = 0;
	int64_t start = clock_ms(), whole;

	assert_int_equal(get(w->b, ASK_CREATE, whom), 0);
	whole = clock_ms() - start;
	assert_int_equal(get(w->b, ASK_DESTROY, whom), 0);
	for (int i = 0; i < ROUNDS; i++) {
		struct ask q;
		int r;

		ask_start(&q, w->b, ASK_CREATE, &whom);
		/* The first at once, the last when it is through. */
		if (i < ROUNDS - 1)
			poll(NULL, 0, (int)(whole * i / ROUNDS));
		else
			assert_int_equal(answer(&q), 0);
		ask_cancel(&q);
		r = answer(&q);
		ask_release(&q);
		assert_true(r == 0 || r == -ECANCELED);
		*(r == 0 ? &made : &cancelled) += 1;
		assert_true(alive(w->b, ID) == (r == 0));
		if (r == 0)
			assert_int_equal(get(w->b, ASK_DESTROY, whom), 0);
		assert_nothing_left(w);
	}
	assert_true(made > 0);
	assert_true(cancelled > 0);
}

static void test_cancelled_destroy_is_only_faster(void **state)
{
	struct world *w = *state;
	struct ask q;

	use_script(w, "trap ': >\"$DIR/asked\"' TERM\n" SERVES, 0);
	assert_int_equal(get(w->b, ASK_CREATE, whom), 0);
	ask_start(&q, w->b, ASK_DESTROY, &whom);
	EVENTUALLY(exists(in_world(w, "asked")));
	ask_cancel(&q);
	assert_int_equal(answer(&q), 0);
	ask_release(&q);
	assert_nothing_left(w);
}

static void test_cancelled_destroy_or_adopt_of_one_in_use_changes_nothing(void **state)
{
	struct world *w = *state;
	struct backend *second = open_backend(w, NULL);

	assert_int_equal(get(w->b, ASK_CREATE, whom), 0);
	assert_int_equal(get(second, ASK_DISCOVER, whom), 0);
	for (int i = 0; i < 20; i++) {
		struct ask q;
		int r;

		ask_start(&q, w->b, i % 2 ? ASK_DESTROY : ASK_ADOPT, &whom);
		poll(NULL, 0, i * 2);
		ask_cancel(&q);
		r = answer(&q);
		ask_release(&q);
		assert_true(r == -ECANCELED || r == -EBUSY);
		assert_true(alive(w->b, ID));
		/* Each still has its lock. */
		assert_int_equal(get(second, ASK_DESTROY, whom), -EBUSY);
	}
	backend_free(second);
	assert_int_equal(get(w->b, ASK_DESTROY, whom), 0);
	assert_nothing_left(w);
}

/* ---- logs ---- */

/* 'n' lines of 10 bytes, beginning with a letter. */
static void append_lines(const char *path, char letter, int n)
{
	FILE *f = fopen(path, "ae");

	assert_non_null(f);
	for (int i = 0; i < n; i++)
		assert_int_equal(fprintf(f, "%c%08d\n", letter, i), 10);
	assert_int_equal(fclose(f), 0);
}

static void test_log_is_rotated_at_a_start(void **state)
{
	struct world *w = *state;
	const char *log = in_world(w, "data/logs/%s.log", ID);
	const char *one = in_world(w, "data/logs/%s.log.1", ID);
	const char *two = in_world(w, "data/logs/%s.log.2", ID);
	char *text;

	reopen(w, &(struct embedded_config){ .log_max = 1000 });
	assert_int_equal(mkdir(in_world(w, "data/logs"), 0700), 0);
	append_lines(log, 'a', 500);
	assert_int_equal(get(w->b, ASK_CREATE, whom), 0);
	text = text_of(one);
	assert_int_equal(strlen(text), 1000);
	assert_memory_equal(text, "a00000400\n", 10);
	assert_string_equal(text + 990, "a00000499\n");
	free(text);
	assert_false(exists(two));
	text = text_of(log);
	assert_non_null(strstr(text, "ready on unix:"));
	assert_null(strstr(text, "a00000499"));
	free(text);
	assert_int_equal(get(w->b, ASK_DESTROY, whom), 0);

	append_lines(log, 'b', 500);
	assert_int_equal(get(w->b, ASK_CREATE, whom), 0);
	text = text_of(two);
	assert_string_equal(text + 990, "a00000499\n");
	free(text);
	text = text_of(one);
	assert_string_equal(text + 990, "b00000499\n");
	free(text);
	assert_int_equal(get(w->b, ASK_DESTROY, whom), 0);
	assert_int_equal(entries_in(in_world(w, "data/logs")), 3);
}

static void test_log_is_rotated_while_it_is_written(void **state)
{
	enum { MAX_BYTES = 2000 };
	struct world *w = *state;
	char log[256];
	pid_t pid;

	snprintf(log, sizeof(log), "%s", in_world(w, "data/logs/%s.log", ID));
	reopen(w, &(struct embedded_config){
			  .program = script(w, "echo $$ >\"$PID\"; echo READY=1 >$READY\n"
					       "while :; do echo line $((n++)); rest; done"),
			  .log_max = MAX_BYTES });
	assert_int_equal(get(w->b, ASK_CREATE, whom), 0);
	pid = pid_of(w, ID);
	/* A small one stays as it is; freeing waits for what tend() began. */
	tend(w->b);
	EVENTUALLY(size_of(log) > MAX_BYTES);
	EVENTUALLY((tend(w->b), exists(in_world(w, "data/logs/%s.log.1", ID))));
	EVENTUALLY((tend(w->b), exists(in_world(w, "data/logs/%s.log.2", ID))));
	assert_true(size_of(in_world(w, "data/logs/%s.log.1", ID)) <= 2 * MAX_BYTES);
	assert_true(size_of(in_world(w, "data/logs/%s.log.2", ID)) >= MAX_BYTES);
	for (int i = 0; i < 2; i++) {
		int64_t size = size_of(log);
		char *text;

		/* It goes on, at the end, so that there is no hole before it. */
		EVENTUALLY(size_of(log) != size);
		text = text_of(log);
		assert_memory_equal(text, "line ", strlen(text) < 5 ? strlen(text) : 5);
		free(text);
	}
	assert_int_equal(pid_of(w, ID), pid);
	assert_int_equal(get(w->b, ASK_DESTROY, whom), 0);
	assert_nothing_left(w);
}

/* ---- the environment ---- */

static void test_environment_has_no_secrets(void **state)
{
	static const char *const secrets[] = { "THREADFS_API_KEY", "THREADFS_DATA",
					       "GITHUB_TOKEN",     "AWS_SECRET_ACCESS_KEY",
					       "https_proxy",      "PATH_SECRET" };
	static const char *const fine[] = { "PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ",
					    "TMPDIR", "LD_LIBRARY_PATH",
					    /* of the shell itself */
					    "PWD", "OLDPWD", "SHLVL", "_" };
	struct world *w = *state;
	char *text CLEANUP_FREE = NULL, *save = NULL;
	bool has_path = false, has_locale = false;

	for (size_t i = 0; i < ARRAY_SIZE(secrets); i++)
		assert_int_equal(setenv(secrets[i], "hunter2", 1), 0);
	assert_int_equal(setenv("LC_MESSAGES", "C", 1), 0);
	use_script(w, "env >\"$DIR/env\"\n" SERVES, 0);
	assert_int_equal(get(w->b, ASK_CREATE, whom), 0);
	for (size_t i = 0; i < ARRAY_SIZE(secrets); i++)
		unsetenv(secrets[i]);
	unsetenv("LC_MESSAGES");
	text = text_of(in_world(w, "env"));
	assert_null(strstr(text, "hunter2"));
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		bool known = strncmp(line, "LC_", 3) == 0;

		line[strcspn(line, "=")] = '\0';
		for (size_t i = 0; i < ARRAY_SIZE(fine) && !known; i++)
			known = strcmp(line, fine[i]) == 0;
		known |= strlen(line) > 11 && strcmp(line + strlen(line) - 11, "SAN_OPTIONS") == 0;
		if (!known)
			fail_msg("%s is handed down", line);
		has_path |= strcmp(line, "PATH") == 0;
		has_locale |= strcmp(line, "LC_MESSAGES") == 0;
	}
	assert_true(has_path);
	assert_true(has_locale);
}

/* ---- what cannot be used ---- */

static void test_refusals(void **state)
{
	struct world *w = *state;
	char long_dir[200], file[256], link[256], open_dir[256];
	const struct {
		struct embedded_config config;
		int error;
		const char *why;
	} cases[] = {
		{ { .data = "relative" }, -EINVAL, "must be an absolute path" },
		{ { .data = "" }, -EINVAL, "must be an absolute path" },
		{ { .data = file }, -ENOTDIR, "data root" },
		{ { .runtime = "relative" }, -EINVAL, "must be an absolute path" },
		{ { .runtime = long_dir }, -ENAMETOOLONG, "too long" },
		{ { .runtime = file }, -ENOTDIR, "runtime directory" },
		{ { .runtime = link }, -ELOOP, "runtime directory" },
		{ { .runtime = open_dir }, -EPERM, "not ours alone" },
		{ { .program = "/nonexistent/program" }, -ENOENT, "cannot run" },
		{ { .program = file }, -EACCES, "cannot run" },
		{ { .program = w->dir }, -EISDIR, "cannot run" },
		{ { .program = "no-such-program-anywhere" }, -ENOENT, "not found in PATH" },
	};
	const char *hash = strrchr(w->root, '/') + 1;
	unsigned fds = count_fds();

	memset(long_dir, 'x', sizeof(long_dir));
	memcpy(long_dir, w->dir, strlen(w->dir));
	long_dir[strlen(w->dir)] = '/';
	long_dir[sizeof(long_dir) - 1] = '\0';
	snprintf(file, sizeof(file), "%s", in_world(w, "file"));
	write_text(file, "mine\n");
	snprintf(link, sizeof(link), "%s", in_world(w, "link"));
	assert_int_equal(mkdir(link, 0700), 0);
	assert_int_equal(mkdir(in_world(w, "victim"), 0700), 0);
	assert_int_equal(symlink(in_world(w, "victim"), in_world(w, "link/%s", hash)), 0);
	snprintf(open_dir, sizeof(open_dir), "%s", in_world(w, "open"));
	assert_int_equal(mkdir(open_dir, 0700), 0);
	assert_int_equal(mkdir(in_world(w, "open/%s", hash), 0700), 0);
	assert_int_equal(chmod(in_world(w, "open/%s", hash), 0777), 0);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct embedded_config config = cases[i].config;
		struct backend *b = NULL;
		char *why = NULL;

		config.data = config.data ? config.data : w->data;
		config.runtime = config.runtime ? config.runtime : w->run;
		config.program = config.program ? config.program : real_program();
		assert_int_equal(backend_embedded_new(w->loop, &config, &b, &why), cases[i].error);
		assert_null(b);
		assert_non_null(why);
		if (!strstr(why, cases[i].why))
			fail_msg("'%s' does not say '%s'", why, cases[i].why);
		free(why);
		assert_int_equal(backend_embedded_new(w->loop, &config, &b, NULL), cases[i].error);
	}
	assert_int_equal(count_fds(), fds);
	assert_false(exists(long_dir));
	assert_text(file, "mine\n");
	assert_int_equal(entries_in(in_world(w, "victim")), 0);
}

/* ---- somebody else's files ---- */

static void test_log_that_is_a_link_is_left_alone(void **state)
{
	struct world *w = *state;
	char victim[256], log[256], one[256];
	char *before;

	snprintf(victim, sizeof(victim), "%s", in_world(w, "victim"));
	snprintf(log, sizeof(log), "%s", in_world(w, "data/logs/%s.log", ID));
	snprintf(one, sizeof(one), "%s", in_world(w, "data/logs/%s.log.1", ID));
	append_lines(victim, 'v', 300);
	before = text_of(victim);
	use_script(w, SERVES, 0);
	reopen(w, &(struct embedded_config){ .program = in_world(w, "program"), .log_max = 1000 });

	/* The directory of the logs. */
	assert_int_equal(mkdir(in_world(w, "elsewhere"), 0700), 0);
	assert_int_equal(symlink(in_world(w, "elsewhere"), in_world(w, "data/logs")), 0);
	append_lines(in_world(w, "elsewhere/%s.log", ID), 'v', 300);
	assert_start_fails(w, -ELOOP, "cannot open the log");
	assert_text(in_world(w, "elsewhere/%s.log", ID), before);
	assert_int_equal(entries_in(in_world(w, "elsewhere")), 1);
	assert_int_equal(unlink(in_world(w, "data/logs")), 0);

	/* The log itself, by either kind of link, or no file at all. */
	assert_int_equal(mkdir(in_world(w, "data/logs"), 0700), 0);
	assert_int_equal(symlink(victim, log), 0);
	assert_start_fails(w, -ELOOP, "cannot open the log");
	assert_int_equal(unlink(log), 0);
	assert_int_equal(link(victim, log), 0);
	assert_start_fails(w, -EIO, "cannot open the log");
	assert_int_equal(unlink(log), 0);
	assert_int_equal(mkfifo(log, 0600), 0);
	assert_start_fails(w, -EIO, "cannot open the log");
	assert_int_equal(unlink(log), 0);
	assert_text(victim, before);

	/* Where the older part goes. */
	append_lines(log, 'a', 300);
	assert_int_equal(symlink(victim, one), 0);
	assert_int_equal(get(w->b, ASK_CREATE, whom), 0);
	assert_int_equal(size_of(one), 1000);
	assert_text(victim, before);

	/* While it runs. */
	assert_int_equal(unlink(log), 0);
	assert_int_equal(symlink(victim, log), 0);
	tend(w->b);
	reopen(w, NULL);
	assert_text(victim, before);
	assert_int_equal(get(w->b, ASK_DISCOVER, whom), 0);
	assert_int_equal(unlink(log), 0);
	assert_int_equal(link(victim, log), 0);
	tend(w->b);
	reopen(w, NULL);
	assert_text(victim, before);
	free(before);
}

static void test_links_among_the_files_of_a_sandbox(void **state)
{
	static const char *const locks[] = { "users", "alive" };
	static const char *const others[] = { "sock", "pid", "who", "who.tmp", "pid.12" };
	struct world *w = *state;
	char victim[256];

	snprintf(victim, sizeof(victim), "%s", in_world(w, "victim"));
	write_text(victim, "mine\n");
	for (int hard = 0; hard < 2; hard++) {
		for (size_t i = 0; i < ARRAY_SIZE(locks); i++) {
			assert_int_equal(mkdir(den(w, ""), 0700), 0);
			assert_int_equal((hard ? link : symlink)(victim, den(w, locks[i])), 0);
			assert_int_equal(running(w->b), 0);
			assert_true(get(w->b, ASK_ADOPT, whom) < 0);
			assert_int_equal(get(w->b, ASK_DISCOVER, whom), -ENOENT);
			assert_int_equal(get(w->b, ASK_CREATE, whom), hard ? -EIO : -ELOOP);
			assert_int_equal(get(w->b, ASK_DESTROY, whom), hard ? -EPERM : -ELOOP);
			assert_text(victim, "mine\n");
			assert_true(exists(den(w, locks[i])));
			assert_int_equal(unlink(den(w, locks[i])), 0);
			assert_int_equal(get(w->b, ASK_DESTROY, whom), 0);
			assert_nothing_left(w);
		}
		assert_int_equal(mkdir(den(w, ""), 0700), 0);
		for (size_t i = 0; i < ARRAY_SIZE(others); i++)
			assert_int_equal((hard ? link : symlink)(victim, den(w, others[i])), 0);
		assert_int_equal(get(w->b, ASK_CREATE, whom), 0);
		assert_int_equal(get(w->b, ASK_DESTROY, whom), 0);
		assert_text(victim, "mine\n");
		assert_nothing_left(w);
	}
}

static int be_holder(char **argv)
{
	int fd = open(argv[1], O_RDWR | O_CLOEXEC);

	if (fd < 0 || flock(fd, LOCK_EX) < 0 || mkdir(argv[2], 0700) < 0)
		return 1;
	for (;;)
		pause();
}

/* Whoever holds another file's lock must not be taken for a sandbox, and killed. */
static void test_holder_of_another_file_is_not_killed(void **state)
{
	struct world *w = *state;
	char victim[256];
	pid_t holder;

	snprintf(victim, sizeof(victim), "%s", in_world(w, "victim"));
	write_text(victim, "mine\n");
	holder = start_role("holder", victim, in_world(w, "held"), NULL);
	EVENTUALLY(exists(in_world(w, "held")));
	assert_int_equal(mkdir(den(w, ""), 0700), 0);
	assert_int_equal(link(victim, den(w, "alive")), 0);
	assert_int_equal(get(w->b, ASK_DESTROY, whom), -EPERM);
	assert_int_equal(waitpid(holder, NULL, WNOHANG), 0);
	assert_true(exists(den(w, "alive")));
	assert_int_equal(unlink(den(w, "alive")), 0);
	kill(holder, SIGKILL);
	assert_int_equal(waitpid(holder, NULL, 0), holder);
	assert_int_equal(get(w->b, ASK_DESTROY, whom), 0);
	assert_nothing_left(w);
}

/* The directory above, replaced by a link while a sandbox runs in the true one. */
static void test_replaced_root_is_not_followed(void **state)
{
	static const char *const names[] = { "users", "alive", "who", "pid", "sock" };
	struct world *w = *state;
	char moved[256];

	assert_int_equal(get(w->b, ASK_CREATE, whom), 0);
	snprintf(moved, sizeof(moved), "%s.moved", w->root);
	assert_int_equal(mkdir(in_world(w, "victim"), 0700), 0);
	assert_int_equal(mkdir(in_world(w, "victim/%s", ID), 0700), 0);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		write_text(in_world(w, "victim/%s/%s", ID, names[i]), "mine\n");
	assert_int_equal(rename(w->root, moved), 0);
	assert_int_equal(symlink(in_world(w, "victim"), w->root), 0);
	assert_int_equal(get(w->b, ASK_LIST_RUNNING, whom), -ELOOP);
	assert_int_equal(get(w->b, ASK_IS_ALIVE, whom), -ELOOP);
	assert_int_equal(get(w->b, ASK_CREATE, whom), -ELOOP);
	assert_int_equal(get(w->b, ASK_DESTROY, whom), -ELOOP);

	/* A real directory of ours, but another one than that of our lock. */
	assert_int_equal(unlink(w->root), 0);
	assert_int_equal(rename(in_world(w, "victim"), w->root), 0);
	assert_int_equal(get(w->b, ASK_DESTROY, whom), -ESTALE);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		assert_text(den(w, names[i]), "mine\n");

	assert_int_equal(rename(w->root, in_world(w, "victim")), 0);
	assert_int_equal(rename(moved, w->root), 0);
	assert_int_equal(get(w->b, ASK_DESTROY, whom), 0);
	assert_nothing_left(w);
}

/* Somebody cleaned up. */
static void test_missing_root_is_made_again(void **state)
{
	struct world *w = *state;

	assert_int_equal(rmdir(w->root), 0);
	assert_int_equal(rmdir(w->run), 0);
	assert_int_equal(running(w->b), 0);
	assert_false(alive(w->b, ID));
	assert_int_equal(get(w->b, ASK_DESTROY, whom), 0);
	assert_int_equal(get(w->b, ASK_CREATE, whom), 0);
	assert_int_equal(get(w->b, ASK_DESTROY, whom), 0);
	assert_nothing_left(w);
}

/* ---- an ordinary user ---- */

static int quietly(struct backend *b, enum ask_kind kind)
{
	struct ask q;
	int r;

	ask_start(&q, b, kind, &whom);
	r = ask_wait(&q, SLACK_MS) ? q.op.error : -ETIME;
	if (r < 0)
		fprintf(stderr, "%s: %s %s\n", ask_kind_name(kind), strerrorname_np(-r),
			q.op.why ? q.op.why : "");
	ask_release(&q);
	return r;
}

/* Exits with the number of the step that failed. */
static int be_ordinary(char **argv)
{
	struct embedded_config config = { .data = argv[1],
					  .runtime = argv[2],
					  .program = getenv("SANDBOXD") };
	struct backend *b = NULL;
	struct loop *loop;
	char *why = NULL;
	int r;

	if (setgroups(0, NULL) < 0 || setgid(NOBODY) < 0 || setuid(NOBODY) < 0)
		return 1;
	/* The build or the scratch directory may be where only root may go. */
	if (access(config.program, X_OK) < 0 || access(config.runtime, X_OK) < 0)
		return SKIPPED;
	if (loop_new(&loop) < 0)
		return 2;
	config.data = argv[3];
	r = backend_embedded_new(loop, &config, &b, &why);
	if (r != -EACCES || !why || !strstr(why, "data root"))
		return 3;
	free(why);
	config.data = argv[1];
	if (backend_embedded_new(loop, &config, &b, NULL) < 0)
		return 4;
	if (quietly(b, ASK_CREATE) < 0 || quietly(b, ASK_IS_ALIVE) < 0)
		return 5;
	backend_free(b);
	if (backend_embedded_new(loop, &config, &b, NULL) < 0)
		return 6;
	/* Not by memory: the process is found through its lock. */
	if (quietly(b, ASK_DISCOVER) < 0 || quietly(b, ASK_ADOPT) < 0)
		return 7;
	if (quietly(b, ASK_DESTROY) < 0)
		return 8;
	if (quietly(b, ASK_DISCOVER) != -ENOENT)
		return 9;
	backend_free(b);
	loop_free(loop);
	return 0;
}

static void test_ordinary_user(void **state)
{
	struct world *w = *state;
	char data[256], run[256], locked[256];
	int status;
	pid_t pid;

	if (geteuid() != 0)
		skip(); /* then all the others are this test */
	snprintf(data, sizeof(data), "%s", in_world(w, "user-data"));
	snprintf(run, sizeof(run), "%s", in_world(w, "user-run"));
	snprintf(locked, sizeof(locked), "%s", in_world(w, "locked"));
	assert_int_equal(chmod(w->dir, 0755), 0);
	assert_int_equal(mkdir(data, 0700), 0);
	assert_int_equal(mkdir(run, 0700), 0);
	assert_int_equal(mkdir(locked, 0755), 0);
	assert_int_equal(chown(data, NOBODY, NOBODY), 0);
	assert_int_equal(chown(run, NOBODY, NOBODY), 0);
	pid = start_role("ordinary", data, run, locked);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == SKIPPED) {
		print_message("user %d may not enter %s or run %s\n", NOBODY, run, real_program());
		skip();
	}
	assert_int_equal(WEXITSTATUS(status), 0);
	EVENTUALLY(processes_of(w) == 0);
	assert_int_equal(entries_in(locked), 0);
}

/* Root's own, in a place where others may write: not to be used as it is. */
static void test_directory_of_another_user_is_not_used(void **state)
{
	struct world *w = *state;

	if (geteuid() != 0)
		skip(); /* cannot give files away */
	assert_int_equal(mkdir(den(w, ""), 0700), 0);
	assert_int_equal(chown(den(w, ""), NOBODY, NOBODY), 0);
	write_text(den(w, "who"), "mine\n");
	assert_int_equal(running(w->b), 0);
	assert_int_equal(get(w->b, ASK_CREATE, whom), -EIO);
	assert_int_equal(get(w->b, ASK_DESTROY, whom), -EPERM);
	assert_int_equal(get(w->b, ASK_IS_ALIVE, whom), -EPERM);
	assert_text(den(w, "who"), "mine\n");
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		WORLD_TEST(test_program_that_ends_is_quoted),
		WORLD_TEST(test_program_that_is_never_ready),
		WORLD_TEST(test_program_that_says_nonsense),
		WORLD_TEST(test_program_that_cannot_be_run),
		WORLD_TEST(test_without_bwrap),
		WORLD_TEST(test_failed_start_after_a_death_leaves_nothing),
		WORLD_TEST(test_cancelled_start_leaves_nothing),
		WORLD_TEST(test_start_cancelled_at_any_moment),
		WORLD_TEST(test_cancelled_destroy_is_only_faster),
		WORLD_TEST(test_cancelled_destroy_or_adopt_of_one_in_use_changes_nothing),
		WORLD_TEST(test_log_is_rotated_at_a_start),
		WORLD_TEST(test_log_is_rotated_while_it_is_written),
		WORLD_TEST(test_environment_has_no_secrets),
		WORLD_TEST(test_refusals),
		WORLD_TEST(test_log_that_is_a_link_is_left_alone),
		WORLD_TEST(test_links_among_the_files_of_a_sandbox),
		WORLD_TEST(test_holder_of_another_file_is_not_killed),
		WORLD_TEST(test_replaced_root_is_not_followed),
		WORLD_TEST(test_missing_root_is_made_again),
		WORLD_TEST(test_ordinary_user),
		WORLD_TEST(test_directory_of_another_user_is_not_used),
	};

	if (argc == 3 && strcmp(argv[0], "holder") == 0)
		return be_holder(argv);
	if (argc == 4 && strcmp(argv[0], "ordinary") == 0)
		return be_ordinary(argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
