/* See shell_pty.h. */
#include "shell_pty.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <termios.h>

#include "proc.h"
#include "spawn.h"

enum {
	READ_SIZE = 64 * KIB,
	READS_PER_EVENT = 16,      /* then it is someone else's turn */
	READS_AT_END = 256,        /* a background job may never be silent */
	MAX_REPORT = 2 * PATH_MAX, /* more than that is not from our loop */
	KILL_PASSES = 8,
	/* Wide, so that programs do not wrap their lines. */
	COLUMNS = 1000,
	ROWS = 1000,
};

/*
 * The loop bash runs instead of reading its terminal. fd 63 tells the number
 * of the next command and takes the reports; fd 62 has the command's text (a
 * file, because bash reads pipes byte by byte).
 *
 * It stands in PROMPT_COMMAND because an interactive bash comes back there
 * whatever throws it out of a command: SIGINT, an unset variable under set -u,
 * `break` (hence the last line). Everything but the command itself runs inside
 * a condition with its output discarded, so set -e, set -x and traps do not
 * get at it; TMOUT and IFS are kept from `read`. During the command the two
 * fds are closed: bash's own copies are close-on-exec. $? is that of the
 * command before. `suspend` would stop bash with nobody there to go on.
 *
 * A command can still spoil the loop: hide builtins, change or lock the
 * variables. What the loop notices ends bash, if possible before the report so
 * that the culprit pays and not the command after it; no command is run twice,
 * because its text is emptied before the next is read. The rest is up to
 * whoever watches shell_pty_in_loop().
 */
static const char prompt_command[] =
	"__sbx_s=$? __sbx_k=1\n"
	"{ : \"${__sbx_pc:=$PROMPT_COMMAND}\" \"${__sbx_n:=0}\"; builtin unset HISTFILE; set +H\n"
	"builtin enable -n suspend; } >/dev/null 2>&1\n"
	"while { __sbx_t=$?; unset -f builtin unset; builtin unset -f unset eval __sbx_r\n"
	"__sbx_r() { return \"$1\"; }\n"
	"[[ ${__sbx@a}${__sbx_d@a}${__sbx_k@a}${__sbx_n@a}${__sbx_s@a} == *[!x]* ]] &&\n"
	"builtin kill -9 $$\n"
	"[[ $__sbx_k ]] || __sbx_s=$__sbx_t; __sbx_k= __sbx= __sbx_d=; builtin jobs\n"
	"PROMPT_COMMAND=$__sbx_pc; builtin declare +x PROMPT_COMMAND PS1\n"
	"builtin read -t 0 </dev/null &&\n"
	"builtin printf '%s\\0%s\\0%s\\0' \"$__sbx_n\" \"$__sbx_s\" \"$PWD\" >&63 ||\n"
	"builtin kill -9 $$\n"
	"IFS= TMOUT= builtin read -r -u 63 __sbx_n &&\n"
	"IFS= TMOUT= builtin read -r -d '' -u 62 __sbx_d &&\n"
	"IFS= TMOUT= builtin read -r -d '' -u 62 __sbx &&\n"
	"[[ $__sbx ]] || builtin kill -9 $$\n"
	"[[ -z $__sbx_d ]] || builtin cd \"${__sbx_d:0:2}\" -- \"${__sbx_d:2}\" || :\n"
	"} >/dev/null 2>&1\n"
	"do { case $__sbx_s in 0) eval \"$__sbx\";;\n"
	"*) __sbx_r \"$__sbx_s\" || eval \"$__sbx\";; esac; } 62<&- 63<&-\n"
	"done\n"
	"builtin eval \"$__sbx_pc\"";

/* ---- what runs on the terminal ---- */

/* The session id of a process that is not dead already, or 0. */
static pid_t session_of(int proc, const char *pid)
{
	struct proc_stat st;

	return !proc_stat(proc, pid, &st) || st.state == 'Z' || st.state == 'X' ? 0 : st.session;
}

/*
 * Jobs have process groups of their own, so only the session tells them.
 * Returns how many there were.
 */
static unsigned signal_session(pid_t session, int sig)
{
	DIR *proc = opendir("/proc");
	struct dirent *e;
	unsigned n = 0;

	if (!proc) {
		spawn_kill(session, sig);
		return 0;
	}
	while ((e = readdir(proc))) {
		if (!isdigit((unsigned char)e->d_name[0]) ||
		    session_of(dirfd(proc), e->d_name) != session)
			continue;
		kill((pid_t)strtol(e->d_name, NULL, 10), sig);
		n++;
	}
	closedir(proc);
	return n;
}

static void kill_session(pid_t session)
{
	/* Again, because one may have forked behind our back. */
	for (unsigned i = 0; i < KILL_PASSES; i++)
		if (signal_session(session, SIGKILL) == 0)
			return;
}

