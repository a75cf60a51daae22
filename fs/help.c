/* What the program says of itself, a page per command. Pure. */
#include <string.h>

#include "cmd.h"
#include "suggest.h"

static const char mount_head[] =
	"usage: threadfs mount [SOURCE] MOUNTPOINT [-f] [-o OPTION[,OPTION...]]\n"
	"                      [--config FILE]\n"
	"\n"
	"Mounts sandboxes. Returns when the mount answers.\n"
	"\n"
	"SOURCE is one of\n"
	"  embedded:             sandboxes on this machine, one per thread (default)\n"
	"  docker:[IMAGE]        containers of Docker or Podman\n"
	"  provisioner:URL       pods of deer-flow's provisioner, http://HOST:8002\n"
	"  http://HOST:PORT      one running sandbox; also https://\n"
	"\n"
	"  -f                    stay in the foreground, log to standard error\n"
	"  -o OPTION[,...]       see below; a comma in a value is written \\,\n"
	"  --config FILE         read deer-flow's config.yaml, also for which sandboxes\n"
	"                        there are, and its section threadfs\n"
	"\n"
	"Later wins: defaults, config file, environment (THREADFS_LINGER for linger,\n"
	"and so on), -o. Keys come from THREADFS_API_KEY, THREADFS_TOKEN or api_key_file,\n"
	"a provisioner's from THREADFS_PROVISIONER_API_KEY or provisioner_key_file.\n"
	"\n"
	"Options [and their defaults]:\n";

static const char mount_tail[] =
	"\n"
	"BYTES takes K, M, G or T. Switches such as ro take =true and =false, too.\n"
	"\n"
	"example:\n"
	"  threadfs mount ~/agents -o linger=60,replicas=5\n"
	"  mkdir ~/agents/threads/demo && cp sales.csv ~/agents/threads/demo/uploads/\n";

static const char unmount_page[] =
	"usage: threadfs unmount [-l] MOUNTPOINT\n"
	"\n"
	"Unmounts, and returns when it is done.\n"
	"\n"
	"  -l, --lazy            out of sight now, and gone when nobody uses it any more\n"
	"\n"
	"example:\n"
	"  threadfs unmount ~/agents\n";

static const char status_page[] =
	"usage: threadfs status [MOUNTPOINT] [--json]\n"
	"\n"
	"Shows the threads of a mount and what their sandboxes do; without MOUNTPOINT\n"
	"those of every mount of yours. MOUNTPOINT may be any path in the mount.\n"
	"\n"
	"  --json                for programs: one JSON document for each mount\n"
	"\n"
	"example:\n"
	"  threadfs status ~/agents\n";

static const char top_page[] =
	"usage: threadfs top [MOUNTPOINT]\n"
	"\n"
	"Shows a mount on the whole screen, anew every second: threads, sandboxes, leases,\n"
	"transfers, how long requests take, what comes from the cache, errors. Without\n"
	"MOUNTPOINT the only mount of yours. Without a terminal it prints one look.\n"
	"\n"
	"Keys: up and down choose a thread, r releases its sandbox, d destroys it (after\n"
	"asking), s sorts, h helps, q quits.\n"
	"\n"
	"example:\n"
	"  threadfs top ~/agents\n";

static const char cp_page[] =
	"usage: threadfs cp [-r] SRC... DST\n"
	"\n"
	"Copies files into sandboxes, out of them or between them, with a progress bar.\n"
	"Both sides compute a checksum at the end, and a copy that differs is an error.\n"
	"What was interrupted goes on when the same command is given again.\n"
	"\n"
	"  -r                    directories with all that is in them\n"
	"\n"
	"example:\n"
	"  threadfs cp dataset.tar ~/agents/threads/demo/uploads/\n";

