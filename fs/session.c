/*
 * The FUSE connection on the event loop. Requests are read and handled there
 * one after the other, which is what makes everything in fs/ free of locks;
 * whoever has to wait is parked (parked.h), never the loop.
 */
#include "session.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "io.h"
#include "log.h"
#include "mounts.h"
#include "ops.h"
#include "unmount.h"

/* So many requests at a time before timers and sockets have their turn. */
enum { REQUESTS_PER_TURN = 64 };

enum { HEARD_MAX = 64 * KIB }; /* of fusermount3, at a mount */

struct session {
	ev_io io;
	struct fuse_buf buf;
	dev_t dev; /* of the mount */
	bool begun;
	void (*ended)(void *ctx);
	void *ctx;
};

static void end(struct fs *fs)
{
	struct session *s = fs->session;

	if (!ev_is_active(&s->io))
		return;
	ev_io_stop(fs->ev, &s->io);
	s->ended(s->ctx);
}

/*
 * The kernel reads 128 KiB ahead, which FUSE can only lessen. Twice as much halves the
 * requests; more is slower, as what was received has left the processor's cache when it is
 * handed on. Latency is the reader's business (window.h). For root only, and not needed.
 */
static void read_further(dev_t dev)
{
	char path[64];
	int fd CLEANUP_FD = -1;

	if (!dev)
		return;
	snprintf(path, sizeof(path), "/sys/class/bdi/%u:%u/read_ahead_kb", major(dev), minor(dev));
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd >= 0)
		(void)!write(fd, "256", 3);
}

static void on_readable(struct ev_loop *ev, ev_io *w, int revents)
{
	struct fs *fs = w->data;
	struct session *s = fs->session;

	(void)ev;
	(void)revents;
	for (int i = 0; i < REQUESTS_PER_TURN; i++) {
		int r = fuse_session_receive_buf(fs->se, &s->buf);

		if (r == -EINTR)
			continue;
		if (r == -EAGAIN)
			return;
		if (r <= 0 || fuse_session_exited(fs->se)) {
			end(fs);
			return;
		}
		asked_begin(fs, &s->buf);
		fuse_session_process_buf(fs->se, &s->buf);
		asked_end(fs);
		if (!s->begun) {
			s->begun =
				true; /* that was the first one, by which the kernel sets its own */
			read_further(s->dev);
		}
	}
}

/* libfuse splits at commas and takes a backslash for an escape. */
static void add_escaped(struct buf *to, const char *text)
{
	for (; *text; text++) {
		if (*text == ',' || *text == '\\')
			buf_putc(to, '\\');
		buf_putc(to, *text);
	}
}

static void mount_options(const struct options *o, struct buf *to)
{
	buf_puts(to, "subtype=threadfs,default_permissions,nosuid,nodev,fsname=");
	add_escaped(to, o->source_text);
	if (!o->exec)
		buf_puts(to, ",noexec");
	if (o->ro)
		buf_puts(to, ",ro");
	if (o->allow_other)
		buf_puts(to, ",allow_other");
}

/* The last line of what fusermount3 said, among what others did; NULL: none. */
static char *last_word(const struct buf *heard)
{
	static const char its[] = "fusermount3: ";
	const char *last = NULL;

	for (const char *line = heard->data ?: ""; *line; line += strspn(line, "\n")) {
		if (strncmp(line, its, strlen(its)) == 0)
			last = line;
		line += strcspn(line, "\n");
	}
	return last ? strndup(last, strcspn(last, "\n")) : NULL;
}

/* It may be the log, too: whatever is heard is handed on. */
static char *hand_on(int from)
{
	struct buf heard CLEANUP_BUF = BUF_INIT(HEARD_MAX);
	char piece[512];
	ssize_t n;

	while ((n = pread_all(from, piece, sizeof(piece), heard.len)) > 0 && !heard.error)
		buf_append(&heard, piece, (size_t)n);
	(void)!write_all(STDERR_FILENO, heard.data, heard.len);
	return last_word(&heard);
}