/* ---- events ---- */

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void drop(struct shell_pty *p)
{
	ev_io_stop(p->srv->loop, &p->on_master);
	ev_io_stop(p->srv->loop, &p->on_control);
	child_forget(p->srv->loop, &p->child);
	close_fd(&p->master);
	close_fd(&p->control);
	close_fd(&p->text);
	buf_release(&p->report);
	p->pid = 0;
}

/* Reads until there is no more; the kernel hands over all that was written before. */
static void read_master(struct shell_pty *p, unsigned reads)
{
	char data[READ_SIZE];

	while (reads--) {
		ssize_t n = read(p->master, data, sizeof(data));

		if (n > 0) {
			p->events->output(p, data, (size_t)n);
			continue;
		}
		if (n < 0 && errno == EINTR)
			continue;
		/* EIO: nobody has the terminal open any more. */
		if (n == 0 || errno != EAGAIN)
			ev_io_stop(p->srv->loop, &p->on_master);
		return;
	}
}

static void on_master(struct ev_loop *loop UNUSED, ev_io *io, int revents UNUSED)
{
	read_master(io->data, READS_PER_EVENT);
}

static bool next_field(const char **at, const char *end, const char **ret)
{
	const char *nul = memchr(*at, '\0', (size_t)(end - *at));

	if (!nul)
		return false;
	*ret = *at;
	*at = nul + 1;
	return true;
}

/* Handles the complete reports: "<number>\0<status>\0<directory>\0". */
static void take_reports(struct shell_pty *p)
{
	const char *at = p->report.data, *seq, *status, *dir;
	const char *end = at + p->report.len;
	size_t used = 0;

	while (next_field(&at, end, &seq) && next_field(&at, end, &status) &&
	       next_field(&at, end, &dir)) {
		used = (size_t)(at - p->report.data);
		p->events->report(p, strtoull(seq, NULL, 10), (int)strtol(status, NULL, 10), dir);
	}
	buf_consume(&p->report, used);
}

static void on_control(struct ev_loop *loop, ev_io *io, int revents UNUSED)
{
	struct shell_pty *p = io->data;
	char data[1024];
	ssize_t n = recv(p->control, data, sizeof(data), MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		/* bash has ended, or has become another program by exec. */
		ev_io_stop(loop, io);
		return;
	}
	if (buf_append(&p->report, data, (size_t)n) < 0) {
		kill(p->pid, SIGKILL);
		ev_io_stop(loop, io);
		return;
	}
	read_master(p, READS_AT_END);
	take_reports(p);
}

static void on_child(struct child *c, int wstatus)
{
	struct shell_pty *p = CONTAINER_OF(c, struct shell_pty, child);

	read_master(p, READS_AT_END);
	/* Without its terminal nothing of it could be talked to again. */
	kill_session(p->pid);
	drop(p);
	p->events->ended(p, wstatus);
}

/* ---- start ---- */

static int open_terminal(int *ret_master, int *ret_slave)
{
	struct winsize size = { .ws_row = ROWS, .ws_col = COLUMNS };
	int master CLEANUP_FD = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
	int slave CLEANUP_FD = -1;
	struct termios t;

	if (master < 0 || grantpt(master) < 0 || unlockpt(master) < 0)
		return -errno;
	slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (slave < 0 || tcgetattr(slave, &t) < 0)
		return -errno;
	/* Output as it is written, and nobody types anything. */
	t.c_oflag &= ~(tcflag_t)OPOST;
	t.c_lflag &= ~(tcflag_t)(ECHO | ECHONL);
	if (tcsetattr(slave, TCSANOW, &t) < 0 || ioctl(slave, TIOCSWINSZ, &size) < 0)
		return -errno;
	*ret_master = steal_fd(&master);
	*ret_slave = steal_fd(&slave);
	return 0;
}

static pid_t spawn_bash(struct shell_pty *p, int slave, int control, const char *dir,
			const char *pwd)
{
	static const char *const argv[] = { "/bin/bash",   "--norc", "--noprofile",
					    "--noediting", "-i",     NULL };
	/* There is nobody to press a key for a pager. */
	static const char *const names[] = { "TERM", "PAGER",          "GIT_PAGER",
					     "PS1",  "PROMPT_COMMAND", "PWD" };
	const char *values[] = { "xterm-256color", "cat", "cat", "", prompt_command, pwd };
	struct spawn s = {
		.argv = argv,
		.cwd = dir,
		.stdin_fd = slave,
		.stdout_fd = slave,
		.stderr_fd = slave,
		.tty = true,
		.extra_fds = { p->text, control },
	};
	char **env = spawn_env(p->srv, names, values, ARRAY_SIZE(names));
	pid_t pid;

	if (!env)
		return -ENOMEM;
	s.env = (const char *const *)env;
	pid = spawn(p->srv, &s);
	spawn_env_free(env);
	return pid;
}

static void watch(struct shell_pty *p, pid_t pid)
{
	p->pid = pid;
	p->report = BUF_INIT(MAX_REPORT);
	child_watch(p->srv->loop, &p->child, pid, on_child);
	ev_io_init(&p->on_master, on_master, p->master, EV_READ);
	ev_io_init(&p->on_control, on_control, p->control, EV_READ);
	p->on_master.data = p->on_control.data = p;
	ev_io_start(p->srv->loop, &p->on_master);
	ev_io_start(p->srv->loop, &p->on_control);
}

