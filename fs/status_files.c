/*
 * The control files that only tell: the mount's and the threads' status, metrics,
 * settings, transfers, the README. All are what they are at the time of opening.
 * Nothing here waits, and nothing starts a sandbox. Loop thread only.
 */
#include "ctl.h"
#include "snapshot.h"
#include "thread.h"

static const char readme[] =
	"This is a threadfs mount: sandboxes of AI agents, shown as directories.\n"
	"\n"
	"threads/ID/ is what the sandbox of the thread ID has in /mnt/user-data:\n"
	"  uploads/      what you give to the agent\n"
	"  workspace/    where it works\n"
	"  outputs/      what it gives to you\n"
	"They are ordinary files: cp, tar, grep, tail -f and editors work.\n"
	"\n"
	"  ls threads                              the threads that are known\n"
	"  mkdir threads/demo                      a new one, with its sandbox\n"
	"  cd threads/demo\n"
	"  cp ~/sales.csv uploads/\n"
	"  echo 'wc -l uploads/* > outputs/lines' > .ctl/exec     run a command in it\n"
	"  cat .ctl/exec                           its output\n"
	"  cat .ctl/exit_code                      and how it ended\n"
	"  cat outputs/lines\n"
	"  threadfs exec . -- make report          with stdout, stderr and exit code\n"
	"  echo 1 > .ctl/release                   done for now: it may be reused or stopped\n"
	"  echo 1 > .ctl/destroy                   stop the sandbox; its files stay\n"
	"  cd ../.. && rm -r threads/demo          remove the files, the sandbox, the thread\n"
	"\n"
	"Control files are in .ctl, here and in every thread. It is not listed, so that\n"
	"find, rm -r and cp -r never touch it, but it can be named at any time:\n"
	"  .ctl/status  .ctl/status.json           what there is, and what went wrong last\n"
	"  .ctl/metrics  .ctl/config               for Prometheus; the settings in force\n"
	"  threads/ID/.ctl/transfers               uploads and downloads under way\n"
	"  threads/ID/.ctl/jobs/N/                 every command that was run\n"
	"\n"
	"A file is in the sandbox when close() or fsync() has returned without an error.\n"
	"To end it: threadfs unmount MOUNTPOINT. More: threadfs --help\n";

static int render_readme(struct ctl_open *o UNUSED, struct buf *to)
{
	return buf_puts(to, readme);
}

static int render_config(struct ctl_open *o, struct buf *to)
{
	options_print(o->fs->opt, to);
	return to->error;
}

static int render_transfers(struct ctl_open *o, struct buf *to)
{
	transfer_print(o->thread, to);
	return to->error;
}

static int render_mount(struct ctl_open *o, struct buf *to,
			void (*print)(const struct snapshot *s, struct buf *to))
{
	struct snapshot s CLEANUP_SNAPSHOT = { 0 };
	int r = snapshot_take(&s, o->fs, NULL);

	if (r < 0)
		return r;
	print(&s, to);
	return to->error;
}

static int render_status(struct ctl_open *o, struct buf *to)
{
	return render_mount(o, to, status_show);
}

static int render_status_json(struct ctl_open *o, struct buf *to)
{
	return render_mount(o, to, status_json);
}

static int render_metrics(struct ctl_open *o, struct buf *to)
{
	return render_mount(o, to, metrics_print);
}

static int render_one(struct ctl_open *o, struct buf *to,
		      void (*print)(const struct snapshot *s, const struct thread_view *v,
				    struct buf *to))
{
	struct snapshot s CLEANUP_SNAPSHOT = { 0 };
	int r = snapshot_take(&s, o->fs, o->thread);

	if (r < 0)
		return r;
	print(&s, &s.threads[0], to);
	return to->error;
}

static int render_thread_status(struct ctl_open *o, struct buf *to)
{
	return render_one(o, to, status_show_thread);
}

static int render_thread_status_json(struct ctl_open *o, struct buf *to)
{
	return render_one(o, to, status_json_thread);
}

const struct ctl_file ctl_readme = { .name = "README", .mode = 0444, .render = render_readme };
const struct ctl_file ctl_fs_status = { .name = "status", .mode = 0444, .render = render_status };
const struct ctl_file ctl_fs_status_json = { .name = "status.json",
					     .mode = 0444,
					     .render = render_status_json };
const struct ctl_file ctl_fs_metrics = { .name = "metrics",
					 .mode = 0444,
					 .render = render_metrics };
const struct ctl_file ctl_fs_config = { .name = "config", .mode = 0444, .render = render_config };
const struct ctl_file ctl_thread_status = { .name = "status",
					    .mode = 0444,
					    .render = render_thread_status };
const struct ctl_file ctl_thread_status_json = { .name = "status.json",
						 .mode = 0444,
						 .render = render_thread_status_json };
const struct ctl_file ctl_transfers = { .name = "transfers",
					.mode = 0444,
					.render = render_transfers };
