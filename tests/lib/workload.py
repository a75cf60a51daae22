#!/usr/bin/env python3
"""Goes about in a directory for a while: everything that programs do to files, at random.

usage: workload.py DIRECTORY SECONDS SEED

Errors are the answer to a server that lies, and no matter; what counts is that every call
comes back and that nothing but bytes and attributes does. Ends with 1 if something was
seen that must never be: a name or a link that leads elsewhere, a negative size. Prints how
many calls were made, and how many of them failed.
"""
import ctypes
import errno
import mmap
import os
import random
import resource
import signal
import stat
import sys
import time

# The directories are known by where they really are, see leads_out().
top, seconds, seed = os.path.realpath(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
libc = ctypes.CDLL(None, use_errno=True)
r = random.Random(seed)
names = ["a", "b", "c", "d", "e f", "g'h", "ü", "x" * 100]
calls = failures = 0


def some(depth=2):
    return os.path.join(top, r.choice(["workspace", "uploads", "outputs"]), *r.choices(names, k=r.randrange(1, depth + 1)))


def check_link(path):
    """Ends the program if the link leads out of the top. Its directory is opened: what leads there may be a link
    itself, and another one a moment later, and how far ".." goes depends on where it really is."""
    fd = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY)
    try:
        target = os.readlink(os.path.basename(path), dir_fd=fd)
        place = os.readlink("/proc/self/fd/%d" % fd)
    finally:
        os.close(fd)
    led = os.path.normpath(os.path.join(place, target))
    if target.startswith("/") or (led != top and not led.startswith(top + "/")):
        sys.exit("%r, in %r, leads to %r" % (path, place, target))


def walk(path):
    for root, dirs, files in os.walk(path):
        for name in dirs + files:
            if "/" in name or name in (".", "..") or len(os.fsencode(name)) > 255:
                sys.exit("a name that is none: %r in %r" % (name, root))
            try:
                if os.path.islink(os.path.join(root, name)):
                    check_link(os.path.join(root, name))
            except OSError:
                pass
        if len(root) - len(top) > 2000:
            break


def look(path):
    st = os.lstat(path)
    if st.st_size < 0 or st.st_nlink < 0:
        sys.exit("%r: %r" % (path, st))
    if stat.S_ISLNK(st.st_mode):
        check_link(path)


def write(path):
    with open(path, r.choice(["wb", "ab", "r+b", "xb"])) as f:
        f.write(os.urandom(r.choice([0, 1, 100, 5000, 200000])))
        if r.random() < 0.3:
            f.seek(r.randrange(100000))
            f.write(b"x")


def read(path):
    with open(path, "rb") as f:
        f.seek(r.choice([0, 0, 10, 100000]))
        f.read(r.choice([1, 4096, 1 << 20]))


def copy(path):
    with open(path, "rb") as src, open(some(), "r+b") as dst:
        os.copy_file_range(src.fileno(), dst.fileno(), r.choice([1, 5000, 1 << 20]), r.choice([0, 0, 10, 100000]),
                           r.choice([0, 0, 10, 100000]))


def allocate(path):
    """Not posix_fallocate(), which would write if it is told that there is no such thing."""
    keep, punch = 1, 2
    with open(path, "r+b") as f:
        if libc.fallocate(f.fileno(), r.choice([0, 0, keep, punch | keep]), ctypes.c_int64(r.choice([0, 10, 100000])),
                          ctypes.c_int64(r.choice([1, 4096, 200000]))) < 0:
            raise OSError(ctypes.get_errno(), path)


def mapped(path):
    """In a process of its own: a page that cannot be read is SIGBUS."""
    with open(path, "rb") as f:
        pid = os.fork()
        if pid == 0:
            try:
                resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
                with mmap.mmap(f.fileno(), r.choice([0, 4096]), prot=mmap.PROT_READ) as m:
                    for at in range(0, min(len(m), 1 << 20), mmap.PAGESIZE):
                        _ = m[at]
                os._exit(0)
            except (OSError, ValueError):  # what is empty cannot be mapped, what is lied about neither
                os._exit(1)
            finally:
                os._exit(2)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status not in (0, 1, -signal.SIGBUS):
        sys.exit("mapping %r: %d" % (path, status))
    if status:
        raise OSError(errno.EIO, path)


def command(path):
    fd = os.open(os.path.join(top, ".ctl/exec"), os.O_RDWR | os.O_NONBLOCK)
    try:
        os.write(fd, b"date; ls -l; echo x >outputs/made")
    finally:
        os.close(fd)


deeds = [
    (6, look), (3, lambda p: os.listdir(os.path.dirname(p))), (1, lambda p: walk(top)), (6, write), (6, read),
    (2, os.mkdir), (1, os.rmdir), (2, os.unlink), (3, lambda p: os.rename(p, some())), (1, lambda p: os.link(p, some())),
    (1, lambda p: os.symlink(r.choice(["a", "../b", "/etc/passwd", "../../../.."]), p)),
    (1, lambda p: os.chmod(p, r.randrange(0o1000))), (1, lambda p: os.truncate(p, r.choice([0, 5, 100000]))),
    (1, lambda p: os.utime(p, (r.randrange(2**31), r.randrange(2**31)))), (1, lambda p: os.statvfs(p)), (1, command),
    (2, copy), (1, allocate), (2, mapped),
    (1, lambda p: open(os.path.join(top, ".ctl", r.choice(["status", "status.json", "transfers", "exit_code"]))).read()),
]
end = time.monotonic() + seconds
while time.monotonic() < end:
    deed = r.choices([d for _, d in deeds], [w for w, _ in deeds])[0]
    calls += 1
    try:
        deed(some())
    except (OSError, UnicodeDecodeError):
        failures += 1
print("%d calls, %d failed" % (calls, failures))
