/*
 * The listening socket: a unix socket that nobody else may open, or TCP.
 */
#pragma once

#include <sys/stat.h>

#include "config.h"

struct listener {
	int fd;         /* non-blocking, CLOEXEC, listening */
	char *path;     /* of the unix socket, or NULL */
	struct stat st; /* of the socket file, to know it again */
	char name[300]; /* for people: unix:PATH or http://HOST:PORT */
};

#define LISTENER_INIT ((struct listener){ .fd = -1 })

/*
 * Opens what cfg asks for. Logs one line and returns a negative errno when it
 * cannot. data_dir is an open directory that the socket must not lie in:
 * commands in the sandbox could replace it. May block for two seconds while
 * another process opens a socket in the same directory. To be called before
 * threads exist (umask).
 */
int listener_open(const struct config *cfg, int data_dir, struct listener *ret) MUST_CHECK;

/* Closes the fd; removes the socket file if it is still the one we made. Takes LISTENER_INIT. */
void listener_release(struct listener *l);

/*
 * The same path for when the working directory is another. For the caller to
 * free; NULL with errno.
 */
char *path_absolute(const char *path);
/*
 * Whether path's directory is the directory st or lies below it, bind mounts
 * included. Returns 0 or 1 or a negative errno.
 */
int path_is_below(const char *path, const struct stat *st) MUST_CHECK;
