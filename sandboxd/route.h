/*
 * The table of routes: method and path, the dialects that have it, the
 * handler, and how its body is read. Each family of routes exports its part.
 */
#pragma once

#include "args.h"
#include "request.h"

enum {
	D_1_0 = 1 << DIALECT_1_0,
	D_1_9 = 1 << DIALECT_1_9,
	D_AIOD = 1 << DIALECT_AIOD,
	D_ALL = D_1_0 | D_1_9 | D_AIOD,
	D_FROM_1_9 = D_1_9 | D_AIOD,
};

enum {
	ROUTE_BLOCKING = 1, /* handler runs on a worker */
	ROUTE_PUBLIC = 2,   /* no API key needed */
};

/* Takes a request body piece by piece instead of having it collected. */
struct body_sink {
	int (*begin)(struct request *r); /* 0, or -1 after replying with an error */
	/* 0 or negative errno (the rest is then read and dropped) */
	int (*data)(struct request *r, const char *data, size_t len);
	/* How many bytes, of at most max, suit it best next. */
	size_t (*want)(const struct request *r, size_t max);
	/* With ROUTE_BLOCKING: whether this one is so small that it needs no worker. */
	bool (*quick)(const struct request *r);
};

struct route {
	const char *method;
	const char *path; /* may hold one "{id}" segment */
	unsigned dialects;
	void (*handle)(struct request *r);
	const struct arg *args; /* JSON body, or NULL */
	size_t args_size;
	unsigned flags;
	const struct body_sink *sink;
};

/* Each ends with an entry whose method is NULL. */
extern const struct route file_routes[];
extern const struct route search_routes[];
extern const struct route transfer_routes[];
extern const struct route watch_routes[];
extern const struct route shell_routes[];
extern const struct route bash_routes[];
extern const struct route info_routes[];

/*
 * Finds the route of a request. Returns NULL with *ret_status 404 or 405.
 * arg (129 bytes) gets what stands for {id}.
 */
const struct route *route_find(enum dialect dialect, const char *method, const char *path,
			       char *arg, unsigned *ret_status);
