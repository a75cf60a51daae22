/*
 * threadfs: reads the command line of every command and hands over (cmd.h).
 * Called as mount.threadfs it is what mount(8) runs. One thread.
 *
 * Wrong usage is one line with a hint, and exit status 2, which is also that of wrong settings;
 * everything else that fails is one line, and 1.
 */
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "cmd.h"
#include "guardian.h"
#include "ledger.h"
#include "secret.h"
#include "status_text.h"
#include "unmount.h"
#include "version.h"

/* What reading the arguments comes to, besides a negative errno. */
enum { RUN, SHOW_HELP, WRONG };

/* One line; what others called their files, and said, is escaped. */
PRINTF_LIKE(1, 0)
static void say(const char *fmt, va_list ap, const char *hint, const char *command)
{
	struct buf line CLEANUP_BUF = BUF_INIT(0), words CLEANUP_BUF = BUF_INIT(0);

	buf_vprintf(&words, fmt, ap);
	buf_puts(&line, "threadfs: ");
	if (words.error)
		line.error = words.error;
	else
		text_escape(&line, words.data ?: "", 0);
	if (hint)
		buf_printf(&line, " (%s%s%s)", hint, command ? " " : "", command ? command : "");
	buf_putc(&line, '\n');
	fputs(line.error ? "threadfs: out of memory\n" : line.data, stderr);
}

int cmd_fail(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(fmt, ap, NULL, NULL);
	va_end(ap);
	return EXIT_FAILURE;
}

void cmd_note(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(fmt, ap, NULL, NULL);
	va_end(ap);
}

PRINTF_LIKE(2, 3)
static int wrong(const char *command, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(fmt, ap, "see threadfs help", command);
	va_end(ap);
	return WRONG;
}

/* Of getopt's '?' and ':'. at: the argument that it was in. */
static int wrong_option(const char *command, int what, const char *at)
{
	if (what == ':')
		return wrong(command, "option '%s' needs a value", at);
	if (optopt && isgraph(optopt) && strncmp(at, "--", 2) != 0)
		return wrong(command, "unknown option '-%c'", optopt);
	return wrong(command, "unknown option '%s'", at);
}

static int show_help(const char *command)
{
	struct buf text CLEANUP_BUF = BUF_INIT(0);
	const char *near;

	if (help_page(command, &text)) {
		if (text.error || fputs(text.data, stdout) < 0 || fflush(stdout) != 0)
			return cmd_fail("the help cannot be written");
		return 0;
	}
	near = help_nearest(command);
	if (near)
		wrong(NULL, "unknown command '%s': did you mean '%s'?", command, near);
	else
		wrong(NULL, "unknown command '%s'", command);
	return EXIT_USAGE;
}

/* ---- mount ---- */

struct mount_args {
	const char **o; /* what stood behind each -o, NULL; by argc there is room */
	size_t o_count;
	const char *config, *source, *mountpoint;
	bool foreground;
	bool fake; /* mount(8)'s -f: all but the mounting */
};

static bool is_source(const char *text)
{
	return strstr(text, "://") || strcmp(text, "embedded:") == 0 ||
	       strncmp(text, "docker:", 7) == 0 || strcmp(text, "provisioner:") == 0;
}

static int mount_places(struct mount_args *a, int argc, char **argv)
{
	int left = argc - optind;

	if (left == 1 && is_source(argv[optind]))
		return wrong("mount", "the mountpoint is missing");
	if (left > 2)
		return wrong("mount", "too many arguments, beginning with '%s'", argv[optind + 2]);
	if (left < 1)
		return wrong("mount", "the mountpoint is missing");
	if (left == 2)
		a->source = argv[optind++];
	a->mountpoint = argv[optind];
	return RUN;
}

static int mount_options(struct mount_args *a, int argc, char **argv)
{
	static const struct option longs[] = {
		{ "config", required_argument, NULL, 'c' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, ":fho:", longs, NULL)) != -1) {
		if (c == 'f')
			a->foreground = true;
		else if (c == 'o')
			a->o[a->o_count++] = optarg;
		else if (c == 'c')
			a->config = optarg;
		else if (c == 'h')
			return SHOW_HELP;
		else
			return wrong_option("mount", c, argv[optind - 1]);
	}
	return mount_places(a, argc, argv);
}

