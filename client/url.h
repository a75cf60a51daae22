/* Addresses of sandboxes: checking them, and which go past a proxy. Pure. */
#pragma once

#include "util.h"

/*
 * Checks and tidies a base URL: http or https, a host, no user, password,
 * query or fragment, no control characters; drops trailing slashes. A path
 * prefix is kept. Returns 0 (ret_url to be freed), -EINVAL with ret_why (static), -ENOMEM.
 */
int url_tidy(const char *url, char **ret_url, const char **ret_why) MUST_CHECK;

/*
 * Whether proxies are to be ignored for this URL: loopback, private and
 * link-local addresses, names without a dot, localhost, *.localhost,
 * *.docker.internal, *.containers.internal, and the names of a Kubernetes
 * cluster, *.svc and *.cluster.local. Case does not matter, a trailing dot
 * neither; IPv4-mapped IPv6 counts as its IPv4.
 */
bool url_is_local(const char *url);

/* Whether the host is a link-local address: there cloud machines find their credentials. */
bool url_is_link_local(const char *url);
/* The same of what a name turned out to be. */
struct sockaddr;
bool url_address_is_link_local(const struct sockaddr *a);

/* Appends s percent-encoded (all but A-Z a-z 0-9 - . _ ~ and /). */
struct buf;
int url_escape(struct buf *to, const char *s, size_t len) MUST_CHECK;
