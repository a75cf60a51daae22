/*
 * Private to the rogue server: rogue.c (life, rules, records) and rogue_conn.c
 * (one connection). One lock for all that is shared; nothing blocks under it.
 */
#pragma once

#include "../load/http.h"
#include "lock.h"
#include "rogue.h"
#include "scratch.h"
#include "wire.h"

struct rule {
	struct rogue_rule want; /* immutable, strings owned */
	unsigned matched, used; /* guarded by lock */
	bool off;               /* guarded by lock; memory stays for those who act by it */
	struct rule *next;
};

struct record {
	struct rogue_request q; /* without body */
	struct buf body;
	uint64_t began, ended; /* of rogue->events; ended 0: under way */
	bool ruled;            /* a rule has been found for it, or is not needed any more */
};

struct conn {
	struct rogue *rogue;
	pthread_t thread; /* whoever reaps */
	unsigned number;
	int wake_fd;              /* eventfd: ends a pause */
	struct conn *prev, *next; /* guarded by lock, as what follows */
	int fd;                   /* written by its thread under the lock, -1 once closed */
	bool reading;             /* waits for a request, or for the rest of its head */
	bool pausing;             /* until rogue_release() */
	bool ended;               /* somebody wants it to end */
	bool done;                /* the thread is about to return */
	struct record *rec;       /* its thread sets it; what it points to is guarded */
	/* its thread only */
	unsigned requests;
	struct wire in, up;      /* from the client and from the upstream; up.fd -1: none */
	struct wire_head head;   /* of the request */
	struct wire_body body;   /* of the request */
	struct buf taken;        /* of that body, as it came: for the upstream */
	bool continued;          /* 100 Continue was sent */
	bool keep_alive, linger; /* linger: the client may still be sending */
	int status;              /* of the answer */
	const struct rogue_rule *rule;
	uint64_t sent, body_sent; /* of the answer */
	bool fault_over;
};

struct rogue {
	struct lock lock;
	pthread_cond_t changed; /* a request began or grew, a connection came or went */
	/* immutable */
	struct address upstream; /* len 0: none */
	char dir[SCRATCH_MAX];   /* of the socket; "" with TCP */
	char *socket, *url;
	int port_fd; /* holds the port while nobody listens; -1 with a unix socket */
	struct address address;
	/* one caller at a time */
	int listen_fd; /* -1: deaf */
	pthread_t acceptor;
	/* guarded by lock */
	struct rule *rules;
	struct record **records;
	size_t records_len, records_cap;
	uint64_t events;
	uint64_t released; /* requests that began up to then do not wait for a release */
	unsigned in_flight, connections, refuse;
	struct conn *conns;
};

/* rogue.c */
void rogue_record_begin(struct conn *c);
void rogue_record_body(struct conn *c, const char *data, size_t len);
void rogue_record_body_done(struct conn *c);
void rogue_record_end(struct conn *c);
/* Whether the body is needed to know the rule. */
bool rogue_wants_body(struct conn *c);
/* The rule for c's request, counted as used; or one that forwards. */
const struct rogue_rule *rogue_match(struct conn *c);
/* A copy for a handler. */
void rogue_copy_request(struct conn *c, struct rogue_request *ret);

/* rogue_conn.c: serves until the connection ends; closes its sockets. */
void rogue_conn_run(struct conn *c);
