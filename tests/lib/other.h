/*
 * Another process, for tests of the provider: provider_holder (provider/holder.c),
 * which stands beside the test program. It ends when its stdin does, so it does
 * not outlive the test. Main thread.
 */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rig.h"

struct other {
	pid_t pid;
	int in, out;
};

/* Starts it with these arguments, NULL-terminated. */
static inline struct other other_start(const char *const *args)
{
	char self[PATH_MAX], program[PATH_MAX + 20];
	const char *argv[80] = { "provider_holder" };
	posix_spawn_file_actions_t actions;
	struct other o = { 0 };
	int in[2], out[2];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	assert_true(n > 0);
	self[n] = '\0';
	snprintf(program, sizeof(program), "%s/provider_holder", dirname(self));
	for (size_t i = 0; args[i]; i++)
		argv[i + 1] = args[i];
	assert_int_equal(pipe2(in, O_CLOEXEC), 0);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
	posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
	assert_int_equal(posix_spawn(&o.pid, program, &actions, NULL, (char *const *)argv, environ),
			 0);
	posix_spawn_file_actions_destroy(&actions);
	close(in[0]);
	close(out[1]);
	o.in = in[1];
	o.out = out[0];
	return o;
}

/* Waits until it says that it is ready. */
static inline void other_wait_ready(struct other *o)
{
	char said[16] = "";
	size_t len = 0;
	ssize_t n;

	while (!strchr(said, '\n') && len < sizeof(said) - 1) {
		n = read(o->out, said + len, sizeof(said) - 1 - len);
		if (n <= 0)
			break;
		said[len += (size_t)n] = '\0';
	}
	assert_string_equal(said, "ready\n");
}

/* With 0: lets it leave in good order. Otherwise by this signal. Waits for the end. */
static inline void other_end(struct other *o, int sig)
{
	int status;

	if (sig)
		assert_int_equal(kill(o->pid, sig), 0);
	close(o->in);
	assert_int_equal(waitpid(o->pid, &status, 0), o->pid);
	close(o->out);
	if (sig)
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == sig);
	else
		assert_int_equal(status, 0);
	*o = (struct other){ 0 };
}
