/*
 * What the tests of the embedded backend need: questions that somebody waits
 * for, programs that stand in for threadfs-sandboxd, and a look at what is left
 * behind. For one test program each; everything asserts, on the main thread.
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "ask.h"
#include "backend_embedded.h"
#include "clock.h"
#include "daemon.h"
#include "ident.h"
#include "sandbox.h"
#include "scratch.h"

enum { SLACK_MS = 120000 };

struct world {
	char dir[SCRATCH_MAX]; /* everything is below it */
	char data[128], run[128];
	char root[192]; /* where the sandboxes' directories are */
	struct loop *loop;
	struct backend *b;
};

/* ---- programs ---- */

static inline const char *real_program(void)
{
	const char *program = getenv("SANDBOXD");

	assert_non_null(program);
	return program;
}

static inline void write_text(const char *path, const char *text)
{
	FILE *f = fopen(path, "we");

	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

static inline const char *in_world(const struct world *w, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* DIR/…, valid until the eighth next call. */
static inline const char *in_world(const struct world *w, const char *fmt, ...)
{
	static char paths[8][512];
	static unsigned next;
	char *to = paths[next++ % 8];
	int n = snprintf(to, sizeof(paths[0]), "%s/", w->dir);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(to + n, sizeof(paths[0]) - (size_t)n, fmt, ap);
	va_end(ap);
	return to;
}

/*
 * A script in place of threadfs-sandboxd. $READY is where READY=1 belongs, $PID
 * where its number does, $DIR is the world's; `rest` waits a moment without
 * another process, which would inherit the lock.
 */
static inline const char *script(const struct world *w, const char *body)
{
	const char *path = in_world(w, "program");
	char text[2048];

	snprintf(text, sizeof(text),
		 "#!/bin/bash\nDIR='%s'\n"
		 "for a; do\n"
		 "[ \"$last\" = --ready-fd ] && READY=/proc/self/fd/$a\n"
		 "[ \"$last\" = --pid-file ] && PID=$a\n"
		 "last=$a\ndone\n"
		 "[ -e \"$DIR/fifo\" ] || mkfifo \"$DIR/fifo\"\n"
		 "rest() { read -r -t 0.02 <>\"$DIR/fifo\"; }\n"
		 "forever() { while :; do rest; done; }\n"
		 "%s\n",
		 w->dir, body);
	write_text(path, text);
	assert_int_equal(chmod(path, 0755), 0);
	return path;
}

/* ---- backends ---- */

static inline struct backend *open_backend(struct world *w, const struct embedded_config *more)
{
	struct embedded_config config = more ? *more : (struct embedded_config){ 0 };
	struct backend *b = NULL;
	char *why = NULL;

	config.data = config.data ? config.data : w->data;
	config.runtime = config.runtime ? config.runtime : w->run;
	config.program = config.program ? config.program : real_program();
	if (backend_embedded_new(w->loop, &config, &b, &why) < 0)
		fail_msg("backend_embedded_new: %s", why);
	return b;
}

/* Instead of the one there is. */
static inline void reopen(struct world *w, const struct embedded_config *more)
{
	backend_free(STEAL(w->b));
	w->b = open_backend(w, more);
}

/* ---- questions ---- */

/* Waits for what ask_start() began. Returns the error; the question is to be released. */
static inline int answer(struct ask *q)
{
	assert_true(ask_wait(q, SLACK_MS));
	return q->op.error;
}

/* Asks, waits, and shows what was said of an error. */
static inline int get(struct backend *b, enum ask_kind what, struct whom whom)
{
	struct ask q;
	int r;

	ask_start(&q, b, what, &whom);
	r = answer(&q);
	if (r < 0 && q.op.why)
		fprintf(stderr, "%s: %s\n", strerrorname_np(-r), q.op.why);
	ask_release(&q);
	return r;
}

static inline bool alive(struct backend *b, const char *id)
{
	struct ask q;
	bool r;

	ask_start(&q, b, ASK_IS_ALIVE, &(struct whom){ .id = id });
	assert_int_equal(answer(&q), 0);
	r = q.op.alive;
	ask_release(&q);
	return r;
}

/* How many run; each must be one of ours. */
static inline size_t running(struct backend *b)
{
	struct ask q;
	size_t n;

	ask_start(&q, b, ASK_LIST_RUNNING, &(struct whom){ 0 });
	assert_int_equal(answer(&q), 0);
	n = q.op.nplaces;
	for (size_t i = 0; i < n; i++)
		assert_int_equal(strlen(q.op.places[i].id), SANDBOX_ID_LEN);
	ask_release(&q);
	return n;
}

struct side_job {
	struct backend *b;
	const char *id;
};

static inline void run_forget(void *ctx)
{
	const struct side_job *s = ctx;

	s->b->ops->forget(s->b, s->id);
}

static inline void run_tend(void *ctx)
{
	struct backend *b = ctx;

	b->ops->tend(b);
}

static inline void forget(struct backend *b, const char *id)
{
	loop_run(b->loop, run_forget, &(struct side_job){ b, id });
}

static inline void tend(struct backend *b)
{
	loop_run(b->loop, run_tend, b);
}

/* ---- what there is ---- */

/* Waits until the expression is true. */
#define EVENTUALLY(expression)                                                                     \
	do {                                                                                       \
		int64_t until_ = clock_ms() + SLACK_MS;                                            \
		while (!(expression)) {                                                            \
			if (clock_ms() > until_)                                                   \
				fail_msg("never: %s", #expression);                                \
			poll(NULL, 0, 3);                                                          \
		}                                                                                  \
	} while (0)

static inline bool exists(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0;
}

/* For the caller to free; "" if there is none. */
static inline char *text_of(const char *path)
{
	char *text = NULL;
	size_t size = 0;
	FILE *f = fopen(path, "re");

	if (!f || getdelim(&text, &size, EOF, f) < 0) {
		free(text);
		text = strdup("");
	}
	if (f)
		fclose(f);
	return text;
}

static inline int64_t size_of(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0 ? (int64_t)st.st_size : -1;
}

static inline pid_t pid_of(const struct world *w, const char *id)
{
	char path[256];
	char *text CLEANUP_FREE = NULL;

	snprintf(path, sizeof(path), "%s/%s/pid", w->root, id);
	text = text_of(path);
	return (pid_t)strtol(text, NULL, 10);
}

static inline size_t entries_in(const char *path)
{
	DIR *dir = opendir(path);
	const struct dirent *e;
	size_t n = 0;

	while (dir && (e = readdir(dir)))
		n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
	if (dir)
		closedir(dir);
	return n;
}

static inline bool proc_mentions(const char *pid, const char *file, const char *text)
{
	char path[64], content[8192];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%.16s/%.16s", pid, file);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, content, sizeof(content));
	close(fd);
	return n > 0 && memmem(content, (size_t)n, text, strlen(text));
}

/* Processes that have the world's name in their arguments or are in its directory. */
static inline size_t processes_of(const struct world *w)
{
	DIR *dir = opendir("/proc");
	const struct dirent *e;
	size_t n = 0;

	assert_non_null(dir);
	while ((e = readdir(dir)))
		n += isdigit((unsigned char)e->d_name[0]) &&
		     proc_mentions(e->d_name, "cmdline", w->dir);
	closedir(dir);
	return n;
}

/* Children of ours that have ended and were not reaped. */
static inline bool has_zombie(void)
{
	siginfo_t si = { 0 };

	return waitid(P_ALL, 0, &si, WEXITED | WNOHANG | WNOWAIT) == 0 && si.si_pid != 0;
}

/* Nothing runs, nothing lies about, nothing is to be reaped. */
static inline void assert_nothing_left(const struct world *w)
{
	assert_int_equal(entries_in(w->root), 0);
	/* The walls' own processes may take a moment after a kill. */
	EVENTUALLY(processes_of(w) == 0);
	EVENTUALLY(!has_zombie());
}

/* This program again, in another role: main() sees it in argv[0]. */
static inline pid_t start_role(const char *role, const char *a, const char *b, const char *c)
{
	const char *argv[] = { role, a, b, c, NULL };
	pid_t pid;

	assert_int_equal(
		posix_spawn(&pid, "/proc/self/exe", NULL, NULL, (char *const *)argv, environ), 0);
	return pid;
}

/* ---- one world per test ---- */

static inline int world_setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	char hash[13], *data;

	assert_non_null(w);
	assert_true(scratch_dir(w->dir));
	snprintf(w->data, sizeof(w->data), "%s/data", w->dir);
	snprintf(w->run, sizeof(w->run), "%s/run", w->dir);
	assert_int_equal(loop_new(&w->loop), 0);
	w->b = open_backend(w, NULL);
	data = realpath(w->data, NULL);
	assert_non_null(data);
	ident_digest(data, hash, 12);
	free(data);
	snprintf(w->root, sizeof(w->root), "%s/%s", w->run, hash);
	assert_true(exists(w->root));
	*state = w;
	return 0;
}

static inline void destroy_all(struct world *w)
{
	struct ask q, d;

	ask_start(&q, w->b, ASK_LIST_RUNNING, &(struct whom){ 0 });
	assert_int_equal(answer(&q), 0);
	for (size_t i = 0; i < q.op.nplaces; i++) {
		ask_start(&d, w->b, ASK_DESTROY, &(struct whom){ .id = q.op.places[i].id });
		assert_int_equal(answer(&d), 0);
		ask_release(&d);
	}
	ask_release(&q);
}

static inline int remove_one(const char *path, const struct stat *st UNUSED, int type UNUSED,
			     struct FTW *at UNUSED)
{
	return remove(path);
}

/* Neither through links nor into what is mounted. */
static inline void remove_world(const struct world *w)
{
	assert_non_null(strstr(w->dir, "/tfc."));
	assert_int_equal(nftw(w->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT), 0);
}

static inline int world_teardown(void **state)
{
	struct world *w = *state;

	if (!w->b)
		w->b = open_backend(w, NULL);
	destroy_all(w);
	backend_free(w->b);
	loop_free(w->loop);
	remove_world(w);
	free(w);
	return 0;
}

#define WORLD_TEST(t) cmocka_unit_test_setup_teardown(t, world_setup, world_teardown)
