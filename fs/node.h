/*
 * The inode table: every name that the kernel or an open file knows. A node is
 * a place in the tree (parent and name); its path follows from there, so
 * renaming a directory moves what is below. Inode numbers towards the kernel
 * count up and are never used again, so the generation is always the same.
 * Loop thread only.
 */
#pragma once

#include <fuse_lowlevel.h>

#include "fs.h"
#include "hash.h"
#include "journal.h"

struct absent;
struct ctl_dir;
struct ctl_file;
struct listing;
struct stage;

enum node_kind {
	NODE_CTL_DIR,  /* ours: the root, threads/, .ctl/, jobs/ … */
	NODE_CTL_FILE, /* ours */
	NODE_SANDBOX,  /* something in a sandbox; a thread's root too */
};

/* When something was asked: what happened since makes the answer old (journal.h). */
struct moment {
	int64_t ms;
	uint64_t epoch, seq; /* the thread's, and its journal's */
};

struct node {
	struct fs *fs;
	fuse_ino_t ino;
	enum node_kind kind;
	struct thread *thread; /* counted; NULL above the threads */
	union {
		const struct ctl_dir *ctl_dir;
		const struct ctl_file *ctl_file;
	};
	unsigned job; /* ctl nodes below jobs/: its number; 0: none */

	struct node *parent; /* counted; NULL: the root, or the name is gone */
	char *name;
	struct node *children; /* by name */

	uint64_t nlookup;      /* the kernel's count */
	uint64_t told_size;    /* what it was last told of the size, or can tell from a read */
	bool untold;           /* it could not be told yet that the file is longer */
	int64_t noticed_ms;    /* when it was notified of a change of this itself */
	uint64_t short_end;    /* where a read ended that it wanted more of, */
	int64_t short_ms;      /* when that was (0: not), */
	uint64_t short_epoch;  /* and the thread's epoch then */
	uint64_t refused_from; /* of a read that was refused, as it was misled of the size */
	uint64_t refused_to;   /* 0: none was */
	int64_t told_ms;       /* when it got an answer about this, or about a name in it */
	struct absent *absent; /* names that it was told are not there: absent.h */
	unsigned refs;         /* ours: children, open files, operations */

	/* NODE_SANDBOX: what the sandbox said last */
	struct attr attr;
	bool has_attr;
	int64_t attr_ms; /* when it was asked for */
	uint64_t attr_epoch;
	int64_t guess_ms; /* a directory that we changed: until when a guess will do (node_guess) */
	int64_t echo_ms;  /* likewise: when we heard that it was made; 0: not since it was asked */
	unsigned misses;  /* a directory: names that had to be asked for, one by one */
	uint64_t shown_serial;   /* a directory: of the listing that the kernel has pages of; 0 */
	bool glancing;           /* a thread's root: somebody asks already */
	struct listing *listing; /* of a directory: on the thread's shelf (shelf.h); or NULL */

	/* open files */
	struct handle *handles; /* file.h */
	unsigned writers;       /* of these */
	struct stage *stage;    /* content that is not (only) in the sandbox: stage.h */
	bool unborn;      /* made here, not yet in the sandbox: its name comes with the upload */
	struct attr kept; /* the version whose pages the kernel may have; mode 0: none */
	uint64_t shown;   /* the inode number that stat(2) shows; 0: not shown yet */

	UT_hash_handle by_ino, by_name;
};

/* The tree's root exists from nodes_init() on, with ino FUSE_ROOT_ID. */
int nodes_init(struct fs *fs, const struct ctl_dir *root) MUST_CHECK;
void nodes_release(struct fs *fs);

/* NULL: unknown (answer ESTALE). Not counted. */
struct node *node_by_ino(struct fs *fs, fuse_ino_t ino);
struct node *node_child(struct node *dir, const char *name);
/* The child of that name, made as a NODE_SANDBOX if there is none; counted. */
int node_get_child(struct node *dir, const char *name, struct node **ret) MUST_CHECK;
/* A new node of another kind, counted; dir must not have that name. */
int node_new(struct node *dir, const char *name, enum node_kind kind, struct node **ret) MUST_CHECK;

