#!/usr/bin/env python3
"""Types into an interactive shell on a terminal, as a person would, and shows what came of it.

usage: typed.py TEXT COMMAND...    e.g. typed.py 'threadfs unmo' bash --norc -i

Waits for the prompt "READY> ", types TEXT and the tabulator, puts quotes and echo around what
the line is then, and prints what echo printed.
"""
import os
import pty
import select
import sys
import time

LIMIT = 60


def read_until(fd, seen, done, limit):
    end = time.monotonic() + limit
    while not done(seen) and time.monotonic() < end:
        if select.select([fd], [], [], 0.1)[0]:
            try:
                seen += os.read(fd, 65536)
            except OSError:
                break
    return seen


def main():
    text, command = sys.argv[1], sys.argv[2:]
    pid, fd = pty.fork()
    if pid == 0:
        os.environ.update(TERM="dumb", LC_ALL="C.UTF-8", COLUMNS="1000")
        os.execvp(command[0], command)
    try:
        seen = read_until(fd, b"", lambda s: b"READY> " in s, LIMIT)
        # Completion is over when the shell takes the next keys: they are typed at once.
        os.write(fd, text.encode() + b'\t@"\001echo "@\r')
        mark = len(seen)
        seen = read_until(fd, seen, lambda s: s[mark:].rpartition(b"\n@")[2].count(b"@") == 1 and
                          b"\n@" in s[mark:], LIMIT)
        line = seen[mark:].rpartition(b"\n@")[2].partition(b"@")[0]
        print(line.decode(errors="replace"))
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
