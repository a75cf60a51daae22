/* See privilege.h. */
#include "privilege.h"

#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "util.h"

void privilege_drop(void)
{
	/* Also for those whom we start. Of 1 byte: 0 would not keep the host's crash handler. */
	const struct rlimit no_core = { 1, 1 };

	setrlimit(RLIMIT_CORE, &no_core);
	/* We hold keys and the files of all threads: another program of the user, or what it
	 * has let in, shall not have them from our memory or descriptors. */
	prctl(PR_SET_DUMPABLE, 0);
	/* An ordinary user unmounts by fusermount3, which is setuid; root needs no such thing. */
	if (geteuid() == 0)
		prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

void privilege_end(void)
{
#ifdef SANITIZED
	prctl(PR_SET_DUMPABLE, 1);
#endif
}
