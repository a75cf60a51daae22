/*
 * One sandbox over HTTP: the public face of client/.
 *
 * Any thread may call any function here. Operations only start something and
 * return; the call (call.h) tells how it ended. Paths are absolute paths of
 * the sandbox, byte strings without NUL, and must lie in the view's root:
 * otherwise the call ends with -EACCES (-EINVAL for a relative one) before any
 * request, and an error is logged; -ENAMETOOLONG for what no path can be. A
 * closed sandbox ends every call with -ENOTCONN.
 *
 * Errors are those of the sandbox's own system calls where it reports them;
 * -ETIMEDOUT past the call's time, -ECANCELED, -ECONNREFUSED/-ECONNRESET/
 * -EHOSTUNREACH from the network, -EKEYREJECTED/-EPROTO from TLS, -EACCES for a
 * refused key, -EAGAIN/-EBUSY from a server or proxy that is not up to it now,
 * -EOPNOTSUPP for what the server cannot do, -EBADMSG/-EMSGSIZE for nonsense,
 * -EIO when nothing better is known.
 */
#pragma once

#include "buf.h"
#include "bundle.h"
#include "call.h"
#include "entries.h"
#include "watch_event.h"

struct sandbox;

/* ---- life ---- */

struct sandbox_config {
	const char *url;     /* http(s)://host[:port][/prefix]; or */
	const char *socket;  /* path of a unix socket */
	const char *root;    /* of the view; NULL: /mnt/user-data */
	const char *label;   /* for the log, e.g. the thread's id; may be NULL */
	const char *bearer;  /* a token or JWT: Authorization: Bearer … */
	const char *api_key; /* X-AIO-API-Key: …, and as Bearer if there is no other */
	const char *cacert;  /* PEM file instead of the system's */
	bool insecure;       /* do not verify TLS */
	bool no_link_local;  /* the URL is hearsay: if its name is such an address, stay away */
};

/*
 * Makes a sandbox; nothing is sent. The loop must outlive it. Returns 0, or
 * -EINVAL with ret_why (static, may be NULL) in words, -ENOMEM.
 */
int sandbox_new(struct loop *loop, const struct sandbox_config *config, struct sandbox **ret,
		const char **ret_why) MUST_CHECK;

/*
 * Ends the sandbox's use: what is in flight ends with -ENOTCONN, sessions and
 * watchers that we made are deleted as far as the server answers within about a
 * second, and when this returns no socket to it is open. May be called by
 * several threads and several times; from the loop's thread it does not wait
 * (the sockets then close without the farewell).
 */
void sandbox_close(struct sandbox *sb);
/*
 * Closes and gives up the caller's reference. NULL is fine. Before loop_free()
 * call it from another thread than the loop's, so that it is gone.
 */
void sandbox_unref(struct sandbox *sb);

/* Another reference, and giving one up without closing; the last one frees. */
struct sandbox *sandbox_ref(struct sandbox *sb);
void sandbox_put(struct sandbox *sb);
/*
 * Any thread: closes and gives up the caller's reference without waiting.
 * closed(ctx), if given, is called on the loop's thread when no socket to the
 * sandbox is open any more, also if somebody else closed it before.
 */
void sandbox_dismiss(struct sandbox *sb, void (*closed)(void *ctx), void *ctx);

/* What is known about the server without asking: "1.0", "1.9", "aiod", or "" before a probe. */
const char *sandbox_dialect(struct sandbox *sb);

/* Loop thread only: when its last whole answer came, by clock_ms(); it was made then, if none. */
int64_t sandbox_heard_ms(const struct sandbox *sb);

/* The view's root: absolute, normal, no slash at its end unless it is "/". Immutable. */
const char *sandbox_root(const struct sandbox *sb);

/* ---- what it is ---- */

struct sandbox_info {
	char *version, *home_dir, *workspace; /* workspace may be NULL */
	char dialect[8];                      /* "1.0", "1.9" or "aiod" */
	bool has_bash, has_watch;
};
void sandbox_info_release(struct sandbox_info *info);

/* GET /v1/sandbox and what routes there are. Asked once; later calls answer from memory. */
void sandbox_context(struct sandbox *sb, struct call *call, struct sandbox_info *ret);
/*
 * Asks GET /v1/sandbox until it answers 200: tries of at most try_ms, pause_ms
 * apart, both cut to what is left of the call's time. Ends with 0, or with the
 * last try's error (-ETIMEDOUT if there was none) when the time is over.
 */
