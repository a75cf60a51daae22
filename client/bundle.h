/*
 * Several small files as one stretch of bytes, and how it is taken apart: what
 * head -v prints of them, the end of a line, then a line of stat for each. The sender
 * is hostile; nothing is believed that does not fit exactly. Pure; no threads.
 */
#pragma once

#include "entries.h"

struct bundle_file {
	struct attr attr;  /* after it was read, of the name itself */
	bool was_read;     /* false: it could not be, or not as many bytes as attr.size */
	const char *bytes; /* attr.size of them, in the bundle's block */
};

struct bundle {
	char *block;
	struct bundle_file *v; /* one for each name, in that order */
	size_t n;
};

void bundle_release(struct bundle *b);

/*
 * Of n names. Takes the block over if it succeeds. A file that was read short or
 * long (it was being changed) ends what is believed: those behind it count as not read.
 * Returns 0, -EBADMSG (a line of stat is missing or no such line), -ENOMEM.
 */
int bundle_parse(struct bundle *ret, char **block, size_t len, char *const *names,
		 size_t n) MUST_CHECK;
