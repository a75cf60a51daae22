/* What is known of one directory; see the header. */
#include "listing.h"

#include <errno.h>
#include <string.h>

enum { COMPACT_MIN = 256 };

/* Of all listings: none of two different states of names has the same. */
static uint64_t last_serial;

/* ---- life ---- */

static uint32_t slots_for(size_t n)
{
	uint32_t count = 16;

	while (count < n + n / 2)
		count *= 2;
	return count;
}

int listing_new(const char *path, size_t expect, struct listing **ret)
{
	struct listing *l = calloc(1, sizeof(*l));
	uint32_t slots = slots_for(expect);

	if (!l)
		return -ENOMEM;
	l->refs = 1;
	l->serial = ++last_serial;
	l->complete = true;
	l->path = strdup(path);
	l->slots = calloc(slots, sizeof(*l->slots));
	l->slot_mask = slots - 1;
	l->cap = (uint32_t)expect;
	l->v = expect ? calloc(expect, sizeof(*l->v)) : NULL;
	l->text_len = 1; /* so that 0 is no place of a target */
	if (!l->path || !l->slots || (expect && !l->v)) {
		listing_unref(l);
		return -ENOMEM;
	}
	*ret = l;
	return 0;
}

struct listing *listing_ref(struct listing *l)
{
	l->refs++;
	return l;
}

void listing_unref(struct listing *l)
{
	if (!l || --l->refs > 0)
		return;
	free(l->path);
	free(l->v);
	free(l->text);
	free(l->slots);
	free(l);
}

size_t listing_size(const struct listing *l)
{
	return sizeof(*l) + l->cap * sizeof(*l->v) + l->text_cap +
	       (l->slot_mask + (size_t)1) * sizeof(*l->slots) + strlen(l->path);
}

/* ---- names ---- */

static uint32_t *find_slot(const struct listing *l, const char *name, size_t len, uint32_t hash)
{
	for (uint32_t i = hash & l->slot_mask;; i = (i + 1) & l->slot_mask) {
		const struct item *it;

		if (!l->slots[i])
			return &l->slots[i];
		it = &l->v[l->slots[i] - 1];
		if (it->hash == hash && strncmp(l->text + it->name, name, len) == 0 &&
		    l->text[it->name + len] == '\0')
			return &l->slots[i];
	}
}

static struct item *find_any(const struct listing *l, const char *name)
{
	size_t len = strlen(name);
	uint32_t *slot = find_slot(l, name, len, hash_of(name, len));

	return *slot ? &l->v[*slot - 1] : NULL;
}

struct item *listing_find(const struct listing *l, const char *name)
{
	struct item *i = find_any(l, name);

	return i && i->state != ITEM_GONE ? i : NULL;
}

static uint32_t copy_text(char *to, uint32_t *len, const char *s)
{
	uint32_t at = *len;
	size_t n = strlen(s) + 1;

	memcpy(to + at, s, n);
	*len += (uint32_t)n;
	return at;
}

/* Places change: only while nobody reads it. Without memory it stays as it is. */
static void compact(struct listing *l)
{
	char *text = malloc(l->text_cap);
	uint32_t n = 0, len = 1;

	if (!text)
		return;
	memset(l->slots, 0, (l->slot_mask + (size_t)1) * sizeof(*l->slots));
	for (uint32_t i = 0; i < l->n; i++) {
		struct item it = l->v[i];
		uint32_t at = it.hash & l->slot_mask;

		if (it.state == ITEM_GONE)
			continue;
		it.name = copy_text(text, &len, l->text + it.name);
		if (it.target)
			it.target = copy_text(text, &len, l->text + it.target);
		l->v[n++] = it;
		while (l->slots[at])
			at = (at + 1) & l->slot_mask;
		l->slots[at] = n;
	}
	l->n = n;
	free(l->text);
	l->text = text;
	l->text_len = len;
}

static int grow_slots(struct listing *l)
{
	uint32_t count = (l->slot_mask + 1) * 2;
	uint32_t *slots = calloc(count, sizeof(*slots));

	if (!slots)
		return -ENOMEM;
	for (uint32_t i = 0; i < l->n; i++) {
		uint32_t at = l->v[i].hash & (count - 1);

		while (slots[at])
			at = (at + 1) & (count - 1);
		slots[at] = i + 1;
	}
	free(l->slots);
	l->slots = slots;
	l->slot_mask = count - 1;
	return 0;
}

static int add_text(struct listing *l, const char *s, size_t len, uint32_t *ret)
{
	if (l->text_len + len + 1 > l->text_cap) {
		size_t cap = MAX((size_t)l->text_cap + l->text_cap / 2,
				 l->text_len + len + 1 + (size_t)l->cap * 8);
		char *more = cap < UINT32_MAX ? realloc(l->text, cap) : NULL;

		if (!more)
			return -ENOMEM;
		l->text = more;
		l->text_cap = (uint32_t)cap;
	}
	memcpy(l->text + l->text_len, s, len);
	l->text[l->text_len + len] = '\0';
	*ret = l->text_len;
	l->text_len += (uint32_t)len + 1;
	return 0;
}

static int add_item(struct listing *l, const char *name, size_t len, uint32_t hash,
		    struct item **ret)
{
	struct item *it;
	uint32_t at;

