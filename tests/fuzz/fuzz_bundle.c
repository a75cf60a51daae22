/*
 * Several small files in one stretch of bytes: a byte says how many names were asked
 * for, the rest is what came. What is believed of a file lies inside the block.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "bundle.h"
#include "check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char a[] = "/d/a", b_c[] = "/d/b c", bytes[] = "/d/\xff", head[] = "/d/==> x <==";
	char *const names[] = { a, b_c, bytes, head };
	struct bundle b = { 0 };
	char *block;
	size_t n;
	int r;

	if (size < 1)
		return 0;
	n = 1 + data[0] % ARRAY_SIZE(names);
	size--;
	block = malloc(size + 1);
	assert(block);
	memcpy(block, data + 1, size);
	block[size] = '\0';
	r = bundle_parse(&b, &block, size, names, n);
	assert(r == 0 || r == -EBADMSG);
	if (r < 0) {
		assert(block);
		free(block);
		return 0;
	}
	assert(!block && b.n == n);
	for (size_t i = 0; i < n; i++) {
		const struct bundle_file *f = &b.v[i];

		check_attr(&f->attr);
		if (f->was_read)
			assert(f->bytes >= b.block && f->bytes <= b.block + size &&
			       f->attr.size <= (size_t)(b.block + size - f->bytes));
	}
	bundle_release(&b);
	return 0;
}
