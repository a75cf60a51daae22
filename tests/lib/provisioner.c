/* See the header. */
#include "provisioner.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "jsonw.h"
#include "request.h"

enum { ANSWER_MS = 20000 };

static void die(const char *what)
{
	fprintf(stderr, "the provisioner: %s: %s\n", what, strerror(errno));
	abort();
}

static void run(const struct provisioner_server *s, const char *key, int out)
{
	const char *script = getenv("PROVISIONER"), *sandboxd = getenv("SANDBOXD");
	const char *dialect = getenv("TFS_DIALECT") ?: "aiod";

	prctl(PR_SET_PDEATHSIG, SIGTERM);
	dup2(out, STDOUT_FILENO);
	if (key)
		setenv("PROVISIONER_API_KEY", key, 1);
	else
		unsetenv("PROVISIONER_API_KEY");
	if (script && sandboxd)
		execlp("python3", "python3", script, "--data", s->dir, "--sandboxd", sandboxd,
		       "--dialect", dialect, NULL);
	_exit(127);
}

static void read_url(struct provisioner_server *s, int fd)
{
	FILE *f = fdopen(fd, "r");

	if (!f || fscanf(f, "ready on %63s", s->url) != 1)
		die("it did not start (are $PROVISIONER and $SANDBOXD set?)");
	fclose(f);
}

void provisioner_server_start(struct provisioner_server *s, struct loop *loop, const char *key)
{
	struct sandbox_config config = { .root = "/" };
	int fds[2];

	if (!scratch_dir(s->dir) || pipe(fds) < 0 || (s->pid = fork()) < 0)
		die("cannot be started");
	if (s->pid == 0)
		run(s, key, fds[1]);
	close(fds[1]);
	read_url(s, fds[0]);
	config.url = s->url;
	if (sandbox_new(loop, &config, &s->client, NULL) < 0)
		die("no client");
}

void provisioner_server_signal(struct provisioner_server *s, int sig)
{
	if (kill(s->pid, sig) < 0)
		die("cannot be told");
}

void provisioner_server_stop(struct provisioner_server *s)
{
	sandbox_unref(STEAL(s->client));
	if (s->pid > 0) {
		kill(s->pid, SIGCONT);
		kill(s->pid, SIGTERM);
		waitpid(s->pid, NULL, 0);
		s->pid = 0;
	}
	if (s->dir[0] && !scratch_remove(s->dir))
		die("its directory stays");
}

static void ask(struct provisioner_server *s, const char *method, const char *target,
		const struct buf *body, struct response *ret)
{
	struct call c;
	int r;

	call_init(&c, ANSWER_MS);
	sandbox_request(s->client, &c,
			&(struct request){ .method = method,
					   .target = target,
					   .json = body ? body->data : NULL,
					   .len = body ? body->len : 0 },
			ret);
	r = call_wait(&c);
	call_release(&c);
	errno = -r;
	if (r < 0 || ret->status != 200)
		die(target);
}

void provisioner_server_order(struct provisioner_server *s, const char *id, const char *what)
{
	struct buf body CLEANUP_BUF = BUF_INIT(0);
	struct response r CLEANUP_RESPONSE = { 0 };
	char target[80];
	struct jw w;

	jw_init(&w, &body);
	jw_obj(&w);
	jw_kstr(&w, "do", what);
	jw_obj_end(&w);
	snprintf(target, sizeof(target), "/test/pods/%s", id);
	ask(s, "POST", target, &body, &r);
}

static void rule(struct provisioner_server *s, const char *method, int status, const char *text,
		 double delay)
{
	struct buf body CLEANUP_BUF = BUF_INIT(0);
	struct response r CLEANUP_RESPONSE = { 0 };
	struct jw w;

	jw_init(&w, &body);
	jw_obj(&w);
	jw_kstr(&w, "method", method);
	jw_kstr(&w, "path", "/");
	jw_kint(&w, "status", status);
	jw_kstr(&w, "body", text);
	jw_knum(&w, "delay", delay);
	jw_obj_end(&w);
	ask(s, "POST", "/test/say", &body, &r);
}

void provisioner_server_say(struct provisioner_server *s, const char *method, int status,
			    const char *body)
{
	rule(s, method, status, body, 0);
}

void provisioner_server_delay(struct provisioner_server *s, const char *method, double seconds)
{
	rule(s, method, 0, "", seconds);
}

char *provisioner_server_requests(struct provisioner_server *s)
{
	struct response r CLEANUP_RESPONSE = { 0 };

	ask(s, "GET", "/test/requests", NULL, &r);
	return STEAL(r.body.data);
}
