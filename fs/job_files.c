/*
 * The files in jobs/N/: what a command was, its output, how it goes, its stdin,
 * and a way to end it. Faces of jobs.h. Loop thread only.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>

#include "answer.h"
#include "ctl.h"
#include "job_stream.h"
#include "run_request.h"

/* The directory may be older than the memory of the job: -ESTALE then. */
static int find(struct ctl_open *o, struct command **ret)
{
	*ret = jobs_find(o->thread, o->job);
	return *ret ? 0 : -ESTALE;
}

/* ---- those that are text ---- */

static int render_cmd(struct ctl_open *o, struct buf *to)
{
	struct command *c;
	const char *script;
	size_t len;
	int r = find(o, &c);

	if (r < 0)
		return r;
	script = command_script(c, &len);
	buf_append(to, script, len);
	return buf_putc(to, '\n');
}

static int render_status(struct ctl_open *o, struct buf *to)
{
	struct command *c;
	int r = find(o, &c);

	if (r < 0)
		return r;
	return buf_printf(to, "%s%s\n", job_state_name(command_state(c)),
			  command_is_cut(c) ? " cut" : "");
}

static int render_exit_code(struct ctl_open *o, struct buf *to)
{
	struct command *c;
	int r = find(o, &c);

	if (r < 0 || command_exit_code(c) < 0)
		return r;
	return buf_printf(to, "%d\n", command_exit_code(c));
}

const struct ctl_file ctl_job_cmd = { .name = "cmd", .mode = 0400, .render = render_cmd };
const struct ctl_file ctl_job_status = { .name = "status", .mode = 0400, .render = render_status };
const struct ctl_file ctl_job_exit_code = {
	.name = "exit_code",
	.mode = 0400,
	.render = render_exit_code,
};

/* ---- stdout, stderr ---- */

static int open_stream(struct ctl_open *o, enum job_stream which)
{
	struct job_stream_file *s;
	struct command *c;
	int r = find(o, &c);

	if (r < 0)
		return r;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->open = o;
	s->which = which;
	job_stream_set(s, c);
	o->priv = s;
	return 0;
}

static int open_stdout(struct ctl_open *o)
{
	return open_stream(o, JOB_OUT);
}

static int open_stderr(struct ctl_open *o)
{
	return open_stream(o, JOB_ERR);
}

static void read_stream(struct ctl_open *o, fuse_req_t req, size_t size, uint64_t offset UNUSED)
{
	job_stream_read(o->priv, req, size);
}

static void poll_stream(struct ctl_open *o, fuse_req_t req, struct fuse_pollhandle *ph)
{
	job_stream_poll(o->priv, req, ph, 0);
}

static void release_stream(struct ctl_open *o)
{
	struct job_stream_file *s = STEAL(o->priv);

	job_stream_release(s);
	free(s);
}

const struct ctl_file ctl_job_stdout = {
	.name = "stdout",
	.mode = 0400,
	.open = open_stdout,
	.read = read_stream,
	.poll = poll_stream,
	.release = release_stream,
};
const struct ctl_file ctl_job_stderr = {
	.name = "stderr",
	.mode = 0400,
	.open = open_stderr,
	.read = read_stream,
	.poll = poll_stream,
	.release = release_stream,
};

/* ---- a write that waits for the sandbox ---- */

struct ask_op {
	struct parked parked;
	struct job_ask ask;
	size_t len;
};

static void on_asked(struct job_ask *a, int err)
{
	struct ask_op *w = CONTAINER_OF(a, struct ask_op, ask);

	if (err < 0)
		parked_err(&w->parked, err);
	else
		parked_write(&w->parked, w->len);
	free(w);
}

static struct ask_op *new_ask(struct ctl_open *o, fuse_req_t req, size_t len,
			      void (*interrupted)(struct parked *p))
{
	struct ask_op *w = calloc(1, sizeof(*w));

	if (!w) {
		answer_err(o->fs, req, -ENOMEM);
		return NULL;
	}
	w->len = len;
	w->ask.done = on_asked;
	parked_init(&w->parked, o->fs, req, interrupted);
	return w;
}

/* ---- stdin ---- */

static int open_stdin(struct ctl_open *o)
{
	struct command *c;
	int r = find(o, &c);

	if (r == 0)
		r = command_stdin_open(c);
	if (r == 0)
		o->priv = command_ref(c);
	return r;
}

static void on_feed_interrupted(struct parked *p)
{
	struct ask_op *w = CONTAINER_OF(p, struct ask_op, parked);
	size_t taken = command_feed_leave(&w->ask);

	if (taken > 0)
		parked_write(p, taken);
	else
		parked_err(p, -EINTR);
	free(w);
}

static void write_stdin(struct ctl_open *o, fuse_req_t req, const char *bytes, size_t len)
{
	struct ask_op *w = new_ask(o, req, len, on_feed_interrupted);
	int r;

	if (!w)
		return;
	w->parked.as_pipe = true;
	r = command_feed(o->priv, bytes, len, &w->ask);
	if (r < 0)
		on_asked(&w->ask, r);
}

/* The last close, not each one: a shell that redirects to it closes copies all the time. */
static void release_stdin(struct ctl_open *o)
{
	struct command *c = STEAL(o->priv);

	command_stdin_close(c);
	command_unref(c);
}

const struct ctl_file ctl_job_stdin = {
	.name = "stdin",
	.mode = 0200,
	.open = open_stdin,
	.write = write_stdin,
	.release = release_stdin,
};

/* ---- kill ---- */

static void on_kill_interrupted(struct parked *p)
{
	command_kill_cancel(&CONTAINER_OF(p, struct ask_op, parked)->ask);
}

static void write_kill(struct ctl_open *o, fuse_req_t req, const char *bytes, size_t len)
{
	int signal = run_signal(bytes, len);
	struct command *c = NULL;
	int r = signal < 0 ? signal : find(o, &c);
	struct ask_op *w;

	if (r < 0) {
		answer_err(o->fs, req, r);
		return;
	}
	w = new_ask(o, req, len, on_kill_interrupted);
	if (!w)
		return;
	r = command_kill(c, signal, &w->ask);
	if (r < 0)
		on_asked(&w->ask, r);
}

const struct ctl_file ctl_job_kill = { .name = "kill", .mode = 0200, .write = write_kill };
