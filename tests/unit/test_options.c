/*
 * fs/options.c and the table behind it: every option, every kind of bad value,
 * which source of a setting wins, and that secrets stay where they are.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "../lib/scratch.h"
#include "home.h"
#include "io.h"
#include "log.h"
#include "options.h"
#include "secret.h"
#include "settings.h"
#include "suggest.h"

static struct options o;
static struct buf why;
static char dir[SCRATCH_MAX];

/* Nothing of who runs the tests may leak in. */
static int setup(void **state UNUSED)
{
	for (size_t i = 0; i < settings_count; i++) {
		char *name CLEANUP_FREE = setting_variable(&settings[i]);

		unsetenv(name);
	}
	unsetenv(SECRET_API_KEY_VARIABLE);
	unsetenv(SECRET_TOKEN_VARIABLE);
	unsetenv("XDG_STATE_HOME");
	unsetenv("XDG_CACHE_HOME");
	setenv("HOME", "/home/somebody", 1);
	why = BUF_INIT(0);
	return scratch_dir(dir) ? options_init(&o) : -1;
}

static int teardown(void **state UNUSED)
{
	options_release(&o);
	options_release(&o); /* twice is fine */
	buf_release(&why);
	return scratch_remove(dir) ? 0 : -1;
}

static void give(const char *text)
{
	buf_reset(&why);
	if (options_parse(&o, text, &why) != 0)
		fail_msg("%s: %s", text, why.data);
	assert_int_equal(why.len, 0);
}

/* Refused, and with these words. */
static void refused(const char *text, const char *words)
{
	buf_reset(&why);
	assert_int_equal(options_parse(&o, text, &why), -EINVAL);
	assert_string_equal(why.data, words);
}

static void finish(void)
{
	buf_reset(&why);
	if (options_finish(&o, &why) != 0)
		fail_msg("%s", why.data);
}

static const char *in_dir(const char *name)
{
	static char path[SCRATCH_MAX + 32];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return path;
}

static const char *make_file(const char *name, const void *bytes, size_t len)
{
	const char *path = in_dir(name);
	int fd CLEANUP_FD = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write_all(fd, bytes, len), 0);
	return path;
}

/* ---- defaults ---- */

static void test_defaults(void **state UNUSED)
{
	finish();
	assert_int_equal(o.source, SOURCE_EMBEDDED);
	assert_string_equal(o.source_text, "embedded:");
	assert_null(o.url);
	assert_string_equal(o.data, "/home/somebody/.local/state/threadfs");
	assert_string_equal(o.cache, "/home/somebody/.cache/threadfs");
	assert_string_equal(o.user, "default");
	assert_string_equal(o.thread, "default");
	assert_null(o.root);
	assert_int_equal(o.linger_ms, 30000);
	assert_int_equal(o.idle_timeout_ms, 600000);
	assert_int_equal(o.replicas, 3);
	assert_true(o.auto_restart);
	assert_int_equal(o.timeout_ms, 30000);
	assert_int_equal(o.start_timeout_ms, 60000);
	assert_int_equal(o.uid, getuid());
	assert_int_equal(o.gid, getgid());
	assert_int_equal(o.umask, 0);
	assert_false(o.ro || o.exec || o.allow_other || o.ctl_visible || o.autocreate);
	assert_int_equal(o.symlinks, SYMLINKS_CONTAIN);
	assert_null(o.api_key);
	assert_null(o.bearer);
	assert_null(o.cacert);
	assert_false(o.insecure);
	assert_int_equal(o.cache_size, 4 * GIB);
	assert_int_equal(o.memory, 64 * MIB);
	assert_false(o.no_isolation || o.net_host);
	assert_null(o.dialect);
	assert_int_equal(o.debug, 0);
	assert_null(o.log);
}

