/* The table of settings, and finding one in it. See settings.h. */
#include "settings.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "suggest.h"

static const char *const ctl_words[] = { "hidden", "visible", NULL };
static const char *const symlinks_words[] = { "contain", "deny", "raw", NULL };
static const char *const isolation_words[] = { "bwrap", "none", NULL };
static const char *const net_words[] = { "none", "host", NULL };
static const char *const dialect_words[] = { "1.0", "1.9", "aiod", NULL };
static const char *const debug_words[] = { "fuse", "http", "lease", "file", "ctl", NULL };

#define FIELD(f) .offset = offsetof(struct options, f), .size = sizeof(((struct options *)0)->f)
#define SECONDS(least_ms)                                                                          \
	.kind = SETTING_SECONDS, .value = "SECONDS", .min = (least_ms), .max = 1000000000000

const struct setting settings[] = {
	{ .name = "data",
	  FIELD(data),
	  .kind = SETTING_PATH,
	  .value = "DIR",
	  .otherwise = "$XDG_STATE_HOME/threadfs, ~/.local/state/threadfs",
	  .meaning = "where the threads' files are, laid out as deer-flow does" },
	{ .name = "user",
	  FIELD(user),
	  .kind = SETTING_USER,
	  .value = "NAME",
	  .initial = "default",
	  .meaning = "whose threads are shown" },
	{ .name = "thread",
	  FIELD(thread),
	  .kind = SETTING_THREAD,
	  .value = "NAME",
	  .initial = "default",
	  .meaning = "what a single sandbox given by its URL is called" },
	{ .name = "root",
	  FIELD(root),
	  .kind = SETTING_ROOT,
	  .value = "DIR",
	  .otherwise = "/mnt/user-data, else its home directory",
	  .meaning = "which directory of such a sandbox is shown" },
	{ .name = "linger",
	  FIELD(linger_ms),
	  SECONDS(0),
	  .initial = "30",
	  .meaning = "how long an unused sandbox is kept from the warm pool" },
	{ .name = "idle_timeout",
	  FIELD(idle_timeout_ms),
	  SECONDS(0),
	  .initial = "600",
	  .sandbox_key = "idle_timeout",
	  .meaning = "sandboxes in the warm pool for longer are stopped; 0: never" },
	{ .name = "replicas",
	  FIELD(replicas),
	  .kind = SETTING_COUNT,
	  .value = "N",
	  .max = 100000,
	  .initial = "3",
	  .sandbox_key = "replicas",
	  .meaning = "how many sandboxes run before unused ones make room; 0: no limit" },
	{ .name = "auto_restart",
	  FIELD(auto_restart),
	  .kind = SETTING_BOOL,
	  .value = "BOOL",
	  .initial = "true",
	  .sandbox_key = "auto_restart",
	  .meaning = "whether a sandbox that died is replaced when it is used" },
	{ .name = "timeout",
	  FIELD(timeout_ms),
	  SECONDS(1),
	  .initial = "30",
	  .meaning = "how long one operation may take" },
	{ .name = "start_timeout",
	  FIELD(start_timeout_ms),
	  SECONDS(1),
	  .initial = "60",
	  .meaning = "how long the start of a sandbox may take" },
	{ .name = "uid",
	  FIELD(uid),
	  .kind = SETTING_UID,
	  .value = "USER",
	  .otherwise = "the caller",
	  .meaning = "who owns the files, by number or name" },
	{ .name = "gid",
	  FIELD(gid),
	  .kind = SETTING_GID,
	  .value = "GROUP",
	  .otherwise = "the caller's",
	  .meaning = "their group" },
	{ .name = "umask",
	  FIELD(umask),
	  .kind = SETTING_UMASK,
	  .value = "OCTAL",
	  .otherwise = "modes are as in the sandbox",
	  .meaning = "permissions that are not shown" },
	{ .name = "ro",
	  FIELD(ro),
	  .kind = SETTING_BOOL,
	  .initial = "false",
	  .meaning = "nothing can be written" },
	{ .name = "exec",
	  FIELD(exec),
	  .kind = SETTING_BOOL,
	  .initial = "false",
	  .meaning = "programs in the mount can be run, on this machine" },
	{ .name = "allow_other",
	  FIELD(allow_other),
	  .kind = SETTING_BOOL,
	  .initial = "false",
	  .meaning = "other users can enter the mount" },
	{ .name = "ctl",
	  FIELD(ctl_visible),
	  .kind = SETTING_WORD,
	  .value = "hidden|visible",
	  .words = ctl_words,
	  .initial = "hidden",
	  .meaning = "whether listings show the directories .ctl" },
	{ .name = "autocreate",
	  FIELD(autocreate),
	  .kind = SETTING_BOOL,
	  .initial = "false",
	  .meaning = "looking a thread up creates it; else only mkdir does" },
	{ .name = "symlinks",
	  FIELD(symlinks),
	  .kind = SETTING_WORD,
	  .value = "contain|deny|raw",
	  .words = symlinks_words,
	  .initial = "contain",
	  .meaning = "symbolic links: kept inside their thread, hidden, or as they are" },
	{ .name = "api_key_file",
	  FIELD(api_key_file),
	  .kind = SETTING_PATH,
	  .value = "FILE",
	  .otherwise = "$THREADFS_API_KEY",
	  .meaning = "holds the sandboxes' API key" },
	{ .name = "cacert",
	  FIELD(cacert),
	  .kind = SETTING_PATH,
	  .value = "FILE",
	  .otherwise = "the system's",
	  .meaning = "certificates of those who may vouch for a sandbox" },
	{ .name = "insecure",
	  FIELD(insecure),
	  .kind = SETTING_BOOL,
	  .initial = "false",
	  .meaning = "any certificate will do" },
	{ .name = "cache",
	  FIELD(cache),
	  .kind = SETTING_PATH,
	  .value = "DIR",
	  .otherwise = "$XDG_CACHE_HOME/threadfs, ~/.cache/threadfs",
	  .meaning = "where files are kept on their way to and from sandboxes" },
	{ .name = "cache_size",
	  FIELD(cache_size),
	  .kind = SETTING_BYTES,
	  .value = "BYTES",
	  .min = 64 * KIB,
	  .initial = "4G",
	  .meaning = "how much of that directory may be used" },
	{ .name = "memory",
	  FIELD(memory),
	  .kind = SETTING_BYTES,
	  .value = "BYTES",
	  .min = 64 * KIB,
	  .initial = "64M",
	  .meaning = "how much may be held in memory for readers" },
	{ .name = "isolation",
	  FIELD(no_isolation),
	  .kind = SETTING_WORD,
	  .value = "bwrap|none",
	  .words = isolation_words,
	  .initial = "bwrap",
	  .meaning = "what separates embedded sandboxes from this machine" },
	{ .name = "net",
	  FIELD(net_host),
	  .kind = SETTING_WORD,
	  .value = "none|host",
	  .words = net_words,
	  .initial = "none",
	  .meaning = "which network embedded sandboxes have" },
	{ .name = "provisioner_key_file",
	  FIELD(provisioner_key_file),
	  .kind = SETTING_PATH,
	  .value = "FILE",
	  .otherwise = "$THREADFS_PROVISIONER_API_KEY",
	  .meaning = "holds the API key of a provisioner" },
	{ .name = "engine",
	  FIELD(engine),
	  .kind = SETTING_NAME,
	  .value = "ADDRESS",
	  .otherwise = "$DOCKER_HOST, else Docker's or Podman's socket",
	  .meaning = "who runs containers: unix:///PATH or tcp://HOST:PORT" },
	{ .name = "image",
	  FIELD(image),
	  .kind = SETTING_NAME,
	  .value = "IMAGE",
	  .otherwise = "deer-flow's",
	  .sandbox_key = "image",
	  .meaning = "what containers are made of" },
	{ .name = "prefix",
	  FIELD(prefix),
	  .kind = SETTING_NAME,
	  .value = "NAME",
	  .otherwise = "deer-flow-sandbox",
	  .sandbox_key = "container_prefix",
	  .meaning = "how the names of containers begin" },
	{ .name = "port",
	  FIELD(port),
	  .kind = SETTING_COUNT,
	  .value = "N",
	  .min = 1,
	  .max = 65535,
	  .initial = "8080",
	  .sandbox_key = "port",
	  .meaning = "the first port that is tried for a container" },
	{ .name = "network",
	  FIELD(network),
	  .kind = SETTING_NAME,
	  .value = "NAME",
	  .otherwise = "the engine's default",
	  .meaning = "which of the engine's networks containers are on" },
	{ .name = "debug",
	  FIELD(debug),
	  .kind = SETTING_TOPICS,
	  .value = "TOPIC[:TOPIC]",
	  .words = debug_words,
	  .otherwise = "none",
	  .meaning = "what is logged in detail: fuse, http, lease, file, ctl or all" },
	{ .name = "log",
	  FIELD(log),
	  .kind = SETTING_PATH,
	  .value = "FILE",
	  .otherwise = "none; with -f standard error",
	  .meaning = "where messages are appended" },
	/* Not in the help, the manual or the completions: embedded sandboxes are aiod for users,
	 * and the others only there so that each dialect can be tested through a mount. */
	{ .name = "dialect",
	  FIELD(dialect),
	  .kind = SETTING_TEXT,
	  .value = "1.0|1.9|aiod",
	  .words = dialect_words,
	  .meaning = "which server embedded sandboxes behave like",
	  .hidden = true },
};
const size_t settings_count = ARRAY_SIZE(settings);

