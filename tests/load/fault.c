#include "fault.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include "http.h"

enum {
	PATH_LEN = 512,
	GONE_MS = 10000,
	HTTP_MS = 500, /* a sandbox that is stopped does not answer */
};

uint64_t fault_random(uint64_t *state)
{
	uint64_t x = *state;

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	*state = x;
	return x * 0x2545f4914f6cdd1dull;
}

/* A short file as a string; empty if it cannot be read. NULs become blanks. */
static void slurp(const char *path, char *text, size_t size)
{
	int fd CLEANUP_FD = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, text, size - 1);

	n = MAX(n, 0);
	text[n] = '\0';
	for (ssize_t i = 0; i < n; i++)
		if (!text[i])
			text[i] = ' ';
}

static pid_t first_child(pid_t pid)
{
	char path[64], text[64];

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", pid, pid);
	slurp(path, text, sizeof(text));
	return (pid_t)strtol(text, NULL, 10);
}

bool fault_is_sandbox(pid_t supervisor)
{
	char path[64], text[256];

	snprintf(path, sizeof(path), "/proc/%d/cmdline", supervisor);
	slurp(path, text, sizeof(text));
	return supervisor > 1 && strstr(text, "threadfs-sandboxd --socket ");
}

static bool look(const char *dir, struct fault_sandbox *ret)
{
	char path[PATH_LEN + 8], text[1024], proc[64];
	struct fault_sandbox s = { 0 };

	snprintf(path, sizeof(path), "%s/pid", dir);
	slurp(path, text, sizeof(text));
	s.supervisor = (pid_t)strtol(text, NULL, 10);
	if (s.supervisor <= 1)
		return false;
	/* a pid file outlives its process, whose number may be somebody else's */
	snprintf(proc, sizeof(proc), "/proc/%d/cmdline", s.supervisor);
	slurp(proc, text, sizeof(text));
	if (!strstr(text, "threadfs-sandboxd") || !strstr(text, dir))
		return false;
	s.server = first_child(first_child(s.supervisor));
	if ((size_t)snprintf(s.sock, sizeof(s.sock), "%s/sock", dir) >= sizeof(s.sock))
		return false;
	*ret = s;
	return true;
}

size_t fault_sandboxes(const char *run, struct fault_sandbox all[static FAULT_SANDBOXES])
{
	char root[PATH_LEN / 2], dir[PATH_LEN];
	DIR *outer, *inner;
	struct dirent *o, *i;
	size_t n = 0;

	snprintf(root, sizeof(root), "%s/threadfs", run);
	outer = opendir(root);
	while (outer && (o = readdir(outer))) {
		snprintf(dir, sizeof(dir), "%s/%.32s", root, o->d_name);
		inner = o->d_name[0] == '.' ? NULL : opendir(dir);
		while (inner && (i = readdir(inner)) && n < FAULT_SANDBOXES) {
			if (i->d_name[0] == '.')
				continue;
			snprintf(dir, sizeof(dir), "%s/%.32s/%.32s", root, o->d_name, i->d_name);
			n += look(dir, &all[n]);
		}
		if (inner)
			closedir(inner);
	}
	if (outer)
		closedir(outer);
	return n;
}

bool fault_signal(const struct fault_sandbox *s, bool server, int sig)
{
	pid_t pid = server ? s->server : s->supervisor;

	return pid > 1 && fault_is_sandbox(s->supervisor) && !kill(pid, sig);
}

static bool is_gone(pid_t pid)
{
	char path[64], text[256], *state;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	slurp(path, text, sizeof(text));
	state = strrchr(text, ')');
	return !state || strchr("ZX", state[2]);
}

bool fault_kill(const struct fault_sandbox *s, bool server)
{
	if (!fault_signal(s, server, SIGKILL))
		return false;
	for (int i = 0; i < GONE_MS && !(is_gone(s->server) && is_gone(s->supervisor)); i++)
		usleep(1000);
	return is_gone(s->server) && is_gone(s->supervisor);
}

/* Whether it is connected to a sandbox of the mount. */
static bool is_ours(int fd, const char *run)
{
	struct sockaddr_un peer = { 0 };
	socklen_t len = sizeof(peer);

	if (getpeername(fd, (struct sockaddr *)(void *)&peer, &len))
		return false;
	return peer.sun_family == AF_INET ||
	       (peer.sun_family == AF_UNIX && !strncmp(peer.sun_path, run, strlen(run)));
}

unsigned fault_cut(pid_t program, const char *run, unsigned odds, uint64_t random)
{
	char path[64];
	int pidfd CLEANUP_FD = (int)syscall(SYS_pidfd_open, program, 0);
	struct dirent *e;
	unsigned n = 0;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/fd", program);
	d = opendir(path);
	while (d && pidfd >= 0 && (e = readdir(d))) {
		int number = (int)strtol(e->d_name, NULL, 10);
		int fd CLEANUP_FD = (int)syscall(SYS_pidfd_getfd, pidfd, number, 0);

		if (e->d_name[0] == '.' || fd < 0 || !is_ours(fd, run))
			continue;
		if (odds > 1 && fault_random(&random) % odds)
			continue;
		n += !shutdown(fd, SHUT_RDWR);
	}
	if (d)
		closedir(d);
	return n;
}

static bool exchange(const struct fault_sandbox *s, const char *method, const char *path,
		     struct response *r)
{
	char request[256];
	struct address a;
	int len;

	len = snprintf(request, sizeof(request),
		       "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", method,
		       path);
	return !address_set_unix(&a, s->sock) &&
	       !http_exchange(&a, request, (size_t)len, HTTP_MS, r);
}

unsigned fault_drop_watch(const struct fault_sandbox *s)
{
	static const char key[] = "\"watcher_id\":\"";
	struct response list, answer;
	const char *at;
	unsigned n = 0;

	response_init(&list);
	response_init(&answer);
	if (exchange(s, "GET", "/v1/file/watch", &list) && list.status == 200 && list.body.data) {
		for (at = list.body.data; (at = strstr(at, key)); at += strlen(key)) {
			char path[96];

			snprintf(path, sizeof(path), "/v1/file/watch/%.*s",
				 (int)strcspn(at + strlen(key), "\""), at + strlen(key));
			response_reset(&answer);
			n += exchange(s, "DELETE", path, &answer) && answer.status == 200;
		}
	}
	http_response_release(&list);
	http_response_release(&answer);
	return n;
}
