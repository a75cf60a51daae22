/*
 * Small helpers every layer uses: cleanup attributes, a steal macro, array
 * size. Header only; knows nothing of the program.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#define ARRAY_SIZE(a)                   (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b)                       ((a) < (b) ? (a) : (b))
#define MAX(a, b)                       ((a) > (b) ? (a) : (b))
#define CONTAINER_OF(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

#define KIB (1024ull)
#define MIB (1024ull * KIB)
#define GIB (1024ull * MIB)

#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))
#define MUST_CHECK             __attribute__((warn_unused_result))
#define UNUSED                 __attribute__((unused))

/*
 * char *p CLEANUP_FREE = NULL;
 * The cleanup is a use of the last value, which clang's analyzer would call a dead store.
 */
#define CLEANUP(fn)  __attribute__((cleanup(fn), unused))
#define CLEANUP_FREE CLEANUP(cleanup_free_)
#define CLEANUP_FD   CLEANUP(cleanup_fd_)

static inline void cleanup_free_(void *p)
{
	free(*(void **)p);
}

static inline void cleanup_fd_(int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

/* Takes the pointer out of a variable that would otherwise be cleaned up. */
#define STEAL(p)                                                                                   \
	({                                                                                         \
		__typeof__(p) old_ = (p);                                                          \
		(p) = NULL;                                                                        \
		old_;                                                                              \
	})

static inline int steal_fd(int *fd)
{
	int old = *fd;

	*fd = -1;
	return old;
}

/* Sanitizers need an environment, and to trace the process when it ends. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
