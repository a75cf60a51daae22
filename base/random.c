/* See random.h. */
#include "random.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/types.h>

void random_fill(void *to, size_t len)
{
	ssize_t n;

	do
		n = getrandom(to, len, 0);
	while (n < 0 && errno == EINTR);
	/* Keys that can be guessed, and names that are all the same, are worse than no program. */
	if (n != (ssize_t)len)
		abort();
}
