/*
 * .ctl/exec, .ctl/run and .ctl/exit_code of a thread: commands through the
 * mount. The faces of jobs.h; must not know how a sandbox runs them. Loop thread only.
 *
 * A write is answered when the sandbox has accepted the command. Whoever
 * interrupts it ends his wait, and the command only if it has not been sent yet.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>

#include "answer.h"
#include "ctl.h"
#include "job_stream.h"
#include "run_request.h"

/* ---- starting one: a write that waits ---- */

struct start_op {
	struct parked parked;
	struct job_start start;
	struct ctl_open *open;
	size_t len; /* of the write */
	/* The sandbox has accepted it. */
	void (*accepted)(struct ctl_open *o, struct command *c);
};

static void on_started(struct job_start *s, int err, struct command *c)
{
	struct start_op *w = CONTAINER_OF(s, struct start_op, start);

	if (err == 0)
		w->accepted(w->open, c);
	if (err < 0)
		parked_err(&w->parked, err);
	else
		parked_write(&w->parked, w->len);
	free(w);
}

static void on_start_interrupted(struct parked *p)
{
	struct start_op *w = CONTAINER_OF(p, struct start_op, parked);

	jobs_start_leave(&w->start);
	parked_err(p, -EINTR);
	free(w);
}

static void start(struct ctl_open *o, fuse_req_t req, const struct job_spec *spec, size_t len,
		  void (*accepted)(struct ctl_open *o, struct command *c))
{
	struct start_op *w = calloc(1, sizeof(*w));
	int r;

	if (!w) {
		answer_err(o->fs, req, -ENOMEM);
		return;
	}
	w->open = o;
	w->len = len;
	w->accepted = accepted;
	w->start.done = on_started;
	parked_init(&w->parked, o->fs, req, on_start_interrupted);
	r = jobs_start(o->thread, spec, &w->start);
	if (r < 0) {
		parked_err(&w->parked, r);
		free(w);
	}
}

/* ---- exec ---- */

struct exec_file {
	struct job_stream_file stream;
	bool wrote, chosen;    /* what is read is: the last one written here; the newest one */
	struct command **mine; /* written here, perhaps not over yet; counted */
	size_t count;
};

static int exec_open(struct ctl_open *o)
{
	struct exec_file *f = calloc(1, sizeof(*f));

	if (!f)
		return -ENOMEM;
	f->stream.open = o;
	f->stream.which = JOB_BOTH;
	o->priv = f;
	return 0;
}

/* Forgets those of its own that are over; returns the first error of one that was lost. */
static int settle(struct exec_file *f)
{
	size_t kept = 0;
	int err = 0;

	for (size_t i = 0; i < f->count; i++) {
		struct command *c = f->mine[i];

		if (!command_is_over(c)) {
			f->mine[kept++] = c;
			continue;
		}
		err = err ?: command_error(c);
		command_unref(c);
	}
	f->count = kept;
	return err;
}

static void exec_release(struct ctl_open *o)
{
	struct exec_file *f = STEAL(o->priv);

	for (size_t i = 0; i < f->count; i++)
		command_unref(f->mine[i]);
	free(f->mine);
	job_stream_release(&f->stream);
	free(f);
}

static void exec_accepted(struct ctl_open *o, struct command *c)
{
	struct exec_file *f = o->priv;
	struct command **more = realloc(f->mine, (f->count + 1) * sizeof(*more));

	f->wrote = true;
	job_stream_set(&f->stream, c);
	if (more) { /* without memory a close does not wait for it */
		f->mine = more;
		f->mine[f->count++] = command_ref(c);
	}
}

static void exec_write(struct ctl_open *o, fuse_req_t req, const char *bytes, size_t len)
{
	size_t n = len;

	if (n > 0 && bytes[n - 1] == '\n')
		n--;
	if (n == 0 || n > JOB_SCRIPT_MAX || memchr(bytes, '\0', n)) {
		answer_err(o->fs, req, n > JOB_SCRIPT_MAX ? -E2BIG : -EINVAL);
		return;
	}
	start(o, req, &(struct job_spec){ .script = bytes, .len = n }, len, exec_accepted);
}

/* Whoever has written nothing reads the newest command there is when he begins. */
static void choose(struct ctl_open *o)
{
	struct exec_file *f = o->priv;

	if (f->wrote || f->chosen || !jobs_newest(o->thread))
		return;
	f->chosen = true;
	job_stream_set(&f->stream, jobs_newest(o->thread));
}

static void exec_read(struct ctl_open *o, fuse_req_t req, size_t size, uint64_t offset UNUSED)
{
	struct exec_file *f = o->priv;

	choose(o);
	job_stream_read(&f->stream, req, size);
}

