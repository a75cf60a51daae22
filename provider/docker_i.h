/*
 * The inside of the backend for containers: what its files share.
 *
 * A *question* (of the provider) is a chain of steps, one at a time: a request
 * to the engine, work on a worker, a pause, an image that is awaited. Each ends in
 * a callback that starts the next one or finishes. All of it on the loop's thread, but for
 * what says otherwise.
 *
 * A *berth* is a container that we use: which one it is (its key: a name may be
 * another's by tomorrow), and our place among its users on this machine.
 */
#pragma once

#include "backend_docker.h"
#include "docker_answer.h"
#include "hash.h"
#include "request.h"
#include "workers.h"

enum { DOCKER_PORTS = 100 }; /* that are tried, from the first one */

struct docker_pull;
struct vigil;

struct berth {
	char id[SANDBOX_ID_LEN + 1];
	char *key;
	unsigned port;
	int users; /* the lock; -1 while a question has it */
	struct vigil *vigil;
	UT_hash_handle hh;
};

struct docker {
	struct backend base;

	/* immutable */
	struct sandbox *engine; /* its API, not a sandbox: see request.h */
	struct sandbox *ends;   /* the same, for requests that wait for a container's end */
	char api[16];           /* "/v1.41" */
	char *image, *prefix, *network, *host, *bind_host, *root;
	char *maker; /* this machine and where its locks are: who may adopt what bears it */
	char *locks; /* the directory */
	unsigned port, stop_timeout_s;
	struct docker_mount *mounts;
	size_t nmounts;
	struct docker_env *environment; /* resolved; secret */
	size_t nenvironment;
	char *data, *host_data; /* NULL: no directories of threads */

	/* loop thread */
	struct workers *workers;
	struct berth *berths;
	bool ending;
	struct docker_pull *pull;         /* of the image; made with the backend */
	bool reserved[DOCKER_PORTS];      /* somebody makes a container there */
	int64_t refused_ms[DOCKER_PORTS]; /* when the engine last said that it is taken; 0: never */
};

/* Of those who wait for the image. */
struct pull_wait {
	void (*done)(struct pull_wait *w, int error, const char *why);
	void (*progress)(struct pull_wait *w, const char *words);
	struct pull_wait *prev, *next;
};

enum question_kind { Q_CREATE, Q_DESTROY, Q_IS_ALIVE, Q_DISCOVER, Q_ADOPT, Q_LIST };

struct question {
	struct docker *b;
	struct backend_op *op;
	enum question_kind kind;
	char *id, *name; /* NULL of Q_LIST; name: "PREFIX-ID" */
	char *user, *thread;
	bool cancelled;
	int64_t give_up_ms;

	/* the step under way */
	struct call call;
	bool calling;
	bool stubborn; /* a call that goes on when the question is cancelled */
	struct response response;
	struct work work;
	bool working;
	void (*run)(struct question *q); /* on a worker */
	ev_timer timer;
	bool pausing;
	void (*then)(struct question *q); /* after any of them */
	void (*enter_then)(struct question *q), (*inspect_then)(struct question *q);
	struct pull_wait wait;
	bool awaiting; /* the image */

	int users;              /* our lock, until it is the berth's; or -1 */
	bool remove_lock;       /* exclusive, and nobody needs the file any more */
	int r;                  /* of the work */
	struct container found; /* what the engine says that there is */

	/* Q_CREATE */
	char *thread_dir; /* as the engine sees it */
	char *key;        /* made, not yet handed out: to be undone */
	size_t slot;      /* of the port; DOCKER_PORTS: none */
	bool pulled;
	unsigned tries;

	/* the answer, until all is tidied up */
	int error;
	char *why;
};

/* ---- docker_question.c ---- */

struct question *question_new(struct backend *b, struct backend_op *op, enum question_kind kind,
			      const char *id);
void question_cancel(struct question *q);
/* Settles the answer; why (taken over) may be NULL. What was made and is not handed out goes first.
 */
void question_finish(struct question *q, int error, char *why);
#define question_fail(q, error, ...) question_finish((q), (error), backend_words(__VA_ARGS__))

/*
 * A request; target is below the API's version. done() is not called if the question was
 * cancelled: then it has ended.
 */
struct docker_request {
	const char *method, *target;
	const struct buf *json; /* or NULL */
	int64_t timeout_ms;
	bool slow, once, stubborn; /* once: never sent twice */
};
void question_ask(struct question *q, const struct docker_request *r,
		  void (*done)(struct question *q));
/* Whether the answer is a 2xx or a 304. */
bool question_granted(const struct question *q);
/* Why not. 0 of the transport is DOCKER_REFUSED. */
enum docker_refusal question_refusal(const struct question *q);
/* Finishes with what the answer, which is not one that was hoped for, says. */
void question_refused(struct question *q);
/* The answer as JSON, to be deleted; or NULL, and the question has ended. */
cJSON *question_json(struct question *q);

void question_work(struct question *q, void (*run)(struct question *q),
		   void (*then)(struct question *q));
void question_pause(struct question *q, int64_t ms, void (*then)(struct question *q));

/* GET of the container (its key, or the name): then() has it in q->found, key NULL if it is gone.
 */
void question_inspect(struct question *q, const char *which, void (*then)(struct question *q));
/* Fills the answer's place in from q->found and makes it a berth, which takes over the lock. */
int question_take(struct question *q) MUST_CHECK;
/* Takes our lock shared, trying again while somebody has it exclusively. */
void question_enter(struct question *q, void (*then)(struct question *q));

/* ---- docker_users.c: who uses a container, on this machine; for workers ---- */

/* A shared lock: a descriptor, -EAGAIN while somebody stops it, or another negative errno. */
int users_enter(const char *locks, const char *name) MUST_CHECK;
/* Proof that nobody else uses it, for as long as the lock is kept: 0 or -EBUSY. *fd may be -1. */
int users_claim(const char *locks, const char *name, int *fd) MUST_CHECK;
/* Back to a shared one. */
int users_share(int *fd) MUST_CHECK;
/* Gives the lock up, and the file with it if nobody else has it. */
void users_leave(const char *locks, const char *name, int fd);

/* ---- docker_create.c ---- */

void create_begin(struct question *q);

/* ---- docker_pull.c ---- */

/* Nothing is pulled until somebody waits. NULL if there is no memory. */
struct docker_pull *pull_new(struct docker *b);
/* Waits for the image, which is fetched by one request whoever waits. */
void pull_join(struct docker_pull *p, struct pull_wait *w);
/* Does not wait any longer; fetching goes on. */
void pull_leave(struct docker_pull *p, struct pull_wait *w);
/* Appends "image X is being pulled: …". */
void pull_put(const struct docker_pull *p, struct buf *to);
/* When the engine's client is closed. NULL is fine. */
void pull_free(struct docker_pull *p);

/* ---- docker_vigil.c ---- */

/* Tells backend.ended() when the container with this key has. NULL if there is no memory. */
struct vigil *vigil_begin(struct docker *b, const char *id, const char *key);
void vigil_end(struct vigil *v); /* NULL is fine */

/* ---- backend_docker.c ---- */

struct berth *berth_find(struct docker *b, const char *id);
