/*
 * The inside of provider/: what its files share.
 *
 * Everything slow happens on the loop's thread, one *flight* at a time per
 * tenant: a chain of questions to the backend and the client that ends in
 * flight_end(), which looks at what is wanted next. Other threads only count
 * leases, park at the last one, and read.
 *
 * Locks, in order: provider.lock → tenant.lock → those of call.h. None is held
 * while a backend, a client or a callback runs. The state is written under both
 * and may be read under either; ACTIVE → WARM is the only step that is made off
 * the loop's thread.
 */
#pragma once

#include "hash.h"
#include "lock.h"
#include "ownership.h"
#include "provider.h"
#include "workers.h"

enum flight {
	FLIGHT_NONE,
	FLIGHT_CHECK, /* active or warm, and somebody says that it is dead */
	FLIGHT_START, /* reclaim, discover, create */
	FLIGHT_ADOPT, /* making it ours */
	FLIGHT_STOP,
};

struct forgetting; /* stop.c */
struct hold;       /* hold.c */
struct orphan;     /* orphan.c */

enum stop_reason {
	STOP_ASKED,    /* tenant_destroy, tenant_forget */
	STOP_DEAD,     /* found dead: only remains are left */
	STOP_IDLE,     /* unused for too long */
	STOP_ROOM,     /* to make room for another */
	STOP_UNREADY,  /* did not get ready */
	STOP_LOST,     /* another has taken it over: it is forgotten */
	STOP_SHUTDOWN, /* the program ends */
};

struct tenant {
	/* ---- hot: every acquire and release ---- */
	struct lock lock;
	enum tenant_state state; /* written under both locks */
	unsigned leases;         /* guarded by lock */
	bool suspect;            /* guarded by lock: to be checked before the next lease */
	struct sandbox *sb;      /* guarded by lock: the client; NULL unless active */
	int64_t used_ms;         /* guarded by lock */
	/* guarded by lock; state: written on the loop's thread, so read there without */
	struct breaker_status breaker;
	struct provider *provider; /* immutable */

	/* ---- immutable ---- */
	char *user, *thread, *key; /* key: "user/thread" */
	char id[SANDBOX_ID_LEN + 1];

	/* ---- guarded by provider.lock ---- */
	unsigned refs; /* holders', and one while in flight */
	int64_t since_ms;
	unsigned starts, restarts;
	bool ours;           /* to stop; written on the loop's thread, as the next two */
	struct place place;  /* where its sandbox is; id "" if it has none */
	double created_wall; /* when we got it */
	char *owner;         /* who has its lease, when we last heard of it; NULL: nobody */
	int last_error;
	char *last_message;
	double error_wall;
	struct tenant *prev, *next; /* the list of its state */
	UT_hash_handle by_key;

	/* ---- loop thread only ---- */
	enum flight flight;
	struct errand *acquirers, *finders, *enders;
	UT_hash_handle by_id; /* provider.holders, while its id is in use */
	bool holds_id;
	bool unproven; /* adopted, and has not answered us yet */
	bool bereaved; /* the one before was found dead */
	unsigned failures;
	int64_t retry_ms; /* FAILED: not before */
	bool in_round;    /* the janitor waits for this flight */
	bool registered;
	unsigned chores;   /* under way; chore.c */
	struct hold *hold; /* our lease of its sandbox; NULL: none */

	struct {                   /* breaker.c; its timers run in doubt or while it is open only */
		ev_timer patience; /* then it is opened, whatever is still asked */
		ev_timer probe;    /* then it is asked again */
		int64_t until_ms;  /* in doubt: a probe that fails after it is the last */
		int64_t since_ms;  /* when it was opened */
		int64_t pause_ms;  /* before the next probe */
		uint64_t refused;  /* breaker.refused, when it was opened */
	} watchdog;

	/* of the flight */
	struct backend_op op;
	bool asking; /* op is open */
	struct ownership_op own_op;
	bool consulting; /* own_op is open */
	bool aborted;    /* the program ends */
	ev_timer timer;
	int64_t deadline_ms;
	bool wanted; /* start.c, as all but the last two: somebody asked for a lease */
	unsigned form, tries;
	bool locking; /* a worker tries the file lock */
	int lock_fd;  /* of the file lock, or -1 */
	int64_t lock_pause_ms;
	struct sandbox *fresh; /* not yet handed out */
	struct call ready;     /* whether it answers */
	bool pinging;          /* `ready` is under way */
	ev_timer watch;        /* meanwhile, whether it lives */
	bool died;
	enum stop_reason reason;    /* stop.c, as the next */
	struct forgetting *put_off; /* until there are no chores */
};

