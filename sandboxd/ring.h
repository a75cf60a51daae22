/*
 * The output of a session: absolute byte offsets over everything ever
 * written, of which the newest part is kept; past the cap the oldest half is
 * dropped. Pure data, one owner.
 */
#pragma once

#include "buf.h"

struct ring {
	struct buf buf; /* bytes start .. start + buf.len */
	uint64_t start;
	size_t cap;
};

void ring_init(struct ring *r, size_t cap);
void ring_release(struct ring *r);
/* 0 or -ENOMEM (the bytes are then dropped, offsets still advance). */
int ring_write(struct ring *r, const char *data, size_t len);
uint64_t ring_end(const struct ring *r);
/*
 * The kept bytes from offset on; *offset is moved up to what is kept and down
 * to the end. Valid until the next write.
 */
const char *ring_read(const struct ring *r, uint64_t *offset, size_t *ret_len);
