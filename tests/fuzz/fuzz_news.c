/* What a server says that a look at a run has found: two bytes are how much was asked for. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "run_news.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct buf said CLEANUP_BUF = BUF_INIT(0);
	struct run_news n = { .exit_code = -2 };
	size_t max;
	int r;

	if (size < 2)
		return 0;
	max = (size_t)(data[0] << 8 | data[1]);
	r = buf_append(&said, data + 2, size - 2);
	assert(r == 0);
	r = run_news_parse(&said, max, &n);
	assert(r == 0 || r == -EBADMSG);
	if (r < 0) {
		assert(n.exit_code == -2 && !n.out && !n.err);
		return 0;
	}
	assert(n.out_len <= max && n.err_len <= max && n.out_len + n.err_len < said.len);
	assert(!n.out[n.out_len] && !n.err[n.err_len]);
	assert(n.exit_code >= -1 && n.exit_code <= 255);
	assert(n.ended || n.exit_code == -1);
	run_news_release(&n);
	return 0;
}
