/*
 * See notifier.h. One lock; a queue (lane) for each thread of the mount, so that what the
 * kernel makes wait because of one sandbox keeps nobody else's waiting; a few
 * threads that empty them, each lane by one at a time, so that all stay in order. A notice stays in
 * the table while it waits for its second time, too: news of the same thing take
 * its place. Knows nodes only on the loop's side.
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
	STOP_MS = 5000,  /* a request that holds a thread may still have to be answered */
	THREADS_MAX = 8, /* more than one only if some are held */
	TURN = 64,       /* notices of a lane before the next one has its turn */
	STACK = 1 << 20,
	SHUT_MS = 2000,
	HELD_MS = 20, /* what takes longer is held by the kernel, for as long as it likes */
};

#define NOBODY UINT64_MAX /* no inode of ours */

/* What a notice is about: the inode itself if the name is empty. */
struct subject {
	fuse_ino_t ino;
	char name[NAME_BYTES_MAX + 1];
};

struct notice {
	struct lane *lane;
	bool data;       /* pages, too */
	bool again;      /* once more after this time */
	int64_t due_ms;  /* of the second time; 0: it is ready */
	struct job *job; /* instead of all else: to be posted when all before it were sent */
	size_t key_len;  /* of the subject */
	UT_hash_handle hh;
	struct notice *prev, *next;
	struct subject subject; /* cut to its length */
};

struct lane {
	const void *owner;
	struct notice *ready; /* in order */
	unsigned count;       /* of all of its notices */
	bool busy;            /* a thread is at it */
	bool waits;           /* for a thread: it is in notifier->waiting */
	struct lane *prev, *next;
	UT_hash_handle hh;
};

struct notifier {
	struct fuse_session *se; /* immutable */
	struct loop *loop;       /* immutable */
	struct lock lock;
	pthread_cond_t more; /* with lock */
	/* guarded by lock, as all below: */
	struct lane *lanes;     /* by owner */
	struct lane *waiting;   /* those with something to send that nobody is at */
	struct notice *later;   /* for their second time, in order of due_ms */
	struct notice *by_what; /* all but jobs */
	pthread_t threads[THREADS_MAX];
	unsigned count, idle; /* of them */
	unsigned running;     /* those that have not ended: their end is told by ended */
	pthread_cond_t ended;
	bool stopping;
	unsigned pages;          /* threads that drop pages now, which may be held */
	int64_t pages_ms;        /* since when that is not 0 */
	pthread_cond_t no_pages; /* it is 0 again */
	int64_t knocked_ms;      /* see notifier_is_shut() */
	bool no_expiry;          /* the kernel cannot expire names, only drop them */
	uint64_t sent;
};

/* ---- sending ---- */

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
 * meanwhile; whatever else it says, there is nothing to be done about it. Returns whether names
 * cannot be expired.
 */
static bool deliver(struct notifier *s, const struct subject *what, bool data, bool no_expiry)
{
	if (!what->name[0]) {
		fuse_lowlevel_notify_inval_inode(s->se, what->ino, data ? 0 : -1, 0);
		return no_expiry;
	}
	if (!no_expiry && expire(s, what) != -ENOSYS)
		return false;
	fuse_lowlevel_notify_inval_entry(s->se, what->ino, what->name, strlen(what->name));
	return true;
}

/* ---- lanes; with the lock ---- */

static struct lane *get_lane(struct notifier *s, const void *owner) NEEDS(&s->lock)
{
	struct lane *l = NULL;

	HASH_FIND_PTR(s->lanes, &owner, l);
	if (l)
		return l;
	l = calloc(1, sizeof(*l));
	if (l) {
		l->owner = owner;
		HASH_ADD_PTR(s->lanes, owner, l);
		if (!HASH_TOOK(hh, l))
			free(STEAL(l));
	}
	return l;
}

static void drop_lane_if_empty(struct notifier *s, struct lane *l) NEEDS(&s->lock)
{
	if (l->count > 0 || l->busy)
		return;
	HASH_DEL(s->lanes, l);
	free(l);
}

static void add_ready(struct notifier *s, struct notice *n) NEEDS(&s->lock)
{
	struct lane *l = n->lane;

	DL_APPEND(l->ready, n);
	if (!l->busy && !l->waits) {
		l->waits = true;
		DL_APPEND(s->waiting, l);
	}
}

