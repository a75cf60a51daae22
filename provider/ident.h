/* Names: which ids are valid, and what a sandbox is called. Pure; any thread. */
#pragma once

#include "util.h"

enum { IDENT_ID_LEN = 16, IDENT_FORMS = 3 };

/* ^[A-Za-z0-9_-]{1,64}$ */
bool ident_is_thread(const char *s);
/* ^[A-Za-z0-9_-]{1,200}$: a directory's name. */
bool ident_is_user(const char *s);

/* The id of a thread's sandbox: IDENT_ID_LEN hex digits and a NUL. */
void ident_make(const char *user, const char *thread, char *id);
/*
 * What it is or was called by older programs, newest first:
 * sha256("user:thread")[:16], the same [:8], sha256("thread")[:8].
 */
void ident_form(const char *user, const char *thread, unsigned form, char *id);
/* The first len hex digits of a string's SHA-256, and a NUL. */
void ident_digest(const char *s, char *hex, size_t len);
