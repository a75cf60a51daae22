/*
 * Asking a backend (backend.h) from a test's thread, and waiting for what it
 * says.
 *
 *	struct ask a;
 *	assert_int_equal(ask(&a, b, ASK_DISCOVER, id), 0);
 *	… a.op.place …
 *	ask_release(&a);
 */
#pragma once

#include "backend.h"
#include "lock.h"

enum ask_kind {
	ASK_CREATE,
	ASK_DESTROY,
	ASK_IS_ALIVE,
	ASK_DISCOVER,
	ASK_ADOPT,
	ASK_LIST_RUNNING,
	ASK_KINDS
};
const char *ask_kind_name(enum ask_kind kind);

/* Loop thread: hands the question to the backend. */
void ask_backend(struct backend *b, struct backend_op *op, enum ask_kind kind,
		 const struct whom *whom);

struct ask {
	struct backend_op op; /* the answer, once done */

	/* private */
	struct backend *backend;
	enum ask_kind kind;
	struct whom whom;
	struct job start_job, cancel_job;
	bool returned; /* loop thread: the backend's function has */
	struct lock lock;
	pthread_cond_t cond;
	bool done;      /* guarded by lock */
	unsigned times; /* guarded by lock: how often it was answered */
	bool early;     /* guarded by lock: before the function had returned */
};

/* The strings must live until the answer. user and thread are for ASK_CREATE. */
void ask_start(struct ask *a, struct backend *b, enum ask_kind kind, const struct whom *whom);
/* Not before ask_start(), and not after ask_release(). */
void ask_cancel(struct ask *a);
bool ask_has_ended(struct ask *a);
/* Waits for the answer; false if none comes in time. */
bool ask_wait(struct ask *a, int64_t timeout_ms) MUST_CHECK;
/* Waits for the end, however long, and frees it. */
void ask_release(struct ask *a);

/*
 * All at once, with 60 s; returns the answer's error, or -ETIME. The answer is
 * to be released. Aborts if it came before its time.
 */
int ask(struct ask *a, struct backend *b, enum ask_kind kind, const char *id) MUST_CHECK;
