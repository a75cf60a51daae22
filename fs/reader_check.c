/*
 * Which version a reader reads, and what becomes of him when the file is
 * another one: see reader_read(). Loop thread only.
 */
#include <errno.h>
#include <string.h>
#include <utlist.h>

#include "clock.h"
#include "notifier.h"
#include "reader_i.h"

struct check {
	struct remote remote;
	struct node *node;     /* counted */
	struct reader *reader; /* NULL: nobody wants to know */
	struct attr now;
	uint64_t writes; /* the thread's, at the start */
	struct moment asked;
};

/* ---- judging ---- */

static bool same_file(const struct attr *a, const struct attr *b)
{
	return a->partial || b->partial || attr_is_guess(a) || attr_is_guess(b) ||
	       (a->ino == b->ino && a->dev == b->dev);
}

static bool has_grown(const struct attr *was, const struct attr *now)
{
	return S_ISREG(now->mode) && same_file(was, now) && now->size > was->size;
}

/* Another name, mode or link: the content was not written. */
static bool was_renamed(const struct attr *was, const struct attr *now)
{
	return S_ISREG(now->mode) && same_file(was, now) && now->size == was->size &&
	       now->mtime.tv_sec == was->mtime.tv_sec && now->mtime.tv_nsec == was->mtime.tv_nsec;
}

bool reader_is_outdated(const struct reader *r)
{
	const struct node *n = r->node;

	return !r->kept && node_is_fresh(n) && !attr_same_version(&n->attr, &r->version) &&
	       !has_grown(&r->version, &n->attr);
}

static bool all_wait_behind(const struct reader *r)
{
	struct read_op *op;

	DL_FOREACH (r->waiting, op) {
		if (op->offset < r->version.size)
			return false;
	}
	return r->waiting;
}

/* Nobody is in the middle of it. */
static bool begins_anew(const struct reader *r)
{
	struct read_op *op;

	DL_FOREACH (r->waiting, op) {
		if (op->offset == 0)
			return true;
	}
	return r->last.end >= r->version.size;
}

/* ---- consequences ---- */

static void answer_ends(struct reader *r)
{
	struct read_op *op, *next;
	bool again;

	do {
		again = false;
		DL_FOREACH_SAFE (r->waiting, op, next) {
			if (op->offset < r->version.size)
				continue;
			reader_answer(r, op, 0, NULL, 0);
			again = !r->dead;
			break;
		}
	} while (again);
}

static struct jump *landed(const struct reader *r)
{
	struct jump *j;

	DL_SEARCH_SCALAR(r->jumps, j, fetch, NULL);
	return j;
}

/* What loose fetches brought is good. */
static void believe(struct reader *r)
{
	struct jump *j;

	if (reader_has_end(r))
		r->proven = true;
	while (!r->dead && (j = landed(r)))
		reader_jump_answer(j);
}

/*
 * Before he gets a byte of a longer one the kernel must not be sure of where the other one ended.
 * Of a shorter one it learns that from the answer, if it is told nothing else meanwhile.
 */
static void adopt(struct reader *r, const struct attr *now, bool keep_bytes)
{
	if (now->size > r->version.size)
		r->node->untold = !notify_attr_now(r->node->fs, r->node->ino);
	reader_drop(r, keep_bytes);
	r->version = *now;
	r->etag[0] = '\0';
	r->proven = false;
	if (!keep_bytes) {
		r->touched = r->pages = false;
		r->doubt = 0;
		r->first.len = r->last.len = 0;
	}
}

bool reader_is_lost(const struct reader *r)
{
	return clock_ms() < r->lost_until;
}

/* It is another one now: for who begins anew, but not for who was going through the old one. */
static void start_over(struct reader *r, const struct attr *now, bool same_pass)
{
	if (same_pass) {
		r->lost_until = r->handed_ms + PASS_MS;
		if (reader_is_lost(r))
			reader_fail_waiting(r, -ESTALE);
	}
	if (!r->dead)
		adopt(r, now, false);
}

static void judge(struct reader *r, const struct attr *now)
{
	const struct attr *was = &r->version;

	if (attr_same_version(now, was)) {
		believe(r);
		if (!r->dead)
			answer_ends(r);
		return;
	}
	/* As much as was wanted of it is here. */
	if (r->growing && has_grown(was, now) && ((reader_has_end(r) && !r->proven) || landed(r))) {
		believe(r);
		return;
	}
	if (S_ISREG(now->mode) && (!r->touched || (all_wait_behind(r) && !has_grown(was, now)))) {
		bool grown = has_grown(was, now);

		/* After some of these nobody knows whether it ever stands still. */
		r->growing = grown && (r->growing || r->changes >= 2);
		adopt(r, now, false);
	} else if (has_grown(was, now)) {
		r->growing = true;
		r->anew = begins_anew(r);
		adopt(r, now, true);
		r->doubt = r->pages ? 0 : DOUBT_ALL;
	} else if (was_renamed(was, now)) {
		r->anew = begins_anew(r);
		adopt(r, now, true);
		r->doubt = r->pages ? 0 : DOUBT_ALL;
	} else if (S_ISREG(now->mode) && same_file(was, now) && begins_anew(r)) {
		start_over(r, now, r->pages);
	} else {
		r->stale = true;
	}
}

void reader_differs(struct reader *r)
{
	struct attr now = r->version;

	if (r->anew)
		start_over(r, &now, true);
	else
		r->stale = true;
}

