/* How a sandbox is reached: proxies, TLS, credentials. */
#include "fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "clock.h"
#include "log.h"
#include "scratch.h"

static struct sandbox *open_url(struct fixture *f, const char *url)
{
	struct sandbox_config config = { .url = url };
	struct sandbox *sb = NULL;

	assert_int_equal(sandbox_new(f->loop, &config, &sb, NULL), 0);
	return sb;
}

/* ---- proxies ---- */

static const char *const proxy_variables[] = { "http_proxy", "https_proxy", "all_proxy" };

/* A proxy that answers everything with 200, named by the environment. */
static struct rogue *set_proxy(void)
{
	struct rogue *proxy = rogue_new(NULL, true);

	assert_non_null(proxy);
	rogue_answer(proxy, NULL, NULL, 200, "{\"success\":true,\"version\":\"of the proxy\"}");
	for (size_t i = 0; i < ARRAY_SIZE(proxy_variables); i++)
		assert_int_equal(setenv(proxy_variables[i], rogue_url(proxy), 1), 0);
	return proxy;
}

static int unset_proxy(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(proxy_variables); i++)
		unsetenv(proxy_variables[i]);
	return fixture_teardown(state);
}

static void test_local_sandbox_client_bypasses_environment_proxy(void **state)
{
	struct fixture *f = *state;
	struct rogue *proxy = set_proxy(), *direct = rogue_new(daemon_socket(f->daemon), true);
	const char *port = strrchr(rogue_url(direct), ':');
	static const char *const hosts[] = { "127.0.0.1", "localhost", "sandbox.localhost" };

	for (size_t i = 0; i < ARRAY_SIZE(hosts); i++) {
		char url[64];
		struct sandbox *sb;

		snprintf(url, sizeof(url), "http://%s%s", hosts[i], port);
		sb = open_url(f, url);
		assert_int_equal(SYNC(sb, sandbox_ping), 0);
		sandbox_unref(sb);
	}
	assert_int_equal(SYNC(f->sb, sandbox_ping), 0); /* a unix socket, too */
	assert_int_equal(rogue_count(direct, "GET", "/v1/sandbox"), ARRAY_SIZE(hosts));
	assert_int_equal(rogue_connections_total(proxy), 0);
	rogue_free(direct);
	rogue_free(proxy);
}

static void test_external_sandbox_client_keeps_environment_proxy_support(void **state)
{
	struct fixture *f = *state;
	struct rogue *proxy = set_proxy();
	static const char *const urls[] = { "http://sandbox.example.com",
					    "http://203.0.113.7:8080" };

	for (size_t i = 0; i < ARRAY_SIZE(urls); i++) {
		struct sandbox *sb = open_url(f, urls[i]);
		struct rogue_request q;
		char target[64];

		assert_int_equal(SYNC(sb, sandbox_ping), 0);
		assert_true(rogue_request(proxy, i, &q));
		snprintf(target, sizeof(target), "%s/v1/sandbox", urls[i]);
		assert_string_equal(q.target, target);
		rogue_request_release(&q);
		sandbox_unref(sb);
	}
	rogue_free(proxy);
}

/* The name leads nowhere here; what counts is that the proxy is not asked. */
static void test_wait_for_sandbox_ready_bypasses_environment_proxy_for_docker_host(void **state)
{
	struct fixture *f = *state;
	struct rogue *proxy = set_proxy();
	struct sandbox *sb = open_url(f, "http://host.docker.internal:9");

	assert_true(SYNC_MS(500, sb, sandbox_wait_ready, 200, 50) < 0);
	sandbox_unref(sb);
	assert_int_equal(rogue_connections_total(proxy), 0);
	rogue_free(proxy);
}

/* ---- TLS ---- */

struct tls {
	char dir[SCRATCH_MAX];
	char cert[96]; /* of 127.0.0.1, signed by itself */
	char url[64], other_url[64];
	pid_t pid; /* of socat, before the daemon's socket */
};

/* Runs a program in a process group of its own; its stderr goes to err. */
static pid_t run(const char *const *args, int err)
{
	pid_t pid = fork();

	if (pid != 0)
		return pid;
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	dup2(err, STDERR_FILENO);
	execvp(args[0], (char *const *)args);
	_exit(127);
}

static bool have(const char *program)
{
	char *path CLEANUP_FREE = strdup(getenv("PATH") ?: "/usr/bin");
	char *save = NULL;

	for (char *dir = strtok_r(path, ":", &save); dir; dir = strtok_r(NULL, ":", &save)) {
		char file[4096];

		snprintf(file, sizeof(file), "%s/%s", dir, program);
		if (access(file, X_OK) == 0)
			return true;
	}
	return false;
}

