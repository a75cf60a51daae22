"""The same random operations in two directories have the same outcomes.

usage: twins.py LOCAL MOUNT SEED STEPS

LOCAL is on a file system of the host, and what happens there is right. After each step
results and errnos are compared, now and then and at the end the whole trees. What
README.md says under Limits is not tried: writing to a file with several names,
times set under a reader, a link that is moved onto what it leads to.
"""

import ctypes
import errno
import fcntl
import mmap
import os
import random
import stat
import sys

NAMES = [b"a", b"b", b"c", b"d", b"e e", b"f\n", b"-g", b"h'\"$(x)", b"i" * 255]
ODD_NAMES = [b"x" * 256, b"\xff\xfe", b".", b"..", b""]
DIRS = [b"", b"a", b"b", b"c", b"d", b"a/b", b"b/c"]
SLOTS = 6
RENAME_NOREPLACE = 1
libc = ctypes.CDLL(None, use_errno=True)


class Side:
    def __init__(self, base):
        self.base = os.fsencode(base) + b"/in"  # so that .. is there, too
        self.files = {}
        os.mkdir(self.base, 0o755)

    def at(self, path):
        return self.base + b"/" + path

    def is_open(self, path, writing):
        """By somebody who writes or reads it."""
        try:
            ino = os.stat(self.at(path)).st_ino
        except OSError:
            return False
        return any(os.fstat(fd).st_ino == ino and (access != os.O_RDONLY) == writing
                   for fd, access in self.files.values())


def has_names(path):
    """More than one."""
    try:
        st = os.stat(path)
    except OSError:
        return False
    return stat.S_ISREG(st.st_mode) and st.st_nlink > 1


def shown(st):
    size = None if stat.S_ISDIR(st.st_mode) else st.st_size
    return oct(st.st_mode), st.st_nlink, size


