/*
 * What goes on while chaos breaks things: writers, who note what was confirmed and
 * what was only tried, and visitors, who read and run commands. Each in a process
 * of its own.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "chaos_i.h"
#include "clock.h"
#include "io.h"

enum { PIECES = 24 };

static char content[CONTENT_MAX], other[CONTENT_MAX], got[CONTENT_MAX + 1];
static struct worker *me;
static unsigned thread;
static char dir[256];

static uint64_t below(uint64_t n)
{
	return fault_random(&me->random) % n;
}

static void count(enum tally which)
{
	chaos.shared->tally[which]++;
}

/* ---- every operation ---- */

static void doing(const char *what, const char *path)
{
	snprintf(me->op, sizeof(me->op), "%s %s", what, path);
	me->since_ms = clock_ms();
}

/* Takes what a system call returned; whether it went well. */
static bool went_well(ssize_t r)
{
	me->since_ms = 0;
	if (r >= 0)
		return true;
	count(T_FAILED);
	if (errno < 134)
		chaos.shared->errnos[errno]++;
	if (errno == ENOSPC)
		chaos.shared->disk_was_full = true;
	/* There is no mount, or no sandbox: nothing is gained by asking at once. */
	usleep((useconds_t)below(50000));
	return false;
}

static bool put_piece(int fd, const char *path, const char *data, size_t len, size_t at,
		      size_t piece)
{
	size_t n = MIN(piece, len - at);

	doing("write", path);
	return went_well(pwrite(fd, data + at, n, (off_t)at) == (ssize_t)n ? 0 : -1);
}

static void path_of(char *path, size_t size, const struct slot *s, unsigned slot, bool second)
{
	char name[64];

	slot_name(name, sizeof(name), s->generation, slot, second);
	snprintf(path, size, "%s/%s", dir, name);
}

/* ---- the writer ---- */

/* Writes everything. Returns whether fsync or close confirmed it; ret_torn: not all was written. */
static bool put(const char *path, const char *data, size_t len, int flags, bool *ret_torn)
{
	bool synced = false, ok = true, closed;
	size_t piece = 1 + below(3) * 40000 + below(131072);
	int fd;

	doing("open", path);
	fd = open(path, O_WRONLY | O_CLOEXEC | flags, 0644);
	if (!went_well(fd))
		return false;
	for (size_t at = 0; ok && at < len; at += piece) {
		doing("write", path);
		ok = went_well(write(fd, data + at, MIN(piece, len - at)) ==
					       (ssize_t)MIN(piece, len - at)
				       ? 0
				       : -1);
	}
	if (ok && !below(4)) {
		doing("fsync", path);
		synced = went_well(fsync(fd));
	}
	*ret_torn = !ok;
	doing("close", path);
	closed = went_well(close(fd));
	return synced || (ok && closed);
}

enum edit { EDIT_NOT, EDIT_PARTS, EDIT_WHOLE };

/*
 * Likewise over what is there, in pieces in any order, of which one may be the file's new
 * end. ret_how: how much was taken at once; parts, too, if some of it was to be synced earlier.
 */
static bool put_in_place(const char *path, const char *data, size_t len, enum edit *ret_how)
{
	size_t piece = (len / (1 + below(PIECES - 1)) / BLOCK + 1) * BLOCK;
	unsigned order[PIECES] = { 0 }, n = (unsigned)((len + piece - 1) / piece), cut;
	bool synced = false, ok = true, closed;
	int fd;

	doing("open to edit", path);
	fd = open(path, (below(2) ? O_RDWR : O_WRONLY) | O_CLOEXEC);
	*ret_how = fd < 0 ? EDIT_NOT : EDIT_WHOLE;
	if (!went_well(fd))
		return false;
	for (unsigned i = 0; i < n; i++) {
		unsigned j = (unsigned)below(i + 1);

		order[i] = order[j];
		order[j] = i;
	}
	cut = (unsigned)below(n + 1);
	for (unsigned i = 0; ok && i <= n; i++) {
		if (i == cut) {
			doing("ftruncate", path);
			ok = went_well(ftruncate(fd, (off_t)len));
		}
		if (ok && i < n)
			ok = put_piece(fd, path, data, len, order[i] * piece, piece);
		if (ok && !below(i < n ? 16 : 4)) {
			doing("fsync", path);
			synced = went_well(fsync(fd)) && i == n;
			if (i < n)
				*ret_how = EDIT_PARTS;
		}
		if (!below(8))
			usleep((useconds_t)below(200000)); /* some of it is written down */
	}
	if (!ok)
		*ret_how = EDIT_PARTS;
	doing("close", path);
	closed = went_well(close(fd));
	return synced || (ok && closed);
}