void sandbox_wait_ready(struct sandbox *sb, struct call *call, int64_t try_ms, int64_t pause_ms);
/* One GET /v1/sandbox, not from memory: 0 if it answered 200. */
void sandbox_ping(struct sandbox *sb, struct call *call);

/* ---- directories and attributes ---- */

/* ret is to be released by the caller on success. depth 0: all levels; 1: the directory itself
 * only. */
void sandbox_list(struct sandbox *sb, struct call *call, const char *dir, unsigned depth,
		  struct entries *ret);
/*
 * The directory and what is in directories below it, each before what it holds, depth levels in
 * all, but not into those that are large (attr_is_near()): little more than the directory alone
 * costs. max: at most so many entries, and -EOPNOTSUPP, as below; 0: all. ret->depth: how deep
 * it is, 1 where the sandbox has no tools for more.
 */
void sandbox_list_near(struct sandbox *sb, struct call *call, const char *dir, unsigned depth,
		       unsigned max, struct entries *ret);
/*
 * Several directories below dir (names: single components) with all that is in
 * them, one after the other, each before what it holds and that before its next sibling, at most
 * max entries: then ret->truncated, and only the directories above the last entry (and that one
 * itself) are not complete. -EOPNOTSUPP where the sandbox has no tools for it.
 */
void sandbox_list_trees(struct sandbox *sb, struct call *call, const char *dir,
			const char *const *names, size_t count, unsigned max, struct entries *ret);
void sandbox_lstat(struct sandbox *sb, struct call *call, const char *path, struct attr *ret);
void sandbox_readlink(struct sandbox *sb, struct call *call, const char *path, char **ret_target);
/*
 * These changes look at the result in the same breath, if ret is given (it may be
 * NULL): a second trip is saved. An error may then be of that look, as it would be of one
 * that is made afterwards.
 */
void sandbox_mkdir(struct sandbox *sb, struct call *call, const char *path, mode_t mode,
		   struct attr *ret);
void sandbox_link(struct sandbox *sb, struct call *call, const char *from, const char *to,
		  struct attr *ret);
/* target is any string; it is not checked against the view. */
void sandbox_symlink(struct sandbox *sb, struct call *call, const char *target, const char *path,
		     struct attr *ret);
/* chmod, truncate and the copies follow symbolic links, as the system calls do. */
void sandbox_chmod(struct sandbox *sb, struct call *call, const char *path, mode_t mode,
		   struct attr *ret);
/* times as in utimensat(2), of the link itself; UTIME_NOW and UTIME_OMIT allowed. ret is untouched
 * if there is nothing to do. */
void sandbox_utimens(struct sandbox *sb, struct call *call, const char *path,
		     const struct timespec times[2], struct attr *ret);
void sandbox_rmdir(struct sandbox *sb, struct call *call, const char *path);
void sandbox_unlink(struct sandbox *sb, struct call *call, const char *path);
/* flags: 0, RENAME_NOREPLACE or RENAME_EXCHANGE (-EOPNOTSUPP where the sandbox cannot). *ret_same
 * is set, or left as it is: both were names of one file, so that nothing was to be done. May be
 * NULL. */
void sandbox_rename(struct sandbox *sb, struct call *call, const char *from, const char *to,
		    unsigned flags, bool *ret_same);
void sandbox_truncate(struct sandbox *sb, struct call *call, const char *path, uint64_t size);
void sandbox_statfs(struct sandbox *sb, struct call *call, const char *path, struct fs_stat *ret);
/* Copies a file inside the sandbox, replacing the target's content. */
void sandbox_copy(struct sandbox *sb, struct call *call, const char *from, const char *to);
/* As copy_file_range(2): both files must exist; ret_copied is what was there to copy. */
void sandbox_copy_range(struct sandbox *sb, struct call *call, const char *from,
			uint64_t from_offset, const char *to, uint64_t to_offset, uint64_t len,
			uint64_t *ret_copied);

/* ---- whole files ---- */

/*
 * Text as the server's read route gives it (UTF-8, line ends translated):
 * lines first..last, counted from 1, both included; 0, 0 for all. Use
 * sandbox_download() for bytes. ret is initialised by the caller.
 */