static void test_directories_of_the_user(void **state UNUSED)
{
	char *path;

	setenv("XDG_STATE_HOME", "/xdg/state", 1);
	setenv("XDG_CACHE_HOME", "relative/is/ignored", 1);
	finish();
	assert_string_equal(o.data, "/xdg/state/threadfs");
	assert_string_equal(o.cache, "/home/somebody/.cache/threadfs");

	/* Without HOME the user database knows. */
	unsetenv("HOME");
	if (home_dir(&path) == 0) {
		assert_int_equal(path[0], '/');
		free(path);
	}
	setenv("HOME", "not-absolute", 1);
	if (home_dir(&path) == 0) {
		assert_int_equal(path[0], '/');
		free(path);
	}
}

/* ---- -o ---- */

static void test_every_option(void **state UNUSED)
{
	give("data=/d,user=ann,thread=t-1,root=/home/gem//x/,linger=0.5,idle_timeout=0,replicas=7");
	assert_string_equal(o.data, "/d");
	assert_string_equal(o.user, "ann");
	assert_string_equal(o.thread, "t-1");
	assert_string_equal(o.root, "/home/gem/x");
	assert_int_equal(o.linger_ms, 500);
	assert_int_equal(o.idle_timeout_ms, 0);
	assert_int_equal(o.replicas, 7);
	give("auto_restart=no,timeout=1.25,start_timeout=90,uid=12,gid=34,umask=027");
	assert_false(o.auto_restart);
	assert_int_equal(o.timeout_ms, 1250);
	assert_int_equal(o.start_timeout_ms, 90000);
	assert_int_equal(o.uid, 12);
	assert_int_equal(o.gid, 34);
	assert_int_equal(o.umask, 027);
	give("ro,exec,allow_other,ctl=visible,autocreate,symlinks=deny,insecure");
	assert_true(o.ro && o.exec && o.allow_other && o.ctl_visible && o.autocreate && o.insecure);
	assert_int_equal(o.symlinks, SYMLINKS_DENY);
	give("symlinks=raw,api_key_file=/k,cacert=/c,cache=/e,cache_size=5G,memory=300k");
	assert_int_equal(o.symlinks, SYMLINKS_RAW);
	assert_string_equal(o.api_key_file, "/k");
	assert_string_equal(o.cacert, "/c");
	assert_string_equal(o.cache, "/e");
	assert_int_equal(o.cache_size, 5 * GIB);
	assert_int_equal(o.memory, 300 * KIB);
	give("isolation=none,net=host,debug=http:ctl,log=/l,dialect=1.9");
	assert_true(o.no_isolation && o.net_host);
	assert_int_equal(o.debug, LOG_HTTP | LOG_CTL);
	assert_string_equal(o.log, "/l");
	assert_string_equal(o.dialect, "1.9");
	give("debug=all");
	assert_int_equal(o.debug, LOG_FUSE | LOG_HTTP | LOG_LEASE | LOG_FILE | LOG_CTL);
	give("debug=http,lease,ro");
	assert_int_equal(o.debug, LOG_HTTP | LOG_LEASE);
	assert_true(o.ro);
	give("debug=http\\,ctl");
	assert_int_equal(o.debug, LOG_HTTP | LOG_CTL);
	give("debug=lease:all:file");
	assert_int_equal(o.debug, LOG_FUSE | LOG_HTTP | LOG_LEASE | LOG_FILE | LOG_CTL);
	give("isolation=bwrap,net=none,ctl=hidden,symlinks=contain");
	assert_false(o.no_isolation || o.net_host || o.ctl_visible);
	assert_int_equal(o.symlinks, SYMLINKS_CONTAIN);
}

static void test_booleans(void **state UNUSED)
{
	static const char *const yes[] = { "ro",   "ro=true", "ro=yes", "ro=on",
					   "ro=1", "ro=TRUE", "ro=Yes", "ro=On" };
	static const char *const no[] = { "rw",   "ro=false", "ro=no", "ro=off",
					  "ro=0", "ro=False", "ro=NO" };

	for (size_t i = 0; i < ARRAY_SIZE(yes); i++) {
		o.ro = false;
		give(yes[i]);
		assert_true(o.ro);
	}
	for (size_t i = 0; i < ARRAY_SIZE(no); i++) {
		o.ro = true;
		give(no[i]);
		assert_false(o.ro);
	}
	give("exec");
	give("noexec");
	assert_false(o.exec);
	refused("ro=maybe", "option ro: 'maybe': expected true or false");
	refused("ro=", "option ro: a value is missing, as in ro=BOOL");
	refused("autocreate=2", "option autocreate: '2': expected true or false");
}