/* The file is given up: what it may be is known and does not change any more. */
static void retire(unsigned slot)
{
	struct slot *s = &chaos.shared->slots[thread][slot];
	unsigned n = chaos.shared->retired_count[thread];

	if (n == RETIRED) {
		fprintf(stderr, "chaos: more files than can be kept account of: a shorter run\n");
		abort();
	}
	memcpy(&chaos.shared->retired[thread][n], s, sizeof(*s));
	/* where it was, for the check */
	chaos.shared->retired[thread][n].moves = slot;
	chaos.shared->retired_count[thread] = n + 1;
	s->moves++;
	s->generation++;
	s->confirmed = s->attempted = s->floor = 0;
	s->elsewhere = s->unsure = s->absent = s->may_be_absent = s->torn = false;
	s->edited = 0;
	s->moves++;
}

static void do_write(unsigned slot)
{
	struct slot *s = &chaos.shared->slots[thread][slot];
	uint32_t version = s->attempted + 1;
	size_t len = content_make(content, thread, s->generation, slot, version);
	unsigned epoch = chaos.shared->epoch;
	bool ok, torn = false;
	char path[512];

	path_of(path, sizeof(path), s, slot, s->elsewhere);
	s->absent = false;
	s->attempted = version;
	s->moves++;
	ok = put(path, content, len, O_CREAT | O_TRUNC, &torn);
	/* The daemon was killed meanwhile: of its last moment's writes the end may be missing. */
	torn |= !ok && (epoch % 2 == 0 || epoch != chaos.shared->epoch);
	s->moves++;
	if (torn) {
		s->torn = true;
		retire(slot);
	}
	if (!ok || torn)
		return;
	s->confirmed = version;
	s->edited = 0;
	s->may_be_absent = false;
	count(T_WRITES);
}

/*
 * Writes over what is there, without emptying it first. What is not confirmed may be there in part
 * if a part of it was to be synced, or if the daemon did not live to take all of it.
 */
static void do_edit(unsigned slot)
{
	struct slot *s = &chaos.shared->slots[thread][slot];
	uint32_t version = s->attempted + 1;
	unsigned epoch = chaos.shared->epoch;
	enum edit how;
	char path[512];
	size_t len;
	bool ok;

	if (!s->confirmed || s->may_be_absent || s->edited)
		return;
	len = content_make(content, thread, s->generation, slot, version);
	path_of(path, sizeof(path), s, slot, s->elsewhere);
	s->moves++;
	s->attempted = version;
	ok = put_in_place(path, content, len, &how);
	if (how == EDIT_WHOLE && (epoch % 2 == 0 || epoch != chaos.shared->epoch))
		how = EDIT_PARTS;
	if (ok) {
		s->confirmed = version;
		count(T_EDITS);
	} else if (how == EDIT_PARTS) {
		s->edited = version;
	}
	s->moves++;
	/* Or the next write goes over whatever it is. */
	if (!ok && how != EDIT_NOT && below(2))
		retire(slot);
}

/* As editors do: another name, then that in place of the old one. */
static void do_save(unsigned slot)
{
	struct slot *s = &chaos.shared->slots[thread][slot];
	uint32_t version = s->attempted + 1;
	size_t len = content_make(content, thread, s->generation, slot, version);
	char path[512], temporary[528];
	bool ok, torn = false;

	path_of(path, sizeof(path), s, slot, s->elsewhere);
	snprintf(temporary, sizeof(temporary), "%s.v%u.tmp", path, version);
	s->absent = false;
	s->attempted = version;
	if (!put(temporary, content, len, O_CREAT | O_EXCL, &torn) || torn) {
		chaos.shared->failed_saves[thread]++;
		return;
	}
	doing("rename over", path);
	s->moves++;
	ok = went_well(rename(temporary, path));
	s->moves++;
	if (!ok) {
		chaos.shared->failed_saves[thread]++;
		return;
	}
	s->confirmed = version;
	s->edited = 0;
	s->may_be_absent = false;
	count(T_WRITES);
}

