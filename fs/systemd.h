/*
 * Telling the service manager how it goes, as sd_notify(3) does: a datagram to the socket
 * that $NOTIFY_SOCKET names. Who was not started by one tells nobody. Not on the loop's
 * thread; does not wait.
 */
#pragma once

#include "util.h"

/* Remembers the socket and takes it out of the environment, so that no child speaks for us. */
void systemd_begin(void);
/* "READY=1" and the like, several apart by newlines. As well as it goes. */
void systemd_tell(const char *fmt, ...) PRINTF_LIKE(1, 2);
