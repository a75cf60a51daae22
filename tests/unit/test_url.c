/* Addresses of sandboxes: tidying them, which bypass a proxy, escaping. */
#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cmocka.h>

#include "buf.h"
#include "url.h"

static void good_urls_are_tidied(void **state)
{
	static const char *const rows[][2] = {
		{ "http://localhost:8080", "http://localhost:8080" },
		{ "http://localhost:8080/", "http://localhost:8080" },
		{ "http://h///", "http://h" },
		{ "https://h/prefix", "https://h/prefix" },
		{ "https://h/a/b//", "https://h/a/b" },
		{ "HTTP://h", "http://h" },
		{ "HTTPS://sandbox.example.com:8443", "https://sandbox.example.com:8443" },
		{ "http://[::1]:8080/", "http://[::1]:8080" },
		{ "http://[fe80::1%25eth0]:80", "http://[fe80::1%25eth0]:80" },
		{ "http://127.1", "http://127.0.0.1" },
		{ "http://h/a@b:c", "http://h/a@b:c" },
		{ "http://h:/", "http://h" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char *tidy CLEANUP_FREE = NULL;
		const char *why = NULL;

		assert_int_equal(url_tidy(rows[i][0], &tidy, &why), 0);
		assert_string_equal(tidy, rows[i][1]);
		assert_null(why);
	}
}

static void bad_urls_are_refused(void **state)
{
	static const char *const rows[] = {
		"",
		"h",
		"localhost:8080",
		"/path",
		"ftp://h",
		"file:///etc/passwd",
		"http:h",
		"http:/h",
		"http://",
		"http:///",
		"http:///h",
		"https:///h",
		"http://:80",
		"http://?x",
		"http://user@h",
		"http://user:secret@h",
		"http://@h",
		"http://:@h",
		"http://h?",
		"http://h/?a=b",
		"http://h/#",
		"http://h#x",
		"http://h:99999",
		"http://h:x",
		"http://h:-1",
		"http://[::1",
		"http://[nonsense]",
		"http://a b",
		"http://h/a b",
		" http://h",
		"http://h\n",
		"http://h/\r\nX: y",
		"http://h\t",
		"http://h/\x7f",
		"http://h\\x",
		"http://h%00",
		"http://h%2f@x",
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char untouched[] = "untouched", *tidy = untouched;
		const char *why = NULL;

		if (url_tidy(rows[i], &tidy, &why) != -EINVAL)
			fail_msg("'%s' was taken", rows[i]);
		assert_ptr_equal(tidy, untouched);
		assert_non_null(why);
	}
}

static void long_urls_are_refused(void **state)
{
	char url[4000] = "http://h/", *tidy = NULL;
	const char *why = NULL;

	memset(url + 9, 'x', sizeof(url) - 10);
	url[sizeof(url) - 1] = '\0';
	assert_int_equal(url_tidy(url, &tidy, &why), -EINVAL);
	url[2048] = '\0';
	assert_int_equal(url_tidy(url, &tidy, &why), 0);
	assert_string_equal(tidy, url);
	free(tidy);
}

static void controls_are_refused(void **state)
{
	for (int c = 1; c <= ' '; c++) {
		char url[20], *tidy = NULL;
		const char *why = NULL;

		snprintf(url, sizeof(url), "http://h/%cx", c);
		assert_int_equal(url_tidy(url, &tidy, &why), -EINVAL);
	}
}

static void local_urls_bypass_the_proxy(void **state)
{
	static const char *const rows[] = {
		"http://localhost:8080",
		"http://LOCALHOST.",
		"http://LocalHost:80/x?y#z",
		"http://x.localhost",
		"http://a.b.LOCALHOST:1",
		"http://127.0.0.1",
		"http://127.255.255.255",
		"http://127.0.0.1.",
		"http://[::1]:8080",
		"http://[::]",
		"http://host.docker.internal:8080",
		"http://HOST.Docker.Internal.",
		"http://gateway.docker.internal",
		"http://host.containers.internal",
		"http://a.containers.internal",
		"http://sandbox-0123456789abcdef-svc.deer-flow.svc.cluster.local:8080",
		"http://provisioner.deer-flow.svc:8002",
		"http://Provisioner.Deer-Flow.SVC.",
		"http://192.168.1.5",
		"http://192.168.255.255",
		"http://10.0.0.1",
		"http://10.255.255.255",
		"http://172.16.0.1",
		"http://172.31.255.255",
		"http://169.254.1.1",
		"http://0.0.0.0:8080",
		"http://[fe80::1]",
		"http://[fe80::1%25eth0]:80",
		"http://[febf::1]",
		"http://[fc00::1]",
		"http://[fdff:1::2]",
		"http://[::ffff:127.0.0.1]",
		"http://[::ffff:10.1.2.3]",
		"http://[::FFFF:c0a8:0101]",
		"http://sandbox:8080",
		"http://sandbox.",
		"http://k3s-node",
		"https://k3s-node:443/prefix",
		/* numbers, as libcurl reads them */
		"http://2130706433",
		"http://0x7f000001",
		"http://0177.0.0.1",
		"http://127.1",
		"http://10.1",
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (!url_is_local(rows[i]))
			fail_msg("%s is not local", rows[i]);
}

static void external_urls_keep_the_proxy(void **state)
{
	static const char *const rows[] = {
		"https://sandbox.example.com",
		"http://8.8.8.8",
		"http://134744072", /* the same */
		"http://172.15.255.255",
		"http://172.32.0.1",
		"http://192.167.1.1",
		"http://192.169.0.1",
		"http://11.0.0.1",
		"http://9.255.255.255",
		"http://126.255.255.255",
		"http://128.0.0.1",
		"http://169.253.1.1",
		"http://169.255.0.1",
		"http://1.0.0.0",
		"http://[2001:db8::1]",
		"http://[fec0::1]",
		"http://[fbff::1]",
		"http://[fe00::1]",
		"http://[::ffff:8.8.8.8]",
		"http://[::2]",
		"http://notlocalhost.com",
		"http://my.notlocalhost",
		"http://localhost.evil.com",
		"http://docker.internal.evil.com",
		"http://docker.internal",
		"http://xdocker.internal",
		"http://a.xdocker.internal",
		"http://containers.internal.",
		"http://cluster.local",
		"http://a.svc.evil.com",
		"http://a.xsvc",
		"http://127.0.0.1.evil.com",
		"http://127.0.0.1.nip.io",
		"http://localhost@evil.com",
		"",
		"nonsense",
		"http://",
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (url_is_local(rows[i]))
			fail_msg("%s is local", rows[i]);
}

static void link_local_is_told(void **state)
{
	static const char *const are[] = { "http://169.254.169.254", "http://169.254.169.254:80/x",
					   "http://[fe80::1]",       "http://[::ffff:169.254.1.1]",
					   "http://0xa9fea9fe",      "http://2852039166" };
	static const char *const are_not[] = { "http://169.253.1.1", "http://10.0.0.1", "http://h",
					       "http://[::1]",       "nonsense",        "" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(are); i++)
		assert_true(url_is_link_local(are[i]));
	for (size_t i = 0; i < ARRAY_SIZE(are_not); i++)
		assert_false(url_is_link_local(are_not[i]));
}

static void link_local_addresses_are_told(void **state)
{
	static const struct {
		const char *ip;
		bool is;
	} rows[] = {
		{ "169.254.169.254", true },   { "169.253.1.1", false }, { "127.0.0.1", false },
		{ "fe80::1", true },           { "::1", false },         { "fd00::1", false },
		{ "::ffff:169.254.1.1", true }
	};
	const struct sockaddr_un path = { .sun_family = AF_UNIX };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct sockaddr_in v4 = { .sin_family = AF_INET };
		struct sockaddr_in6 v6 = { .sin6_family = AF_INET6 };
		bool four = inet_pton(AF_INET, rows[i].ip, &v4.sin_addr) == 1;

		assert_true(four || inet_pton(AF_INET6, rows[i].ip, &v6.sin6_addr) == 1);
		assert_int_equal(url_address_is_link_local(four ? (struct sockaddr *)&v4
								: (struct sockaddr *)&v6),
				 rows[i].is);
	}
	assert_false(url_address_is_link_local((const struct sockaddr *)&path));
}

static void bytes_are_escaped(void **state)
{
	struct buf b CLEANUP_BUF = BUF_INIT(0), small CLEANUP_BUF = BUF_INIT(3);

	assert_int_equal(url_escape(&b, "/a b/\xc3\xa9?&=+%#\0\n~-._Zz09", 23), 0);
	assert_string_equal(b.data, "/a%20b/%C3%A9%3F%26%3D%2B%25%23%00%0A~-._Zz09");
	for (int c = 0; c < 256; c++) {
		char byte = (char)c, want[4];
		bool plain = c && strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
					 "0123456789-._~/",
					 c);

		if (plain)
			snprintf(want, sizeof(want), "%c", c);
		else
			snprintf(want, sizeof(want), "%%%02X", (unsigned)c);
		buf_reset(&b);
		assert_int_equal(url_escape(&b, &byte, 1), 0);
		assert_string_equal(b.data, want);
	}
	assert_int_equal(url_escape(&small, "\n\n", 2), -EFBIG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(good_urls_are_tidied),
		cmocka_unit_test(bad_urls_are_refused),
		cmocka_unit_test(long_urls_are_refused),
		cmocka_unit_test(controls_are_refused),
		cmocka_unit_test(local_urls_bypass_the_proxy),
		cmocka_unit_test(external_urls_keep_the_proxy),
		cmocka_unit_test(link_local_is_told),
		cmocka_unit_test(link_local_addresses_are_told),
		cmocka_unit_test(bytes_are_escaped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
