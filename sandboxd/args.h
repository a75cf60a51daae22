/*
 * Decoding of a JSON request body into a plain struct, by a table of fields,
 * and the 422 answer when it does not fit. Pure: no I/O, no server state.
 *
 *	struct list_args { const char *path; bool recursive; struct opt_int max_depth; };
 *	static const struct arg list_args[] = {
 *		ARG_STR(struct list_args, path, ARG_REQUIRED | ARG_PATH),
 *		ARG_BOOL(struct list_args, recursive, false),
 *		ARG_OPT_INT(struct list_args, max_depth, 0, INT_MAX),
 *		ARG_END
 *	};
 *
 * Strings point into the parsed body and live as long as the request.
 * A field given as null counts as absent unless it is required.
 */
#pragma once

#include <cjson/cJSON.h>

#include "buf.h"
#include "config.h"

struct opt_int {
	bool set;
	int64_t v;
};

struct opt_num {
	bool set;
	double v;
};

/* Bytes that may hold NUL; p is NUL-terminated all the same. */
struct text {
	char *p;
	size_t n;
};

struct strv {
	bool set;
	const char **v;
	size_t n;
};

struct strmap {
	bool set;
	const char **keys;
	const char **values;
	size_t n;
};

enum arg_type {
	ARG_T_END,
	ARG_T_STR,     /* const char *, no NUL inside */
	ARG_T_TEXT,    /* struct text */
	ARG_T_ENUM,    /* const char *, one of choices */
	ARG_T_BOOL,    /* bool */
	ARG_T_INT,     /* int64_t */
	ARG_T_OPT_INT, /* struct opt_int */
	ARG_T_OPT_NUM, /* struct opt_num */
	ARG_T_STRV,    /* struct strv */
	ARG_T_MAP,     /* struct strmap */
};

enum {
	ARG_REQUIRED = 1,
	ARG_PATH = 2, /* must not be empty */
};

struct arg {
	const char *name;
	enum arg_type type;
	unsigned flags;
	size_t offset;
	int64_t min, max;    /* of integers (and numbers: min only) */
	int64_t dflt;        /* of bool and int */
	const char *def;     /* default of a string or enum */
	const char *choices; /* of an enum, separated by '|' */
};

#define ARG_STR(s, f, fl)                                                                          \
	{                                                                                          \
#f, ARG_T_STR, (fl), offsetof(s, f), 0, 0, 0, NULL, NULL                           \
	}
#define ARG_STR_DEF(s, f, d)                                                                       \
	{                                                                                          \
#f, ARG_T_STR, 0, offsetof(s, f), 0, 0, 0, (d), NULL                               \
	}
#define ARG_TEXT(s, f, fl)                                                                         \
	{                                                                                          \
#f, ARG_T_TEXT, (fl), offsetof(s, f), 0, 0, 0, NULL, NULL                          \
	}
#define ARG_ENUM(s, f, d, c)                                                                       \
	{                                                                                          \
#f, ARG_T_ENUM, 0, offsetof(s, f), 0, 0, 0, (d), (c)                               \
	}
#define ARG_BOOL(s, f, d)                                                                          \
	{                                                                                          \
#f, ARG_T_BOOL, 0, offsetof(s, f), 0, 0, (d), NULL, NULL                           \
	}
#define ARG_BOOL_REQ(s, f)                                                                         \
	{                                                                                          \
#f, ARG_T_BOOL, ARG_REQUIRED, offsetof(s, f), 0, 0, 0, NULL, NULL                  \
	}
#define ARG_INT(s, f, d, lo, hi)                                                                   \
	{                                                                                          \
#f, ARG_T_INT, 0, offsetof(s, f), (lo), (hi), (d), NULL, NULL                      \
	}
#define ARG_OPT_INT(s, f, lo, hi)                                                                  \
	{                                                                                          \
#f, ARG_T_OPT_INT, 0, offsetof(s, f), (lo), (hi), 0, NULL, NULL                    \
	}
#define ARG_OPT_NUM(s, f)                                                                          \
	{                                                                                          \
#f, ARG_T_OPT_NUM, 0, offsetof(s, f), 0, INT64_MAX, 0, NULL, NULL                  \
	}
#define ARG_STRV(s, f)                                                                             \
	{                                                                                          \
#f, ARG_T_STRV, 0, offsetof(s, f), 0, 0, 0, NULL, NULL                             \
	}
#define ARG_MAP(s, f)                                                                              \
	{                                                                                          \
#f, ARG_T_MAP, 0, offsetof(s, f), 0, 0, 0, NULL, NULL                              \
	}
#define ARG_END                                                                                    \
	{                                                                                          \
		NULL, ARG_T_END, 0, 0, 0, 0, 0, NULL, NULL                                         \
	}

/*
 * Fills out (zeroed by the caller) from body, which must stay alive as long
 * as out is used. Returns 0; -EINVAL with the whole 422 answer of the dialect
 * in errors; or -ENOMEM.
 */
int args_decode(const struct arg *spec, cJSON *body, enum dialect dialect, void *out,
		struct buf *errors) MUST_CHECK;

/* Frees what args_decode() allocated beside the body itself. */
void args_clear(const struct arg *spec, void *out);

/* Writes the 422 answer for one fault, e.g. loc "query", name "path". */
void args_write_error(struct buf *errors, enum dialect dialect, const char *loc, const char *name,
		      const char *msg, const char *type);
