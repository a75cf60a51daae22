/*
 * The embedded backend with real sandboxes: made, found, adopted, destroyed,
 * killed; by one program and by several.
 */
#include "embedded.h"

#define ID    "00112233445566aa"
#define OTHER "ffeeddccbbaa9900"
static const struct whom whom = { ID, "ann", "t1" };
static const struct whom other = { OTHER, "bob", "t2" };

/* A client of it; ready. To be unref'ed. */
static struct sandbox *connect_to(struct world *w, const char *id)
{
	char path[256];
	struct sandbox_config config = { .socket = path };
	struct sandbox *sb = NULL;
	struct call call;

	snprintf(path, sizeof(path), "%s/%s/sock", w->root, id);
	assert_int_equal(sandbox_new(w->loop, &config, &sb, NULL), 0);
	call_init(&call, SLACK_MS);
	sandbox_wait_ready(sb, &call, 5000, 50);
	assert_int_equal(call_wait(&call), 0);
	call_release(&call);
	return sb;
}

static void write_in(struct sandbox *sb, const char *path, const char *text)
{
	struct call call;

	call_init(&call, SLACK_MS);
	sandbox_write_file(sb, &call, path, text, strlen(text));
	assert_int_equal(call_wait(&call), 0);
	call_release(&call);
}

static void kill_sandbox(const struct world *w, const char *id)
{
	pid_t pid = pid_of(w, id);
	char name[16];

	assert_true(pid > 1);
	snprintf(name, sizeof(name), "%d", (int)pid);
	assert_true(proc_mentions(name, "cmdline", w->dir));
	assert_int_equal(kill(pid, SIGKILL), 0);
}

/* ---- one program ---- */

static void test_created_sandbox_serves_the_threads_directory(void **state)
{
	struct world *w = *state;
	struct sandbox *sb;
	struct ask q;
	struct stat st;
	char *text;

	ask_start(&q, w->b, ASK_CREATE, &whom);
	assert_int_equal(answer(&q), 0);
	assert_string_equal(q.op.place.id, ID);
	assert_string_equal(q.op.place.user, "ann");
	assert_string_equal(q.op.place.thread, "t1");
	assert_null(q.op.place.url);
	assert_int_equal(lstat(q.op.place.socket, &st), 0);
	assert_true(S_ISSOCK(st.st_mode));
	ask_release(&q);

	sb = connect_to(w, ID);
	write_in(sb, "/mnt/user-data/workspace/hello", "hi");
	sandbox_unref(sb);
	text = text_of(in_world(w, "data/users/ann/threads/t1/user-data/workspace/hello"));
	assert_string_equal(text, "hi");
	free(text);
	assert_true(exists(in_world(w, "data/users/ann/threads/t1/user-data/outputs")));
	text = text_of(in_world(w, "data/logs/%s.log", ID));
	assert_non_null(strstr(text, "ready on unix:"));
	free(text);
}

static void test_create_of_a_running_one_is_eexist(void **state)
{
	struct world *w = *state;
	struct backend *second = open_backend(w, NULL);
	pid_t pid;

	assert_int_equal(get(w->b, ASK_CREATE, whom), 0);
	pid = pid_of(w, ID);
	assert_int_equal(get(w->b, ASK_CREATE, whom), -EEXIST);
	assert_int_equal(get(second, ASK_CREATE, whom), -EEXIST);
	assert_int_equal(pid_of(w, ID), pid);
	assert_true(alive(w->b, ID));
	backend_free(second);
}