static void test_seconds(void **state UNUSED)
{
	static const char *const bad[] = { "-1",  "1s",  "x",  ".",  "1.2.3", "1e3", "0x10",
					   "inf", "nan", " 1", "1 ", "+1",    "1.5x" };
	char text[64];

	give("linger=0");
	assert_int_equal(o.linger_ms, 0);
	give("linger=.25");
	assert_int_equal(o.linger_ms, 250);
	give("linger=2.");
	assert_int_equal(o.linger_ms, 2000);
	give("linger=1.0019");
	assert_int_equal(o.linger_ms, 1001);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		snprintf(text, sizeof(text), "linger=%s", bad[i]);
		buf_reset(&why);
		assert_int_equal(options_parse(&o, text, &why), -EINVAL);
		assert_non_null(strstr(why.data, ": expected seconds, such as 30 or 0.5"));
		assert_int_equal(o.linger_ms, 1001);
	}
	refused("timeout=0", "option timeout: '0': expected at least 0.001 seconds");
	refused("timeout=0.0004", "option timeout: '0.0004': expected at least 0.001 seconds");
	refused("linger=1000000001",
		"option linger: '1000000001': expected at most 1000000000 seconds");
	refused("linger=18446744073709551616",
		"option linger: '18446744073709551616': expected seconds, such as 30 or 0.5");
	refused("linger", "option linger: a value is missing, as in linger=SECONDS");
}

static void test_sizes(void **state UNUSED)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} good[] = {
		{ "65536", 65536 }, { "64K", 64 * KIB },  { "64k", 64 * KIB }, { "3M", 3 * MIB },
		{ "2g", 2 * GIB },  { "1T", 1024 * GIB }, { "070000", 70000 },
	};
	static const char *const bad[] = { "G",    "4GB",     "4 G",      "-4G",
					   "4.5G", "0x10000", "9999999T", "99999999999999999999",
					   "4P",   "K4" };
	char text[64];

	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		snprintf(text, sizeof(text), "memory=%s", good[i].text);
		give(text);
		assert_int_equal(o.memory, good[i].bytes);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		snprintf(text, sizeof(text), "cache_size=%s", bad[i]);
		buf_reset(&why);
		assert_int_equal(options_parse(&o, text, &why), -EINVAL);
		assert_non_null(strstr(why.data, ": expected bytes, such as 500M or 4G"));
	}
	assert_int_equal(o.cache_size, 4 * GIB);
	refused("memory=1", "option memory: '1': expected at least 64K");
	refused("cache_size=63K", "option cache_size: '63K': expected at least 64K");
}

static void test_numbers_and_people(void **state UNUSED)
{
	refused("replicas=-1", "option replicas: '-1': expected a number from 0 to 100000");
	refused("replicas=100001", "option replicas: '100001': expected a number from 0 to 100000");
	refused("replicas=2.5", "option replicas: '2.5': expected a number from 0 to 100000");
	refused("umask=8",
		"option umask: '8': expected octal permissions from 0 to 777, such as 022");
	refused("umask=1000",
		"option umask: '1000': expected octal permissions from 0 to 777, such as 022");
	refused("umask=u=rw",
		"option umask: 'u=rw': expected octal permissions from 0 to 777, such as 022");
	give("uid=root,gid=root");
	assert_int_equal(o.uid, 0);
	assert_int_equal(o.gid, 0);
	give("uid=4294967294,gid=4294967294");
	assert_int_equal(o.uid, 4294967294u);
	refused("uid=4294967295", "option uid: '4294967295': expected a user's number or name");
	refused("gid=4294967295", "option gid: '4294967295': expected a group's number or name");
	refused("uid=-1", "option uid: '-1': expected a user's number or name");
	refused("uid=no-such-user-here",
		"option uid: 'no-such-user-here': expected a user's number or name");
	refused("gid=no-such-group-here",
		"option gid: 'no-such-group-here': expected a group's number or name");
	refused("gid=", "option gid: a value is missing, as in gid=GROUP");
}

