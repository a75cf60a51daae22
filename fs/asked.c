/* See asked.h. */
#include "asked.h"

#include <linux/fuse.h>
#include <string.h>

#include "fs.h"
#include "node.h"

static const struct {
	const char *name;
	bool cacheable;
} kinds[ASKED_KINDS] = {
	[ASKED_OTHER] = { "other", false },      [ASKED_LOOKUP] = { "lookup", true },
	[ASKED_GETATTR] = { "getattr", true },   [ASKED_SETATTR] = { "setattr", false },
	[ASKED_READLINK] = { "readlink", true }, [ASKED_READDIR] = { "readdir", true },
	[ASKED_NAMES] = { "names", false },      [ASKED_OPEN] = { "open", true },
	[ASKED_READ] = { "read", true },         [ASKED_WRITE] = { "write", false },
	[ASKED_CLOSE] = { "close", false },      [ASKED_SYNC] = { "sync", false },
	[ASKED_STATFS] = { "statfs", false },
};

const char *asked_name(enum asked_kind kind)
{
	return kinds[kind].name;
}

const char *asked_class_name(enum asked_class class)
{
	return class == ASKED_SANDBOX ? "sandbox" : "control";
}

bool asked_is_cacheable(enum asked_kind kind)
{
	return kinds[kind].cacheable;
}

static enum asked_kind kind_of(uint32_t opcode)
{
	switch (opcode) {
	case FUSE_LOOKUP:
		return ASKED_LOOKUP;
	case FUSE_GETATTR:
		return ASKED_GETATTR;
	case FUSE_SETATTR:
		return ASKED_SETATTR;
	case FUSE_READLINK:
		return ASKED_READLINK;
	case FUSE_OPENDIR:
	case FUSE_READDIR:
	case FUSE_READDIRPLUS:
	case FUSE_RELEASEDIR:
		return ASKED_READDIR;
	case FUSE_SYMLINK:
	case FUSE_MKNOD:
	case FUSE_MKDIR:
	case FUSE_UNLINK:
	case FUSE_RMDIR:
	case FUSE_RENAME:
	case FUSE_RENAME2:
	case FUSE_LINK:
		return ASKED_NAMES;
	case FUSE_OPEN:
	case FUSE_CREATE:
		return ASKED_OPEN;
	case FUSE_READ:
		return ASKED_READ;
	case FUSE_WRITE:
	case FUSE_FALLOCATE:
	case FUSE_COPY_FILE_RANGE:
		return ASKED_WRITE;
	case FUSE_FLUSH:
	case FUSE_RELEASE:
		return ASKED_CLOSE;
	case FUSE_FSYNC:
	case FUSE_FSYNCDIR:
		return ASKED_SYNC;
	case FUSE_STATFS:
		return ASKED_STATFS;
	default:
		return ASKED_OTHER;
	}
}

/* What may be one of ours is: nodes that are not known any more belong to sandboxes. */
static enum asked_class class_of(struct fs *fs, fuse_ino_t ino)
{
	const struct node *n = node_by_ino(fs, ino);

	return n && n->kind != NODE_SANDBOX ? ASKED_CONTROL : ASKED_SANDBOX;
}

void asked_begin(struct fs *fs, const struct fuse_buf *request)
{
	struct asked *a = &fs->asked;
	struct fuse_in_header head = { 0 };

	if (!(request->flags & FUSE_BUF_IS_FD) && request->size >= sizeof(head))
		memcpy(&head, request->mem, sizeof(head));
	a->serial++;
	a->kind = kind_of(head.opcode);
	a->ino = head.nodeid;
	a->class = class_of(fs, head.nodeid);
	a->handling = true;
}

void asked_end(struct fs *fs)
{
	fs->asked.handling = false;
}