static void test_outlives_the_backend_and_is_found_by_the_next(void **state)
{
	struct world *w = *state;
	struct ask q;
	pid_t pid;

	assert_int_equal(get(w->b, ASK_CREATE, whom), 0);
	pid = pid_of(w, ID);
	reopen(w, NULL);
	assert_true(alive(w->b, ID));
	assert_false(alive(w->b, OTHER));
	assert_int_equal(get(w->b, ASK_DISCOVER, other), -ENOENT);

	ask_start(&q, w->b, ASK_DISCOVER, &(struct whom){ .id = ID });
	assert_int_equal(answer(&q), 0);
	assert_string_equal(q.op.place.user, "ann");
	assert_string_equal(q.op.place.thread, "t1");
	ask_release(&q);
	ask_start(&q, w->b, ASK_LIST_RUNNING, &(struct whom){ 0 });
	assert_int_equal(answer(&q), 0);
	assert_int_equal(q.op.nplaces, 1);
	assert_string_equal(q.op.places[0].id, ID);
	assert_string_equal(q.op.places[0].user, "ann");
	assert_string_equal(q.op.places[0].thread, "t1");
	assert_non_null(q.op.places[0].socket);
	ask_release(&q);
	sandbox_unref(connect_to(w, ID));
	assert_int_equal(pid_of(w, ID), pid);
}

static void test_killed_one_is_dead_at_once_and_can_be_made_anew(void **state)
{
	struct world *w = *state;
	struct sandbox *sb;
	char *text;

	assert_int_equal(get(w->b, ASK_CREATE, whom), 0);
	sb = connect_to(w, ID);
	write_in(sb, "/mnt/user-data/outputs/kept", "yes");
	sandbox_unref(sb);
	assert_true(alive(w->b, ID));
	kill_sandbox(w, ID);
	EVENTUALLY(!alive(w->b, ID));
	EVENTUALLY(!has_zombie());
	assert_int_equal(get(w->b, ASK_DISCOVER, whom), -ENOENT);
	assert_int_equal(get(w->b, ASK_ADOPT, whom), -ENOENT);
	assert_int_equal(running(w->b), 0);

	assert_int_equal(get(w->b, ASK_CREATE, whom), 0);
	sb = connect_to(w, ID);
	sandbox_unref(sb);
	text = text_of(in_world(w, "data/users/ann/threads/t1/user-data/outputs/kept"));
	assert_string_equal(text, "yes");
	free(text);
	assert_int_equal(get(w->b, ASK_DESTROY, whom), 0);
	assert_nothing_left(w);
}

static void test_destroy_leaves_nothing(void **state)
{
	struct world *w = *state;

	assert_int_equal(get(w->b, ASK_CREATE, whom), 0);
	assert_int_equal(get(w->b, ASK_CREATE, other), 0);
	assert_int_equal(get(w->b, ASK_DESTROY, whom), 0);
	assert_false(alive(w->b, ID));
	assert_true(alive(w->b, OTHER));
	assert_int_equal(running(w->b), 1);
	assert_int_equal(get(w->b, ASK_DESTROY, whom), 0);
	assert_int_equal(get(w->b, ASK_DESTROY, other), 0);
	assert_nothing_left(w);
	assert_true(exists(in_world(w, "data/users/ann/threads/t1/user-data/workspace")));
	assert_int_equal(get(w->b, ASK_DESTROY, (struct whom){ .id = "no-id" }), 0);
}

static void test_destroy_removes_the_remains_of_a_dead_one(void **state)
{
	struct world *w = *state;

	assert_int_equal(get(w->b, ASK_CREATE, whom), 0);
	kill_sandbox(w, ID);
	EVENTUALLY(!alive(w->b, ID));
	assert_int_equal(get(w->b, ASK_DESTROY, whom), 0);
	assert_nothing_left(w);
}