/*
 * fusermount3 says on our stderr why it cannot mount, and libfuse nothing. ret_said: that, for the
 * caller to free, or NULL. In a file, as nobody would read a pipe meanwhile.
 */
static int mount_listening(struct fs *fs, char **ret_said)
{
	int ears CLEANUP_FD = memfd_create("fusermount3", MFD_CLOEXEC);
	int before CLEANUP_FD = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	bool listens = ears >= 0 && before >= 0 && dup2(ears, STDERR_FILENO) >= 0;
	int r = fuse_session_mount(fs->se, fs->opt->mountpoint), err = errno;

	if (listens) {
		dup2(before, STDERR_FILENO);
		*ret_said = hand_on(ears);
	}
	errno = err;
	return r;
}

/* What libfuse and fusermount3 say is for the log; this for people, and what they may need of that.
 */
static void explain(const struct options *o, const char *said, struct buf *why)
{
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);

	if (fd < 0 && (errno == ENOENT || errno == ENODEV)) {
		buf_puts(why, "this system has no FUSE (/dev/fuse): load the kernel module "
			      "(modprobe fuse), or give the container the device");
	} else if (fd < 0 && (errno == EACCES || errno == EPERM)) {
		buf_puts(why, "no permission to use FUSE (/dev/fuse): see its mode and group");
	} else if (fd < 0) {
		buf_printf(why, "cannot open /dev/fuse: %s", strerrordesc_np(errno));
	} else if (o->allow_other && geteuid() != 0 && (!said || strstr(said, "allow_other"))) {
		buf_printf(why,
			   "cannot mount at %s: allow_other needs the line "
			   "'user_allow_other' in /etc/fuse.conf",
			   o->mountpoint);
	} else if (geteuid() != 0 && !said) {
		buf_printf(
			why,
			"cannot mount at %s: is the directory yours, and is fusermount3 (package "
			"fuse3) installed?",
			o->mountpoint);
	} else if (geteuid() != 0) {
		buf_printf(why, "cannot mount at %s", o->mountpoint);
	} else {
		buf_printf(why, "cannot mount at %s: %s", o->mountpoint,
			   errno ? strerrordesc_np(errno) : "no permission");
	}
	if (said)
		buf_printf(why, ": %s", said);
	if (fd >= 0)
		close(fd);
}

static void PRINTF_LIKE(2, 0) quiet(enum fuse_log_level level, const char *fmt, va_list ap)
{
	char line[512];

	vsnprintf(line, sizeof(line), fmt, ap);
	line[strcspn(line, "\n")] = '\0';
	if (level <= FUSE_LOG_ERR)
		log_warn("%s", line);
	else
		log_topic(LOG_FUSE, "%s", line);
}

/* Which mount it is, without asking it. */
static void remember(struct fs *fs)
{
	struct mounts m CLEANUP_MOUNTS = { 0 };
	const struct mount_entry *there = NULL;

	if (mounts_read(&m) == 0)
		there = mounts_at(&m, fs->opt->mountpoint);
	if (there)
		fs->session->dev = there->dev;
}

static void start_on_loop(void *ctx)
{
	struct fs *fs = ctx;

	ev_io_start(fs->ev, &fs->session->io);
}

int session_open(struct fs *fs, void (*ended)(void *ctx), void *ctx, struct buf *why)
{
	struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
	struct buf options CLEANUP_BUF = BUF_INIT(0);
	struct session *s = calloc(1, sizeof(*s));
	char *said CLEANUP_FREE = NULL;
	int fd;

	mount_options(fs->opt, &options);
	fuse_set_log_func(quiet);
	if (!s || options.error || fuse_opt_add_arg(&args, "threadfs") ||
	    fuse_opt_add_arg(&args, "-o") || fuse_opt_add_arg(&args, options.data)) {
		free(s);
		fuse_opt_free_args(&args);
		buf_puts(why, "no memory");
		return -ENOMEM;
	}
	fs->se = fuse_session_new(&args, &fs_ops, sizeof(fs_ops), fs);
	fuse_opt_free_args(&args);
	if (!fs->se || mount_listening(fs, &said) != 0) {
		explain(fs->opt, said, why);
		if (fs->se)
			fuse_session_destroy(STEAL(fs->se));
		free(s);
		return -EIO;
	}
	fd = fuse_session_fd(fs->se);
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	s->ended = ended;
	s->ctx = ctx;
	ev_io_init(&s->io, on_readable, fd, EV_READ);
	s->io.data = fs;
	fs->session = s;
	remember(fs);
	loop_run(fs->loop, start_on_loop, fs);
	return 0;
}

