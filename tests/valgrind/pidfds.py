#!/usr/bin/python3
"""pidfds.py SOCKET: opens pidfds for programs under valgrind, see shim.c.

Each connection sends a process number and gets an errno, with the descriptor if it is 0.
"""
import os
import socket
import struct
import sys


def serve(conn):
    (pid,) = struct.unpack("i", conn.recv(4))
    try:
        fd = os.pidfd_open(pid)
    except OSError as e:
        conn.send(struct.pack("i", e.errno))
        return
    socket.send_fds(conn, [struct.pack("i", 0)], [fd])
    os.close(fd)


with socket.socket(socket.AF_UNIX) as listener:
    listener.bind(sys.argv[1])
    os.chmod(sys.argv[1], 0o666)  # a test may be another user
    listener.listen(64)
    while True:
        with listener.accept()[0] as connection:
            try:
                serve(connection)
            except (OSError, struct.error):  # it went away
                pass
