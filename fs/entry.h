/*
 * Names as the kernel gets them: nodes for what the sandbox said, answers about
 * them and how long they may be believed, and what our own changes mean for what is known
 * of a directory. Loop thread only.
 */
#pragma once

#include "node.h"
#include "trip.h"

/* How long the kernel may believe attributes of what is ours or being written here. */
#define ATTR_SECONDS 1.0
/* And what is above the sandboxes, on every path: names and attributes. */
#define ROOT_SECONDS 1.0

/*
 * The node for a name of which the sandbox, asked then, said this: the one that is there, or
 * a new one if there is none or it was another file. current: nothing happened to it
 * since. Counted. -ENOENT: not to be shown (a hidden link).
 */
int entry_adopt(struct node *dir, const char *name, const struct attr *attr, int64_t asked_ms,
		bool current, struct node **ret) MUST_CHECK;
/*
 * With how long the kernel may have it: while the watch is live for good, as it is told of
 * changes then; otherwise for what is left of their second.
 */
void entry_fill(struct node *n, struct fuse_entry_param *ret);
double entry_attr_seconds(const struct node *n);
/* Answers with the node, which the kernel then counts. */
void entry_reply(struct parked *p, struct node *n);
/* Answers that there is no such name, as the sandbox said when it was asked then (and nothing is
 * known to have happened since). */
void entry_reply_absent(struct parked *p, struct node *dir, const char *name,
			const struct moment *asked);

/* What a name in a directory of a sandbox is, if that can be told without asking: 0 with a
 * counted node, -ENOENT, or -EAGAIN. */
int entry_known(struct node *dir, const char *name, struct node **ret) MUST_CHECK;

/* ---- our own changes, once they are done; the directory has other times then ---- */

/* The name is there; attr, of the moment asked, may be NULL: not known. */
void entry_made(struct node *dir, const char *name, const struct attr *attr);
void entry_removed(struct node *dir, const char *name);
void entry_moved(struct node *dir, const char *name, struct node *to_dir, const char *to_name);
/* Perhaps: it failed, and who knows at which step. */
void entry_doubted(struct node *dir, const char *name);
/* It was emptied or made here: it has nothing in it. */
void entry_is_empty_dir(struct node *n, const struct moment *asked);
/* The directory itself has other times, and so many more directories in it; the kernel is told
 * unless the change was its own. */
void entry_dir_changed(struct node *dir, int subdirs, bool tell);

/* done() for a trip whose t->attr is of t->name in t->node: answers with that entry. */
void entry_done(struct trip *t, int err);