struct provider {
	/* immutable */
	struct loop *loop;
	struct backend *backend;
	struct ownership *ownership;
	char *data; /* or NULL */
	int64_t start_timeout_ms, idle_timeout_ms, janitor_ms;
	unsigned replicas;
	bool auto_restart;
	char *bearer, *api_key, *cacert;
	bool insecure;
	void (*returned)(void *ctx, struct tenant *t);
	void *returned_ctx;
	int64_t (*now_ms)(void *ctx);
	void *now_ctx;
	void (*make_id)(const char *user, const char *thread, char *id);

	struct lock lock;
	struct tenant *tenants;              /* by_key; guarded by lock */
	struct tenant *lists[TENANT_STATES]; /* oldest first; guarded by lock */
	unsigned counts[TENANT_STATES];      /* guarded by lock */
	unsigned busy;        /* flights, closing clients, work on disk; guarded by lock */
	pthread_cond_t quiet; /* with lock: busy == 0 */

	/* loop thread only */
	struct workers *workers;
	struct tenant *holders; /* by_id */
	bool ending;
	ev_timer janitor;
	struct errand *rounds;      /* who waits for the janitor's round */
	struct errand *late_rounds; /* who waits for the next one */
	bool in_round;
	unsigned round_pending; /* flights and questions it waits for */
	unsigned round;         /* its number */
	struct backend_op list_op;
	ev_timer list_timer;
	bool listing; /* list_op is open */
	struct hold *holds;
	ev_timer beat; /* renews them */
	struct orphan *orphans;
};

static inline int64_t provider_now(const struct provider *p)
{
	return p->now_ms(p->now_ctx);
}

/* ---- state.c ---- */

/* The only way from one state to another; the edge must be legal. */
void tenant_move(struct provider *p, struct tenant *t, enum tenant_state to) NEEDS(p->lock)
	NEEDS(t->lock);
/* The same with both locks taken here. */
void tenant_enter(struct tenant *t, enum tenant_state to);
/* On the loop's thread it stays true, but that an active one may be parked meanwhile. */
enum tenant_state tenant_state(struct tenant *t);
bool tenant_edge_is_legal(enum tenant_state from, enum tenant_state to);

/* ---- errand.c; loop thread but for errand_submit ---- */

void errand_submit(struct errand *e, struct provider *p, struct tenant *t,
		   void (*begin)(struct errand *e));
/* Waits in this list until it is finished, its time is over or it is cancelled. */
void errand_wait(struct errand *e, struct errand **list);
void errand_finish(struct errand *e, int error, const char *why);
/* All of a list. */
void errand_finish_all(struct errand **list, int error, const char *why);

/* ---- tenant.c: the table, flights; loop thread but for get and put ---- */

/* The provider is busy / no longer: shutdown waits for it. Any thread. */
void provider_busy(struct provider *p);
void provider_calm(struct provider *p);

void flight_begin(struct tenant *t, enum flight kind);
/* The flight is over: looks what is wanted of the tenant next. May free it. */
void flight_end(struct tenant *t);
/* Starts what is wanted of the tenant, if it is in no flight. */
void tenant_dispatch(struct tenant *t);
/* The flight's question: op->done was set; ends with -ECANCELED after timeout_ms (0: none). */
void flight_ask(struct tenant *t, void (*done)(struct backend_op *op), int64_t timeout_ms);
/* The first thing to be called in its done. */
struct tenant *flight_answered(struct backend_op *op);
/* Frees it, whatever its state; for the end. */
void tenant_discard(struct tenant *t);
/* Forgets those that failed before that time (by the provider's clock) and that nobody holds. */
void tenant_drop_failed(struct provider *p, int64_t before_ms);
/* Remembers what went wrong. */
void tenant_note(struct tenant *t, int error, const char *why);
/* Gives the client up, not waiting. NULL is fine. Any thread. */
void provider_dismiss(struct provider *p, struct sandbox *sb);

/* ---- lease.c ---- */

/* Leases for all who wait. Returns false if it is not active any more. */
bool tenant_grant(struct tenant *t);
/* Starting or warm, with a client (taken over): active, with leases for all who wait; or warm. */
void tenant_install(struct tenant *t, struct sandbox *sb);
int tenant_open_client(struct tenant *t, struct sandbox **ret, const char **ret_why);
/* Whether an error may mean that nobody answers there. */
bool tenant_speaks_of_death(int error);

/* ---- breaker.c ---- */

/* Begins to doubt, with a first probe; in no flight. Not if it does already. */
void breaker_doubt(struct tenant *t);
/* Who wants the tenant's sandbox now is refused (told here), or waits for a probe. */
bool breaker_holds(struct tenant *t);
/* It is to be asked now, not after the pause. */
void breaker_hurry(struct tenant *t);
/* Whether this is no probe, or the first since it failed somebody: then what it finds is news. */
bool breaker_is_new(const struct tenant *t);
/* How a probe (check.c) ended, if not with its end: these end the flight. */
void breaker_answered(struct tenant *t);
void breaker_missed(struct tenant *t, int error, const char *why);
/* Nobody waits any longer: it is known for certain that nothing answers. In no probe, or before
 * breaker_missed(). */
