/*
 * Private to the embedded backend: what its files share.
 *
 *	backend_embedded.c	the backend's life, and the questions that only look
 *	embedded_start.c	create
 *	embedded_stop.c		destroy
 *	embedded_task.c		one question: its steps on workers, its pauses, its end
 *	embedded_den.c		the runtime directory of one sandbox: files and locks
 *	embedded_log.c		its log
 *	embedded_process.c	a process
 *
 * Who holds which lock decides who may do what; the kernel drops the locks of
 * the dead:
 *
 * - `users` comes first, always. Shared: it will not be stopped or removed under
 *   us. Exclusive: nobody else uses it, or will before we are through; only so
 *   may it be stopped, and files removed.
 * - `alive`, exclusively, is the sandbox's own. Whoever starts it takes the lock
 *   and hands it down, so that there is no moment in which it runs without.
 *   Whoever only wants to know asks for a shared one.
 */
#pragma once

#include "backend_embedded.h"
#include "embedded_process.h"
#include "hash.h"
#include "workers.h"

/* ---- embedded_den.c: blocks on the disk, for workers ---- */

enum { DEN_PATH = 108, DEN_HASH = 12 }; /* a socket's path must fit */

struct den {
	char root[DEN_PATH], id[SANDBOX_ID_LEN + 1];
	char dir[DEN_PATH], sock[DEN_PATH], pid[DEN_PATH]; /* for others, and for messages */
};

bool den_is_id(const char *name);
/* Whether socket paths below this directory fit. */
bool den_fits(const char *root);
void den_init(struct den *d, const char *root, const char *id);
/* A descriptor; -ELOOP, -ENOTDIR: it is none, -EPERM: others may write there. */
int den_open_root(const char *root) MUST_CHECK;

/* Makes the directory and takes `users`, shared. -EAGAIN: it is being removed. */
int den_enter(const struct den *d, int *ret_users) MUST_CHECK;
/*
 * Takes `users`, made if missing and wanted: a descriptor, or what filelock_try()
 * says. This and all the others: -ELOOP, -ENOTDIR, -EPERM if the directory or the
 * file is not one of ours.
 */
int den_lock_users(const struct den *d, bool exclusive, bool make) MUST_CHECK;
/* Takes `alive`, exclusively: a descriptor, -EEXIST: it lives, -EAGAIN: somebody is looking. */
int den_claim(const struct den *d) MUST_CHECK;
/* 1, 0, or a negative errno: it cannot be told. */
int den_is_alive(const struct den *d) MUST_CHECK;
/* The sandbox's process; with `users` held exclusively. -ESRCH. */
int den_find(const struct den *d, struct process *ret) MUST_CHECK;
/* root: where the sandbox has its files if that is not the usual place; else NULL. */
int den_write_who(const struct den *d, const char *user, const char *thread,
		  const char *root) MUST_CHECK;
/* Its place; user and thread stay NULL if `who` is damaged. 0 or -ENOMEM. */
int den_place(const struct den *d, struct place *ret) MUST_CHECK;
/*
 * With `alive` ours: removes what an earlier sandbox left, but the locks.
 * -ESTALE: the directory is not the one any more in which we took it.
 */
int den_sweep(const struct den *d, int alive) MUST_CHECK;
/* Removes everything, with both locks held exclusively, and gives them up. */
void den_remove(const struct den *d, int users, int alive);
/*
 * With `users` held exclusively: removes a dead one's remains, and gives up the
 * lock. -EEXIST, -EAGAIN: as den_claim(), -ESTALE: as den_sweep(), and the lock
 * is still ours.
 */
int den_bury(const struct den *d, int users) MUST_CHECK;

/* ---- embedded_log.c: blocks on the disk, for workers ---- */

/* Opens DATA/logs/ID.log for appending, rotated if it is larger than max. */
int log_open(const char *data, const char *id, int64_t max) MUST_CHECK;
void log_rotate(const char *data, const char *id, int64_t max);
/* What it said last from an offset on, in one line, for the caller to free; NULL: nothing. */
char *log_last_words(int fd, int64_t from);

