/*
 * Routes that tell about the sandbox: GET /v1/sandbox, and in the aiod dialect
 * /v1/capabilities, /v1/ping, /health. Run on a worker: they look at PATH.
 */
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

#include "route.h"

static const char *version(enum dialect d)
{
	static const char *const versions[] = { "1.0.0.160", "1.9.4", "1.0.0" };

	return versions[d];
}

/* Where a program is, or false. */
static bool which(const char *name, char *path, size_t size)
{
	static const char *const dirs[] = { "/usr/local/bin", "/usr/bin", "/bin" };

	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
		snprintf(path, size, "%s/%s", dirs[i], name);
		if (access(path, X_OK) == 0)
			return true;
	}
	return false;
}

static void write_runtime(struct jw *w, const char *key, const char *const *names)
{
	char path[128];

	jw_key(w, key);
	jw_arr(w);
	for (; *names; names++) {
		if (!which(*names, path, sizeof(path)))
			continue;
		jw_obj(w);
		jw_knull(w, "ver");
		jw_kstr(w, "bin", path);
		jw_key(w, "alias");
		jw_arr(w);
		jw_str(w, *names);
		jw_arr_end(w);
		jw_obj_end(w);
	}
	jw_arr_end(w);
}

static void write_tools(struct jw *w)
{
	static const char *const tools[][2] = {
		{ "bash", "shell" },        { "git", "version control" }, { "curl", "HTTP client" },
		{ "jq", "JSON processor" }, { "rg", "search" },           { "gcc", "C compiler" },
		{ "make", "build tool" },   { "tar", "archiver" },
	};
	char path[128];

	jw_key(w, "utils");
	jw_arr(w);
	jw_obj(w);
	jw_kstr(w, "category", "command line");
	jw_key(w, "tools");
	jw_arr(w);
	for (size_t i = 0; i < ARRAY_SIZE(tools); i++) {
		if (!which(tools[i][0], path, sizeof(path)))
			continue;
		jw_obj(w);
		jw_kstr(w, "name", tools[i][0]);
		jw_kstr(w, "description", tools[i][1]);
		jw_obj_end(w);
	}
	jw_arr_end(w);
	jw_obj_end(w);
	jw_arr_end(w);
}

static void write_system(struct jw *w, const struct config *cfg)
{
	struct utsname u;
	struct tm tm;
	time_t now = time(NULL);
	char zone[32];

	if (uname(&u) < 0)
		memset(&u, 0, sizeof(u));
	localtime_r(&now, &tm);
	/* A copy: tm_zone is libc's, whose other threads may be in tzset(3). */
	if (strftime(zone, sizeof(zone), "%Z", &tm) == 0)
		strcpy(zone, "UTC");
	jw_key(w, "system");
	jw_obj(w);
	jw_kstr(w, "os", u.sysname);
	jw_kstr(w, "os_version", u.release);
	jw_kstr(w, "arch", u.machine);
	jw_kstr(w, "user", SANDBOX_USER);
	jw_kstr(w, "home_dir", cfg->home);
	if (cfg->dialect != DIALECT_1_0)
		jw_kstr(w, "workspace", SANDBOX_DATA "/workspace");
	jw_kstr(w, "timezone", zone);
	jw_key(w, "occupied_ports");
	jw_arr(w);
	jw_arr_end(w);
	jw_obj_end(w);
}

static void get_sandbox(struct request *r)
{
	static const char *const python[] = { "python3", "python", NULL };
	static const char *const node[] = { "node", "nodejs", NULL };
	const struct config *cfg = r->srv->cfg;
	struct jw *w = reply_plain_begin(r);
	char text[256];

	snprintf(text, sizeof(text), "threadfs sandbox, user %s, home %s, files in %s",
		 SANDBOX_USER, cfg->home, SANDBOX_DATA);
	jw_obj(w);
	jw_kbool(w, "success", true);
	jw_kstr(w, "message", "Environment information retrieved");
	jw_kstr(w, "data", text);
	if (cfg->dialect != DIALECT_1_0)
		jw_knull(w, "hint");
	jw_kstr(w, "home_dir", cfg->home);
	if (cfg->dialect != DIALECT_1_0)
		jw_kstr(w, "workspace", SANDBOX_DATA "/workspace");
	jw_kstr(w, "version", version(cfg->dialect));
	jw_key(w, "detail");
	jw_obj(w);
	write_system(w, cfg);
	jw_key(w, "runtime");
	jw_obj(w);
	write_runtime(w, "python", python);
	write_runtime(w, "nodejs", node);
	jw_obj_end(w);
	write_tools(w);
	jw_obj_end(w);
	jw_obj_end(w);
	reply_plain_end(r, 200);
}

static void get_capabilities(struct request *r)
{
	static const char *const names[] = {
		"file.list",     "file.read",  "file.write", "file.upload",
		"file.download", "file.range", "file.stat",  "file.mkdir",
		"file.delete",   "file.watch", "shell",      "bash",
	};
	struct jw *w = reply_begin(r, NULL);

	jw_obj(w);
	jw_kstr(w, "version", version(r->srv->cfg->dialect));
	jw_key(w, "capabilities");
	jw_arr(w);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		jw_str(w, names[i]);
	jw_arr_end(w);
	jw_obj_end(w);
	reply_end(r);
}

static void get_ping(struct request *r)
{
	jw_str(reply_begin(r, NULL), "pong");
	reply_end(r);
}

static void get_health(struct request *r)
{
	struct jw *w = reply_plain_begin(r);

	jw_obj(w);
	jw_kstr(w, "status", "healthy");
	jw_obj_end(w);
	reply_plain_end(r, 200);
}

const struct route info_routes[] = {
	{ "GET", "/v1/sandbox", D_ALL, get_sandbox, .flags = ROUTE_BLOCKING },
	{ "GET", "/v1/capabilities", D_AIOD, get_capabilities },
	{ "GET", "/v1/ping", D_AIOD, get_ping, .flags = ROUTE_PUBLIC },
	{ "GET", "/health", D_AIOD, get_health, .flags = ROUTE_PUBLIC },
	{ NULL },
};
