/* See args.h. */
#include "args.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "json.h"
#include "jsonw.h"

/* One fault after the other, in the shape of the dialect. */
struct faults {
	struct buf *out;
	struct jw w;
	enum dialect dialect;
	const char *loc;
	unsigned n;
};

static void fault(struct faults *f, const char *name, const char *msg, const char *type)
{
	bool aiod = f->dialect == DIALECT_AIOD;

	if (f->n++ == 0) {
		jw_init(&f->w, f->out);
		jw_obj(&f->w);
		if (aiod) {
			jw_kbool(&f->w, "success", false);
			jw_kstr(&f->w, "message", "Request validation failed");
			jw_knull(&f->w, "data");
			jw_key(&f->w, "errors");
		} else {
			jw_key(&f->w, "detail");
		}
		jw_arr(&f->w);
	}
	jw_obj(&f->w);
	jw_kstr(&f->w, "type", type);
	if (aiod) {
		char where[160];

		snprintf(where, sizeof(where), "%s%s%s", f->loc, name ? "." : "", name ? name : "");
		jw_kstr(&f->w, "location", where);
	} else {
		jw_key(&f->w, "loc");
		jw_arr(&f->w);
		jw_str(&f->w, f->loc);
		if (name)
			jw_str(&f->w, name);
		jw_arr_end(&f->w);
	}
	jw_kstr(&f->w, aiod ? "message" : "msg", msg);
	jw_obj_end(&f->w);
}

static void faults_end(struct faults *f)
{
	if (!f->n)
		return;
	jw_arr_end(&f->w);
	jw_obj_end(&f->w);
}

void args_write_error(struct buf *errors, enum dialect dialect, const char *loc, const char *name,
		      const char *msg, const char *type)
{
	struct faults f = { .out = errors, .dialect = dialect, .loc = loc };

	fault(&f, name, msg, type);
	faults_end(&f);
}

/* A string without NUL, or NULL after reporting the fault. */
static const char *plain_string(const struct arg *a, const cJSON *v, struct faults *f)
{
	if (!cJSON_IsString(v)) {
		fault(f, a->name, "Input should be a valid string", "string_type");
		return NULL;
	}
	if (json_has_nul(v->valuestring)) {
		fault(f, a->name, "String should not contain a null character", "value_error");
		return NULL;
	}
	if ((a->flags & ARG_PATH) && !v->valuestring[0]) {
		fault(f, a->name, "String should have at least 1 character", "string_too_short");
		return NULL;
	}
	return v->valuestring;
}

static bool in_choices(const char *choices, const char *s)
{
	size_t len = strlen(s);

	for (const char *p = choices; *p;) {
		size_t n = strcspn(p, "|");

		if (n == len && memcmp(p, s, n) == 0)
			return true;
		p += n + (p[n] == '|');
	}
	return false;
}

static void decode_enum(const struct arg *a, const cJSON *v, const char **out, struct faults *f)
{
	const char *s = plain_string(a, v, f);
	char msg[160];

	if (!s)
		return;
	if (!in_choices(a->choices, s)) {
		snprintf(msg, sizeof(msg), "Input should be one of %s", a->choices);
		fault(f, a->name, msg, "enum");
		return;
	}
	*out = s;
}

static bool decode_integer(const struct arg *a, const cJSON *v, int64_t *out, struct faults *f)
{
	char msg[96];
	double d;

	if (!cJSON_IsNumber(v)) {
		fault(f, a->name, "Input should be a valid integer", "int_type");
		return false;
	}
	d = v->valuedouble;
	if (!isfinite(d) || d != floor(d) || fabs(d) > 9e15) {
		fault(f, a->name, "Input should be a valid integer", "int_from_float");
		return false;
	}
	if (d < (double)a->min || d > (double)a->max) {
		bool low = d < (double)a->min;

		snprintf(msg, sizeof(msg), "Input should be %s than or equal to %lld",
			 low ? "greater" : "less", (long long)(low ? a->min : a->max));
		fault(f, a->name, msg, low ? "greater_than_equal" : "less_than_equal");
		return false;
	}
	*out = (int64_t)d;
	return true;
}

static void decode_number(const struct arg *a, const cJSON *v, struct opt_num *out,
			  struct faults *f)
{
	if (!cJSON_IsNumber(v) || !isfinite(v->valuedouble)) {
		fault(f, a->name, "Input should be a valid number", "float_type");
	} else if (v->valuedouble < (double)a->min) {
		fault(f, a->name, "Input should be greater than or equal to 0",
		      "greater_than_equal");
	} else {
		out->set = true;
		out->v = v->valuedouble;
	}
}

