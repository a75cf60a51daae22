/* See watch_filter.h. */
#include "watch_filter.h"

#include <errno.h>
#include <string.h>

#include "glob_match.h"

static int copy(const char *const *from, size_t n, char ***to, size_t *to_n)
{
	*to = calloc(n + 1, sizeof(**to));
	if (!*to)
		return -ENOMEM;
	while (*to_n < n) {
		(*to)[*to_n] = strdup(from[*to_n]);
		if (!(*to)[*to_n])
			return -ENOMEM;
		++*to_n;
	}
	return 0;
}

int watch_filter_init(struct watch_filter *f, const char *const *exclude, size_t n_exclude,
		      const char *const *include, size_t n_include)
{
	int r;

	*f = (struct watch_filter){ 0 };
	r = copy(exclude, n_exclude, &f->exclude, &f->n_exclude);
	if (r < 0)
		return r;
	return copy(include, n_include, &f->include, &f->n_include);
}

static void release(char **patterns, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free(patterns[i]);
	free(patterns);
}

void watch_filter_release(struct watch_filter *f)
{
	release(f->exclude, f->n_exclude);
	release(f->include, f->n_include);
	*f = (struct watch_filter){ 0 };
}

static bool matches(char *const *patterns, size_t n, const char *name)
{
	size_t len = strlen(name);

	for (size_t i = 0; i < n; i++)
		if (glob_match_name(patterns[i], strlen(patterns[i]), name, len))
			return true;
	return false;
}

bool watch_excludes(const struct watch_filter *f, const char *name)
{
	if (f->only[0])
		return strcmp(name, f->only) != 0;
	return matches(f->exclude, f->n_exclude, name);
}

bool watch_wants(const struct watch_filter *f, const char *name)
{
	if (watch_excludes(f, name))
		return false;
	return f->only[0] || f->n_include == 0 || matches(f->include, f->n_include, name);
}
