/* See mounts.h. */
#include "mounts.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>

/* ---- reading ---- */

/* The kernel writes blanks, newlines and backslashes as \ooo. In place. */
static void unescape(char *s)
{
	char *to = s;

	while (*s) {
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' &&
		    s[3] >= '0' && s[3] <= '7') {
			*to++ = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0'));
			s += 4;
		} else {
			*to++ = *s++;
		}
	}
	*to = '\0';
}

/* Cuts the next field off, at a blank; NULL if there is none. */
static char *next_field(char **rest)
{
	char *field = strsep(rest, " ");

	return field && *field ? field : NULL;
}

static uid_t find_owner(char *super_options)
{
	char *option;

	while ((option = strsep(&super_options, ","))) {
		unsigned owner;

		if (sscanf(option, "user_id=%u", &owner) == 1)
			return owner;
	}
	return (uid_t)-1;
}

/* id parent major:minor root point options [tag…] - type source super-options */
bool mounts_parse_line(char *line, struct mount_entry *ret)
{
	struct mount_entry m = { 0 };
	char *rest = line, *field, *options;
	unsigned major_number, minor_number;

	field = next_field(&rest);
	if (!field || sscanf(field, "%d", &m.id) != 1)
		return false;
	field = next_field(&rest) ? next_field(&rest) : NULL;
	if (!field || sscanf(field, "%u:%u", &major_number, &minor_number) != 2 ||
	    !next_field(&rest))
		return false;
	m.dev = makedev(major_number, minor_number);
	m.point = next_field(&rest);
	do {
		field = next_field(&rest);
		if (!field)
			return false;
	} while (strcmp(field, "-") != 0);
	m.type = next_field(&rest);
	m.source = strsep(&rest, " "); /* may be empty */
	options = strsep(&rest, " \n");
	if (!m.point || !m.type || !m.source || !options)
		return false;
	unescape(m.point);
	unescape(m.type);
	unescape(m.source);
	m.owner = find_owner(options);
	*ret = m;
	return true;
}

static int add(struct mounts *m, char *line)
{
	struct mount_entry found, *list;

	if (!mounts_parse_line(line, &found))
		return 0;
	list = reallocarray(m->list, m->count + 1, sizeof(*list));
	if (!list)
		return -ENOMEM;
	m->list = list;
	found.point = strdup(found.point);
	found.type = strdup(found.type);
	found.source = strdup(found.source);
	m->list[m->count++] = found;
	return found.point && found.type && found.source ? 0 : -ENOMEM;
}

int mounts_read(struct mounts *ret)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	struct mounts m = { 0 };
	char *line CLEANUP_FREE = NULL;
	size_t size = 0;
	int r = 0;

	if (!f)
		return -errno;
	while (r == 0 && getline(&line, &size, f) >= 0)
		r = add(&m, line);
	if (r == 0 && ferror(f))
		r = -EIO;
	fclose(f);
	if (r < 0)
		mounts_release(&m);
	else
		*ret = m;
	return r;
}

void mounts_release(struct mounts *m)
{
	for (size_t i = 0; i < m->count; i++) {
		free(m->list[i].point);
		free(m->list[i].type);
		free(m->list[i].source);
	}
	free(m->list);
	*m = (struct mounts){ 0 };
}

/* ---- finding ---- */

bool mount_entry_is_ours(const struct mount_entry *mount)
{
	return mount && strcmp(mount->type, MOUNTS_TYPE) == 0;
}

const struct mount_entry *mounts_by_id(const struct mounts *m, int id)
{
	for (size_t i = 0; i < m->count; i++)
		if (m->list[i].id == id)
			return &m->list[i];
	return NULL;
}

const struct mount_entry *mounts_of(const struct mounts *m, dev_t dev,
				    const struct mount_entry *after)
{
	for (size_t i = after ? (size_t)(after - m->list) : m->count; i > 0; i--)
		if (m->list[i - 1].dev == dev && mount_entry_is_ours(&m->list[i - 1]))
			return &m->list[i - 1];
	return NULL;
}

/* Of several at one place the last one covers the others. */
const struct mount_entry *mounts_at(const struct mounts *m, const char *path)
{
	for (size_t i = m->count; i > 0; i--)
		if (strcmp(m->list[i - 1].point, path) == 0)
			return &m->list[i - 1];
	return NULL;
}

static bool lies_in(const char *path, const char *point)
{
	size_t len = strlen(point);

	if (strcmp(point, "/") == 0)
		return path[0] == '/';
	return strncmp(path, point, len) == 0 && (path[len] == '/' || path[len] == '\0');
}

const struct mount_entry *mounts_around(const struct mounts *m, const char *path)
{
	const struct mount_entry *best = NULL;

	for (size_t i = m->count; i > 0; i--) {
		const struct mount_entry *mount = &m->list[i - 1];

		if (lies_in(path, mount->point) &&
		    (!best || strlen(mount->point) > strlen(best->point)))
			best = mount;
	}
	return best;
}

const struct mount_entry *mounts_below(const struct mounts *m, const char *path)
{
	for (size_t i = m->count; i > 0; i--)
		if (lies_in(m->list[i - 1].point, path) && strcmp(m->list[i - 1].point, path) != 0)
			return &m->list[i - 1];
	return NULL;
}

bool mounts_is_ours(const char *path)
{
	struct mounts m CLEANUP_MOUNTS = { 0 };

	return mounts_read(&m) == 0 && mount_entry_is_ours(mounts_at(&m, path));
}

/* ---- paths ---- */

/* All but the last component resolved; NULL with errno set, EINVAL if it has no such name. */
static char *resolve_parent(const char *path)
{
	char *copy CLEANUP_FREE = strdup(path);
	char *parent CLEANUP_FREE = NULL;
	char *name, *whole;
	size_t len;

	if (!copy)
		return NULL;
	len = strlen(copy);
	while (len > 1 && copy[len - 1] == '/')
		copy[--len] = '\0';
	name = strrchr(copy, '/');
	name = name ? name + 1 : copy;
	if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
		errno = EINVAL;
		return NULL;
	}
	if (name == copy) {
		parent = realpath(".", NULL);
	} else {
		name[-1] = '\0';
		parent = realpath(*copy ? copy : "/", NULL);
	}
	if (!parent)
		return NULL;
	if (asprintf(&whole, "%s/%s", strcmp(parent, "/") == 0 ? "" : parent, name) < 0)
		return NULL;
	return whole;
}

int mounts_resolve(const struct mounts *m, const char *path, char **ret)
{
	char *whole = resolve_parent(path);

	if (!whole || !mounts_at(m, whole)) {
		free(whole);
		whole = realpath(path, NULL);
	}
	if (!whole)
		return -errno;
	*ret = whole;
	return 0;
}
