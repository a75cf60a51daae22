/*
 * A session of ours on the server: its name, and what ends it. What runs there,
 * and when, is its owner's business. Loop thread only, but for session_name().
 */
#pragma once

#include "exchange.h"
#include "json.h"

enum {
	SESSION_ID_MAX = 128,
	SESSION_SILENCE_S = 600, /* what a command in a shell may take without output */
};

enum session_kind { SESSION_SHELL, SESSION_BASH };

struct session {
	enum session_kind kind;
	char id[SESSION_ID_MAX + 1]; /* "": none */
	bool made;                   /* the server said that it knows it; shell only */
	struct farewell *farewell;   /* ends it, and what still runs there */
};

#define SESSION_PREFIX "threadfs-"

/* Any thread: a random name, as others may use the server too, even another of us. */
void session_name(struct session *s, enum session_kind kind, const char *prefix);
/*
 * From now on it ends with the sandbox. To be called before the request that
 * makes it: whoever is interrupted there does not know whether it was made.
 */
void session_begin(struct sandbox *sb, struct session *s);
/* Leaves it, and what runs there, to itself. */
void session_forget(struct sandbox *sb, struct session *s);
/* Ends it now, with what still runs there. Harmless if there is none. */
void session_end(struct sandbox *sb, struct session *s);
/* The same when a request was given up that may yet reach the server, and would make it anew. */
void session_abandon(struct sandbox *sb, struct session *s);
/* Ends one that the server made by itself, whatever its name is. */
void session_end_id(struct sandbox *sb, enum session_kind kind, const char *id);

/*
 * Makes x the request that makes a shell session, to be started by the caller.
 * dir NULL: where the server likes. May be sent twice: an id that exists is no
 * error.
 */
void session_ask(const struct session *s, struct exchange *x, struct op *op, const char *dir,
		 void (*done)(struct exchange *, int err));
/* Takes its good answer. Returns 0 or -EBADMSG. */
int session_adopt(struct sandbox *sb, struct session *s, const cJSON *data) MUST_CHECK;
