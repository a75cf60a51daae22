/*
 * Sandboxes that deer-flow's provisioner runs as pods of Kubernetes: it makes,
 * finds, lists and removes them by its HTTP API, and says at which URL each is
 * (a NodePort of some host, or a ClusterIP's name; to us both are just URLs).
 */
#pragma once

#include "backend.h"

/* A directory of the provisioner's host that a new pod is to have. */
struct provisioner_mount {
	const char *host_path, *container_path;
	bool read_only;
};

struct provisioner_config {
	const char *url;     /* http(s)://HOST:8002 */
	const char *api_key; /* X-API-Key; NULL: none is sent, as to provisioners of old */
	const char *cacert;  /* as in struct sandbox_config */
	bool insecure;
	/* Only those at paths that a provisioner knows how to serve are sent. */
	const struct provisioner_mount *mounts;
	size_t nmounts;
};

/* Everything is copied. Returns 0, or a negative errno with ret_why (static). */
int backend_provisioner_new(struct loop *loop, const struct provisioner_config *config,
			    struct backend **ret, const char **ret_why) MUST_CHECK;

/*
 * Asks it for its list: 0, or a negative errno with words (for the caller to free). Blocks up
 * to 10 s; not on the loop's thread.
 */
int backend_provisioner_check(struct backend *b, char **ret_why) MUST_CHECK;
