/*
 * copy_file_range(2) inside one sandbox, without the bytes coming here. Where
 * that cannot be done the kernel copies by reading and writing. Loop thread only.
 */
#include <errno.h>

#include "entry.h"
#include "file.h"
#include "ops.h"
#include "stage.h"

static void start_copy(struct remote *r, struct sandbox *sb)
{
	struct trip *t = trip_of(r);
	char *from CLEANUP_FREE = trip_path(t, t->other, NULL, sb);
	char *to CLEANUP_FREE = from ? trip_path(t, t->node, NULL, sb) : NULL;

	if (to)
		sandbox_copy_range(sb, &r->call, from, t->offset, to, t->offset2, t->length,
				   &t->copied);
}

static void looked(struct trip *t, int err)
{
	struct handle *h;

	if (err == 0) {
		node_learn(t->node, &t->attr, &t->asked);
		for (h = t->node->handles; h; h = h->next)
			h->reader_old = true;
	}
	if (err < 0)
		parked_err(&t->parked, err);
	else
		parked_write(&t->parked, t->copied);
}

static void copied(struct trip *t, int err)
{
	node_void_peers(t->node);
	node_void_attr(t->node);
	if (err == 0 && t->copied > t->length)
		err = -EBADMSG; /* whoever asked would take the difference for bytes */
	if (err < 0) {
		/*
		 * By its name it may not be written (cp makes the copy of a read-only file as one),
		 * but who has it open may: the kernel copies, and we replace the file as a whole.
		 */
		parked_err(&t->parked, err == -EACCES || err == -EPERM ? -EOPNOTSUPP : err);
		return;
	}
	t->changes = false;
	trip_begin(t, trip_lstat, looked);
}

static void is_born(struct trip *t, int err)
{
	struct node *n = t->node;

	if (!trip_goes_on(t))
		return;
	/* What is in the sandbox is all there is: its stage would only be in the way. */
	if (err == 0 && n->stage) {
		if (stage_is_clean(n->stage))
			stage_free(n->stage);
		else
			err = -EOPNOTSUPP;
	}
	if (err < 0) {
		trip_end(t, err);
		return;
	}
	t->changes = true;
	trip_begin(t, start_copy, copied);
}

/* One that is made read-only can be written as long as it is only here. */
static bool is_read_only(struct node *n)
{
	struct stat st;

	node_stat(n, &st);
	return !(st.st_mode & S_IWUSR);
}

void sandbox_op_copy(fuse_req_t req, struct handle *from, uint64_t from_offset, struct handle *to,
		     uint64_t to_offset, uint64_t len, int flags)
{
	struct trip *t = trip_new(to->node->fs, req, to->node);

	if (!t)
		return;
	if (flags != 0 || !to->writes || from->node->thread != to->node->thread) {
		trip_end(t, flags ? -EINVAL : to->writes ? -EXDEV : -EBADF);
		return;
	}
	/* Only what both sides have in the sandbox can be copied there. */
	if (from->node == to->node || from->node->stage || !from->node->parent ||
	    !to->node->parent || is_read_only(to->node) ||
	    (to->node->stage &&
	     (!to->node->unborn || stage_size(to->node->stage) > 0 || to->reading > 0))) {
		trip_end(t, -EOPNOTSUPP);
		return;
	}
	t->other = node_ref(from->node);
	t->offset = from_offset;
	t->offset2 = to_offset;
	t->length = len;
	file_settle(t, to->node, true, is_born);
}
