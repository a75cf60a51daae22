/*
 * A growable byte buffer with a cap. Errors are sticky: after a failed append
 * every later one fails too, so a writer checks once at the end.
 * Not thread-safe; one owner at a time.
 */
#pragma once

#include <stdarg.h>

#include "util.h"

struct buf {
	char *data; /* always NUL-terminated once anything was appended */
	size_t len;
	size_t cap;
	size_t max; /* largest len allowed; 0 = no cap */
	int error;  /* 0, -ENOMEM, or -EFBIG: first failure, sticky */
};

#define BUF_INIT(max_) ((struct buf){ .max = (max_) })
#define CLEANUP_BUF    CLEANUP(buf_release)

/* Frees the bytes; the buffer can be used again with the same cap. */
void buf_release(struct buf *b);
/* Forgets the content and the error, keeps the memory. */
void buf_reset(struct buf *b);

/* Each returns 0 or the sticky negative errno. */
int buf_append(struct buf *b, const void *data, size_t len);
int buf_puts(struct buf *b, const char *s);
int buf_putc(struct buf *b, char c);
int buf_printf(struct buf *b, const char *fmt, ...) PRINTF_LIKE(2, 3);
int buf_vprintf(struct buf *b, const char *fmt, va_list ap) PRINTF_LIKE(2, 0);
/* Room for len more bytes at b->data + b->len (the caller then adds to len). */
int buf_reserve(struct buf *b, size_t len);
/* Drops the first n bytes. */
void buf_consume(struct buf *b, size_t n);
