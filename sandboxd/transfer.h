/* Whole files in and out: the handlers behind transfer_routes. Loop thread,
 * but upload() runs on a worker. */
#pragma once

#include "route.h"

void download(struct request *r);
void upload(struct request *r);
extern const struct body_sink upload_sink;
