/*
 * What a tenant has while it has a sandbox: its place, its id, whether it is
 * ours to stop, and then the hold of its lease. Loop thread.
 */
#include <errno.h>
#include <string.h>

#include "clock.h"
#include "provider_i.h"

bool held_collides(const struct tenant *t)
{
	struct tenant *holder;

	HASH_FIND(by_id, t->provider->holders, t->id, strlen(t->id), holder);
	return holder && holder != t;
}

int held_take_id(struct tenant *t)
{
	HASH_ADD(by_id, t->provider->holders, id, strlen(t->id), t);
	t->holds_id = HASH_TOOK(by_id, t);
	return t->holds_id ? 0 : -ENOMEM;
}

void held_set_ours(struct tenant *t, bool ours)
{
	lock(&t->provider->lock);
	t->ours = ours;
	unlock(&t->provider->lock);
}

/* place is taken over. Those who look at the status may be reading the old one. */
static void set_place(struct tenant *t, struct place place)
{
	struct place old;

	lock(&t->provider->lock);
	old = t->place;
	t->place = place;
	t->created_wall = place.id[0] ? clock_wall() : 0;
	unlock(&t->provider->lock);
	place_release(&old);
}

void held_take_place(struct tenant *t, struct backend_op *op, const char *id)
{
	struct place place = op->place;

	op->place = (struct place){ 0 };
	memcpy(place.id, id, strlen(id) + 1);
	set_place(t, place);
}

void held_drop_place(struct tenant *t)
{
	set_place(t, (struct place){ 0 });
}

void held_forget_place(struct tenant *t)
{
	struct backend *b = t->provider->backend;

	if (t->place.id[0] && b->ops->forget)
		b->ops->forget(b, t->place.id);
	held_drop_place(t);
	held_set_ours(t, false);
	hold_end(t);
	hold_note_owner(t, NULL);
}

void held_drop(struct tenant *t)
{
	held_forget_place(t);
	if (t->holds_id)
		HASH_DELETE(by_id, t->provider->holders, t);
	t->holds_id = false;
	t->unproven = false;
}