void sandbox_read_file(struct sandbox *sb, struct call *call, const char *path, int64_t first,
		       int64_t last, struct buf *ret);
/* Bytes, in place (not atomic; see sandbox_upload). Parents are made. */
void sandbox_write_file(struct sandbox *sb, struct call *call, const char *path, const void *bytes,
			size_t len);
/* Adds to the end in one step of the server: parallel appends lose nothing. Never sent twice. */
void sandbox_append(struct sandbox *sb, struct call *call, const char *path, const void *bytes,
		    size_t len);
/* Bytes, whole or not at all: through a temporary name. No parents are made. */
void sandbox_update_file(struct sandbox *sb, struct call *call, const char *path, const void *bytes,
			 size_t len);

/*
 * Several small files below dir in one go: as bytes and attributes, of each the first each_max
 * bytes at most. names: paths below dir that do not begin with '-'; copied. about: how many bytes
 * that will be. What could not be read says so in ret (bundle.h), for the caller to release;
 * whether attributes are those that the caller knew from before, and so the bytes of that version,
 * is for him to see. If a name is gone it fails as a whole.
 */
void sandbox_gather(struct sandbox *sb, struct call *call, const char *dir,
		    const char *const *names, size_t n, size_t each_max, uint64_t about,
		    struct bundle *ret);

/* ---- transfers: the call's timeout_ms counts silence (SLOWEST_TRANSFER), not the whole ---- */

struct download_head {
	int64_t size;     /* of the whole file; -1 if the server does not say */
	const char *etag; /* or NULL; valid during the callback */
	bool ranged;      /* the server sent only what was asked for */
};

struct download {
	uint64_t offset;
	uint64_t length;           /* 0: to the end */
	const struct attr *expect; /* the version wanted (copied); NULL: any */
	/* Without expect: a change does not end it. For files that grow all the time, of which
	 * the caller sees to the versions himself. */
	bool unguarded;
	/*
	 * With expect: the caller hears of changes otherwise, from a watch that was live when he
	 * learned of the version and still is. Then no command is run for the proof: the answer's
	 * header has to agree (size, Last-Modified), and that all bytes are of one version is
	 * the server's word (change_policy=abort, for what is short), or the ETag's, which is
	 * asked for once more behind a long one. A change of a moment before, which only
	 * nanoseconds tell from the version wanted, is for him to find: has he heard of
	 * one when it ends, 0 means nothing. Where the server has neither word, as without it.
	 */
	bool watched;
	/*
	 * Both on the loop's thread. head may be NULL. data returns 0, -EAGAIN
	 * to pause (the same bytes come again after sandbox_go_on; the time
	 * stands still meanwhile), or another errno, which ends the download
	 * with it.
	 */
	int (*head)(void *ctx, const struct download_head *head);
	int (*data)(void *ctx, const void *bytes, size_t len);
	/*
	 * Optional: where the next bytes for data() should be received, which then need not be
	 * copied, and how many fit. NULL: with 0, pause as by -EAGAIN; otherwise anywhere. They may
	 * come from elsewhere all the same.
	 */
	char *(*space)(void *ctx, size_t *ret_len);
	void *ctx;
};
/*
 * Streams a file. Ends with 0 only when every byte asked for (or up to the end
 * of the file) was given to data. With expect, a file that is another one or
 * changed meanwhile is -ESTALE, and nothing of two versions is ever reported as
 * a success. Without it a change that the server notices is -ESTALE too, but a
 * file that was being overwritten when the download began shows no change.
 */
void sandbox_download(struct sandbox *sb, struct call *call, const char *path,
		      const struct download *how);

