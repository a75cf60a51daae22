#!/usr/bin/env python3
"""Changes made in a sandbox, seen through a mount that has cached the opposite.

usage: fresh_test.py MOUNTED [--host DIR | --shell COMMAND…]

MOUNTED is a directory of a sandbox in the mount. The changes are made in DIR, the same directory
beside the mount, or by a shell in the sandbox whose stdin is fed. Each change has to show
within a time that is far beyond any cache's; how long it took is printed. With PROMISE, in seconds,
those that showed soonest, a quarter of them, must have done so within that: caches that nobody
is told about would take longer, a busy machine alone does not make all of them late.
"""
import mmap
import os
import stat
import subprocess
import sys
import time

DEADLINE = float(os.environ.get("DEADLINE", "20"))
PROMISE = float(os.environ.get("PROMISE", "0"))


class Host:
    """Somebody who works in the sandbox's directory."""

    def __init__(self, directory):
        self.directory = directory

    def __call__(self, command):
        subprocess.run(["sh", "-ec", command], cwd=self.directory, check=True)

    def end(self):
        pass


class Shell:
    """A shell in the sandbox, in that directory; it goes on from one command to the next."""

    def __init__(self, argv):
        self.shell = subprocess.Popen(argv, stdin=subprocess.PIPE, text=True)

    def __call__(self, command):
        self.shell.stdin.write(command + "\n")
        self.shell.stdin.flush()

    def end(self):
        self.shell.stdin.close()
        if self.shell.wait() != 0:
            raise SystemExit("the shell in the sandbox failed")


def look(path):
    """What there is to see of a path, in one value."""
    try:
        st = os.lstat(path)
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(st.st_mode):
        return "link", os.readlink(path)
    if stat.S_ISDIR(st.st_mode):
        return "dir", sorted(os.listdir(path))
    with open(path, "rb") as f:
        return "file", stat.S_IMODE(st.st_mode), st.st_size, f.read()


def seen(*paths):
    return lambda: tuple(look(p) for p in paths)


def wait(name, now, want, since):
    """Until it is seen; before that only what was there before, or something in between."""
    while True:
        try:
            got = now()
        except OSError as e:  # it changes while it is looked at
            got = e
        if got == want:
            break
        if time.monotonic() - since > DEADLINE:
            raise SystemExit(f"{name}: still {got!r:.500}, not {want!r:.500}")
        time.sleep(0.005)
    print(f"# {name}: {(time.monotonic() - since) * 1000:.0f} ms", flush=True)


