/*
 * See pattern.h. PCRE2's own limits count steps, but one step of [a-z]+ may go
 * over megabytes. So every pattern is compiled with callouts before each of its
 * items: they add up how far the search went, and now and then look at the
 * clock.
 */
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
	SEARCH_MS = 1000,             /* for one search, and … */
	BYTES_PER_MS = 10000,         /* … more for a long text */
	STEP_COST = 64,               /* bytes that could be passed over in the time of a callout */
	LOOK_COST = 1024 * STEP_COST, /* after that much, look at the clock */
};

/* Large classes make a single item slow, and no callout comes in between. */
#define MAX_WEIGHT_TIMES_TEXT (8 * GIB)

struct pattern {
	pcre2_code *code;
	pcre2_match_data *data;
	pcre2_match_context *limits;
	size_t weight;       /* bytes of the pattern that a single item may have */
	bool backreferences; /* their cost cannot be seen from outside */
	bool (*stop)(void *ctx);
	void *ctx;
	int64_t deadline_ms;        /* of the thread's time, as the next */
	int64_t search_deadline_ms; /* 0 = not looked at the clock in this search yet */
	size_t cost;                /* since the last look at the clock */
	size_t at;                  /* where the last callout was */
	int verdict;                /* why a callout ended the search */
};

static int64_t thread_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* Whether a search in len bytes may go on: 0, -ECANCELED, -ETIME or -E2BIG. */
static int look(struct pattern *p, size_t len)
{
	int64_t now = thread_ms();

	p->cost = 0;
	if (p->stop && p->stop(p->ctx))
		return -ECANCELED;
	if (now >= p->deadline_ms)
		return -ETIME;
	if (p->search_deadline_ms == 0)
		p->search_deadline_ms = now + SEARCH_MS + (int64_t)(len / BYTES_PER_MS);
	return now >= p->search_deadline_ms ? -E2BIG : 0;
}

static int on_callout(pcre2_callout_block *c, void *ctx)
{
	struct pattern *p = ctx;
	size_t at = c->current_position;

	p->cost += STEP_COST + (at > p->at ? at - p->at : p->at - at);
	if (p->backreferences)
		p->cost += c->subject_length;
	p->at = at;
	if (p->cost >= LOOK_COST)
		p->verdict = look(p, c->subject_length);
	return p->verdict < 0 ? PCRE2_ERROR_CALLOUT : 0;
}

static uint32_t compile_options(unsigned flags)
{
	uint32_t o = PCRE2_UTF | PCRE2_AUTO_CALLOUT;

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
	uint32_t highest = 0;
	PCRE2_SIZE at;
	int error;

	if (!ctx)
		return -ENOMEM;
	pcre2_set_newline(ctx, PCRE2_NEWLINE_LF);
	pcre2_set_max_pattern_length(ctx, MAX_PATTERN);
	p->weight = flags & PATTERN_LITERAL ? 1 : strlen(text);
	p->code = pcre2_compile((PCRE2_SPTR)text, strlen(text), compile_options(flags), &error, &at,
				ctx);
	pcre2_compile_context_free(ctx);
	if (p->code) {
		pcre2_pattern_info(p->code, PCRE2_INFO_BACKREFMAX, &highest);
		p->backreferences = highest > 0;
		return 0;
	}
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
	pcre2_set_callout(p->limits, on_callout, p);
	pattern_limit(p, PATTERN_MS, NULL, NULL);
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

void pattern_limit(struct pattern *p, unsigned ms, bool (*stop)(void *ctx), void *ctx)
{
	p->deadline_ms = thread_ms() + ms;
	p->stop = stop;
	p->ctx = ctx;
}

int pattern_search(struct pattern *p, const char *s, size_t len, size_t start, size_t *ret_from,
		   size_t *ret_to)
{
	const PCRE2_SIZE *bounds;
	int n;

	if ((uint64_t)len * p->weight > MAX_WEIGHT_TIMES_TEXT)
		return -E2BIG;
	p->search_deadline_ms = 0;
	p->at = start;
	/* What PCRE2 does before the first callout and after the last one. */
	p->cost += STEP_COST + (len - start);
	p->verdict = p->cost >= LOOK_COST ? look(p, len) : 0;
	if (p->verdict < 0)
		return p->verdict;
	n = pcre2_match(p->code, (PCRE2_SPTR)s, len, start, PCRE2_NO_UTF_CHECK, p->data, p->limits);
	if (n == PCRE2_ERROR_NOMATCH)
		return 0;
	if (n == PCRE2_ERROR_NOMEMORY)
		return -ENOMEM;
	if (n == PCRE2_ERROR_CALLOUT)
		return p->verdict;
	if (n < 0)
		return -E2BIG;
	bounds = pcre2_get_ovector_pointer(p->data);
	/* \K can put a match's start nearly anywhere. */
	*ret_from = MAX(start, MIN(bounds[0], bounds[1]));
	*ret_to = MAX(*ret_from, bounds[1]);
	return 1;
}
