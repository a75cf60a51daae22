#!/usr/bin/env python3
"""Every operation on a thread whose server does not answer, in each way of not answering.

usage: hang_table.py THREAD CONTROL-SOCKET SANDBOXD-PID TIMEOUT [--table]

THREAD is a directory of a mount with timeout=TIMEOUT, behind stallproxy.py with that control
socket, before that sandbox. In each state all operations run at the same time, each in a
process of its own:

- once with SIGINT after a second: each has to return at once then;
- once without: each has to return by TIMEOUT. Then one more, which begins when it is already
  known that the server does not answer.

Meanwhile what needs no server has to answer, and when the state ends everything has to work
again. Prints what it sees; with --table as a table for docs/RELIABILITY.md. Times are far
beyond what they should be where they fail: SLOW multiplies them.
"""
import errno
import json
import os
import re
import select
import signal
import socket
import sys
import time

SLOW = int(os.environ.get("SLOW", "1"))
AT_ONCE = 1.5 * SLOW     # after an interrupt; who does not hear it takes longer
PATIENCE = 1.0           # before it
SLACK = 5.0 * SLOW       # of a busy machine
STATES = {
    "refuse": "refusing",
    "silent": "no headers",
    "midbody": "mid-body",
    "stop": "SIGSTOP",
}
LARGE = 300_000_000
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


def write_fsync(_, fd):
    os.write(fd, b"new")
    os.fsync(fd)


def create(d, _):
    os.close(os.open(f"{d}/new", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))


def large_begun(d):
    fd = os.open(f"{d}/large", os.O_RDONLY)
    os.read(fd, 1000)
    return fd


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


def read_small(path):
    with open(path, "rb", buffering=0) as f:
        f.read(1 << 16)


AFTERWARDS = "lookup when others have failed"
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
    "write and close": (opened(os.O_WRONLY | os.O_TRUNC), write_close),
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
    "`.ctl/status`: read": (None, lambda d, _: read_small(f"{d}/.ctl/status")),
}
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
PAGES = ("open and read", "read far into an open file")


class Child:
    """A process that does one operation when told to."""

    def __init__(self, name, directory):
        self.name = name
        self.go_r, self.go = os.pipe()
        self.said, said_w = os.pipe()
        self.result = None
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
        os.write(out, said.encode() + b"\n")
        os._exit(0)

    def says(self, seconds):
        """Its next word, or None."""
        if not select.select([self.said], [], [], seconds)[0]:
            return None
        return os.read(self.said, 100).decode().strip() or "died"

    def end(self):
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
        self.heard = {}  # the slowest after SIGINT

    def command(self, text):
        fd = os.open(f"{self.thread}/.ctl/exec", os.O_WRONLY)
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

    def prepare(self):
        """A directory for each operation, so that none is in the way of another; made by a
        command, after which nothing counts that is cached."""
        self.rounds += 1
        self.held = []
        self.watched()
        top = f"outputs/{self.rounds}"
        self.command(f"""mkdir -p {top} && cd {top} && for i in $(seq {len(OPS)}); do
            mkdir -p $i/d && echo content >$i/f && echo other >$i/g && ln -s f $i/l &&
            truncate -s {LARGE} $i/large; done
            cd - >/dev/null""")
        paths = {}
        for i, name in enumerate(OPS, 1):
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
            if child.says(30 * SLOW) != "ready":
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
            began = time.monotonic()
            act()
            took = time.monotonic() - began
            longest = max(longest, took)
            if took > AT_ONCE:
                self.bad.append(f"{state}: meanwhile {what} took {took:.1f} s")
        return longest

    def collect(self, children, until, results, since):
        """What they say by then; those who said nothing are returned."""
        left = {c.said: c for c in children}
        while left and (now := time.monotonic()) < until:
            for fd in select.select(list(left), [], [], until - now)[0]:
                c = left.pop(fd)
                results[c.name] = c.says(0), time.monotonic() - since
        return list(left.values())

    def round(self, state, interrupt):
        results = {}
        children = self.prepare()
        before = self.counts()
        try:
            self.control.set(state)
            first = [c for c in children if interrupt or c.name != AFTERWARDS]
            began = self.go(first)
            left = self.collect(first, began + PATIENCE, results, began)
            longest = self.bystanders(state)
            if interrupt:
                self.interrupt(state, left, results)
            else:
                self.wait(left, results, began)
                last = [c for c in children if c not in first]
                self.wait(last, results, self.go(last))
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
    def go(children):
        for c in children:
            os.write(c.go, b"g")
        return time.monotonic()

    def wait(self, children, results, began):
        for c in self.collect(children, began + 12 * self.timeout * SLOW, results, began):
            results[c.name] = "hangs", time.monotonic() - began

    def interrupt(self, state, left, results):
        began = time.monotonic()
        for c in left:
            os.kill(c.pid, signal.SIGINT)
        for c in self.collect(left, began + 2 * self.timeout * SLOW, results, began):
            results[c.name] = "deaf", 2 * self.timeout * SLOW
        for c in left:
            said, took = results[c.name]
            if said == "died" and c.name in PAGES:
                said = "ended"
            if took > AT_ONCE or said == "died":
                self.bad.append(f"{state}: {c.name}: {said} {took:.1f} s after SIGINT")
            results[c.name] = said, took
            self.heard[c.name] = max(self.heard.get(c.name, ("", 0)), results[c.name],
                                     key=lambda r: r[1])

    def works_again(self, state):
        name = f"{self.thread}/outputs/again"
        began = time.monotonic()
        while True:
            try:
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
            said, took = waited[name]
            print(f"{state}: {name}: {said} {took:.2f} s; {interrupted[name][0]} "
                  f"{interrupted[name][1]:.2f} s with SIGINT", file=sys.stderr)
            if took > self.timeout + SLACK or said in ("hangs", "died"):
                self.bad.append(f"{state}: {name}: {said} after {took:.1f} s")
        return waited


def cell(said, took):
    return f"{said}, at once" if took < 0.5 else f"{said}, {took:.1f} s"


def main():
    thread, control, pid, timeout = sys.argv[1:5]
    test = Test(thread, Control(control, int(pid)), float(timeout))
    try:
        seen = {state: test.state(state) for state in STATES}
    finally:
        test.control.set("forward")
    if "--table" in sys.argv:
        print("| operation |", " | ".join(STATES.values()), "| SIGINT |")
        print("| --- |", " | ".join("---" for _ in STATES), "| --- |")
        for name in OPS:
            said, took = test.heard.get(name, ("–", 0))
            print(f"| {name} |", " | ".join(cell(*seen[s][name]) for s in STATES),
                  f"| {said}{f', {took * 1000:.0f} ms' if took else ''} |")
    for kind, names in KINDS.items():
        states = test.real.get(kind, set()) - {"refuse"}
        print(f"{', '.join(names)}: asked of the mount in {sorted(states)}", file=sys.stderr)
        if not states:
            test.bad.append(f"{kind}: only lookups were seen of {', '.join(names)}")
    for line in test.bad:
        print(f"WRONG: {line}", file=sys.stderr)
    sys.exit(bool(test.bad))


main()
