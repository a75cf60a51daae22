/* The settings of one threadfs-sandboxd, as parsed from its command line. */
#pragma once

#include "util.h"

enum dialect {
	DIALECT_1_0,  /* the 1.0.0.x images that most deployments run */
	DIALECT_1_9,  /* 1.9.x: bash, watch, grep, glob, FileOperationError */
	DIALECT_AIOD, /* the daemon: 1.9 plus stat, mkdir, delete, Range, HEAD */
};

enum isolation {
	ISOLATION_BWRAP,
	ISOLATION_NONE,
};

#define SANDBOX_HOME "/home/gem"
#define SANDBOX_USER "gem"
#define SANDBOX_DATA "/mnt/user-data"

struct config {
	/* where and how to listen */
	const char *socket_path; /* or NULL */
	const char *listen_addr; /* HOST:PORT or NULL */
	const char *api_key;     /* secret; NULL = no authentication */
	const char *pid_file;
	int ready_fd; /* -1 = none */
	enum dialect dialect;

	/* the walls */
	const char *data_dir; /* on the host */
	enum isolation isolation;
	bool net_host;
	uint64_t max_processes;
	uint64_t max_open_files; /* of a command, not of the server */
	uint64_t max_file_size;
	uint64_t max_memory; /* of one process; of the sandbox with a cgroup */
	uint64_t tmp_size;   /* of the private /tmp and /home/gem each */

	/* the server */
	unsigned max_shell_sessions;
	unsigned max_bash_sessions;
	unsigned session_timeout_s; /* idle expiry of sessions */
	unsigned max_watchers;
	unsigned max_connections;
	unsigned idle_exit_s; /* 0 = never */
	uint64_t max_body;    /* of one JSON request */
	bool verbose;

	/*
	 * As seen by the server itself. Where /mnt/user-data is not a real
	 * path (isolation none outside a container) file paths below it are
	 * mapped to map_data; otherwise map_data is NULL.
	 */
	const char *map_data;
	const char *home; /* SANDBOX_HOME, or what stands in for it */
	bool own_pidns;   /* we are PID 1 of a namespace of our own */
	int lifeline_fd;  /* EOF = the supervisor is gone, stop; -1 = none */
};

const char *dialect_name(enum dialect d);