/* The pid file may be missing or lie; only the sandbox itself is ever signalled. */
static void test_destroy_finds_the_process_by_its_lock(void **state)
{
	struct world *w = *state;
	char pid_path[256], text[32];
	pid_t bystander = fork();

	if (bystander == 0) {
		execlp("sleep", "sleep", "1000", (char *)NULL);
		_exit(127);
	}
	assert_true(bystander > 0);
	snprintf(pid_path, sizeof(pid_path), "%s/%s/pid", w->root, ID);
	snprintf(text, sizeof(text), "%d\n", (int)bystander);
	for (int round = 0; round < 3; round++) {
		assert_int_equal(get(w->b, ASK_CREATE, whom), 0);
		reopen(w, NULL);
		assert_int_equal(unlink(pid_path), 0);
		if (round == 1)
			write_text(pid_path, text);
		if (round == 2)
			write_text(pid_path, "nonsense");
		assert_int_equal(get(w->b, ASK_DESTROY, whom), 0);
		assert_int_equal(waitpid(bystander, NULL, WNOHANG), 0);
		assert_nothing_left(w);
	}
	kill(bystander, SIGKILL);
	assert_int_equal(waitpid(bystander, NULL, 0), bystander);
}

/* ---- several programs ---- */

static void test_destroy_is_refused_while_another_uses_it(void **state)
{
	struct world *w = *state;
	struct backend *second = open_backend(w, NULL);

	assert_int_equal(get(w->b, ASK_CREATE, whom), 0);
	assert_int_equal(get(second, ASK_DESTROY, whom), -EBUSY);
	assert_int_equal(get(second, ASK_DISCOVER, whom), 0);
	assert_int_equal(get(w->b, ASK_DESTROY, whom), -EBUSY);
	assert_int_equal(get(second, ASK_DESTROY, whom), -EBUSY);
	assert_true(alive(w->b, ID));
	/* Being refused, each still uses it. */
	assert_int_equal(get(w->b, ASK_ADOPT, whom), -EBUSY);
	assert_int_equal(get(second, ASK_ADOPT, whom), -EBUSY);
	forget(second, ID);
	assert_int_equal(get(w->b, ASK_DESTROY, whom), 0);
	assert_nothing_left(w);
	backend_free(second);
}

static void test_dead_one_that_another_uses_is_gone_for_us(void **state)
{
	struct world *w = *state;
	struct backend *second = open_backend(w, NULL);

	assert_int_equal(get(w->b, ASK_CREATE, whom), 0);
	assert_int_equal(get(second, ASK_DISCOVER, whom), 0);
	kill_sandbox(w, ID);
	EVENTUALLY(!alive(w->b, ID));
	assert_int_equal(get(w->b, ASK_DESTROY, whom), 0);
	assert_int_equal(get(second, ASK_DESTROY, whom), 0);
	assert_nothing_left(w);
	backend_free(second);
}

static void test_adopt_is_for_what_nobody_else_uses(void **state)
{
	struct world *w = *state;
	struct backend *second = open_backend(w, NULL);
	struct ask q;

	assert_int_equal(get(second, ASK_ADOPT, whom), -ENOENT);
	assert_int_equal(get(w->b, ASK_CREATE, whom), 0);
	assert_int_equal(get(second, ASK_ADOPT, whom), -EBUSY);
	forget(w->b, ID);
	ask_start(&q, second, ASK_ADOPT, &(struct whom){ .id = ID });
	assert_int_equal(answer(&q), 0);
	assert_string_equal(q.op.place.user, "ann");
	assert_string_equal(q.op.place.thread, "t1");
	ask_release(&q);
	/* Also what one uses already, alone. */
	assert_int_equal(get(second, ASK_ADOPT, whom), 0);
	assert_int_equal(get(w->b, ASK_DESTROY, whom), -EBUSY);
	assert_int_equal(get(second, ASK_DESTROY, whom), 0);
	/* Its parent still has to reap it. */
	EVENTUALLY(!has_zombie());
	assert_nothing_left(w);
	backend_free(second);
}