enum {
	UPLOAD_NEW = 1, /* only if the name is not taken when the file gets it: -EEXIST */
	/*
	 * What the caller knows, which need not be asked then. The directory is there: if it has
	 * gone meanwhile the server makes it again. Nobody has the name: the bytes may go
	 * straight to it, in one request, over what somebody put there meanwhile, also with
	 * UPLOAD_NEW.
	 */
	UPLOAD_DIR_THERE = 2,
	UPLOAD_NAME_FREE = 4,
};
struct upload {
	int64_t size; /* -1: not known yet */
	int mode;     /* permissions of the file; -1: those it had, or the server's default */
	unsigned flags;
	/* Optional, until the end: only over this version of the file: -EEXIST if that is not there
	 * when the new one is to get its name. */
	const struct attr *over;
	/*
	 * Fills at most len bytes on the loop's thread: returns how many, 0 at
	 * the end, -EAGAIN to pause (then sandbox_go_on), or an errno, which
	 * ends the upload with it. NULL: from fd.
	 */
	ssize_t (*read)(void *ctx, char *to, size_t len);
	/* Optional: read() begins anew, because what was sent is to be sent once more. Without it
	 * that is an error. */
	void (*rewind)(void *ctx);
	/*
	 * Optional, beside read(): the next bytes lie in a file, and are sent from there where that
	 * can be done. Returns how many of them are taken, at most max; 0: read() is asked. They
	 * must not change until the upload has ended or is cancelled.
	 */
	size_t (*lend)(void *ctx, size_t max);
	/* With it: where the byte `at` is, which was lent. A descriptor, -1: it is gone; -ECANCELED
	 * then. */
	int (*lent_file)(void *ctx, uint64_t at, off_t *ret_offset);
	void *ctx;
	int fd; /* with read NULL: a regular file, read from its start with pread(2); must stay open
		 */
};
/* How the temporary names of uploads begin, beside the file; a listing may catch one. */
#define UPLOAD_TEMPORARY ".threadfs-upload-"
/*
 * Puts a file in its place as a whole: a reader in the sandbox sees the old one
 * or the new one. After a failure the old one is there and nothing of the new.
 * With UPLOAD_NAME_FREE there is none, and a reader may see the beginning of a small new
 * one on a server that does not stage; after a failure that the server told of the name is free
 * again.
 */
void sandbox_upload(struct sandbox *sb, struct call *call, const char *path,
		    const struct upload *how);
/* Any thread: a paused transfer goes on. Harmless when it is not paused or done. */
void sandbox_go_on(struct sandbox *sb, struct call *call);

/* ---- commands ---- */

enum command_status {
	COMMAND_COMPLETED,
	COMMAND_RUNNING,    /* still running: the server stopped waiting */
	COMMAND_NO_CHANGE,  /* silent for no_change_timeout; still running */
	COMMAND_TIMED_OUT,  /* killed at its hard timeout */
	COMMAND_TERMINATED, /* killed otherwise */
};
struct command_result {
	enum command_status status;
	int exit_code; /* -1 if there is none */
	char *output;  /* NUL-terminated besides */
	size_t output_len;
};
void command_result_release(struct command_result *r);

/*
 * Runs a command in the sandbox's one shell session, which starts in the
 * view's root: cd and export last. One at a time, in order of arrival. A
 * cancelled or timed-out call ends the wait, not the command. A command is
 * never sent twice, except that the server's ErrorObservation answer makes it
 * run once more in a fresh session.
 */
void sandbox_execute_command(struct sandbox *sb, struct call *call, const char *command,
			     struct command_result *ret);

struct bash_command {
	const char *command;
	const char *dir;        /* NULL: the view's root */
	const char *const *env; /* NAME, VALUE, NAME, VALUE, …, NULL; or NULL */
	int64_t hard_timeout_s; /* 0: none */
};
struct bash_result {
	enum command_status status;
	int exit_code;   /* negative: a signal; -1 also if there is none */
	char *out, *err; /* NUL-terminated besides; never NULL */
	size_t out_len, err_len;
};
void bash_result_release(struct bash_result *r);

/* Runs a command in a process of its own and waits for its end. -EOPNOTSUPP, with advice as the
 * message, where the server has no /v1/bash. */
void sandbox_bash(struct sandbox *sb, struct call *call, const struct bash_command *cmd,
		  struct bash_result *ret);

/* The same piece by piece. job is an id that the caller frees; it names a session of its own. */
void sandbox_bash_start(struct sandbox *sb, struct call *call, const struct bash_command *cmd,
			char **ret_job);
struct bash_output {
	struct bash_result result;      /* what came since the offsets; status and exit code */
	int64_t out_offset, err_offset; /* for the next call */
};
/* Waits up to wait_ms for something new. Offsets are bytes from the start. */
void sandbox_bash_output(struct sandbox *sb, struct call *call, const char *job, int64_t out_offset,
			 int64_t err_offset, int64_t wait_ms, struct bash_output *ret);
/* Text for its stdin (UTF-8). Never sent twice. */
void sandbox_bash_write(struct sandbox *sb, struct call *call, const char *job, const void *bytes,
			size_t len);
