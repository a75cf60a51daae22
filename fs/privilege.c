/* See privilege.h. */
#include "privilege.h"

#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "util.h"

/* The machine's own: neither mounting nor running sandboxes as other users needs any of these. */
static const unsigned unneeded[] = {
	CAP_LINUX_IMMUTABLE,
	CAP_NET_BIND_SERVICE,
	CAP_NET_BROADCAST,
	CAP_NET_RAW,
	CAP_IPC_LOCK,
	CAP_IPC_OWNER,
	CAP_SYS_MODULE,
	CAP_SYS_RAWIO,
	CAP_SYS_PACCT,
	CAP_SYS_BOOT,
	CAP_SYS_NICE,
	CAP_SYS_TIME,
	CAP_SYS_TTY_CONFIG,
	CAP_MKNOD,
	CAP_LEASE,
	CAP_AUDIT_WRITE,
	CAP_AUDIT_CONTROL,
	CAP_MAC_OVERRIDE,
	CAP_MAC_ADMIN,
	CAP_SYSLOG,
	CAP_WAKE_ALARM,
	CAP_BLOCK_SUSPEND,
	CAP_AUDIT_READ,
	CAP_PERFMON,
	CAP_BPF,
	CAP_CHECKPOINT_RESTORE,
};

/* With no new privileges they do not come back, nor to whom we start. */
static void drop_capabilities(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = { 0 };

	if (syscall(SYS_capget, &header, sets) < 0)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(unneeded); i++) {
		unsigned c = unneeded[i];
		__u32 keep = ~(__u32)CAP_TO_MASK(c);

		prctl(PR_CAPBSET_DROP, c, 0, 0, 0);
		sets[CAP_TO_INDEX(c)].effective &= keep;
		sets[CAP_TO_INDEX(c)].permitted &= keep;
		sets[CAP_TO_INDEX(c)].inheritable &= keep;
	}
	syscall(SYS_capset, &header, sets);
}

void privilege_drop(void)
{
	/* Also for those whom we start. Of 1 byte: 0 would not keep the host's crash handler. */
	const struct rlimit no_core = { 1, 1 };

	setrlimit(RLIMIT_CORE, &no_core);
	/* We hold keys and the files of all threads: another program of the user, or what it
	 * has let in, shall not have them from our memory or descriptors. */
	prctl(PR_SET_DUMPABLE, 0);
	/* An ordinary user unmounts by fusermount3, which is setuid; root needs no such thing. */
	if (geteuid() != 0)
		return;
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	drop_capabilities();
}

void privilege_end(void)
{
#ifdef SANITIZED
	prctl(PR_SET_DUMPABLE, 1);
#endif
}