static void test_of_two_creators_one_wins(void **state)
{
	struct world *w = *state;
	struct backend *second = open_backend(w, NULL);

	for (int round = 0; round < 10; round++) {
		struct ask a, b;
		int ra, rb;

		ask_start(&a, w->b, ASK_CREATE, &whom);
		ask_start(&b, second, ASK_CREATE, &whom);
		ra = answer(&a);
		rb = answer(&b);
		ask_release(&a);
		ask_release(&b);
		assert_int_equal(MIN(ra, rb), -EEXIST);
		assert_int_equal(MAX(ra, rb), 0);
		assert_int_equal(get(ra == 0 ? w->b : second, ASK_DESTROY, whom), 0);
		assert_nothing_left(w);
	}
	backend_free(second);
}

/* One destroys while the other looks for it or makes it: each gets a true answer. */
static void test_create_and_discover_wait_for_a_destroy(void **state)
{
	struct world *w = *state;
	struct backend *second = open_backend(w, NULL);

	for (int round = 0; round < 6; round++) {
		enum ask_kind what = round % 2 ? ASK_CREATE : ASK_DISCOVER;
		struct ask a, b;
		int r, looked;

		assert_int_equal(get(w->b, ASK_CREATE, whom), 0);
		ask_start(&a, w->b, ASK_DESTROY, &whom);
		ask_start(&b, second, what, &whom);
		r = answer(&a);
		looked = answer(&b);
		ask_release(&a);
		ask_release(&b);
		if (r == -EBUSY) {
			assert_int_equal(looked, what == ASK_CREATE ? -EEXIST : 0);
			assert_true(alive(w->b, ID));
		} else if (what == ASK_CREATE) {
			/* The old one was seen, or a new one was made after it. */
			assert_int_equal(r, 0);
			assert_true(looked == 0 || looked == -EEXIST);
			assert_true(alive(w->b, ID) == (looked == 0));
		} else {
			assert_int_equal(r, 0);
			assert_int_equal(looked, -ENOENT);
		}
		forget(w->b, ID);
		forget(second, ID);
		assert_int_equal(get(w->b, ASK_DESTROY, whom), 0);
		assert_nothing_left(w);
	}
	backend_free(second);
}

/* ---- what crashes leave ---- */

static void test_list_running_removes_what_the_dead_left(void **state)
{
	struct world *w = *state;
	char path[256];

	assert_int_equal(get(w->b, ASK_CREATE, whom), 0);
	assert_int_equal(get(w->b, ASK_CREATE, other), 0);
	reopen(w, NULL);
	kill_sandbox(w, ID);
	EVENTUALLY(!alive(w->b, ID));
	/* Reaped by nobody else: whoever made it has been freed. */
	EVENTUALLY(waitpid(pid_of(w, ID), NULL, WNOHANG) > 0);
	snprintf(path, sizeof(path), "%s/0000000000000000", w->root);
	assert_int_equal(mkdir(path, 0700), 0);
	snprintf(path, sizeof(path), "%s/0000000000000001", w->root);
	assert_int_equal(mkdir(path, 0700), 0);
	snprintf(path, sizeof(path), "%s/0000000000000001/who", w->root);
	write_text(path, "ann\n");
	assert_int_equal(running(w->b), 1);
	assert_int_equal(entries_in(w->root), 1);
	assert_true(alive(w->b, OTHER));
	assert_int_equal(get(w->b, ASK_DESTROY, other), 0);
	assert_nothing_left(w);
}

static void test_strangers_in_the_directory_are_left_alone(void **state)
{
	static const char *const names[] = { "README", "0123456789ABCDEF", "0123456789abcde",
					     "0123456789abcdef0", "0123456789abcdeg" };
	struct world *w = *state;
	char path[256];

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		snprintf(path, sizeof(path), "%s/%s", w->root, names[i]);
		assert_int_equal(mkdir(path, 0700), 0);
	}
	snprintf(path, sizeof(path), "%s/0123456789abcdef", w->root);
	write_text(path, "a file\n");
	assert_int_equal(running(w->b), 0);
	assert_int_equal(entries_in(w->root), ARRAY_SIZE(names) + 1);
}

/*
 * A link in place of a sandbox's directory, or strange files in it, must never
 * cost anybody a file. The victim is a directory of this test.
 */
