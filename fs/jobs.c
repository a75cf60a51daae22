/*
 * The jobs of a thread: starting commands in order, numbers, and which are kept.
 * Must not know of FUSE requests. Loop thread only.
 *
 * The commands of the shell are started one after the other: the next one is
 * sent only when the sandbox has accepted the one before, otherwise the order of their
 * arrival would be that of the network.
 */
#include "jobs.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <utlist.h>

#include "clock.h"
#include "jobs_i.h"

/* The name of the shell that all commands of .ctl/exec share. */
#define SHELL_NAME "exec"

/* ---- records ---- */

static struct jobs *jobs_get(struct thread *t)
{
	if (!t->jobs) {
		t->jobs = calloc(1, sizeof(*t->jobs));
		if (t->jobs) {
			t->jobs->thread = t;
			t->jobs->exit_code = -1;
		}
	}
	return t->jobs;
}

struct command *command_ref(struct command *c)
{
	c->refs++;
	return c;
}

static void free_env(char **env)
{
	for (size_t i = 0; env && env[i]; i++)
		free(env[i]);
	free(env);
}

void command_unref(struct command *c)
{
	if (!c || --c->refs > 0)
		return;
	assert(!c->alive && !c->waiters && !c->calling && !c->sb);
	command_output_release(c);
	free_env(c->env);
	free(c->script);
	free(c->dir);
	free(c->full_dir);
	free(c->run);
	free(c);
}

/* -ENOMEM: env may be incomplete, and is to be freed all the same. */
static int copy_env(const char *const *env, char ***ret)
{
	size_t n = 0;

	while (env[n])
		n++;
	*ret = calloc(n + 1, sizeof(**ret));
	if (!*ret)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		(*ret)[i] = strdup(env[i]);
		if (!(*ret)[i])
			return -ENOMEM;
	}
	return 0;
}

static struct command *command_new(struct thread *t, const struct job_spec *spec)
{
	struct command *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->refs = 1;
	c->fs = t->fs;
	c->thread = t;
	c->exit_code = -1;
	c->own = spec->own;
	c->fed = spec->own && spec->fed;
	c->len = spec->len;
	c->script = malloc(spec->len + 1);
	c->dir = strdup(spec->dir ?: "");
	if (!c->script || !c->dir || (spec->own && spec->env && copy_env(spec->env, &c->env) < 0)) {
		command_unref(c);
		return NULL;
	}
	memcpy(c->script, spec->script, spec->len);
	c->script[spec->len] = '\0';
	return c;
}

/* ---- starting ---- */

static void begin_next(struct jobs *j);

/* Gives up what it took in the sandbox's name, and tells. The caller's reference goes. */
static void start_failed(struct command *c, int err)
{
	struct job_start *s = STEAL(c->starter);

	command_let_go_sandbox(c);
	if (s)
		s->done(s, err, NULL);
	command_unref(c);
}

static void start_succeeded(struct command *c, struct jobs *j)
{
	struct job_start *s = STEAL(c->starter);

	c->number = ++j->last;
	c->jobs = j;
	DL_APPEND(j->all, c);
	c->fs->totals.commands++;
	command_begin(c);
	if (s)
		s->done(s, 0, c);
}

static void on_started(struct remote *r, int err)
{
	struct command *c = CONTAINER_OF(r, struct command, remote);
	struct jobs *j = c->jobs;

	if (j && c->own)
		DL_DELETE(j->starts_own, c);
	else if (j)
		DL_DELETE(j->starts, c);
	else
		err = err < 0 ? err : -ESHUTDOWN; /* it runs, but nobody is there any more to ask */
	if (err < 0)
		start_failed(c, err);
	else
		start_succeeded(c, j);
	if (j)
		begin_next(j);
}

/* Never twice: remote.once says so, and run_start itself. */
static void start(struct remote *r, struct sandbox *sb)
{
	struct command *c = CONTAINER_OF(r, struct command, remote);
	const char *root = sandbox_root(sb);

	command_let_go_sandbox(c); /* of the try before */
	c->sb = sandbox_ref(sb);
	c->began_ms = clock_ms();
	command_hold_sandbox(c);
	free(STEAL(c->full_dir));
	if (c->dir[0] && asprintf(&c->full_dir, "%s/%s", root[1] ? root : "", c->dir) < 0) {
		c->full_dir = NULL;
		remote_fail(r, -ENOMEM);
		return;
	}
	c->sent = true;
	sandbox_run_start(sb, &r->call,
			  &(struct run_spec){
				  .script = c->script,
				  .len = c->len,
				  .shell = c->own ? NULL : SHELL_NAME,
				  .dir = c->full_dir,
				  .env = (const char *const *)c->env,
				  .fed = c->fed,
			  },
			  &c->run);
}

static void begin(struct command *c)
{
	c->remote = (struct remote){ .once = true };
	remote_begin(&c->remote, c->thread, start, on_started);
}

static void begin_next(struct jobs *j)
{
	if (j->starts && !remote_is_busy(&j->starts->remote))
		begin(j->starts);
}

/* Those that start, wait or run. */
static unsigned count_unfinished(const struct jobs *j)
{
	const struct command *c;
	unsigned shells = 0, own = 0, n = 0;

	DL_COUNT(j->starts, c, shells);
	DL_COUNT(j->starts_own, c, own);
	DL_FOREACH (j->all, c)
		n += !command_is_over(c);
	return n + shells + own;
}