static void do_rename(unsigned slot)
{
	struct slot *s = &chaos.shared->slots[thread][slot];
	char from[512], to[512];

	if (!s->confirmed || s->may_be_absent)
		return;
	path_of(from, sizeof(from), s, slot, s->elsewhere);
	path_of(to, sizeof(to), s, slot, !s->elsewhere);
	doing("rename", from);
	s->moves++;
	if (went_well(rename(from, to))) {
		s->elsewhere = !s->elsewhere;
		s->moves++;
		count(T_RENAMES);
		return;
	}
	s->unsure = true;
	s->moves++;
	retire(slot);
}

static void do_unlink(unsigned slot)
{
	struct slot *s = &chaos.shared->slots[thread][slot];
	char path[512];
	bool ok;

	if (!s->confirmed || s->may_be_absent)
		return;
	path_of(path, sizeof(path), s, slot, s->elsewhere);
	doing("unlink", path);
	s->moves++;
	s->may_be_absent = true;
	ok = went_well(unlink(path));
	if (ok) {
		s->absent = true;
		s->floor = s->attempted;
		s->confirmed = s->edited = 0;
		count(T_UNLINKS);
	}
	s->moves++;
	/* Its versions go on, so that an old one that comes back is noticed. */
	if (!ok)
		retire(slot);
}

static void do_append(void)
{
	unsigned n = chaos.shared->line_count[thread];
	char path[512], line[256];
	bool torn = false;
	int len;

	if (n == LINES)
		return;
	snprintf(path, sizeof(path), "%s/log", dir);
	len = snprintf(line, sizeof(line), "<%u.%u:%0*u>\n", thread, n, (int)(1 + below(100)), n);
	chaos.shared->lines[thread][n] = FATE_UNSURE;
	chaos.shared->line_count[thread] = n + 1;
	if (!put(path, line, (size_t)len, O_CREAT | O_APPEND, &torn))
		return;
	chaos.shared->lines[thread][n] = FATE_CONFIRMED;
	count(T_APPENDS);
}

static void begin(unsigned number, struct worker *w)
{
	me = w;
	thread = number;
	w->random =
		(chaos.seed + 1) * 0x9e3779b97f4a7c15ull + (uint64_t)(w - chaos.shared->workers);
	snprintf(dir, sizeof(dir), "%s/threads/t%u/outputs", chaos.mount, thread);
}

void chaos_writer(unsigned number, struct worker *w)
{
	begin(number, w);
	while (!chaos.shared->stop) {
		unsigned slot = (unsigned)below(SLOTS), what = (unsigned)below(24);

		if (what < 8)
			do_write(slot);
		else if (what < 11)
			do_save(slot);
		else if (what >= 20)
			do_edit(slot);
		else if (what < 15)
			do_append();
		else if (what < 18)
			do_rename(slot);
		else
			do_unlink(slot);
		usleep((useconds_t)below(20000));
	}
}

/* ---- the visitor ---- */

/* Returns the length, or -1 with errno. */
static ssize_t read_whole(const char *path)
{
	ssize_t n = -1;
	int fd, error;

	doing("open to read", path);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (!went_well(fd))
		return -1;
	doing("read", path);
	n = pread_all(fd, got, sizeof(got), 0);
	error = n < 0 ? (int)-n : 0;
	errno = error;
	(void)went_well(error ? -1 : 0);
	doing("close after reading", path);
	close(fd);
	me->since_ms = 0;
	errno = error;
	return error ? -1 : n;
}

static const char *errno_now(int r)
{
	return r < 0 ? strerrorname_np(errno) : "there";
}