static bool has_ended(const struct fs *fs)
{
	struct pollfd p = { .fd = fuse_session_fd(fs->se) };

	return poll(&p, 1, 0) > 0 && (p.revents & POLLERR);
}

/*
 * Ends the connection. libfuse would then unmount whatever is at the path by now, through links,
 * too; but not if the descriptor says that there is nothing any more, as a pipe without a reader
 * does. It closes that, and only then forgets its number: on the loop's thread nobody reads or
 * answers in between, with what may be the number of somebody else's socket by then.
 */
static int end_connection(struct fs *fs)
{
	int fds[2], r = 0;

	if (!has_ended(fs)) {
		if (pipe2(fds, O_CLOEXEC) < 0)
			return -errno;
		close(fds[0]);
		r = dup3(fds[1], fuse_session_fd(fs->se), O_CLOEXEC) < 0 ? -errno : 0;
		close(fds[1]);
	}
	if (r == 0)
		fuse_session_unmount(fs->se);
	return r;
}

bool session_is_seen(const struct fs *fs)
{
	struct mounts m CLEANUP_MOUNTS = { 0 };

	if (mounts_read(&m) < 0)
		return true;
	for (size_t i = 0; i < m.count; i++)
		if (m.list[i].dev == fs->session->dev)
			return true;
	return false;
}

/* Wherever a directory above it was renamed to, and whatever was bound elsewhere. */
static void unmount_all(const struct fs *fs, const struct mounts *m)
{
	for (const struct mount_entry *there = NULL;
	     (there = mounts_of(m, fs->session->dev, there));) {
		struct buf words CLEANUP_BUF = BUF_INIT(UNMOUNT_WORDS);
		int r = unmount_wherever(there, &words);

		if (r < 0)
			log_warn("cannot unmount %s: %s", there->point,
				 words.len > 0 ? words.data : strerrordesc_np(-r));
	}
}

/*
 * The connection goes first: what the kernel still waits for as it unmounts would have to come from
 * this thread. As long as it lives, the device's number is nobody else's.
 */
void session_stop(struct fs *fs)
{
	struct mounts m CLEANUP_MOUNTS = { 0 };
	bool mounted;
	int r;

	if (!fs->session)
		return;
	ev_io_stop(fs->ev, &fs->session->io);
	fuse_session_exit(fs->se); /* answers that come too late are no error */
	mounted = mounts_read(&m) == 0 && !has_ended(fs);
	r = end_connection(fs);
	if (r < 0)
		log_warn("cannot unmount %s: %s", fs->opt->mountpoint, strerrordesc_np(-r));
	else if (mounted)
		unmount_all(fs, &m);
}

/* Whoever waits in the kernel for an answer that will not come is let go. */
void session_abort(struct fs *fs)
{
	struct mounts m CLEANUP_MOUNTS = { 0 };
	const struct mount_entry *there;
	char path[64];
	int fd;

	if (!fs->session)
		return;
	snprintf(path, sizeof(path), "/sys/fs/fuse/connections/%u/abort", minor(fs->session->dev));
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd >= 0) {
		if (write(fd, "1", 1) == 1) {
			close(fd);
			return;
		}
		close(fd);
	}
	if (mounts_read(&m) == 0 && (there = mounts_of(&m, fs->session->dev, NULL)))
		unmount_abort(there);
}

void session_close(struct fs *fs)
{
	if (!fs->se)
		return;
	fuse_session_destroy(STEAL(fs->se));
	free(fs->session->buf.mem);
	free(STEAL(fs->session));
}
