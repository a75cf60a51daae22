/* The container that the engine is to make, as its API wants it. Pure. */
#pragma once

#include "backend_docker.h"
#include "buf.h"

struct docker_spec {
	const char *image, *bind_host;
	const char *network; /* NULL: the engine's default */
	unsigned port;       /* outside */
	unsigned stop_timeout_s;
	const char *user, *thread, *maker;
	const struct docker_mount *mounts; /* sandbox.mounts */
	size_t nmounts;
	const struct docker_env *environment;
	size_t nenvironment;
	const char *thread_dir; /* as the engine sees it; NULL: no directories of the thread */
};
/* Appends the body of POST /containers/create. Holds secrets. */
int docker_put_spec(struct buf *to, const struct docker_spec *s) MUST_CHECK;

/* The value that a variable of the configuration stands for; "" if that is not set. */
const char *docker_env_value(const struct docker_env *e);
/* Appends "NAME NAME …": all that a log may have of them. */
void docker_put_env_names(struct buf *to, const struct docker_env *env, size_t n);
