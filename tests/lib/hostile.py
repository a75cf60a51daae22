#!/usr/bin/env python3
"""A sandbox's HTTP server in hostile hands: stands between threadfs and a real one.

usage: hostile.py SOCKET-OF-THE-REAL-ONE HOW [ARGS]

Listens on a port of 127.0.0.1 and prints "http://127.0.0.1:PORT". One request per
connection. What it does beyond passing on, once the file $HOSTILE_WHEN is there, by HOW:

  honest             nothing
  echo               answers every change and every exec with a 500 whose words are all the
                     request's headers, key included, and escape sequences
  redirect URL       answers everything with 302 to URL
  nest               D, a directory of 100 times d with one D in it, is also D/D, D/D/D and so on;
                     whole trees are not listed
  many N             lists everything in a directory "many" N times
  boast              copies nothing of a range, and says it was more than was asked for
  gzip               sends every body gzipped as if that had been asked for, a gigabyte of zeros
  mutate SEED        changes bytes of one answer in three: flips, cuts, doubles, lies about
                     lengths, puts known bad values into JSON. Written to stderr, one line each.
"""
import base64
import json
import os
import random
import re
import socket
import socketserver
import sys
import threading
import zlib

upstream, how, args = sys.argv[1], sys.argv[2], sys.argv[3:]


def receive(sock):
    """One whole message: head (with its empty line), body. None at the end."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = sock.recv(65536)
        if not piece:
            return None
        data += piece
    head, body = data.split(b"\r\n\r\n", 1)
    length = re.search(rb"(?im)^content-length:\s*(\d+)", head)
    chunked = re.search(rb"(?im)^transfer-encoding:\s*chunked", head)
    if chunked:
        while not body.endswith(b"0\r\n\r\n"):
            piece = sock.recv(65536)
            if not piece:
                break
            body += piece
    elif length:
        while len(body) < int(length[1]):
            piece = sock.recv(65536)
            if not piece:
                break
            body += piece
    return head, body


def without(head, *names):
    """The head, without an empty line at its end and without these headers."""
    lines = head.rstrip(b"\r\n").split(b"\r\n")
    return b"\r\n".join(line for line in lines if line.split(b":")[0].lower() not in names)


def is_stream(target):
    return b"/v1/file/watch/" in target


def ask(message):
    """The real server's answer: head and body."""
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(120)
    s.connect(upstream)
    with s:
        head, body = message
        s.sendall(without(head, b"connection", b"expect") + b"\r\nConnection: close\r\n\r\n" + body)
        data = b"".join(iter(lambda: s.recv(1 << 20), b""))
    head, _, body = data.partition(b"\r\n\r\n")
    if re.search(rb"(?im)^transfer-encoding:\s*chunked", head):
        body = unchunk(body)
    return head, body


def unchunk(body):
    out = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        n = int(size.split(b";")[0] or b"0", 16)
        if n == 0:
            break
        out += body[:n]
        body = body[n + 2:]
    return out


def pack(head, body, length=None):
    head = without(head, b"content-length", b"connection", b"transfer-encoding")
    return b"%s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (
        head, len(body) if length is None else length, body)


# ---- what is done to answers ----

BAD_NUMBERS = [b"-1", b"0", b"1e308", b"-1e308", b"9223372036854775807", b"9223372036854775808", b"18446744073709551616",
               b"4294967296", b"2147483648", b"0.5", b"null", b'"7"', b"[]", b"{}", b"true"]
BAD_STRINGS = [b"", b"..", b".", b"/", b"../../../../etc/passwd", b"/etc/passwd", b"a/b", b"\\u0000", b"\\u001b[2J",
               b"\\r\\nX-Evil: 1", b"A" * 300, b"\xff\xfe", b"\\ud800", b"/mnt/user-data/../..", b".ctl", b"%00", b"%n"]