static void test_names_and_words(void **state UNUSED)
{
	refused("user=a/b", "option user: 'a/b': expected up to 200 letters, digits, '-' and '_'");
	refused("thread=..", "option thread: '..': expected up to 64 letters, digits, '-' and '_'");
	refused("root=home", "option root: 'home': expected an absolute path without '..'");
	refused("root=/a/../b", "option root: '/a/../b': expected an absolute path without '..'");
	refused("root=/a\nb", "option root: '/a?b': expected a path without control characters");
	refused("ctl=shown", "option ctl: 'shown': expected hidden or visible");
	refused("symlinks=follow", "option symlinks: 'follow': expected contain, deny or raw");
	refused("isolation=docker", "option isolation: 'docker': expected bwrap or none");
	refused("net=bridge", "option net: 'bridge': expected none or host");
	refused("dialect=2.0", "option dialect: '2.0': expected 1.0, 1.9 or aiod");
	refused("ctl=Hidden", "option ctl: 'Hidden': expected hidden or visible");
	refused("debug=fuse:htpp", "option debug: 'fuse:htpp': expected topics (fuse, http, lease, "
				   "file, ctl or all) with ':' between them");
	refused("debug=fuse:", "option debug: 'fuse:': expected topics (fuse, http, lease, "
			       "file, ctl or all) with ':' between them");
	refused("debug", "option debug: a value is missing, as in debug=TOPIC[:TOPIC]");
}

static void test_paths_become_absolute(void **state UNUSED)
{
	char *cwd CLEANUP_FREE = getcwd(NULL, 0);
	char expected[PATH_MAX + 8];
	struct buf huge CLEANUP_BUF = BUF_INIT(0);

	snprintf(expected, sizeof(expected), "%s/a/b", cwd);
	give("data=a/b,cache=~/c,log=~x");
	assert_string_equal(o.data, expected);
	assert_string_equal(o.cache, "/home/somebody/c");
	assert_int_equal(o.log[0], '/');
	give("data=/with\\,comma,cache=/back\\\\slash,log=/single\\x");
	assert_string_equal(o.data, "/with,comma");
	assert_string_equal(o.cache, "/back\\slash");
	assert_string_equal(o.log, "/single\\x");
	refused("data=", "option data: a value is missing, as in data=DIR");
	refused("data=/a\tb", "option data: '/a?b': expected a path without control characters");
	buf_puts(&huge, "data=/");
	for (size_t i = 0; i < PATH_MAX; i++)
		buf_putc(&huge, 'x');
	buf_reset(&why);
	assert_int_equal(options_parse(&o, huge.data, &why), -EINVAL);
	assert_non_null(strstr(why.data, "…': expected a path of less than 4096 bytes"));
	assert_true(why.len < 250);
}

static void test_unknown_names_get_the_nearest(void **state UNUSED)
{
	refused("ligner=3", "unknown option 'ligner': did you mean 'linger'?");
	refused("ro,idle_timout=3", "unknown option 'idle_timout': did you mean 'idle_timeout'?");
	refused("cachesize=1G", "unknown option 'cachesize': did you mean 'cache_size'?");
	refused("symlink=raw", "unknown option 'symlink': did you mean 'symlinks'?");
	refused("Linger=3", "unknown option 'Linger': did you mean 'linger'?");
	refused("completely-different", "unknown option 'completely-different'");
	refused("zz", "unknown option 'zz'");
	refused("dialekt=1.0", "unknown option 'dialekt'"); /* what is hidden stays so */
	refused("a\033[2J", "unknown option 'a?[2J'");
	refused("=3", "unknown option ''");
}

