"""The filesystem API as programs use it, on a directory that is given.

usage: fs_test.py DIRECTORY [unittest's arguments]

Nothing here knows what filesystem it is; it passes on ext4 or tmpfs, too, but for
what class Mount says. Each test has a directory of its own and is in it.
"""

import ctypes
import errno
import fcntl
import mmap
import os
import random
import select
import stat
import subprocess
import sys
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

BASE = None
RENAME_NOREPLACE, RENAME_EXCHANGE = 1, 2
libc = ctypes.CDLL(None, use_errno=True)


def write(path, data, flags=os.O_CREAT | os.O_TRUNC, mode=0o644):
    fd = os.open(path, os.O_WRONLY | flags, mode)
    try:
        while data:
            data = data[os.write(fd, data):]
    finally:
        os.close(fd)


def read(path):
    with open(path, "rb") as f:
        return f.read()


def renameat2(old, new, flags):
    at = -100
    if libc.renameat2(at, os.fsencode(old), at, os.fsencode(new), flags) < 0:
        e = ctypes.get_errno()
        raise OSError(e, os.strerror(e), old)


def in_other_process(code, *args):
    """Runs it with this module's imports; returns what it printed."""
    head = "import errno, fcntl, os, sys\n"
    return subprocess.run([sys.executable, "-c", head + code, *args], check=True, text=True,
                          stdout=subprocess.PIPE, timeout=60).stdout.strip()


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = os.path.join(BASE, self.id().split(".", 1)[1])
        os.mkdir(self.dir)
        os.chdir(self.dir)
        self.fds = []

    def tearDown(self):
        for fd in self.fds:
            os.close(fd)
        os.chdir("/")

    def open(self, path, flags, mode=0o644):
        fd = os.open(path, flags, mode)
        self.fds.append(fd)
        return fd

    def close(self, fd):
        self.fds.remove(fd)
        os.close(fd)

    def fails(self, err, call, *args, **kwargs):
        with self.assertRaises(OSError) as caught:
            call(*args, **kwargs)
        got = errno.errorcode.get(caught.exception.errno)
        self.assertEqual(got, errno.errorcode[err], f"{call.__name__}{args}")


class Open(Case):
    def test_modes(self):
        self.fails(errno.ENOENT, os.open, "f", os.O_RDONLY)
        self.fails(errno.ENOENT, os.open, "f", os.O_WRONLY)
        self.fails(errno.ENOENT, os.open, "f", os.O_RDWR | os.O_TRUNC)
        write("f", b"one")
        self.assertEqual(read("f"), b"one")
        w = self.open("f", os.O_WRONLY)
        self.fails(errno.EBADF, os.read, w, 1)
        r = self.open("f", os.O_RDONLY)
        self.fails(errno.EBADF, os.write, r, b"x")
        rw = self.open("f", os.O_RDWR)
        self.assertEqual(os.read(rw, 2), b"on")
        os.write(rw, b"E")
        self.assertEqual(os.pread(rw, 9, 0), b"onE")

    def test_excl(self):
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
        os.write(self.open("f", flags), b"x")
        self.fails(errno.EEXIST, os.open, "f", flags)
        os.mkdir("d")
        self.fails(errno.EEXIST, os.open, "d", flags)
        os.symlink("nowhere", "l")
        self.fails(errno.EEXIST, os.open, "l", flags)
        self.close(self.fds[0])
        self.fails(errno.EEXIST, os.open, "f", flags)
        self.assertEqual(read("f"), b"x")

    def test_directories(self):
        os.mkdir("d")
        write("f", b"")
        self.fails(errno.EISDIR, os.open, "d", os.O_WRONLY)
        self.fails(errno.EISDIR, os.open, "d", os.O_RDWR)
        self.fails(errno.EISDIR, os.open, "d", os.O_CREAT | os.O_RDONLY)
        self.fails(errno.ENOTDIR, os.open, "f", os.O_DIRECTORY)
        self.fails(errno.ENOTDIR, os.open, "f/x", os.O_RDONLY)
        self.fails(errno.ENOENT, os.open, "none/x", os.O_CREAT | os.O_WRONLY)
        d = self.open("d", os.O_DIRECTORY)
        self.fails(errno.EISDIR, os.read, d, 1)
        x = os.open("x", os.O_CREAT | os.O_WRONLY, dir_fd=d)
        os.close(x)
        self.assertEqual(os.listdir(d), ["x"])
        os.fsync(d)

    def test_nofollow(self):
        write("f", b"x")
        os.symlink("f", "l")
        self.assertEqual(read("l"), b"x")
        self.fails(errno.ELOOP, os.open, "l", os.O_RDONLY | os.O_NOFOLLOW)
        os.symlink("loop", "loop")
        self.fails(errno.ELOOP, os.open, "loop", os.O_RDONLY)
        self.fails(errno.ELOOP, os.stat, "loop")
        # through a link that leads nowhere yet
        os.symlink("new", "to")
        write("to", b"made", os.O_CREAT)
        self.assertEqual(read("new"), b"made")

    def test_trunc_and_empty(self):
        write("f", b"x" * 100000)
        self.assertEqual(os.stat("f").st_size, 100000)
        os.close(os.open("f", os.O_WRONLY | os.O_TRUNC))
        self.assertEqual(os.stat("f").st_size, 0)
        self.assertEqual(read("f"), b"")
        write("empty", b"")
        self.assertEqual(os.stat("empty").st_size, 0)
        self.assertEqual(read("empty"), b"")

    def test_made_by_a_reader(self):
        """It is there when it is closed, and not later: the directory's time stays."""
        os.mkdir("d")
        for i in range(5):
            os.close(os.open(f"d/{i}", os.O_CREAT | os.O_RDONLY))
            os.utime("d", ns=(1, 1))
            self.assertEqual(os.stat(f"d/{i}").st_size, 0)
        time.sleep(0.3)
        self.assertEqual(os.stat("d").st_mtime_ns, 1)

    def test_mode_and_umask(self):
        old = os.umask(0o027)
        try:
            write("f", b"", mode=0o666)
            os.mkdir("d", 0o777)
        finally:
            os.umask(old)
        write("g", b"x", mode=0o600)
        self.assertEqual(os.stat("f").st_mode, stat.S_IFREG | 0o640)
        self.assertEqual(os.stat("d").st_mode, stat.S_IFDIR | 0o750)
        self.assertEqual(os.stat("g").st_mode, stat.S_IFREG | 0o600)
        # an existing file keeps its own, also when it is replaced
        os.chmod("f", 0o751)
        write("f", b"new content", mode=0o600)
        self.assertEqual(os.stat("f").st_mode, stat.S_IFREG | 0o751)

    def test_names(self):
        name = "n" * 255
        write(name, b"x")
        self.assertEqual(os.listdir(), [name])
        self.assertEqual(read(name), b"x")
        self.fails(errno.ENAMETOOLONG, os.stat, name + "n")
        self.fails(errno.ENAMETOOLONG, os.mkdir, name + "n")
        self.fails(errno.ENAMETOOLONG, os.open, name + "n", os.O_CREAT | os.O_WRONLY)
        self.fails(errno.ENAMETOOLONG, os.rename, name, name + "n")
        os.rename(name, "short")
        os.rename("short", name)
        os.unlink(name)