class Mutator:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.lock = threading.Lock()
        self.count = 0

    def bytes_(self, data):
        r, data = self.random, bytearray(data)
        kind = r.choice("flip flip insert delete double cut splice number string string armour".split())
        if not data:
            return kind, bytes(r.randbytes(r.randrange(64)))
        at = r.randrange(len(data))
        if kind == "flip":
            for _ in range(r.randrange(1, 8)):
                data[r.randrange(len(data))] = r.randrange(256)
        elif kind == "insert":
            data[at:at] = r.randbytes(r.randrange(1, 32))
        elif kind == "delete":
            del data[at:at + r.randrange(1, 64)]
        elif kind == "double":
            data[at:at] = data[max(0, at - r.randrange(1, 4096)):at]
        elif kind == "cut":
            del data[at:]
        elif kind == "splice":
            data = data[at:] + data[:at]
        else:
            return kind, self.values(kind, bytes(data))
        return kind, bytes(data)

    def values(self, kind, data):
        r = self.random
        pattern = {"number": rb"(?<![\w\"])-?\d+(\.\d+)?", "string": rb"(?<=\")[^\"\\]{0,400}(?=\")",
                   "armour": rb"[A-Za-z0-9+/]{24,}={0,2}"}[kind]
        found = list(re.finditer(pattern, data))
        if not found:
            return data
        m = r.choice(found)
        if kind == "number":
            new = r.choice(BAD_NUMBERS)
        elif kind == "string":
            new = r.choice(BAD_STRINGS)
        else:  # what our own commands print travels in base64: its inside is changed, too
            text = m[0][:len(m[0]) // 4 * 4]
            try:
                inner = bytearray(base64.b64decode(text))
            except ValueError:
                return data
            for _ in range(r.randrange(1, 6)):
                if inner:
                    inner[r.randrange(len(inner))] = r.choice([0, 10, 32, 47, 46, 255, r.randrange(256)])
            new = base64.b64encode(bytes(inner))
        return data[:m.start()] + new + data[m.end():]

    def answer(self, target, head, body):
        with self.lock:
            r = self.random
            self.count += 1
            if self.count < 8 or r.random() > 0.34:
                return pack(head, body)
            n, part = self.count, r.random()
            if part < 0.75:
                kind, body = self.bytes_(body)
                out = pack(head, body)
            elif part < 0.85:
                kind, out = self.bytes_(pack(head, body))
            elif part < 0.93:
                kind = "length"
                out = pack(head, body, max(0, len(body) + r.choice([-7, -1, 1, 100, 2**31, 2**63])))
            elif part < 0.97:
                kind = "status"
                out = pack(re.sub(rb"^HTTP/1.1 \d+", b"HTTP/1.1 %d" % r.choice([204, 206, 301, 404, 416, 500, 503]), head),
                           body)
            else:
                kind, out = "nothing", b""
            print("mutated %d %s %s" % (n, kind, target.decode("latin-1")), file=sys.stderr, flush=True)
            return out


def bomb():
    z = zlib.compressobj(6, zlib.DEFLATED, 31)
    return b"".join(z.compress(bytes(1 << 20)) for _ in range(1024)) + z.flush()


# Before anybody asks for it: it takes longer than is waited for an answer.
PACKED = bomb() if how == "gzip" else b""


def gzipped(head, body):
    return pack(without(head, b"content-range") + b"\r\nContent-Encoding: gzip", PACKED)


mutator = Mutator(int(args[0])) if how == "mutate" else None


def change(request, head, body):
    target = request[0].split(b" ")[1]
    if not os.path.exists(os.environ.get("HOSTILE_WHEN", "/")):
        return pack(head, body)
    if how == "echo" and re.search(rb"/(exec|upload|write|download|list|wait)", target):
        words = request[0].decode("latin-1") + "\x1b]0;owned\x07\x9b31m"
        return pack(b"HTTP/1.1 500 Oops\r\nContent-Type: application/json",
                    json.dumps({"success": False, "message": words}).encode())
    if how == "redirect":
        return pack(b"HTTP/1.1 302 Found\r\nLocation: " + args[0].encode(), b"")
    if how == "gzip" and target.startswith(b"/v1/file/download"):
        return gzipped(head, body)
    if mutator:
        return mutator.answer(target, head, body)
    return pack(head, body)


def nested(body):
    """The request for what it is, once more, in itself."""
    return re.sub(rb"(/d{100})+(?=/d{100}\b)", b"", body).replace(b"pipefail; find", b"pipefail; none")


def multiplied(body):
    """The request for it, again and again."""
    return body.replace(b"find . ", b"find " + b". " * int(args[0])) if b"/many" in body else body


def boasting(body):
    """A range is not copied, but that is what dd would say."""
    return body.replace(b"exec dd ", b"exec echo 99999999 bytes copied >&2 ")


REQUESTS = {"nest": nested, "many": multiplied, "boast": boasting}


def demand(head, body):
    """What is asked of the real server."""
    if how not in REQUESTS or not re.search(rb"(?im)^content-length:", head):
        return head, body
    body = REQUESTS[how](body)
    return without(head, b"content-length") + b"\r\nContent-Length: %d" % len(body), body


class Handler(socketserver.BaseRequestHandler):
    def handle(self):
        try:
            request = receive(self.request)
            if not request:
                return
            target = request[0].split(b" ")[1]
            if is_stream(target) and not target.endswith(b"/watch/"):
                self.relay(request)
                return
            self.request.sendall(change(request, *ask(demand(*request))))
        except (OSError, ValueError, IndexError):
            pass

    def relay(self, request):
        """A stream of events: as it comes, with a byte changed now and then."""
        s = socket.socket(socket.AF_UNIX)
        s.connect(upstream)
        with s:
            s.sendall(without(request[0], b"connection") + b"\r\nConnection: close\r\n\r\n" + request[1])
            s.settimeout(60)
            while True:
                piece = s.recv(65536)
                if not piece:
                    return
                if mutator and mutator.random.random() < 0.05:
                    kind, piece = mutator.bytes_(piece)
                    print("mutated 0 %s the stream" % kind, file=sys.stderr, flush=True)
                self.request.sendall(piece)


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 128


with Server(("127.0.0.1", 0), Handler) as server:
    print("http://127.0.0.1:%d" % server.server_address[1], flush=True)
    server.serve_forever()