static void test_distances(void **state UNUSED)
{
	static const struct {
		const char *a, *b;
		unsigned d;
	} rows[] = {
		{ "", "", 0 },       { "", "abc", 3 },     { "abc", "", 3 },
		{ "abc", "abc", 0 }, { "abc", "acb", 1 },  { "abc", "abd", 1 },
		{ "abc", "ab", 1 },  { "abc", "xabc", 1 }, { "kitten", "sitting", 3 },
		{ "ca", "abc", 3 },
	};
	static const char longest[] = "0123456789012345678901234567890123456789";

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		assert_int_equal(suggest_distance(rows[i].a, rows[i].b), rows[i].d);
		assert_int_equal(suggest_distance(rows[i].b, rows[i].a), rows[i].d);
	}
	assert_int_equal(suggest_distance(longest, longest), UINT_MAX);
	refused(longest, "unknown option '0123456789012345678901234567890123456789'");
}

static void test_what_mount_passes(void **state UNUSED)
{
	give("rw,nosuid,nodev,noexec,relatime,_netdev,noauto,user,users,nofail,defaults,"
	     "x-systemd.automount,X-mount.mkdir=0755,x-gvfs-show,comment=mine,async,suid,dev");
	assert_string_equal(o.user, "default");
	give("");
	give(",,ro,,");
	assert_true(o.ro);
	refused("context=x", "unknown option 'context'");
}

/* ---- the source ---- */

static void source_refused(const char *source, int error, const char *words)
{
	buf_reset(&why);
	assert_int_equal(options_source(&o, source, &why), error);
	assert_string_equal(why.data, words);
	assert_int_equal(o.source, SOURCE_EMBEDDED);
}

static void test_sources(void **state UNUSED)
{
	source_refused("ftp://host", -EINVAL,
		       "unknown source 'ftp://host': expected embedded:, docker:[IMAGE], "
		       "provisioner:http://HOST:PORT, http://HOST:PORT or https://HOST:PORT");
	source_refused("", -EINVAL,
		       "unknown source '': expected embedded:, docker:[IMAGE], "
		       "provisioner:http://HOST:PORT, http://HOST:PORT or https://HOST:PORT");
	source_refused("docker:an image", -EINVAL,
		       "source: 'an image': expected a name without blanks");
	source_refused("docker:--privileged", -EINVAL,
		       "source: '--privileged': expected a name that begins with a letter or "
		       "digit");
	source_refused("provisioner:host:8002", -EINVAL,
		       "source: the URL does not start with http:// or https://");
	source_refused("provisioner:http://h?key=hush", -EINVAL,
		       "source: the URL has a query or a fragment");
	source_refused("http://", -EINVAL, "source: the URL has no host");
	source_refused("http://h/?api_key=hush", -EINVAL,
		       "source: the URL has a query or a fragment");

	assert_int_equal(options_source(&o, "https://host:8443/base/", &why), 0);
	assert_int_equal(o.source, SOURCE_URL);
	assert_string_equal(o.url, "https://host:8443/base");
	assert_string_equal(o.source_text, "https://host:8443/base/");
	assert_int_equal(options_source(&o, "http://host/a@b", &why), 0);
	assert_int_equal(options_source(&o, "provisioner:http://h:8002/", &why), 0);
	assert_int_equal(o.source, SOURCE_PROVISIONER);
	assert_string_equal(o.url, "http://h:8002");
	assert_string_equal(o.source_text, "provisioner:http://h:8002/");
	assert_int_equal(options_source(&o, "docker:some/image:1.0", &why), 0);
	assert_int_equal(o.source, SOURCE_DOCKER);
	assert_null(o.url);
	assert_string_equal(o.image, "some/image:1.0");
	assert_int_equal(options_source(&o, "docker:", &why), 0);
	assert_string_equal(o.image, "some/image:1.0");
	assert_int_equal(options_source(&o, "embedded:", &why), 0);
	assert_int_equal(o.source, SOURCE_EMBEDDED);
	assert_null(o.url);
	assert_string_equal(o.source_text, "embedded:");
}

