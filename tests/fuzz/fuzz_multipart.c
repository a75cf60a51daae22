/* Multipart uploads: two bytes say where the body is cut, the rest is it. */
#include <stdio.h>

#include "harness.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	harness_start();
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char head[256];
	size_t split;
	int n;

	if (size < 2)
		return 0;
	split = (size_t)data[0] | (size_t)data[1] << 8;
	n = snprintf(head, sizeof(head),
		     "POST /v1/file/upload HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
		     "Content-Type: multipart/form-data; boundary=B\r\nContent-Length: %zu\r\n\r\n",
		     size - 2);
	harness_request(head, (size_t)n, data + 2, size - 2, split, false);
	return 0;
}