static void test_links_are_never_followed_nor_strange_files_removed(void **state)
{
	static const char *const names[] = { "precious", "sock", "pid", "who", "alive", "users" };
	struct world *w = *state;
	char path[256];

	assert_int_equal(mkdir(in_world(w, "victim"), 0700), 0);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		write_text(in_world(w, "victim/%s", names[i]), "mine\n");
	snprintf(path, sizeof(path), "%s/%s", w->root, ID);
	assert_int_equal(symlink(in_world(w, "victim"), path), 0);
	assert_int_equal(running(w->b), 0);
	assert_int_equal(get(w->b, ASK_DISCOVER, whom), -ENOENT);
	assert_int_equal(get(w->b, ASK_ADOPT, whom), -ELOOP);
	assert_int_equal(get(w->b, ASK_DESTROY, whom), -ELOOP);
	assert_int_equal(get(w->b, ASK_IS_ALIVE, whom), -ELOOP);
	assert_int_equal(get(w->b, ASK_CREATE, whom), -ELOOP);
	assert_int_equal(entries_in(in_world(w, "victim")), ARRAY_SIZE(names));
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		char *text CLEANUP_FREE = text_of(in_world(w, "victim/%s", names[i]));

		assert_string_equal(text, "mine\n");
	}
	assert_int_equal(unlink(path), 0);

	/* A directory of that name with somebody's file in it. */
	assert_int_equal(mkdir(path, 0700), 0);
	snprintf(path, sizeof(path), "%s/%s/precious", w->root, ID);
	write_text(path, "mine\n");
	assert_int_equal(running(w->b), 0);
	assert_int_equal(get(w->b, ASK_DESTROY, whom), 0);
	assert_true(exists(path));
}

/* Damage to `who` costs the names, not the sandbox. */
static void test_damaged_who_is_a_place_without_names(void **state)
{
	static const char *const texts[] = { "", "ann", "ann\n", "ann\n../t\n", "\n\n" };
	struct world *w = *state;
	char path[256];

	assert_int_equal(get(w->b, ASK_CREATE, whom), 0);
	snprintf(path, sizeof(path), "%s/%s/who", w->root, ID);
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		struct ask q;

		write_text(path, texts[i]);
		ask_start(&q, w->b, ASK_DISCOVER, &whom);
		assert_int_equal(answer(&q), 0);
		assert_null(q.op.place.user);
		assert_null(q.op.place.thread);
		assert_non_null(q.op.place.socket);
		ask_release(&q);
	}
}

/* One that makes a sandbox and then waits to be killed. */
static int be_creator(char **argv)
{
	struct world w = { 0 };
	struct ask q;

	snprintf(w.data, sizeof(w.data), "%s", argv[1]);
	snprintf(w.run, sizeof(w.run), "%s", argv[2]);
	if (loop_new(&w.loop) < 0)
		return 1;
	w.b = open_backend(&w, NULL);
	ask_start(&q, w.b, ASK_CREATE, &whom);
	for (;;)
		pause();
}

static void test_creator_killed_at_any_moment_leaves_what_others_can_handle(void **state)
{
	enum { ROUNDS = 40 };
	struct world *w = *state;
	unsigned found = 0, none = 0;
	int64_t start = clock_ms(), whole;
	pid_t pid = start_role("creator", w->data, w->run, NULL);

	/* How long it takes undisturbed: the moments are spread over that. */
	EVENTUALLY(pid_of(w, ID) > 0);
	whole = clock_ms() - start;
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	for (int i = 0; i < ROUNDS; i++) {
		size_t n = running(w->b);
		int r;

		assert_true(n <= 1);
		r = get(w->b, ASK_ADOPT, whom);
		assert_true(r == 0 || r == -ENOENT);
		assert_true(n == 0 || r == 0);
		*(r == 0 ? &found : &none) += 1;
		/* What is found is a whole sandbox, or becomes one. */
		if (r == 0 && i % 4 == 0)
			sandbox_unref(connect_to(w, ID));
		assert_int_equal(get(w->b, ASK_DESTROY, whom), 0);
		assert_nothing_left(w);

		pid = start_role("creator", w->data, w->run, NULL);
		poll(NULL, 0, (int)(whole * i / ROUNDS));
		kill(pid, SIGKILL);
		assert_int_equal(waitpid(pid, NULL, 0), pid);
	}
	/* The first and the last moments at least differ. */
	assert_true(found > 0);
	assert_true(none > 0);
}

