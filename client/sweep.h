/*
 * Cleaning up in the sandbox what nobody waits for: a command of the last
 * moment, for the leftovers of operations that ended in the middle.
 */
#pragma once

struct sandbox;

/*
 * Runs a small bash script (which may run twice) and forgets about it: as well as the server
 * allows, in a session of its own, also while the sandbox is being closed. at_close: another one,
 * to be run after it in that case; or NULL. Loop thread only.
 */
void sweep(struct sandbox *sb, const char *script, const char *at_close);
