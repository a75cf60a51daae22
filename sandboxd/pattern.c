/* See pattern.h. */
#include "pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <errno.h>
#include <pcre2.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
	MAX_PATTERN = 64 * KIB,
	MATCH_LIMIT = 500000, /* steps of one match */
	HEAP_LIMIT_KIB = 16 * KIB,
	TIME_LIMIT_S = 30, /* of the thread's time, waiting for disks not counted */
};

struct pattern {
	pcre2_code *code;
	pcre2_match_data *data;
	pcre2_match_context *limits;
	time_t deadline_s;
	unsigned calls;
};

static time_t thread_seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return ts.tv_sec;
}

static uint32_t compile_options(unsigned flags)
{
	uint32_t o = PCRE2_UTF | PCRE2_MATCH_INVALID_UTF;

	/* Python's \d and \w know Unicode; the literal kind takes no such option. */
	if (flags & PATTERN_LITERAL)
		o |= PCRE2_LITERAL;
	else
		o |= PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C;
	if (flags & PATTERN_CASELESS)
		o |= PCRE2_CASELESS;
	if ((flags & PATTERN_MULTILINE) && !(flags & PATTERN_LITERAL))
		o |= PCRE2_MULTILINE | PCRE2_DOTALL;
	return o;
}

static int compile(struct pattern *p, const char *text, unsigned flags, char *why, size_t why_size)
{
	pcre2_compile_context *ctx = pcre2_compile_context_create(NULL);
	PCRE2_UCHAR message[160];
	PCRE2_SIZE at;
	int error;

	if (!ctx)
		return -ENOMEM;
	pcre2_set_newline(ctx, PCRE2_NEWLINE_LF);
	pcre2_set_max_pattern_length(ctx, MAX_PATTERN);
	p->code = pcre2_compile((PCRE2_SPTR)text, strlen(text), compile_options(flags), &error, &at,
				ctx);
	pcre2_compile_context_free(ctx);
	if (p->code)
		return 0;
	if (pcre2_get_error_message(error, message, sizeof(message)) < 0)
		message[0] = '\0';
	snprintf(why, why_size, "%s at position %zu", (const char *)message, (size_t)at);
	return -EINVAL;
}

int pattern_new(const char *text, unsigned flags, struct pattern **ret, char *why, size_t why_size)
{
	struct pattern *p CLEANUP_PATTERN = calloc(1, sizeof(*p));
	int r;

	if (!p)
		return -ENOMEM;
	r = compile(p, text, flags, why, why_size);
	if (r < 0)
		return r;
	/* Only the whole match is of interest: one pair of offsets. */
	p->data = pcre2_match_data_create(1, NULL);
	p->limits = pcre2_match_context_create(NULL);
	if (!p->data || !p->limits)
		return -ENOMEM;
	pcre2_set_match_limit(p->limits, MATCH_LIMIT);
	pcre2_set_heap_limit(p->limits, HEAP_LIMIT_KIB);
	p->deadline_s = thread_seconds() + TIME_LIMIT_S;
	*ret = STEAL(p);
	return 0;
}

void pattern_free(struct pattern *p)
{
	if (!p)
		return;
	pcre2_match_context_free(p->limits);
	pcre2_match_data_free(p->data);
	pcre2_code_free(p->code);
	free(p);
}

int pattern_search(struct pattern *p, const char *s, size_t len, size_t start, size_t *ret_from,
		   size_t *ret_to)
{
	const PCRE2_SIZE *bounds;
	int n;

	if (++p->calls % 16 == 0 && thread_seconds() > p->deadline_s)
		return -ETIME;
	n = pcre2_match(p->code, (PCRE2_SPTR)s, len, start, 0, p->data, p->limits);
	if (n == PCRE2_ERROR_NOMATCH)
		return 0;
	if (n == PCRE2_ERROR_NOMEMORY)
		return -ENOMEM;
	if (n < 0)
		return -E2BIG;
	bounds = pcre2_get_ovector_pointer(p->data);
	/* \K can put a match's start nearly anywhere. */
	*ret_from = MAX(start, MIN(bounds[0], bounds[1]));
	*ret_to = MAX(*ret_from, bounds[1]);
	return 1;
}
