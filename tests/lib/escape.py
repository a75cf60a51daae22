#!/usr/bin/env python3
# Runs inside the sandbox: tries what a program that wants out would, and prints one
# line per attempt, "NAME ERRNO" or "NAME got through". Nothing in it does harm if it
# succeeds: addresses are null, flags are wrong, names are the caller's own.
import ctypes
import errno
import os
import platform
import socket
import sys
import tempfile

libc = ctypes.CDLL(None, use_errno=True)
NR = {
    "x86_64": dict(
        ptrace=101, mount=165, umount2=166, pivot_root=155, setns=308, unshare=272, clone=56, clone3=435, keyctl=250,
        add_key=248, request_key=249, bpf=321, perf_event_open=298, userfaultfd=323, kexec_load=246,
        kexec_file_load=320, init_module=175, finit_module=313, delete_module=176, open_by_handle_at=304,
        io_uring_setup=425, fsopen=430, open_tree=428, move_mount=429, fsmount=432, mount_setattr=442, syslog=103,
        iopl=172, reboot=169, swapon=167, acct=163, settimeofday=164, openat2=437, prlimit64=302, fchmodat2=452,
        process_vm_readv=310, pidfd_open=434, pidfd_getfd=438, fanotify_init=300, quotactl=179,
        ioctl=16, fchmod=91, fchmodat=268, mknodat=259, openat=257, chmod=90, mknod=133, creat=85, open=2,
    ),
    "aarch64": dict(
        ptrace=117, mount=40, umount2=39, pivot_root=41, setns=268, unshare=97, clone=220, clone3=435, keyctl=219,
        add_key=217, request_key=218, bpf=280, perf_event_open=241, userfaultfd=282, kexec_load=104,
        kexec_file_load=294, init_module=105, finit_module=273, delete_module=106, open_by_handle_at=265,
        io_uring_setup=425, fsopen=430, open_tree=428, move_mount=429, fsmount=432, mount_setattr=442, syslog=116,
        reboot=142, swapon=224, acct=89, settimeofday=170, openat2=437, prlimit64=261, fchmodat2=452,
        process_vm_readv=270, pidfd_open=434, pidfd_getfd=438, fanotify_init=262, quotactl=60,
        ioctl=29, fchmod=52, fchmodat=53, mknodat=33, openat=56,
    ),
}[platform.machine()]


def say(name, err):
    print(name, errno.errorcode.get(err, err) if err else "got through", flush=True)


def call(name, *args, label=None):
    if name not in NR:
        return
    ctypes.set_errno(0)
    r = libc.syscall(ctypes.c_long(NR[name]), *[ctypes.c_void_p(a) if isinstance(a, int) else a for a in args])
    say(label or name, ctypes.get_errno() if r == -1 else 0)


def attempt(name, what):
    try:
        what()
        say(name, 0)
    except OSError as e:
        say(name, e.errno)


def look(path):
    fd = os.open(path, os.O_RDONLY)
    if os.path.isdir(path):
        for name in os.listdir(fd):
            os.readlink(path + "/" + name)
    else:
        os.read(fd, 1)


def kernel():
    # Those of the kernel's doors that are shut whatever is behind them.
    for name in (
        "mount umount2 pivot_root setns keyctl add_key request_key bpf perf_event_open userfaultfd kexec_load "
        "kexec_file_load init_module finit_module delete_module open_by_handle_at fsopen open_tree move_mount fsmount "
        "mount_setattr syslog iopl reboot swapon acct settimeofday fanotify_init quotactl io_uring_setup clone3 openat2"
    ).split():
        call(name, 0, 0, 0, 0, 0, 0)
    for name, flag in dict(user=0x10000000, mnt=0x20000, pid=0x20000000, net=0x40000000, ipc=0x8000000, uts=0x4000000,
                           cgroup=0x2000000, time=0x80).items():
        # With a flag that there is not, and a thread without what threads share: the kernel itself says EINVAL
        # to both, but to some of them EPERM if all were right.
        call("unshare", flag | 1, label="unshare-" + name)
        if name != "time":  # not one of clone's
            call("clone", flag | 0x10000, 0, 0, 0, 0, label="clone-" + name)
    for family in (40, 38, 17, 31, 29, 30, 21):  # vsock, alg, packet, bluetooth, can, tipc, rds
        attempt("socket-%d" % family, lambda: socket.socket(family, socket.SOCK_DGRAM, 0).close())
    for family in (2, 10, 16, 30, 40):  # inet, inet6, netlink, tipc, vsock
        attempt("socketpair-%d" % family, lambda: socket.socketpair(family, socket.SOCK_STREAM, 0))
    attempt("socketpair-1", lambda: [s.close() for s in socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)])
    for name in ("AF_INET", "AF_INET6", "AF_UNIX", "AF_NETLINK"):
        attempt(name, lambda: socket.socket(getattr(socket, name), socket.SOCK_DGRAM).close())