static const char recover_page[] =
	"usage: threadfs recover [MOUNTPOINT | --cache DIR] [--list]\n"
	"       threadfs recover MOUNTPOINT --retry\n"
	"       threadfs recover [MOUNTPOINT | --cache DIR] --save DIR [RECORD...]\n"
	"       threadfs recover [MOUNTPOINT | --cache DIR] --discard (RECORD... | --all)\n"
	"\n"
	"What was written and no sandbox has confirmed yet: it is kept in the cache\n"
	"directory, and goes to its sandbox with the next mount. Without MOUNTPOINT and\n"
	"--cache that of your own mounts without the option cache. A RECORD is named by\n"
	"how it begins, four characters at least.\n"
	"\n"
	"  --cache DIR           look at that cache directory\n"
	"  --list                show it (default)\n"
	"  --retry               try again now what failed or waits\n"
	"  --save DIR            copy it to DIR, as THREAD/PATH\n"
	"  --discard             give it up, for ever\n"
	"  --all                 with --discard: all of it\n"
	"\n"
	"example:\n"
	"  threadfs recover\n"
	"  threadfs recover --save ~/rescued\n";

static const char exec_page[] =
	"usage: threadfs exec [-e NAME=VALUE]... [-d DIR] PATH -- COMMAND [ARGUMENT...]\n"
	"\n"
	"Runs a command in the sandbox, in the directory of it that PATH shows. Its\n"
	"output and errors come back as they are, and so does its exit status: 125 if it\n"
	"was not run, 255 if its end or some of its output is lost. Interrupts and the\n"
	"like go to it; a second interrupt kills it.\n"
	"\n"
	"  -e NAME=VALUE         set an environment variable for it\n"
	"  -d DIR                run it in DIR, below PATH; /DIR: of the thread\n"
	"\n"
	"example:\n"
	"  cd ~/agents/threads/demo && threadfs exec . -- wc -l uploads/sales.csv\n";

static const char help_text[] = "usage: threadfs help [COMMAND]\n"
				"\n"
				"Explains a command.\n"
				"\n"
				"example:\n"
				"  threadfs help mount\n";

static const char program_page[] =
	"usage: threadfs COMMAND [ARGUMENT...]\n"
	"\n"
	"Mounts the sandboxes of AI agents as directories.\n"
	"\n"
	"  mount [SOURCE] MOUNTPOINT     mount sandboxes\n"
	"  unmount MOUNTPOINT            unmount them\n"
	"  status [MOUNTPOINT]           show threads and sandboxes\n"
	"  top [MOUNTPOINT]              watch them on the whole screen\n"
	"  cp [-r] SRC... DST            copy large files, resumable\n"
	"  recover [MOUNTPOINT]          what sandboxes have not confirmed\n"
	"  exec PATH -- COMMAND...       run a command in a sandbox\n"
	"  help COMMAND                  explain a command\n"
	"  --version                     show the version\n"
	"\n"
	"example:\n"
	"  threadfs mount ~/agents\n"
	"  mkdir ~/agents/threads/demo\n"
	"  threadfs exec ~/agents/threads/demo -- uname -a\n"
	"  threadfs unmount ~/agents\n";

static const struct {
	const char *command, *text;
} pages[] = {
	{ "unmount", unmount_page }, /* first: it is nearest to "umount" */
	{ "mount", mount_head },     { "status", status_page },   { "top", top_page },
	{ "cp", cp_page },           { "recover", recover_page }, { "exec", exec_page },
	{ "help", help_text },
};

bool help_page(const char *command, struct buf *to)
{
	if (!command) {
		buf_puts(to, program_page);
		return true;
	}
	for (size_t i = 0; i < ARRAY_SIZE(pages); i++) {
		if (strcmp(pages[i].command, command) != 0)
			continue;
		buf_puts(to, pages[i].text);
		if (pages[i].text == mount_head) {
			options_help(to);
			buf_puts(to, mount_tail);
		}
		return true;
	}
	return false;
}

const char *help_command(size_t i)
{
	return i < ARRAY_SIZE(pages) ? pages[i].command : NULL;
}

const char *help_nearest(const char *command)
{
	struct suggestion near = SUGGESTION_INIT(command);

	for (size_t i = 0; i < ARRAY_SIZE(pages); i++)
		suggest_try(&near, pages[i].command);
	return near.nearest;
}
