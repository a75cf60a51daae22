/*
 * The calls that can be made to fail. ld --wrap=NAME sends the program's own calls of NAME
 * to __wrap_NAME; __real_NAME is the C library's. The list that the linker needs is made from this
 * file: each WRAP names one.
 */
#include <cjson/cJSON.h>
#include <curl/curl.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "inject_i.h"

#define FAILS(name, kind, ...)                                                                     \
	inject_fails(name, INJECT_##kind, (const int[]){ __VA_ARGS__ },                            \
		     sizeof((const int[]){ __VA_ARGS__ }) / sizeof(int))

#define WRAP(type, name, params, args, result, kind, ...)                                          \
	type __real_##name params;                                                                 \
	type __wrap_##name params;                                                                 \
	type __wrap_##name params                                                                  \
	{                                                                                          \
		if (FAILS(#name, kind, __VA_ARGS__))                                               \
			return result;                                                             \
		return __real_##name args;                                                         \
	}

/* ---- memory ---- */

WRAP(void *, malloc, (size_t n), (n), NULL, MEMORY, ENOMEM)
WRAP(void *, calloc, (size_t n, size_t size), (n, size), NULL, MEMORY, ENOMEM)
WRAP(void *, realloc, (void *p, size_t n), (p, n), NULL, MEMORY, ENOMEM)
WRAP(void *, reallocarray, (void *p, size_t n, size_t size), (p, n, size), NULL, MEMORY, ENOMEM)
WRAP(void *, aligned_alloc, (size_t align, size_t n), (align, n), NULL, MEMORY, ENOMEM)
WRAP(char *, strdup, (const char *s), (s), NULL, MEMORY, ENOMEM)
WRAP(char *, strndup, (const char *s, size_t n), (s, n), NULL, MEMORY, ENOMEM)
WRAP(char *, realpath, (const char *path, char *to), (path, to), NULL, MEMORY, ENOMEM, EACCES)
WRAP(int, vasprintf, (char **ret, const char *fmt, va_list ap), (ret, fmt, ap), -1, MEMORY, ENOMEM)
WRAP(int, __vasprintf_chk, (char **ret, int flag, const char *fmt, va_list ap),
     (ret, flag, fmt, ap), -1, MEMORY, ENOMEM)
WRAP(ssize_t, __getdelim, (char **line, size_t *n, int end, FILE *f), (line, n, end, f), -1, MEMORY,
     ENOMEM, EIO)

int __wrap_asprintf(char **ret, const char *fmt, ...);
int __wrap___asprintf_chk(char **ret, int flag, const char *fmt, ...);

int __wrap_asprintf(char **ret, const char *fmt, ...)
{
	va_list ap;
	int r;

	if (FAILS("asprintf", MEMORY, ENOMEM))
		return -1;
	va_start(ap, fmt);
	r = __real_vasprintf(ret, fmt, ap);
	va_end(ap);
	return r;
}

int __wrap___asprintf_chk(char **ret, int flag, const char *fmt, ...)
{
	va_list ap;
	int r;

	if (FAILS("asprintf", MEMORY, ENOMEM))
		return -1;
	va_start(ap, fmt);
	r = __real___vasprintf_chk(ret, flag, fmt, ap);
	va_end(ap);
	return r;
}

/* ---- descriptors ---- */

#define NO_DESCRIPTOR EMFILE, ENFILE, ENOMEM

WRAP(int, socket, (int domain, int type, int protocol), (domain, type, protocol), -1, DESCRIPTOR,
     NO_DESCRIPTOR)
WRAP(int, socketpair, (int domain, int type, int protocol, int *fds), (domain, type, protocol, fds),
     -1, DESCRIPTOR, NO_DESCRIPTOR)
WRAP(int, pipe2, (int *fds, int flags), (fds, flags), -1, DESCRIPTOR, NO_DESCRIPTOR)
WRAP(int, eventfd, (unsigned n, int flags), (n, flags), -1, DESCRIPTOR, NO_DESCRIPTOR)
WRAP(int, memfd_create, (const char *name, unsigned flags), (name, flags), -1, DESCRIPTOR,
     NO_DESCRIPTOR)
WRAP(int, dup3, (int from, int to, int flags), (from, to, flags), -1, DESCRIPTOR, EMFILE, EBUSY)
WRAP(FILE *, fopen64, (const char *path, const char *mode), (path, mode), NULL, DESCRIPTOR,
     NO_DESCRIPTOR, EACCES)
WRAP(FILE *, fdopen, (int fd, const char *mode), (fd, mode), NULL, MEMORY, ENOMEM)
WRAP(DIR *, opendir, (const char *path), (path), NULL, DESCRIPTOR, NO_DESCRIPTOR, EACCES)
WRAP(DIR *, fdopendir, (int fd), (fd), NULL, MEMORY, ENOMEM)

int __real_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);
int __real_openat64(int dir, const char *path, int flags, ...);
int __wrap_openat64(int dir, const char *path, int flags, ...);
int __real_fcntl64(int fd, int what, ...);
int __wrap_fcntl64(int fd, int what, ...);

/* What is not given is not looked at. */
#define ONE_MORE(last, type)                                                                       \
	({                                                                                         \
		va_list ap_;                                                                       \
		type more_;                                                                        \
		va_start(ap_, last);                                                               \
		more_ = va_arg(ap_, type);                                                         \
		va_end(ap_);                                                                       \
		more_;                                                                             \
	})

int __wrap_open64(const char *path, int flags, ...)
{
	if (FAILS("open", DESCRIPTOR, NO_DESCRIPTOR, EACCES, ENOSPC))
		return -1;
	return __real_open64(path, flags, ONE_MORE(flags, mode_t));
}

int __wrap_openat64(int dir, const char *path, int flags, ...)
{
	if (FAILS("openat", DESCRIPTOR, NO_DESCRIPTOR, EACCES, ENOSPC))
		return -1;
	return __real_openat64(dir, path, flags, ONE_MORE(flags, mode_t));
}

int __wrap_fcntl64(int fd, int what, ...)
{
	if ((what == F_DUPFD_CLOEXEC || what == F_DUPFD) &&
	    FAILS("fcntl", DESCRIPTOR, EMFILE, EMFILE))
		return -1;
	return __real_fcntl64(fd, what, ONE_MORE(what, void *));
}

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);

