/*
 * Keys and tokens: where they may come from, and what they may look like. They
 * never stand in a message. No threads: before the mount starts.
 */
#pragma once

#include "buf.h"
#include "util.h"

#define SECRET_API_KEY_VARIABLE "THREADFS_API_KEY"
#define SECRET_TOKEN_VARIABLE   "THREADFS_TOKEN"

/* What is said to who writes one where others see it; `where` begins the sentence. */
int secret_refuse(const char *where, struct buf *why);
/* Each replaces *to, which is wiped, on success. name: what to call it when it is no good. */
int secret_set(char **to, const char *name, const char *text, struct buf *why) MUST_CHECK;
/* The content of a regular file but for a newline at its end. */
int secret_read(char **to, const char *path, struct buf *why) MUST_CHECK;
/* Wipes and frees. NULL is fine. */
void secret_free(char *secret);
