/*
 * See options.h. Turns argv into struct config and knows nothing of what the
 * settings do. Runs on the main thread before anything else exists.
 */
#include "options.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "log.h"

enum kind {
	KIND_STRING,
	KIND_UNSIGNED, /* unsigned */
	KIND_SIZE,     /* uint64_t with K, M or G */
	KIND_COUNT,    /* uint64_t */
	KIND_FD,       /* int, an open file descriptor */
	KIND_CHOICE,   /* int or bool: the index in choices */
	KIND_FLAG,
	KIND_HELP,
	KIND_VERSION,
};

struct option_def {
	const char *name;
	enum kind kind;
	size_t offset; /* in struct options */
	uint64_t min, max;
	const char *meta;           /* NULL = takes no argument */
	const char *help;           /* NULL = hidden */
	const char *const *choices; /* NULL-terminated */
};

/* In the order of enum dialect and enum isolation. */
static const char *const dialects[] = { "1.0", "1.9", "aiod", NULL };
static const char *const isolations[] = { "bwrap", "none", NULL };
static const char *const nets[] = { "none", "host", NULL };

#define CFG(field) offsetof(struct options, cfg.field)
#define OWN(field) offsetof(struct options, field)

static const struct option_def table[] = {
	{ "socket", KIND_STRING, CFG(socket_path), 0, 0, "PATH",
	  "listen on a unix socket (mode 0600)" },
	{ "listen", KIND_STRING, CFG(listen_addr), 0, 0, "HOST:PORT",
	  "listen on TCP; port 0 picks a free one" },
	{ "data", KIND_STRING, CFG(data_dir), 0, 0, "DIR", "what is " SANDBOX_DATA " inside" },
	{ "dialect", KIND_CHOICE, CFG(dialect), 0, 0, "1.0|1.9|aiod",
	  "which server generation to speak (aiod)", dialects },
	{ "api-key-file", KIND_STRING, OWN(api_key_file), 0, 0, "FILE",
	  "require the key in the file's first line" },
	{ "isolation", KIND_CHOICE, CFG(isolation), 0, 0, "bwrap|none", "the walls (bwrap)",
	  isolations },
	{ "net", KIND_CHOICE, CFG(net_host), 0, 0, "none|host", "the network inside (none)", nets },
	{ "idle-exit", KIND_UNSIGNED, CFG(idle_exit_s), 0, INT_MAX / 1000, "SECONDS",
	  "end when unused for so long; 0 = never (0)" },
	{ "pid-file", KIND_STRING, CFG(pid_file), 0, 0, "FILE",
	  "write the process id there when ready" },
	{ "ready-fd", KIND_FD, CFG(ready_fd), 0, 0, "N",
	  "write READY=1 to this descriptor when ready" },
	{ "max-sessions", KIND_UNSIGNED, CFG(max_shell_sessions), 1, 10000, "N",
	  "shell sessions (10)" },
	{ "max-bash-sessions", KIND_UNSIGNED, CFG(max_bash_sessions), 1, 10000, "N",
	  "bash sessions (50)" },
	{ "session-timeout", KIND_UNSIGNED, CFG(session_timeout_s), 1, INT_MAX / 1000, "SECONDS",
	  "end sessions idle for so long (3600)" },
	{ "max-watchers", KIND_UNSIGNED, CFG(max_watchers), 1, 100000, "N",
	  "file watchers (aiod 128, others 10)" },
	{ "max-connections", KIND_UNSIGNED, CFG(max_connections), 1, 1000000, "N",
	  "open connections (4096)" },
	{ "max-body", KIND_SIZE, CFG(max_body), 1024, 16 * GIB, "BYTES",
	  "size of a JSON request (64M)" },
	{ "max-processes", KIND_COUNT, CFG(max_processes), 8, 4194304, "N",
	  "processes in the sandbox (512)" },
	{ "max-open-files", KIND_COUNT, CFG(max_open_files), 16, 1048576, "N",
	  "open files of one command (4096)" },
	{ "max-file-size", KIND_SIZE, CFG(max_file_size), 4096, INT64_MAX, "BYTES",
	  "size of a file a command writes (64G)" },
	{ "max-memory", KIND_SIZE, CFG(max_memory), 16 * MIB, INT64_MAX, "BYTES",
	  "memory of a process, and of all with a cgroup (4G)" },
	{ "tmp-size", KIND_SIZE, CFG(tmp_size), MIB, INT64_MAX, "BYTES",
	  "size of the private /tmp and home each (512M)" },
	{ "verbose", KIND_FLAG, CFG(verbose), 0, 0, NULL, "log more" },
	{ "help", KIND_HELP, 0, 0, 0, NULL, "show this" },
	{ "version", KIND_VERSION, 0, 0, 0, NULL, "show the version" },
	/* hidden: from the supervisor to the inner server */
	{ "inherit-listen", KIND_FD, OWN(inherit_listen), 0, 0, "N", NULL },
	{ "inherit-status", KIND_FD, OWN(inherit_status), 0, 0, "N", NULL },
	{ "inherit-key", KIND_FD, OWN(inherit_key), 0, 0, "N", NULL },
	{ "inherit-lifeline", KIND_FD, CFG(lifeline_fd), 0, 0, "N", NULL },
};