static void test_no_secrets_in_a_url(void **state UNUSED)
{
	static const char *const urls[] = { "http://ann:hush@host", "https://hush@host:1/x",
					    "HTTP://:hush@host", "http://ann:hush@host?x" };

	for (size_t i = 0; i < ARRAY_SIZE(urls); i++) {
		buf_reset(&why);
		assert_int_equal(options_source(&o, urls[i], &why), -EINVAL);
		assert_null(strstr(why.data, "hush"));
		assert_non_null(
			strstr(why.data, "user or password in the URL can be read by others"));
		assert_non_null(strstr(why.data, "api_key_file=FILE"));
	}
}

/* ---- secrets ---- */

static void test_no_secrets_on_the_command_line(void **state UNUSED)
{
	static const char *const texts[] = { "api_key=hush", "ro,token=hush", "bearer=hush",
					     "API_KEY=hush", "password=hush" };

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		buf_reset(&why);
		assert_int_equal(options_parse(&o, texts[i], &why), -EINVAL);
		assert_string_equal(
			why.data,
			"a secret on the command line can be read by others: use "
			"api_key_file=FILE, or the environment variable THREADFS_API_KEY or "
			"THREADFS_TOKEN");
	}
}

static void test_secrets_from_the_environment(void **state UNUSED)
{
	struct buf shown CLEANUP_BUF = BUF_INIT(0);

	setenv("THREADFS_API_KEY", "hush-key", 1);
	setenv("THREADFS_TOKEN", "hush-token", 1);
	assert_int_equal(options_environment(&o, &why), 0);
	finish();
	assert_string_equal(o.api_key, "hush-key");
	assert_string_equal(o.bearer, "hush-token");
	options_print(&o, &shown);
	assert_null(strstr(shown.data, "hush"));
	assert_non_null(strstr(shown.data, "\napi_key=********\n"));
	assert_non_null(strstr(shown.data, "\ntoken=********\n"));

	setenv("THREADFS_TOKEN", "hush\r\nX-Other: 1", 1);
	assert_int_equal(options_environment(&o, &why), -EINVAL);
	assert_string_equal(why.data, "THREADFS_TOKEN holds a byte that is not printable ASCII");
}

static void key_file_is(const char *bytes, size_t len, const char *key)
{
	char text[SCRATCH_MAX + 64];

	snprintf(text, sizeof(text), "api_key_file=%s", make_file("key", bytes, len));
	give(text);
	finish();
	assert_string_equal(o.api_key, key);
}

static void key_file_refused(const char *path, int error, const char *words)
{
	char text[SCRATCH_MAX + 64];

	snprintf(text, sizeof(text), "api_key_file=%s", path);
	give(text);
	assert_int_equal(options_finish(&o, &why), error);
	assert_non_null(strstr(why.data, words));
	assert_ptr_equal(strstr(why.data, "option api_key_file: "), why.data);
	assert_null(strstr(why.data, "hush"));
	assert_null(strchr(why.data, '\n'));
}

static void test_secrets_from_a_file(void **state UNUSED)
{
	char huge[10000];

	key_file_is("hush", 4, "hush");
	key_file_is("hush\n", 5, "hush");
	key_file_is("hush\r\n", 6, "hush");
	key_file_is(" two words ", 11, " two words ");
	key_file_refused(make_file("key", "", 0), -EINVAL, "is empty");
	key_file_refused(make_file("key", "\n", 1), -EINVAL, "is empty");
	key_file_refused(make_file("key", "hush\nhush\n", 10), -EINVAL, "not printable ASCII");
	key_file_refused(make_file("key", "hu\0sh", 5), -EINVAL, "not printable ASCII");
	memset(huge, 'h', sizeof(huge));
	key_file_refused(make_file("key", huge, sizeof(huge)), -EINVAL, "longer than 8192 bytes");
	memset(huge, 'h', 8192);
	huge[8192] = '\0';
	key_file_is(huge, 8192, huge);
	key_file_refused(in_dir("missing"), -ENOENT, "No such file");
	key_file_refused(dir, -EINVAL, "is not a regular file");
	assert_int_equal(mkfifo(in_dir("pipe"), 0600), 0);
	key_file_refused(in_dir("pipe"), -EINVAL, "is not a regular file"); /* and no waiting */
}

