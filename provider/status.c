/*
 * What there is, for those who look: copies, made under the locks, so that
 * nobody waits for anybody. Any thread.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "clock.h"
#include "ident.h"
#include "io.h"
#include "paths.h"
#include "provider_i.h"
#include "registry.h"

void tenant_status_release(struct tenant_status *s)
{
	free(s->user);
	free(s->thread);
	free(s->last_message);
	free(s->url);
	free(s->owner);
	*s = (struct tenant_status){ 0 };
}

void tenant_list_release(struct tenant_list *l)
{
	for (size_t i = 0; i < l->count; i++)
		tenant_status_release(&l->items[i]);
	free(l->items);
	*l = (struct tenant_list){ 0 };
}

/* NULL also if there is none. */
static char *url_of(const struct place *place)
{
	char *url = NULL;

	if (place->url)
		return strdup(place->url);
	if (!place->socket || asprintf(&url, "unix:%s", place->socket) < 0)
		return NULL;
	return url;
}

static int fill_locked(struct provider *p, struct tenant *t, struct tenant_status *s) NEEDS(p->lock)
{
	const bool has_place = t->place.url || t->place.socket;

	*s = (struct tenant_status){
		.user = strdup(t->user),
		.thread = strdup(t->thread),
		.ours = t->ours,
		.since_ms = t->since_ms,
		.starts = t->starts,
		.restarts = t->restarts,
		.last_error = t->last_error,
		.last_message = t->last_message ? strdup(t->last_message) : NULL,
		.error_wall = t->error_wall,
		.url = url_of(&t->place),
		.pid = t->place.pid,
		.owner = t->owner ? strdup(t->owner) : NULL,
		.created_wall = t->created_wall,
	};
	memcpy(s->id, t->id, sizeof(s->id));
	lock(&t->lock);
	s->state = t->state;
	s->leases = t->leases;
	s->used_ms = t->used_ms;
	s->breaker = t->breaker;
	if (t->sb)
		snprintf(s->dialect, sizeof(s->dialect), "%s", sandbox_dialect(t->sb));
	unlock(&t->lock);
	if (t->starts > 0)
		s->used_wall = clock_wall() - (double)(provider_now(p) - s->used_ms) / 1e3;
	if (s->user && s->thread && (s->url || !has_place))
		return 0;
	tenant_status_release(s);
	return -ENOMEM;
}

int tenant_status(struct tenant *t, struct tenant_status *ret)
{
	struct tenant_status s;
	int r;

	lock(&t->provider->lock);
	r = fill_locked(t->provider, t, &s);
	unlock(&t->provider->lock);
	if (r == 0)
		*ret = s;
	return r;
}

static int by_name(const void *a, const void *b)
{
	const struct tenant_status *x = a, *y = b;

	return strcmp(x->user, y->user) ?: strcmp(x->thread, y->thread);
}

int provider_status(struct provider *p, struct tenant_list *ret)
{
	struct tenant_list l = { 0 };
	struct tenant *t, *tmp;
	int r = 0;

	lock(&p->lock);
	l.items = calloc(HASH_CNT(by_key, p->tenants) + 1, sizeof(*l.items));
	if (!l.items)
		r = -ENOMEM;
	HASH_ITER (by_key, p->tenants, t, tmp) {
		if (r == 0)
			r = fill_locked(p, t, &l.items[l.count]);
		if (r == 0)
			l.count++;
	}
	unlock(&p->lock);
	if (r < 0) {
		tenant_list_release(&l);
		return r;
	}
	qsort(l.items, l.count, sizeof(*l.items), by_name);
	*ret = l;
	return 0;
}

/* ---- names ---- */

struct names {
	char **items;
	size_t count, room;
};

static void names_release(struct names *n)
{
	for (size_t i = 0; i < n->count; i++)
		free(n->items[i]);
	free(n->items);
}

static int names_add(struct names *n, const char *name)
{
	char **more;

	if (n->count == n->room) {
		more = reallocarray(n->items, n->room + 64, sizeof(*more));
		if (!more)
			return -ENOMEM;
		n->items = more;
		n->room += 64;
	}
	n->items[n->count] = strdup(name);
	return n->items[n->count] ? (n->count++, 0) : -ENOMEM;
}

static int add_entry(void *ctx, const struct registry_entry *e)
{
	return names_add(ctx, e->thread);
}

/* dir is taken over. */
static int add_directories_of(struct names *n, char *dir)
{
	char *path CLEANUP_FREE = dir;
	struct dirent *d;
	struct stat st;
	int r = 0;
	DIR *dp = path ? opendir(path) : NULL;

	if (!path)
		return -ENOMEM;
	if (!dp)
		return errno == ENOENT ? 0 : -errno;
	while (r == 0 && (d = dir_next(dp, &r))) {
		if (ident_is_thread(d->d_name) &&
		    fstatat(dirfd(dp), d->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    S_ISDIR(st.st_mode))
			r = names_add(n, d->d_name);
	}
	closedir(dp);
	return r;
}

/* A thread of deer-flow's that we have never seen has a directory all the same. */
static int add_directories(struct names *n, const char *data, const char *user)
{
	char *legacy = paths_legacy_threads(data, user);
	int r = add_directories_of(n, paths_threads(data, user));

	if (r == 0 && legacy)
		return add_directories_of(n, legacy);
	free(legacy);
	return r;
}

static int add_tenants(struct names *n, struct provider *p, const char *user)
{
	struct tenant *t, *tmp;
	int r = 0;

	lock(&p->lock);
	HASH_ITER (by_key, p->tenants, t, tmp) {
		bool has;

		lock(&t->lock);
		has = t->state != TENANT_COLD || t->leases > 0;
		unlock(&t->lock);
		if (r == 0 && has && strcmp(t->user, user) == 0)
			r = names_add(n, t->thread);
	}
	unlock(&p->lock);
	return r;
}

static int compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

int provider_threads(struct provider *p, const char *user, char ***ret, size_t *ret_count)
{
	struct names n = { 0 };
	size_t kept = 0;
	int r;

	if (!ident_is_user(user))
		return -EINVAL;
	r = add_tenants(&n, p, user);
	if (r == 0 && p->data)
		r = registry_read(p->data, user, add_entry, &n);
	if (r == 0 && p->data)
		r = add_directories(&n, p->data, user);
	if (r < 0) {
		names_release(&n);
		return r;
	}
	if (n.count > 0)
		qsort(n.items, n.count, sizeof(*n.items), compare);
	for (size_t i = 0; i < n.count; i++) {
		if (kept > 0 && strcmp(n.items[kept - 1], n.items[i]) == 0)
			free(n.items[i]);
		else
			n.items[kept++] = n.items[i];
	}
	*ret = n.items;
	*ret_count = kept;
	return 0;
}
