/*
 * Where it is written down whose a sandbox is, as deer-flow's config.yaml says it
 * under sandbox.ownership. Plain data: who fills it in (fs/deerflow.c) and who
 * uses it need not know of each other.
 */
#pragma once

#include "util.h"

enum ownership_type {
	OWNERSHIP_MEMORY, /* nowhere: this process knows what it made, and nobody else's */
	OWNERSHIP_REDIS,  /* in a store that deer-flow's gateways and other mounts share */
};

#define OWNERSHIP_KEY_PREFIX "deerflow:sandbox:owner"
enum {
	OWNERSHIP_RENEWAL_S = 30,
	OWNERSHIP_TTL_MULTIPLIER = 4,
	OWNERSHIP_TTL_MULTIPLIER_MIN = 2, /* one missed renewal must not cost the lease */
};

/* A lease lasts renewal_interval_s * ttl_multiplier seconds. */
struct ownership_config {
	enum ownership_type type;
	char *redis_url;           /* of OWNERSHIP_REDIS; may hold a password: never to be shown */
	double renewal_interval_s; /* may be a fraction, as may the next */
	double ttl_multiplier;
	char *key_prefix; /* without colons at its end; NULL: OWNERSHIP_KEY_PREFIX */
};
