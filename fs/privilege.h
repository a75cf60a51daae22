/* What the daemon gives up before it does anything. */
#pragma once

/*
 * No core dumps, no tracing by others of the same user; as root no new privileges, and none of
 * those over the machine itself. What cannot be given up is kept in silence. Before any thread is
 * started. docs/SECURITY.md says why not more.
 */
void privilege_drop(void);
/* At the very end: a leak checker is one who traces. */
void privilege_end(void);