struct node *node_ref(struct node *n);
void node_unref(struct node *n); /* NULL is fine */
/* The kernel got it in an answer / forgot it n times. */
void node_looked_up(struct node *n);
void node_forget(struct node *n, uint64_t count);

/* The name is gone (unlinked, replaced): open files keep the node, paths are -ESTALE. */
void node_detach(struct node *n);
/* Moves it to another name; what was there is detached. */
int node_move(struct node *n, struct node *dir, const char *name) MUST_CHECK;

/*
 * The path below the thread's root, "" for the root itself; -ESTALE if some
 * name above is gone. For the caller to free.
 */
int node_rel_path(const struct node *n, char **ret) MUST_CHECK;
/* The name in a directory, both below the thread's root, for the caller to free; NULL: no memory.
 */
char *path_below(const char *dir, const char *name);
/* The same of a name in a node (NULL: of itself); NULL also if it is nowhere in a sandbox. */
char *node_place(const struct node *n, const char *name);
/* What has that path below the thread's root, as far as there are nodes; NULL: none. Not counted.
 */
struct node *node_find(const struct thread *t, const char *path);
/* The absolute path in the sandbox; with name (may be NULL) behind it. */
int node_path(const struct node *n, const char *name, struct sandbox *sb, char **ret) MUST_CHECK;
/* Whether n lies below dir (or is it). */
bool node_is_below(const struct node *n, const struct node *dir);

/* Whether attr may be answered without asking. */
bool node_is_fresh(const struct node *n);
/* How long it may still be; 0: ask. */
int64_t node_left_ms(const struct node *n);
/* The sandbox said so now; or when it was asked then. */
void node_set_attr(struct node *n, const struct attr *attr);
void node_set_attr_at(struct node *n, const struct attr *attr, int64_t asked_ms);
struct moment node_moment(const struct thread *t);
/* Nothing happened to it since, as far as we know. */
bool node_is_since(const struct node *n, const struct moment *asked);
/* What was asked then: kept if that is so, to be asked again otherwise. */
void node_learn(struct node *n, const struct attr *attr, const struct moment *asked);
/* Ask next time; also who has it from the directory's listing. */
void node_doubt_attr(struct node *n);
/* The same, as something happened to it: what is being asked is old, too. */
void node_void_attr(struct node *n);
/*
 * We changed a name in a directory: its times are not known, and subdirs more (or less) are in
 * it. For a moment a guess will do, so that a program that makes many files is not kept waiting
 * by questions about their directory.
 */
void node_guess(struct node *dir, int subdirs);
/*
 * The sandbox tells that a directory, of which there is a guess, was made. While we make files in
 * it that will do, but not for longer than a second from then on: that it was made may hide a
 * change of its mode in the same moment.
 */
void node_heard_of_making(struct node *dir);
/* The journal: something happens or happened to a name in a node (NULL: to itself). */
void node_note(const struct node *n, const char *name, enum note what);
bool node_was_noted(const struct node *n, const char *name, uint64_t since);
/* We changed the file under this name: what is known of its other names is void, in the kernel too,
 * and its size is not held any more (node_holds_size). */
void node_void_peers(struct node *n);
/* The inode number that stat(2) shows for a file of a sandbox. */
uint64_t node_shown(const struct thread *t, uint64_t dev, uint64_t ino);
/*
 * What stat(2) shows: the attributes, with the stage's size and times where there is one, and the
 * size that the kernel knows while it is held.
 */
void node_stat(struct node *n, struct stat *ret);
/*
 * For a moment after a read that ended early the kernel is not told that the file has grown since:
 * it would give whoever waits for that read zeros for what is new.
 */
bool node_holds_size(const struct node *n);
/* What we made of it, without having seen it in the sandbox: its number and times are not known. */
static inline bool attr_is_guess(const struct attr *a)
{
	return a->ino == 0 && !a->partial;
}
/* Whether two attributes are of one version of one file. */
bool attr_same_version(const struct attr *a, const struct attr *b);
