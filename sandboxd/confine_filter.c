/*
 * Which system calls a sandbox may make, as a program for the kernel's seccomp
 * filter: what ordinary programs never need and what has let others out of
 * containers before is refused, everything else goes through. Knows nothing of
 * processes. Main thread of the supervisor.
 *
 * The kernel remembers which calls are allowed whatever their arguments, so only
 * those in the tables cost anything.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "confine_i.h"
#include "io.h"

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#elif defined(__riscv) && __riscv_xlen == 64
#define ARCH AUDIT_ARCH_RISCV64
#endif

#ifdef ARCH

/* Of newer kernels than our headers may be; the numbers are the same everywhere. */
enum {
	NR_CLONE3 = 435,
	NR_OPENAT2 = 437,
	NR_MOUNT_SETATTR = 442,
	NR_QUOTACTL_FD = 443,
	NR_FCHMODAT2 = 452,
	NR_OPEN_TREE_ATTR = 467,
	NEW_TIME = 0x80, /* CLONE_NEWTIME */
	X32_BIT = 0x40000000,
	SET_IDS = S_ISUID | S_ISGID,
	MAKES_FILE = O_CREAT | (O_TMPFILE & ~O_DIRECTORY),
	PROGRAM_MAX = 512,
};

#define NAMESPACES                                                                                 \
	(CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER |             \
	 CLONE_NEWPID | CLONE_NEWNET)

/* Whatever their arguments. */
static const struct {
	int nr, error;
} refused[] = {
	/* keys of whoever started us, programs in the kernel, its memory and events */
	{ SYS_add_key, EPERM },
	{ SYS_request_key, EPERM },
	{ SYS_keyctl, EPERM },
	{ SYS_bpf, EPERM },
	{ SYS_perf_event_open, EPERM },
	{ SYS_userfaultfd, EPERM },
	{ SYS_lookup_dcookie, EPERM },
	{ SYS_syslog, EPERM },
	/* mounts, and files behind the walls */
	{ SYS_mount, EPERM },
	{ SYS_umount2, EPERM },
	{ SYS_pivot_root, EPERM },
	{ SYS_chroot, EPERM },
	{ SYS_open_tree, EPERM },
	{ SYS_move_mount, EPERM },
	{ SYS_fsopen, EPERM },
	{ SYS_fsconfig, EPERM },
	{ SYS_fsmount, EPERM },
	{ SYS_fspick, EPERM },
	{ NR_MOUNT_SETATTR, EPERM },
	{ NR_OPEN_TREE_ATTR, EPERM },
	{ SYS_open_by_handle_at, EPERM },
	{ SYS_fanotify_init, EPERM },
	{ SYS_setns, EPERM },
	/* the machine */
	{ SYS_kexec_load, EPERM },
	{ SYS_kexec_file_load, EPERM },
	{ SYS_init_module, EPERM },
	{ SYS_finit_module, EPERM },
	{ SYS_delete_module, EPERM },
	{ SYS_reboot, EPERM },
	{ SYS_swapon, EPERM },
	{ SYS_swapoff, EPERM },
	{ SYS_acct, EPERM },
	{ SYS_quotactl, EPERM },
	{ NR_QUOTACTL_FD, EPERM },
	{ SYS_settimeofday, EPERM },
	{ SYS_clock_settime, EPERM },
	{ SYS_vhangup, EPERM },
	{ SYS_nfsservctl, EPERM },
#ifdef __x86_64__
	{ SYS_iopl, EPERM },
	{ SYS_ioperm, EPERM },
	{ SYS_modify_ldt, EPERM },
	{ SYS_uselib, EPERM },
	{ SYS__sysctl, EPERM },
#endif
	/* a second way to do anything, past this filter; programs go on without */
	{ SYS_io_uring_setup, ENOSYS },
	{ SYS_io_uring_enter, ENOSYS },
	{ SYS_io_uring_register, ENOSYS },
	/* what they are to do lies in memory, where a filter cannot look; as above */
	{ NR_CLONE3, ENOSYS },
	{ NR_OPENAT2, ENOSYS },
};

/* If one of the bits is set in the argument. */
static const struct {
	int nr, arg;
	uint32_t bits;
	int also; /* only if these are set in the argument before it; 0: always */
} masked[] = {
	{ SYS_clone, 0, NAMESPACES, 0 },
	{ SYS_unshare, 0, NAMESPACES | NEW_TIME, 0 },
	/*
	 * A file of the data directory that lends its owner's rights: outside, the owner is
	 * whoever started us, and any user of the host who can reach the file could run it.
	 */
	{ SYS_fchmod, 1, SET_IDS, 0 },
	{ SYS_fchmodat, 2, SET_IDS, 0 },
	{ NR_FCHMODAT2, 2, SET_IDS, 0 },
	{ SYS_mknodat, 2, SET_IDS, 0 },
	{ SYS_openat, 3, SET_IDS, MAKES_FILE },
#ifdef __x86_64__
	{ SYS_chmod, 1, SET_IDS, 0 },
	{ SYS_mknod, 1, SET_IDS, 0 },
	{ SYS_creat, 1, SET_IDS, 0 },
	{ SYS_open, 2, SET_IDS, MAKES_FILE },
#endif
};