static void test_the_later_key_wins(void **state UNUSED)
{
	char text[SCRATCH_MAX + 64];

	snprintf(text, sizeof(text), "api_key_file=%s", make_file("key", "of-file", 7));
	give(text); /* as if from the config file */
	setenv("THREADFS_API_KEY", "of-environment", 1);
	assert_int_equal(options_environment(&o, &why), 0);
	finish();
	assert_string_equal(o.api_key, "of-environment");
	give(text);
	finish();
	assert_string_equal(o.api_key, "of-file");
}

/* ---- the environment ---- */

static void test_environment(void **state UNUSED)
{
	setenv("THREADFS_LINGER", "7", 1);
	setenv("THREADFS_RO", "yes", 1);
	setenv("THREADFS_CACHE_SIZE", "1G", 1);
	setenv("THREADFS_USER", "", 1); /* as good as not set */
	setenv("THREADFS_NO_SUCH_SETTING", "x", 1);
	assert_int_equal(options_environment(&o, &why), 0);
	unsetenv("THREADFS_NO_SUCH_SETTING");
	assert_int_equal(o.linger_ms, 7000);
	assert_true(o.ro);
	assert_int_equal(o.cache_size, GIB);
	assert_string_equal(o.user, "default");
	give("linger=8,rw");
	assert_int_equal(o.linger_ms, 8000);
	assert_false(o.ro);

	setenv("THREADFS_LINGER", "soon", 1);
	assert_int_equal(options_environment(&o, &why), -EINVAL);
	assert_string_equal(why.data,
			    "THREADFS_LINGER: 'soon': expected seconds, such as 30 or 0.5");
}

static void test_every_setting_has_its_variable(void **state UNUSED)
{
	/* None of these is anybody's default. */
	static const char *const values[] = { "1.0",  "host",  "none", "visible", "deny", "lease",
					      "true", "false", "123",  "70000",   "/x" };

	for (size_t i = 0; i < settings_count; i++) {
		char *name CLEANUP_FREE = setting_variable(&settings[i]);
		struct options before CLEANUP_OPTIONS;
		size_t changed = 0;

		assert_int_equal(options_init(&before), 0);
		for (size_t v = 0; v < ARRAY_SIZE(values) && !changed; v++) {
			struct options with CLEANUP_OPTIONS;
			struct buf a CLEANUP_BUF = BUF_INIT(0), b CLEANUP_BUF = BUF_INIT(0);

			assert_int_equal(options_init(&with), 0);
			setenv(name, values[v], 1);
			buf_reset(&why);
			if (options_environment(&with, &why) == 0) {
				options_print(&before, &a);
				options_print(&with, &b);
				changed = strcmp(a.data, b.data) != 0;
			} else {
				assert_ptr_equal(strstr(why.data, name), why.data);
			}
		}
		unsetenv(name);
		if (!changed)
			fail_msg("%s does nothing", name);
	}
}

/* ---- what must fit together ---- */

static void test_finish(void **state UNUSED)
{
	give("dialect=1.0,cacert=/no/such/file");
	finish();
	assert_int_equal(options_source(&o, "https://host", &why), 0);
	assert_int_equal(options_finish(&o, &why), -EINVAL);
	assert_string_equal(why.data, "option dialect: only embedded sandboxes can be told theirs");
	free(o.dialect);
	o.dialect = NULL;
	buf_reset(&why);
	assert_int_equal(options_finish(&o, &why), -ENOENT);
	assert_string_equal(why.data, "option cacert: '/no/such/file' cannot be read: No such "
				      "file or directory");
}

/* ---- showing ---- */

