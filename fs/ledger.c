/* Records and their files: see ledger.h. */
#include "ledger.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "io.h"

int ledger_open(int cache, bool make)
{
	int fd CLEANUP_FD = -1;
	struct stat st;

	if (make && mkdirat(cache, LEDGER_DIR, 0700) < 0 && errno != EEXIST)
		return -errno;
	fd = openat(cache, LEDGER_DIR, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOTDIR ? -ELOOP : -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_uid != geteuid() || (st.st_mode & 022))
		return -EPERM;
	return steal_fd(&fd);
}

void ledger_boot(char *out)
{
	int fd CLEANUP_FD = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -errno : pread_all(fd, out, UUID_LEN, 0);

	out[n == UUID_LEN ? n : 0] = '\0';
	if (!uuid_is(out))
		out[0] = '\0';
}

/* ---- those that we hold ---- */

int ledger_entry_new(int dir, int fd, struct ledger_entry **ret)
{
	struct ledger_entry *e = calloc(1, sizeof(*e));

	if (!e)
		return -ENOMEM;
	e->dir = dir;
	e->fd = fd;
	*ret = e;
	return 0;
}

static int pwrite_all(int fd, const char *bytes, size_t len, off_t at)
{
	while (len > 0) {
		ssize_t n = pwrite(fd, bytes, len, at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		bytes += n;
		len -= (size_t)n;
		at += n;
	}
	return 0;
}

/* Locked before anybody can find it. */
static int give_name(struct ledger_entry *e)
{
	char from[32], name[LEDGER_NAME + 1];

	if (flock(e->fd, LOCK_EX | LOCK_NB) < 0)
		return -errno;
	uuid_make(name);
	snprintf(from, sizeof(from), "/proc/self/fd/%d", e->fd);
	if (linkat(AT_FDCWD, from, e->dir, name, AT_SYMLINK_FOLLOW) < 0)
		return -errno;
	strcpy(e->name, name);
	return 0;
}

int ledger_entry_write(struct ledger_entry *e, const struct ledger_record *rec, bool *ret_changed)
{
	char *slot CLEANUP_FREE = malloc(LEDGER_SLOT);
	size_t len;
	int r = slot ? ledger_encode(rec, 0, slot, &len) : -ENOMEM;

	if (r < 0)
		return r;
	if (e->name[0] && e->last && e->last_len == len && memcmp(e->last, slot, len) == 0) {
		*ret_changed = false;
		return 0;
	}
	free(e->last);
	e->last = malloc(len);
	e->last_len = e->last ? len : 0;
	if (e->last)
		memcpy(e->last, slot, len);
	r = ledger_encode(rec, e->seq + 1, slot, &len);
	if (r == 0)
		r = pwrite_all(e->fd, slot, len, (off_t)((e->seq + 1) % 2 * LEDGER_SLOT));
	if (r == 0 && !e->name[0])
		r = give_name(e);
	if (r < 0) {
		free(STEAL(e->last)); /* to be written again */
		return r;
	}
	e->seq++;
	*ret_changed = true;
	return 0;
}

void ledger_entry_drop(struct ledger_entry *e)
{
	if (e && e->name[0])
		unlinkat(e->dir, e->name, 0);
	ledger_entry_keep(e);
}

void ledger_entry_keep(struct ledger_entry *e)
{
	if (!e)
		return;
	free(e->last);
	free(e);
}

/* ---- what is there ---- */

void ledger_found_release(struct ledger_found *f)
{
	ledger_record_release(&f->rec);
	if (f->fd >= 0)
		close(f->fd);
	f->fd = -1;
}

/* Opens and locks it. 1: busy. */
static int open_found(int dir, struct ledger_found *f, const char **why)
{
	struct stat st;

	f->fd = openat(dir, f->name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (f->fd < 0 || fstat(f->fd, &st) < 0) {
		*why = errno == ELOOP ? "a symbolic link" : strerrordesc_np(errno);
		return -errno;
	}
	if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || st.st_nlink > 1) {
		*why = !S_ISREG(st.st_mode) ? "not a regular file"
		       : st.st_nlink > 1    ? "it has another name"
					    : "it belongs to somebody else";
		return -EPERM;
	}
	if (flock(f->fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK)
			return -errno;
		f->busy = true;
	}
	/* Whoever had it may have ended it in between. */
	if (fstat(f->fd, &st) < 0 || st.st_nlink == 0)
		return -ENOENT;
	f->size = (uint64_t)MAX(st.st_size - LEDGER_HEAD, 0);
	return 0;
}

static int read_found(int dir, struct ledger_found *f, const char **why)
{
	char *head CLEANUP_FREE = calloc(1, LEDGER_HEAD);
	int r = head ? open_found(dir, f, why) : -ENOMEM;
	ssize_t n;

	if (r < 0)
		return r;
	n = pread_all(f->fd, head, LEDGER_HEAD, 0);
	r = n < 0 ? (int)n : ledger_decode(head, &f->rec, &f->seq);
	if (r == -EBADMSG)
		*why = "it is damaged, or not a record";
	else if (r == -EPROTONOSUPPORT)
		*why = "it was written by another version of threadfs";
	return r;
}

static int look_at(int dir, const char *name,
		   int (*each)(void *ctx, struct ledger_found *f, int err, const char *why),
		   void *ctx)
{
	struct ledger_found f = { .fd = -1 };
	const char *why = NULL;
	int r = -EINVAL;

	snprintf(f.name, sizeof(f.name), "%s", name);
	if (uuid_is(name))
		r = read_found(dir, &f, &why);
	else
		why = "its name is not a record's";
	if (r != -ENOENT)
		r = each(ctx, &f, r, r < 0 ? (why ?: strerrordesc_np(-r)) : NULL);
	else
		r = 0;
	ledger_found_release(&f);
	return r;
}

/* Its names; NULL with errno. */
static DIR *open_names(int dir)
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	int e = errno;

	if (!d && fd >= 0)
		close(fd);
	errno = e;
	return d;
}

