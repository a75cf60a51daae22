/*
 * How a command ended and what it printed, as /v1/shell and /v1/bash report it.
 * The sender is hostile. Pure.
 */
#pragma once

#include "json.h"
#include "sandbox.h"

enum { OUTCOME_MAX = 64 * 1024 * 1024 /* of an answer that carries output */ };

/* "status" of either family; none at all is a completed command. Returns 0 or -EBADMSG. */
int outcome_status(const cJSON *obj, enum command_status *ret) MUST_CHECK;
/* "exit_code"; -1 where there is none. Returns 0 or -EBADMSG. */
int outcome_exit_code(const cJSON *obj, int *ret) MUST_CHECK;
/*
 * A text, which may hold U+0000, NUL-terminated besides; "" where there is
 * none. Returns 0, -EBADMSG or -ENOMEM.
 */
int outcome_text(const cJSON *obj, const char *key, char **ret, size_t *ret_len) MUST_CHECK;
