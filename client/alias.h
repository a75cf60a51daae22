/*
 * A name that HTTP can carry for one that it cannot: routes take paths as
 * UTF-8 text, file names are any bytes. A symbolic link in the sandbox's /tmp
 * stands for the path meanwhile. As a step of an operation; loop thread only.
 *
 *	if (alias_needed(path))
 *		alias_start(&o->alias, &o->op, path, ALIAS_FILE, on_alias);
 *
 * then use o->alias.path in the request, and alias_release() in the operation's.
 */
#pragma once

#include "posix_run.h"
#include "uuid.h"

enum alias_kind {
	ALIAS_FILE, /* which need not exist: a server that creates it does so where the link leads
		     */
	ALIAS_DIR,  /* must be a directory: -ENOENT, -ENOTDIR otherwise */
};

struct alias {
	char path[UUID_LEN + sizeof("/tmp/.threadfs-")]; /* "" while there is none */
	char *message; /* the server's words on failure; or NULL */

	/* private to alias.c */
	struct posix_run run;
	void (*done)(struct alias *a, int err);
};

/* Whether a request cannot name this path. */
bool alias_needed(const char *path);

/* Makes a link to the path; done() says whether. At most once per alias. */
void alias_start(struct alias *a, struct op *op, const char *path, enum alias_kind kind,
		 void (*done)(struct alias *a, int err));
/* Removes the link, without waiting, and frees. Harmless on zeroes. */
void alias_release(struct alias *a);