class Content(Case):
    def test_pieces(self):
        """Odd sizes at odd places, against a copy in memory."""
        rnd = random.Random(1)
        want = bytearray()
        fd = self.open("f", os.O_CREAT | os.O_RDWR)
        for _ in range(300):
            at, n = rnd.randrange(300000), rnd.randrange(1, 9000)
            piece = rnd.randbytes(n)
            if at > len(want):
                want.extend(bytes(at - len(want)))
            want[at:at + n] = piece
            self.assertEqual(os.pwrite(fd, piece, at), n)
            at = rnd.randrange(300000)
            self.assertEqual(os.pread(fd, 5000, at), bytes(want[at:at + 5000]))
        self.assertEqual(os.fstat(fd).st_size, len(want))
        self.close(fd)
        self.assertEqual(read("f"), bytes(want))

    def test_random_reads(self):
        rnd = random.Random(2)
        data = rnd.randbytes(6 << 20)
        write("f", data)
        fd = self.open("f", os.O_RDONLY)
        for _ in range(60):
            at, n = rnd.randrange(len(data)), rnd.randrange(1, 200000)
            got = b""
            while len(got) < n:
                more = os.pread(fd, n - len(got), at + len(got))
                if not more:
                    break
                got += more
            self.assertEqual(got, data[at:at + n])
        self.assertEqual(os.pread(fd, 10, len(data)), b"")
        self.assertEqual(os.pread(fd, 10, len(data) - 3), data[-3:])

    def test_overwrite_in_the_middle(self):
        write("f", b"a" * 1000000)
        fd = os.open("f", os.O_WRONLY)
        os.lseek(fd, 500000, os.SEEK_SET)
        os.write(fd, b"B" * 10)
        os.close(fd)
        self.assertEqual(read("f"), b"a" * 500000 + b"B" * 10 + b"a" * 499990)

    def test_backwards(self):
        fd = os.open("f", os.O_CREAT | os.O_WRONLY)
        for i in reversed(range(20)):
            os.pwrite(fd, bytes([i]) * 50000, i * 50000)
        os.close(fd)
        self.assertEqual(read("f"), b"".join(bytes([i]) * 50000 for i in range(20)))

    def test_append(self):
        a = self.open("f", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        b = self.open("f", os.O_WRONLY | os.O_APPEND)
        for i in range(10):
            os.write(a, b"a%d " % i)
            os.write(b, b"b%d " % i)
        want = b"".join(b"a%d b%d " % (i, i) for i in range(10))
        self.assertEqual(read("f"), want)
        self.close(a)
        self.close(b)
        self.assertEqual(read("f"), want)
        write("f", b"end", os.O_APPEND)
        self.assertEqual(read("f"), want + b"end")
        # where it was does not count
        fd = self.open("f", os.O_RDWR | os.O_APPEND)
        os.lseek(fd, 0, os.SEEK_SET)
        os.write(fd, b"!")
        self.assertEqual(os.pread(fd, 4, len(want)), b"end!")

    def test_append_by_processes(self):
        write("f", b"")
        code = """
for i in range(20):
    with open("f", "a") as f:
        f.write(f"{sys.argv[1]} {i}\\n")
"""
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda who: in_other_process(code, who), "ab"))
        lines = read("f").decode().splitlines()
        self.assertEqual(sorted(lines), sorted(f"{w} {i}" for w in "ab" for i in range(20)))

    def test_truncate(self):
        write("f", b"0123456789")
        os.truncate("f", 4)
        self.assertEqual(read("f"), b"0123")
        self.assertEqual(os.stat("f").st_size, 4)
        os.truncate("f", 8)
        self.assertEqual(read("f"), b"0123\0\0\0\0")
        os.truncate("f", 0)
        self.assertEqual(read("f"), b"")
        fd = self.open("f", os.O_RDWR)
        os.write(fd, b"abcdef")
        os.ftruncate(fd, 3)
        self.assertEqual(os.pread(fd, 9, 0), b"abc")
        self.assertEqual(os.fstat(fd).st_size, 3)
        os.ftruncate(fd, 5)
        self.assertEqual(os.pread(fd, 9, 0), b"abc\0\0")
        # by its name, while it is open
        os.truncate("f", 1)
        self.assertEqual(os.fstat(fd).st_size, 1)
        self.assertEqual(os.pread(fd, 9, 0), b"a")
        os.pwrite(fd, b"z", 2)
        self.close(fd)
        self.assertEqual(read("f"), b"a\0z")
        self.fails(errno.EINVAL, os.truncate, "f", -1)
        self.fails(errno.EISDIR, os.truncate, ".", 0)
        self.fails(errno.ENOENT, os.truncate, "none", 0)
        r = self.open("f", os.O_RDONLY)
        self.fails(errno.EINVAL, os.ftruncate, r, 0)

    def test_sparse(self):
        size = 64 << 20
        fd = self.open("f", os.O_CREAT | os.O_RDWR)
        os.pwrite(fd, b"end", size - 3)
        self.assertEqual(os.fstat(fd).st_size, size)
        self.assertEqual(os.pread(fd, 4096, size // 2), bytes(4096))
        self.assertEqual(os.pread(fd, 9, size - 4), b"\0end")
        # whatever it knows of holes: data is never in one, and the end is one
        data = os.lseek(fd, 0, os.SEEK_DATA)
        self.assertLessEqual(data, size - 3)
        self.assertEqual(os.lseek(fd, size - 3, os.SEEK_DATA), size - 3)
        self.assertEqual(os.lseek(fd, size - 3, os.SEEK_HOLE), size)
        self.fails(errno.ENXIO, os.lseek, fd, size, os.SEEK_DATA)
        self.fails(errno.EINVAL, os.lseek, fd, -1, os.SEEK_SET)
        self.close(fd)
        self.assertEqual(os.stat("f").st_size, size)
        fd = self.open("f", os.O_RDONLY)
        self.assertEqual(os.pread(fd, 9, size - 4), b"\0end")

    def test_allocate(self):
        fd = self.open("f", os.O_CREAT | os.O_RDWR)
        os.write(fd, b"abc")
        os.posix_fallocate(fd, 0, 10)
        self.assertEqual(os.fstat(fd).st_size, 10)
        os.posix_fallocate(fd, 0, 5)
        self.close(fd)
        self.assertEqual(read("f"), b"abc" + bytes(7))

    def test_fsync(self):
        fd = self.open("f", os.O_CREAT | os.O_WRONLY)
        for i in range(3):
            os.write(fd, b"%d" % i)
            os.fsync(fd)
            self.assertEqual(read("f"), b"012"[:i + 1])
        os.fdatasync(fd)

    def test_seen_before_close(self):
        w = self.open("f", os.O_CREAT | os.O_WRONLY)
        r = self.open("f", os.O_RDONLY)
        for i in range(5):
            os.write(w, b"%d" % i)
            self.assertEqual(os.read(r, 9), b"%d" % i)
            self.assertEqual(os.stat("f").st_size, i + 1)
        self.assertEqual(read("f"), b"01234")

    def test_reader_sees_a_new_version(self):
        """An open file goes on with what is written to it, whoever writes."""
        write("f", b"old " * 10)
        r = self.open("f", os.O_RDONLY)
        self.assertEqual(os.pread(r, 4, 0), b"old ")
        write("f", b"new! " * 10, os.O_TRUNC)
        self.assertEqual(read("f"), b"new! " * 10)
        fd = self.open("f", os.O_RDONLY)
        self.assertEqual(os.read(fd, 5), b"new! ")

    def test_vectors(self):
        fd = self.open("f", os.O_CREAT | os.O_RDWR)
        self.assertEqual(os.writev(fd, [b"ab", b"", b"cde"]), 5)
        self.assertEqual(os.pwritev(fd, [b"X", b"Y"], 1), 2)
        a, b = bytearray(2), bytearray(9)
        self.assertEqual(os.preadv(fd, [a, b], 0), 5)
        self.assertEqual((bytes(a), bytes(b[:3])), (b"aX", b"Yde"))

    def test_copy_file_range(self):
        data = random.Random(3).randbytes(2 << 20)
        write("a", data)
        a = self.open("a", os.O_RDONLY)
        b = self.open("b", os.O_CREAT | os.O_RDWR)
        done = 0
        while done < len(data):
            n = os.copy_file_range(a, b, len(data) - done)
            self.assertGreater(n, 0)
            done += n
        self.assertEqual(os.copy_file_range(a, b, 10), 0)
        os.copy_file_range(a, b, 10, 5, len(data))
        self.close(b)
        self.assertEqual(read("b"), data + data[5:15])

    def test_read_only_files_are_copied(self):
        """Who made it may write to it, whatever its mode says to others."""
        data = random.Random(5).randbytes(300000)
        for name, mode in (("a", 0o444), ("b", 0o400)):
            write(name, data)
            os.chmod(name, mode)
            a = self.open(name, os.O_RDONLY)
            b = self.open(name + "2", os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode)
            done = 0
            while done < len(data):
                done += os.copy_file_range(a, b, len(data) - done)
            self.close(b)
            self.assertEqual(read(name + "2"), data)
            self.assertEqual(os.stat(name + "2").st_mode, stat.S_IFREG | mode)
            subprocess.run(["cp", name, name + "3"], check=True)
            subprocess.run(["cp", "-p", name, name + "4"], check=True)
            self.assertEqual(read(name + "3"), data)
            self.assertEqual(read(name + "4"), data)

    def test_sendfile(self):
        data = random.Random(4).randbytes(300000)
        write("a", data)
        a = self.open("a", os.O_RDONLY)
        b = self.open("b", os.O_CREAT | os.O_WRONLY)
        done = 0
        while done < len(data):
            done += os.sendfile(b, a, done, len(data) - done)
        self.close(b)
        self.assertEqual(read("b"), data)

    def test_in_parallel(self):
        def one(i):
            data = random.Random(i).randbytes(200000 + i)
            write(f"f{i}", data)
            return read(f"f{i}") == data and os.stat(f"f{i}").st_size == len(data)

        with ThreadPoolExecutor(16) as pool:
            self.assertTrue(all(pool.map(one, range(48))))
        self.assertEqual(len(os.listdir()), 48)

    def test_poll(self):
        fd = self.open("f", os.O_CREAT | os.O_RDWR)
        p = select.poll()
        p.register(fd, select.POLLIN | select.POLLOUT)
        self.assertEqual(p.poll(0), [(fd, select.POLLIN | select.POLLOUT)])


class Mapped(Case):
    def test_read(self):
        data = random.Random(5).randbytes(1000003)
        write("f", data)
        fd = self.open("f", os.O_RDONLY)
        with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as m:
            self.assertEqual(m[:], data)

    def test_private(self):
        write("f", b"x" * 5000)
        fd = self.open("f", os.O_RDONLY)
        with mmap.mmap(fd, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE) as m:
            m[0:3] = b"new"
        self.assertEqual(read("f"), b"x" * 5000)

    def test_shared_write(self):
        write("f", b"x" * 10000)
        fd = self.open("f", os.O_RDWR)
        with mmap.mmap(fd, 0) as m:
            m[5000:5005] = b"hello"
            m.flush()
            self.assertEqual(os.pread(fd, 5, 5000), b"hello")
            m[0:2] = b"hi"
        self.close(fd)
        self.assertEqual(read("f"), b"hi" + b"x" * 4998 + b"hello" + b"x" * 4995)

    def test_shared_write_after_close(self):
        """The map outlives the file it was made of."""
        write("f", b"x" * 4096)
        fd = os.open("f", os.O_RDWR)
        m = mmap.mmap(fd, 0)
        os.close(fd)
        m[0:4] = b"late"
        m.flush()
        m.close()
        self.assertEqual(read("f")[:6], b"latexx")


class Names(Case):
    def test_rename(self):
        write("a", b"a")
        os.rename("a", "b")
        self.fails(errno.ENOENT, os.stat, "a")
        self.assertEqual(read("b"), b"a")
        os.mkdir("d")
        os.rename("b", "d/c")
        self.assertEqual(os.listdir("d"), ["c"])
        write("e", b"e")
        os.rename("e", "d/c")
        self.assertEqual(read("d/c"), b"e")
        os.rename("d", "D")
        self.assertEqual(read("D/c"), b"e")
        self.assertEqual(os.listdir(), ["D"])
        os.rename("D/c", "D/c")

    def test_rename_over_directories(self):
        os.makedirs("a/x")
        os.mkdir("empty")
        os.makedirs("full/y")
        write("f", b"")
        os.rename("a", "empty")
        self.assertEqual(os.listdir("empty"), ["x"])
        self.fails(errno.ENOTEMPTY, os.rename, "empty", "full")
        self.fails(errno.ENOTDIR, os.rename, "empty", "f")
        self.fails(errno.EISDIR, os.rename, "f", "empty")
        self.fails(errno.EINVAL, os.rename, "empty", "empty/x/z")
        self.fails(errno.ENOENT, os.rename, "none", "x")
        self.fails(errno.ENOENT, os.rename, "f", "none/x")
        self.fails(errno.ENOTDIR, os.rename, "f", "f/x")

    def test_rename_of_one_file_with_two_names(self):
        """That is nothing to do: both stay."""
        os.mkdir("d")
        write("a", b"one")
        os.link("a", "b")
        os.link("a", "d/c")
        os.symlink("a", "l")
        os.link("l", "m", follow_symlinks=False)
        os.rename("a", "b")
        os.rename("b", "d/c")
        os.rename("l", "m")
        self.assertEqual(sorted(os.listdir()), ["a", "b", "d", "l", "m"])
        for name in ("a", "b", "d/c"):
            self.assertEqual(os.stat(name).st_nlink, 3)
            self.assertEqual(read(name), b"one")
        self.assertEqual(os.readlink("l"), "a")
        os.unlink("b")
        self.assertEqual(sorted(os.listdir()), ["a", "d", "l", "m"])
        self.assertEqual(os.stat("a").st_nlink, 2)

    def test_rename_counts_directories(self):
        links = lambda: [os.stat(d).st_nlink for d in ("a", "b")]
        for d in ("a", "b", "a/x", "a/y", "b/z"):
            os.mkdir(d)
        write("a/f", b"")
        self.assertEqual(links(), [4, 3])
        os.rename("a/x", "b/x")
        self.assertEqual(links(), [3, 4])
        os.rename("a/y", "b/z")
        self.assertEqual(links(), [2, 4])
        os.rename("b/x", "b/z")
        self.assertEqual(links(), [2, 3])
        os.rename("a/f", "b/f")
        self.fails(errno.ENOENT, os.rename, "a/none", "b/none")
        self.assertEqual(links(), [2, 3])

    def test_renameat2(self):
        write("a", b"a")
        write("b", b"b")
        self.fails(errno.EEXIST, renameat2, "a", "b", RENAME_NOREPLACE)
        self.assertEqual(read("b"), b"b")
        renameat2("a", "c", RENAME_NOREPLACE)
        self.assertEqual(sorted(os.listdir()), ["b", "c"])
        self.fails(errno.EINVAL, renameat2, "b", "c", RENAME_NOREPLACE | RENAME_EXCHANGE)

    def test_rename_of_open_files(self):
        fd = self.open("a", os.O_CREAT | os.O_RDWR)
        os.write(fd, b"one ")
        os.rename("a", "b")
        os.write(fd, b"two")
        self.assertEqual(os.pread(fd, 9, 0), b"one two")
        self.close(fd)
        self.assertEqual(read("b"), b"one two")
        self.assertEqual(os.listdir(), ["b"])
        # what is replaced can be read on
        write("c", b"three")
        r = self.open("b", os.O_RDONLY)
        os.rename("c", "b")
        self.assertEqual(os.read(r, 9), b"one two")
        self.assertEqual(read("b"), b"three")
        # the directory above
        os.mkdir("d")
        fd = self.open("d/f", os.O_CREAT | os.O_WRONLY)
        os.write(fd, b"f")
        os.rename("d", "e")
        os.write(fd, b"g")
        self.close(fd)
        self.assertEqual(read("e/f"), b"fg")

    def test_unlink(self):
        write("f", b"x" * 100000)
        r = self.open("f", os.O_RDONLY)
        self.assertEqual(os.read(r, 1), b"x")
        os.unlink("f")
        self.fails(errno.ENOENT, os.stat, "f")
        self.assertEqual(os.listdir(), [])
        self.assertEqual(os.pread(r, 3, 99999), b"x")
        self.assertEqual(len(os.pread(r, 200000, 0)), 100000)
        self.assertEqual(os.fstat(r).st_nlink, 0)
        os.fchmod(r, 0o600)
        os.utime(r, ns=(1, 1234567890123456789))
        st = os.fstat(r)
        self.assertEqual((stat.S_IMODE(st.st_mode), st.st_mtime_ns), (0o600, 1234567890123456789))
        self.fails(errno.ENOENT, os.unlink, "f")
        # another one of that name is another one
        write("f", b"new")
        self.assertEqual(read("f"), b"new")
        self.assertEqual(os.pread(r, 3, 0), b"xxx")

    def test_unlink_while_written(self):
        fd = self.open("f", os.O_CREAT | os.O_RDWR)
        os.write(fd, b"one")
        os.unlink("f")
        self.assertEqual(os.listdir(), [])
        os.write(fd, b"two")
        self.assertEqual(os.pread(fd, 9, 0), b"onetwo")
        self.assertEqual(os.fstat(fd).st_size, 6)
        os.fsync(fd)
        os.ftruncate(fd, 2)
        os.fchmod(fd, 0o600)
        self.close(fd)
        self.assertEqual(os.listdir(), [])
        # one that was there before
        write("g", b"x" * 10)
        fd = self.open("g", os.O_RDWR)
        os.pwrite(fd, b"Y", 5)
        os.unlink("g")
        self.assertEqual(os.pread(fd, 99, 0), b"xxxxxYxxxx")
        self.close(fd)
        self.assertEqual(os.listdir(), [])

    def test_directories(self):
        os.mkdir("d")
        self.fails(errno.EEXIST, os.mkdir, "d")
        write("d/f", b"")
        self.fails(errno.EEXIST, os.mkdir, "d/f")
        self.fails(errno.ENOTEMPTY, os.rmdir, "d")
        self.fails(errno.ENOTDIR, os.rmdir, "d/f")
        self.fails(errno.ENOTDIR, os.mkdir, "d/f/g")
        self.fails(errno.EISDIR, os.unlink, "d")
        self.fails(errno.ENOENT, os.rmdir, "none")
        self.fails(errno.ENOENT, os.mkdir, "none/d")
        self.fails(errno.EINVAL, os.rmdir, "d/.")
        os.unlink("d/f")
        os.rmdir("d")
        self.fails(errno.ENOENT, os.stat, "d")
        # a file that is open and nowhere else yet
        os.mkdir("d")
        fd = self.open("d/f", os.O_CREAT | os.O_WRONLY)
        self.fails(errno.ENOTEMPTY, os.rmdir, "d")
        self.close(fd)

    def test_listing(self):
        names = {f"f{i}" for i in range(50)}
        for name in names:
            write(name, name.encode())
            self.assertIn(name, os.listdir())
        os.mkdir("d")
        os.symlink("f1", "l")
        with os.scandir() as entries:
            seen = {e.name: e for e in entries}
        self.assertEqual(set(seen), names | {"d", "l"})
        self.assertTrue(seen["d"].is_dir(follow_symlinks=False))
        self.assertTrue(seen["l"].is_symlink())
        self.assertTrue(seen["f1"].is_file(follow_symlinks=False))
        for name in ("f1", "d", "l"):
            self.assertEqual(seen[name].inode(), os.lstat(name).st_ino, name)
        for name in names:
            os.unlink(name)
            self.assertNotIn(name, os.listdir())
        self.assertEqual(sorted(os.listdir()), ["d", "l"])

    def test_open_file_is_listed(self):
        self.open("f", os.O_CREAT | os.O_WRONLY)
        self.assertEqual(os.listdir(), ["f"])
        self.assertTrue(stat.S_ISREG(os.stat("f").st_mode))

    def test_walk(self):
        want = []
        for top in "abc":
            for below in "xyz":
                os.makedirs(f"{top}/{below}")
                write(f"{top}/{below}/f", b"")
                want.append(f"./{top}/{below}/f")
        got = [os.path.join(d, f) for d, _, files in os.walk(".") for f in files]
        self.assertEqual(sorted(got), want)
        for d, dirs, files, fd in os.fwalk(".", topdown=False):
            for f in files:
                os.unlink(f, dir_fd=fd)
            for f in dirs:
                os.rmdir(f, dir_fd=fd)
        self.assertEqual(os.listdir(), [])

    def test_deep(self):
        path = "/".join(["d" * 50] * 40)
        os.makedirs(path)
        write(path + "/f", b"deep")
        self.assertEqual(read(path + "/f"), b"deep")

    def test_links(self):
        write("a", b"one")
        os.link("a", "b")
        a, b = os.stat("a"), os.stat("b")
        self.assertEqual((a.st_nlink, b.st_nlink), (2, 2))
        self.assertEqual(a.st_ino, b.st_ino)
        with os.scandir() as entries:
            self.assertEqual({e.inode() for e in entries}, {a.st_ino})
        os.unlink("a")
        self.assertEqual(os.stat("b").st_nlink, 1)
        self.assertEqual(read("b"), b"one")
        os.mkdir("d")
        self.fails(errno.EEXIST, os.link, "b", "d")
        self.fails(errno.EPERM, os.link, "d", "e")
        self.fails(errno.ENOENT, os.link, "none", "e")

    def test_symlinks(self):
        os.mkdir("d")
        write("d/f", b"x")
        for target in ("d", "d/f", "none", "./d/f", "d//f", "t" * 255):
            os.symlink(target, "l")
            self.assertEqual(os.readlink("l"), target)
            self.assertEqual(stat.S_IFMT(os.lstat("l").st_mode), stat.S_IFLNK)
            self.assertEqual(os.lstat("l").st_size, len(target))
            os.unlink("l")
        os.symlink("d", "l")
        self.assertEqual(os.listdir("l"), ["f"])
        self.assertEqual(read("l/f"), b"x")
        self.fails(errno.EEXIST, os.symlink, "x", "l")
        self.fails(errno.EEXIST, os.symlink, "x", "d")
        self.fails(errno.EINVAL, os.readlink, "d")
        self.fails(errno.EINVAL, os.readlink, "d/f")
        self.fails(errno.ENOENT, os.readlink, "none")
        self.fails(errno.ENOTDIR, os.rmdir, "l")
        os.rename("l", "m")
        self.assertEqual(os.readlink("m"), "d")


class Attributes(Case):
    def test_chmod(self):
        write("f", b"x")
        os.mkdir("d")
        for mode in (0o600, 0o755, 0o444, 0o000, 0o644):
            os.chmod("f", mode)
            self.assertEqual(os.stat("f").st_mode, stat.S_IFREG | mode)
        os.chmod("d", 0o1777)
        self.assertEqual(os.stat("d").st_mode, stat.S_IFDIR | 0o1777)
        fd = os.open("f", os.O_WRONLY | os.O_TRUNC)
        os.write(fd, b"new")
        os.fchmod(fd, 0o750)
        self.assertEqual(os.fstat(fd).st_mode, stat.S_IFREG | 0o750)
        os.close(fd)
        self.assertEqual(os.stat("f").st_mode, stat.S_IFREG | 0o750)
        self.assertEqual(read("f"), b"new")
        self.fails(errno.ENOENT, os.chmod, "none", 0o644)

    def test_times(self):
        write("f", b"x")
        os.mkdir("d")
        os.symlink("f", "l")
        for name in ("f", "d"):
            os.utime(name, ns=(1000000000123456789, 1111111111987654321))
            self.assertEqual(os.stat(name).st_mtime_ns, 1111111111987654321)
        os.utime("l", ns=(5, 1234567890000000001), follow_symlinks=False)
        self.assertEqual(os.lstat("l").st_mtime_ns, 1234567890000000001)
        self.assertEqual(os.stat("f").st_mtime_ns, 1111111111987654321)
        for ns in (0, 1, 999999999, 4000000000000000000):
            os.utime("f", ns=(ns, ns))
            self.assertEqual(os.stat("f").st_mtime_ns, ns)
        os.utime("f")
        self.assertLess(abs(os.stat("f").st_mtime - time.time()), 60)
        self.fails(errno.ENOENT, os.utime, "none")

    def test_times_of_an_open_file(self):
        """As cp -p does it, before the close."""
        fd = os.open("f", os.O_CREAT | os.O_WRONLY)
        os.write(fd, b"x" * 100000)
        os.utime(fd, ns=(1, 1222222222111111111))
        self.assertEqual(os.fstat(fd).st_mtime_ns, 1222222222111111111)
        os.close(fd)
        self.assertEqual(os.stat("f").st_mtime_ns, 1222222222111111111)
        # a write after it is news
        fd = os.open("f", os.O_WRONLY)
        os.utime(fd, ns=(1, 1))
        os.write(fd, b"y")
        os.close(fd)
        self.assertGreater(os.stat("f").st_mtime, 1700000000)

    def test_mtime_moves(self):
        write("f", b"x")
        os.utime("f", ns=(1, 1))
        write("f", b"y")
        self.assertGreater(os.stat("f").st_mtime, 1700000000)
        os.utime(".", ns=(1, 1))
        self.assertEqual(os.stat(".").st_mtime_ns, 1)
        write("g", b"")
        self.assertGreater(os.stat(".").st_mtime, 1700000000)
        os.utime("f", ns=(1, 1))
        os.truncate("f", 0)
        self.assertGreater(os.stat("f").st_mtime, 1700000000)

    def test_owner(self):
        write("f", b"x")
        st = os.stat("f")
        self.assertEqual((st.st_uid, st.st_gid), (os.getuid(), os.getgid()))
        os.chown("f", os.getuid(), os.getgid())
        os.chown("f", -1, -1)
        os.lchown("f", os.getuid(), -1)

    def test_numbers(self):
        write("f", b"x" * 100000)
        os.mkdir("d")
        os.mkdir("d/e")
        f, d = os.stat("f"), os.stat("d")
        self.assertNotEqual(f.st_ino, d.st_ino)
        self.assertEqual(os.stat("f").st_ino, f.st_ino)
        self.assertEqual(f.st_dev, d.st_dev)
        self.assertEqual(f.st_nlink, 1)
        self.assertGreaterEqual(f.st_blocks * 512, 100000)
        self.assertGreater(f.st_blksize, 0)
        os.rename("f", "g")
        self.assertEqual(os.stat("g").st_ino, f.st_ino)
        write("g", b"y")
        self.assertEqual(os.stat("g").st_size, 1)

    def test_statvfs(self):
        s = os.statvfs(".")
        self.assertEqual(s.f_namemax, 255)
        self.assertGreater(s.f_blocks, 0)
        self.assertGreater(s.f_bsize, 0)
        self.assertLessEqual(s.f_bavail, s.f_bfree)
        self.assertLessEqual(s.f_bfree, s.f_blocks)

    def test_access(self):
        write("f", b"x")
        self.assertTrue(os.access("f", os.R_OK | os.W_OK))
        self.assertFalse(os.access("f", os.X_OK))
        self.assertFalse(os.access("none", os.F_OK))


class Locks(Case):
    def test_flock(self):
        write("f", b"")
        fd = self.open("f", os.O_RDWR)
        code = """
fd = os.open("f", os.O_RDWR)
try:
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    print("ok")
except OSError as e:
    print(errno.errorcode[e.errno])
"""
        fcntl.flock(fd, fcntl.LOCK_EX)
        self.assertEqual(in_other_process(code), "EAGAIN")
        fcntl.flock(fd, fcntl.LOCK_SH)
        self.assertEqual(in_other_process(code), "EAGAIN")
        fcntl.flock(fd, fcntl.LOCK_UN)
        self.assertEqual(in_other_process(code), "ok")

    def test_fcntl(self):
        write("f", b"0123456789")
        fd = self.open("f", os.O_RDWR)
        code = """
fd = os.open("f", os.O_RDWR)
try:
    fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 2, int(sys.argv[1]))
    print("ok")
except OSError as e:
    print(errno.errorcode[e.errno])
"""
        fcntl.lockf(fd, fcntl.LOCK_EX, 5, 0)
        self.assertIn(in_other_process(code, "4"), ("EAGAIN", "EACCES"))
        self.assertEqual(in_other_process(code, "5"), "ok")
        fcntl.lockf(fd, fcntl.LOCK_UN, 5, 0)
        self.assertEqual(in_other_process(code, "4"), "ok")

    def test_waiting(self):
        write("f", b"")
        fd = self.open("f", os.O_RDWR)
        fcntl.flock(fd, fcntl.LOCK_EX)
        code = """
fd = os.open("f", os.O_RDWR)
print("waiting", flush=True)
fcntl.flock(fd, fcntl.LOCK_EX)
print("has it")
"""
        with subprocess.Popen([sys.executable, "-c", "import fcntl, os\n" + code], text=True,
                              stdout=subprocess.PIPE) as child:
            self.assertEqual(child.stdout.readline(), "waiting\n")
            fcntl.flock(fd, fcntl.LOCK_UN)
            self.assertEqual(child.stdout.readline(), "has it\n")


class Mount(Case):
    """Where other filesystems differ."""

    def test_xattr(self):
        write("f", b"x")
        self.fails(errno.ENOTSUP, os.setxattr, "f", "user.x", b"1")
        self.fails(errno.ENOTSUP, os.getxattr, "f", "user.x")
        self.fails(errno.ENOTSUP, os.removexattr, "f", "user.x")
        self.fails(errno.ENOTSUP, os.setxattr, ".", "user.x", b"1")

    def test_kinds_that_are_not_made(self):
        self.fails(errno.EPERM, os.mkfifo, "p")
        self.fails(errno.EPERM, os.mknod, "c", stat.S_IFCHR | 0o600, os.makedev(1, 3))
        self.assertEqual(os.listdir(), [])

    def test_owner_is_fixed(self):
        write("f", b"x")
        self.fails(errno.EPERM, os.chown, "f", os.getuid() + 1, -1)
        self.fails(errno.EPERM, os.chown, "f", -1, os.getgid() + 1)
        self.fails(errno.EPERM, os.chown, ".", os.getuid() + 1, os.getgid())

    def test_no_files_without_names(self):
        self.fails(errno.EOPNOTSUPP, os.open, ".", os.O_TMPFILE | os.O_RDWR)

    def test_no_holes_are_punched(self):
        fd = self.open("f", os.O_CREAT | os.O_RDWR)
        libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
        self.assertEqual(libc.fallocate(fd, 3, 0, 4096), -1)
        self.assertEqual(ctypes.get_errno(), errno.EOPNOTSUPP)


if __name__ == "__main__":
    BASE = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