/* What is printed is what would be given. */
static void test_print_is_read_back(void **state UNUSED)
{
	struct buf first CLEANUP_BUF = BUF_INIT(0), second CLEANUP_BUF = BUF_INIT(0);
	char *line, *rest;

	give("data=/"
	     "d,linger=0.25,memory=65537,cache_size=3T,umask=7,debug=fuse:file,ro,uid=5,gid=6,"
	     "symlinks=raw,root=/r,cacert=/c,log=/l,net=host,dialect=aiod,ctl=visible");
	finish();
	options_print(&o, &first);
	assert_non_null(strstr(first.data, "source=embedded:\n"));
	assert_non_null(strstr(first.data, "\nlinger=0.250\n"));
	assert_non_null(strstr(first.data, "\nmemory=65537\n"));
	assert_non_null(strstr(first.data, "\ncache_size=3T\n"));
	assert_non_null(strstr(first.data, "\numask=007\n"));
	assert_non_null(strstr(first.data, "\ndebug=fuse:file\n"));

	options_release(&o);
	assert_int_equal(options_init(&o), 0);
	rest = strdup(first.data);
	assert_non_null(rest);
	line = strchr(rest, '\n') + 1;
	for (char *end; (end = strchr(line, '\n')); line = end + 1) {
		*end = '\0';
		give(line);
	}
	free(rest);
	options_print(&o, &second);
	assert_string_equal(first.data, second.data);
}

static void test_help_lists_every_option(void **state UNUSED)
{
	struct buf help CLEANUP_BUF = BUF_INIT(0);
	size_t column = 0;

	options_help(&help);
	for (size_t i = 0; i < settings_count; i++) {
		char begin[64];

		snprintf(begin, sizeof(begin), "\n  %s%s", settings[i].name,
			 settings[i].value ? "=" : " ");
		if (settings[i].hidden)
			assert_null(strstr(help.data, begin));
		else
			assert_non_null(strstr(help.data, i ? begin : begin + 1));
	}
	for (size_t i = 0; i < help.len; i++) {
		column = help.data[i] == '\n' ? 0 : column + 1;
		assert_true(column <= 80);
		assert_false(help.data[i] == '\n' && i > 0 && help.data[i - 1] == ' ');
	}
}

/* "*linger=*_SECONDS_" begins its paragraph, and its default stands in it. */
static void test_manual_has_every_option(void **state UNUSED)
{
	struct buf page CLEANUP_BUF = BUF_INIT(MIB);
	FILE *f = fopen(MANUAL, "re");
	size_t n = 1;

	assert_non_null(f);
	while (n > 0) {
		assert_int_equal(buf_reserve(&page, 4096), 0);
		n = fread(page.data + page.len, 1, 4096, f);
		page.len += n;
	}
	fclose(f);
	buf_putc(&page, '\0');
	for (size_t i = 0; i < settings_count; i++) {
		const struct setting *s = &settings[i];
		char begin[64], standard[64];
		char *at, *end;

		snprintf(begin, sizeof(begin), "\n*%s%s*", s->name, s->value ? "=" : "");
		at = strstr(page.data, begin);
		if (!at != s->hidden)
			fail_msg("%s: %s in the manual", s->name, at ? "is" : "is not");
		if (!at || !s->value || !s->initial)
			continue;
		end = strstr(at + 1, "\n\n");
		snprintf(standard, sizeof(standard), "Default: %s.", s->initial);
		at = strstr(at, standard);
		if (!at || at > end)
			fail_msg("%s: the manual does not say \"%s\"", s->name, standard);
	}
}

#define TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		TEST(test_defaults),
		TEST(test_directories_of_the_user),
		TEST(test_every_option),
		TEST(test_booleans),
		TEST(test_seconds),
		TEST(test_sizes),
		TEST(test_numbers_and_people),
		TEST(test_names_and_words),
		TEST(test_paths_become_absolute),
		TEST(test_unknown_names_get_the_nearest),
		TEST(test_distances),
		TEST(test_what_mount_passes),
		TEST(test_sources),
		TEST(test_no_secrets_in_a_url),
		TEST(test_no_secrets_on_the_command_line),
		TEST(test_secrets_from_the_environment),
		TEST(test_secrets_from_a_file),
		TEST(test_the_later_key_wins),
		TEST(test_environment),
		TEST(test_every_setting_has_its_variable),
		TEST(test_finish),
		TEST(test_print_is_read_back),
		TEST(test_help_lists_every_option),
		TEST(test_manual_has_every_option),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
