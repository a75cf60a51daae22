/*
 * One given sandbox, by its URL, for one thread. It is somebody else's: it can
 * be found, never made or stopped.
 */
#pragma once

#include "backend.h"
#include "sandbox.h"

struct url_config {
	struct sandbox_config sandbox; /* url or socket and credentials; root NULL: see below */
	const char *user, *thread;     /* whose sandbox it is */
	const char *id;                /* the provider's id for them */
};

/*
 * Without a root: /mnt/user-data if the sandbox has it, else its home directory;
 * asked for at every discover. Returns 0, or a negative errno with ret_why (static).
 */
int backend_url_new(struct loop *loop, const struct url_config *config, struct backend **ret,
		    const char **ret_why) MUST_CHECK;