static void drop_notice(struct notifier *s, struct notice *n) NEEDS(&s->lock)
{
	n->lane->count--;
	if (!n->job)
		HASH_DEL(s->by_what, n);
	free(n);
}

/* ---- the threads ---- */

static void send_one(struct notifier *s, struct lane *l) NEEDS(&s->lock)
{
	struct notice *n = l->ready;
	struct subject what;
	bool data = n->data, no_expiry = s->no_expiry;

	DL_DELETE(l->ready, n);
	if (n->job) {
		loop_post(s->loop, n->job);
		drop_notice(s, n);
		return;
	}
	memcpy(&what, &n->subject, n->key_len);
	what.name[n->key_len - offsetof(struct subject, name)] = '\0';
	s->sent++;
	if (n->again) {
		n->again = false;
		n->due_ms = clock_ms() + AGAIN_MS;
		DL_APPEND(s->later, n);
	} else {
		drop_notice(s, n);
	}
	data = data && !what.name[0];
	if (data && s->pages++ == 0)
		s->pages_ms = clock_ms();
	unlock(&s->lock);
	no_expiry = deliver(s, &what, data, no_expiry);
	lock(&s->lock);
	if (data && --s->pages == 0)
		pthread_cond_signal(&s->no_pages);
	s->no_expiry |= no_expiry;
}

static void call_somebody(struct notifier *s) NEEDS(&s->lock);

/*
 * The kernel may hold who takes a lane now: the others, and what is due later, must not wait for
 * that, and whoever was called for them may be the same.
 */
static void pass_on(struct notifier *s) NEEDS(&s->lock)
{
	call_somebody(s);
	if (!s->waiting && s->later && s->idle > 0)
		pthread_cond_signal(&s->more); /* he may not know until when to sleep */
}

/* The next one with something to send; NULL: the end. */
static struct lane *next_lane(struct notifier *s) NEEDS(&s->lock)
{
	while (!s->stopping) {
		struct notice *n = s->later;
		struct lane *l;
		struct timespec until;

		if (n && n->due_ms <= clock_ms()) {
			DL_DELETE(s->later, n);
			n->due_ms = 0;
			add_ready(s, n);
			continue;
		}
		l = s->waiting;
		if (l) {
			DL_DELETE(s->waiting, l);
			l->waits = false;
			pass_on(s);
			return l;
		}
		s->idle++;
		if (n) {
			until.tv_sec = n->due_ms / 1000;
			until.tv_nsec = n->due_ms % 1000 * 1000000;
			pthread_cond_timedwait(&s->more, &s->lock.mutex, &until);
		} else {
			pthread_cond_wait(&s->more, &s->lock.mutex);
		}
		s->idle--;
	}
	return NULL;
}

static void *notifier_main(void *arg)
{
	struct notifier *s = arg;
	struct lane *l;

	lock(&s->lock);
	while ((l = next_lane(s))) {
		l->busy = true;
		for (int i = 0; i < TURN && l->ready && !s->stopping; i++)
			send_one(s, l);
		l->busy = false;
		if (l->ready) {
			l->waits = true;
			DL_APPEND(s->waiting, l);
		}
		drop_lane_if_empty(s, l);
	}
	s->running--;
	pthread_cond_signal(&s->ended);
	unlock(&s->lock);
	return NULL;
}

static int add_thread(struct notifier *s) NEEDS(&s->lock)
{
	pthread_attr_t attr;
	sigset_t all, old;
	int r;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = -pthread_create(&s->threads[s->count], &attr, notifier_main, s);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	if (r == 0) {
		s->count++;
		s->running++;
	}
	return r;
}

/* Something is ready. If nobody is idle, all are held, or soon done. */
static void call_somebody(struct notifier *s) NEEDS(&s->lock)
{
	if (!s->waiting)
		return; /* somebody is at it */
	if (s->idle > 0)
		pthread_cond_signal(&s->more);
	else if (s->count < THREADS_MAX && !s->stopping)
		(void)add_thread(s); /* if that fails those that there are do it, later */
}

/* ---- the loop's side ---- */

static bool was_told(const struct node *n)
{
	return clock_ms() - n->told_ms < AGAIN_MS;
}

