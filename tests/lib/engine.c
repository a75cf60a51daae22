/* See engine.h. */
#include "engine.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "clock.h"
#include "io.h"
#include "request.h"

static void read_pid(struct engine *e)
{
	char path[256];
	FILE *f;
	int pid = 0;

	snprintf(path, sizeof(path), "%s/pid", e->dir);
	f = fopen(path, "re");
	assert_non_null(f);
	assert_int_equal(fscanf(f, "%d", &pid), 1);
	fclose(f);
	e->pid = pid;
}

static void connect_api(struct engine *e)
{
	const char *socket = getenv("DOCKER_HOST") + strlen("unix://");
	struct sandbox_config c = { .socket = socket, .root = "/", .label = "the test" };

	assert_int_equal(sandbox_new(e->loop, &c, &e->api, NULL), 0);
}

bool engine_open(struct engine *e, struct loop *loop)
{
	*e = (struct engine){
		.loop = loop,
		.image = getenv("ENGINE_IMAGE"),
		.dir = getenv("ENGINE_DIR"),
	};
	if (!e->image || !e->dir || !getenv("DOCKER_HOST"))
		return false;
	read_pid(e);
	connect_api(e);
	return true;
}

void engine_close(struct engine *e)
{
	sandbox_unref(e->api);
	e->api = NULL;
}

int engine_ask(struct engine *e, const char *method, const char *target, const char *body,
	       cJSON **ret_json)
{
	struct response response CLEANUP_RESPONSE = { 0 };
	struct request request = {
		.method = method,
		.target = target,
		.json = body,
		.len = body ? strlen(body) : 0,
		.slow = true,
		.answer_max = 4 << 20,
	};
	struct call call;
	int r;

	call_init(&call, 60000);
	sandbox_request(e->api, &call, &request, &response);
	r = call_wait(&call);
	if (r < 0)
		fail_msg("the engine does not answer: %s", call.message ?: strerror(-r));
	call_release(&call);
	if (ret_json) {
		*ret_json = NULL;
		if (response.body.len > 0 &&
		    json_parse(response.body.data, response.body.len, ret_json, NULL) < 0)
			*ret_json = NULL;
	}
	return response.status;
}

void engine_make(struct engine *e, const char *name, unsigned port, const char *command)
{
	char body[1024], target[256], ports[128] = "";

	if (port > 0)
		snprintf(ports, sizeof(ports),
			 "\"8080/tcp\":[{\"HostIp\":\"127.0.0.1\",\"HostPort\":\"%u\"}]", port);
	snprintf(body, sizeof(body),
		 "{\"Image\":\"%s\"%s%s,\"ExposedPorts\":{\"8080/tcp\":{}},"
		 "\"HostConfig\":{\"AutoRemove\":true,\"PortBindings\":{%s}}}",
		 e->image, command ? ",\"Cmd\":" : "", command ?: "", ports);
	snprintf(target, sizeof(target), "/v1.41/containers/create?name=%s", name);
	assert_int_equal(engine_ask(e, "POST", target, body, NULL), 201);
}

void engine_run(struct engine *e, const char *name, unsigned port, const char *command)
{
	char target[256];

	engine_make(e, name, port, command);
	snprintf(target, sizeof(target), "/v1.41/containers/%s/start", name);
	assert_int_equal(engine_ask(e, "POST", target, NULL, NULL), 204);
}

cJSON *engine_inspect(struct engine *e, const char *name)
{
	char target[256];
	cJSON *root = NULL;
	int status;

	snprintf(target, sizeof(target), "/v1.41/containers/%s/json", name);
	status = engine_ask(e, "GET", target, NULL, &root);
	if (status == 200)
		return root;
	assert_int_equal(status, 404);
	cJSON_Delete(root);
	return NULL;
}

static const cJSON *state_of(const cJSON *root, const char *key)
{
	return cJSON_GetObjectItem(cJSON_GetObjectItem(root, "State"), key);
}

bool engine_runs(struct engine *e, const char *name)
{
	cJSON *root CLEANUP_JSON = engine_inspect(e, name);

	return root && cJSON_IsTrue(state_of(root, "Running"));
}

void engine_kill(struct engine *e, const char *name)
{
	cJSON *root CLEANUP_JSON = engine_inspect(e, name);
	int64_t end = clock_ms() + 30000;

	assert_non_null(root);
	assert_int_equal(kill(state_of(root, "Pid")->valueint, SIGKILL), 0);
	while (engine_runs(e, name))
		assert_true(clock_ms() < end);
}

void engine_remove(struct engine *e, const char *name)
{
	char target[256];

	snprintf(target, sizeof(target), "/v1.41/containers/%s?force=true", name);
	engine_ask(e, "DELETE", target, NULL, NULL);
}

int engine_count(struct engine *e)
{
	cJSON *root CLEANUP_JSON = NULL;

	assert_int_equal(engine_ask(e, "GET", "/v1.41/containers/json?all=true", NULL, &root), 200);
	return cJSON_GetArraySize(root);
}

static void run_script(const char *word)
{
	const char *script = getenv("ENGINE");
	pid_t pid = fork();
	int status = 0;

	if (pid == 0) {
		if (script)
			execl(script, script, word, (char *)NULL);
		_exit(127);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

void engine_stop(struct engine *e)
{
	engine_close(e);
	run_script("stop");
}

void engine_start(struct engine *e)
{
	run_script("start");
	read_pid(e);
	connect_api(e);
}

unsigned engine_requests(struct engine *e, const char *words)
{
	char path[256], line[4096];
	unsigned n = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/log", e->dir);
	f = fopen(path, "re");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		n += strstr(line, words) != NULL;
	fclose(f);
	return n;
}
