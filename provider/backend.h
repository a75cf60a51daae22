/*
 * What can run sandboxes: one struct of functions per kind. The provider
 * decides when; a backend only knows how.
 *
 * Every function starts something and returns at once; the question (struct
 * backend_op) is the asker's memory and is answered exactly once, on the loop's
 * thread, never before the function has returned. A backend must not block the
 * loop: files and processes are a worker's business. All functions are called
 * on the loop's thread, at most one question per sandbox id at a time, except
 * `free`.
 */
#pragma once

#include <sys/types.h>

#include "loop.h"

enum { SANDBOX_ID_LEN = 16 };

/* Where a sandbox is: enough to talk to it, and whose it is. */
struct place {
	char id[SANDBOX_ID_LEN + 1];
	char *url, *socket;  /* one of them */
	char *root;          /* of the view; NULL: the usual one */
	char *user, *thread; /* NULL: the backend cannot tell */
	pid_t pid;           /* of its process on this machine; 0: none, or not known */
};
void place_release(struct place *p);
#define CLEANUP_PLACE CLEANUP(place_release)

/* Whom a sandbox is for. */
struct whom {
	const char *id, *user, *thread;
};

struct backend_op {
	/* set by the asker */
	void (*done)(struct backend_op *op); /* may ask the next question with the same op */
	/* Or NULL: how a create goes on that takes long, now and then, before done(). */
	void (*progress)(struct backend_op *op, const char *words);

	/* the answer, valid in done(); owned by the asker from then on */
	int error;            /* 0 or a negative errno */
	char *why;            /* words about it, for people; may be NULL */
	bool alive;           /* is_alive */
	struct place place;   /* create, discover, adopt */
	struct place *places; /* list_running */
	size_t nplaces;

	/* the backend's while the question is open */
	void *priv;
	struct job job;
};
/* Frees the answer and makes the op ready for another question. */
void backend_op_clear(struct backend_op *op);

struct backend;
struct backend_ops {
	const char *name; /* "embedded", "url" */
	/* Where sandboxes are is told by a server: it is not to lead us to link-local addresses. */
	bool is_hearsay;
	/* Sandboxes of older programs under older ids are worth looking for. */
	bool has_old_ids;
	/* is_alive asks the sandbox itself: who wants to know whether it answers need not ask
	 * again, nor where it is. */
	bool alive_by_ping;
	/* Different processes can reach its sandboxes: a start is under a file lock. */
	bool is_shared;

	/*
	 * Starts a sandbox for whom (copied). 0: it runs (perhaps it does not
	 * answer yet) and is ours to stop. -EEXIST: it runs already, discover
	 * will find it. -EPERM with words: this backend makes none.
	 */
	void (*create)(struct backend *b, struct backend_op *op, const struct whom *whom);
	/*
	 * Stops it and removes its remains. 0: it is gone, also if it was
	 * before. -EBUSY: somebody else uses it, so it goes on.
	 * -EOPNOTSUPP: this backend stops none.
	 */
	void (*destroy)(struct backend *b, struct backend_op *op, const char *id);
	/* 0 with `alive`: a definite answer. An error: unknown, which is not dead. */
	void (*is_alive)(struct backend *b, struct backend_op *op, const char *id);
	/* 0: it runs, here is its place. -ENOENT: there is none, or it cannot be told. */
	void (*discover)(struct backend *b, struct backend_op *op, const char *id);
	/*
	 * Makes it ours to stop, if an earlier life of this program made it and
	 * nobody else uses it. -EBUSY: somebody does. -ENOENT: gone. NULL: never.
	 */
	void (*adopt)(struct backend *b, struct backend_op *op, const char *id);
	/* All that run here, whoever made them. NULL: none can be listed. */
	void (*list_running)(struct backend *b, struct backend_op *op);
	/* The provider has done with it: it is destroyed or left to others. NULL: no need. */
	void (*forget)(struct backend *b, const char *id);
	/* Now and then: rotating logs and the like. NULL: nothing to do. */
	void (*tend)(struct backend *b);

	/* Ends an open question soon, with -ECANCELED unless it ended otherwise. */
	void (*cancel)(struct backend *b, struct backend_op *op);
	/* Any thread but the loop's, when no question is open. Sandboxes run on. */
	void (*free)(struct backend *b);
};
struct backend {
	const struct backend_ops *ops;
	struct loop *loop;
	/*
	 * Set by the provider; NULL: nobody wants to know. For backends that hear of it: a
	 * sandbox that was created, discovered or adopted has ended, by itself or by somebody's
	 * hand, and what answers at its place from now on is another one. Loop thread, not from
	 * within a function above.
	 */
	void (*ended)(void *ctx, const char *id);
	void *ended_ctx;
};

void backend_free(struct backend *b); /* NULL is fine */

/* For backends: answers the question, later, on the loop's thread. why is copied. */
void backend_answer(struct backend *b, struct backend_op *op, int error, const char *why);
/* Why something failed, in words that the caller frees; NULL if there is no memory for them. */
char *backend_words(const char *fmt, ...) PRINTF_LIKE(1, 2);
