/*
 * POST /v1/file/read, write and replace: files as text inside JSON. Runs on a
 * worker.
 */
#include <errno.h>
#include <string.h>

#include "file.h"
#include "text.h"

/* ---- read ---- */

static int64_t count_lines(const struct buf *b)
{
	int64_t lines = 0;

	for (size_t at = 0, next; at < b->len; at += next, lines++)
		text_line(b->data + at, b->len - at, &next);
	return lines;
}

/* A bound of a slice: from the end if negative, and within 0..lines. */
static int64_t slice_bound(struct opt_int bound, int64_t dflt, int64_t lines)
{
	int64_t v = bound.set ? bound.v : dflt;

	if (v < 0)
		v += lines;
	return v < 0 ? 0 : MIN(v, lines);
}

/* Leaves lines[start:end] in b, joined by "\n". */
static void cut_lines(struct buf *b, const struct read_args *a)
{
	int64_t lines = count_lines(b), line = 0;
	int64_t start = slice_bound(a->start_line, 0, lines);
	int64_t end = slice_bound(a->end_line, lines, lines);
	size_t out = 0, next;

	for (size_t at = 0; at < b->len && line < end; at += next, line++) {
		size_t len = text_line(b->data + at, b->len - at, &next);

		if (line < start)
			continue;
		if (line > start)
			b->data[out++] = '\n';
		memmove(b->data + out, b->data + at, len);
		out += len;
	}
	b->len = out;
}

void file_read(struct request *r)
{
	struct buf text CLEANUP_BUF = BUF_INIT(FILE_MAX_TEXT + MIB);
	const struct read_args *a = r->args;
	struct jw *w;

	if (file_load_text(r, a->file, &text) < 0)
		return;
	if (a->start_line.set || a->end_line.set)
		cut_lines(&text, a);
	w = reply_begin(r, "File read successfully");
	jw_obj(w);
	jw_kstrn(w, "content", text.data, text.len);
	jw_kstr(w, "file", a->file);
	jw_obj_end(w);
	reply_end(r);
}

/* ---- write ---- */

/* The bytes of the content; replies with 400 and fails if it has none. */
static int decode_content(struct request *r, const struct write_args *a, struct buf *out)
{
	const char *why = "";
	int e;

	if (strcmp(a->encoding, "base64") == 0) {
		e = text_decode_base64(a->content.p, a->content.n, out, &why);
		if (e == -EINVAL)
			reply_error(r, 400, "Invalid base64 content: %s", why);
	} else if (strcmp(a->encoding, "raw") == 0) {
		e = text_decode_latin1(a->content.p, a->content.n, out);
		if (e == -EINVAL)
			reply_error(r, 400, "Invalid raw content: a character is above U+00FF");
	} else {
		if (a->leading_newline)
			buf_putc(out, '\n');
		buf_append(out, a->content.p, a->content.n);
		e = a->trailing_newline ? buf_putc(out, '\n') : out->error;
	}
	if (e < 0 && e != -EINVAL)
		reply_file_error(r, "write", a->file, -e);
	return e;
}

void file_write(struct request *r)
{
	struct buf bytes CLEANUP_BUF = BUF_INIT(0); /* the body was capped */
	const struct write_args *a = r->args;
	struct jw *w;
	int e;

	if (decode_content(r, a, &bytes) < 0)
		return;
	e = file_store(r->srv, a->file, bytes.data, bytes.len, a->append);
	if (e < 0) {
		reply_file_error(r, "write", a->file, -e);
		return;
	}
	w = reply_begin(r, "File written successfully");
	jw_obj(w);
	jw_kstr(w, "file", a->file);
	jw_kint(w, "bytes_written", (int64_t)bytes.len);
	jw_obj_end(w);
	reply_end(r);
}

/* ---- replace ---- */

void file_replace(struct request *r)
{
	struct buf text CLEANUP_BUF = BUF_INIT(FILE_MAX_TEXT + MIB);
	struct buf out CLEANUP_BUF = BUF_INIT(FILE_MAX_TEXT);
	const struct replace_args *a = r->args;
	size_t count = 0;
	struct jw *w;
	int e;

	if (a->old_str.n == 0) {
		reply_error(r, 400, "old_str must not be empty");
		return;
	}
	if (file_load_text(r, a->file, &text) < 0)
		return;
	e = text_replace_all(&out, text.data, text.len, a->old_str.p, a->old_str.n, a->new_str.p,
			     a->new_str.n, &count);
	if (e == 0 && count > 0)
		e = file_store(r->srv, a->file, out.data, out.len, false);
	if (e < 0) {
		reply_file_error(r, "write", a->file, -e);
		return;
	}
	w = reply_begin(r, NULL);
	jw_obj(w);
	jw_kstr(w, "file", a->file);
	jw_kint(w, "replaced_count", (int64_t)count);
	jw_obj_end(w);
	reply_end(r);
}