/* ---- many ---- */

static void test_many_at_once(void **state)
{
	enum { MANY = 12 };
	struct world *w = *state;
	struct ask q[MANY];
	char ids[MANY][SANDBOX_ID_LEN + 1];

	for (int i = 0; i < MANY; i++) {
		snprintf(ids[i], sizeof(ids[i]), "%016x", i);
		ask_start(&q[i], w->b, ASK_CREATE, &(struct whom){ ids[i], "ann", ids[i] });
	}
	for (int i = 0; i < MANY; i++) {
		assert_int_equal(answer(&q[i]), 0);
		ask_release(&q[i]);
	}
	assert_int_equal(running(w->b), MANY);
	for (int i = 0; i < MANY; i++)
		ask_start(&q[i], w->b, ASK_DESTROY, &(struct whom){ .id = ids[i] });
	for (int i = 0; i < MANY; i++) {
		assert_int_equal(answer(&q[i]), 0);
		ask_release(&q[i]);
	}
	assert_nothing_left(w);
}

static void test_cycles_leave_descriptors_and_processes_flat(void **state)
{
	enum { CYCLES = 200 };
	struct world *w = *state;
	unsigned fds = 0;

	for (int i = 0; i < CYCLES; i++) {
		assert_int_equal(get(w->b, ASK_CREATE, whom), 0);
		if (i % 3 == 0) {
			kill_sandbox(w, ID);
			EVENTUALLY(!alive(w->b, ID));
		}
		assert_int_equal(get(w->b, ASK_DESTROY, whom), 0);
		if (i == 3) {
			EVENTUALLY(!has_zombie());
			fds = count_fds();
		}
	}
	EVENTUALLY(!has_zombie());
	EVENTUALLY(count_fds() <= fds);
	assert_nothing_left(w);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		WORLD_TEST(test_created_sandbox_serves_the_threads_directory),
		WORLD_TEST(test_create_of_a_running_one_is_eexist),
		WORLD_TEST(test_outlives_the_backend_and_is_found_by_the_next),
		WORLD_TEST(test_killed_one_is_dead_at_once_and_can_be_made_anew),
		WORLD_TEST(test_destroy_leaves_nothing),
		WORLD_TEST(test_destroy_removes_the_remains_of_a_dead_one),
		WORLD_TEST(test_destroy_finds_the_process_by_its_lock),
		WORLD_TEST(test_destroy_is_refused_while_another_uses_it),
		WORLD_TEST(test_dead_one_that_another_uses_is_gone_for_us),
		WORLD_TEST(test_adopt_is_for_what_nobody_else_uses),
		WORLD_TEST(test_of_two_creators_one_wins),
		WORLD_TEST(test_create_and_discover_wait_for_a_destroy),
		WORLD_TEST(test_list_running_removes_what_the_dead_left),
		WORLD_TEST(test_strangers_in_the_directory_are_left_alone),
		WORLD_TEST(test_links_are_never_followed_nor_strange_files_removed),
		WORLD_TEST(test_damaged_who_is_a_place_without_names),
		WORLD_TEST(test_creator_killed_at_any_moment_leaves_what_others_can_handle),
		WORLD_TEST(test_many_at_once),
		WORLD_TEST(test_cycles_leave_descriptors_and_processes_flat),
	};

	if (argc == 3 && strcmp(argv[0], "creator") == 0)
		return be_creator(argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
