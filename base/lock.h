/*
 * pthread mutexes with clang's thread-safety annotations (functions only;
 * gcc sees plain mutexes). Initialised with LOCK_INIT or lock_init().
 */
#pragma once

#include <assert.h>
#include <pthread.h>

#if defined(__clang__)
#define TSA(x) __attribute__((x))
#else
#define TSA(x)
#endif

struct TSA(capability("mutex")) lock {
	pthread_mutex_t mutex;
};

#define LOCK_INIT                                                                                  \
	{                                                                                          \
		PTHREAD_MUTEX_INITIALIZER                                                          \
	}
#define ACQUIRES(l) TSA(acquire_capability(l))
#define RELEASES(l) TSA(release_capability(l))
#define NEEDS(l)    TSA(requires_capability(l))
#define NO_TSA      TSA(no_thread_safety_analysis)

static inline void lock_init(struct lock *l)
{
	pthread_mutex_init(&l->mutex, NULL);
}

static inline void lock_destroy(struct lock *l)
{
	pthread_mutex_destroy(&l->mutex);
}

static inline void lock(struct lock *l) ACQUIRES(l) NO_TSA
{
	int r = pthread_mutex_lock(&l->mutex);

	assert(r == 0);
	(void)r;
}

static inline void unlock(struct lock *l) RELEASES(l) NO_TSA
{
	int r = pthread_mutex_unlock(&l->mutex);

	assert(r == 0);
	(void)r;
}
