/*
 * Records of the ledger, as they lie in the cache directory. The first byte says which slot, which
 * version, and whether the rest is a slot as it is, or what follows its head: then that is made
 * to fit, or hardly anything would come past the sum.
 */
#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <limits.h>
#include <openssl/evp.h>
#include <string.h>

#include "ident.h"
#include "ledger_record.h"
#include "uuid.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
	SECOND = 1, /* bits of the first byte */
	OLD = 2,
	RAW = 4,
	BEHIND = 8, /* a newer record is in the other slot */
	AT_VERSION = 16,
	AT_LEN = 20,
	AT_SEQ = 24,
	AT_SUM = 32,
	AT_BODY = 64,
};

static void put_head(char *slot, uint32_t version, size_t len, uint64_t seq)
{
	unsigned char sum[EVP_MAX_MD_SIZE];

	version = htole32(version);
	seq = htole64(seq);
	memcpy(slot, "threadfs-ledger", 16);
	memcpy(slot + AT_VERSION, &version, sizeof(version));
	memcpy(slot + AT_LEN, &(uint32_t){ htole32((uint32_t)len) }, sizeof(uint32_t));
	memcpy(slot + AT_SEQ, &seq, sizeof(seq));
	memset(slot + AT_SUM, 0, AT_BODY - AT_SUM);
	assert(EVP_Digest(slot, AT_BODY + len, sum, NULL, EVP_sha256(), NULL) == 1);
	memcpy(slot + AT_SUM, sum, AT_BODY - AT_SUM);
}

/* Not by the code that is being checked. */
static void check_path(const char *path)
{
	assert(strlen(path) < PATH_MAX);
	for (;;) {
		size_t len = strcspn(path, "/");

		assert(len > 0 && len <= NAME_MAX);
		assert(!(len == 1 && path[0] == '.') && !(len == 2 && memcmp(path, "..", 2) == 0));
		if (!path[len])
			return;
		path += len + 1;
	}
}

static void check_record(const struct ledger_record *r)
{
	assert(r->source && r->user && r->thread && r->path);
	assert(ident_is_thread(r->thread));
	check_path(r->path);
	assert((int)r->kind >= 0 && r->kind < LEDGER_KINDS);
	assert(r->mode >= -1 && r->mode <= 07777 && r->error <= 0);
	assert(r->base.size <= INT64_MAX && r->base_len <= r->base.size && r->from <= INT64_MAX);
	assert(r->size <= INT64_MAX && r->maybe <= INT64_MAX);
	assert(!r->boot || !*r->boot || uuid_is(r->boot));
	for (size_t i = 0; i < r->written.n; i++) {
		const struct extent *e = &r->written.v[i];

		assert(e->start < e->end && e->end <= INT64_MAX);
		assert(i == 0 || e[-1].end < e->start);
	}
}

/* What was read is written as it is read again. */
static void check_round(const struct ledger_record *r, uint64_t seq)
{
	char *head CLEANUP_FREE = calloc(1, LEDGER_HEAD), *again CLEANUP_FREE = malloc(LEDGER_SLOT);
	struct ledger_record back CLEANUP_RECORD = { 0 };
	uint64_t back_seq = 0;
	size_t len, again_len;

	assert(head && again);
	assert(ledger_encode(r, seq, head, &len) == 0); /* it came from less than it has room for */
	assert(ledger_decode(head, &back, &back_seq) == 0 && back_seq == seq);
	check_record(&back);
	assert(ledger_encode(&back, seq, again, &again_len) == 0);
	assert(len == again_len && memcmp(head, again, len) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *head CLEANUP_FREE = calloc(1, LEDGER_HEAD), *slot, *other;
	struct ledger_record r CLEANUP_RECORD = { 0 };
	uint64_t seq = 0;
	uint8_t how;
	int err;

	assert(head);
	if (size < 1 || size > LEDGER_SLOT / 2)
		return 0;
	how = *data++;
	size--;
	slot = head + (how & SECOND ? LEDGER_SLOT : 0);
	other = head + (how & SECOND ? 0 : LEDGER_SLOT);
	memcpy(slot + (how & RAW ? 0 : AT_BODY), data, size);
	if (!(how & RAW))
		put_head(slot, how & OLD ? 1 : 2, size, 7);
	if (how & BEHIND)
		put_head(other, 2, 0, 8);
	err = ledger_decode(head, &r, &seq);
	assert(err == 0 || err == -EBADMSG || err == -EPROTONOSUPPORT);
	if (err < 0) {
		assert(!r.path && !r.written.v);
		return 0;
	}
	assert(!(how & BEHIND) || how & RAW); /* the newer one counts, and has nothing in it */
	check_record(&r);
	check_round(&r, seq);
	return 0;
}