static struct notice *new_notice(struct notifier *s, const void *owner, size_t len) NEEDS(&s->lock)
{
	struct lane *l = get_lane(s, owner);
	struct notice *n = l ? calloc(1, offsetof(struct notice, subject) + len + 1) : NULL;

	if (n) {
		n->lane = l;
		n->key_len = len;
		l->count++;
	} else if (l) {
		drop_lane_if_empty(s, l);
	}
	return n;
}

/* One that is nowhere yet. */
static void undo_notice(struct notifier *s, struct notice *n) NEEDS(&s->lock)
{
	n->lane->count--;
	drop_lane_if_empty(s, n->lane);
	free(n);
}

/* False: no memory. */
static bool notify_locked(struct notifier *s, const void *owner, const struct subject *what,
			  bool data, bool again) NEEDS(&s->lock)
{
	size_t len = offsetof(struct subject, name) + strlen(what->name);
	struct notice *n = NULL;

	HASH_FIND(hh, s->by_what, what, len, n);
	if (n && n->due_ms) { /* it comes anew */
		DL_DELETE(s->later, n);
		n->due_ms = 0;
		add_ready(s, n);
	} else if (!n && (n = new_notice(s, owner, len))) {
		memcpy(&n->subject, what, len);
		HASH_ADD_KEYPTR(hh, s->by_what, &n->subject, len, n);
		if (HASH_TOOK(hh, n))
			add_ready(s, n);
		else
			undo_notice(s, STEAL(n));
	}
	if (n) {
		n->data |= data;
		n->again |= again;
		call_somebody(s);
	}
	return n != NULL;
}

static void notify(struct notifier *s, const void *owner, const struct subject *what, bool data,
		   bool again)
{
	bool done;

	lock(&s->lock);
	done = notify_locked(s, owner, what, data, again);
	unlock(&s->lock);
	if (!done)
		log_error("no memory to tell the kernel of a change");
}

void notify_inode(struct fs *fs, fuse_ino_t ino, bool data)
{
	struct subject what = { .ino = ino };
	struct node *n = node_by_ino(fs, ino);

	if (!fs->notifier || !n || n->nlookup == 0)
		return;
	n->noticed_ms = clock_ms();
	notify(fs->notifier, n->thread, &what, data, was_told(n));
}

/* False: somebody is held there, or it takes too long. */
static bool wait_for_pages(struct notifier *s, int64_t latest_ms) NEEDS(&s->lock)
{
	while (s->pages > 0) {
		int64_t until_ms = MIN(s->pages_ms + HELD_MS, latest_ms);
		struct timespec until = { .tv_sec = until_ms / 1000,
					  .tv_nsec = until_ms % 1000 * 1000000 };

		if (clock_ms() >= until_ms)
			return false;
		pthread_cond_timedwait(&s->no_pages, &s->lock.mutex, &until);
	}
	return true;
}

/*
 * While the kernel holds somebody who drops pages, an umount waits for him, and everybody else for
 * the umount: but the page may be one that only the loop can bring. So then this is
 * left to the others, and as long as it is not none of them begins.
 */
bool notify_attr_by(struct fs *fs, fuse_ino_t ino, int64_t latest_ms)
{
	struct notifier *s = fs->notifier;
	struct subject what = { .ino = ino };
	struct node *n = node_by_ino(fs, ino);
	bool now;

	if (!fs->se || !n || n->nlookup == 0)
		return true;
	n->noticed_ms = clock_ms();
	if (!s) {
		fuse_lowlevel_notify_inval_inode(fs->se, ino, -1, 0);
		return true;
	}
	lock(&s->lock);
	now = wait_for_pages(s, latest_ms);
	if (now)
		fuse_lowlevel_notify_inval_inode(fs->se, ino, -1, 0);
	else
		(void)notify_locked(s, &s->pages, &what, false, false);
	unlock(&s->lock);
	return now;
}

bool notify_attr_now(struct fs *fs, fuse_ino_t ino)
{
	return notify_attr_by(fs, ino, INT64_MAX);
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
		notify(fs->notifier, d->thread, &what, false, was_told(d));
}

