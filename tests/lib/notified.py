#!/usr/bin/env python3
"""A service manager for one program: prints what it tells on its notify socket, a line for each
variable, and beside READY=1 whether DIR is a mount then. Ends with it.

usage: notified.py SOCKET DIR COMMAND...    SOCKET: a path, or @NAME
"""
import os
import select
import signal
import socket
import subprocess
import sys


def main():
    name, directory, command = sys.argv[1], sys.argv[2], sys.argv[3:]
    s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    s.bind("\0" + name[1:] if name.startswith("@") else name)
    child = subprocess.Popen(command, env={**os.environ, "NOTIFY_SOCKET": name})
    signal.signal(signal.SIGTERM, lambda *a: child.terminate())
    ended = False
    while not ended:
        ended = child.poll() is not None  # what it said before is read yet
        while select.select([s], [], [], 0 if ended else 0.1)[0]:
            for line in s.recv(65536).decode().split("\n"):
                if line == "READY=1":
                    line += " mounted" if os.path.exists(directory + "/README") else " too early"
                print(line, flush=True)
    print(f"EXIT={child.returncode}", flush=True)


if __name__ == "__main__":
    main()