static void make_certificate(struct tls *t)
{
	char key_file[96];
	const char *args[] = { "openssl",  "req",    "-x509",   "-newkey",
			       "rsa:2048", "-nodes", "-subj",   "/CN=threadfs test",
			       "-days",    "2",      "-addext", "subjectAltName=IP:127.0.0.1",
			       "-keyout",  key_file, "-out",    t->cert,
			       NULL };
	int null CLEANUP_FD = open("/dev/null", O_WRONLY | O_CLOEXEC), status = 0;
	pid_t pid;

	snprintf(key_file, sizeof(key_file), "%s/key.pem", t->dir);
	snprintf(t->cert, sizeof(t->cert), "%s/cert.pem", t->dir);
	pid = run(args, null);
	assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
	assert_int_equal(status, 0);
}

/* From socat's own words: "… N listening on AF=2 127.0.0.1:PORT". */
static unsigned learn_port(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	char text[4096] = "";
	size_t len = 0;
	unsigned port = 0;

	while (len < sizeof(text) - 1 && poll(&p, 1, 20000) > 0) {
		ssize_t n = read(fd, text + len, sizeof(text) - 1 - len);
		const char *words;

		if (n <= 0)
			break;
		len += (size_t)n;
		text[len] = '\0';
		words = strstr(text, "listening on AF=2 127.0.0.1:");
		if (words && strchr(words, '\n') &&
		    sscanf(words, "listening on AF=2 127.0.0.1:%u", &port) == 1)
			return port;
	}
	fprintf(stderr, "socat: %s\n", text);
	return 0;
}

static void start_socat(struct tls *t, const char *socket)
{
	char from[256], to[256];
	const char *args[] = { "socat", "-d", "-d", from, to, NULL };
	int fds[2];
	unsigned port;

	snprintf(from, sizeof(from),
		 "OPENSSL-LISTEN:0,bind=127.0.0.1,cert=%s,key=%s/key.pem,verify=0,fork", t->cert,
		 t->dir);
	snprintf(to, sizeof(to), "UNIX-CONNECT:%s", socket);
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	t->pid = run(args, fds[1]);
	close(fds[1]);
	port = t->pid > 0 ? learn_port(fds[0]) : 0;
	close(fds[0]);
	assert_true(port > 0);
	snprintf(t->url, sizeof(t->url), "https://127.0.0.1:%u", port);
	snprintf(t->other_url, sizeof(t->other_url), "https://localhost:%u", port);
}

static int remove_one(const char *path, const struct stat *st UNUSED, int flag UNUSED,
		      struct FTW *ftw UNUSED)
{
	return remove(path);
}

