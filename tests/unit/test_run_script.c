/* What the scripts of a run say where they cannot run; with real bashes, on this side. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "run_script.h"
#include "status.h"

#define ID "00000000-0000-4000-8000-00000000feed"

/* Runs the script where there is no tee, as there are no programs at all. */
static int run_without(const struct buf *script, char *to, size_t size)
{
	int fds[2], status;
	ssize_t n;
	pid_t pid;

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		dup2(fds[1], STDERR_FILENO);
		setenv("PATH", "/nonexistent", 1);
		execl("/bin/bash", "bash", "-c", script->data, (char *)NULL);
		_exit(99);
	}
	close(fds[1]);
	n = read(fds[0], to, size - 1);
	assert_true(n >= 0);
	to[n] = '\0';
	close(fds[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void check(struct buf *script)
{
	char said[512];
	int code;

	assert_int_equal(script->error, 0);
	code = run_without(script, said, sizeof(said));
	assert_string_equal(said,
			    "running commands takes 'tee', which the sandbox does not have\n");
	assert_int_equal(status_from_command(said, strlen(said), code), -EOPNOTSUPP);
	assert_int_equal(access(RUN_DIR ID, F_OK), -1);
}

static void test_without_tee_nothing_starts_and_it_says_why(void **state UNUSED)
{
	const struct run_piece piece = { .bytes = "true", .len = 4 };
	struct buf alone CLEANUP_BUF = BUF_INIT(0), in_shell CLEANUP_BUF = BUF_INIT(0);

	run_script_start(&alone, ID, &piece, "/", "", false);
	check(&alone);
	run_script_enqueue(&in_shell, ID, &piece, ID, "/");
	check(&in_shell);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_without_tee_nothing_starts_and_it_says_why),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