int ledger_scan(int dir, int (*each)(void *ctx, struct ledger_found *f, int err, const char *why),
		void *ctx)
{
	DIR *d = open_names(dir);
	struct dirent *entry;
	unsigned count = 0;
	int r = 0;

	if (!d)
		return -errno;
	while (r == 0 && count < LEDGER_RECORDS && (entry = dir_next(d, &r))) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		count++;
		r = look_at(dir, entry->d_name, each, ctx);
	}
	closedir(d);
	return r;
}

struct search {
	const char *begin;
	char name[LEDGER_NAME + 1];
	unsigned count;
};

static int search_dir(DIR *d, struct search *s)
{
	struct dirent *entry;
	int r = 0;

	while ((entry = dir_next(d, &r))) {
		if (strncmp(entry->d_name, s->begin, strlen(s->begin)) != 0 ||
		    !uuid_is(entry->d_name))
			continue;
		strcpy(s->name, entry->d_name);
		s->count++;
	}
	return r;
}

bool ledger_is_name(const char *text)
{
	return strlen(text) >= 4 && strspn(text, "0123456789abcdef-") == strlen(text);
}

int ledger_find(int dir, const char *name, struct ledger_found *ret)
{
	struct search s = { .begin = name };
	struct ledger_found f = { .fd = -1 };
	const char *why;
	DIR *d;
	int r;

	if (!ledger_is_name(name))
		return -EINVAL;
	d = open_names(dir);
	if (!d)
		return -errno;
	r = search_dir(d, &s);
	closedir(d);
	if (r < 0)
		return r;
	if (s.count != 1)
		return s.count == 0 ? -ENOENT : -EEXIST;
	strcpy(f.name, s.name);
	r = read_found(dir, &f, &why);
	if (r < 0)
		ledger_found_release(&f);
	else
		*ret = f;
	return r;
}

int ledger_take(int dir, struct ledger_found *f, struct ledger_entry **ret)
{
	struct ledger_entry *e;
	int r = f->busy ? -EBUSY : ledger_entry_new(dir, f->fd, &e);

	if (r < 0)
		return r;
	memcpy(e->name, f->name, LEDGER_NAME);
	e->seq = f->seq;
	f->fd = -1;
	*ret = e;
	return 0;
}
