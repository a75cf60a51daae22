/*
 * The container engine that tests/lib/engine.sh runs a test beside: its API as somebody
 * else would use it, and its server's life. Main thread only; aborts the test with a word.
 */
#pragma once

#include "json.h"
#include "loop.h"

struct engine {
	struct loop *loop;
	struct sandbox *api;
	const char *image, *dir; /* of the environment */
	pid_t pid;               /* of its server */
};

/* False: there is none (engine.sh was not used). */
bool engine_open(struct engine *e, struct loop *loop);
void engine_close(struct engine *e);

/* One request: its status; ret_json (may be NULL) is to be deleted. */
int engine_ask(struct engine *e, const char *method, const char *target, const char *body,
	       cJSON **ret_json);
/*
 * Makes and starts a container as another program would, with no label and, if port is
 * not 0, with its port 8080 there. command is a JSON array, or NULL for the sandbox.
 */
void engine_run(struct engine *e, const char *name, unsigned port, const char *command);
/* The same without starting it. */
void engine_make(struct engine *e, const char *name, unsigned port, const char *command);
/* What is known of it; NULL if it is not there. To be deleted. */
cJSON *engine_inspect(struct engine *e, const char *name);
bool engine_runs(struct engine *e, const char *name);
/* kill -9 of its first process, and waits until the engine knows. */
void engine_kill(struct engine *e, const char *name);
void engine_remove(struct engine *e, const char *name);
/* How many containers there are, in whatever state. */
int engine_count(struct engine *e);

/* Ends the server (SIGKILL), and starts it again; its containers run on. */
void engine_stop(struct engine *e);
void engine_start(struct engine *e);
/* How many requests the server has logged that contain such words. */
unsigned engine_requests(struct engine *e, const char *words);