const struct setting *setting_find(const char *name)
{
	for (size_t i = 0; i < settings_count; i++)
		if (strcmp(settings[i].name, name) == 0)
			return &settings[i];
	return NULL;
}

const struct setting *setting_find_sandbox_key(const char *key)
{
	for (size_t i = 0; i < settings_count; i++)
		if (settings[i].sandbox_key && strcmp(settings[i].sandbox_key, key) == 0)
			return &settings[i];
	return NULL;
}

bool setting_is_secret(const char *name)
{
	static const char *const names[] = { "api_key", "apikey",   "token",
					     "bearer",  "password", "provisioner_api_key" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (strcasecmp(name, names[i]) == 0)
			return true;
	return false;
}

int setting_unknown(const char *what, const char *name, struct buf *why)
{
	struct suggestion near = SUGGESTION_INIT(name);

	for (size_t i = 0; i < settings_count; i++)
		if (!settings[i].hidden)
			suggest_try(&near, settings[i].name);
	buf_printf(why, "unknown %s '", what);
	/* Whoever wrote it, it goes to a terminal, on one line. */
	for (size_t i = 0; name[i] && i < 64; i++)
		buf_putc(why, iscntrl((unsigned char)name[i]) ? '?' : name[i]);
	buf_puts(why, "'");
	if (near.nearest)
		buf_printf(why, ": did you mean '%s'?", near.nearest);
	return -EINVAL;
}

char *setting_variable(const struct setting *s)
{
	char *name;

	if (asprintf(&name, "THREADFS_%s", s->name) < 0)
		return NULL;
	for (char *c = name; *c; c++)
		*c = (char)toupper((unsigned char)*c);
	return name;
}
