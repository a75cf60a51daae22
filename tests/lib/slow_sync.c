/*
 * For programs that are to have a slow disk, by LD_PRELOAD: their fdatasync(2) takes as long as
 * there is a file $SLOW_SYNC; $SLOW_SYNC.begun is there once one has begun.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int fdatasync(int fd)
{
	const char *slow = getenv("SLOW_SYNC");
	char begun[4096];

	if (slow && access(slow, F_OK) == 0) {
		snprintf(begun, sizeof(begun), "%s.begun", slow);
		close(open(begun, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	}
	while (slow && access(slow, F_OK) == 0)
		nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
	return (int)syscall(SYS_fdatasync, fd);
}
