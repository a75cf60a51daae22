/* Where the user's own files are. Reads the environment: before threads start. */
#pragma once

#include "util.h"

/* $HOME if it is absolute, else what the user database says. -ENOENT: neither. */
int home_dir(char **ret) MUST_CHECK;
/*
 * VARIABLE/threadfs if that variable (of the XDG base directories) is set and absolute, else
 * HOME/below/threadfs. -ENOENT: there is no home directory.
 */
int home_xdg(const char *variable, const char *below, char **ret) MUST_CHECK;
/* The same path, absolute: "~/" is the home directory. -ENOENT: there is none, or no working
 * directory. Does not look whether it exists. */
int home_absolute(const char *path, char **ret) MUST_CHECK;