void notifier_sync(struct fs *fs, const struct thread *t, struct job *job)
{
	struct notifier *s = fs->notifier;
	const void *owner = t;
	struct lane *l = NULL;
	struct notice *n = NULL;

	if (s) {
		lock(&s->lock);
		HASH_FIND_PTR(s->lanes, &owner, l);
		if (l && (l->ready || l->busy))
			n = new_notice(s, owner, 0);
		if (n) {
			n->job = job;
			add_ready(s, n);
			call_somebody(s);
		}
		unlock(&s->lock);
	}
	if (!n)
		loop_post(fs->loop, job);
}

/* Newer than libfuse's header. */
enum { NOTIFY_INC_EPOCH = 8 };

bool notify_names_now(struct fs *fs)
{
	/* struct fuse_out_header: length, what, and no request that it answers */
	const struct {
		uint32_t len;
		int32_t what;
		uint64_t unique;
	} notice = { sizeof(notice), NOTIFY_INC_EPOCH, 0 };

	return fs->se && !fs->ending &&
	       write(fuse_session_fd(fs->se), &notice, sizeof(notice)) == sizeof(notice);
}

/* It is told of an inode that it does not have, in a lane of its own. */
bool notifier_is_shut(struct fs *fs)
{
	struct notifier *s = fs->notifier;
	const void *owner = s;
	struct lane *l = NULL;
	bool shut = false;

	if (!s)
		return false;
	lock(&s->lock);
	HASH_FIND_PTR(s->lanes, &owner, l);
	if (l) {
		shut = clock_ms() - s->knocked_ms >= SHUT_MS;
	} else {
		s->knocked_ms = clock_ms();
		(void)notify_locked(s, owner, &(struct subject){ .ino = NOBODY }, false, false);
	}
	unlock(&s->lock);
	return shut;
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

/* Its threads have ended. Who waits for what is not sent any more does so no longer. */
static void notifier_free(struct notifier *s)
{
	struct lane *l, *next_l;
	struct notice *n, *next;

	lock(&s->lock);
	DL_FOREACH_SAFE (s->later, n, next) {
		DL_DELETE(s->later, n);
		drop_notice(s, n);
	}
	HASH_ITER (hh, s->lanes, l, next_l) {
		DL_FOREACH_SAFE (l->ready, n, next) {
			DL_DELETE(l->ready, n);
			if (n->job)
				loop_post(s->loop, n->job);
			drop_notice(s, n);
		}
		drop_lane_if_empty(s, l);
	}
	unlock(&s->lock);
	pthread_cond_destroy(&s->ended);
	pthread_cond_destroy(&s->no_pages);
	pthread_cond_destroy(&s->more);
	lock_destroy(&s->lock);
	free(s);
}

int notifier_start(struct fs *fs)
{
	struct notifier *s = calloc(1, sizeof(*s));
	pthread_condattr_t cond;
	int r;

	if (!s)
		return -ENOMEM;
	s->se = fs->se;
	s->loop = fs->loop;
	lock_init(&s->lock);
	pthread_condattr_init(&cond);
	pthread_condattr_setclock(&cond, CLOCK_MONOTONIC);
	pthread_cond_init(&s->more, &cond);
	pthread_cond_init(&s->ended, &cond);
	pthread_cond_init(&s->no_pages, &cond);
	pthread_condattr_destroy(&cond);
	lock(&s->lock);
	r = add_thread(s);
	unlock(&s->lock);
	if (r < 0) {
		notifier_free(s);
		return r;
	}
	fs->notifier = s;
	fs->names_at_once = notify_names_now(fs);
	return 0;
}

static void detach(void *ctx)
{
	struct fs *fs = ctx;

	notifier_free(STEAL(fs->notifier));
}

int notifier_stop(struct fs *fs)
{
	struct notifier *s = fs->notifier;
	struct timespec until;
	int r = 0;

	if (!s)
		return 0;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += STOP_MS / 1000;
	lock(&s->lock);
	s->stopping = true; /* so no thread is added */
	pthread_cond_broadcast(&s->more);
	while (s->running > 0 && r == 0)
		r = -pthread_cond_timedwait(&s->ended, &s->lock.mutex, &until);
	r = s->running > 0 ? r : 0;
	unlock(&s->lock);
	if (r < 0)
		return r;
	for (unsigned i = 0; i < s->count; i++)
		pthread_join(s->threads[i], NULL);
	loop_run(fs->loop, detach, fs);
	return 0;
}
