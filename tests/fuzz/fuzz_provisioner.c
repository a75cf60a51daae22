/*
 * What a provisioner answers: it is believed about where a sandbox is, but not that this is a
 * link-local address, and of no other sandbox. The first byte is added to 200 for the status.
 */
#include <arpa/inet.h>
#include <assert.h>
#include <curl/curl.h>
#include <errno.h>
#include <string.h>

#include "provisioner_answer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char id[] = "0123456789abcdef";

static char *part(CURLU *url, CURLUPart what)
{
	char *text = NULL;

	return curl_url_get(url, what, &text, 0) == CURLUE_OK ? text : NULL;
}

/* An address as inet_aton() takes it is one to libcurl, too: as short as "169.16689662". */
static void check_host(char *host)
{
	struct in_addr v4;
	struct in6_addr v6;
	size_t len = strlen(host);

	assert(len > 0);
	if (len > 1 && host[len - 1] == '.')
		host[--len] = '\0';
	if (inet_aton(host, &v4))
		assert(ntohl(v4.s_addr) >> 16 != 0xa9fe);
	if (host[0] != '[')
		return;
	host[len - 1] = '\0';
	host[1 + strcspn(host + 1, "%")] = '\0';
	if (inet_pton(AF_INET6, host + 1, &v6) != 1)
		return;
	assert(!IN6_IS_ADDR_LINKLOCAL(&v6));
	assert(!IN6_IS_ADDR_V4MAPPED(&v6) || v6.s6_addr[12] != 169 || v6.s6_addr[13] != 254);
}

/* By what libcurl understands, not by the code that is being checked. */
static void check_url(const char *text)
{
	CURLU *url = curl_url();
	char *scheme, *host;

	assert(url && curl_url_set(url, CURLUPART_URL, text, 0) == CURLUE_OK);
	for (const char *c = text; *c; c++)
		assert((unsigned char)*c > 0x20 && *c != 0x7f);
	scheme = part(url, CURLUPART_SCHEME);
	host = part(url, CURLUPART_HOST);
	assert(scheme && (strcmp(scheme, "http") == 0 || strcmp(scheme, "https") == 0));
	assert(host);
	check_host(host);
	assert(!part(url, CURLUPART_USER) && !part(url, CURLUPART_PASSWORD));
	assert(!part(url, CURLUPART_QUERY) && !part(url, CURLUPART_FRAGMENT));
	curl_free(scheme);
	curl_free(host);
	curl_url_cleanup(url);
}

/* They modify what they read. */
static void copy_answer(struct response *r, int status, const uint8_t *data, size_t size)
{
	*r = (struct response){ .status = status, .body = BUF_INIT(0) };
	if (size > 0)
		assert(buf_append(&r->body, data, size) == 0);
}

static void read_one(struct response *r)
{
	enum provisioner_health health = 99;
	const char *why = NULL;
	char *url CLEANUP_FREE = NULL;
	int err = provisioner_read_one(r, id, &url, &health, &why);

	assert(err == 0 || err == -EBADMSG);
	if (err < 0) {
		assert(why && !url);
		return;
	}
	assert(health <= PROVISIONER_UNSURE);
	check_url(url);
}

static void read_list(struct response *r)
{
	struct place *places = NULL;
	const char *why = NULL;
	size_t n = 0;
	int err = provisioner_read_list(r, &places, &n, &why);

	assert(err == 0 || err == -EBADMSG);
	assert(err == 0 || (why && !places && n == 0));
	for (size_t i = 0; i < n; i++) {
		assert(places[i].id[0] && strlen(places[i].id) <= SANDBOX_ID_LEN);
		assert(!places[i].socket && !places[i].root && !places[i].user);
		check_url(places[i].url);
		place_release(&places[i]);
	}
	free(places);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct response r;
	int status;

	if (size < 1)
		return 0;
	status = 200 + data[0];
	copy_answer(&r, status, data + 1, size - 1);
	read_one(&r);
	response_release(&r);
	copy_answer(&r, status, data + 1, size - 1);
	read_list(&r);
	response_release(&r);
	copy_answer(&r, status, data + 1, size - 1);
	assert(!provisioner_says_gone(&r) || status == 404);
	response_release(&r);
	return 0;
}
