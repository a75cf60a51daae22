/*
 * Names of which the kernel was told that a directory does not have them, and
 * that it may believe so until it hears otherwise: it does not say when it forgets them,
 * so they are remembered here. Loop thread only.
 */
#pragma once

#include "node.h"

/*
 * Before such an answer. False: there are too many (or no memory); then it may not be
 * kept at all.
 */
bool absent_add(struct node *dir, const char *name) MUST_CHECK;
/* Whether the kernel was told so. */
bool absent_has(const struct node *dir, const char *name);
/* Whether it was there; it is not any more. */
bool absent_take(struct node *dir, const char *name);
/* None of that directory is to be believed: the kernel is told. */
void absent_void(struct node *dir);
/* The directory is gone, and the kernel knows. */
void absent_free(struct node *dir);