static_assert(sizeof(enum dialect) == sizeof(int), "KIND_CHOICE writes an int");
static_assert(sizeof(enum isolation) == sizeof(int), "KIND_CHOICE writes an int");

const char *dialect_name(enum dialect d)
{
	return (size_t)d < ARRAY_SIZE(dialects) - 1 ? dialects[d] : "?";
}

static void options_defaults(struct options *o)
{
	*o = (struct options){
		.cfg = {
			.ready_fd = -1,
			.dialect = DIALECT_AIOD,
			.isolation = ISOLATION_BWRAP,
			.max_processes = 512,
			.max_open_files = 4096,
			.max_file_size = 64 * GIB,
			.max_memory = 4 * GIB,
			.tmp_size = 512 * MIB,
			.max_shell_sessions = 10,
			.max_bash_sessions = 50,
			.session_timeout_s = 3600,
			.max_connections = 4096,
			.max_body = 64 * MIB,
			.lifeline_fd = -1,
		},
		.inherit_listen = -1,
		.inherit_status = -1,
		.inherit_key = -1,
	};
}

static void print_help(void)
{
	char head[64];

	printf("Usage: threadfs-sandboxd (--socket PATH | --listen HOST:PORT) --data DIR "
	       "[OPTION...]\n"
	       "Serves the AIO sandbox API: files, shells and commands inside a sandbox.\n\n");
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		if (!table[i].help)
			continue;
		snprintf(head, sizeof(head), "--%s%s%s", table[i].name, table[i].meta ? " " : "",
			 table[i].meta ? table[i].meta : "");
		printf("  %-27s %s\n", head, table[i].help);
	}
	printf("\nBYTES takes K, M or G (powers of 1024). See threadfs-sandboxd(8).\n");
}

/* Digits only (strtoull alone takes "-1" and " 1"), then optionally a suffix. */
static int parse_number(const char *s, bool suffix, uint64_t *ret)
{
	unsigned long long v;
	unsigned shift = 0;
	char *end;

	if (!isdigit((unsigned char)s[0]))
		return -EINVAL;
	errno = 0;
	v = strtoull(s, &end, 10);
	if (errno)
		return -ERANGE;
	if (suffix && *end) {
		switch (toupper((unsigned char)*end++)) {
		case 'K':
			shift = 10;
			break;
		case 'M':
			shift = 20;
			break;
		case 'G':
			shift = 30;
			break;
		default:
			return -EINVAL;
		}
	}
	if (*end)
		return -EINVAL;
	if (v > UINT64_MAX >> shift)
		return -ERANGE;
	*ret = v << shift;
	return 0;
}

static int parse_fd(const char *s, int *ret)
{
	uint64_t v;

	if (parse_number(s, false, &v) < 0 || v > INT_MAX)
		return -EINVAL;
	if (fcntl((int)v, F_GETFD) < 0)
		return -EBADF;
	*ret = (int)v;
	return 0;
}

static int set_number(const struct option_def *def, const char *arg, void *field)
{
	uint64_t v = 0;
	int r = parse_number(arg, def->kind == KIND_SIZE, &v);

	if (r == -EINVAL) {
		log_error("--%s: '%s' is not a %s", def->name, arg,
			  def->kind == KIND_SIZE ? "size (digits, then K, M or G)" : "number");
		return r;
	}
	if (r < 0 || v < def->min || v > def->max) {
		log_error("--%s: %s is out of range (%llu to %llu)", def->name, arg,
			  (unsigned long long)def->min, (unsigned long long)def->max);
		return -ERANGE;
	}
	if (def->kind == KIND_UNSIGNED)
		*(unsigned *)field = (unsigned)v;
	else
		*(uint64_t *)field = v;
	return 0;
}

static int set_choice(const struct option_def *def, const char *arg, void *field)
{
	for (int i = 0; def->choices[i]; i++) {
		if (strcmp(def->choices[i], arg) != 0)
			continue;
		if (def->choices == nets)
			*(bool *)field = i;
		else
			*(int *)field = i;
		return 0;
	}
	log_error("--%s: '%s' is not one of %s", def->name, arg, def->meta);
	return -EINVAL;
}

static int set_option(struct options *o, const struct option_def *def, const char *arg)
{
	void *field = (char *)o + def->offset;
	int r;

	switch (def->kind) {
	case KIND_STRING:
		if (!*arg) {
			log_error("--%s: must not be empty", def->name);
			return -EINVAL;
		}
		*(const char **)field = arg;
		return 0;
	case KIND_UNSIGNED:
	case KIND_SIZE:
	case KIND_COUNT:
		return set_number(def, arg, field);
	case KIND_FD:
		r = parse_fd(arg, field);
		if (r < 0)
			log_error("--%s: %s is not an open file descriptor", def->name, arg);
		return r;
	case KIND_CHOICE:
		return set_choice(def, arg, field);
	case KIND_FLAG:
		*(bool *)field = true;
		return 0;
	default:
		return -EINVAL;
	}
}

