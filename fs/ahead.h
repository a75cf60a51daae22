/*
 * Fetching small files ahead of somebody who goes through a directory, or from one
 * to the next: grep -r, tar, cat *. Many files come with one command and at most one
 * download (sandbox_gather), each with the proof of its version, and wait in contents.h. It begins
 * when files of a directory are opened one after the other in the order of its listing or
 * of their names, or when several of a small one are; it grows as long as what was fetched is
 * used, and without new opens nothing new is fetched. Nobody sees an error of it:
 * a file that did not come is read as any other. It keeps no sandbox alive.
 * Loop thread only.
 */
#pragma once

#include "contents.h"

struct ahead;

/*
 * A file was opened for reading: with the content that was here or coming (or NULL), or
 * without need of one, as the kernel has its pages.
 */
void ahead_opened(struct node *n, const struct content *c, bool has_pages);
/* The thread goes away. NULL is fine. */
void ahead_free(struct ahead *a);
