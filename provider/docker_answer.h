/*
 * What an engine's answers say: of one container, of a list of them, of why it
 * refused something, of an image on its way. Docker's words and Podman's. Pure.
 */
#pragma once

#include "buf.h"
#include "json.h"

/* On what we make, so that a later life knows it again. Nobody else's have them. */
#define DOCKER_LABEL_USER   "threadfs.user"
#define DOCKER_LABEL_THREAD "threadfs.thread"
#define DOCKER_LABEL_MAKER  "threadfs.maker"

enum { DOCKER_INNER_PORT = 8080 };

struct container {
	char *key;  /* its Id */
	char *name; /* without the slash */
	bool running;
	bool unborn;                 /* made, and never started */
	unsigned port;               /* where its port 8080 is; 0: nowhere */
	double created;              /* seconds; 0: not known */
	char *user, *thread, *maker; /* from the labels; NULL: not ours */
};
void container_release(struct container *c);
#define CLEANUP_CONTAINER CLEANUP(container_release)

/* From GET /containers/NAME/json: 0, -EBADMSG, -ENOMEM. */
int container_from_inspect(const cJSON *root, struct container *ret) MUST_CHECK;
/* From one item of GET /containers/json. */
int container_from_list(const cJSON *item, struct container *ret) MUST_CHECK;
/* What follows "PREFIX-" in a container's name if that can be an id, else NULL. */
const char *container_id(const char *name, const char *prefix);
/* Marks those of the n ports from `first` that a container of the list (an array) has. */
void docker_mark_ports(const cJSON *list, unsigned first, bool *taken, size_t n);

/* RFC 3339 with or without a fraction, as seconds; 0 for anything else and for year 1. */
double docker_time(const char *text);

/* The API to speak, 1.N: the engine's newest that is not above max, unless its oldest is. -1: none.
 */
int docker_api(const char *newest, const char *oldest, int max);

/* Why it refused, by status and words (may be NULL). */
enum docker_refusal {
	DOCKER_REFUSED, /* for none of the reasons below */
	DOCKER_GONE,    /* no such container: the only proof that one is not there */
	DOCKER_NO_IMAGE,
	DOCKER_NAME_TAKEN,
	DOCKER_PORT_TAKEN,
	DOCKER_BUSY, /* it is being removed already */
};
enum docker_refusal docker_refusal(int status, const char *words);

/* Appends "fromImage=…&tag=…" for a reference such as host:5000/a/b:tag or a@sha256:…. */
int docker_put_pull(struct buf *to, const char *image) MUST_CHECK;

/* ---- an image on its way ---- */

enum { DOCKER_LAYERS_MAX = 256 };

struct docker_progress {
	struct {
		char id[24];
		double current, total;
	} layers[DOCKER_LAYERS_MAX];
	size_t nlayers;
	char status[80]; /* the last words */
	char *error;     /* it has failed, and why */
};
void docker_progress_release(struct docker_progress *p);
/* One line of the answer (modified); nonsense is ignored. */
void docker_progress_line(struct docker_progress *p, char *line, size_t len);
/* Appends "12 of 340 MB" or what else is known. */
void docker_progress_put(const struct docker_progress *p, struct buf *to);
