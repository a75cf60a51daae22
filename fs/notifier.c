/*
 * See notifier.h. A queue under one lock, a thread that empties it. A notice
 * stays in the table while it waits for its second time, too, so that news of the
 * same thing take its place. Knows nodes only on the loop's side.
 */
#include "notifier.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <utlist.h>

#include "absent.h"
#include "clock.h"
#include "lock.h"
#include "log.h"

enum {
	AGAIN_MS = 100,  /* so long an answer may be on its way into the kernel's cache */
	STOP_MS = 5000,  /* the thread may be held by a request that is still to be answered */
	STACK = 1 << 17, /* it only writes */
};

/* What a notice is about: the inode itself if the name is empty. */
struct subject {
	fuse_ino_t ino;
	char name[NAME_BYTES_MAX + 1];
};

struct notice {
	bool data;      /* pages, too */
	bool again;     /* once more after this time */
	int64_t due_ms; /* of the second time */
	size_t key_len; /* of the subject */
	UT_hash_handle hh;
	struct notice *prev, *next;
	struct subject subject; /* cut to its length */
};

struct notifier {
	struct fuse_session *se; /* immutable */
	pthread_t thread;        /* the starter's */
	struct lock lock;
	pthread_cond_t more;    /* with lock */
	struct notice *ready;   /* guarded by lock; to be sent, in order */
	struct notice *later;   /* guarded by lock; for their second time, in order of due_ms */
	struct notice *by_what; /* guarded by lock; all of both */
	bool stopping;          /* guarded by lock */
	uint64_t sent;          /* guarded by lock */
	bool no_expiry;         /* the thread's: the kernel cannot expire names, only drop them */
};

/* ---- the thread ---- */

static int expire(struct notifier *s, const struct subject *what)
{
	size_t len = strlen(what->name);

#ifdef HAVE_EXPIRE_FLAGS
	return fuse_lowlevel_notify_expire_entry(s->se, what->ino, what->name, len,
						 FUSE_LL_EXPIRE_ONLY);
#else
	return fuse_lowlevel_notify_expire_entry(s->se, what->ino, what->name, len);
#endif
}

/*
 * A name is expired, not dropped: dropping a directory's takes it away from
 * under those who work in it. -ENOENT is the usual answer to what the kernel has forgotten
 * meanwhile; whatever else it says, there is nothing to be done about it.
 */
static void deliver(struct notifier *s, const struct subject *what, bool data)
{
	if (!what->name[0]) {
		fuse_lowlevel_notify_inval_inode(s->se, what->ino, data ? 0 : -1, 0);
		return;
	}
	if (!s->no_expiry && expire(s, what) == -ENOSYS)
		s->no_expiry = true;
	if (s->no_expiry)
		fuse_lowlevel_notify_inval_entry(s->se, what->ino, what->name, strlen(what->name));
}

static void forget(struct notifier *s, struct notice *n) NEEDS(&s->lock)
{
	HASH_DEL(s->by_what, n);
	free(n);
}

/* Waits for something to do. NULL: the end. */
static struct notice *next_notice(struct notifier *s) NEEDS(&s->lock)
{
	while (!s->stopping) {
		struct notice *n = s->ready;
		struct timespec until;

		if (n) {
			DL_DELETE(s->ready, n);
			return n;
		}
		n = s->later;
		if (!n) {
			pthread_cond_wait(&s->more, &s->lock.mutex);
			continue;
		}
		if (n->due_ms <= clock_ms()) {
			DL_DELETE(s->later, n);
			return n;
		}
		until.tv_sec = n->due_ms / 1000;
		until.tv_nsec = n->due_ms % 1000 * 1000000;
		pthread_cond_timedwait(&s->more, &s->lock.mutex, &until);
	}
	return NULL;
}

static void *notifier_main(void *arg)
{
	struct notifier *s = arg;
	struct notice *n;

	lock(&s->lock);
	while ((n = next_notice(s))) {
		struct subject what;
		bool data = n->data;

		memcpy(&what, &n->subject, n->key_len);
		what.name[n->key_len - offsetof(struct subject, name)] = '\0';
		if (n->again) {
			n->again = false;
			n->due_ms = clock_ms() + AGAIN_MS;
			DL_APPEND(s->later, n);
		} else {
			forget(s, n);
		}
		s->sent++;
		unlock(&s->lock);
		deliver(s, &what, data);
		lock(&s->lock);
	}
	unlock(&s->lock);
	return NULL;
}

