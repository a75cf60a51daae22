/* One sandbox, inside: for the files of client/ only. */
#pragma once

#include <curl/curl.h>
#include <stdatomic.h>

#include "exchange.h"
#include "sandbox.h"
#include "wire.h"

enum tri { UNKNOWN, NO, YES };

/* What is known of the server; loop thread only. */
struct features {
	enum tri bash;  /* /v1/bash */
	enum tri watch; /* /v1/file/watch */
	enum tri aiod;  /* /v1/capabilities */
	enum tri range; /* answered a Range with 206 (or with 200: NO) */
	enum tri find;  /* the sandbox has one that knows -printf (NO, or unknown) */
	mode_t mode;    /* of a file that an upload made, S_IFREG with it; 0: not known */
};

struct lane_state {
	unsigned running, max;
	struct exchange *queue;
};

struct sandbox {
	/* immutable after sandbox_new() */
	struct loop *loop;
	char *base_url; /* without a trailing slash; http://sandbox for a unix socket */
	char *socket;   /* or NULL */
	char *label;    /* for the log */
	char *root;     /* absolute, normal; no trailing slash except "/" */
	char *cacert;   /* or NULL */
	bool insecure;
	bool bypass_proxy;
	bool no_link_local;
	struct curl_slist *credentials; /* headers */

	atomic_int refs;
	atomic_bool closed;
	_Atomic(const char *) dialect; /* static; NULL before a probe */

	struct lock lock; /* with cond: for sandbox_close() to wait on */
	pthread_cond_t cond;
	bool torn_down; /* guarded by lock */
	bool dismissed; /* guarded by lock; the caller's reference is the callback's */
	void (*on_closed)(void *ctx); /* set with dismissed */
	void *on_closed_ctx;
	struct job dismissed_job;

	/* loop thread only */
	struct job close_job, end_job;
	bool closing;        /* only farewells still run */
	struct pool *pool;   /* NULL before the first request and once closed */
	struct wires *wires; /* likewise; wire.h */
	/* For these: of TCP, where libcurl reached the server last, and when. */
	struct wire_address at;
	int64_t at_ms;
	struct lane_state lanes[LANES];
	struct op *ops;
	struct farewell *farewells; /* to be sent at the end */
	unsigned farewells_running;
	unsigned farewells_unheard; /* of farewells: those that were sent in vain */
	bool unfit;                 /* the server's answers are, for wires */
	int64_t heard_ms;           /* when the last whole answer came, or bytes of a file */
	struct features features;
	char modified_said[40]; /* the last Last-Modified of a download, and what it means */
	time_t modified;
	struct sandbox_info *info;        /* of GET /v1/sandbox; NULL until asked */
	struct posix_channel *posix;      /* posix_run.c */
	struct command_channel *commands; /* command.c */
	struct run_channel *runs;         /* run.c */
};

/*
 * Whether an operation may name this path (view.h). If not, that is logged as
 * an error (but for one that is too long) and the call ends with it: the caller
 * just returns.
 */
bool sandbox_allows(struct sandbox *sb, struct call *call, const char *path) MUST_CHECK;

/* The channels of posix_run.c, command.c and run.c: made with the sandbox and freed with it. */
int posix_channel_new(struct posix_channel **ret) MUST_CHECK;
void posix_channel_free(struct posix_channel *ch);
int command_channel_new(struct command_channel **ret) MUST_CHECK;
void command_channel_free(struct command_channel *ch);
int run_channel_new(struct run_channel **ret) MUST_CHECK;
void run_channel_free(struct run_channel *ch);
/* The sandbox is being closed: its shells are to end. Loop thread. */
void run_channel_close(struct sandbox *sb);

/*
 * A request to be sent when the sandbox is closed (half a second at most), so
 * that the server forgets what we made there: a session, a watcher. Loop thread.
 * method must be static, target is copied. Returns a token to withdraw it with, or NULL.
 */
struct farewell *sandbox_add_farewell(struct sandbox *sb, const char *method, const char *target);
/* Sends it now, not waiting for the answer, and forgets it; what the server does not hear is sent
 * once more in the end. NULL is fine. */
void sandbox_say_farewell(struct sandbox *sb, struct farewell *f);
/* The same where a request that makes it may still be on its way: it is sent again for a while. */
void sandbox_insist_farewell(struct sandbox *sb, struct farewell *f);
/* Forgets it unsent. NULL is fine. */
void sandbox_drop_farewell(struct sandbox *sb, struct farewell *f);

/*
 * Keeps the connections of a sandbox that is being closed until it is let go:
 * for operations with op.farewell set. They must end by themselves within half a
 * second of the close. Returns sb, with a reference. Loop thread.
 */
struct sandbox *sandbox_hold(struct sandbox *sb);
void sandbox_let_go(struct sandbox *sb);
