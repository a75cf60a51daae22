/*
 * What deer-flow's config.yaml and environment say beyond what the table of
 * settings holds (settings.h): which sandboxes there are, where they are made, what they are
 * to have, whose they are, and where deer-flow keeps its threads. No threads.
 */
#pragma once

#include <sys/types.h>

#include "buf.h"
#include "ownership_config.h"

struct options;

#define DEERFLOW_KEY_VARIABLE "THREADFS_PROVISIONER_API_KEY"

struct deerflow_mount {
	char *host_path, *container_path;
	bool read_only;
};
struct deerflow_variable {
	char *name, *value; /* "$NAME" as it was written */
};

struct deerflow {
	char *config_dir; /* of the file that was read; NULL: none was */
	uid_t config_uid; /* whose that file is */
	gid_t config_gid;
	char *use; /* the provider's class path */
	char *provisioner_url;
	char *provisioner_key; /* secret */
	char *key_problem;     /* why the file has none, after all */
	struct deerflow_mount *mounts;
	size_t nmounts;
	struct deerflow_variable *environment;
	size_t nenvironment;
	enum { THREAD_MOUNTS_AUTO, THREAD_MOUNTS_NO, THREAD_MOUNTS_YES } thread_data_mounts;
	bool has_ownership; /* the file has that section */
	struct ownership_config ownership;
	char *bridge_type, *bridge_url; /* of stream_bridge: */
};

int deerflow_init(struct deerflow *d) MUST_CHECK;
void deerflow_release(struct deerflow *d);

/*
 * One value of the file, by its place: section, key in it, and below that another one
 * (or NULL); item counts the members of a list, from 0. Keys that are not known are
 * ignored. value is as written, without quotes. Returns 0, or a negative errno with
 * what is wrong with the value (not where it stands) in why.
 */
struct deerflow_place {
	const char *section, *key, *below;
	size_t item;
};
int deerflow_take(struct deerflow *d, const struct deerflow_place *at, const char *value,
		  struct buf *why) MUST_CHECK;
/* What stands behind a key. */
enum deerflow_kind { DEERFLOW_UNKNOWN, DEERFLOW_PLAIN, DEERFLOW_MAPPING, DEERFLOW_LIST };
enum deerflow_kind deerflow_kind(const char *section, const char *key);

/*
 * When all settings are known: the source, if nobody named one; where its threads
 * are, if nobody said so; and whose sandboxes are. Part of options_finish().
 */
int deerflow_finish(struct options *o, struct buf *why) MUST_CHECK;
