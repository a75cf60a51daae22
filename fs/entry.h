/*
 * Names as the kernel gets them: nodes for what the sandbox said, and answers
 * about them. Loop thread only.
 */
#pragma once

#include "node.h"
#include "trip.h"

/* How long the kernel may believe attributes, names. */
#define ATTR_SECONDS  1.0
#define ENTRY_SECONDS 0.0

/*
 * The node for a name of which the sandbox said this: the one that is there, or
 * a new one if there is none or it was another file. Counted. -ENOENT: not to be shown (a hidden
 * link).
 */
int entry_adopt(struct node *dir, const char *name, const struct attr *attr, bool current,
		struct node **ret) MUST_CHECK;
void entry_fill(struct node *n, struct fuse_entry_param *ret);
/* Answers with the node, which the kernel then counts. */
void entry_reply(struct parked *p, struct node *n);

/* What a name in a directory of a sandbox is, if that can be told without asking: 0 with a
 * counted node, -ENOENT, or -EAGAIN. */
int entry_known(struct node *dir, const char *name, struct node **ret) MUST_CHECK;
/* Nothing in that directory is to be believed, nor its own attributes. */
void entry_void_dir(struct node *dir);

/* done() for a trip whose t->attr is of t->name in t->node: answers with that entry. */
void entry_done(struct trip *t, int err);
/* done() for a change of that name: then looks at it, and answers as above. */
void entry_changed(struct trip *t, int err);
