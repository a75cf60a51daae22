/*
 * Which sandbox serves which thread: the public face of provider/.
 *
 * A *tenant* is one (user, thread) and the record of its sandbox. Leases say
 * that somebody uses it: while there is one, the sandbox is neither parked nor
 * stopped by us. Any thread may call any function here unless it says
 * otherwise; none of them blocks but where it says so.
 *
 *	r = tenant_try_acquire(t);	0: there is a lease
 *	if (r == -EAGAIN)
 *		tenant_acquire(t, &e);	e.call tells when; may start a sandbox
 *	sb = tenant_sandbox(t);		counted; NULL if it died meanwhile
 *	sandbox_download(sb, …);
 *	if (it failed && tenant_report(t, sb, error))
 *		acquire again, retry once if that is safe, release that lease
 *	sandbox_put(sb);
 *	tenant_release(t);
 */
#pragma once

#include "backend.h"
#include "ownership_config.h"
#include "sandbox.h"

struct provider;
struct tenant;

/* ---- life ---- */

struct provider_config {
	struct loop *loop;        /* must outlive the provider */
	struct backend *backend;  /* taken over, also on failure */
	const char *data;         /* data root, absolute; NULL: none, nothing is kept */
	int64_t start_timeout_ms; /* of a sandbox start; 0: 60,000 */
	int64_t idle_timeout_ms;  /* warm ones older than that are stopped; 0: never */
	int64_t janitor_ms;       /* how often it looks; 0: only by provider_tick() */
	unsigned replicas;        /* soft cap on active and warm; 0: none */
	bool no_auto_restart;     /* a dead sandbox stays as it is */
	/* where it is written whose a sandbox is; copied; NULL: in memory */
	const struct ownership_config *ownership;

	/* for every sandbox's client; see struct sandbox_config */
	const char *bearer, *api_key, *cacert;
	bool insecure;

	/*
	 * Or NULL: a sandbox that was known not to answer answers again. Loop thread; must not
	 * wait.
	 */
	void (*returned)(void *ctx, struct tenant *t);
	void *returned_ctx;

	/* for tests */
	int64_t (*now_ms)(void *ctx); /* NULL: clock_ms */
	void *now_ctx;
	void (*make_id)(const char *user, const char *thread, char *id); /* NULL: ident_make */
};

/*
 * Makes a provider and starts to look for sandboxes that an earlier life left
 * (provider_reconcile). May read the disk. Returns 0, or a negative errno with
 * words in ret_why where there are any (static). ret_why may be NULL.
 */
int provider_new(const struct provider_config *config, struct provider **ret,
		 const char **ret_why) MUST_CHECK;
/*
 * Ends what is under way, closes every client, stops what is ours, leaves what
 * is not. Acquires fail with -ESHUTDOWN from now on. Blocks, at most about
 * PROVIDER_SHUTDOWN_MS; what has not ended by then is left behind and logged
 * (-ETIMEDOUT). Idempotent; not on the loop's thread.
 */
enum { PROVIDER_SHUTDOWN_MS = 20000 };
int provider_shutdown(struct provider *p);
/*
 * Shuts down and frees; every tenant must have been put. NULL is fine. If the
 * shutdown timed out, nothing is freed, and the loop must not be, either: ask
 * provider_shutdown() first.
 */
void provider_free(struct provider *p);

/* ---- errands ---- */

/*
 * Something asked of the provider that may take its time. The memory is the
 * caller's, as is the tenant's reference until it is done.
 *
 *	struct errand e;
 *	call_init(&e.call, 30000);
 *	tenant_acquire(t, &e);
 *	r = call_wait(&e.call);
 *	call_release(&e.call);
 *
 * or with e.call.done; call_cancel() works as ever (call.h).
 */
struct errand {
	struct call call;

	/* private to provider/; loop thread only */
	struct provider *provider;
	struct tenant *tenant;
	void (*begin)(struct errand *e);
	struct errand **list; /* where it waits; NULL: nowhere */
	bool forget;
	ev_timer timer;
	struct errand *prev, *next;
};

/* ---- tenants ---- */

/*
 * The record of (user, thread), made if there is none; nothing is started and
 * nothing is written. -EINVAL: not an id. To be given back with tenant_put().
 */
int tenant_get(struct provider *p, const char *user, const char *thread,
	       struct tenant **ret) MUST_CHECK;
void tenant_put(struct tenant *t); /* NULL is fine */

const char *tenant_user(const struct tenant *t);
const char *tenant_thread(const struct tenant *t);
const char *tenant_id(const struct tenant *t);

/* ---- leases ---- */

/*
 * A lease if the sandbox is active and sound: 0. Otherwise -EAGAIN, and
 * tenant_acquire() is the way. Never does I/O.
 */
int tenant_try_acquire(struct tenant *t) MUST_CHECK;

/*
 * A lease, with whatever that takes: checking, reclaiming, finding or starting
 * the sandbox. Ends with 0 (release it once), -ETIMEDOUT, -ECANCELED,
 * -ESHUTDOWN, -EHOSTDOWN at once while it is known that the sandbox does not
 * answer (breaker.c), or why it could not be started. Giving up does not stop a start
 * that others may wait for; a start that nobody waits for is not carried on to
 * making a sandbox.
 */
