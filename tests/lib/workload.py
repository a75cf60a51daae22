#!/usr/bin/env python3
"""Goes about in a directory for a while: everything that programs do to files, at random.

usage: workload.py DIRECTORY SECONDS SEED

Errors are the answer to a server that lies, and no matter; what counts is that every call
comes back and that nothing but bytes and attributes does. Ends with 1 if something was
seen that must never be: a name that leads elsewhere, a negative size. Prints how many
calls were made, and how many of them failed.
"""
import os
import random
import stat
import sys
import time

top, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
r = random.Random(seed)
names = ["a", "b", "c", "d", "e f", "g'h", "ü", "x" * 100]
calls = failures = 0


def some(depth=2):
    return os.path.join(top, r.choice(["workspace", "uploads", "outputs"]), *r.choices(names, k=r.randrange(1, depth + 1)))


def walk(path):
    for root, dirs, files in os.walk(path):
        for name in dirs + files:
            if "/" in name or name in (".", "..") or len(os.fsencode(name)) > 255:
                sys.exit("a name that is none: %r in %r" % (name, root))
        if len(root) - len(top) > 2000:
            break


def look(path):
    st = os.lstat(path)
    if st.st_size < 0 or st.st_nlink < 0:
        sys.exit("%r: %r" % (path, st))
    if stat.S_ISLNK(st.st_mode):
        target = os.readlink(path)
        if target.startswith("/"):
            sys.exit("%r leads to %r" % (path, target))


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