void shell_pty_init(struct shell_pty *p, struct server *srv, const struct shell_pty_events *events)
{
	*p = (struct shell_pty){
		.srv = srv,
		.events = events,
		.master = -1,
		.text = -1,
		.control = -1,
	};
}

int shell_pty_start(struct shell_pty *p, const char *dir, bool symlinks)
{
	int master CLEANUP_FD = -1, slave CLEANUP_FD = -1, control CLEANUP_FD = -1;
	struct stat st;
	int ends[2], r;
	pid_t pid;

	r = open_terminal(&master, &slave);
	if (r < 0)
		return r;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
		return -errno;
	p->control = ends[0];
	control = ends[1];
	p->peer = fstat(control, &st) < 0 ? 0 : st.st_ino;
	p->text = memfd_create("shell-command", MFD_CLOEXEC);
	/* bash believes $PWD if it is that directory, and follows links itself if not. */
	pid = p->text < 0 ? -errno : spawn_bash(p, slave, control, dir, symlinks ? dir : "");
	if (pid < 0) {
		close_fd(&p->control);
		close_fd(&p->text);
		return pid;
	}
	p->master = steal_fd(&master);
	watch(p, pid);
	return 0;
}

/* ---- use ---- */

static int write_text(int fd, const char *dir, bool symlinks, const char *command)
{
	const char *flag = !dir ? "" : symlinks ? "-L" : "-P";
	CLEANUP_BUF struct buf text = BUF_INIT(0);
	size_t done = 0;

	buf_puts(&text, flag);
	buf_append(&text, dir ? dir : "", dir ? strlen(dir) + 1 : 1);
	/* To the loop an empty one means that it could not read it. */
	buf_puts(&text, *command ? "" : ":");
	buf_append(&text, command, strlen(command) + 1);
	if (text.error)
		return text.error;
	if (ftruncate(fd, 0) < 0)
		return -errno;
	while (done < text.len) {
		ssize_t n = pwrite(fd, text.data + done, text.len - done, (off_t)done);

		if (n < 0)
			return -errno;
		done += (size_t)n;
	}
	/* The position is bash's as well: it is the same open file. */
	return lseek(fd, 0, SEEK_SET) < 0 ? -errno : 0;
}

int shell_pty_run(struct shell_pty *p, uint64_t seq, const char *command, const char *dir,
		  bool symlinks)
{
	char go[32];
	int r, n;

	r = write_text(p->text, dir, symlinks, command);
	if (r < 0)
		return r;
	n = snprintf(go, sizeof(go), "%ju\n", (uintmax_t)seq);
	if (send(p->control, go, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT) != n)
		return -EPIPE;
	return 0;
}

bool shell_pty_interrupt(struct shell_pty *p, int sig)
{
	pid_t group = p->pid ? tcgetpgrp(p->master) : -1;

	if (group <= 1)
		group = p->pid;
	spawn_kill(group, sig);
	return group != p->pid;
}

bool shell_pty_in_loop(const struct shell_pty *p)
{
	char path[64], want[64], is[64];
	ssize_t n;

	/* A trap may still run something. */
	if (!p->pid || tcgetpgrp(p->master) != p->pid)
		return false;
	snprintf(path, sizeof(path), "/proc/%d/fd/63", (int)p->pid);
	n = readlink(path, is, sizeof(is) - 1);
	if (n < 0)
		return false;
	is[n] = '\0';
	/* Commands may have an fd 63 as well: bash's <(...) does. */
	snprintf(want, sizeof(want), "socket:[%ju]", (uintmax_t)p->peer);
	return strcmp(is, want) == 0;
}

void shell_pty_continue(const struct shell_pty *p)
{
	struct proc_stat st;
	char path[32];

	if (!p->pid)
		return;
	snprintf(path, sizeof(path), "/proc/%d", (int)p->pid);
	if (proc_stat(AT_FDCWD, path, &st) && st.state == 'T')
		kill(p->pid, SIGCONT);
}

int shell_pty_cwd(const struct shell_pty *p, char *buf, size_t size)
{
	char path[64];
	ssize_t n;

	if (!p->pid)
		return -ESRCH;
	snprintf(path, sizeof(path), "/proc/%d/cwd", (int)p->pid);
	n = readlink(path, buf, size - 1);
	if (n < 0)
		return -errno;
	buf[n] = '\0';
	return 0;
}

void shell_pty_signal(const struct shell_pty *p, int sig)
{
	if (!p->pid)
		return;
	if (sig == SIGKILL)
		kill_session(p->pid);
	else
		signal_session(p->pid, sig);
}

void shell_pty_close(struct shell_pty *p)
{
	if (!p->pid)
		return;
	kill_session(p->pid);
	drop(p);
}
