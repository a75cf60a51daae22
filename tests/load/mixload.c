/*
 * A bounded load generator for one sandbox server on this machine. This file
 * has the command line and the few blocking requests that the subcommands
 * share; mix.c and hold.c have the load. One thread.
 */
#include "mixload.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "clock.h"
#include "jsonw.h"

enum { EXCHANGE_TIMEOUT_MS = 30000 };

volatile sig_atomic_t interrupted;

static void on_signal(int sig)
{
	interrupted = 1;
}

int simple_request(const struct address *a, const char *method, const char *path,
		   struct response *r)
{
	struct buf out CLEANUP_BUF = BUF_INIT(0);

	response_reset(r);
	buf_printf(&out, "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", method,
		   path);
	if (out.error)
		return out.error;
	return http_exchange(a, out.data, out.len, EXCHANGE_TIMEOUT_MS, r);
}

int post_json(const struct address *a, const char *path, const struct buf *json, struct response *r)
{
	struct buf out CLEANUP_BUF = BUF_INIT(0);

	response_reset(r);
	buf_printf(&out,
		   "POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
		   "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
		   path, json->len);
	buf_append(&out, json->data, json->len);
	if (out.error)
		return out.error;
	return http_exchange(a, out.data, out.len, EXCHANGE_TIMEOUT_MS, r);
}

int run_command(const struct address *a, const char *command)
{
	static const char *const routes[] = { "/v1/bash/exec", "/v1/shell/exec" };
	struct buf body CLEANUP_BUF = BUF_INIT(0);
	struct response r;
	struct jw w;
	int ret = -ENOENT;

	jw_init(&w, &body);
	jw_obj(&w);
	jw_kstr(&w, "command", command);
	jw_obj_end(&w);
	if (body.error)
		return body.error;
	response_init(&r);
	for (size_t i = 0; i < ARRAY_SIZE(routes); i++) {
		ret = post_json(a, routes[i], &body, &r);
		if (ret < 0)
			break;
		ret = r.status == 200 ? 0 : -EIO;
		if (r.status != 404)
			break;
	}
	http_response_release(&r);
	return ret;
}

static const struct mode {
	const char *name;
	int (*run)(const struct options *o);
} modes[] = {
	{ "mix", mix_run },
	{ "idle", hold_idle },
	{ "loris", hold_loris },
	{ "stall", hold_stall },
};

static void usage(FILE *to)
{
	fputs("usage: mixload mix   ADDRESS [--seconds N] [--clients N] [--seed N] [--verbose]\n"
	      "       mixload idle  ADDRESS [--seconds N] [--connections N]\n"
	      "       mixload loris ADDRESS [--seconds N] [--connections N] [--body]\n"
	      "       mixload stall ADDRESS [--seconds N] [--connections N] [--size BYTES]\n"
	      "ADDRESS: --socket PATH, or --connect HOST:PORT on the loopback interface\n",
	      to);
}

static uint64_t number(const char *option, const char *s, uint64_t min, uint64_t max)
{
	char *end;
	uint64_t v;

	errno = 0;
	v = strtoull(s, &end, 10);
	if (errno || end == s || *end || *s == '-' || v < min || v > max) {
		fprintf(stderr, "mixload: --%s: a number from %llu to %llu is wanted, not '%s'\n",
			option, (unsigned long long)min, (unsigned long long)max, s);
		exit(2);
	}
	return v;
}

static void set_address(struct options *o, int opt, const char *arg)
{
	int ret = opt == 's' ? address_set_unix(&o->address, arg)
			     : address_set_loopback(&o->address, arg);

	if (ret < 0) {
		fprintf(stderr, "mixload: %s: not a %s\n", arg,
			opt == 's' ? "usable socket path" : "loopback address");
		exit(2);
	}
	o->where = arg;
}

static void parse(struct options *o, int argc, char **argv)
{
	static const struct option longs[] = {
		{ "socket", required_argument, NULL, 's' },
		{ "connect", required_argument, NULL, 'c' },
		{ "seconds", required_argument, NULL, 't' },
		{ "clients", required_argument, NULL, 'n' },
		{ "connections", required_argument, NULL, 'k' },
		{ "seed", required_argument, NULL, 'r' },
		{ "size", required_argument, NULL, 'z' },
		{ "body", no_argument, NULL, 'b' },
		{ "verbose", no_argument, NULL, 'v' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	int opt;

	while ((opt = getopt_long(argc, argv, "", longs, NULL)) >= 0) {
		switch (opt) {
		case 's':
		case 'c':
			set_address(o, opt, optarg);
			break;
		case 't':
			o->seconds = (unsigned)number("seconds", optarg, 1, 7200);
			break;
		case 'n':
			o->clients = (unsigned)number("clients", optarg, 1, 1024);
			break;
		case 'k':
			o->connections = (unsigned)number("connections", optarg, 1, 20000);
			break;
		case 'r':
			o->seed = number("seed", optarg, 0, UINT32_MAX);
			break;
		case 'z':
			o->size = number("size", optarg, 1, 16 * GIB);
			break;
		case 'b':
			o->body = true;
			break;
		case 'v':
			o->verbose = true;
			break;
		case 'h':
			usage(stdout);
			exit(0);
		default:
			usage(stderr);
			exit(2);
		}
	}
	if (!o->where || optind != argc) {
		usage(stderr);
		exit(2);
	}
}

static void raise_fd_limit(void)
{
	struct rlimit rl;

	if (getrlimit(RLIMIT_NOFILE, &rl) == 0) {
		rl.rlim_cur = rl.rlim_max;
		setrlimit(RLIMIT_NOFILE, &rl);
	}
}

int main(int argc, char **argv)
{
	struct options o = {
		.seconds = 10,
		.clients = 16,
		.connections = 100,
		.seed = (uint64_t)clock_ms() & UINT32_MAX,
		.size = 256 * MIB,
	};
	struct sigaction sa = { .sa_handler = on_signal };

	if (argc > 1 && !strcmp(argv[1], "--help")) {
		usage(stdout);
		return 0;
	}
	for (size_t i = 0; argc > 1 && i < ARRAY_SIZE(modes); i++) {
		int ret;

		if (strcmp(argv[1], modes[i].name))
			continue;
		parse(&o, argc - 1, argv + 1);
		raise_fd_limit();
		sigaction(SIGINT, &sa, NULL);
		sigaction(SIGTERM, &sa, NULL);
		ret = modes[i].run(&o);
		if (ret < 0) {
			errno = -ret;
			fprintf(stderr, "mixload: %s: %m\n", o.where);
		}
		return ret != 0;
	}
	usage(stderr);
	return 2;
}
