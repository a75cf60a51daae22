/* Names of sandboxes and which ids are valid. Pure, but for libcrypto's digest; any thread. */
#include "ident.h"

#include <assert.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

enum {
	THREAD_MAX = 64,
	USER_MAX = 200,
	OLD_ID_LEN = 8,
	SHA256_LEN = 32,
};

static bool is_name(const char *s, size_t max)
{
	static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				      "0123456789_-";
	size_t len = strspn(s, allowed);

	return len >= 1 && len <= max && !s[len];
}

bool ident_is_thread(const char *s)
{
	return is_name(s, THREAD_MAX);
}

bool ident_is_user(const char *s)
{
	return is_name(s, USER_MAX);
}

void ident_digest(const char *s, char *hex, size_t len)
{
	static const char digits[] = "0123456789abcdef";
	unsigned char sum[EVP_MAX_MD_SIZE] = { 0 };
	int ok = EVP_Digest(s, strlen(s), sum, NULL, EVP_sha256(), NULL);

	/* It fails only without memory, and a wrong name would be somebody else's sandbox. */
	if (ok != 1)
		abort();
	assert(len <= 2 * SHA256_LEN);
	for (size_t i = 0; i < len; i++)
		hex[i] = digits[i % 2 ? sum[i / 2] & 15 : sum[i / 2] >> 4];
	hex[len] = '\0';
}

void ident_make(const char *user, const char *thread, char *id)
{
	ident_form(user, thread, 0, id);
}

void ident_form(const char *user, const char *thread, unsigned form, char *id)
{
	char both[USER_MAX + 1 + THREAD_MAX + 1];
	int n;

	assert(form < IDENT_FORMS);
	n = snprintf(both, sizeof(both), "%s:%s", user, thread);
	assert(n > 0 && (size_t)n < sizeof(both));
	(void)n;
	ident_digest(form == 2 ? thread : both, id, form == 0 ? IDENT_ID_LEN : OLD_ID_LEN);
}
