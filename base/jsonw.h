/*
 * Writing JSON into a buffer, one call per token; commas, escapes and UTF-8
 * are taken care of. Strings carry a length, so NUL bytes are kept; bytes that
 * are not UTF-8 become U+FFFD and are remembered. Errors are the buffer's
 * sticky ones. (cJSON's printer can do neither and would need the whole tree
 * in memory for a 10,000-entry listing.)
 */
#pragma once

#include "buf.h"

struct jw {
	struct buf *out;
	bool comma;        /* a value came before in this container */
	bool invalid_utf8; /* some string was not UTF-8 */
};

void jw_init(struct jw *w, struct buf *out);

void jw_obj(struct jw *w);
void jw_obj_end(struct jw *w);
void jw_arr(struct jw *w);
void jw_arr_end(struct jw *w);
/* In an object: the key of the value written next. Keys are trusted ASCII. */
void jw_key(struct jw *w, const char *key);
/* The same for a key that came from a client. */
void jw_key_any(struct jw *w, const char *key);

void jw_str(struct jw *w, const char *s); /* NULL writes null */
void jw_strn(struct jw *w, const char *s, size_t len);
void jw_int(struct jw *w, int64_t v);
void jw_num(struct jw *w, double v); /* whole numbers keep a ".0" */
void jw_bool(struct jw *w, bool v);
void jw_null(struct jw *w);

/* key and value at once */
void jw_kstr(struct jw *w, const char *key, const char *s);
void jw_kstrn(struct jw *w, const char *key, const char *s, size_t len);
void jw_kint(struct jw *w, const char *key, int64_t v);
void jw_knum(struct jw *w, const char *key, double v);
void jw_kbool(struct jw *w, const char *key, bool v);
void jw_knull(struct jw *w, const char *key);
/* Wall time in seconds as a naive local ISO date with microseconds. */
void jw_ktime(struct jw *w, const char *key, double wall);
