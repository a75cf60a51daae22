/*
 * What a look at a run (sandbox.h) has found: a line of numbers, and the output behind it, as
 * run_script_look()'s script prints them. What comes back is a stranger's. Pure.
 */
#pragma once

#include "buf.h"
#include "sandbox.h"

/* max: so many bytes of each stream were asked for. The caller releases what it gets; returns 0,
 * -EBADMSG or -ENOMEM. */
int run_news_parse(const struct buf *said, size_t max, struct run_news *ret) MUST_CHECK;
