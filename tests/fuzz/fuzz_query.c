/*
 * Query strings and the headers that go with them. Lines of the input: the
 * query, Range, If-Range, Authorization; a first byte picks method and path.
 */
#include <stdio.h>
#include <string.h>

#include "buf.h"
#include "harness.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	static const char big[100000];
	FILE *f;

	harness_start();
	f = fopen("/mnt/user-data/a", "w");
	if (f) {
		fwrite(big, 1, 10, f);
		fclose(f);
	}
	f = fopen("/mnt/user-data/b", "w");
	if (f) {
		fwrite(big, 1, sizeof(big), f);
		fclose(f);
	}
	return 0;
}

/* One line of input; bytes that would end the header line become '+'. */
static void put_line(struct buf *out, const uint8_t **data, size_t *size, bool query)
{
	while (*size > 0) {
		char c = (char)**data;

		(*data)++;
		(*size)--;
		if (c == '\n')
			return;
		if (c == '\r' || c == '\0' || (query && (c == ' ' || c == '\t')))
			c = '+';
		buf_putc(out, c);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const starts[] = {
		"GET /v1/file/download?",
		"HEAD /v1/file/download?",
		"GET /v1/sandbox?",
		"GET /v1/file/watch/",
		"DELETE /v1/shell/sessions/",
		"GET /",
		"GET /v1/file/download?path=/mnt/user-data/a&",
		"GET /v1/file/download?path=/mnt/user-data/b&",
	};
	struct buf head CLEANUP_BUF = BUF_INIT(32768);

	if (size < 1)
		return 0;
	buf_puts(&head, starts[data[0] % ARRAY_SIZE(starts)]);
	data++;
	size--;
	put_line(&head, &data, &size, true);
	buf_puts(&head, " HTTP/1.1\r\nHost: x\r\nConnection: close\r\nRange: ");
	put_line(&head, &data, &size, false);
	buf_puts(&head, "\r\nIf-Range: ");
	put_line(&head, &data, &size, false);
	buf_puts(&head, "\r\nAuthorization: ");
	put_line(&head, &data, &size, false);
	buf_puts(&head, "\r\n\r\n");
	if (!head.error)
		harness_request(head.data, head.len, NULL, 0, 0, true);
	return 0;
}
