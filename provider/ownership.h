/*
 * Whose a sandbox is, where others can read it: a store of leases with a time to
 * live, shared with deer-flow's gateways and other mounts, or, where nobody
 * shares anything, this process's memory. The store knows rules and nothing
 * else; what they mean for a sandbox is hold.c's and the flights' business.
 *
 * A question is started and answered later, exactly once, on the loop's thread,
 * never before ownership_ask() has returned; its memory is the asker's. There is
 * no way to take one back: each is answered within a few seconds. Questions
 * are put to the store in the order in which they are asked.
 */
#pragma once

#include "loop.h"
#include "ownership_config.h"

enum ownership_verb {
	OWNERSHIP_TAKE,    /* it is mine from now on, also if it was another's */
	OWNERSHIP_CLAIM,   /* it is mine, if it is nobody's */
	OWNERSHIP_CONDEMN, /* I am about to stop it ("claim for destroy"), if it is not another's */
	OWNERSHIP_RENEW,   /* it stays mine */
	OWNERSHIP_RELEASE, /* it is not mine any more */
	OWNERSHIP_LOOK,    /* whose is it? */
	OWNERSHIP_VERBS
};

enum ownership_verdict {
	OWNERSHIP_LAPSED = -1, /* RENEW: it is nobody's */
	OWNERSHIP_REFUSED = 0, /* RELEASE: there was nothing to release */
	OWNERSHIP_GRANTED = 1,
};

struct ownership_op {
	/* set by the asker */
	void (*done)(struct ownership_op *op); /* may ask again with the same op */

	/* the answer, valid in done(); owned by the asker from then on */
	int error; /* negative: the store did not answer, so nothing is known */
	char *why; /* words about it; may be NULL */
	enum ownership_verdict verdict;
	char *owner;    /* LOOK; NULL: nobody */
	bool condemned; /* LOOK: the owner is stopping it */
	struct job job; /* the store's while the question is open */
};
/* Frees the answer and makes the op ready for another question. */
void ownership_op_clear(struct ownership_op *op);

struct ownership;
struct ownership_ops {
	void (*ask)(struct ownership *o, struct ownership_op *op, enum ownership_verb verb,
		    const char *id);
	/* Any thread but the loop's, when no question is open. */
	void (*free)(struct ownership *o);
};
enum { OWNERSHIP_OWNER_MAX = 320 };
struct ownership {
	const struct ownership_ops *ops;
	struct loop *loop;
	bool sees_peers; /* it is shared: others read and write it, too */
	int64_t renewal_ms, ttl_ms;
	char owner[OWNERSHIP_OWNER_MAX]; /* what we are called: "<hostname>:<32 hex>" */
};

/*
 * Makes the store that config describes; NULL is memory. Connects to nothing
 * yet. Not on the loop's thread. Returns 0, or a negative errno with words in
 * ret_why (static).
 */
int ownership_new(struct loop *loop, const struct ownership_config *config, struct ownership **ret,
		  const char **ret_why) MUST_CHECK;
void ownership_free(struct ownership *o); /* NULL is fine */
/* Loop thread. id is copied. */
void ownership_ask(struct ownership *o, struct ownership_op *op, enum ownership_verb verb,
		   const char *id);

/* ---- for stores ---- */

/* Fills in what all stores have. */
int ownership_init(struct ownership *o, const struct ownership_ops *ops, struct loop *loop,
		   const struct ownership_config *config, const char **ret_why) MUST_CHECK;
/* Answers, later, on the loop's thread; the other fields of the answer have been set. */
void ownership_answer(struct ownership *o, struct ownership_op *op, int error, const char *why);

int ownership_memory_new(struct loop *loop, const struct ownership_config *config,
			 struct ownership **ret, const char **ret_why) MUST_CHECK;
/* -EOPNOTSUPP in a build without hiredis. */
int ownership_redis_new(struct loop *loop, const struct ownership_config *config,
			struct ownership **ret, const char **ret_why) MUST_CHECK;