class Test:
    def __init__(self, change):
        self.change = change
        self.delays = []

    def case(self, name, command, now, want):
        # Twice, so that what may be cached is; and it is the opposite.
        for _ in range(2):
            before = now()
        if before == want:
            raise SystemExit(f"{name}: it is so before")
        since = time.monotonic()
        self.change(command)
        changed = time.monotonic()
        wait(name, now, want, since)
        self.delays.append(time.monotonic() - changed)

    def keep_promise(self):
        """Of changes that were made when the command had ended."""
        self.delays.sort()
        soon = self.delays[len(self.delays) // 4]
        print(f"# of {len(self.delays)} changes a quarter showed within {soon * 1000:.0f} ms,"
              f" half within {self.delays[len(self.delays) // 2] * 1000:.0f} ms,"
              f" all within {self.delays[-1] * 1000:.0f} ms", flush=True)
        if soon > PROMISE:
            raise SystemExit(f"that is later than promised: {PROMISE * 1000:.0f} ms")

    def file(self, name, content, mode=0o644):
        """One that is there, and known."""
        since = time.monotonic()
        self.change(f"printf %s '{content}' >{name}; chmod {mode:o} {name}")
        want = ("file", mode, len(content), content.encode())
        wait(f"(a file {name})", lambda: look(name), want, since)

    def names(self):
        self.case("create", "printf new >a; chmod 644 a", seen("a"),
                  (("file", 0o644, 3, b"new"),))
        self.case("create, in the listing", ": >b", lambda: sorted(os.listdir(".")), ["a", "b"])
        self.case("remove", "rm a", seen("a"), (None,))
        self.case("remove, in the listing", "rm b", lambda: os.listdir("."), [])
        self.case("mkdir", "mkdir d", seen("d", "d/none"), (("dir", []), None))
        self.case("create in a directory", ": >d/x; chmod 600 d/x", seen("d", "d/x"),
                  (("dir", ["x"]), ("file", 0o600, 0, b"")))
        self.case("rename", "mv d/x d/y", seen("d/x", "d/y"), (None, ("file", 0o600, 0, b"")))
        self.case("move", "mv d/y z", seen("d/y", "z", "d"),
                  (None, ("file", 0o600, 0, b""), ("dir", [])))
        self.case("rmdir", "rmdir d", seen("d"), (None,))
        self.case("a directory in place of a file", "rm z; mkdir z", seen("z"), (("dir", []),))
        self.case("a file in place of a directory", "rmdir z; : >z; chmod 644 z", seen("z"),
                  (("file", 0o644, 0, b""),))
        self.change("rm z")

    def contents(self):
        self.file("f", "old")
        self.case("overwrite in place", "printf newer >f", seen("f"),
                  (("file", 0o644, 5, b"newer"),))
        self.case("the same length", "printf NEWER >f", seen("f"),
                  (("file", 0o644, 5, b"NEWER"),))
        self.case("append", "printf +more >>f", seen("f"), (("file", 0o644, 10, b"NEWER+more"),))
        self.case("truncate", "truncate -s 2 f", seen("f"), (("file", 0o644, 2, b"NE"),))
        self.case("chmod", "chmod 640 f", seen("f"), (("file", 0o640, 2, b"NE"),))
        self.case("touch", "touch -d @1000000000 f", lambda: int(os.stat("f").st_mtime), 1000000000)
        self.case("replace by rename", "printf other >.f; chmod 600 .f; mv .f f", seen("f"),
                  (("file", 0o600, 5, b"other"),))
        self.case("a hard link", "ln f g", seen("g"), (("file", 0o600, 5, b"other"),))
        self.case("by its other name", "printf twice >g", seen("f", "g"),
                  (("file", 0o600, 5, b"twice"),) * 2)
        # Of the name in the other directory nothing is known here.
        self.change("mkdir o; ln f o/g")
        wait("(two names)", lambda: os.path.exists("o"), True, time.monotonic())
        self.case("by a name that nobody looked at", "touch f; printf third >o/g", seen("f"),
                  (("file", 0o600, 5, b"third"),))
        self.case("and again", "printf fourth >o/g", seen("f"), (("file", 0o600, 6, b"fourth"),))
        self.change("rm -rf f g o")

    def links(self):
        self.case("symlink", "ln -s here l", seen("l"), (("link", "here"),))
        self.case("symlink, changed", "ln -sfn there l", seen("l"), (("link", "there"),))
        self.case("a file in place of a symlink", "rm l; printf x >l; chmod 644 l", seen("l"),
                  (("file", 0o644, 1, b"x"),))
        self.change("rm l")

    def trees(self):
        self.case("a tree", "mkdir -p t/u/v; printf 1 >t/u/v/w; chmod 644 t/u/v/w",
                  seen("t/u/v/w", "t/u"), (("file", 0o644, 1, b"1"), ("dir", ["v"])))
        self.case("rename of a directory with files", "mv t s",
                  seen("t/u/v/w", "s/u/v/w", "t"), (None, ("file", 0o644, 1, b"1"), None))
        self.case("and another in its place", "mkdir -p t/u/v; printf 22 >t/u/v/w; chmod 644 t/u/v/w",
                  seen("t/u/v/w", "s/u/v/w"),
                  (("file", 0o644, 2, b"22"), ("file", 0o644, 1, b"1")))
        self.case("exchanged", "mv t x; mv s t; mv x s", seen("t/u/v/w", "s/u/v/w"),
                  (("file", 0o644, 1, b"1"), ("file", 0o644, 2, b"22")))
        self.case("rm -r", "rm -r t s", seen("t/u/v/w", "s/u", "s"), (None, None, None))

    def many(self):
        paths = [f"m/{i}" for i in range(0, 1000, 37)]

        def there():
            return len(os.listdir("m")), sum(os.path.exists(p) for p in paths)

        self.change("mkdir m")
        wait("(an empty directory)", lambda: look("m"), ("dir", []), time.monotonic())
        self.case("1000 files at once", "cd m; for i in $(seq 0 999); do : >$i; done; cd ..",
                  there, (1000, len(paths)))
        self.case("1000 files less", "cd m; seq 0 999 | xargs rm; cd ..",
                  there, (0, 0))
        self.change("rmdir m")

    def listed(self):
        """A name that was missed, and is listed before the watch tells of it."""
        self.change("mkdir l")
        wait("(an empty directory)", lambda: look("l"), ("dir", []), time.monotonic())
        for i in range(5):
            # So many that came make who lists the directory ask for all of it.
            self.case("a few files", f"for j in 0 1 2 3 4 5 6 7 8 9; do : >l/{i}$j; done",
                      lambda: os.path.exists(f"l/{i}9"), True)
            if os.path.exists(f"l/x{i}") or not os.stat("l").st_mtime:
                raise SystemExit("it is there before")
            since = time.monotonic()
            self.change(f": >l/x{i}")
            os.listdir("l")
            wait("missed, then listed", lambda: os.path.exists(f"l/x{i}"), True, since)
            made = os.stat(f"l/x{i}").st_mtime_ns
            wait("the directory's time", lambda: os.stat("l").st_mtime_ns >= made, True, since)
        self.change("rm -r l")

    def held(self):
        """By those who have it open, or mapped, and have read it."""
        for size in 1000, 300000:
            self.file("h", "a" * 10)
            self.case("its size", f"head -c {size} /dev/zero | tr '\\0' o >h",
                      lambda: os.stat("h").st_size, size)
            with open("h", "rb", buffering=0) as f, \
                    mmap.mmap(f.fileno(), size, prot=mmap.PROT_READ) as m:
                def ends():
                    return m[0:3], m[size - 3:size]

                def read():
                    return os.pread(f.fileno(), 3, 0), os.pread(f.fileno(), 3, size - 3)

                wait("(its content)", lambda: (ends(), read()), ((b"ooo",) * 2,) * 2,
                     time.monotonic())
                self.case(f"held open, {size} bytes",
                          f"head -c {size} /dev/zero | tr '\\0' n |"
                          f" dd of=h conv=notrunc bs={size} iflag=fullblock status=none",
                          lambda: (read(), ends()), ((b"nnn",) * 2,) * 2)
        self.change("rm h")


def main():
    os.chdir(sys.argv[1])
    change = Host(sys.argv[3]) if sys.argv[2] == "--host" else Shell(sys.argv[3:])
    test = Test(change)
    for part in (test.names, test.contents, test.links, test.trees, test.many, test.listed,
                 test.held):
        part()
    if PROMISE:
        test.keep_promise()
    change.end()
    wait("(the end)", lambda: os.listdir("."), [], time.monotonic())


if __name__ == "__main__":
    main()