/*
 * The kernel asks for whole pages: a read that goes past our end when the file is
 * known to have grown wants what is new, though it begins before it (tail -f).
 */
void reader_look(struct reader *r, const struct read_op *op)
{
	const struct node *n = r->node;

	/*
	 * Old bytes must not get among the pages that the kernel has of the new version. What the
	 * node was seen as counts here, however long ago: it is a reason to look, no more.
	 */
	if (!r->kept && !r->stale &&
	    (r->suspect ||
	     (!attr_same_version(&n->attr, &r->version) && !has_grown(&r->version, &n->attr)))) {
		r->suspect = true;
		reader_check(r);
	}
	if (!r->kept && !r->stale && !r->check && op->offset + op->size > r->version.size &&
	    node_is_fresh(n) && has_grown(&r->version, &n->attr))
		judge(r, &n->attr);
}

/* Nobody knows what it is now; bytes that wait for that are not good. */
static void drop_landed(struct reader *r)
{
	struct jump *j;

	while ((j = landed(r)))
		reader_jump_free(j);
}

static void fail(struct reader *r, int err)
{
	drop_landed(r);
	reader_fail(r, err);
}

static bool is_gone(int err)
{
	return err == -ENOENT || err == -ENOTDIR || err == -ESTALE;
}

/* Something was done here to the file, or to its name, since it was asked for: nobody knows whether
 * that was before or after it was seen. */
static bool may_be_old(const struct check *c, int err)
{
	return (err == 0 || is_gone(err)) && c->writes != c->node->thread->writes &&
	       !node_is_since(c->node, &c->asked);
}

/* Or it is being done: a rename may be ahead of the answer that says so. */
static bool may_be_moving(const struct check *c, int err)
{
	return is_gone(err) && c->node->thread->changing > 0;
}

/* Not for ever. */
static bool looks_again(struct reader *r, const struct check *c, int err)
{
	if (r->kept)
		return false;
	if (may_be_moving(c, err) && ++r->moves < MOVES_MAX)
		return true;
	return may_be_old(c, err) && ++r->looks < LOOKS_MAX;
}

/* It was changed once more since it was asked for: what was seen is not what it is. */
static bool is_overtaken(const struct reader *r, int err)
{
	return r->again && !r->kept && (err == 0 || is_gone(err));
}

/* For those who wait; others may have more luck. */
static void lose(struct reader *r)
{
	drop_landed(r);
	reader_fail_waiting(r, -ESTALE);
}

static void on_checked(struct remote *remote, int err)
{
	struct check *c = CONTAINER_OF(remote, struct check, remote);
	struct reader *r = c->reader;

	if (r) {
		reader_enter(r);
		r->check = NULL;
	}
	if (r && is_overtaken(r, err) && clock_ms() >= r->again_until) {
		r->looks = r->moves = 0;
		r->again_until = 0;
		lose(r);
		reader_pump(r);
		reader_leave(r);
	} else if (r && (is_overtaken(r, err) || looks_again(r, c, err))) {
		reader_check(r);
		reader_leave(r);
	} else if (r) {
		r->looks = r->moves = 0;
		r->again_until = 0;
		/* If nobody knows it is as before: nothing is served. */
		if (err == 0 || r->kept)
			r->suspect = false;
		if (err == 0 && c->writes == c->node->thread->writes)
			node_learn(c->node, &c->now, &c->asked);
		if (r->kept)
			; /* it does not matter any more */
		else if (is_gone(err))
			r->stale = true; /* the name is another's or nobody's */
		else if (err < 0)
			fail(r, err);
		else
			judge(r, &c->now);
		if (!r->dead && r->changes > CHANGES_MAX) {
			r->changes = 0;
			lose(r);
		}
		reader_pump(r);
		reader_leave(r);
	}
	node_unref(c->node);
	free(c);
}

static void start(struct remote *remote, struct sandbox *sb)
{
	struct check *c = CONTAINER_OF(remote, struct check, remote);
	char *path CLEANUP_FREE = NULL;
	int r = node_path(c->node, NULL, sb, &path);

	if (r < 0)
		remote_fail(remote, r);
	else
		sandbox_lstat(sb, &remote->call, path, &c->now);
}

void reader_check(struct reader *r)
{
	struct check *c;

	if (r->check)
		return;
	c = calloc(1, sizeof(*c));
	if (!c) {
		reader_fail(r, -ENOMEM);
		return;
	}
	c->reader = r;
	c->node = node_ref(r->node);
	c->writes = r->node->thread->writes;
	c->asked = node_moment(r->node->thread);
	r->check = c;
	r->again = false;
	if (!r->again_until)
		r->again_until = clock_ms() + r->node->fs->opt->timeout_ms;
	remote_begin(&c->remote, r->node->thread, start, on_checked);
}

void reader_suspect(struct reader *r)
{
	if (r->kept || r->stale)
		return;
	r->suspect = true;
	/* Who is looking goes on, and looks again: where it is written to more often than answers
	 * come nobody would ever be told. */
	r->again = r->check != NULL;
	if (r->waiting || r->keeps)
		reader_check(r);
}

void reader_check_leave(struct reader *r)
{
	if (!r->check)
		return;
	r->check->reader = NULL;
	remote_cancel(&r->check->remote);
	r->check = NULL;
}

void reader_changed(struct reader *r)
{
	r->changes++;
	r->etag[0] = '\0'; /* the server may call the same version otherwise now */
	node_void_attr(r->node);
	reader_check(r);
}
