/*
 * Shell patterns: "*", "?", "[a-z]", "[!a]" within a name, "**" across
 * directories, and "{a,b}" in sets. Characters are UTF-8 ones. A backslash is
 * an ordinary character, as in Python. Matching takes time proportional to
 * pattern times text at worst. Pure; any thread.
 */
#pragma once

#include "util.h"

/* Whether a pattern holds anything but literal characters. */
bool glob_has_magic(const char *pattern, size_t len);

/* One name against one pattern without "/". A leading dot is nothing special. */
bool glob_match_name(const char *pattern, size_t pattern_len, const char *name, size_t name_len);

/* A relative path against a pattern, name by name; "**" matches any number of names. */
bool glob_match_path(const char *pattern, const char *path);

/* A list of patterns with their braces expanded. */
struct glob_set {
	char **v;
	size_t n;
};

enum { GLOB_SET_MAX = 1024 };

/* 0, -E2BIG (more than GLOB_SET_MAX patterns) or -ENOMEM. Release in any case. */
int glob_set_init(struct glob_set *set, const char *const *patterns, size_t n) MUST_CHECK;
void glob_set_release(struct glob_set *set);

/*
 * Whether any pattern matches: one without "/" is tried on the last name of
 * the path, one with "/" on the whole path.
 */
bool glob_set_match(const struct glob_set *set, const char *path);