/* signal: SIGTERM, SIGKILL or SIGINT (-EINVAL otherwise), to the whole process group. */
void sandbox_bash_kill(struct sandbox *sb, struct call *call, const char *job, int signal);
/* Forgets the job and its output; ends what still runs. */
void sandbox_bash_close(struct sandbox *sb, struct call *call, const char *job);

/* ---- runs: commands whose output is bytes, as they come, on every server ---- */

/*
 * A run is a script of bash whose stdout and stderr go to files of ours in the
 * sandbox's /tmp, from where they are fetched byte by byte through the exec
 * channel; it goes on whoever looks. It is either a process of its own (in a
 * session and process group of its own), or it happens in a named shell of ours, after what was
 * started there before has ended: such a shell starts in the view's root and keeps cd
 * and export from one run to the next; `exit` in it ends that run with the code, and
 * the next one finds a fresh shell. Neither has a terminal.
 */
struct run_spec {
	const void *script; /* any bytes but NUL */
	size_t len;
	const char *shell;      /* a short word; NULL: a process of its own */
	const char *dir;        /* of a process of its own: absolute; NULL: the view's root */
	const char *const *env; /* likewise: NAME, VALUE, …, NULL; or NULL */
	bool fed; /* likewise: stdin comes with sandbox_run_feed(); otherwise it is empty */
};
/*
 * Starts it, never twice. ret_run names it from now on; for the caller to free. If the call fails,
 * is cancelled or times out the run is ended and removed again, or never begins, however late the
 * server comes to it (within 5 s); that goes on after the call's end.
 */
void sandbox_run_start(struct sandbox *sb, struct call *call, const struct run_spec *spec,
		       char **ret_run);

struct run_news {
	char *out, *err; /* what there is from the offsets on, at most max bytes each */
	size_t out_len, err_len;
	bool started;  /* false: it still waits for its shell */
	bool ended;    /* and these are the last bytes */
	int exit_code; /* once ended; 128 + N for signal N; -1: its shell or some output was lost */
};
void run_news_release(struct run_news *n);
/* max: at most 1 MiB. Waits a little (at most wait_ms) for something new where that keeps nobody
 * else waiting. */
void sandbox_run_look(struct sandbox *sb, struct call *call, const char *run, uint64_t out_offset,
		      uint64_t err_offset, size_t max, int64_t wait_ms, struct run_news *ret);
/* Bytes of its stdin, which go to that offset of it (so the same may be sent again); end: no more
 * follow. -EAGAIN: it has not read enough of the last 2 MiB; send the same again later. */
void sandbox_run_feed(struct sandbox *sb, struct call *call, const char *run, uint64_t offset,
		      const void *bytes, size_t len, bool end);
/* SIGTERM, SIGKILL, SIGINT or SIGHUP to all of its processes; a run that waits for its shell never
 * starts. The shell survives if it can. */
void sandbox_run_kill(struct sandbox *sb, struct call *call, const char *run, int signal);
/* Forgets it and removes its files; it goes on if it still runs. */
void sandbox_run_drop(struct sandbox *sb, struct call *call, const char *run);

/* ---- watching ---- */

struct watch {
	/*
	 * All on the loop's thread. live: events are coming from now on (also
	 * after an interruption without a gap); nothing before the first live
	 * is reported. lost: events may have been missed or are not coming
	 * (overflow, a gap, a connection that broke and could not be had again
	 * at once, an event that cannot be read, -EILSEQ for a name that the
	 * server could not spell): read the tree anew; live follows when they
	 * come again. event: one change; its strings are valid during the
	 * callback.
	 */
	void (*live)(void *ctx);
	void (*lost)(void *ctx, int err);
	void (*event)(void *ctx, const struct watch_event *ev);
	void *ctx;
	unsigned debounce_ms; /* 0: the server's least, 50 */
};
/*
 * Watches a tree with nothing excluded. The call goes on until it is cancelled
 * (-ECANCELED), the sandbox is closed, or watching is impossible: -EOPNOTSUPP
 * (no such route), -ENOENT, -EBUSY (too many watchers). Broken connections are
 * mended with backoff. timeout_ms of the call bounds silence of the server,
 * 0 takes 90 s.
 */
void sandbox_watch(struct sandbox *sb, struct call *call, const char *path,
		   const struct watch *how);
