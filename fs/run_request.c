/* Reading what a program asks to be run, and names of signals. Pure. */
#include "run_request.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <strings.h>

#include "json.h"
#include "shellquote.h"

void run_request_release(struct run_request *r)
{
	buf_release(&r->script);
	free(STEAL(r->dir));
	for (size_t i = 0; r->env && r->env[i]; i++)
		free(r->env[i]);
	free(STEAL(r->env));
}

/* ---- words ---- */

int run_script(struct buf *to, const char *const *argv)
{
	if (!argv[0])
		return -EINVAL;
	for (size_t i = 0; argv[i]; i++) {
		if (i > 0)
			buf_putc(to, ' ');
		shellquote(to, argv[i], strlen(argv[i]));
	}
	return to->error;
}

bool run_is_env_name(const char *name, size_t len)
{
	if (len == 0 || (name[0] >= '0' && name[0] <= '9'))
		return false;
	for (size_t i = 0; i < len; i++)
		if (!(name[i] == '_' || (name[i] >= '0' && name[i] <= '9') ||
		      (name[i] >= 'A' && name[i] <= 'Z') || (name[i] >= 'a' && name[i] <= 'z')))
			return false;
	return true;
}

/* ---- the object ---- */

/* Whether it is a string that a C program can have. */
static bool is_word(const cJSON *j)
{
	return cJSON_IsString(j) && !json_has_nul(j->valuestring);
}

static int parse_argv(const cJSON *argv, struct buf *script)
{
	const cJSON *word;
	bool first = true;

	if (!cJSON_IsArray(argv) || cJSON_GetArraySize(argv) == 0)
		return -EINVAL;
	cJSON_ArrayForEach (word, argv) {
		if (!is_word(word))
			return -EINVAL;
		if (!first)
			buf_putc(script, ' ');
		shellquote(script, word->valuestring, strlen(word->valuestring));
		first = false;
	}
	return script->error;
}

static int parse_script(const cJSON *object, struct buf *script)
{
	const cJSON *argv = cJSON_GetObjectItemCaseSensitive(object, "argv");
	const cJSON *text = cJSON_GetObjectItemCaseSensitive(object, "script");

	if (!argv == !text)
		return -EINVAL;
	if (argv)
		return parse_argv(argv, script);
	if (!is_word(text) || !text->valuestring[0])
		return -EINVAL;
	return buf_puts(script, text->valuestring);
}

/* Names without the slashes around them; "." and empty ones say nothing. */
static int parse_dir(const cJSON *dir, char **ret)
{
	struct buf to CLEANUP_BUF = BUF_INIT(0);

	if (dir && !is_word(dir))
		return -EINVAL;
	buf_puts(&to, "");
	for (const char *s = dir ? dir->valuestring : ""; *s;) {
		size_t n = strcspn(s, "/");

		if (n == 2 && s[0] == '.' && s[1] == '.')
			return -EINVAL;
		if (n > 0 && !(n == 1 && s[0] == '.')) {
			if (to.len > 0)
				buf_putc(&to, '/');
			buf_append(&to, s, n);
		}
		s += n;
		s += strspn(s, "/");
	}
	if (to.error)
		return to.error;
	*ret = to.data ? STEAL(to.data) : strdup("");
	return *ret ? 0 : -ENOMEM;
}

static int parse_env(const cJSON *env, char ***ret)
{
	const cJSON *value;
	size_t n = 0;

	if (env && !cJSON_IsObject(env))
		return -EINVAL;
	*ret = calloc(2 * (env ? (size_t)cJSON_GetArraySize(env) : 0) + 1, sizeof(**ret));
	if (!*ret)
		return -ENOMEM;
	cJSON_ArrayForEach (value, env) {
		if (!is_word(value) || !run_is_env_name(value->string, strlen(value->string)))
			return -EINVAL;
		(*ret)[n] = strdup(value->string);
		if (!(*ret)[n++])
			return -ENOMEM;
		(*ret)[n] = strdup(value->valuestring);
		if (!(*ret)[n++])
			return -ENOMEM;
	}
	return 0;
}

/* A key that is spelled wrong would otherwise be obeyed by leaving it out. */
static bool knows_all(const cJSON *object)
{
	static const char *const keys[] = { "argv", "script", "dir", "env", "stdin" };
	const cJSON *item;

	cJSON_ArrayForEach (item, object) {
		bool known = false;

		for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
			known |= strcmp(item->string, keys[i]) == 0;
		if (!known)
			return false;
	}
	return true;
}

int run_request_parse(char *text, size_t len, struct run_request *ret)
{
	struct run_request r CLEANUP_RUN_REQUEST = { .script = BUF_INIT(0) };
	cJSON *object CLEANUP_JSON = NULL;
	const cJSON *fed;
	int err = json_parse(text, len, &object, NULL);

	if (err < 0)
		return err;
	if (!cJSON_IsObject(object) || !knows_all(object))
		return -EINVAL;
	fed = cJSON_GetObjectItemCaseSensitive(object, "stdin");
	if (fed && !cJSON_IsBool(fed))
		return -EINVAL;
	r.fed = cJSON_IsTrue(fed);
	err = parse_script(object, &r.script);
	if (err == 0)
		err = parse_dir(cJSON_GetObjectItemCaseSensitive(object, "dir"), &r.dir);
	if (err == 0)
		err = parse_env(cJSON_GetObjectItemCaseSensitive(object, "env"), &r.env);
	if (err < 0)
		return err;
	*ret = r;
	r = (struct run_request){ 0 };
	return 0;
}

/* ---- signals ---- */

static bool is_allowed(int signal)
{
	return signal == SIGTERM || signal == SIGKILL || signal == SIGINT || signal == SIGHUP;
}

static int by_name(const char *word)
{
	for (int s = 1; s < NSIG; s++) {
		const char *name = sigabbrev_np(s);

		if (name && strcasecmp(name, word) == 0)
			return s;
	}
	return 0;
}

static bool is_number(const char *word)
{
	return word[0] && word[strspn(word, "0123456789")] == '\0';
}

int run_signal(const char *text, size_t len)
{
	char word[16] = "";
	bool prefixed;
	int signal;

	while (len > 0 && isspace((unsigned char)text[len - 1]))
		len--;
	while (len > 0 && isspace((unsigned char)text[0])) {
		text++;
		len--;
	}
	if (len >= sizeof(word) || memchr(text, '\0', len))
		return SIGTERM;
	memcpy(word, text, len);
	prefixed = strncasecmp(word, "SIG", 3) == 0;
	if (is_number(word))
		signal = strlen(word) <= 2 ? (int)strtol(word, NULL, 10) : -1;
	else
		signal = by_name(prefixed ? word + 3 : word);
	if (signal == 0 && !prefixed && !is_number(word))
		return SIGTERM;
	return is_allowed(signal) ? signal : -EINVAL;
}