/* As mount(8) calls its helpers: SOURCE MOUNTPOINT [-sfnv] [-N NAMESPACE] [-t TYPE] [-o …] */
static int helper_options(struct mount_args *a, int argc, char **argv)
{
	int c, r;

	while ((c = getopt(argc, argv, ":sfnvN:t:o:")) != -1) {
		if (c == 'f')
			a->fake = true;
		else if (c == 'o')
			a->o[a->o_count++] = optarg;
		else if (!strchr("snvNt", c))
			return wrong_option("mount", c, argv[optind - 1]);
	}
	r = mount_places(a, argc, argv);
	if (r == RUN && !a->source)
		return wrong("mount", "the source is missing");
	return r;
}

/* Nobody whom we start has to know it, nor who looks at our environment (ps e). */
static void forget_variable(const char *name)
{
	char *value = getenv(name);

	if (value)
		explicit_bzero(value, strlen(value));
	unsetenv(name);
}

/* In the order in which later ones win. Returns RUN, or the exit status's reason after one line. */
static int read_settings(const struct mount_args *a, struct options *o)
{
	struct buf why CLEANUP_BUF = BUF_INIT(0);
	int r = 0;

	if (a->source && options_source(o, a->source, &why) < 0)
		return wrong("mount", "%s", why.len > 0 ? why.data : "out of memory");
	if (a->config)
		r = options_config_file(o, a->config, &why);
	if (r == 0)
		r = options_environment(o, &why);
	forget_variable(SECRET_API_KEY_VARIABLE);
	forget_variable(SECRET_TOKEN_VARIABLE);
	forget_variable(DEERFLOW_KEY_VARIABLE);
	for (size_t i = 0; i < a->o_count && r == 0; i++)
		if (options_parse(o, a->o[i], &why) < 0)
			return wrong("mount", "%s", why.len > 0 ? why.data : "out of memory");
	if (r == 0)
		r = options_finish(o, &why);
	if (r == 0)
		return RUN;
	cmd_fail("%s", why.len > 0 ? why.data : strerrordesc_np(-r));
	return r == -ENOMEM ? r : WRONG;
}

/* Whether it will do is cmd_mount()'s to find out. What a dead daemon left there goes first. */
static int find_mountpoint(const char *path, struct options *o)
{
	struct buf words CLEANUP_BUF = BUF_INIT(UNMOUNT_WORDS);
	int r = unmount_stale(path, &words);

	if (r == 0) {
		o->mountpoint = realpath(path, NULL);
		r = o->mountpoint ? 0 : -errno;
	} else if (r != -ENOENT && r != -ENOTDIR && r != -EACCES) {
		return cmd_fail("the daemon of the mount at '%s' is dead, and what is left cannot "
				"be removed: %s",
				path, words.len > 0 ? words.data : strerrordesc_np(-r));
	}
	return r < 0 ? cmd_fail("the mountpoint '%s': %s", path, strerrordesc_np(-r)) : 0;
}

static int run_mount(int argc, char **argv, int (*read_args)(struct mount_args *, int, char **))
{
	const char **o_texts CLEANUP_FREE = calloc((size_t)argc + 1, sizeof(*o_texts));
	struct options o CLEANUP_OPTIONS = { 0 };
	struct mount_args a = { .o = o_texts };
	int r;

	if (!o_texts || options_init(&o) < 0)
		return cmd_fail("out of memory");
	r = read_args(&a, argc, argv);
	if (r == SHOW_HELP)
		return show_help("mount");
	if (r == RUN)
		r = read_settings(&a, &o);
	if (r != RUN)
		return r == WRONG ? EXIT_USAGE : EXIT_FAILURE;
	o.foreground = a.foreground;
	r = find_mountpoint(a.mountpoint, &o);
	if (r != 0 || a.fake)
		return r;
	return cmd_mount(&o);
}

static int main_mount(int argc, char **argv)
{
	return run_mount(argc, argv, mount_options);
}

/* ---- unmount, status, top ---- */