def terminal():
    # Typing for whoever sits at it, and a console's clipboard. Of a pipe, so that the kernel says ENOTTY; the
    # second time as a number of more bits, of which it sees these.
    fd, _ = os.pipe()
    key = ctypes.create_string_buffer(b"x")
    for name, request in dict(TIOCSTI=0x5412, TIOCLINUX=0x541C).items():
        call("ioctl", fd, request, ctypes.cast(key, ctypes.c_void_p), label=name)
        call("ioctl", fd, request | 1 << 32, ctypes.cast(key, ctypes.c_void_p), label=name + "-wide")
    # what stays allowed
    attempt("size", lambda: os.get_terminal_size(os.openpty()[0]))


def server():
    # PID 1 and its threads: not to be traced, read, robbed of descriptors, or limited.
    call("ptrace", 16, 1, 0, 0, label="ptrace-attach")
    call("ptrace", 0x4206, 1, 0, 0, label="ptrace-seize")
    buf = ctypes.create_string_buffer(16)
    iov = (ctypes.c_void_p * 2)(ctypes.addressof(buf), 16)
    call("process_vm_readv", 1, ctypes.cast(iov, ctypes.c_void_p), 1, ctypes.cast(iov, ctypes.c_void_p), 1, 0)
    fd = libc.syscall(ctypes.c_long(NR["pidfd_open"]), 1, 0)
    call("pidfd_getfd", fd, 0, 0)
    limit = (ctypes.c_ulong * 2)(0, 0)
    for pid in [1] + [int(t) for t in os.listdir("/proc/1/task") if t != "1"][:1]:
        call("prlimit64", pid, 7, ctypes.cast(limit, ctypes.c_void_p), 0, label="prlimit")
    for name in ("mem", "environ", "maps", "auxv", "fd/0", "ns/user", "root/etc", "cwd/", "exe", "map_files", "syscall",
                 "stack", "personality"):
        attempt("proc-" + name, lambda: look("/proc/1/" + name))
    attempt("proc-oom", lambda: open("/proc/1/oom_score_adj", "w").write("1000"))
    attempt("proc-coredump", lambda: open("/proc/1/coredump_filter", "w").write("0"))


def files(where):
    # What lends its owner's rights; device nodes.
    d = tempfile.mkdtemp(dir=where)
    f = os.path.join(d, "f")
    open(f, "w").close()
    attempt("chmod-setuid", lambda: os.chmod(f, 0o4755))
    attempt("chmod-setgid", lambda: os.chmod(f, 0o2755))
    fd = os.open(f, os.O_RDWR)
    attempt("fchmod-setuid", lambda: os.fchmod(fd, 0o4755))
    call("fchmodat2", fd, b"", 0o4755, 0x1000, label="fchmodat2-setuid")
    attempt("open-setuid", lambda: os.open(d + "/g", os.O_CREAT | os.O_WRONLY, 0o4755))
    attempt("mknod-setuid", lambda: os.mknod(d + "/h", 0o104755))
    attempt("tmpfile-setuid", lambda: os.open(d, os.O_TMPFILE | os.O_RDWR, 0o4755))
    # The same by number: which of the calls a library makes is its own affair.
    a, path = -100, os.fsencode(d)
    call("chmod", path + b"/f", 0o4755, label="call-chmod")
    call("fchmod", fd, 0o4755, label="call-fchmod")
    call("fchmodat", a, path + b"/f", 0o4755, label="call-fchmodat")
    call("mknod", path + b"/i", 0o104755, 0, label="call-mknod")
    call("mknodat", a, path + b"/j", 0o104755, 0, label="call-mknodat")
    call("creat", path + b"/k", 0o4755, label="call-creat")
    call("open", path + b"/l", os.O_CREAT | os.O_WRONLY, 0o4755, label="call-open")
    call("open", path, os.O_TMPFILE | os.O_RDWR, 0o4755, label="call-open-tmpfile")
    call("openat", a, path + b"/m", os.O_CREAT | os.O_WRONLY, 0o4755, label="call-openat")
    call("openat", a, path, os.O_TMPFILE | os.O_RDWR, 0o4755, label="call-openat-tmpfile")
    attempt("mknod-disk", lambda: os.mknod(d + "/disk", 0o060600, os.makedev(8, 0)))
    attempt("mknod-mem", lambda: os.mknod(d + "/mem", 0o020600, os.makedev(1, 1)))
    attempt("capability", lambda: os.setxattr(f, "security.capability", b"\x01\0\0\2\0\0\x20\0" + bytes(12)))
    attempt("chown-root", lambda: os.chown(f, 0, 0))
    # what stays allowed
    attempt("chmod", lambda: os.chmod(f, 0o1755))
    attempt("fifo", lambda: os.mkfifo(d + "/fifo"))
    for root, _, names in os.walk(d):
        for name in names:
            os.unlink(os.path.join(root, name))
    os.rmdir(d)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
