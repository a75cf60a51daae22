/*
 * .ctl/recover of the mount, for `threadfs recover`: "retry" tries everything that
 * waits for its sandbox again now, "discard RECORD" gives one up. Loop thread only.
 */
#include <errno.h>
#include <string.h>

#include "answer.h"
#include "ctl.h"
#include "salvage.h"

static int obey(struct fs *fs, char *words)
{
	char *verb = strsep(&words, " ");

	if (strcmp(verb, "retry") == 0 && !words) {
		staging_retry(fs);
		return 0;
	}
	if (strcmp(verb, "discard") == 0 && words && fs->staging)
		return salvage_discard(fs, words);
	return -EINVAL;
}

static void write_recover(struct ctl_open *o, fuse_req_t req, const char *bytes, size_t len)
{
	char words[64];
	int r;

	if (len == 0 || len >= sizeof(words) || memchr(bytes, '\0', len)) {
		answer_err(o->fs, req, -EINVAL);
		return;
	}
	memcpy(words, bytes, len);
	words[len] = '\0';
	words[strcspn(words, "\n")] = '\0';
	r = obey(o->fs, words);
	if (r < 0)
		answer_err(o->fs, req, r);
	else
		answer_write(o->fs, req, len);
}

const struct ctl_file ctl_fs_recover = { .name = "recover", .mode = 0200, .write = write_recover };
