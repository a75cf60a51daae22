/* See alias.h. What the link is used for is the owner's business. Loop thread only. */
#include "alias.h"

#include <stdio.h>
#include <string.h>

#include "shellquote.h"
#include "sweep.h"
#include "utf8.h"

bool alias_needed(const char *path)
{
	return !utf8_valid(path, strlen(path));
}

static void on_linked(struct posix_run *run, int err)
{
	struct alias *a = CONTAINER_OF(run, struct alias, run);

	if (err == 0 && run->exit_code != 0)
		err = posix_run_errno(run);
	if (err)
		a->message = STEAL(run->message);
	a->done(a, err);
}

void alias_start(struct alias *a, struct op *op, const char *path, enum alias_kind kind,
		 void (*done)(struct alias *a, int err))
{
	char id[UUID_LEN + 1];

	uuid_make(id);
	snprintf(a->path, sizeof(a->path), "/tmp/.threadfs-%s", id);
	a->done = done;
	posix_run_init(&a->run, op, on_linked);
	if (kind == ALIAS_DIR)
		shell_printf(&a->run.script, "command cd -- %s && ", path);
	shell_printf(&a->run.script, "exec ln -s -- %s %s", path, a->path);
	posix_run_start(&a->run);
}

void alias_release(struct alias *a)
{
	struct buf script CLEANUP_BUF = BUF_INIT(0);

	/* Also when it was not made, or nobody knows: the command may still run. */
	if (a->path[0] && shell_printf(&script, "command rm -f -- %s", a->path) == 0)
		sweep(a->run.op->sb, script.data, NULL);
	posix_run_release(&a->run);
	free(a->message);
	*a = (struct alias){ 0 };
}