static void stop_tls(struct tls *t)
{
	if (t->pid > 0) {
		kill(-t->pid, SIGKILL);
		waitpid(t->pid, NULL, 0);
	}
	nftw(t->dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void start_tls(struct tls *t, const char *socket)
{
	*t = (struct tls){ 0 };
	if (!have("socat") || !have("openssl")) {
		print_message("skipped: needs socat and openssl\n");
		skip();
	}
	assert_true(scratch_dir(t->dir));
	make_certificate(t);
	start_socat(t, socket);
}

static int ping_with(struct fixture *f, const struct sandbox_config *config)
{
	struct sandbox *sb = NULL;
	int r;

	assert_int_equal(sandbox_new(f->loop, config, &sb, NULL), 0);
	r = SYNC(sb, sandbox_ping);
	sandbox_unref(sb);
	return r;
}

static void test_tls_is_verified(void **state)
{
	struct fixture *f = *state;
	struct tls t;
	int by_default, with_cacert, insecure, other_name, no_file;

	start_tls(&t, daemon_socket(f->daemon));
	by_default = ping_with(f, &(struct sandbox_config){ .url = t.url });
	with_cacert = ping_with(f, &(struct sandbox_config){ .url = t.url, .cacert = t.cert });
	insecure = ping_with(f, &(struct sandbox_config){ .url = t.url, .insecure = true });
	other_name = ping_with(f, &(struct sandbox_config){ .url = t.other_url, .cacert = t.cert });
	no_file = ping_with(f, &(struct sandbox_config){ .url = t.url, .cacert = "/nonexistent" });
	stop_tls(&t);
	assert_int_equal(by_default, -EKEYREJECTED);
	assert_int_equal(with_cacert, 0);
	assert_int_equal(insecure, 0);
	assert_int_equal(other_name, -EKEYREJECTED);
	assert_int_equal(no_file, -EKEYREJECTED);
}

/* ---- credentials ---- */

static const char key[] = "kN9-sesame-open";

struct secured {
	struct daemon *daemon;
	struct rogue *rogue;
	struct sandbox_config config;
};

static void start_secured(struct secured *s, const struct fixture *f)
{
	s->daemon = daemon_start(&(struct daemon_options){ .dialect = f->dialect, .api_key = key });
	assert_non_null(s->daemon);
	s->rogue = rogue_new(daemon_socket(s->daemon), false);
	assert_non_null(s->rogue);
	s->config = (struct sandbox_config){ .socket = rogue_socket(s->rogue) };
}

static void stop_secured(struct secured *s)
{
	rogue_free(s->rogue);
	assert_int_equal(daemon_stop(s->daemon), 0);
}

static void test_credentials_are_sent(void **state)
{
	struct fixture *f = *state;
	struct sandbox_info info = { 0 };
	struct secured s;
	struct sandbox *sb;

	start_secured(&s, f);
	s.config.bearer = key;
	assert_int_equal(ping_with(f, &s.config), 0);
	s.config.bearer = "another";
	assert_int_equal(ping_with(f, &s.config), -EACCES);
	s.config.bearer = NULL;
	assert_int_equal(ping_with(f, &s.config), -EACCES);
	s.config.api_key = "another";
	assert_int_equal(ping_with(f, &s.config), -EACCES);
	s.config.api_key = key;
	assert_int_equal(ping_with(f, &s.config), 0);
	/* With every request, those of the probe too. */
	assert_int_equal(sandbox_new(f->loop, &s.config, &sb, NULL), 0);
	assert_int_equal(SYNC(sb, sandbox_context, &info), 0);
	assert_string_equal(info.dialect, f->dialect);
	sandbox_info_release(&info);
	sandbox_unref(sb);
	stop_secured(&s);
}

static void test_credentials_have_no_control_characters(void **state)
{
	struct fixture *f = *state;
	struct sandbox_config config = { .url = "http://localhost", .bearer = "a\r\nX: y" };
	const char *why = NULL;
	struct sandbox *sb;

	assert_int_equal(sandbox_new(f->loop, &config, &sb, &why), -EINVAL);
	assert_non_null(why);
	assert_null(strstr(why, "X: y"));
}

/* Everything the library says of itself, while things go well and badly. */
static void provoke(struct fixture *f, struct secured *s, char *words, size_t size)
{
	static const char *const paths[] = { "/etc/passwd", "/mnt/user-data/missing" };
	struct sandbox_info info = { 0 };
	struct sandbox *sb = NULL;
	struct buf text CLEANUP_BUF = BUF_INIT(0);

	if (sandbox_new(f->loop, &s->config, &sb, NULL) < 0)
		return;
	if (SYNC(sb, sandbox_context, &info) == 0)
		sandbox_info_release(&info);
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		struct call call;

		call_init(&call, 30000);
		sandbox_read_file(sb, &call, paths[i], 0, 0, &text);
		if (call_wait(&call) < 0)
			snprintf(words + strlen(words), size - strlen(words), "%s\n",
				 call.message ?: "");
		call_release(&call);
	}
	rogue_refuse(s->rogue, 1);
	rogue_close_connections(s->rogue, false);
	SYNC(sb, sandbox_ping);
	sandbox_unref(sb);
}

static void test_credentials_are_not_logged(void **state)
{
	struct fixture *f = *state;
	char logged[16384] = "", words[4096] = "";
	int file CLEANUP_FD = memfd_create("log", MFD_CLOEXEC);
	int err CLEANUP_FD = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	struct secured s;

	start_secured(&s, f);
	s.config.bearer = s.config.api_key = key;
	log_set_level(LOG_DEBUG);
	assert_true(dup2(file, STDERR_FILENO) >= 0);
	provoke(f, &s, words, sizeof(words));
	s.config.bearer = s.config.api_key = "kN9-another";
	provoke(f, &s, words, sizeof(words));
	assert_true(dup2(err, STDERR_FILENO) >= 0);
	stop_secured(&s);
	assert_true(pread(file, logged, sizeof(logged) - 1, 0) > 0); /* of /etc/passwd */
	assert_non_null(strstr(words, "missing"));
	assert_null(strstr(logged, "kN9"));
	assert_null(strstr(words, "kN9"));
}

#define PROXY_TEST(t) cmocka_unit_test_setup_teardown(t, fixture_setup, unset_proxy)

int main(void)
{
	const struct CMUnitTest tests[] = {
		PROXY_TEST(test_local_sandbox_client_bypasses_environment_proxy),
		PROXY_TEST(test_external_sandbox_client_keeps_environment_proxy_support),
		PROXY_TEST(test_wait_for_sandbox_ready_bypasses_environment_proxy_for_docker_host),
		FIXTURE_TEST(test_tls_is_verified),
		FIXTURE_TEST(test_credentials_are_sent),
		FIXTURE_TEST(test_credentials_have_no_control_characters),
		FIXTURE_TEST(test_credentials_are_not_logged),
	};

	return FIXTURE_RUN(tests);
}