/* ---- the backend ---- */

/* A sandbox that we use. */
struct resident {
	char id[SANDBOX_ID_LEN + 1];
	int users; /* the shared lock */
	UT_hash_handle hh;
};

/* A child of ours that runs; kept until it ends, whoever uses it. */
struct child {
	struct process process; /* first */
	struct embedded *e;
	struct child *prev, *next;
};

/* Loop thread only, but for what is immutable after init. */
struct embedded {
	struct backend b;
	char *data, *root, *program, *dialect; /* immutable */
	bool no_isolation, net_host;           /* immutable */
	int64_t ready_ms, log_max;             /* immutable */
	struct workers *workers;
	struct resident *residents; /* by id */
	struct child *children;
	struct task *tasks;
	bool tending;
};

/* Takes the lock over; another one of ours on the same sandbox is given up. */
void embedded_keep(struct embedded *e, const char *id, int users);
/* The lock, not ours any more then; or -1. */
int embedded_take(struct embedded *e, const char *id);

/* ---- embedded_task.c: loop thread ---- */

/* While a worker has it (`working`), the loop touches nothing but the two flags. */
struct task {
	struct work work; /* first */
	struct embedded *e;
	struct backend_op *op; /* NULL: nobody asked */
	char id[SANDBOX_ID_LEN + 1];
	struct den den;

	void (*run)(struct task *t);    /* on a worker */
	void (*then)(struct task *t);   /* on the loop, after it */
	void (*cancel)(struct task *t); /* on the loop, when no worker has it */
	bool working, cancelled, forgotten;
	ev_timer timer;
	struct task *prev, *next;

	int users;          /* a lock, or -1; kept after a success */
	int r;              /* how the step went */
	char *why;          /* in words */
	int64_t give_up_ms; /* when to stop trying, by clock_ms() */

	/* start and stop */
	char *user, *thread;
	char *root; /* of the view, if it is not the usual one */
	struct process process;
	unsigned phase;
	bool stuck, vanishing;
	bool exclusive, was_resident; /* about `users` */
	int error;                    /* what the answer will be */
	char blame[64];               /* what was seen of it; its log may say more */
	int ready_fd, log_fd;
	int64_t log_from;
	ev_io ready;
	char heard[32];
	size_t heard_len;

	/* tend */
	char (*ids)[SANDBOX_ID_LEN + 1];
	size_t nids;
};

/*
 * A task for a question; NULL, and the question is answered, if there is no
 * memory or the id is none (error: what that means). op may be NULL.
 */
struct task *task_new(struct embedded *e, struct backend_op *op, const char *id, int error);
void task_work(struct task *t, void (*run)(struct task *t), void (*then)(struct task *t));
/* Repeats the last step's work soon. */
void task_again(struct task *t);
/* Whether there is time for that; false also when it was cancelled. */
bool task_may_wait(const struct task *t);
/* Sets words, unless there are some. */
void task_say(struct task *t, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Answers, and frees the task. With 0 the lock `users` is kept, else given up. */
void task_end(struct task *t, int error);
void task_cancel(struct task *t);
/* For task.cancel where all that is left is to tidy up: it is too late. */
void task_go_on(struct task *t);

enum stop_phase { STOP_WAIT, STOP_TERM, STOP_KILL, STOP_PHASES };
/*
 * Waits for the end of t->process, helping it along from the given phase on;
 * then: as for work. t->stuck: it did not end.
 */
void task_stop_process(struct task *t, enum stop_phase from, void (*then)(struct task *t));

/* ---- embedded_start.c, embedded_stop.c: loop thread ---- */

void embedded_create(struct backend *b, struct backend_op *op, const struct whom *whom);
void embedded_destroy(struct backend *b, struct backend_op *op, const char *id);
