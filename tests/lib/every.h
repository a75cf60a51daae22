/*
 * Every operation of sandbox.h as a row of a table, for tests that do the same
 * to all of them. An attempt is one such operation under way, with the files it
 * works on and room for its result.
 *
 *	attempt_init(&a, &every_op[i], 500);
 *	attempt_prepare(&a, f);			files for it to work on
 *	attempt_start(&a, sb);
 *	r = call_wait(&a.call);
 *	attempt_release(&a);
 */
#pragma once

#include "fixture.h"

struct attempt;

enum {
	/* What a 200 brings is the file, whatever it looks like. */
	EVERY_TAKES_BYTES = 1,
	/* Only the status counts, not what the answer says. */
	EVERY_STATUS_ONLY = 2,
	/* Goes on until it is stopped; broken connections are no end. */
	EVERY_ENDLESS = 4,
	/* The call's time counts silence. */
	EVERY_ON_SILENCE = 8,
	/* -EOPNOTSUPP where there is no /v1/bash. */
	EVERY_NEEDS_BASH = 16,
	/* Works on a bash job. */
	EVERY_NEEDS_JOB = 32,
	/* Tells nothing but whether it went well. */
	EVERY_NO_RESULT = 64,
	/* Tells what a command printed: whatever the server says that was. */
	EVERY_TELLS_OUTPUT = 128,
};

struct every_op {
	const char *name;
	unsigned flags;
	void (*start)(struct attempt *a, struct sandbox *sb);
	/* Frees a result; NULL if there is nothing to free. */
	void (*release)(struct attempt *a);
	/* Whether what it says it did is what was asked for; NULL if nobody can tell. */
	bool (*fits)(const struct attempt *a);
};
extern const struct every_op every_op[];
extern const size_t every_op_len;

struct attempt {
	const struct every_op *op;
	struct call call;
	const char *job; /* for the operations on a bash job; one that there is not unless set */
	char dir[160], host_dir[288];
	char paths[3][192];
	int fd;
	union result {
		char bytes[512];
		struct sandbox_info info;
		struct entries entries;
		struct attr attr;
		struct fs_stat fs;
		struct buf buf;
		struct bundle bundle;
		struct command_result command;
		struct bash_result bash;
		struct bash_output output;
		struct run_news news;
		uint64_t copied;
		char *text;
	} result, before;
	struct attr expect;
	uint64_t moved;              /* bytes of a transfer; loop's thread until the call is done */
	unsigned live, lost, events; /* of a watch; likewise */
};

void attempt_init(struct attempt *a, const struct every_op *op, int64_t timeout_ms);
/* Makes a directory with what the operations want to be there; once per attempt, any thread. */
void attempt_prepare(struct attempt *a, const struct fixture *f);
void attempt_start(struct attempt *a, struct sandbox *sb);
bool attempt_has_ended(struct attempt *a);
/*
 * Once done: NULL if the result fits the error (untouched on failure, what was
 * prepared on success), else what is wrong.
 */
const char *attempt_judge(const struct attempt *a);
void attempt_release(struct attempt *a);

enum { EVERY_SIZE = 3000 /* bytes of the file that attempts read and write */ };

/* tests/valgrind/run says so. */
bool is_under_valgrind(void);
/* Whether a sanitizer or valgrind makes time and memory say nothing; how much slower it may be. */
bool measuring_is_vain(void);
int slowness(void);