/* The only kinds of sockets: a vsock, for one, reaches the machine's host past --net none. */
static const uint32_t families[] = { AF_UNIX, AF_INET, AF_INET6, AF_NETLINK };
enum { PAIR_FAMILIES = 1 }; /* of them: there are no pairs of the others that programs use */

/* ---- the program ---- */

struct program {
	struct sock_filter code[PROGRAM_MAX];
	size_t len;
};

static void add(struct program *p, struct sock_filter s)
{
	assert(p->len < PROGRAM_MAX);
	p->code[p->len++] = s;
}

static void load(struct program *p, size_t offset)
{
	add(p, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset));
}

/* Half of one: the kernel, too, looks at no more of numbers and flags than the lower. */
static void load_half(struct program *p, int arg, size_t half)
{
	static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "halves are the other way round");
	load(p, offsetof(struct seccomp_data, args) + 8 * (size_t)arg + 4 * half);
}

static void load_arg(struct program *p, int arg)
{
	load_half(p, arg, 0);
}

static void end_with(struct program *p, int error)
{
	uint32_t what = error ? SECCOMP_RET_ERRNO | (uint32_t)error : SECCOMP_RET_ALLOW;

	add(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, what));
}

/* What follows, `len` instructions, is only for this system call. */
static void skip_unless(struct program *p, int nr, uint8_t len)
{
	add(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)nr, 0, len));
}

static void refuse_masked(struct program *p)
{
	for (size_t i = 0; i < ARRAY_SIZE(masked); i++) {
		bool two = masked[i].also != 0;

		skip_unless(p, masked[i].nr, two ? 6 : 4);
		if (two) {
			load_arg(p, masked[i].arg - 1);
			add(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K,
							    (uint32_t)masked[i].also, 0, 3));
		}
		load_arg(p, masked[i].arg);
		add(p,
		    (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, masked[i].bits, 0, 1));
		end_with(p, EPERM);
		end_with(p, 0);
	}
}

/* By that system call none but the first n of them. */
static void refuse_families(struct program *p, int nr, uint8_t n)
{
	skip_unless(p, nr, (uint8_t)(n + 3));
	load_arg(p, 0);
	for (uint8_t i = 0; i < n; i++)
		add(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, families[i],
						    (uint8_t)(n - i), 0));
	end_with(p, EAFNOSUPPORT);
	end_with(p, 0);
}

/* Typing for whoever sits at the terminal. */
static void refuse_ioctls(struct program *p)
{
	static const uint32_t requests[] = { TIOCSTI, 0x541c /* TIOCLINUX */ };

	for (size_t i = 0; i < ARRAY_SIZE(requests); i++) {
		skip_unless(p, SYS_ioctl, 3);
		load_arg(p, 1);
		add(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, requests[i], 0, 1));
		end_with(p, EPERM);
		load(p, offsetof(struct seccomp_data, nr));
	}
}

/* Limits of others: the server's can be named by each of its threads, so all of them. */
static void refuse_limits(struct program *p)
{
	skip_unless(p, SYS_prlimit64, 8);
	load_arg(p, 0);
	add(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 5, 0));
	/* who only looks has no new limit, both halves of the pointer */
	load_arg(p, 2);
	add(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 2));
	load_half(p, 2, 1);
	add(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0));
	end_with(p, EPERM);
	end_with(p, 0);
}

static void make_program(struct program *p)
{
	/* Another ABI has other numbers for the same calls. */
	load(p, offsetof(struct seccomp_data, arch));
	add(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0));
	end_with(p, ENOSYS);
	load(p, offsetof(struct seccomp_data, nr));
#ifdef __x86_64__
	add(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, X32_BIT, 0, 1));
	end_with(p, ENOSYS);
#endif
	for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
		skip_unless(p, refused[i].nr, 1);
		end_with(p, refused[i].error);
	}
	refuse_masked(p);
	refuse_families(p, SYS_socket, ARRAY_SIZE(families));
	refuse_families(p, SYS_socketpair, PAIR_FAMILIES);
	refuse_ioctls(p);
	refuse_limits(p);
	end_with(p, 0);
}

int filter_open(void)
{
	int fd CLEANUP_FD = memfd_create("filter", MFD_CLOEXEC);
	struct program p = { .len = 0 };
	int r;

	if (fd < 0)
		return -errno;
	make_program(&p);
	r = write_all(fd, p.code, p.len * sizeof(p.code[0]));
	if (r == 0 && lseek(fd, 0, SEEK_SET) < 0)
		r = -errno;
	return r < 0 ? r : steal_fd(&fd);
}

#else

int filter_open(void)
{
	return -EOPNOTSUPP;
}

#endif