void breaker_open(struct tenant *t, int error, const char *why);
/* There is no sandbox any more that could answer. */
void breaker_reset(struct tenant *t);

/* ---- held.c ---- */

/* Whether another tenant has a sandbox of the same id. */
bool held_collides(const struct tenant *t);
int held_take_id(struct tenant *t) MUST_CHECK;
void held_set_ours(struct tenant *t, bool ours);
/* From an answer. The id is what was asked for, whatever the backend says. */
void held_take_place(struct tenant *t, struct backend_op *op, const char *id);
/* It is not ours to know: the backend is told nothing. */
void held_drop_place(struct tenant *t);
/* Gives the place up, but not the id. */
void held_forget_place(struct tenant *t);
/* The end of having a sandbox. */
void held_drop(struct tenant *t);

/* ---- hold.c: our leases in the ownership store ---- */

/* The question of a flight; done() begins with hold_answered() and clears the op. */
void hold_ask(struct tenant *t, enum ownership_verb verb, const char *id,
	      void (*done)(struct ownership_op *op));
struct tenant *hold_answered(struct ownership_op *op);
/* Whether the answer to LOOK names somebody else. */
bool hold_is_anothers(const struct tenant *t, const struct ownership_op *op);
/* For the status. NULL: nobody, or nobody knows. */
void hold_note_owner(struct tenant *t, const char *owner);

/* It is ours: to be renewed from now on, if it is published, and released in the end. */
int hold_begin(struct tenant *t, const char *id, bool published) MUST_CHECK;
void hold_set_published(struct tenant *t);
/* Made by us, and the store was not told: nobody else can know of it. */
bool hold_is_unpublished(const struct tenant *t);
/* It is being stopped: the mark of that is kept. */
void hold_condemn(struct tenant *t);
/* It goes on, after all. */
void hold_spare(struct tenant *t);
/* Releases the lease, soon. Also if there is none. */
void hold_end(struct tenant *t);
void hold_start(struct provider *p);
void hold_stop(struct provider *p);

/* ---- orphan.c: sandboxes that run and are not ours ---- */

/* Asks whose it is; one that has been nobody's for long enough is adopted. Part of a round. */
void orphan_look(struct provider *p, const struct place *place);
/* Whether it may be claimed: with a shared store only what was nobody's for a whole lease. */
bool orphan_is_due(const struct provider *p, const char *id);
/* The round is over: forgets what is not there any more. */
void orphan_sweep(struct provider *p);
void orphan_free_all(struct provider *p);
/* janitor.c: whether its tenant can and may have it; and makes it ours. */
bool janitor_may_adopt(const struct tenant *t, const char *id);
void janitor_adopt(struct tenant *t);

/* ---- chore.c ---- */

/*
 * Tries the file lock of the tenant's start, once, and makes its directories;
 * then() gets 0 (t->lock_fd is set), -EAGAIN, or another error. -ENOMEM: it will not.
 */
int chore_lock(struct tenant *t, void (*then)(struct tenant *t, int error)) MUST_CHECK;
/* Removes the lock that we have, if any; soon. */
void chore_unlock(struct tenant *t);
/* Removes the lock of a start that was killed; soon, or at once (on a worker). */
void chore_sweep(struct tenant *t);
void chore_sweep_now(const struct tenant *t);
/* Makes the thread known to the next life. */
void chore_register(struct tenant *t);

/* ---- the flights ---- */

/* check.c: the backend says so; ctx is the provider. */
void check_on_ended(void *ctx, const char *id);

void check_begin(struct tenant *t);   /* active or warm, in doubt or open: a probe */
void reclaim_begin(struct tenant *t); /* warm and wanted */
void start_begin(struct tenant *t);   /* cold or failed, and wanted */
/* Within a flight: makes sure that it answers before it is handed out. */
void start_prove(struct tenant *t);
/* The program ends: any flight but one that stops ends soon. */
void start_abort(struct tenant *t);
void stop_begin(struct tenant *t, enum stop_reason reason);
/* Within a flight of another kind: stopping is how it ends. */
void stop_instead(struct tenant *t, enum stop_reason reason);
/* The last of a tenant's chores is done. */
void stop_chores_done(struct tenant *t);
/* Stops the oldest warm ones as long as there are too many, with the one to come. */
void janitor_make_room(struct provider *p, const struct tenant *newcomer);
/* A flight that a round waits for is over. */
void janitor_landed(struct provider *p);
void janitor_start(struct provider *p);
void janitor_stop(struct provider *p);
