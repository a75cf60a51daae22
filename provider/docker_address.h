/*
 * Addresses: where the engine is, and at which addresses the ports of its
 * containers are bound and reached. Pure, but for docker_find_engine().
 */
#pragma once

#include "buf.h"

struct docker_address {
	char *socket; /* of an engine on this machine, or */
	char *url;    /* http://HOST:PORT */
	char *host;   /* of the URL, without brackets; NULL with a socket */
};
void docker_address_release(struct docker_address *a);
#define CLEANUP_DOCKER_ADDRESS CLEANUP(docker_address_release)

/*
 * From what DOCKER_HOST may say: unix:///PATH, tcp://HOST[:PORT], http://HOST:PORT, or a path.
 * Returns 0, or -EINVAL, -EOPNOTSUPP with words in why.
 */
int docker_parse_address(const char *text, struct docker_address *ret, struct buf *why) MUST_CHECK;
/*
 * The engine that `given` names (NULL: $DOCKER_HOST), else the first of the usual sockets of
 * Docker and Podman at which somebody listens, root's or the user's own. Returns 0, or a negative
 * errno with one line in why. Does not wait.
 */
int docker_find_engine(const char *given, struct docker_address *ret, struct buf *why) MUST_CHECK;

/*
 * deer-flow's rule: what is given explicitly; else loopback for a host that is this
 * machine, of its family; else every address. Without brackets, as the engine wants it. reason
 * (static) says why, for the log.
 */
const char *docker_bind_host(const char *host, const char *given, const char **reason);
/* Appends http://HOST:PORT for a port that is bound so. */
void docker_put_url(struct buf *to, const char *host, const char *bind_host, unsigned port);
