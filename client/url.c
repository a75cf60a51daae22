/* See url.h. Parsing is libcurl's own, so that what is checked is what is used. Any thread. */
#include "url.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <errno.h>
#include <string.h>
#include <strings.h>

#include "buf.h"

enum { URL_BYTES_MAX = 2048 };

static void cleanup_curlu(CURLU **u)
{
	curl_url_cleanup(*u);
}

static void cleanup_curl_string(char **s)
{
	curl_free(*s);
}

/* What a URL may not look like, before anybody parses it; NULL if fine. */
static const char *bad_look(const char *url)
{
	const char *host;

	if (strlen(url) > URL_BYTES_MAX)
		return "the URL is too long";
	for (const char *s = url; *s; s++)
		if ((unsigned char)*s <= ' ' || *s == 0x7f)
			return "the URL holds a blank or a control character";
	if (strncasecmp(url, "http://", 7) == 0)
		host = url + 7;
	else if (strncasecmp(url, "https://", 8) == 0)
		host = url + 8;
	else
		return "the URL does not start with http:// or https://";
	if (strchr("/?#:", *host)) /* libcurl would look behind further slashes */
		return "the URL has no host";
	if (strpbrk(url, "?#"))
		return "the URL has a query or a fragment";
	return NULL;
}

static const char *parse(const char *url, CURLU *u)
{
	const char *bad = bad_look(url);
	CURLUcode r;

	if (bad)
		return bad;
	r = curl_url_set(u, CURLUPART_URL, url, CURLU_DISALLOW_USER);
	if (r == CURLUE_USER_NOT_ALLOWED)
		return "the URL holds a user or a password";
	return r == CURLUE_OK ? NULL : curl_url_strerror(r);
}

int url_tidy(const char *url, char **ret_url, const char **ret_why)
{
	CURLU *u CLEANUP(cleanup_curlu) = curl_url();
	char *tidy CLEANUP(cleanup_curl_string) = NULL;
	const char *why;
	char *copy;
	size_t len;

	if (!u)
		return -ENOMEM;
	why = parse(url, u);
	if (why) {
		*ret_why = why;
		return -EINVAL;
	}
	if (curl_url_get(u, CURLUPART_URL, &tidy, 0) != CURLUE_OK)
		return -ENOMEM;
	len = strlen(tidy);
	while (tidy[len - 1] == '/') /* the host stops it */
		len--;
	tidy[len] = '\0';
	copy = strdup(tidy);
	if (!copy)
		return -ENOMEM;
	*ret_url = copy;
	return 0;
}

static bool is_local_v4(uint32_t ip)
{
	static const struct {
		uint32_t net;
		unsigned bits;
	} nets[] = {
		{ 0x00000000, 8 },  /* this host */
		{ 0x0a000000, 8 },  /* 10.0.0.0 */
		{ 0x7f000000, 8 },  /* loopback */
		{ 0xa9fe0000, 16 }, /* link-local: 169.254.0.0 */
		{ 0xac100000, 12 }, /* 172.16.0.0 */
		{ 0xc0a80000, 16 }, /* 192.168.0.0 */
	};

	for (size_t i = 0; i < ARRAY_SIZE(nets); i++)
		if ((ip ^ nets[i].net) >> (32 - nets[i].bits) == 0)
			return true;
	return false;
}

static bool is_local_v6(const struct in6_addr *ip)
{
	const uint8_t *b = ip->s6_addr;

	if (IN6_IS_ADDR_V4MAPPED(ip))
		return is_local_v4((uint32_t)b[12] << 24 | b[13] << 16 | b[14] << 8 | b[15]);
	return IN6_IS_ADDR_LOOPBACK(ip) || IN6_IS_ADDR_UNSPECIFIED(ip) ||
	       IN6_IS_ADDR_LINKLOCAL(ip) || (b[0] & 0xfe) == 0xfc;
}

static bool is_local_name(const char *name)
{
	static const char *const domains[] = { ".localhost", ".docker.internal",
					       ".containers.internal", ".svc", ".cluster.local" };
	size_t len = strlen(name);

	if (!strchr(name, '.'))
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(domains); i++) {
		size_t tail = strlen(domains[i]);

		if (len > tail && strcasecmp(name + len - tail, domains[i]) == 0)
			return true;
	}
	return false;
}

static void map_v4(const struct in_addr *v4, struct in6_addr *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->s6_addr[10] = ret->s6_addr[11] = 0xff;
	memcpy(&ret->s6_addr[12], v4, sizeof(*v4));
}

/* The host of a URL: IPv4 as a mapped IPv6 in *ret, or its name for the caller to curl_free(). */
static bool find_host(const char *url, struct in6_addr *ret, char **ret_name)
{
	CURLU *u CLEANUP(cleanup_curlu) = curl_url();
	char *host CLEANUP(cleanup_curl_string) = NULL;
	struct in_addr v4;
	size_t len;

	if (!u || curl_url_set(u, CURLUPART_URL, url, 0) != CURLUE_OK ||
	    curl_url_get(u, CURLUPART_HOST, &host, 0) != CURLUE_OK)
		return false;
	len = strlen(host);
	if (len > 1 && host[len - 1] == '.')
		host[--len] = '\0';
	if (host[0] == '[') {
		host[len - 1] = '\0';
		return inet_pton(AF_INET6, host + 1, ret) == 1;
	}
	if (inet_pton(AF_INET, host, &v4) == 1) {
		map_v4(&v4, ret);
		return true;
	}
	*ret_name = STEAL(host);
	return true;
}

bool url_is_local(const char *url)
{
	char *name CLEANUP(cleanup_curl_string) = NULL;
	struct in6_addr ip;

	if (!find_host(url, &ip, &name))
		return false;
	return name ? is_local_name(name) : is_local_v6(&ip);
}

static bool is_link_local(const struct in6_addr *ip)
{
	return IN6_IS_ADDR_LINKLOCAL(ip) ||
	       (IN6_IS_ADDR_V4MAPPED(ip) && ip->s6_addr[12] == 169 && ip->s6_addr[13] == 254);
}

bool url_is_link_local(const char *url)
{
	char *name CLEANUP(cleanup_curl_string) = NULL;
	struct in6_addr ip;

	if (!find_host(url, &ip, &name) || name)
		return false;
	return is_link_local(&ip);
}

bool url_address_is_link_local(const struct sockaddr *a)
{
	struct sockaddr_in6 v6;
	struct sockaddr_in v4;

	if (a->sa_family == AF_INET6) {
		memcpy(&v6, a, sizeof(v6));
	} else if (a->sa_family == AF_INET) {
		memcpy(&v4, a, sizeof(v4));
		map_v4(&v4.sin_addr, &v6.sin6_addr);
	} else {
		return false;
	}
	return is_link_local(&v6.sin6_addr);
}

int url_escape(struct buf *to, const char *s, size_t len)
{
	for (size_t i = 0; i < len && !to->error; i++) {
		unsigned char c = (unsigned char)s[i];
		bool plain = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
			     (c >= '0' && c <= '9') || (c && strchr("-._~/", c));

		if (plain)
			buf_putc(to, (char)c);
		else
			buf_printf(to, "%%%02X", c);
	}
	return to->error;
}
