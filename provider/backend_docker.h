/*
 * Sandboxes in containers of Docker or Podman, one per thread, through the
 * engine's own API: no program of theirs is run. Containers are named and made
 * as deer-flow does, so that either finds the other's:
 *
 *	<prefix>-<sandbox id>, port 8080 of it at <bind_host>:<port and up>
 *
 * They outlive this program. What it made bears labels that say so; what it did
 * not make it never stops unless somebody asks for exactly that.
 */
#pragma once

#include "backend.h"

#define DOCKER_IMAGE                                                                               \
	"enterprise-public-cn-beijing.cr.volces.com/vefaas-public/all-in-one-sandbox:latest"
#define DOCKER_PREFIX "deer-flow-sandbox"
enum {
	DOCKER_PORT = 8080,       /* inside, and the first one tried outside */
	DOCKER_STOP_TIMEOUT = 10, /* seconds; also the most: the provider waits no longer */
};

struct docker_mount {
	char *source; /* absolute, as the engine sees it */
	char *target; /* absolute, in the container */
	bool read_only;
};

struct docker_env {
	char *name;
	char *value; /* "$NAME": that variable of our own environment, "" if it is not set */
};

/*
 * All that the command line and a config file can say. Zeroes and NULL are the
 * defaults. Everything is copied.
 */
struct docker_config {
	const char *engine;  /* unix:///PATH or tcp://HOST:PORT; NULL: $DOCKER_HOST, else the usual
				sockets of Docker and Podman */
	const char *image;   /* NULL: DOCKER_IMAGE */
	const char *prefix;  /* sandbox.container_prefix; NULL: DOCKER_PREFIX */
	const char *network; /* of the engine's; NULL: its default */
	unsigned port;       /* sandbox.port, the first one tried; 0: DOCKER_PORT */
	const char *host;    /* at which ports are reached; NULL: $DEER_FLOW_SANDBOX_HOST, else this
				machine */
	const char *bind_host;   /* NULL: $DEER_FLOW_SANDBOX_BIND_HOST, else loopback for a local
				    `host` and every address for any other */
	unsigned stop_timeout_s; /* between asking it to end and killing it; 0: the default */

	const struct docker_mount *mounts; /* sandbox.mounts */
	size_t nmounts;
	const struct docker_env *environment; /* sandbox.environment */
	size_t nenvironment;

	/*
	 * The data root (paths.h): a thread's directories there are mounted at
	 * /mnt/user-data/{workspace,uploads,outputs} and, read-only, /mnt/acp-workspace.
	 */
	const char *data;      /* absolute; NULL: none */
	const char *host_data; /* what the engine calls it; NULL: $DEER_FLOW_HOST_BASE_DIR, else
				  the same */
	bool no_thread_mounts; /* sandbox.thread_data_mounts: false */
	const char *root;      /* of the view; NULL: /mnt/user-data */

	const char *runtime; /* for locks, absolute; NULL: paths_runtime() */
};

/*
 * Asks the engine whether it is there. Returns 0, or a negative errno with
 * ret_why in words (for the caller to free). Blocks; not on the loop's thread.
 */
int backend_docker_new(struct loop *loop, const struct docker_config *config, struct backend **ret,
		       char **ret_why) MUST_CHECK;