/* Edit distance of short words, for "did you mean". */
static unsigned distance(const char *a, const char *b)
{
	unsigned row[64];
	size_t la = strlen(a), lb = MIN(strlen(b), ARRAY_SIZE(row) - 1);

	for (size_t k = 0; k <= lb; k++)
		row[k] = (unsigned)k;
	for (size_t i = 1; i <= la; i++) {
		unsigned diagonal = row[0];

		row[0] = (unsigned)i;
		for (size_t k = 1; k <= lb; k++) {
			unsigned subst = diagonal + (a[i - 1] != b[k - 1]);

			diagonal = row[k];
			row[k] = MIN(subst, MIN(row[k], row[k - 1]) + 1);
		}
	}
	return row[lb];
}

static void report_unknown(const char *arg)
{
	const char *best = NULL;
	unsigned best_distance = 4;
	char name[64];
	size_t len;

	if (strncmp(arg, "--", 2) != 0) {
		log_error("unknown option %s; see --help", arg);
		return;
	}
	len = MIN(strcspn(arg + 2, "="), sizeof(name) - 1);
	memcpy(name, arg + 2, len);
	name[len] = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		unsigned d = table[i].help ? distance(name, table[i].name) : UINT_MAX;

		if (d < best_distance && d < len) {
			best_distance = d;
			best = table[i].name;
		}
	}
	if (best)
		log_error("unknown option --%s; did you mean --%s?", name, best);
	else
		log_error("unknown option --%s; see --help", name);
}

static int check_options(struct options *o)
{
	struct config *cfg = &o->cfg;

	if (o->inherit_listen < 0 && !cfg->socket_path == !cfg->listen_addr) {
		log_error("exactly one of --socket and --listen is needed");
		return -EINVAL;
	}
	if (!cfg->data_dir) {
		log_error("--data is needed");
		return -EINVAL;
	}
	if (!cfg->max_watchers)
		cfg->max_watchers = cfg->dialect == DIALECT_AIOD ? 128 : 10;
	return 0;
}

int options_parse(int argc, char **argv, struct options *ret)
{
	struct option longopts[ARRAY_SIZE(table) + 1] = { 0 };
	struct options o;
	int index = -1, c;

	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		longopts[i] = (struct option){
			.name = table[i].name,
			.has_arg = table[i].meta ? required_argument : no_argument,
		};
	options_defaults(&o);
	opterr = 0;
	optind = 1;
	/* "+" stops at the first word that is no option, ":" tells a missing argument apart */
	while ((c = getopt_long(argc, argv, "+:h", longopts, &index)) != -1) {
		const struct option_def *def = c == 0 ? &table[index] : NULL;

		if (c == 'h') {
			print_help();
			return fflush(stdout) ? OPTIONS_EXIT_FAILURE : 0;
		}
		if (c == ':') {
			log_error("%s needs an argument", argv[optind - 1]);
			return OPTIONS_EXIT_USAGE;
		}
		if (!def) {
			report_unknown(argv[optind - 1]);
			return OPTIONS_EXIT_USAGE;
		}
		if (def->kind == KIND_HELP) {
			print_help();
			return fflush(stdout) ? OPTIONS_EXIT_FAILURE : 0;
		}
		if (def->kind == KIND_VERSION) {
			printf("threadfs-sandboxd %s\n", THREADFS_VERSION);
			return fflush(stdout) ? OPTIONS_EXIT_FAILURE : 0;
		}
		if (set_option(&o, def, optarg) < 0)
			return OPTIONS_EXIT_USAGE;
	}
	if (optind < argc) {
		log_error("unexpected argument '%s'; see --help", argv[optind]);
		return OPTIONS_EXIT_USAGE;
	}
	if (check_options(&o) < 0)
		return OPTIONS_EXIT_USAGE;
	*ret = o;
	return -1;
}

int options_read_key(int fd, char **ret)
{
	char line[4097];
	size_t len = 0, start = 0;
	char *key;

	do {
		ssize_t n = read(fd, line + len, sizeof(line) - len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		len += (size_t)n;
	} while (len < sizeof(line) && !memchr(line, '\n', len));
	key = memchr(line, '\n', len);
	if (key)
		len = (size_t)(key - line);
	else if (len == sizeof(line))
		return -EMSGSIZE;
	while (start < len && isspace((unsigned char)line[start]))
		start++;
	while (len > start && isspace((unsigned char)line[len - 1]))
		len--;
	if (start == len || memchr(line + start, '\0', len - start))
		return -ENODATA;
	key = strndup(line + start, len - start);
	if (!key)
		return -ENOMEM;
	*ret = key;
	return 0;
}
