#!/usr/bin/env python3
"""Every operation on a thread whose server does not answer, in each way of not answering.

usage: hang_table.py THREAD CONTROL-SOCKET SANDBOXD-PID TIMEOUT [--table]
       hang_table.py --ops FS/OPS.C

THREAD is a directory of a mount with timeout=TIMEOUT and start_timeout=TIMEOUT. Its sandbox is the
one with that pid, behind stallproxy.py with that control socket; so are those of all threads whose
names begin with THREAD's, of which THREAD-too exists. The thread "other" has a sandbox of its own,
which nothing happens to. In each state all operations run at the same time, each in a process of
its own:

- once with SIGINT after a second: each has to return at once then;
- once without: each has to return by TIMEOUT.

Then those that would be in the way of others, or that begin when it is already known that the
server does not answer. Meanwhile what needs no server has to answer, and so has the other thread;
when the state ends everything has to work again. Prints what it sees; with --table as tables for
docs/RELIABILITY.md. Times are far beyond what they should be where they fail: SLOW multiplies them.

With --ops it compares the table of what the kernel may ask with OPERATIONS.
"""
import errno
import json
import mmap
import os
import re
import resource
import select
import signal
import socket
import sys
import time

SLOW = int(os.environ.get("SLOW", "1"))
AT_ONCE = 1.5 * SLOW     # after an interrupt; who does not hear it takes longer
PATIENCE = 1.0           # before it
SOON = 0.3               # likewise, for those that come last
NEARBY = 3.0 * SLOW      # for an operation on the other thread
SLACK = 5.0 * SLOW       # of a busy machine
STATES = {
    "refuse": "refusing",
    "silent": "no headers",
    "midbody": "mid-body",
    "stop": "SIGSTOP",
}
LARGE = 300_000_000
MIDDLE = 3_000_000       # goes to and fro, in the end
COUNT = re.compile(r'threadfs_request_duration_seconds_count\{operation="(\w+)".*\} (\d+)$')


class Interrupted(Exception):
    pass


def opened(flags, name="f"):
    return lambda d: os.open(f"{d}/{name}", flags)


def looked(*names):
    """The kernel knows them, or that they are not there: what is done next is the operation
    itself, not the lookup before it."""
    return lambda d: [os.path.lexists(f"{d}/{name}") for name in names]


def read_whole(d, _):
    fd = os.open(f"{d}/f", os.O_RDONLY)
    os.read(fd, 1000)


def write_close(_, fd):
    os.write(fd, b"new")
    os.close(fd)