def read_all(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        pieces = []
        while pieces[-1:] != [b""]:
            pieces.append(os.read(fd, 65536))
        return b"".join(pieces)
    finally:
        os.close(fd)


def tree(side):
    found = []
    for top, dirs, files in os.walk(side.base):
        dirs.sort()
        for name in sorted(dirs + files):
            path = os.path.join(top, name)
            st = os.lstat(path)
            content = None
            if stat.S_ISREG(st.st_mode):
                content = hash(read_all(path))
            elif stat.S_ISLNK(st.st_mode):
                content = os.readlink(path)
            found.append((os.path.relpath(path, side.base), shown(st), content))
    return found


class Steps:
    """Each draws its arguments and returns (function of a side, arguments as text)."""

    def __init__(self, seed):
        self.rnd = random.Random(seed)

    def path(self):
        rnd = self.rnd
        name = rnd.choice(NAMES if rnd.random() < 0.95 else ODD_NAMES)
        path = os.path.join(rnd.choice(DIRS), name)
        odd = rnd.random()
        if odd < 0.04:
            return path + b"/"
        if odd < 0.07:
            return path + b"/."
        return b"./" + path if odd < 0.1 else path

    def size(self):
        return self.rnd.choice([1, 10, 4095, 4096, 4097, 70000, self.rnd.randrange(300000)])

    def place(self):
        return self.rnd.choice([0, 1, 5000, self.rnd.randrange(300000)])

    def mode(self):
        return self.rnd.choice([0o600, 0o640, 0o644, 0o666, 0o755])

    def time(self):
        return self.rnd.randrange(10**9, 2 * 10**18)

    def on_file(self, act, *args, writes=False):
        slot = self.rnd.randrange(SLOTS)

        def step(side):
            if slot not in side.files:
                return "closed"
            fd, access = side.files[slot]
            if writes and access != os.O_RDONLY and os.fstat(fd).st_nlink > 1:
                return "several names"
            return act(fd)
        return step, (slot, *args)

    # open files

    def do_open(self):
        rnd, slot, path, mode = self.rnd, self.rnd.randrange(SLOTS), self.path(), self.mode()
        access = rnd.choice([os.O_RDONLY, os.O_WRONLY, os.O_RDWR])
        flags = access
        for flag, chance in ((os.O_CREAT, 0.7), (os.O_TRUNC, 0.2), (os.O_APPEND, 0.15),
                             (os.O_NOFOLLOW, 0.1)):
            flags |= flag if rnd.random() < chance else 0
        if flags & os.O_CREAT and rnd.random() < 0.15:
            flags |= os.O_EXCL
        if not flags & os.O_CREAT and rnd.random() < 0.1:
            flags |= os.O_DIRECTORY
        if access == os.O_RDONLY:
            flags &= ~os.O_TRUNC

        def step(side):
            if slot in side.files:
                return "taken"
            if access != os.O_RDONLY and has_names(side.at(path)):
                return "several names"
            side.files[slot] = os.open(side.at(path), flags, mode), access
            return "open"
        return step, (slot, path, oct(flags), oct(mode))

    def do_close(self):
        slot = self.rnd.randrange(SLOTS)

        def step(side):
            if slot in side.files:
                os.close(side.files.pop(slot)[0])
        return step, slot

    def do_pread(self):
        size, at = self.size(), self.place()
        return self.on_file(lambda fd: os.pread(fd, size, at), size, at)

    def do_read(self):
        size = self.size()
        return self.on_file(lambda fd: os.read(fd, size), size)

    def do_pwrite(self):
        data, at = self.rnd.randbytes(self.size()), self.place()
        return self.on_file(lambda fd: os.pwrite(fd, data, at), len(data), at, writes=True)

    def do_write(self):
        data = self.rnd.randbytes(self.size())
        return self.on_file(lambda fd: os.write(fd, data), len(data), writes=True)

    def do_lseek(self):
        where, at = self.rnd.choice([0, 1, 2]), self.rnd.choice([0, 0, 10, -5, 100000])

        def act(fd):  # of directories each file system has its own
            return stat.S_ISREG(os.fstat(fd).st_mode) and os.lseek(fd, at, where)
        return self.on_file(act, where, at)

    def do_ftruncate(self):
        size = self.rnd.choice([0, 1, 100, 4096, 100000, 400000])
        return self.on_file(lambda fd: os.ftruncate(fd, size), size, writes=True)

    def do_fallocate(self):
        at, size = self.rnd.randrange(100000), self.rnd.randrange(1, 100000)
        return self.on_file(lambda fd: os.posix_fallocate(fd, at, size), at, size, writes=True)

    def do_fsync(self):
        return self.on_file(os.fsync)

    def do_fstat(self):
        return self.on_file(lambda fd: shown(os.fstat(fd)))

    def do_fchmod(self):
        mode = self.mode()

        def act(fd):
            st = os.fstat(fd)
            os.fchmod(fd, mode | (0o700 if stat.S_ISDIR(st.st_mode) else 0))
            return shown(os.fstat(fd))
        return self.on_file(act, oct(mode))

    def do_mmap(self):
        at, data = self.rnd.randrange(100000), self.rnd.randbytes(self.rnd.randrange(1, 5000))

        def act(fd):
            st = os.fstat(fd)
            if (not stat.S_ISREG(st.st_mode) or st.st_size < at + len(data) or
                    fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDWR):
                return "no"
            with mmap.mmap(fd, st.st_size) as m:
                m[at:at + len(data)] = data
                m.flush()
            return os.pread(fd, len(data) + 10, max(0, at - 5))
        return self.on_file(act, at, len(data), writes=True)

    def do_copy_file_range(self):
        one, two = self.rnd.sample(range(SLOTS), 2)
        size, at, to = self.size(), self.place(), self.place()

        def step(side):
            if one not in side.files or two not in side.files:
                return "closed"
            a, b = side.files[one][0], side.files[two][0]
            if os.fstat(b).st_nlink > 1 or os.path.sameopenfile(a, b):
                return "no"
            done = 0
            while done < size:
                n = os.copy_file_range(a, b, size - done, at + done, to + done)
                if n == 0:
                    break
                done += n
            return done
        return step, (one, two, size, at, to)

    # names

    def do_stat(self):
        path = self.path()
        return lambda side: shown(os.stat(side.at(path))), path

    def do_lstat(self):
        path = self.path()
        return lambda side: shown(os.lstat(side.at(path))), path

    def do_mkdir(self):
        path = self.rnd.choice(DIRS[1:]) if self.rnd.random() < 0.6 else self.path()
        mode = self.rnd.choice([0o755, 0o700, 0o777])
        return lambda side: os.mkdir(side.at(path), mode), (path, oct(mode))

    def do_rmdir(self):
        path = self.path()
        return lambda side: os.rmdir(side.at(path)), path

    def do_unlink(self):
        path = self.path()
        return lambda side: os.unlink(side.at(path)), path

    def do_rename(self):
        path, to = self.path(), self.path()

        def step(side):
            a, b = side.at(path), side.at(to)
            if os.path.islink(a) and os.path.exists(b) and os.path.samefile(a, b) and \
                    os.lstat(a).st_nlink == 1:
                return "where it leads"
            os.rename(a, b)
        return step, (path, to)

    def do_rename_noreplace(self):
        path, to = self.path(), self.path()

        def step(side):
            if libc.renameat2(-100, side.at(path), -100, side.at(to), RENAME_NOREPLACE) < 0:
                raise OSError(ctypes.get_errno(), "renameat2")
        return step, (path, to)

    def do_link(self):
        path, to = self.path(), self.path()

        def step(side):
            if side.is_open(path, True):
                return "written"
            os.link(side.at(path), side.at(to), follow_symlinks=False)
        return step, (path, to)

    def do_symlink(self):
        target = self.rnd.choice([b"a", b"b", b"../a", b"c/d", b"nowhere", b".", b"d"])
        path = self.path()
        return lambda side: os.symlink(target, side.at(path)), (target, path)

    def do_readlink(self):
        path = self.path()
        return lambda side: os.readlink(side.at(path)), path

    def do_list(self):
        path = self.rnd.choice(DIRS)

        def step(side):
            with os.scandir(side.at(path)) as entries:
                return sorted((e.name, e.is_dir(follow_symlinks=False), e.is_symlink())
                              for e in entries)
        return step, path

    def do_chmod(self):
        path, mode = self.path(), self.mode()

        def step(side):
            os.chmod(side.at(path), mode | (0o700 if os.path.isdir(side.at(path)) else 0))
        return step, (path, oct(mode))

    def do_utime(self):
        path, time = self.path(), self.time()

        def step(side):
            if side.is_open(path, False):
                return "read"
            os.utime(side.at(path), ns=(time, time))
            return os.stat(side.at(path)).st_mtime_ns
        return step, (path, time)

    def do_truncate(self):
        path, size = self.path(), self.rnd.choice([0, 3, 5000, 100000])

        def step(side):
            if has_names(side.at(path)):
                return "several names"
            os.truncate(side.at(path), size)
        return step, (path, size)

    def do_cat(self):
        path = self.path()
        return lambda side: read_all(side.at(path)), path

    def do_save(self):
        """As editors do it: beside, then over it."""
        path, data = self.path(), self.rnd.randbytes(self.size())

        def step(side):
            beside = side.at(path).rstrip(b"/.") + b".tmp"
            fd = os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
            try:
                os.write(fd, data)
                os.fsync(fd)
            finally:
                os.close(fd)
            try:
                os.rename(beside, side.at(path))
            except OSError:
                os.unlink(beside)
                raise
        return step, (path, len(data))

    def do_tree(self):
        return tree, ""


OFTEN = {"open": 10, "close": 8, "pread": 10, "read": 5, "pwrite": 12, "write": 8, "stat": 6,
         "lstat": 6, "fstat": 6, "mkdir": 8, "unlink": 6, "rename": 9, "cat": 8, "list": 5,
         "symlink": 4, "ftruncate": 4, "tree": 1}


def outcome(step, side):
    try:
        return step(side)
    except OSError as e:
        return errno.errorcode[e.errno]


def brief(value):
    text = repr(value)
    return text if len(text) < 200 else text[:200] + "…"


def main(local, mount, seed, count):
    steps, sides, log = Steps(seed), (Side(local), Side(mount)), []
    names = sorted(name[3:] for name in dir(Steps) if name.startswith("do_"))
    names = [name for name in names for _ in range(OFTEN.get(name, 3))]
    for i in range(count + 1):
        name = steps.rnd.choice(names) if i < count else "tree"
        step, args = getattr(steps, "do_" + name)()
        want, got = (outcome(step, side) for side in sides)
        log.append(f"{i}: {name} {brief(args)}: {brief(want)}")
        if want == got:
            continue
        print(f"seed {seed}:", *log[-40:], sep="\n")
        if name == "tree" and isinstance(got, list):
            want, got = [x for x in want if x not in got], [x for x in got if x not in want]
        print("want:", brief(want), "\ngot: ", brief(got))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
