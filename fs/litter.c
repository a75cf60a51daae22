/* See litter.h. */
#include "litter.h"

#include <string.h>
#include <time.h>

#include "log.h"
#include "node.h"
#include "remote.h"
#include "uuid.h"

enum {
	OLD_S = 3600, /* since its last byte came, by our clock */
	AT_ONCE = 4,
};

struct litter {
	struct remote r;
	char *path; /* below the thread's root */
};

static void start(struct remote *r, struct sandbox *sb)
{
	struct litter *l = CONTAINER_OF(r, struct litter, r);
	char *path CLEANUP_FREE = remote_path(r, sb, l->path);

	if (path)
		sandbox_unlink(sb, &r->call, path);
}

/* The watch tells of it, or the next listing. */
static void done(struct remote *r, int err)
{
	struct litter *l = CONTAINER_OF(r, struct litter, r);
	struct thread *t = r->thread;

	if (err == 0 && thread_may_log(t))
		thread_info(t, "removed a file of an upload that was broken off");
	t->fs->litter_removals--;
	free(l->path);
	free(l);
}

void litter_seen(struct thread *t, const char *dir, const char *name, const struct attr *attr)
{
	struct litter *l;

	if (!uuid_is(name + strlen(UPLOAD_TEMPORARY)) || !S_ISREG(attr->mode) ||
	    t->fs->litter_removals >= AT_ONCE || attr->mtime.tv_sec > time(NULL) - OLD_S)
		return;
	l = calloc(1, sizeof(*l));
	if (!l || !(l->path = path_below(dir, name))) {
		free(l);
		return;
	}
	t->fs->litter_removals++;
	l->r.quiet = true;
	remote_begin(&l->r, t, start, done);
}
