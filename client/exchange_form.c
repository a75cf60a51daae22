/*
 * The form by which a file goes up: what is around it, and its bytes as they are asked for. Knows
 * nothing of connections. Loop thread only.
 */
#include <errno.h>
#include <stdio.h>

#include "exchange_i.h"

enum { AT_ONCE = 32 * 1024 }; /* a file so small goes in one packet with the header */

ssize_t exchange_form_next(struct exchange *x, char *to, size_t len)
{
	size_t head = x->form_head.len, all = head + x->form_tail.len, n;
	uint64_t left = UINT64_MAX;
	ssize_t got;
	char more;

	if (x->sent < head || x->form_ended) {
		bool in_head = x->sent < head;
		const char *from = in_head ? x->form_head.data + x->sent
					   : x->form_tail.data + (x->sent - head);

		n = MIN(len, (in_head ? head : all) - x->sent);
		memcpy(to, from, n);
		x->sent += n;
		return (ssize_t)n;
	}
	if (x->form_size >= 0)
		left = (uint64_t)x->form_size - x->form_sent;
	got = left ? x->read(x, to, MIN(len, left)) : x->read(x, &more, 1);
	if (got > 0 && left == 0)
		return exchange_decide(x, -EIO, "the file goes on behind its size");
	if (got == 0 && left > 0 && x->form_size >= 0)
		return exchange_decide(x, -EIO, "the file ends before its size");
	if (got > 0)
		x->form_sent += (uint64_t)got;
	if (got != 0)
		return got;
	x->form_ended = true;
	return exchange_form_next(x, to, len);
}

void exchange_rewind(struct exchange *x)
{
	x->sent = 0;
	x->form_sent = 0;
	x->form_ended = false;
}

/*
 * The form is made by hand: libcurl's own reads through one more layer, cannot
 * tell that a file goes on behind its size, and waits for one that ends early.
 */
static int make_form(struct exchange *x)
{
	char boundary[UUID_LEN + 1];

	uuid_make(boundary);
	buf_reset(&x->form_head);
	buf_reset(&x->form_tail);
	buf_printf(&x->form_head,
		   "--%s\r\nContent-Disposition: form-data; name=\"path\"\r\n\r\n"
		   "%s\r\n--%s\r\nContent-Disposition: form-data; name=\"file\"; "
		   "filename=\"file\"\r\nContent-Type: application/octet-stream\r\n\r\n",
		   boundary, x->form_path, boundary);
	buf_printf(&x->form_tail, "\r\n--%s--\r\n", boundary);
	snprintf(x->form_type, sizeof(x->form_type),
		 "Content-Type: multipart/form-data; boundary=%s", boundary);
	return x->form_head.error || x->form_tail.error ? -ENOMEM : 0;
}

/*
 * All of a small form in memory, which is sent together with the header: the server wakes
 * up once. libcurl asks nobody before it sends such a body again, so it is only for what
 * may be. Leaves it to be read piece by piece where its bytes are not there yet.
 */
static int gather_form(struct exchange *x)
{
	char piece[4096];
	ssize_t n;

	buf_reset(&x->form);
	if (!x->idempotent || x->form_size < 0 || x->form_size > AT_ONCE)
		return 0;
	while ((n = exchange_form_next(x, piece, sizeof(piece))) > 0)
		if (buf_append(&x->form, piece, (size_t)n) < 0)
			return -ENOMEM;
	if (n < 0) {
		buf_reset(&x->form);
		exchange_rewind(x);
	}
	return n == -EAGAIN ? 0 : (int)n;
}

int exchange_form_begin(struct exchange *x)
{
	int r = x->form_path ? make_form(x) : 0;

	return r == 0 && x->form_path ? gather_form(x) : r;
}
