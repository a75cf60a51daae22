/*
 * See aside.h. The child writes the content and, as the last thing, an int: 0 or a negative
 * errno. A child that hangs in the kernel ends when the mount does; it holds nothing of ours.
 */
#include "aside.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "clock.h"
#include "io.h"

enum { CONTENT_MAX = 64 * 1024 * 1024 };

static int copy_content(const char *path, int to)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	char piece[64 * 1024];
	ssize_t n;

	if (fd < 0)
		return -errno;
	while ((n = read(fd, piece, sizeof(piece))) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (write_all(to, piece, (size_t)n) < 0)
			return -EPIPE;
	}
	return 0;
}

static int write_content(const char *path, const char *bytes)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);

	if (fd < 0)
		return -errno;
	if (write(fd, bytes, strlen(bytes)) < 0)
		return -errno;
	return close(fd) < 0 ? -errno : 0;
}

static void run_child(const char *path, const char *bytes, int to) __attribute__((noreturn));
static void run_child(const char *path, const char *bytes, int to)
{
	int r;

	signal(SIGINT, SIG_IGN); /* whoever waits decides */
	signal(SIGPIPE, SIG_IGN);
	r = bytes ? write_content(path, bytes) : copy_content(path, to);
	(void)!write_all(to, &r, sizeof(r));
	_exit(0);
}

static int begin(struct aside *a, const char *path, const char *bytes)
{
	int fds[2], r;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	a->pid = fork();
	if (a->pid == 0)
		run_child(path, bytes, fds[1]);
	r = a->pid < 0 ? -errno : 0;
	close(fds[1]);
	if (r < 0) {
		close(fds[0]);
		return r;
	}
	a->fd = fds[0];
	fcntl(a->fd, F_SETFL, O_NONBLOCK);
	a->bytes = BUF_INIT(CONTENT_MAX);
	return 0;
}

int aside_read(struct aside *a, const char *path)
{
	return begin(a, path, NULL);
}

int aside_write(struct aside *a, const char *path, const char *bytes)
{
	return begin(a, path, bytes);
}

/* One that hangs is left to init: waiting for it would be to hang as well. */
static void end(struct aside *a)
{
	close(steal_fd(&a->fd));
	kill(a->pid, SIGKILL);
	for (int i = 0; i < 20 && waitpid(a->pid, NULL, WNOHANG) == 0; i++)
		poll(NULL, 0, 1);
	buf_release(&a->bytes);
	a->pid = -1;
}

int aside_take(struct aside *a, struct buf *to)
{
	char piece[64 * 1024];
	ssize_t n;
	int r;

	while ((n = read(a->fd, piece, sizeof(piece))) > 0)
		buf_append(&a->bytes, piece, (size_t)n);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return -EAGAIN;
	r = n < 0 ? -errno : a->bytes.error;
	if (r == 0 && a->bytes.len < sizeof(r))
		r = -EIO; /* it was killed */
	if (r == 0) {
		a->bytes.len -= sizeof(r);
		memcpy(&r, a->bytes.data + a->bytes.len, sizeof(r));
	}
	if (r == 0)
		r = buf_append(to, a->bytes.data, a->bytes.len);
	end(a);
	return r;
}

void aside_drop(struct aside *a)
{
	if (a->fd >= 0)
		end(a);
}

int aside_read_within(const char *path, int timeout_ms, struct buf *to)
{
	struct aside a CLEANUP(aside_drop) = ASIDE_NONE;
	int64_t end_ms = clock_ms() + timeout_ms;
	int r = aside_read(&a, path);

	if (r < 0)
		return r;
	for (;;) {
		struct pollfd p = { .fd = a.fd, .events = POLLIN };
		int64_t left = end_ms - clock_ms();

		if (left <= 0)
			return -ETIMEDOUT;
		if (poll(&p, 1, (int)left) <= 0)
			continue;
		r = aside_take(&a, to);
		if (r != -EAGAIN)
			return r;
	}
}
