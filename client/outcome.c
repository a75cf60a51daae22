/* See outcome.h. Which status matters to whom is command.c's and bash.c's business. Any thread. */
#include "outcome.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#include "answer.h"

int outcome_status(const cJSON *obj, enum command_status *ret)
{
	static const struct {
		const char *name;
		enum command_status status;
	} known[] = {
		{ "completed", COMMAND_COMPLETED },    { "running", COMMAND_RUNNING },
		{ "pending", COMMAND_RUNNING },        { "no_change_timeout", COMMAND_NO_CHANGE },
		{ "hard_timeout", COMMAND_TIMED_OUT }, { "timed_out", COMMAND_TIMED_OUT },
		{ "terminated", COMMAND_TERMINATED },  { "killed", COMMAND_TERMINATED },
	};
	const cJSON *status = cJSON_GetObjectItemCaseSensitive(obj, "status");

	if (!cJSON_IsObject(obj))
		return -EBADMSG;
	if (!status || cJSON_IsNull(status)) {
		*ret = COMMAND_COMPLETED;
		return 0;
	}
	for (size_t i = 0; cJSON_IsString(status) && i < ARRAY_SIZE(known); i++) {
		if (strcmp(status->valuestring, known[i].name) == 0) {
			*ret = known[i].status;
			return 0;
		}
	}
	return -EBADMSG;
}

int outcome_exit_code(const cJSON *obj, int *ret)
{
	const cJSON *said = cJSON_GetObjectItemCaseSensitive(obj, "exit_code");
	int64_t code = answer_int(obj, "exit_code", INT64_MAX);

	if (!said || cJSON_IsNull(said))
		code = -1;
	if (code < INT_MIN || code > INT_MAX)
		return -EBADMSG;
	*ret = (int)code;
	return 0;
}

int outcome_text(const cJSON *obj, const char *key, char **ret, size_t *ret_len)
{
	const cJSON *text = cJSON_GetObjectItemCaseSensitive(obj, key);
	char *copy;

	if (text && !cJSON_IsNull(text) && !cJSON_IsString(text))
		return -EBADMSG;
	copy = strdup(text && cJSON_IsString(text) ? text->valuestring : "");
	if (!copy)
		return -ENOMEM;
	*ret_len = json_restore_nul(copy);
	*ret = copy;
	return 0;
}
