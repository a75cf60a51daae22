/*
 * Uploads and downloads in flight, for .ctl/transfers and the totals. A record
 * is embedded in whoever moves the bytes. Loop thread only.
 */
#pragma once

#include "buf.h"
#include "util.h"

struct thread;
struct node;

struct transfer {
	struct thread *thread;
	struct node *node; /* whose content; not counted: it outlives the transfer */
	bool up;
	int64_t total; /* bytes in all; -1: not known */
	uint64_t moved;
	int64_t since_ms;
	struct transfer *prev, *next;
};

void transfer_begin(struct transfer *x, struct thread *t, struct node *n, bool up, int64_t total);
void transfer_moved(struct transfer *x, size_t bytes);
void transfer_end(struct transfer *x); /* harmless if it has not begun */
/* One line each: "up|down <tab> path <tab> moved <tab> total <tab> bytes/s <tab> seconds left". */
void transfer_print(const struct thread *t, struct buf *to);
