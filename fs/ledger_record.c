/* The form of a ledger's record: see ledger_record.h. */
#include "ledger_record.h"

#include <endian.h>
#include <errno.h>
#include <limits.h>
#include <openssl/evp.h>
#include <string.h>

#include "ident.h"
#include "uuid.h"

static const char magic[16] = "threadfs-ledger";

enum {
	VERSION = 2,
	VERSION_FIRST = 1, /* without what follows `written` */
	SUM = 32,
};

struct slot {
	char magic[16];
	uint32_t version, len; /* of what follows; little-endian, as all numbers */
	uint64_t seq;
	unsigned char sum[SUM]; /* SHA-256 of the slot with zeros here */
	char body[LEDGER_SLOT - 64];
};
_Static_assert(sizeof(struct slot) == LEDGER_SLOT, "a slot is a slot");

void ledger_record_release(struct ledger_record *rec)
{
	free(rec->source);
	free(rec->user);
	free(rec->thread);
	free(rec->path);
	free(rec->boot);
	extents_release(&rec->written);
	*rec = (struct ledger_record){ 0 };
}

/* Of another length: it was written to since, and what came then need not be on the disk. */
bool ledger_is_certain(const struct ledger_record *rec, const char *boot, uint64_t size)
{
	if (*boot && rec->boot && strcmp(rec->boot, boot) == 0)
		return true;
	return rec->durable && rec->size == size;
}

static int sum_up(struct slot *s, unsigned char to[SUM])
{
	unsigned char kept[SUM];
	size_t len = offsetof(struct slot, body) + MIN(le32toh(s->len), sizeof(s->body));
	int ok;

	memcpy(kept, s->sum, SUM);
	memset(s->sum, 0, SUM);
	ok = EVP_Digest(s, len, to, NULL, EVP_sha256(), NULL);
	memcpy(s->sum, kept, SUM);
	return ok == 1 ? 0 : -ENOMEM;
}

/* ---- writing ---- */

struct pen {
	char *at, *end;
	bool full;
};

static void put(struct pen *p, const void *bytes, size_t len)
{
	if ((size_t)(p->end - p->at) < len) {
		p->full = true;
		return;
	}
	memcpy(p->at, bytes, len);
	p->at += len;
}

static void put_number(struct pen *p, uint64_t n)
{
	n = htole64(n);
	put(p, &n, sizeof(n));
}

static void put_text(struct pen *p, const char *text)
{
	size_t len = strlen(text);

	put_number(p, len);
	put(p, text, len);
}

static void put_time(struct pen *p, const struct timespec *t)
{
	put_number(p, (uint64_t)t->tv_sec);
	put_number(p, (uint64_t)t->tv_nsec);
}

int ledger_encode(const struct ledger_record *rec, uint64_t seq, char to[LEDGER_SLOT],
		  size_t *ret_len)
{
	struct slot *s = (struct slot *)(void *)to;
	struct pen p = { .at = s->body, .end = s->body + sizeof(s->body) };
	unsigned char sum[SUM] = { 0 };
	int r;

	memset(s, 0, offsetof(struct slot, body));
	put_text(&p, rec->source);
	put_text(&p, rec->user);
	put_text(&p, rec->thread);
	put_text(&p, rec->path);
	put_number(&p, rec->kind);
	put_number(&p, rec->settled);
	put_number(&p, rec->base.there);
	put_number(&p, rec->base.size);
	put_number(&p, rec->base.ino);
	put_time(&p, &rec->base.mtime);
	put_number(&p, rec->base_len);
	put_number(&p, rec->from);
	put_number(&p, (uint64_t)(int64_t)rec->mode);
	put_number(&p, rec->times);
	put_time(&p, &rec->mtime);
	put_number(&p, (uint64_t)(int64_t)rec->error);
	put_number(&p, rec->written.n);
	for (size_t i = 0; i < rec->written.n; i++) {
		put_number(&p, rec->written.v[i].start);
		put_number(&p, rec->written.v[i].end);
	}
	put_text(&p, rec->boot ?: "");
	put_number(&p, rec->size);
	put_number(&p, rec->durable);
	put_number(&p, rec->maybe);
	if (p.full)
		return -E2BIG;
	memcpy(s->magic, magic, sizeof(magic));
	s->version = htole32(VERSION);
	s->len = htole32((uint32_t)(p.at - s->body));
	s->seq = htole64(seq);
	*ret_len = (size_t)(p.at - to);
	r = sum_up(s, sum);
	memcpy(s->sum, sum, SUM);
	return r;
}

/* ---- reading ---- */

struct glass {
	const char *at, *end;
	int error; /* sticky */
};

static uint64_t get_number(struct glass *g)
{
	uint64_t n;

	if (g->error || (size_t)(g->end - g->at) < sizeof(n)) {
		g->error = g->error ?: -EBADMSG;
		return 0;
	}
	memcpy(&n, g->at, sizeof(n));
	g->at += sizeof(n);
	return le64toh(n);
}