static int decode_list(const struct arg *a, const cJSON *v, struct strv *out, struct faults *f)
{
	const cJSON *e;

	if (!cJSON_IsArray(v)) {
		fault(f, a->name, "Input should be a valid list", "list_type");
		return 0;
	}
	out->v = calloc((size_t)cJSON_GetArraySize(v) + 1, sizeof(*out->v));
	if (!out->v)
		return -ENOMEM;
	out->set = true;
	cJSON_ArrayForEach (e, v) {
		const char *s = plain_string(a, e, f);

		if (!s)
			return 0;
		out->v[out->n++] = s;
	}
	return 0;
}

static int decode_map(const struct arg *a, const cJSON *v, struct strmap *out, struct faults *f)
{
	const cJSON *e;
	size_t n;

	if (!cJSON_IsObject(v)) {
		fault(f, a->name, "Input should be a valid dictionary", "dict_type");
		return 0;
	}
	n = (size_t)cJSON_GetArraySize(v) + 1;
	out->keys = calloc(n, sizeof(*out->keys));
	out->values = calloc(n, sizeof(*out->values));
	if (!out->keys || !out->values)
		return -ENOMEM;
	out->set = true;
	cJSON_ArrayForEach (e, v) {
		const char *s = plain_string(a, e, f);

		if (!s)
			return 0;
		out->keys[out->n] = e->string;
		out->values[out->n++] = s;
	}
	return 0;
}

static void set_default(const struct arg *a, void *at)
{
	switch (a->type) {
	case ARG_T_STR:
	case ARG_T_ENUM:
		*(const char **)at = a->def;
		break;
	case ARG_T_BOOL:
		*(bool *)at = a->dflt != 0;
		break;
	case ARG_T_INT:
		*(int64_t *)at = a->dflt;
		break;
	default:
		break;
	}
}

static int decode_one(const struct arg *a, cJSON *v, void *at, struct faults *f)
{
	const char *s;

	switch (a->type) {
	case ARG_T_STR:
		s = plain_string(a, v, f);
		*(const char **)at = s;
		return 0;
	case ARG_T_TEXT:
		if (!cJSON_IsString(v)) {
			fault(f, a->name, "Input should be a valid string", "string_type");
			return 0;
		}
		((struct text *)at)->p = v->valuestring;
		((struct text *)at)->n = json_restore_nul(v->valuestring);
		return 0;
	case ARG_T_ENUM:
		decode_enum(a, v, at, f);
		return 0;
	case ARG_T_BOOL:
		if (cJSON_IsBool(v))
			*(bool *)at = cJSON_IsTrue(v);
		else
			fault(f, a->name, "Input should be a valid boolean", "bool_type");
		return 0;
	case ARG_T_INT:
		decode_integer(a, v, at, f);
		return 0;
	case ARG_T_OPT_INT: {
		struct opt_int *o = at;

		o->set = decode_integer(a, v, &o->v, f);
		return 0;
	}
	case ARG_T_OPT_NUM:
		decode_number(a, v, at, f);
		return 0;
	case ARG_T_STRV:
		return decode_list(a, v, at, f);
	case ARG_T_MAP:
		return decode_map(a, v, at, f);
	case ARG_T_END:
		break;
	}
	return 0;
}

int args_decode(const struct arg *spec, cJSON *body, enum dialect dialect, void *out,
		struct buf *errors)
{
	struct faults f = { .out = errors, .dialect = dialect, .loc = "body" };

	if (!cJSON_IsObject(body)) {
		fault(&f, NULL, "Input should be a valid dictionary", "model_attributes_type");
		faults_end(&f);
		return -EINVAL;
	}
	for (const struct arg *a = spec; a->type != ARG_T_END; a++) {
		cJSON *v = cJSON_GetObjectItemCaseSensitive(body, a->name);
		void *at = (char *)out + a->offset;
		int r = 0;

		if (v && !cJSON_IsNull(v))
			r = decode_one(a, v, at, &f);
		else if (a->flags & ARG_REQUIRED)
			fault(&f, a->name, v ? "Input should not be null" : "Field required",
			      v ? "value_error" : "missing");
		else
			set_default(a, at);
		if (r < 0)
			return r;
	}
	faults_end(&f);
	return f.n ? -EINVAL : 0;
}

void args_clear(const struct arg *spec, void *out)
{
	if (!out)
		return;
	for (const struct arg *a = spec; a->type != ARG_T_END; a++) {
		void *at = (char *)out + a->offset;

		if (a->type == ARG_T_STRV) {
			free(((struct strv *)at)->v);
		} else if (a->type == ARG_T_MAP) {
			free(((struct strmap *)at)->keys);
			free(((struct strmap *)at)->values);
		}
	}
}
