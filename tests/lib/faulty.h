/*
 * A backend that passes questions on to another one, except where it was
 * ordered to misbehave. For tests of the provider:
 *
 *	struct faulty *f;
 *	config.backend = faulty_new(backend, &f);
 *	FAULTY_ORDER(f, ASK_CREATE, .fault = FAULT_FAIL, .error = -ENOSPC, .why = "full");
 *	FAULTY_ORDER(f, ASK_IS_ALIVE, .fault = FAULT_HANG, .times = FAULTY_FOREVER);
 *
 * Each kind of question has a queue of orders; a question takes the first one.
 * Orders come from any thread, until the backend is freed. Whatever cannot
 * happen in a test (no memory) aborts.
 */
#pragma once

#include "ask.h"

struct faulty;

enum fault {
	FAULT_NONE,  /* this one goes well: for "the third fails" */
	FAULT_FAIL,  /* answers with error and why; the inner backend is not asked */
	FAULT_HANG,  /* not before faulty_resume(), then asked; cancelled: -ECANCELED */
	FAULT_SLOW,  /* asked after ms; cancelled meanwhile: -ECANCELED */
	FAULT_DIE,   /* asked, and if that went well the sandbox is killed before the answer */
	FAULT_WRONG, /* asked, and a lie is told; see below */
	FAULT_AFTER, /* asked, and whatever it did, the answer is error and why */
};
/*
 * The lies: is_alive says the opposite of a definite answer. create, discover
 * and adopt name a socket where nobody listens (discover also if there is
 * none). list_running has one more, FAULTY_MADE_UP. destroy knows none.
 */
#define FAULTY_MADE_UP "0123456789abcdef"

#define FAULTY_FOREVER UINT32_MAX

struct fault_order {
	enum fault fault;
	int error;       /* FAIL, AFTER */
	const char *why; /* likewise; copied; may be NULL */
	int64_t ms;      /* SLOW */
	unsigned times;  /* how many questions; 0: one */
};

/* Takes inner over; the handle is valid until the backend is freed. */
struct backend *faulty_new(struct backend *inner, struct faulty **ret_handle);

/* Adds an order after those there are. */
void faulty_order(struct faulty *f, enum ask_kind kind, const struct fault_order *order);
#define FAULTY_ORDER(f, kind, ...) faulty_order((f), (kind), &(struct fault_order){ __VA_ARGS__ })
/* Forgets the orders of all kinds. Questions that hang or wait go on doing so. */
void faulty_clear(struct faulty *f);
/* All that hang of this kind go on to the inner backend. */
void faulty_resume(struct faulty *f, enum ask_kind kind);
/* For FAULT_DIE: which process a sandbox is; called on the loop's thread. 0: none. */
void faulty_set_pid_of(struct faulty *f, pid_t (*pid_of)(void *ctx, const char *id), void *ctx);

/* ---- what happened ---- */

/* Questions that have come; and those that have been answered. */
unsigned faulty_count(struct faulty *f, enum ask_kind kind);
unsigned faulty_answered(struct faulty *f, enum ask_kind kind);
/* Waits until the n-th question of this kind has come. Returns whether. */
bool faulty_wait(struct faulty *f, enum ask_kind kind, unsigned n, int timeout_ms) MUST_CHECK;
/* The i-th question of all (from 0), at most FAULTY_LOG_MAX are kept. Returns whether there is. */
enum { FAULTY_LOG_MAX = 100000 };
struct faulty_event {
	enum ask_kind kind;
	char id[SANDBOX_ID_LEN + 1]; /* "" for list_running */
};
bool faulty_event(struct faulty *f, size_t i, struct faulty_event *ret) MUST_CHECK;
