/* base64 as RFC 4648 has it (the standard alphabet with padding). Pure. */
#pragma once

#include "buf.h"

/* Appends the encoding of len bytes. Returns 0 or the buffer's error. */
int base64_encode(struct buf *to, const void *bytes, size_t len);

/*
 * Appends what text encodes. ASCII blanks and line ends are skipped; anything
 * else that is not strict base64 is -EBADMSG (the buffer then keeps its old
 * length).
 */
int base64_decode(struct buf *to, const char *text, size_t len) MUST_CHECK;

/* The value of a digit of the alphabet, -1 for any other character. */
int base64_digit(char c);
