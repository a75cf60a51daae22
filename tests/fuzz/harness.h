/*
 * The whole server in a thread of the fuzzer, fed over its own socket: what is
 * fuzzed is what a client reaches. Only spawn() is replaced (no command runs).
 */
#pragma once

#include "util.h"

/*
 * Starts the server. Refuses to go on unless the system is mounted read-only,
 * because fuzzed paths are written to and deleted: scripts/fuzz sees to it.
 */
void harness_start(void);

/*
 * Sends head and body on a fresh connection, the body in two pieces cut at
 * split, and reads the answer. If may_wait, gives up soon instead of insisting
 * on one; otherwise a missing answer is a finding (abort).
 */
void harness_request(const char *head, size_t head_len, const uint8_t *body, size_t body_len,
		     size_t split, bool may_wait);