	if (l->refs == 1 && l->n - l->live > COMPACT_MIN && l->n > 2 * l->live)
		compact(l);
	if (l->n == l->cap) {
		uint32_t cap = MAX(l->cap + l->cap / 2, 8u);
		struct item *more = reallocarray(l->v, cap, sizeof(*more));

		if (!more)
			return -ENOMEM;
		l->v = more;
		l->cap = cap;
	}
	if ((l->n + 1) + (l->n + 1) / 2 > l->slot_mask && grow_slots(l) < 0)
		return -ENOMEM;
	if (add_text(l, name, len, &at) < 0)
		return -ENOMEM;
	it = &l->v[l->n++];
	*it = (struct item){ .name = at, .hash = hash, .state = ITEM_GONE };
	*find_slot(l, name, len, hash) = l->n;
	*ret = it;
	return 0;
}

static void set_state(struct listing *l, struct item *i, enum item_state state)
{
	bool was_there = i->state != ITEM_GONE, is_there = state != ITEM_GONE;

	l->live += (uint32_t)is_there - (uint32_t)was_there;
	l->stale += (uint32_t)(state == ITEM_STALE || state == ITEM_UNSURE) -
		    (uint32_t)(i->state == ITEM_STALE || i->state == ITEM_UNSURE);
	l->unsure += (uint32_t)(state == ITEM_UNSURE) - (uint32_t)(i->state == ITEM_UNSURE);
	/* What was perhaps there and is, or is not: whoever read it may have seen otherwise. */
	if (was_there != is_there || (i->state == ITEM_UNSURE) != (state == ITEM_UNSURE))
		l->serial = ++last_serial;
	i->state = (uint8_t)state;
}

static void set_attr(struct item *i, const struct attr *a)
{
	/* Another type is another file, as far as who reads the directory is concerned. */
	i->mode = a->mode;
	i->nlink = a->nlink;
	i->size = a->size;
	i->blocks = a->blocks;
	i->ino = a->ino;
	i->dev = a->dev;
	i->mtime = a->mtime.tv_sec;
	i->mtime_ns = (uint32_t)a->mtime.tv_nsec;
	i->ctime = a->ctime.tv_sec;
	i->ctime_ns = (uint32_t)a->ctime.tv_nsec;
	i->partial = a->partial;
}

void item_attr(const struct item *i, struct attr *ret)
{
	*ret = (struct attr){
		.mode = i->mode,
		.nlink = i->nlink,
		.size = i->size,
		.blocks = i->blocks,
		.ino = i->ino,
		.dev = i->dev,
		.mtime = { i->mtime, i->mtime_ns },
		.ctime = { i->ctime, i->ctime_ns },
		.partial = i->partial,
	};
}

/* The item of a name, made if there is none. */
static int need_item(struct listing *l, const char *name, size_t len, struct item **ret)
{
	uint32_t hash = hash_of(name, len);
	uint32_t *slot = find_slot(l, name, len, hash);

	if (!*slot)
		return add_item(l, name, len, hash, ret);
	*ret = &l->v[*slot - 1];
	return 0;
}

int listing_put(struct listing *l, const char *name, size_t len, const struct attr *attr,
		const char *target)
{
	struct item *i;
	int r = need_item(l, name, len, &i);

	if (r < 0)
		return r;
	i->target = 0;
	if (attr)
		set_attr(i, attr);
	if (target && attr && S_ISLNK(attr->mode) &&
	    add_text(l, target, strlen(target), &i->target) < 0)
		i->target = 0; /* it is asked for then */
	set_state(l, i, attr ? ITEM_KNOWN : ITEM_STALE);
	return 0;
}

void listing_update(struct listing *l, const char *name, const struct attr *attr)
{
	struct item *i = listing_find(l, name);

	if (!i)
		return;
	if (i->mode != attr->mode || i->ino != attr->ino || i->ctime != attr->ctime.tv_sec ||
	    i->ctime_ns != (uint32_t)attr->ctime.tv_nsec)
		i->target = 0; /* perhaps another link */
	if ((i->mode & S_IFMT) != (attr->mode & S_IFMT))
		l->serial = ++last_serial;
	set_attr(i, attr);
	set_state(l, i, ITEM_KNOWN);
}

void listing_void(struct listing *l, const char *name)
{
	struct item *i = listing_find(l, name);

	if (i && i->state == ITEM_KNOWN)
		set_state(l, i, ITEM_STALE);
}

void listing_void_file(struct listing *l, uint64_t ino, uint64_t dev)
{
	for (struct item *i = l->v; i < l->v + l->n; i++) {
		if (i->state == ITEM_KNOWN && i->ino == ino && i->dev == dev)
			set_state(l, i, ITEM_STALE);
	}
}

int listing_doubt(struct listing *l, const char *name)
{
	struct item *i;
	int r = need_item(l, name, strlen(name), &i);

	if (r == 0)
		set_state(l, i, ITEM_UNSURE);
	return r;
}

void listing_remove(struct listing *l, const char *name)
{
	struct item *i = find_any(l, name);

	if (i && i->state != ITEM_GONE)
		set_state(l, i, ITEM_GONE);
}