static char *get_text(struct glass *g)
{
	uint64_t len = get_number(g);
	char *text;

	if (!g->error && ((uint64_t)(g->end - g->at) < len || memchr(g->at, '\0', len)))
		g->error = -EBADMSG;
	if (g->error)
		return NULL;
	text = strndup(g->at, len);
	if (!text)
		g->error = -ENOMEM;
	g->at += len;
	return text;
}

static struct timespec get_time(struct glass *g)
{
	struct timespec t = { .tv_sec = (time_t)get_number(g) };

	t.tv_nsec = (long)get_number(g);
	if (t.tv_nsec < 0 || t.tv_nsec >= 1000000000)
		g->error = g->error ?: -EBADMSG;
	return t;
}

static int get_small(struct glass *g)
{
	int64_t n = (int64_t)get_number(g);

	if (n < INT_MIN || n > INT_MAX)
		g->error = g->error ?: -EBADMSG;
	return (int)n;
}

static void get_written(struct glass *g, struct extents *to)
{
	uint64_t n = get_number(g), last = 0;

	for (uint64_t i = 0; i < n && !g->error; i++) {
		uint64_t start = get_number(g), end = get_number(g);

		if (!g->error && (start < last || end <= start || end > INT64_MAX))
			g->error = -EBADMSG;
		else if (!g->error)
			g->error = extents_add(to, start, end);
		last = end;
	}
}

/* Of components that stay below where they begin. */
static bool is_path(const char *path)
{
	if (!*path || strlen(path) >= PATH_MAX)
		return false;
	while (*path) {
		size_t len = strcspn(path, "/");

		if (len == 0 || len > NAME_MAX || (len == 1 && path[0] == '.') ||
		    (len == 2 && path[0] == '.' && path[1] == '.'))
			return false;
		path += len;
		if (*path == '/' && !*++path)
			return false;
	}
	return true;
}

static bool makes_sense(const struct ledger_record *r)
{
	return r->kind < LEDGER_KINDS && ident_is_thread(r->thread) && is_path(r->path) &&
	       r->mode >= -1 && r->mode <= 07777 && r->error <= 0 && r->from <= INT64_MAX &&
	       r->base.size <= INT64_MAX && r->base_len <= r->base.size &&
	       (!r->boot || !*r->boot || uuid_is(r->boot)) && r->size <= INT64_MAX &&
	       r->maybe <= INT64_MAX;
}

static int read_body(const struct slot *s, struct ledger_record *ret)
{
	struct glass g = { .at = s->body, .end = s->body + le32toh(s->len) };
	struct ledger_record r = { 0 };

	r.source = get_text(&g);
	r.user = get_text(&g);
	r.thread = get_text(&g);
	r.path = get_text(&g);
	r.kind = get_small(&g);
	r.settled = get_number(&g);
	r.base.there = get_number(&g);
	r.base.size = get_number(&g);
	r.base.ino = get_number(&g);
	r.base.mtime = get_time(&g);
	r.base_len = get_number(&g);
	r.from = get_number(&g);
	r.mode = get_small(&g);
	r.times = get_number(&g);
	r.mtime = get_time(&g);
	r.error = get_small(&g);
	get_written(&g, &r.written);
	if (le32toh(s->version) > VERSION_FIRST) {
		r.boot = get_text(&g);
		r.size = get_number(&g);
		r.durable = get_number(&g);
		r.maybe = get_number(&g);
	}
	if (!g.error && (g.at != g.end || !makes_sense(&r)))
		g.error = -EBADMSG;
	if (g.error)
		ledger_record_release(&r);
	else
		*ret = r;
	return g.error;
}

/* Whether it is whole. */
static int check(struct slot *s)
{
	unsigned char sum[SUM];
	uint32_t version = le32toh(s->version);
	int r;

	if (memcmp(s->magic, magic, sizeof(magic)) != 0 || le32toh(s->len) > sizeof(s->body))
		return -EBADMSG;
	r = sum_up(s, sum);
	if (r < 0)
		return r;
	if (memcmp(sum, s->sum, SUM) != 0)
		return -EBADMSG;
	return version >= VERSION_FIRST && version <= VERSION ? 0 : -EPROTONOSUPPORT;
}

int ledger_decode(const char head[LEDGER_HEAD], struct ledger_record *ret, uint64_t *ret_seq)
{
	struct slot *slots CLEANUP_FREE = malloc(LEDGER_HEAD);
	int r[2], newer, result;

	if (!slots)
		return -ENOMEM;
	memcpy(slots, head, LEDGER_HEAD);
	r[0] = check(&slots[0]);
	r[1] = check(&slots[1]);
	if (r[0] < 0 && r[1] < 0)
		return r[0] == -EBADMSG ? r[1] : r[0];
	if (r[0] == 0 && r[1] == 0)
		newer = le64toh(slots[1].seq) > le64toh(slots[0].seq);
	else
		newer = r[0] < 0;
	result = read_body(&slots[newer], ret);
	if (result == 0)
		*ret_seq = le64toh(slots[newer].seq);
	return result;
}