static void exec_poll(struct ctl_open *o, fuse_req_t req, struct fuse_pollhandle *ph)
{
	struct exec_file *f = o->priv;

	choose(o);
	job_stream_poll(&f->stream, req, ph, POLLOUT | POLLWRNORM);
}

/* close(2) waits for all that was written here. */
struct flush_wait {
	struct parked parked;
	struct job_wait wait;
	struct exec_file *file;
	int err; /* of one that was lost */
};

static void flushed(struct flush_wait *w, int err)
{
	command_wait_end(&w->wait);
	parked_err(&w->parked, err);
	free(w);
}

/* Waits for the first one that is not over. */
static void on_news(struct job_wait *wait, int err)
{
	struct flush_wait *w = CONTAINER_OF(wait, struct flush_wait, wait);
	int lost = settle(w->file);

	w->err = w->err ?: lost;
	if (w->file->count == 0) {
		flushed(w, w->err);
	} else if (err < 0) {
		flushed(w, err);
	} else if (wait->command != w->file->mine[0]) {
		command_wait_end(wait);
		command_wait(w->file->mine[0], wait);
	}
}

static void on_flush_interrupted(struct parked *p)
{
	flushed(CONTAINER_OF(p, struct flush_wait, parked), -EINTR);
}

static void exec_flush(struct ctl_open *o, fuse_req_t req)
{
	struct exec_file *f = o->priv;
	int err = settle(f);
	struct flush_wait *w;

	if (f->count == 0 || (o->flags & O_NONBLOCK)) {
		answer_err(o->fs, req, err);
		return;
	}
	w = calloc(1, sizeof(*w));
	if (!w) {
		answer_err(o->fs, req, -ENOMEM);
		return;
	}
	w->file = f;
	w->err = err;
	w->wait.wake = on_news;
	parked_init(&w->parked, o->fs, req, on_flush_interrupted);
	command_wait(f->mine[0], &w->wait);
}

const struct ctl_file ctl_exec = {
	.name = "exec",
	.mode = 0600,
	.open = exec_open,
	.read = exec_read,
	.write = exec_write,
	.flush = exec_flush,
	.poll = exec_poll,
	.release = exec_release,
};

/* ---- exit_code ---- */

static int render_exit_code(struct ctl_open *o, struct buf *to)
{
	int code = jobs_exit_code(o->thread);

	return code >= 0 ? buf_printf(to, "%d\n", code) : 0;
}

const struct ctl_file ctl_exit_code = {
	.name = "exit_code",
	.mode = 0400,
	.render = render_exit_code,
};

/* ---- run ---- */

/* o->text is the job's number, as it is read. */
struct run_file {
	bool asked;
	size_t read;
};

static int run_open(struct ctl_open *o)
{
	o->priv = calloc(1, sizeof(struct run_file));
	return o->priv ? 0 : -ENOMEM;
}

static void run_release(struct ctl_open *o)
{
	free(STEAL(o->priv));
}

static void run_accepted(struct ctl_open *o, struct command *c)
{
	buf_printf(&o->text, "%u\n", command_number(c));
}

static void run_write(struct ctl_open *o, fuse_req_t req, const char *bytes, size_t len)
{
	struct run_request r CLEANUP_RUN_REQUEST = { 0 };
	struct run_file *f = o->priv;
	char *text CLEANUP_FREE = NULL;
	int err;

	if (f->asked) { /* one each: whose number would be read? */
		answer_err(o->fs, req, -EBUSY);
		return;
	}
	text = malloc(len + 1);
	if (text) {
		memcpy(text, bytes, len);
		text[len] = '\0';
	}
	err = text ? run_request_parse(text, len, &r) : -ENOMEM;
	if (err < 0) {
		answer_err(o->fs, req, err);
		return;
	}
	f->asked = true;
	start(o, req,
	      &(struct job_spec){
		      .script = r.script.data,
		      .len = r.script.len,
		      .own = true,
		      .dir = r.dir,
		      .env = (const char *const *)r.env,
		      .fed = r.fed,
	      },
	      len, run_accepted);
}

static void run_read(struct ctl_open *o, fuse_req_t req, size_t size, uint64_t offset UNUSED)
{
	struct run_file *f = o->priv;
	size_t n = MIN(size, o->text.len - f->read);

	answer_buf(o->fs, req, n > 0 ? o->text.data + f->read : "", n);
	f->read += n;
}

const struct ctl_file ctl_run = {
	.name = "run",
	.mode = 0600,
	.open = run_open,
	.read = run_read,
	.write = run_write,
	.release = run_release,
};