def write_into_close(_, fd):
    os.pwrite(fd, b"x", MIDDLE // 2)
    os.close(fd)


def read_beside(_, fd):
    os.pwrite(fd, b"x", MIDDLE // 4)
    os.pread(fd, 1000, MIDDLE // 2)


def truncate_close(_, fd):
    os.ftruncate(fd, 3)
    os.close(fd)


def write_fsync(_, fd):
    os.write(fd, b"new")
    os.fsync(fd)


def create(d, _):
    os.close(os.open(f"{d}/new", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))


def large_begun(d):
    fd = os.open(f"{d}/large", os.O_RDONLY)
    os.read(fd, 1000)
    return fd


def mapped(d):
    fd = large_begun(d)
    return mmap.mmap(fd, LARGE, prot=mmap.PROT_READ)


def pair(d):
    return os.open(f"{d}/f", os.O_RDONLY), os.open(f"{d}/g", os.O_WRONLY)


def exec_write(_, fd):
    os.write(fd, b"true\n")
    os.close(fd)


def exec_begun(d):
    """A command that has not ended, and somebody who will want its output."""
    fd = os.open(f"{d}/.ctl/exec", os.O_WRONLY)
    os.write(fd, b"sleep 1; echo said\n")
    return fd, os.open(f"{d}/.ctl/exec", os.O_RDONLY)


def polled(_, fds):
    waiting = select.poll()
    waiting.register(fds[1], select.POLLIN)
    waiting.poll()
    os.set_blocking(fds[1], False)
    os.read(fds[1], 1000)


def run(d, request):
    fd = os.open(f"{d}/.ctl/run", os.O_RDWR)
    os.write(fd, json.dumps(request).encode())
    number = os.read(fd, 100).decode().strip()
    os.close(fd)
    return number


def of_job(file, flags, **request):
    """A file of a command that has not ended."""
    return lambda d: os.open(f"{d}/.ctl/jobs/{run(d, request)}/{file}", flags)


def read_events(_, fd):
    while os.read(fd, 65536):
        pass


def read_small(path):
    with open(path, "rb", buffering=0) as f:
        f.read(1 << 16)


AFTERWARDS = "lookup when others have failed"
MKDIR, RMDIR = "`mkdir threads/ID`", "`rmdir threads/ID`"
FAULT = "read through a mapping"
EVENTS = "`.ctl/events`: read"
RELEASE, DESTROY = "`.ctl/release`: write", "`.ctl/destroy`: write"
# name: before the server falls silent; then
OPS = {
    "lookup": (None, lambda d, _: os.lstat(f"{d}/new")),
    AFTERWARDS: (None, lambda d, _: os.lstat(f"{d}/new")),
    "getattr": (opened(os.O_RDONLY), lambda _, fd: os.fstat(fd)),
    "chmod": (opened(os.O_RDONLY), lambda _, fd: os.fchmod(fd, 0o600)),
    "utimens": (opened(os.O_RDONLY), lambda _, fd: os.utime(fd, (1, 2))),
    "truncate": (looked("f"), lambda d, _: os.truncate(f"{d}/f", 3)),
    "open and read": (looked("f"), read_whole),
    "read far into an open file": (large_begun, lambda _, fd: os.pread(fd, 1000, LARGE // 2)),
    FAULT: (mapped, lambda _, mapping: mapping[LARGE // 2]),
    "write and close": (opened(os.O_WRONLY | os.O_TRUNC), write_close),
    "write into and close": (opened(os.O_RDWR, "middle"), write_into_close),
    "read beside what was written": (opened(os.O_RDWR, "middle"), read_beside),
    "ftruncate and close": (opened(os.O_WRONLY), truncate_close),
    "append and close": (opened(os.O_WRONLY | os.O_APPEND), write_close),
    "write and fsync": (opened(os.O_WRONLY | os.O_TRUNC), write_fsync),
    "fallocate": (opened(os.O_WRONLY), lambda _, fd: os.posix_fallocate(fd, 0, 100)),
    "create and close": (looked("new"), create),
    "mknod": (looked("new"), lambda d, _: os.mknod(f"{d}/new", 0o644)),
    "readdir": (None, lambda d, _: os.listdir(d)),
    "mkdir": (looked("new"), lambda d, _: os.mkdir(f"{d}/new")),
    "rmdir": (looked("d"), lambda d, _: os.rmdir(f"{d}/d")),
    "unlink": (looked("f"), lambda d, _: os.unlink(f"{d}/f")),
    "rename": (looked("f", "new"), lambda d, _: os.rename(f"{d}/f", f"{d}/new")),
    "link": (looked("f", "new"), lambda d, _: os.link(f"{d}/f", f"{d}/new")),
    "symlink": (looked("new"), lambda d, _: os.symlink("f", f"{d}/new")),
    "readlink": (None, lambda d, _: os.readlink(f"{d}/l")),
    "statfs": (None, lambda d, _: os.statvfs(d)),
    "copy_file_range": (pair, lambda _, fds: os.copy_file_range(*fds, 1000)),
    "`.ctl/exec`: write and close": (opened(os.O_WRONLY, ".ctl/exec"), exec_write),
    "`.ctl/exec`: read": (exec_begun, lambda _, fds: os.read(fds[1], 1000)),
    "`.ctl/exec`: poll, then read": (exec_begun, polled),
    "`.ctl/run`: write": (None, lambda d, _: run(d, {"argv": ["true"]})),
    "`.ctl/jobs/N/stdout`: read": (of_job("stdout", os.O_RDONLY, script="sleep 5; echo said"),
                                   lambda _, fd: os.read(fd, 1000)),
    "`.ctl/jobs/N/stdin`: write": (of_job("stdin", os.O_WRONLY, script="cat >/dev/null", stdin=True),
                                   lambda _, fd: os.write(fd, b"said\n")),
    "`.ctl/jobs/N/kill`: write": (of_job("kill", os.O_WRONLY, script="sleep 5"),
                                  lambda _, fd: os.write(fd, b"TERM\n")),
    EVENTS: (opened(os.O_RDONLY, ".ctl/events"), read_events),
    "`.ctl/status`: read": (None, lambda d, _: read_small(f"{d}/.ctl/status")),
    RMDIR: (None, lambda d, _: os.rmdir(d)),
    MKDIR: (None, lambda d, _: os.mkdir(f"{d}-{time.monotonic_ns()}")),
    RELEASE: (opened(os.O_WRONLY, ".ctl/release"), lambda _, fd: os.write(fd, b"1\n")),
    DESTROY: (opened(os.O_WRONLY, ".ctl/destroy"), lambda _, fd: os.write(fd, b"1\n")),
}
# One after the other, behind all others: while the kernel makes or removes a name in threads/ it
# lets nobody else list that; and whose sandbox is destroyed is told so.
LATER = ((RMDIR,), (AFTERWARDS, RELEASE), (MKDIR, DESTROY))
# May wait for ever, by design.
ONLY_SIGINT = (EVENTS,)
# Of these nothing is to be known: they are prepared before what voids all caches.
UNKNOWN = ("lookup", AFTERWARDS, "getattr", "readdir", "readlink")
# Requests of that kind, by the mount's own count, are what these have to be: as long as the watch
# is live the kernel looks nothing up again. Who refuses connections ends the watch.
KINDS = {
    "names": ("mknod", "mkdir", "rmdir", "unlink", "rename", "link", "symlink"),
    "setattr": ("chmod", "utimens", "truncate"),
    "statfs": ("statfs",),
    "getattr": ("getattr",),
    "lookup": ("lookup",),
}
# These wait for a page of the kernel's cache, which only a signal that ends the process ends.
PAGES = ("open and read", "read far into an open file", FAULT, "read beside what was written")
FORGOTTEN = "never waits: the kernel tells, and no program waits for the answer"
# Every field of fs_ops: the rows of operations that come to it, or why none is needed.
OPERATIONS = {
    "init": "never waits: once, before anything is mounted",
    "lookup": ("lookup", AFTERWARDS),
    "forget": FORGOTTEN,
    "forget_multi": FORGOTTEN,
    "getattr": ("getattr",),
    "setattr": ("chmod", "utimens", "truncate", "ftruncate and close"),
    "readlink": ("readlink",),
    "mknod": ("mknod",),
    "mkdir": ("mkdir", MKDIR),
    "unlink": ("unlink",),
    "rmdir": ("rmdir", RMDIR),
    "symlink": ("symlink",),
    "rename": ("rename",),
    "link": ("link",),
    "open": ("open and read",),
    "read": ("open and read", "read far into an open file", FAULT, "read beside what was written",
             "`.ctl/exec`: read", "`.ctl/jobs/N/stdout`: read", EVENTS, "`.ctl/status`: read"),
    "write": ("append and close", "`.ctl/run`: write", "`.ctl/jobs/N/stdin`: write",
              "`.ctl/jobs/N/kill`: write", RELEASE, DESTROY),
    "flush": ("write and close", "append and close", "write into and close", "create and close",
              "ftruncate and close", "`.ctl/exec`: write and close"),
    "release": FORGOTTEN,
    "fsync": ("write and fsync",),
    "opendir": ("readdir",),
    "readdir": ("readdir",),
    "readdirplus": ("readdir",),
    "releasedir": FORGOTTEN,
    "statfs": ("statfs",),
    "create": ("create and close",),
    "poll": ("`.ctl/exec`: poll, then read",),
    "fallocate": ("fallocate",),
    "copy_file_range": ("copy_file_range",),
}


class Child:
    """A process that does one operation when told to."""

    def __init__(self, name, directory):
        self.name = name
        self.go_r, self.go = os.pipe()
        self.said, said_w = os.pipe()
        self.ended = False
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.go)
            try:
                self.live(directory, said_w)
            finally:
                os._exit(1)
        os.close(self.go_r)
        os.close(said_w)

    def live(self, directory, out):
        def on_signal(_number, _frame):
            raise Interrupted

        # No core of who is told by SIGBUS; 1 means that to a program that gets them, too.
        resource.setrlimit(resource.RLIMIT_CORE, (1, 1))
        prepare, act = OPS[self.name]
        state = prepare(directory) if prepare else None
        signal.signal(signal.SIGINT, signal.SIG_DFL if self.name in PAGES else on_signal)
        os.write(out, b"ready\n")
        said = None
        try:
            os.read(self.go_r, 1)
            try:
                act(directory, state)
                said = "ok"
            except OSError as e:
                said = errno.errorcode[e.errno]
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        except Interrupted:
            # It may come when the operation has just ended otherwise.
            said = said or "EINTR"
        os.write(out, f"{said} {time.monotonic()}\n".encode())
        os._exit(0)

    def is_ready(self):
        return bool(select.select([self.said], [], [], 30 * SLOW)[0]) and \
            os.read(self.said, 100) == b"ready\n"

    def result(self):
        """What came of it, and when, of one that has ended."""
        words = os.read(self.said, 100).decode().split()
        if words:
            return words[0], float(words[1])
        status = os.waitpid(self.pid, 0)[1]
        self.ended = True
        killed = os.WIFSIGNALED(status)
        return signal.Signals(os.WTERMSIG(status)).name if killed else "died", time.monotonic()

    def end(self):
        if not self.ended:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.said)
        os.close(self.go)


def process_state(pid):
    with open(f"/proc/{pid}/stat") as f:
        return f.read().rsplit(")", 1)[1].split()[0]


class Control:
    """The proxy and the server behind it."""

    def __init__(self, path, pid):
        self.pid = pid
        self.stopped = []
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)

    def stop(self):
        """All of the server's processes, those who started others first: whoever is stopped
        neither starts another nor lets one that has ended go, so numbers stay what they are."""
        self.stopped = [self.pid]
        for pid in self.stopped:
            os.kill(pid, signal.SIGSTOP)
            while process_state(pid) not in "TZ":
                time.sleep(0.001)
            for task in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{task}/children") as f:
                    self.stopped += map(int, f.read().split())

    def go_on(self):
        while self.stopped:
            os.kill(self.stopped.pop(), signal.SIGCONT)

    def set(self, state):
        if state == "stop":
            self.stop()
            return
        self.go_on()
        self.socket.sendall(state.encode() + b"\n")
        assert self.socket.recv(100) == b"done\n"


class Test:
    def __init__(self, thread, control, timeout):
        self.thread = thread
        self.mount = os.path.dirname(os.path.dirname(thread))
        self.control = control
        self.timeout = timeout
        self.rounds = 0
        self.bad = []
        self.real = {}   # kind: states in which all of its operations came to the mount
        self.nearby = {} # of the other thread: (operation, state): the slowest
        self.heard = {}  # the slowest after SIGINT

    def command(self, text, thread=None):
        fd = os.open(f"{thread or self.thread}/.ctl/exec", os.O_WRONLY)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)

    def counts(self):
        """Requests that were answered, of files in sandboxes, by kind."""
        found = {}
        with open(f"{self.mount}/.ctl/metrics") as f:
            for line in f:
                m = COUNT.match(line)
                if m and 'class="sandbox"' in line:
                    found[m[1]] = int(m[2])
        return found

    def watched(self):
        """Waits until the sandbox tells of changes again: until then names last a second."""
        until = time.monotonic() + 10 * SLOW
        while time.monotonic() < until:
            with open(f"{self.thread}/.ctl/status.json") as f:
                if json.load(f)["watch"] == "live":
                    return
            time.sleep(0.05)

    def settled(self):
        """Waits until all is told that has changed: what is looked up before that is forgotten."""
        before = None
        while True:
            with open(f"{self.mount}/.ctl/metrics") as f:
                now = re.search(r"^threadfs_watch_events_total (\d+)", f.read(), re.M)[1]
            if now == before:
                return
            before = now
            time.sleep(0.2 * SLOW)

    def prepare(self):
        """A directory for each operation, so that none is in the way of another; made by a
        command, after which nothing counts that is cached."""
        self.rounds += 1
        self.held = []
        self.watched()
        top = f"outputs/{self.rounds}"
        self.command(f"""mkdir -p {top} && cd {top} && for i in $(seq {len(OPS)}); do
            mkdir -p $i/d && echo content >$i/f && echo other >$i/g && ln -s f $i/l &&
            truncate -s {LARGE} $i/large && truncate -s {MIDDLE} $i/middle; done
            cd - >/dev/null""")
        self.settled()
        paths = {}
        for i, name in enumerate(OPS, 1):
            if name in (MKDIR, RMDIR):
                paths[name] = f"{self.thread}-too" if name == RMDIR else self.thread
                continue
            path = self.thread if ".ctl" in name else f"{self.thread}/{top}/{i}"
            # Not by name: those who look up one together wait in the kernel for each other.
            self.held.append(os.open(path, os.O_PATH))
            paths[name] = f"/proc/self/fd/{self.held[-1]}"
        children = self.start({n: paths[n] for n in UNKNOWN})
        self.command("true")
        return children + self.start({n: paths[n] for n in OPS if n not in UNKNOWN})

    @staticmethod
    def start(paths):
        children = [Child(name, path) for name, path in paths.items()]
        for child in children:
            if not child.is_ready():
                raise SystemExit(f"{child.name}: not prepared")
        return children

    def bystanders(self, state):
        """What needs no server answers as ever; the longest it took."""
        longest = 0
        for what, act in {
            "ls threads": lambda: os.listdir(f"{self.mount}/threads"),
            "statfs": lambda: os.statvfs(self.mount),
            "README": lambda: read_small(f"{self.mount}/README"),
            ".ctl/status": lambda: read_small(f"{self.mount}/.ctl/status"),
            ".ctl/status.json": lambda: read_small(f"{self.mount}/.ctl/status.json"),
            ".ctl/metrics": lambda: read_small(f"{self.mount}/.ctl/metrics"),
        }.items():
            longest = max(longest, self.timed(state, what, act, AT_ONCE))
        return longest

    def timed(self, state, what, act, limit):
        began = time.monotonic()
        try:
            act()
        except (OSError, AssertionError) as e:
            self.bad.append(f"{state}: meanwhile {what}: {e}")
        took = time.monotonic() - began
        if took > limit:
            self.bad.append(f"{state}: meanwhile {what} took {took:.1f} s")
        return took

    def neighbours(self, state):
        """The thread with another sandbox is as ever; each of these has to ask it."""
        d = f"{self.mount}/threads/other"
        written, made = f"outputs/w{self.rounds}", f"outputs/m{self.rounds}"

        def write():
            with open(f"{d}/{written}", "w") as f:
                f.write("written")

        def read():
            with open(f"{d}/{made}") as f:
                assert f.read() == "written", "something else is read"

        def ls():
            assert {written[8:], made[8:]} <= set(os.listdir(f"{d}/outputs")), "names are missing"

        for what, act in {
            "write": write,
            "command": lambda: self.command(f"cp {written} {made}", d),
            "ls": ls,
            "read": read,
        }.items():
            took = self.timed(state, f"{what} in the other thread", act, NEARBY)
            self.nearby[what, state] = max(took, self.nearby.get((what, state), 0))

    def collect(self, children, until, results, since=None):
        """What they say by then, and how long after since or their beginning; those who said
        nothing are returned."""
        left = {c.said: c for c in children}
        while left and (now := time.monotonic()) < until:
            for fd in select.select(list(left), [], [], until - now)[0]:
                c = left.pop(fd)
                said, when = c.result()
                results[c.name] = said, max(when - (since or c.began), 0)
        return list(left.values())

    def round(self, state, interrupt):
        results = {}
        children = self.prepare()
        later = {name for names in LATER for name in names}
        before = self.counts()
        try:
            self.control.set(state)
            left = self.go(children, [name for name in OPS if name not in later
                                      and (interrupt or name not in ONLY_SIGINT)])
            left = self.collect(left, time.monotonic() + PATIENCE, results)
            longest = self.bystanders(state)
            self.neighbours(state)
            print(f"{state}: {len(left)} waited meanwhile", file=sys.stderr)
            if len(left) < len(OPS) // 2:
                self.bad.append(f"{state}: only {len(left)} waited")
            if interrupt:
                self.interrupt(state, left, results)
                for names in LATER:
                    left = self.collect(self.go(children, names), time.monotonic() + SOON, results)
                    self.interrupt(state, left, results)
            else:
                longer = self.go(children, LATER[0])
                self.wait(left, results)
                self.wait(longer + self.go(children, LATER[1]), results)
                self.wait(self.go(children, LATER[2]), results)
            after = self.counts()
            for kind, names in KINDS.items():
                if after.get(kind, 0) - before.get(kind, 0) >= len(names):
                    self.real.setdefault(kind, set()).add(state)
        finally:
            self.control.set("forward")
            for c in children:
                c.end()
            for fd in self.held:
                os.close(fd)
        self.works_again(state)
        return results, longest

    @staticmethod
    def go(children, names):
        gone = [c for c in children if c.name in names]
        for c in gone:
            c.began = time.monotonic()
            os.write(c.go, b"g")
        return gone

    def wait(self, children, results):
        for c in self.collect(children, time.monotonic() + 12 * self.timeout * SLOW, results):
            results[c.name] = "hangs", time.monotonic() - c.began

    def interrupt(self, state, left, results):
        began = time.monotonic()
        for c in left:
            os.kill(c.pid, signal.SIGINT)
        for c in self.collect(left, began + 2 * self.timeout * SLOW, results, began):
            results[c.name] = "deaf", 2 * self.timeout * SLOW
        for c in left:
            said, took = results[c.name]
            if said == "SIGINT" and c.name in PAGES:
                said = "ended"
            if took > AT_ONCE or said == "died" or said.startswith("SIG"):
                self.bad.append(f"{state}: {c.name}: {said} {took:.1f} s after SIGINT")
            results[c.name] = said, took
            self.heard[c.name] = max(self.heard.get(c.name, ("", 0)), results[c.name],
                                     key=lambda r: r[1])

    def works_again(self, state):
        name = f"{self.thread}/outputs/again"
        began = time.monotonic()
        while True:
            try:
                self.command("true", f"{self.thread}-too")
                self.command("echo new >outputs/made")
                read_small(f"{self.thread}/outputs/made")
                with open(name, "w") as f:
                    f.write("new")
                os.unlink(name)
                os.listdir(f"{self.thread}/outputs/{self.rounds}")
                break
            except OSError as e:
                if time.monotonic() - began > 20 * SLOW:
                    raise SystemExit(f"after {state}: {e}")
                time.sleep(0.1)
        took = time.monotonic() - began
        print(f"after {state}: works again, {took:.1f} s", file=sys.stderr)

    def state(self, state):
        interrupted, longest = self.round(state, True)
        print(f"{state}: meanwhile others took up to {longest * 1000:.0f} ms", file=sys.stderr)
        waited, _ = self.round(state, False)
        for name in OPS:
            said, took = waited.get(name, ("waits", 0))
            print(f"{state}: {name}: {said} {took:.2f} s; {interrupted[name][0]} "
                  f"{interrupted[name][1]:.2f} s with SIGINT", file=sys.stderr)
            if name == FAULT and said == "SIGBUS":
                said = "told"
            if took > self.timeout + SLACK or said in ("hangs", "died") or said.startswith("SIG"):
                self.bad.append(f"{state}: {name}: {said} after {took:.1f} s")
        return waited


def cell(said, took):
    return f"{said}, at once" if took < 0.5 else f"{said}, {took:.1f} s"


def row(*cells):
    print("|", " | ".join(cells), "|")


def print_tables(test, seen):
    row("operation", *STATES.values(), "SIGINT")
    row(*["---"] * (len(STATES) + 2))
    for name in OPS:
        said, took = test.heard.get(name, ("–", 0))
        row(name, *(cell(*seen[s][name]) if name in seen[s] else "waits" for s in STATES),
            f"{said}{f', {took * 1000:.0f} ms' if took else ''}")
    print()
    row("meanwhile in the other thread", *STATES.values())
    row(*["---"] * (len(STATES) + 1))
    for what in dict.fromkeys(what for what, _ in test.nearby):
        row(what, *(f"{test.nearby[what, s] * 1000:.0f} ms" for s in STATES))


def compare_operations(path):
    """The table of what the kernel may ask, and what is said of it here."""
    with open(path) as f:
        table = re.search(r"struct fuse_lowlevel_ops fs_ops = \{(.*?)\n\};", f.read(), re.S)[1]
    fields = re.findall(r"\.(\w+)\s*=", table)
    rows = {name for names in OPERATIONS.values() if isinstance(names, tuple) for name in names}
    bad = [f"{path}: {name} has no row, nor a reason why it never waits"
           for name in fields if name not in OPERATIONS]
    bad += [f"{name} is not in {path}" for name in OPERATIONS if name not in fields]
    bad += [f"there is no row {name}" for name in rows - set(OPS)]
    bad += [f"{name} comes to no operation of {path}" for name in set(OPS) - rows]
    for line in bad:
        print(line, file=sys.stderr)
    return bool(bad)


def main():
    if sys.argv[1] == "--ops":
        sys.exit(compare_operations(sys.argv[2]))
    thread, control, pid, timeout = sys.argv[1:5]
    test = Test(thread, Control(control, int(pid)), float(timeout))
    try:
        seen = {state: test.state(state) for state in STATES}
    finally:
        test.control.set("forward")
    if "--table" in sys.argv:
        print_tables(test, seen)
    for kind, names in KINDS.items():
        states = test.real.get(kind, set()) - {"refuse"}
        print(f"{', '.join(names)}: asked of the mount in {sorted(states)}", file=sys.stderr)
        if not states:
            test.bad.append(f"{kind}: only lookups were seen of {', '.join(names)}")
    for line in test.bad:
        print(f"WRONG: {line}", file=sys.stderr)
    sys.exit(bool(test.bad))


main()
