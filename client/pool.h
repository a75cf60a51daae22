/*
 * The connections to one sandbox: a libcurl multi handle on the loop. Each
 * sandbox has its own, so that closing it closes its sockets and no others.
 * Loop thread only.
 */
#pragma once

#include <curl/curl.h>

#include "loop.h"

struct pool;

/* done: a transfer that pool_add() began is over; the handle has been removed. */
int pool_new(struct loop *loop, void (*done)(CURL *easy, CURLcode code),
	     struct pool **ret) MUST_CHECK;
/* All transfers must have been removed. Closes every connection. Not from done(). NULL is fine. */
void pool_free(struct pool *p);

/* A handle with the library's defaults; given back with pool_put(). NULL: no memory. */
CURL *pool_get(struct pool *p);
void pool_put(struct pool *p, CURL *easy);
/*
 * The same for requests of one kind, of which there are many: the handle comes as it was
 * put, with all of its settings. NULL: there is none, take pool_get().
 */
CURL *pool_get_set(struct pool *p);
void pool_put_set(struct pool *p, CURL *easy);

int pool_add(struct pool *p, CURL *easy) MUST_CHECK;
/* Not from inside a callback of libcurl. */
void pool_remove(struct pool *p, CURL *easy);