static int main_unmount(int argc, char **argv)
{
	static const struct option longs[] = {
		{ "lazy", no_argument, NULL, 'l' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	bool lazy = false;
	int c;

	while ((c = getopt_long(argc, argv, ":lh", longs, NULL)) != -1) {
		if (c == 'h')
			return show_help("unmount");
		if (c != 'l') {
			wrong_option("unmount", c, argv[optind - 1]);
			return EXIT_USAGE;
		}
		lazy = true;
	}
	if (argc - optind != 1) {
		wrong("unmount", argc == optind ? "the mountpoint is missing"
						: "only one mountpoint at a time");
		return EXIT_USAGE;
	}
	return cmd_unmount(argv[optind], lazy);
}

static int main_status(int argc, char **argv)
{
	static const struct option longs[] = {
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	bool json = false;
	int c;

	while ((c = getopt_long(argc, argv, ":h", longs, NULL)) != -1) {
		if (c == 'h')
			return show_help("status");
		if (c != 'j') {
			wrong_option("status", c, argv[optind - 1]);
			return EXIT_USAGE;
		}
		json = true;
	}
	if (argc - optind > 1) {
		wrong("status", "only one mountpoint at a time");
		return EXIT_USAGE;
	}
	return cmd_status(argv[optind], json);
}

static int main_top(int argc, char **argv)
{
	static const struct option longs[] = { { "help", no_argument, NULL, 'h' }, { 0 } };
	int c;

	while ((c = getopt_long(argc, argv, ":h", longs, NULL)) != -1) {
		if (c == 'h')
			return show_help("top");
		wrong_option("top", c, argv[optind - 1]);
		return EXIT_USAGE;
	}
	if (argc - optind > 1) {
		wrong("top", "only one mountpoint at a time");
		return EXIT_USAGE;
	}
	return cmd_top(argv[optind]);
}

/* ---- cp ---- */

static int main_cp(int argc, char **argv)
{
	static const struct option longs[] = { { "help", no_argument, NULL, 'h' }, { 0 } };
	struct cp_args a = { 0 };
	int c;

	while ((c = getopt_long(argc, argv, ":rh", longs, NULL)) != -1) {
		if (c == 'h')
			return show_help("cp");
		if (c != 'r') {
			wrong_option("cp", c, argv[optind - 1]);
			return EXIT_USAGE;
		}
		a.recursive = true;
	}
	if (argc - optind < 2) {
		wrong("cp", argc == optind ? "what to copy is missing" : "where to is missing");
		return EXIT_USAGE;
	}
	a.from = argv + optind;
	a.count = (size_t)(argc - optind - 1);
	a.to = argv[argc - 1];
	return cmd_cp(&a);
}

/* ---- recover ---- */

static int recover_options(struct recover_args *a, int argc, char **argv)
{
	static const struct option longs[] = {
		{ "cache", required_argument, NULL, 'c' }, { "list", no_argument, NULL, 'l' },
		{ "retry", no_argument, NULL, 'r' },       { "save", required_argument, NULL, 's' },
		{ "discard", no_argument, NULL, 'd' },     { "all", no_argument, NULL, 'a' },
		{ "help", no_argument, NULL, 'h' },        { 0 },
	};
	unsigned verbs = 0;
	int c;

	while ((c = getopt_long(argc, argv, ":h", longs, NULL)) != -1) {
		verbs += c == 'l' || c == 'r' || c == 's' || c == 'd';
		if (c == 'h')
			return SHOW_HELP;
		else if (c == 'c')
			a->cache = optarg;
		else if (c == 's')
			a->save = optarg;
		else if (c == 'a')
			a->all = true;
		else if (c == 'r')
			a->retry = true;
		else if (c == 'd')
			a->discard = true;
		else if (c != 'l')
			return wrong_option("recover", c, argv[optind - 1]);
	}
	if (verbs > 1)
		return wrong("recover", "only one of --list, --retry, --save and --discard");
	if (!a->cache && optind < argc &&
	    ((!a->save && !a->discard) || !ledger_is_name(argv[optind])))
		a->path = argv[optind++];
	a->records = argv + optind;
	if (optind < argc && !a->save && !a->discard)
		return wrong("recover", "too many arguments, beginning with '%s'", argv[optind]);
	if (a->retry && !a->path)
		return wrong("recover", "--retry needs the mountpoint");
	if (a->discard && (a->all ? optind < argc : optind == argc))
		return wrong("recover", "--discard needs the records, or --all");
	return a->all && !a->discard ? wrong("recover", "--all belongs to --discard") : RUN;
}

static int main_recover(int argc, char **argv)
{
	struct recover_args a = { 0 };
	int r = recover_options(&a, argc, argv);

	if (r == SHOW_HELP)
		return show_help("recover");
	return r == RUN ? cmd_recover(&a) : EXIT_USAGE;
}

/* ---- exec ---- */

static bool is_assignment(const char *text)
{
	size_t len = strcspn(text, "=");

	if (len == 0 || text[len] != '=' || isdigit((unsigned char)text[0]))
		return false;
	for (size_t i = 0; i < len; i++)
		if (!isalnum((unsigned char)text[i]) && text[i] != '_')
			return false;
	return true;
}

/* Of what stands before "--". */
static int exec_options(struct exec_args *a, int argc, char **argv)
{
	static const struct option longs[] = { { "help", no_argument, NULL, 'h' }, { 0 } };
	size_t env_count = 0;
	int c;

	while ((c = getopt_long(argc, argv, ":e:d:h", longs, NULL)) != -1) {
		if (c == 'h')
			return SHOW_HELP;
		if (c == 'd')
			a->dir = optarg;
		else if (c != 'e')
			return wrong_option("exec", c, argv[optind - 1]);
		else if (!is_assignment(optarg))
			return wrong("exec", "option -e: '%s': expected NAME=VALUE", optarg);
		else
			a->env[env_count++] = optarg;
	}
	if (argc == optind)
		return wrong("exec", "the path is missing");
	if (argc - optind > 1)
		return wrong("exec", "expected '--' and a command behind the path");
	a->path = argv[optind];
	return RUN;
}

static int main_exec(int argc, char **argv)
{
	char **env CLEANUP_FREE = calloc((size_t)argc + 1, sizeof(*env));
	struct exec_args a = { .env = env };
	int dashes = 1, r;

	if (!env)
		return cmd_fail("out of memory");
	while (dashes < argc && strcmp(argv[dashes], "--") != 0)
		dashes++;
	if (dashes < argc)
		argv[dashes] = NULL;
	r = exec_options(&a, dashes, argv);
	if (r == RUN && dashes + 1 >= argc)
		r = wrong("exec", "expected '--' and a command behind the path");
	if (r == SHOW_HELP)
		return show_help("exec");
	if (r != RUN)
		return EXIT_USAGE;
	a.argv = argv + dashes + 1;
	return cmd_exec(&a);
}

/* ---- the program ---- */

static int main_help(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "--complete") == 0)
		return complete_show(argc - 2, argv + 2);
	if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0))
		return show_help("help");
	if (argc > 2) {
		wrong("help", "only one command at a time");
		return EXIT_USAGE;
	}
	return show_help(argv[1]);
}

