/*
 * What struct options is made of: one row per setting, and how the text of its
 * value is read and shown. Which text it is (-o, environment, a file) is not
 * known here. Private to the files that read settings, and to their tests.
 *
 * The name of a row is its name behind -o and its key in the section `threadfs:`
 * of a config file; in capitals, behind THREADFS_, it is its environment variable.
 */
#pragma once

#include "options.h"

enum setting_kind {
	SETTING_BOOL,
	SETTING_SECONDS, /* int64_t, milliseconds */
	SETTING_COUNT,   /* unsigned */
	SETTING_BYTES,   /* uint64_t */
	SETTING_UMASK,   /* mode_t */
	SETTING_UID,
	SETTING_GID,
	SETTING_PATH,   /* char *, of the host; becomes absolute */
	SETTING_ROOT,   /* char *, an absolute directory of the sandbox */
	SETTING_USER,   /* char *, see ident.h */
	SETTING_THREAD, /* char *, see ident.h */
	SETTING_WORD,   /* one of words: its place among them, as a bool or an enum */
	SETTING_TEXT,   /* one of words: char * */
	SETTING_NAME,   /* char *, printable, without blanks */
	SETTING_TOPICS, /* unsigned, a bit for each of words */
};

struct setting {
	const char *name;
	enum setting_kind kind;
	size_t offset, size;      /* of its field in struct options */
	const char *value;        /* what stands behind '=' in help; NULL: a bare word */
	const char *const *words; /* NULL-terminated */
	uint64_t min, max;        /* of SECONDS (in ms), COUNT, BYTES; max 0: none */
	const char *initial; /* the default as it would be written; NULL: none or by `otherwise` */
	const char *otherwise; /* the default in words where it depends on something */
	const char *meaning;
	const char *sandbox_key; /* in the section `sandbox:` of deer-flow's file; or NULL */
	bool hidden;             /* for tests */
};

extern const struct setting settings[];
extern const size_t settings_count;

/* NULL if there is none. */
const struct setting *setting_find(const char *name);
const struct setting *setting_find_sandbox_key(const char *key);
/* Whether a setting that takes a secret might be called so. There is none: see secret.h. */
bool setting_is_secret(const char *name);
/* Says that there is no such thing, what kind it was to be, and which is the nearest. */
int setting_unknown(const char *what, const char *name, struct buf *why);

/* Its environment variable; for the caller to free. */
char *setting_variable(const struct setting *s);

/*
 * Reads a value; NULL is a bare word. Returns 0, or a negative errno with what is
 * wrong with it (not which setting it was) in why.
 */
int setting_set(struct options *o, const struct setting *s, const char *value,
		struct buf *why) MUST_CHECK;
/* Writes the value as setting_set() reads it. False: it has none, nothing was written. */
bool setting_show(const struct options *o, const struct setting *s, struct buf *to);
/* For SETTING_PATH and the like: the field. */
char **setting_string(struct options *o, const struct setting *s);