/* Those that have no function of their own; all of them take six words at most. */
long __wrap_syscall(long number, ...)
{
	long more[6];
	va_list ap;

	if (number == SYS_pidfd_open && FAILS("pidfd_open", DESCRIPTOR, NO_DESCRIPTOR))
		return -1;
	va_start(ap, number);
	for (size_t i = 0; i < 6; i++)
		more[i] = va_arg(ap, long);
	va_end(ap);
	return __real_syscall(number, more[0], more[1], more[2], more[3], more[4], more[5]);
}

/* ---- files ---- */

#define NO_DISK EIO, ENOSPC, EDQUOT

WRAP(ssize_t, read, (int fd, void *to, size_t n), (fd, to, n), -1, FILE, EIO, EINTR)
WRAP(ssize_t, pread64, (int fd, void *to, size_t n, off_t at), (fd, to, n, at), -1, FILE, EIO,
     EINTR)
WRAP(ssize_t, write, (int fd, const void *from, size_t n), (fd, from, n), -1, FILE, NO_DISK, EINTR)
WRAP(ssize_t, pwrite64, (int fd, const void *from, size_t n, off_t at), (fd, from, n, at), -1, FILE,
     NO_DISK, EINTR)
WRAP(int, ftruncate64, (int fd, off_t size), (fd, size), -1, FILE, NO_DISK)
WRAP(int, fallocate64, (int fd, int mode, off_t at, off_t n), (fd, mode, at, n), -1, FILE, NO_DISK)
WRAP(int, fsync, (int fd), (fd), -1, FILE, NO_DISK)
WRAP(int, fdatasync, (int fd), (fd), -1, FILE, NO_DISK)
WRAP(int, mkdir, (const char *path, mode_t mode), (path, mode), -1, FILE, NO_DISK, EACCES)
WRAP(int, mkdirat, (int dir, const char *path, mode_t mode), (dir, path, mode), -1, FILE, NO_DISK,
     EACCES)
WRAP(int, renameat, (int a, const char *from, int b, const char *to), (a, from, b, to), -1, FILE,
     NO_DISK)
WRAP(int, renameat2, (int a, const char *from, int b, const char *to, unsigned flags),
     (a, from, b, to, flags), -1, FILE, NO_DISK)
WRAP(int, linkat, (int a, const char *from, int b, const char *to, int flags),
     (a, from, b, to, flags), -1, FILE, NO_DISK)
/* After these the name is still there. */
WRAP(int, unlinkat, (int dir, const char *path, int flags), (dir, path, flags), -1, FILE, EIO,
     EROFS, ENOSPC)
