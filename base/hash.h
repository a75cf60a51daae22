/*
 * Hash tables: uthash, with its default undone that a program which finds no memory
 * for one more element exits on the spot. Here that element is not added, and whoever adds has to
 * look:
 *
 *	HASH_ADD_STR(table, id, e);
 *	if (!HASH_TOOK(hh, e))
 *		return -ENOMEM;
 */
#pragma once

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

/* Right behind an addition of e by its handle hh. */
#define HASH_TOOK(hh, e) ((e)->hh.tbl != NULL)
