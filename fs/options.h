/*
 * The settings of a mount: one table says what there is, what it is called in
 * each place and what it means; parsing, help, and the manual are checked
 * against it. Later wins: defaults, config file, environment, -o.
 * No threads: read before the mount starts, immutable afterwards.
 */
#pragma once

#include <sys/types.h>

#include "buf.h"
#include "deerflow.h"
#include "util.h"

enum source_kind { SOURCE_EMBEDDED, SOURCE_URL, SOURCE_DOCKER, SOURCE_PROVISIONER };
enum symlinks { SYMLINKS_CONTAIN, SYMLINKS_DENY, SYMLINKS_RAW };

struct options {
	enum source_kind source;
	bool source_given; /* by somebody who may choose, not by default */
	char *source_text; /* as given: "embedded:" or the URL */
	char *url;         /* SOURCE_URL, SOURCE_PROVISIONER */

	char *data, *user, *thread;
	char *root; /* NULL: found out */
	int64_t linger_ms, idle_timeout_ms;
	int64_t timeout_ms, start_timeout_ms;
	unsigned replicas;
	bool auto_restart;

	uid_t uid;
	gid_t gid;
	mode_t umask; /* these bits are not shown; 0 unless it was given */
	bool ro, exec, allow_other;
	bool ctl_visible, autocreate;
	enum symlinks symlinks;

	char *api_key, *bearer; /* secret: from the environment or a file */
	char *api_key_file;     /* read by options_finish() */
	char *provisioner_key_file;
	char *cacert;
	bool insecure;

	char *cache;
	uint64_t cache_size, memory; /* bytes */
	bool no_isolation, net_host;
	char *dialect; /* of embedded sandboxes; for tests; NULL: the program's default */

	char *engine;         /* of containers; NULL: $DOCKER_HOST, else what there is */
	char *image, *prefix; /* of containers; NULL: deer-flow's */
	char *network;        /* of the engine's; NULL: its default */
	unsigned port;        /* the first that is tried for one */

	unsigned debug; /* of enum log_topics */
	char *log;      /* NULL: none */

	/* not in the table */
	struct deerflow deerflow;
	char *mountpoint; /* absolute */
	bool foreground;
};

/* Defaults that need no environment; options_finish() fills the others in. */
int options_init(struct options *o) MUST_CHECK;
void options_release(struct options *o);
#define CLEANUP_OPTIONS CLEANUP(options_release)

/*
 * Each returns 0, or a negative errno with one clear line in why (which is
 * initialised by the caller): what is wrong, and for an unknown name the nearest one.
 * options_parse() takes what follows -o, commas escaped as "\,". Options that
 * mount(8) and fstab pass around (rw, nosuid, dev, _netdev, x-systemd.…, noauto,
 * defaults, …) are accepted and ignored where they mean nothing to us.
 */
int options_source(struct options *o, const char *source, struct buf *why) MUST_CHECK;
int options_config_file(struct options *o, const char *path, struct buf *why) MUST_CHECK;
int options_environment(struct options *o, struct buf *why) MUST_CHECK;
int options_parse(struct options *o, const char *text, struct buf *why) MUST_CHECK;
/* Fills in what depends on the environment (XDG directories, the caller), reads secrets, checks
 * what must fit together. */
int options_finish(struct options *o, struct buf *why) MUST_CHECK;

/* The settings in force for .ctl/config, "name=value\n" each, secrets as "********". */
void options_print(const struct options *o, struct buf *to);
/* The part of --help that lists them. */
void options_help(struct buf *to);