WRAP(int, unlink, (const char *path), (path), -1, FILE, EIO, EROFS, ENOSPC)
WRAP(int, access, (const char *path, int how), (path, how), -1, FILE, EIO, ENOMEM, EACCES)
WRAP(char *, fgets, (char *to, int n, FILE *f), (to, n, f), NULL, FILE, ENOMEM, EIO)
/* Only while the kernel has no random numbers yet, early after its start. */
WRAP(ssize_t, getrandom, (void *to, size_t n, unsigned flags), (to, n, flags), -1, FILE, EINTR)
WRAP(int, fchmod, (int fd, mode_t mode), (fd, mode), -1, FILE, EIO, EROFS)
WRAP(int, flock, (int fd, int how), (fd, how), -1, FILE, ENOLCK)
WRAP(int, fstat64, (int fd, struct stat *st), (fd, st), -1, FILE, EIO, ENOMEM)
WRAP(int, stat64, (const char *path, struct stat *st), (path, st), -1, FILE, EIO, ENOMEM)
WRAP(int, lstat64, (const char *path, struct stat *st), (path, st), -1, FILE, EIO, ENOMEM)
WRAP(int, fstatat64, (int dir, const char *path, struct stat *st, int flags),
     (dir, path, st, flags), -1, FILE, EIO, ENOMEM)
WRAP(struct dirent *, readdir64, (DIR * d), (d), NULL, FILE, EIO)

/* ---- sockets ---- */

WRAP(int, connect, (int fd, const struct sockaddr *to, socklen_t n), (fd, to, n), -1, SOCKET,
     ECONNREFUSED, ENOBUFS, EACCES)
WRAP(int, setsockopt, (int fd, int level, int name, const void *value, socklen_t n),
     (fd, level, name, value, n), -1, SOCKET, ENOBUFS, EINVAL)
WRAP(int, getsockopt, (int fd, int level, int name, void *value, socklen_t *n),
     (fd, level, name, value, n), -1, SOCKET, ENOBUFS)
ssize_t __real_send(int fd, const void *from, size_t n, int flags);
ssize_t __wrap_send(int fd, const void *from, size_t n, int flags);

/* Who may not send any more has no connection any more: his peer will not wait for the rest. */
static int not_sent(int fd)
{
	int e = errno;

	if (e == EPIPE || e == ECONNRESET)
		shutdown(fd, SHUT_RDWR);
	errno = e;
	return -1;
}

ssize_t __wrap_send(int fd, const void *from, size_t n, int flags)
{
	if (FAILS("send", SOCKET, EPIPE, ENOBUFS, ECONNRESET))
		return not_sent(fd);
	return __real_send(fd, from, n, flags);
}

ssize_t __real_sendfile64(int to, int from, off_t *at, size_t n);
ssize_t __wrap_sendfile64(int to, int from, off_t *at, size_t n);

/* Of the file, of both, of the socket; EINVAL is of filesystems that have no such thing. */
ssize_t __wrap_sendfile64(int to, int from, off_t *at, size_t n)
{
	if (FAILS("sendfile", SOCKET, EIO, EPIPE, EINVAL, ENOMEM, ECONNRESET, EINTR))
		return not_sent(to);
	return __real_sendfile64(to, from, at, n);
}

WRAP(ssize_t, recv, (int fd, void *to, size_t n, int flags), (fd, to, n, flags), -1, SOCKET,
     ECONNRESET, EIO, EINTR)

/* ---- threads and processes: these return the error ---- */

WRAP(int, pthread_create,
     (pthread_t * t, const pthread_attr_t *attr, void *(*run)(void *), void *arg),
     (t, attr, run, arg), errno, PROCESS, EAGAIN)
WRAP(int, posix_spawn,
     (pid_t * pid, const char *path, const posix_spawn_file_actions_t *actions,
      const posix_spawnattr_t *attr, char *const *argv, char *const *env),
     (pid, path, actions, attr, argv, env), errno, PROCESS, EAGAIN, ENOMEM)
WRAP(int, posix_spawn_file_actions_init, (posix_spawn_file_actions_t * a), (a), errno, MEMORY,
     ENOMEM)
WRAP(int, posix_spawn_file_actions_adddup2, (posix_spawn_file_actions_t * a, int from, int to),
     (a, from, to), errno, MEMORY, ENOMEM)
WRAP(int, posix_spawn_file_actions_addopen,
     (posix_spawn_file_actions_t * a, int fd, const char *path, int flags, mode_t mode),
     (a, fd, path, flags, mode), errno, MEMORY, ENOMEM)
WRAP(int, posix_spawn_file_actions_addchdir_np, (posix_spawn_file_actions_t * a, const char *path),
     (a, path), errno, MEMORY, ENOMEM)

/* ---- libraries ---- */

void inject_hook_libraries(void)
{
	if (curl_global_init_mem(CURL_GLOBAL_DEFAULT, __wrap_malloc, free, __wrap_realloc,
				 __wrap_strdup, __wrap_calloc) != CURLE_OK)
		abort();
	cJSON_InitHooks(&(cJSON_Hooks){ __wrap_malloc, free });
}
