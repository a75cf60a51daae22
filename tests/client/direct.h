/*
 * A word with the real server past the proxy, to see and to change what the
 * client must not know of; and waiting for what comes true. Main thread only.
 */
#pragma once

#include <curl/curl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "buf.h"
#include "clock.h"
#include "every.h"
#include "fixture.h"

/* How long is waited for what is to come. */
#define PATIENCE_MS (measuring_is_vain() ? 100000 : 20000)

static inline size_t direct_write(char *bytes, size_t size, size_t n, void *to)
{
	return buf_append(to, bytes, size * n) == 0 ? size * n : 0;
}

/* Returns the answer's body, to be freed. json NULL: none is sent. */
static inline char *direct(const struct fixture *f, const char *method, const char *path,
			   const char *json)
{
	struct curl_slist *headers = curl_slist_append(NULL, "Content-Type: application/json");
	struct buf answer = BUF_INIT(64 * MIB);
	CURL *e = curl_easy_init();
	char url[512];

	assert_non_null(e);
	snprintf(url, sizeof(url), "http://localhost%s", path);
	curl_easy_setopt(e, CURLOPT_URL, url);
	curl_easy_setopt(e, CURLOPT_UNIX_SOCKET_PATH, daemon_socket(f->daemon));
	curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, method);
	curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, direct_write);
	curl_easy_setopt(e, CURLOPT_WRITEDATA, &answer);
	if (json) {
		curl_easy_setopt(e, CURLOPT_POSTFIELDS, json);
		curl_easy_setopt(e, CURLOPT_HTTPHEADER, headers);
	}
	assert_int_equal(curl_easy_perform(e), CURLE_OK);
	curl_easy_cleanup(e);
	curl_slist_free_all(headers);
	assert_non_null(answer.data);
	return answer.data;
}

static inline bool direct_has(const struct fixture *f, const char *path, const char *text)
{
	char *answer CLEANUP_FREE = direct(f, "GET", path, NULL);

	return strstr(answer, text) != NULL;
}

/* Waits until the condition holds; fails if it never does. */
#define WAIT_UNTIL(condition)                                                                      \
	do {                                                                                       \
		int64_t until_ = clock_ms() + PATIENCE_MS;                                         \
		while (!(condition)) {                                                             \
			if (clock_ms() > until_)                                                   \
				fail_msg("in vain: %s", #condition);                               \
			nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);                 \
		}                                                                                  \
	} while (0)

/*
 * Closes, and then the condition holds: at once, as farewells are waited for; or soon, if the half
 * second that they have was over first.
 */
#define CLOSE_UNTIL(sb, condition)                                                                 \
	do {                                                                                       \
		int64_t since_ = clock_ms();                                                       \
		sandbox_close(sb);                                                                 \
		if (clock_ms() - since_ < 400)                                                     \
			assert_true(condition);                                                    \
		else                                                                               \
			WAIT_UNTIL(condition);                                                     \
	} while (0)

static inline bool file_exists(const char *path)
{
	return access(path, F_OK) == 0;
}

/* A call that is waited for later; freed by finish_call(). */
static inline struct call *new_call(int64_t timeout_ms)
{
	struct call *c = malloc(sizeof(*c));

	assert_non_null(c);
	call_init(c, timeout_ms);
	return c;
}

static inline int finish_call(struct call *c)
{
	int r = call_wait(c);

	call_release(c);
	free(c);
	return r;
}
