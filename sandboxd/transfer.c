/*
 * The routes that move whole files. A download is opened and answered on the
 * loop; an upload is written as it arrives and put in place by a worker, since
 * that may have to copy it. No code here.
 */
#include "transfer.h"

const struct route transfer_routes[] = {
	{ "GET", "/v1/file/download", D_ALL, download },
	{ "HEAD", "/v1/file/download", D_AIOD, download },
	{ "POST", "/v1/file/upload", D_ALL, upload, .flags = ROUTE_BLOCKING, .sink = &upload_sink },
	{ 0 },
};
