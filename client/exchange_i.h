/*
 * One exchange, inside: for exchange.c, which gives it its turn and takes its answer,
 * exchange_form.c, which makes the form of an upload, exchange_curl.c, which has libcurl do
 * it, and exchange_wire.c, which does without. Loop thread only.
 */
#pragma once

#include <string.h>

#include "exchange.h"
#include "sandbox_i.h"

/* Such a request differs from others of its kind in few settings: its handle keeps the others. */
static inline bool exchange_is_plain_get(const struct exchange *x)
{
	return !x->fresh && !x->form_path && x->body.len == 0 && strcmp(x->method, "GET") == 0;
}

/* ---- exchange.c, for whoever moves the bytes ---- */

int exchange_add_header(struct curl_slist **to, const char *line) MUST_CHECK;
/* Bytes of the answer: as data(). After -EAGAIN it is paused. */
int exchange_take(struct exchange *x, const char *bytes, size_t n);
/* Whether what comes is a file, as far as one knows: that may take as long as it is not silent. */
bool exchange_is_file(struct exchange *x);
/*
 * Whoever pauses may do so for long: its place in the lane is another's. That
 * one cannot begin from inside a callback of libcurl.
 */
void exchange_pause(struct exchange *x);
/* How it is to end; words (static) may be NULL. Returns err. */
int exchange_decide(struct exchange *x, int err, const char *words);
/* The try is over: err with why (NULL: x->why has it) unless something else was decided. */
void exchange_over(struct exchange *x, int err, const char *why);
/* The try does not count: libcurl begins it anew. */
void exchange_unfit(struct exchange *x);

/* ---- exchange_form.c; x->form_path is its own, the rest is for all bodies ---- */

#define EXCHANGE_JSON_TYPE "Content-Type: application/json"

/* Nothing of the body has been sent. */
void exchange_rewind(struct exchange *x);
/* Before each try; harmless without a form. All of a small one is in x->form then. */
int exchange_form_begin(struct exchange *x) MUST_CHECK;
/* The next bytes of the form: its head, the file, its tail. 0 at the end, or as read(). */
ssize_t exchange_form_next(struct exchange *x, char *to, size_t len);

/* ---- exchange_wire.c ---- */

/* A try, as exchange_curl_begin(); x->wire is there then. False: libcurl has to do it. */
bool exchange_wire_begin(struct exchange *x);

/* ---- exchange_curl.c ---- */

/* A try: it ends with exchange_over(), later. After an error x->easy may be there all the same. */
int exchange_curl_begin(struct exchange *x) MUST_CHECK;
/* Takes x->easy off libcurl. */
void exchange_curl_drop(struct exchange *x);
/* After a pause; x->error has what became of it. */
void exchange_curl_go_on(struct exchange *x);
const char *exchange_curl_said(const struct exchange *x, const char *header);
int exchange_curl_status(const struct exchange *x);
int64_t exchange_curl_length(const struct exchange *x);