static bool is_mount_helper(const char *argv0)
{
	const char *slash = strrchr(argv0, '/');
	const char *name = slash ? slash + 1 : argv0;

	return strcmp(name, "mount.threadfs") == 0 || strcmp(name, "mount.fuse.threadfs") == 0;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*run)(int argc, char **argv);
	} commands[] = {
		{ "mount", main_mount }, { "unmount", main_unmount }, { "status", main_status },
		{ "top", main_top },     { "cp", main_cp },           { "recover", main_recover },
		{ "exec", main_exec },   { "help", main_help },
	};

	opterr = 0;
	if (argc > 0 && strcmp(argv[0], GUARDIAN_NAME) == 0)
		return guardian_main(argc, argv);
	if (argc > 0 && is_mount_helper(argv[0]))
		return run_mount(argc, argv, helper_options);
	if (argc < 2) {
		wrong(NULL, "a command is missing");
		return EXIT_USAGE;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
		return show_help(NULL);
	if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0)
		return puts("threadfs " THREADFS_VERSION " (" THREADFS_COMMIT ")") < 0 ||
		       fflush(stdout) != 0;
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		if (strcmp(argv[1], commands[i].name) == 0)
			return commands[i].run(argc - 1, argv + 1);
	return show_help(argv[1]); /* which says that it does not know it */
}
