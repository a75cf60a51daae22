#!/usr/bin/env python3
"""One operation on a file, and how the kernel said it went.

usage: op.py [-n] [-i SECONDS] OP PATH [ARGUMENT…]

Prints "OK" or the name of the errno; the step that failed goes to stderr. With
-n it gets SIGALRM all the time, which it handles. With -i it is interrupted by SIGINT
after that time: "EINTR" if it came back at once then, "LATE" if it did not.
"""
import errno
import os
import signal
import sys
import time


class Interrupted(Exception):
    pass


def step(name, call, *args):
    try:
        return call(*args)
    except OSError:
        print(f"{sys.argv}: {name} failed", file=sys.stderr)
        raise


def write_all(fd, data):
    while data:
        data = data[step("write", os.write, fd, data):]


def put(path, size, sync=False, flags=os.O_TRUNC):
    """What cp does: a file of that many bytes."""
    fd = step("open", os.open, path, os.O_WRONLY | os.O_CREAT | flags, 0o644)
    try:
        left = int(size)
        while left > 0:
            piece = b"n" * min(left, 1 << 20)
            write_all(fd, piece)
            left -= len(piece)
        if sync:
            step("fsync", os.fsync, fd)
    except BaseException:
        try:
            os.close(fd)
        except OSError:
            pass
        raise
    step("close", os.close, fd)


def read(path):
    fd = step("open", os.open, path, os.O_RDONLY)
    try:
        while step("read", os.read, fd, 1 << 17):
            pass
    finally:
        os.close(fd)


def write(path, text, flags=0):
    """To a file that is there: a control file."""
    fd = step("open", os.open, path, os.O_WRONLY | flags)
    try:
        step("write", os.write, fd, text.encode())
    except BaseException:
        try:
            os.close(fd)
        except OSError:
            pass
        raise
    step("close", os.close, fd)


OPS = {
    "stat": os.lstat,
    "ls": os.listdir,
    "read": read,
    "put": put,
    "put+fsync": lambda path, size: put(path, size, sync=True),
    "append": lambda path, size: put(path, size, flags=os.O_APPEND),
    "mkdir": os.mkdir,
    "rmdir": os.rmdir,
    "rm": os.unlink,
    "mv": os.rename,
    "ln": lambda path, target: os.symlink(target, path),
    "readlink": os.readlink,
    "chmod": lambda path, mode: os.chmod(path, int(mode, 8)),
    "truncate": lambda path, size: os.truncate(path, int(size)),
    "utime": os.utime,
    "write": write,
    "statvfs": os.statvfs,
}


def main():
    args = sys.argv[1:]
    patience = None
    if args[0] == "-n":
        args = args[1:]
        signal.signal(signal.SIGALRM, lambda _number, _frame: None)
        signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
    if args[0] == "-i":
        patience = float(args[1])
        args = args[2:]

        def on_signal(_number, _frame):
            raise Interrupted

        signal.signal(signal.SIGINT, on_signal)
        me = os.getpid()
        if os.fork() == 0:
            time.sleep(patience)
            if os.getppid() == me:
                os.kill(me, signal.SIGINT)
            os._exit(0)
    began = time.monotonic()
    try:
        OPS[args[0]](*args[1:])
        print("OK")
    except Interrupted:
        print("EINTR" if time.monotonic() - began < patience + 5 else "LATE")
    except OSError as e:
        print(errno.errorcode[e.errno])


main()