int jobs_start(struct thread *t, const struct job_spec *spec, struct job_start *s)
{
	struct jobs *j = jobs_get(t);
	struct command *c;

	if (!j)
		return -ENOMEM;
	if (count_unfinished(j) >= JOBS_UNFINISHED)
		return -EAGAIN;
	c = command_new(t, spec);
	if (!c)
		return -ENOMEM;
	c->jobs = j;
	c->starter = s;
	s->command = c;
	if (c->own) {
		DL_APPEND(j->starts_own, c);
		begin(c);
		return 0;
	}
	DL_APPEND(j->starts, c);
	begin_next(j);
	return 0;
}

void jobs_start_leave(struct job_start *s)
{
	struct command *c = s->command;

	assert(c->starter == s);
	c->starter = NULL;
	if (remote_is_busy(&c->remote)) {
		if (!c->sent)
			remote_cancel(&c->remote);
		return;
	}
	DL_DELETE(c->jobs->starts, c); /* it has not even begun */
	command_unref(c);
}

/* ---- what there is ---- */

const char *job_state_name(enum job_state s)
{
	static const char *const names[] = {
		[JOB_STARTING] = "starting", [JOB_WAITING] = "waiting", [JOB_RUNNING] = "running",
		[JOB_DONE] = "done",         [JOB_LOST] = "lost",
	};

	return names[s];
}

int jobs_numbers(struct thread *t, unsigned **ret, size_t *ret_count)
{
	struct command *c;
	unsigned *numbers;
	size_t n = 0;

	if (t->jobs)
		DL_COUNT(t->jobs->all, c, n);
	numbers = calloc(n + 1, sizeof(*numbers));
	if (!numbers)
		return -ENOMEM;
	n = 0;
	if (t->jobs)
		DL_FOREACH (t->jobs->all, c)
			numbers[n++] = c->number;
	*ret = numbers;
	*ret_count = n;
	return 0;
}

struct command *jobs_find(struct thread *t, unsigned number)
{
	struct command *c = NULL;

	if (t->jobs)
		DL_SEARCH_SCALAR(t->jobs->all, c, number, number);
	return c;
}

bool jobs_has(struct thread *t, unsigned number)
{
	return jobs_find(t, number) != NULL;
}

struct command *jobs_newest(struct thread *t)
{
	struct command *c, *newest = NULL;

	if (t->jobs)
		DL_FOREACH (t->jobs->all, c)
			if (!c->own)
				newest = c;
	return newest;
}

int jobs_exit_code(const struct thread *t)
{
	return t->jobs ? t->jobs->exit_code : -1;
}

struct command *jobs_front(const struct jobs *j)
{
	struct command *c;

	DL_FOREACH (j->all, c)
		if (!c->own && !command_is_over(c))
			return c;
	return NULL;
}

/* Of output that has been there for a while; less if others need the room in the cache. */
static uint64_t room_for_output(const struct fs *fs)
{
	return fs->cache_used > fs->opt->cache_size / 2 ? 0 : JOB_OUTPUT_MAX;
}

/* Of those that nobody has open the one that ended first; with_output: and has some. */
static struct command *first_to_go(const struct jobs *j, bool with_output)
{
	struct command *c, *first = NULL;

	DL_FOREACH (j->all, c)
		if (command_is_over(c) && c->refs == 1 && (!with_output || c->size > 0) &&
		    (!first || c->ended < first->ended))
			first = c;
	return first;
}

void jobs_trim(struct jobs *j)
{
	uint64_t room = room_for_output(j->thread->fs), bytes = 0;
	struct command *c;
	unsigned over = 0;

	DL_FOREACH (j->all, c) {
		over += command_is_over(c);
		bytes += command_is_over(c) ? c->size : 0;
	}
	while (over > JOBS_KEPT || bytes > room) {
		c = first_to_go(j, over <= JOBS_KEPT);
		if (!c || c->ended == j->ended) /* the last one stays */
			break;
		over--;
		bytes -= c->size;
		DL_DELETE(j->all, c);
		c->jobs = NULL;
		command_unref(c);
	}
}

unsigned command_number(const struct command *c)
{
	return c->number;
}

enum job_state command_state(const struct command *c)
{
	return c->state;
}

bool command_is_over(const struct command *c)
{
	return c->state == JOB_DONE || c->state == JOB_LOST;
}

bool command_is_cut(const struct command *c)
{
	return c->cut;
}

int command_exit_code(const struct command *c)
{
	return c->exit_code;
}

int command_error(const struct command *c)
{
	return c->error;
}

const char *command_script(const struct command *c, size_t *ret_len)
{
	*ret_len = c->len;
	return c->script;
}

/* ---- the end ---- */

/* Those under way end by themselves soon, without a list to be taken out of. */
static void cancel_starts(struct command **list)
{
	struct command *c, *next;

	DL_FOREACH_SAFE (*list, c, next) {
		DL_DELETE(*list, c);
		c->jobs = NULL;
		if (remote_is_busy(&c->remote))
			remote_cancel(&c->remote);
		else
			start_failed(c, -ESHUTDOWN);
	}
}

void jobs_free(struct jobs *j)
{
	struct command *c, *next;
	struct thread *t;

	if (!j)
		return;
	/* What ends below may give up the last reference to the thread. If there
	 * is none already, the thread is being freed, and nothing is alive here. */
	t = j->thread->refs > 0 ? thread_ref(j->thread) : NULL;
	j->thread->jobs = NULL;
	cancel_starts(&j->starts);
	cancel_starts(&j->starts_own);
	DL_FOREACH_SAFE (j->all, c, next) {
		DL_DELETE(j->all, c);
		c->jobs = NULL;
		command_abandon(c);
		command_unref(c);
	}
	free(j);
	thread_unref(t);
}
