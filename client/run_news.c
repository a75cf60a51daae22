/* See run_news.h. */
#include "run_news.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The numbers of the answer's first line. */
struct head {
	int started, exit_code;
	bool ended;
	unsigned long long there[2], here[2]; /* bytes of out and err: in all, and following */
	size_t len;                           /* of the line */
};

static int parse_head(const struct buf *b, struct head *ret)
{
	const char *newline = b->len ? memchr(b->data, '\n', MIN(b->len, 200)) : NULL;
	struct head h = { .exit_code = -1 };
	char code[8];
	int n = 0;
	long value;
	char *rest;

	if (!newline)
		return -EBADMSG;
	h.len = (size_t)(newline - b->data) + 1;
	if (sscanf(b->data, "%1d %7s %19llu %19llu %7llu %7llu%n", &h.started, code, &h.there[0],
		   &h.there[1], &h.here[0], &h.here[1], &n) != 6 ||
	    (size_t)n + 1 != h.len || (h.started != 0 && h.started != 1))
		return -EBADMSG;
	h.ended = strcmp(code, "-") != 0;
	if (h.ended) {
		value = strtol(code, &rest, 10);
		if (*rest || value < -1 || value > 255)
			return -EBADMSG;
		h.exit_code = (int)value;
	}
	*ret = h;
	return 0;
}

void run_news_release(struct run_news *n)
{
	free(n->out);
	free(n->err);
	*n = (struct run_news){ 0 };
}

int run_news_parse(const struct buf *said, size_t max, struct run_news *ret)
{
	struct run_news n = { 0 };
	struct head h;
	int r = parse_head(said, &h);

	if (r < 0)
		return r;
	for (int i = 0; i < 2; i++)
		if (h.here[i] > max || h.here[i] > h.there[i])
			return -EBADMSG;
	if (said->len != h.len + h.here[0] + h.here[1])
		return -EBADMSG;
	n.out_len = h.here[0];
	n.err_len = h.here[1];
	n.out = malloc(n.out_len + 1);
	n.err = malloc(n.err_len + 1);
	if (!n.out || !n.err) {
		run_news_release(&n);
		return -ENOMEM;
	}
	memcpy(n.out, said->data + h.len, n.out_len);
	memcpy(n.err, said->data + h.len + n.out_len, n.err_len);
	n.out[n.out_len] = n.err[n.err_len] = '\0';
	n.ended = h.ended && h.here[0] == h.there[0] && h.here[1] == h.there[1];
	n.started = h.started;
	n.exit_code = n.ended ? h.exit_code : -1;
	*ret = n;
	return 0;
}