/* ---- the loop's side ---- */

static bool was_told(const struct node *n)
{
	return n && clock_ms() - n->told_ms < AGAIN_MS;
}

static void notify(struct notifier *s, const struct subject *what, bool data, bool again)
{
	size_t len = offsetof(struct subject, name) + strlen(what->name);
	struct notice *n = NULL;

	lock(&s->lock);
	HASH_FIND(hh, s->by_what, what, len, n);
	if (n && n->due_ms) {
		DL_DELETE(s->later, n); /* it comes anew */
		n->due_ms = 0;
		DL_APPEND(s->ready, n);
	}
	if (!n) {
		n = calloc(1, offsetof(struct notice, subject) + len + 1);
		if (!n) {
			unlock(&s->lock);
			log_error("no memory to tell the kernel of a change");
			return;
		}
		memcpy(&n->subject, what, len);
		n->key_len = len;
		HASH_ADD_KEYPTR(hh, s->by_what, &n->subject, len, n);
		DL_APPEND(s->ready, n);
	}
	n->data |= data;
	n->again |= again;
	pthread_cond_signal(&s->more);
	unlock(&s->lock);
}

void notify_inode(struct fs *fs, fuse_ino_t ino, bool data)
{
	struct subject what = { .ino = ino };
	struct node *n = node_by_ino(fs, ino);

	if (fs->notifier && n && n->nlookup > 0)
		notify(fs->notifier, &what, data, was_told(n));
}

void notify_attr_now(struct fs *fs, fuse_ino_t ino)
{
	struct node *n = node_by_ino(fs, ino);

	if (fs->se && n && n->nlookup > 0)
		fuse_lowlevel_notify_inval_inode(fs->se, ino, -1, 0);
}

void notify_entry(struct fs *fs, fuse_ino_t dir, const char *name)
{
	struct subject what = { .ino = dir };
	struct node *d = node_by_ino(fs, dir), *n;

	if (!d || strlen(name) > NAME_BYTES_MAX)
		return;
	n = node_child(d, name);
	if (!absent_take(d, name) && !(n && n->nlookup > 0))
		return;
	strcpy(what.name, name);
	if (fs->notifier)
		notify(fs->notifier, &what, false, was_told(d));
}

uint64_t notifier_sent(struct fs *fs)
{
	struct notifier *s = fs->notifier;
	uint64_t sent = 0;

	if (s) {
		lock(&s->lock);
		sent = s->sent;
		unlock(&s->lock);
	}
	return sent;
}

/* ---- life ---- */

static void notifier_free(struct notifier *s)
{
	struct notice *n, *next;

	HASH_ITER (hh, s->by_what, n, next)
		forget(s, n);
	pthread_cond_destroy(&s->more);
	lock_destroy(&s->lock);
	free(s);
}

int notifier_start(struct fs *fs)
{
	struct notifier *s = calloc(1, sizeof(*s));
	pthread_condattr_t cond;
	pthread_attr_t attr;
	sigset_t all, old;
	int r;

	if (!s)
		return -ENOMEM;
	s->se = fs->se;
	lock_init(&s->lock);
	pthread_condattr_init(&cond);
	pthread_condattr_setclock(&cond, CLOCK_MONOTONIC);
	pthread_cond_init(&s->more, &cond);
	pthread_condattr_destroy(&cond);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = -pthread_create(&s->thread, &attr, notifier_main, s);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	if (r < 0) {
		notifier_free(s);
		return r;
	}
	fs->notifier = s;
	return 0;
}

static void detach(void *ctx)
{
	((struct fs *)ctx)->notifier = NULL;
}

int notifier_stop(struct fs *fs)
{
	struct notifier *s = fs->notifier;
	struct timespec until;
	int r;

	if (!s)
		return 0;
	lock(&s->lock);
	s->stopping = true;
	pthread_cond_signal(&s->more);
	unlock(&s->lock);
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += STOP_MS / 1000;
	r = -pthread_clockjoin_np(s->thread, NULL, CLOCK_MONOTONIC, &until);
	if (r < 0)
		return r;
	loop_run(fs->loop, detach, fs);
	notifier_free(s);
	return 0;
}