/* Says what else is to be seen of a file that is not there. */
static void tell_gone(const char *path, uint32_t version)
{
	const char *name = strrchr(path, '/') + 1;
	const char *in_thread, *in_outputs, *listed = "not listed", *again, *inside;
	char up[300], host[600];
	struct dirent *e;
	DIR *d;

	snprintf(up, sizeof(up), "%s/..", dir);
	snprintf(host, sizeof(host), "%s/users/default/threads/t%u/user-data/outputs/%s",
		 chaos.data, thread, name);
	inside = errno_now(access(host, F_OK));
	in_thread = errno_now(access(up, F_OK));
	in_outputs = errno_now(access(dir, F_OK));
	d = opendir(dir);
	while (d && (e = readdir(d)))
		if (!strcmp(e->d_name, name))
			listed = "listed";
	if (d)
		closedir(d);
	again = errno_now(access(path, F_OK));
	chaos_loss(
		"%s is gone: version %u was confirmed (in the sandbox %s, thread %s, directory %s, "
		"name %s, then %s)",
		path, version, inside, in_thread, in_outputs, listed, again);
}

/* Somebody's file: a whole version that is not older than what was confirmed before. */
static void do_read(void)
{
	unsigned slot = (unsigned)below(SLOTS), epoch = chaos.shared->epoch;
	struct slot *s = &chaos.shared->slots[thread][slot];
	uint32_t moves = s->moves, generation = s->generation, confirmed = s->confirmed,
		 floor = s->floor, attempted = s->attempted, version;
	bool missing_ok = s->may_be_absent || s->absent || !confirmed;
	char path[512];
	ssize_t n;

	path_of(path, sizeof(path), s, slot, s->elsewhere);
	n = read_whole(path);
	if (moves % 2 || moves != s->moves || epoch != chaos.shared->epoch || epoch % 2 == 0)
		return;
	if (n < 0 && errno == ENOENT && !missing_ok)
		tell_gone(path, confirmed);
	if (n < 0 || s->torn || s->attempted != attempted)
		return;
	version = content_version(got, (size_t)n, other, thread, generation, slot);
	if (!version && content_is_edit(got, (size_t)n, thread, s, slot))
		count(T_READS);
	else if (!version)
		chaos_loss("%s: %zd bytes that are no version of it: %.60s", path, n, got);
	else if (version < confirmed)
		chaos_loss("%s: version %u was read, %u was confirmed before", path, version,
			   confirmed);
	else if (version <= floor)
		chaos_loss("%s: version %u, which was removed", path, version);
	else if (version > s->attempted)
		chaos_loss("%s: version %u, which nobody wrote", path, version);
	else
		count(T_READS);
}

static void do_list(void)
{
	struct dirent *e;
	DIR *d;

	doing("list", dir);
	d = opendir(dir);
	if (!went_well(d ? 0 : -1))
		return;
	doing("list", dir);
	do {
		errno = 0;
		e = readdir(d);
	} while (e);
	(void)went_well(errno ? -1 : 0);
	closedir(d);
}

/* Whether the command said that it ran. */
static bool run(const char *path, const char *text, size_t len, const char *word)
{
	bool said = false;
	ssize_t n;
	int fd;

	doing("open", path);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (!went_well(fd))
		return false;
	doing("command", path);
	if (went_well(write(fd, text, len))) {
		doing("output of a command", path);
		n = read(fd, got, 4096);
		if (went_well(n)) {
			got[n] = '\0';
			said = strstr(got, word);
		}
	}
	doing("end of a command", path);
	(void)went_well(close(fd));
	return said;
}

static void do_command(void)
{
	unsigned n = chaos.shared->command_count[thread];
	char path[512], text[256], word[64];
	int len;

	if (n == LINES)
		return;
	snprintf(path, sizeof(path), "%s/threads/t%u/.ctl/exec", chaos.mount, thread);
	snprintf(word, sizeof(word), "ran <%u.%u>", thread, n);
	len = snprintf(text, sizeof(text),
		       "echo '<%u.%u>' >>/mnt/user-data/outputs/commands && echo '%s'", thread, n,
		       word);
	chaos.shared->commands[thread][n] = FATE_UNSURE;
	chaos.shared->command_count[thread] = n + 1;
	if (!run(path, text, (size_t)len, word))
		return;
	chaos.shared->commands[thread][n] = FATE_CONFIRMED;
	count(T_COMMANDS);
}

void chaos_visitor(unsigned number, struct worker *w)
{
	begin(number, w);
	while (!chaos.shared->stop) {
		unsigned what = (unsigned)below(20);

		if (what < 13)
			do_read();
		else if (what < 16)
			do_list();
		else
			do_command();
		usleep((useconds_t)below(20000));
	}
}
