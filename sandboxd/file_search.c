/*
 * POST /v1/file/search: the lines of one file that a regular expression
 * matches. Runs on a worker.
 */
#include <errno.h>

#include "file.h"
#include "pattern.h"
#include "text.h"

enum { MAX_HITS = 1000000 }; /* the answer would be too large anyway */

/* Where a matching line is. */
struct hit {
	size_t line, at, len;
};

struct hits {
	struct hit *v;
	size_t n, cap;
};

static int hits_add(struct hits *h, struct hit hit)
{
	if (h->n == MAX_HITS)
		return -EFBIG;
	if (h->n == h->cap) {
		size_t cap = h->cap ? h->cap * 2 : 64;
		struct hit *v = reallocarray(h->v, cap, sizeof(*v));

		if (!v)
			return -ENOMEM;
		h->v = v;
		h->cap = cap;
	}
	h->v[h->n++] = hit;
	return 0;
}

bool file_search_stopped(void *request)
{
	struct request *r = request;

	return request_gone(r) || atomic_load(&r->srv->stopping);
}

static int search_lines(struct pattern *p, const struct buf *text, struct hits *hits)
{
	size_t next, from, to, line = 0;
	int e;

	for (size_t at = 0; at < text->len; at += next, line++) {
		size_t len = text_line(text->data + at, text->len - at, &next);

		e = pattern_search(p, text->data + at, len, 0, &from, &to);
		if (e > 0)
			e = hits_add(hits, (struct hit){ line, at, len });
		if (e < 0)
			return e;
	}
	return 0;
}

static void reply_hits(struct request *r, const char *file, const struct buf *text,
		       const struct hits *hits)
{
	struct jw *w = reply_begin(r, NULL);

	jw_obj(w);
	jw_kstr(w, "file", file);
	jw_key(w, "matches");
	jw_arr(w);
	for (size_t i = 0; i < hits->n; i++)
		jw_strn(w, text->data + hits->v[i].at, hits->v[i].len);
	jw_arr_end(w);
	jw_key(w, "line_numbers");
	jw_arr(w);
	for (size_t i = 0; i < hits->n; i++)
		jw_int(w, (int64_t)hits->v[i].line);
	jw_arr_end(w);
	jw_obj_end(w);
	reply_end(r);
}

void file_search(struct request *r)
{
	struct buf text CLEANUP_BUF = BUF_INIT(FILE_MAX_TEXT + MIB);
	struct pattern *p CLEANUP_PATTERN = NULL;
	const struct search_args *a = r->args;
	struct hits hits = { 0 };
	char why[200];
	int e;

	if (file_load_text(r, a->file, &text) < 0)
		return;
	e = pattern_new(a->regex, 0, &p, why, sizeof(why));
	if (e == -EINVAL) {
		reply_error(r, 400, "Invalid regular expression: %s", why);
		return;
	}
	if (e == 0) {
		pattern_limit(p, PATTERN_MS, file_search_stopped, r);
		e = search_lines(p, &text, &hits);
	}
	if (e == -E2BIG || e == -ETIME)
		reply_error(r, 400, "Invalid regular expression: pattern too complex");
	else if (e < 0)
		reply_file_error(r, "search", a->file, -e);
	else
		reply_hits(r, a->file, &text, &hits);
	free(hits.v);
}
