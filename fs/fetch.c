/* One download of a piece of a file; see the header. Knows nothing of windows and reads. */
#include "fetch.h"

#include <errno.h>
#include <string.h>

static void free_fetch(struct fetch *f)
{
	node_unref(f->node);
	free(f->known);
	free(f);
}

static int on_head(void *ctx, const struct download_head *head)
{
	struct fetch *f = ctx;
	struct thread *t = f->node->thread;

	if (!f->owner)
		return -ECANCELED;
	if (!head->ranged && f->ranging) {
		/* All that lies before would come first: perhaps there is a better way. */
		t->no_range = f->unranged = true;
		return -ECANCELED;
	}
	if (!f->loose && f->etag && head->etag && strlen(head->etag) < ETAG_MAX) {
		if (!f->etag[0])
			strcpy(f->etag, head->etag);
		else if (strcmp(f->etag, head->etag) != 0)
			return -ESTALE;
	}
	if (f->loose && head->size >= 0 && (uint64_t)head->size < f->to)
		return -ESTALE;
	return 0;
}

/* Whether these bytes, which are had already, are still the same as far as that is known. */
static bool matches(const struct fetch *f, const char *bytes, size_t len)
{
	uint64_t first = MAX(f->at, f->known_at);
	uint64_t last = MIN(f->at + len, f->known_at + f->known_len);

	return first >= last ||
	       memcmp(f->known + (first - f->known_at), bytes + (first - f->at), last - first) == 0;
}

static void count(struct fetch *f, size_t len)
{
	if (f->transfer.thread)
		transfer_moved(&f->transfer, len);
	else
		f->node->fs->totals.bytes_down += len;
}

static int on_data(void *ctx, const void *bytes, size_t len)
{
	struct fetch *f = ctx;
	size_t old = 0;
	int r = 0;

	if (!f->owner)
		return -ECANCELED;
	/* Only a server that does not say how much there is gets here: the file has grown. */
	if (len > f->to - f->at)
		return -ESTALE;
	if (f->at < f->from)
		old = MIN(len, f->from - f->at);
	if (old > 0 && !matches(f, bytes, old)) {
		f->differs = true;
		return -ECANCELED;
	}
	if (len > old)
		r = f->take(f, (const char *)bytes + old, len - old);
	if (r) {
		f->paused = r == -EAGAIN;
		return r;
	}
	f->at += len;
	f->taken += len - old;
	count(f, len);
	f->complete = f->loose && f->at == f->to;
	if (f->complete)
		return -ECANCELED;
	f->moved(f);
	return 0;
}

static char *on_space(void *ctx, size_t *ret_len)
{
	struct fetch *f = ctx;
	char *to;

	*ret_len = 1;
	if (!f->owner || !f->space || f->at < f->from || f->at >= f->to)
		return NULL;
	to = f->space(f, ret_len);
	if (to)
		*ret_len = MIN(*ret_len, f->to - f->at);
	else if (*ret_len == 0)
		f->paused = true;
	return to;
}

/* Whether what the watch has said so far means that the file is still the version. */
static bool is_heard_of(const struct fetch *f)
{
	const struct node *n = f->node;

	return n->thread->watched && node_is_fresh(n) && attr_same_version(&n->attr, &f->version);
}

static void on_done(struct remote *remote, int err)
{
	struct fetch *f = CONTAINER_OF(remote, struct fetch, remote);

	transfer_end(&f->transfer);
	f->paused = false;
	/* A server that does not say how much there is may also send less. */
	if (err == 0 && f->at < f->to)
		err = f->loose ? -ESTALE : -EIO;
	f->unsure = err == 0 && f->watched && !is_heard_of(f);
	if (f->owner)
		f->ended(f, err);
	free_fetch(f);
}

static void start(struct remote *remote, struct sandbox *sb)
{
	struct fetch *f = CONTAINER_OF(remote, struct fetch, remote);
	bool bounded = f->loose || f->bounded;
	char *path CLEANUP_FREE = NULL;
	struct download how = { .head = on_head, .data = on_data, .space = on_space, .ctx = f };
	int r = node_path(f->node, NULL, sb, &path);

	if (r < 0) {
		remote_fail(remote, r);
		return;
	}
	f->paused = false;
	f->ranging = f->at > 0 && !f->node->thread->no_range;
	/* Everything had come, but not the proof. */
	if (bounded && f->at == f->to)
		f->at--;
	how.offset = f->at;
	how.length = bounded ? f->to - f->at : 0;
	how.expect = f->loose ? NULL : &f->version;
	how.unguarded = f->loose;
	how.watched = f->watched = !f->loose && is_heard_of(f);
	sandbox_download(sb, &remote->call, path, &how);
}

void fetch_begin(struct fetch *f, struct node *n, bool seen)
{
	f->node = node_ref(n);
	if (seen)
		transfer_begin(&f->transfer, n->thread, n, false, (int64_t)(f->to - f->at));
	remote_begin(&f->remote, n->thread, start, on_done);
}

void fetch_go_on(struct fetch *f)
{
	if (!f->paused)
		return;
	f->paused = false;
	if (f->remote.sb)
		sandbox_go_on(f->remote.sb, &f->remote.call);
}

void fetch_leave(struct fetch *f)
{
	if (!f)
		return;
	f->owner = NULL;
	transfer_end(&f->transfer);
	remote_cancel(&f->remote);
}
