/* Whether embedded sandboxes can have walls here. Any thread; starts a process and waits for it. */
#pragma once

#include "buf.h"

/* 0, or a negative errno with one line in why that says how to mend it. */
int isolation_check(struct buf *why) MUST_CHECK;