void tenant_acquire(struct tenant *t, struct errand *e);
/*
 * Whether there is a sandbox of it, here or running elsewhere: 0 or -ENOENT,
 * or an error if that cannot be told. Never makes one, takes no lease.
 */
void tenant_find(struct tenant *t, struct errand *e);
/* Gives one lease up; the last one parks the sandbox. -EINVAL, logged: there was none. */
int tenant_release(struct tenant *t);

/*
 * The client of the sandbox that serves the tenant now, counted (sandbox_put),
 * or NULL. Memory only; counts as activity.
 */
struct sandbox *tenant_sandbox(struct tenant *t) MUST_CHECK;
/*
 * An operation with this client failed. If the error speaks of a dead
 * connection, the next acquire makes sure that the sandbox lives. Returns
 * whether acquiring anew can help (never without auto_restart).
 */
bool tenant_report(struct tenant *t, struct sandbox *sb, int error);

/*
 * Loop thread only. An operation with this client has timed out, and nothing else was
 * heard of the sandbox meanwhile: whether it answers is asked at once, and who
 * acquires waits for that, a second at most.
 */
void tenant_silent(struct tenant *t, struct sandbox *sb);

/*
 * Stops the sandbox, whoever holds leases (they stay counted). Ends with 0, or
 * -EBUSY if somebody else owns or uses it and it goes on, -EOPNOTSUPP if the
 * backend stops none, or another errno.
 */
void tenant_destroy(struct tenant *t, struct errand *e);
/*
 * Destroys, and forgets the thread: its directories, if they hold nothing
 * (-ENOTEMPTY: all stays, the sandbox is not even stopped), and its place in the
 * registry.
 */
void tenant_forget(struct tenant *t, struct errand *e);

/* ---- what there is ---- */

enum tenant_state {
	TENANT_COLD,     /* no sandbox */
	TENANT_STARTING, /* looked for, made, or checked before it is handed out */
	TENANT_ACTIVE,   /* in use */
	TENANT_WARM,     /* runs, unused */
	TENANT_STOPPING,
	TENANT_FAILED, /* could not be started; error and words say why */
	TENANT_STATES
};
const char *tenant_state_name(enum tenant_state s);

/* Whether the sandbox answers, as far as is known. */
enum breaker_state {
	BREAKER_CLOSED, /* it does */
	BREAKER_DOUBT,  /* it failed somebody, and is being asked; who wants it waits for that */
	BREAKER_OPEN,   /* it does not: acquires fail at once, until it answers a probe */
	BREAKER_STATES
};
const char *breaker_state_name(enum breaker_state s);

struct breaker_status {
	enum breaker_state state;
	double since_wall; /* when it was opened; 0 unless it is open */
	uint64_t opened;   /* so many times */
	uint64_t refused;  /* acquires that failed at once */
	uint64_t probes;   /* times that it was asked whether it answers */
};

struct tenant_status {
	char *user, *thread;
	char id[SANDBOX_ID_LEN + 1];
	enum tenant_state state;
	unsigned leases;
	bool ours;          /* to stop */
	int64_t since_ms;   /* in this state, by the provider's clock */
	int64_t used_ms;    /* last activity */
	unsigned starts;    /* sandboxes started or found so far */
	unsigned restarts;  /* of these, because the one before was dead */
	int last_error;     /* 0: none */
	char *last_message; /* or NULL */
	double error_wall;  /* when that was; 0: never */

	struct breaker_status breaker;

	/* the sandbox that there is now */
	char *url;           /* "http://…" or "unix:/path/of/the/socket"; NULL: none */
	pid_t pid;           /* of its process on this machine; 0: none, or not known */
	char *owner;         /* who has its lease, as last heard; NULL: nobody, or not known */
	double created_wall; /* when it was started or found; 0: none */
	double used_wall;    /* last activity, of this one or those before; 0: never */
	char dialect[8];     /* as sandbox_dialect(); "" too while nobody has a lease */
};
struct tenant_list {
	struct tenant_status *items;
	size_t count;
};
/* All tenants in memory, sorted by user and thread. Never waits for a network. */
int provider_status(struct provider *p, struct tenant_list *ret) MUST_CHECK;
int tenant_status(struct tenant *t, struct tenant_status *ret) MUST_CHECK;
void tenant_status_release(struct tenant_status *s);
void tenant_list_release(struct tenant_list *l);
/*
 * The names of a user's known threads: in memory, in the registry, or with a
 * directory under the data root. Sorted; reads the disk. For the caller to free
 * (each and the array).
 */
int provider_threads(struct provider *p, const char *user, char ***ret,
		     size_t *ret_count) MUST_CHECK;

/* ---- the janitor ---- */

/* One round now, by the provider's clock; ends when what it began has ended. */
void provider_tick(struct provider *p, struct errand *e);
/* Adopts what an earlier life left. Part of every round, and done at the start. */
void provider_reconcile(struct provider *p, struct errand *e);
