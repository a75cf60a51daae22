#!/usr/bin/env python3
"""A TCP proxy in front of a server, which stops being helpful when told so.

usage: stallproxy.py SERVER-PORT CONTROL-SOCKET

Prints the port on 127.0.0.1 that it listens on. A line to the control socket sets the
state, and is answered when it is in force:

forward   everything goes through
refuse    nobody listens, and who was connected is reset
silent    connections are accepted and what they say is swallowed
midbody   requests go through; of each answer only its head and the first bytes of its body
drip      all goes through, but for the content of files: that comes byte by byte, never silent

Connections that saw another state than forward are reset when it comes back.
"""
import asyncio
import socket
import struct
import sys

PIECE = 65536
DRIP_SECONDS = 0.05


class Connection:
    """A client's connection and ours to the server."""

    def __init__(self, proxy, client):
        self.proxy = proxy
        self.client = client  # a pair of streams each
        self.server = None
        self.tasks = []
        self.head = b""       # of the answer under way; None: its body came
        self.cut = False      # nothing more goes to the client
        self.dripping = False # of the content of a file
        self.at_once = 0      # bytes of its head

    def reset(self):
        for task in self.tasks:
            task.cancel()
        for _, writer in filter(None, (self.client, self.server)):
            raw = writer.get_extra_info("socket")
            try:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            except OSError:
                pass
            writer.transport.abort()

    def answer_piece(self, data):
        """What of it the client is to have."""
        head = data.split(b"\r\n\r\n")[0]
        if self.proxy.state == "drip" and b"application/octet-stream" in head:
            self.dripping = True
            self.at_once = len(head) + 4
        if self.proxy.state in ("forward", "drip"):
            self.head = None
            return data
        if self.proxy.state != "midbody" or self.cut or self.head is None:
            return b""
        self.head += data
        while b"\r\n\r\n" in self.head:
            head, body = self.head.split(b"\r\n\r\n", 1)
            if head.startswith(b"HTTP/1.1 100"):
                self.head = body
                return head + b"\r\n\r\n" + self.answer_piece(b"")
            if not body and b"content-length: 0" not in head.lower():
                return b""  # until there is something to break off
            self.cut = True
            return head + b"\r\n\r\n" + body[:len(body) // 2]
        return b""

    async def requests(self):
        reader, writer = self.client[0], self.server[1]
        while data := await reader.read(PIECE):
            if self.proxy.state != "silent":
                self.head = b""
                writer.write(data)
                await writer.drain()

    async def answers(self):
        reader, writer = self.server[0], self.client[1]
        while data := await reader.read(PIECE):
            data = self.answer_piece(data)
            while self.dripping and data:
                n = self.at_once or 1
                self.at_once = 0
                writer.write(data[:n])
                data = data[n:]
                await asyncio.sleep(DRIP_SECONDS)
            if data:
                writer.write(data)
                await writer.drain()


class Proxy:
    def __init__(self, server_port):
        self.server_port = server_port
        # Keeps the port while nobody listens: another program could have it by then.
        self.keeper = socket.socket()
        self.keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.keeper.bind(("127.0.0.1", 0))
        self.port = self.keeper.getsockname()[1]
        self.state = "forward"
        self.listener = None
        self.connections = set()

    async def listen(self):
        self.listener = await asyncio.start_server(self.serve, "127.0.0.1", self.port, backlog=512)

    async def serve(self, reader, writer):
        c = Connection(self, (reader, writer))
        self.connections.add(c)
        try:
            c.server = await asyncio.open_connection("127.0.0.1", self.server_port)
            c.tasks = [asyncio.ensure_future(c.requests()), asyncio.ensure_future(c.answers())]
            await asyncio.wait(c.tasks, return_when=asyncio.FIRST_COMPLETED)
        except OSError:
            pass
        finally:
            self.connections.discard(c)
            c.reset()

    async def set_state(self, state):
        assert state in ("forward", "refuse", "silent", "midbody", "drip"), state
        if state == "refuse":
            self.listener.close()
            self.listener = None
        if state == "refuse" or self.state != "forward":
            for c in list(self.connections):
                c.reset()
        self.state = state
        if state != "refuse" and self.listener is None:
            await self.listen()

    async def control(self, reader, writer):
        while line := await reader.readline():
            await self.set_state(line.decode().strip())
            writer.write(b"done\n")
            await writer.drain()
        writer.close()


async def main(server_port, control):
    proxy = Proxy(server_port)
    await proxy.listen()
    await asyncio.start_unix_server(proxy.control, control)
    print(proxy.port, flush=True)
    await asyncio.Event().wait()


asyncio.run(main(int(sys.argv[1]), sys.argv[2]))
