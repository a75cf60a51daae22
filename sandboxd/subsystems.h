/* What server.c needs of each part that has state. Loop thread only. */
#pragma once

#include "server.h"

/* Each returns 0 or a negative errno and sets its field in srv. */
int shell_start(struct server *srv);
int bash_start(struct server *srv);
int watch_start(struct server *srv);

/* Whether anything runs that --idle-exit must wait for. */
bool shell_busy(const struct server *srv);
bool bash_busy(const struct server *srv);

/* Ends every session's processes with sig; sessions stay until _stop. */
void shell_signal_all(struct server *srv, int sig);
void bash_signal_all(struct server *srv, int sig);

/* Frees everything. No request refers to them any more. Accept NULL. */
void shell_stop(struct server *srv);
void bash_stop(struct server *srv);
void watch_stop(struct server *srv);
