/*
 * A tenant's work on disk, on a worker: the file lock of its start, and its
 * place in the registry. Nothing may forget the thread meanwhile (stop.c waits
 * for the last chore). Loop thread, but for what runs on workers.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "filelock.h"
#include "log.h"
#include "paths.h"
#include "provider_i.h"
#include "registry.h"

struct chore {
	struct work work;
	struct tenant *t; /* counted */
	void (*then)(struct tenant *t, int error);
	int fd, error;
};

/* Looks at the disk. */
static char *lock_path(const struct tenant *t)
{
	char *dir CLEANUP_FREE = paths_thread_dir(t->provider->data, t->user, t->thread);
	char *path;

	if (!dir || asprintf(&path, "%s/%s.lock", dir, t->id) < 0)
		return NULL;
	return path;
}

static void chore_done(struct work *w)
{
	struct chore *c = CONTAINER_OF(w, struct chore, work);
	struct tenant *t = c->t;
	struct provider *p = t->provider;
	void (*then)(struct tenant *, int) = c->then;
	int error = c->error;

	if (then && error == 0)
		t->lock_fd = c->fd;
	free(c);
	if (then)
		then(t, error);
	if (--t->chores == 0)
		stop_chores_done(t);
	tenant_put(t);
	provider_calm(p);
}

/* NULL if there is no memory. */
static struct chore *chore_new(struct tenant *t, void (*run)(struct work *w))
{
	struct chore *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->work = (struct work){ .run = run, .done = chore_done };
	c->t = t;
	c->fd = -1;
	return c;
}

static void chore_begin(struct chore *c)
{
	struct provider *p = c->t->provider;

	lock(&p->lock);
	c->t->refs++;
	p->busy++;
	unlock(&p->lock);
	c->t->chores++;
	workers_submit(p->workers, &c->work);
}

/* ---- the file lock ---- */

static void run_lock(struct work *w)
{
	struct chore *c = CONTAINER_OF(w, struct chore, work);
	struct tenant *t = c->t;
	char *path CLEANUP_FREE = NULL;

	c->error = paths_make_thread(t->provider->data, t->user, t->thread);
	if (c->error < 0)
		return;
	path = lock_path(t);
	c->fd = path ? filelock_try(path, true) : -ENOMEM;
	c->error = MIN(c->fd, 0);
}

int chore_lock(struct tenant *t, void (*then)(struct tenant *t, int error))
{
	struct chore *c = chore_new(t, run_lock);

	if (!c)
		return -ENOMEM;
	c->then = then;
	chore_begin(c);
	return 0;
}

static void run_unlock(struct work *w)
{
	struct chore *c = CONTAINER_OF(w, struct chore, work);
	char *path CLEANUP_FREE = lock_path(c->t);

	/*
	 * deer-flow, which has the same sandboxes, would go on with a lock of the file that
	 * was removed under it.
	 */
	if (path && !c->t->provider->backend->ops->has_old_ids)
		filelock_remove(path, c->fd);
	else
		close(c->fd);
}

void chore_unlock(struct tenant *t)
{
	struct chore *c;

	if (t->lock_fd < 0)
		return;
	c = chore_new(t, run_unlock);
	if (!c) {
		close(steal_fd(&t->lock_fd)); /* the file stays: better than the lock */
		return;
	}
	c->fd = steal_fd(&t->lock_fd);
	chore_begin(c);
}

static void sweep(const char *path)
{
	int fd = filelock_try_existing(path, true);

	if (fd >= 0)
		filelock_remove(path, fd);
}

static void run_sweep(struct work *w)
{
	chore_sweep_now(CONTAINER_OF(w, struct chore, work)->t);
}

void chore_sweep(struct tenant *t)
{
	struct chore *c = t->provider->data ? chore_new(t, run_sweep) : NULL;

	if (c)
		chore_begin(c);
}

void chore_sweep_now(const struct tenant *t)
{
	char *path CLEANUP_FREE = lock_path(t);

	if (path)
		sweep(path);
}

/* ---- the registry ---- */

static void run_register(struct work *w)
{
	struct tenant *t = CONTAINER_OF(w, struct chore, work)->t;
	struct provider *p = t->provider;
	int r = registry_add(p->data, t->user, t->thread, p->backend->ops->name);

	if (r < 0)
		log_warn("%s: sandbox %s: cannot be kept in the registry: %s", t->key, tenant_id(t),
			 strerrordesc_np(-r));
}

/* Not waited for: the thread has a directory, too. */
void chore_register(struct tenant *t)
{
	struct chore *c;

	if (t->registered || !t->provider->data)
		return;
	c = chore_new(t, run_register);
	if (!c)
		return;
	t->registered = true;
	chore_begin(c);
}
