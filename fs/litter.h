/*
 * Temporary files of uploads that a dead daemon or sandbox broke off: whoever made
 * one removes it, unless he cannot any more. Loop thread only.
 */
#pragma once

#include "thread.h"

struct attr;

/*
 * A listing of the directory (below the thread's root) has that name, which begins with
 * UPLOAD_TEMPORARY. If it is such a file and nobody can be writing to it any more it is removed, in
 * the background; one that somebody does write to makes his upload fail, which is then begun anew.
 */
void litter_seen(struct thread *t, const char *dir, const char *name, const struct attr *attr);
