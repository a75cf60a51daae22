/*
 * The commands of one thread: each has a number, and its output is kept on the
 * host (unlinked files in the cache directory, capped) as long as the job is known. Loop thread
 * only.
 */
#pragma once

#include "thread.h"

struct jobs;

/* The numbers of the jobs that are known, for listing jobs/; for the caller to free. */
int jobs_numbers(struct thread *t, unsigned **ret, size_t *ret_count) MUST_CHECK;
bool jobs_has(struct thread *t, unsigned number);
/* Ends what waits and forgets all; running commands go on in the sandbox. NULL is fine. */
void jobs_free(struct jobs *j);
