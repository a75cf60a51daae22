/*
 * What a store of leases answers. The first byte is its type, eight are a number, the rest is
 * text. How it comes over the wire is hiredis' business. The functions are the file's own.
 */
#include "../../provider/ownership_redis.c"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEAD_BYTES = 9 };

static void check_owner(const struct ownership_op *op, const redisReply *reply)
{
	if (reply->type == REDIS_REPLY_NIL) {
		assert(!op->owner);
		return;
	}
	assert(reply->type == REDIS_REPLY_STRING && op->owner && op->owner[0]);
	assert(strncmp(reply->str, op->condemned ? "del:" : "own:", 4) == 0);
	assert(strlen(op->owner) ==
	       reply->len - 4); /* all of it: the beginning is another's name */
}

static void read_as(enum ownership_verb verb, const redisReply *reply)
{
	struct ownership_op op = { .verdict = 99 };
	struct request q = { .op = &op, .verb = verb, .key = (char *)"deerflow:id" };
	int r = read_reply(&q, reply);

	assert(r == 0 || r == -EBADMSG || r == -EIO);
	assert(memchr(q.why, '\0', WHY_MAX));
	if (r < 0)
		assert(!op.owner && op.verdict == 99);
	else if (verb == OWNERSHIP_LOOK)
		check_owner(&op, reply);
	else
		assert(reply->type == REDIS_REPLY_INTEGER && (int)op.verdict >= -1 &&
		       (int)op.verdict <= 1);
	free(op.owner);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	redisReply reply = { 0 };
	bool has_text;

	if (size < HEAD_BYTES)
		return 0;
	reply.type = 1 + data[0] % 8;
	has_text = reply.type == REDIS_REPLY_STRING || reply.type == REDIS_REPLY_STATUS ||
		   reply.type == REDIS_REPLY_ERROR;
	memcpy(&reply.integer, data + 1, sizeof(reply.integer));
	data += HEAD_BYTES;
	size -= HEAD_BYTES;
	if (has_text) { /* as hiredis has it: with a NUL behind */
		reply.str = malloc(size + 1);
		assert(reply.str);
		memcpy(reply.str, data, size);
		reply.str[size] = '\0';
		reply.len = size;
	}
	for (int verb = 0; verb < OWNERSHIP_VERBS; verb++)
		read_as((enum ownership_verb)verb, &reply);
	free(reply.str);
	return 0;
}
