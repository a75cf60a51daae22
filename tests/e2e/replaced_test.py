#!/usr/bin/env python3
"""Reads a file while somebody replaces it, again and again, by longer and shorter ones.

usage: replaced_test.py FILE HOST SECONDS
FILE: in the mount; HOST: the same file beside it. Each version consists of lines that say which
one it is and how long. Prints how many reads had one version, how many failed with ESTALE, and
how many had something else; a file with bytes that nobody wrote is a failure. With sanitizers,
which slow everything down, two are not (docs/RELIABILITY.md says why).
"""
import errno
import itertools
import multiprocessing
import os
import random
import sys
import time

SIZES = [3008, 4832, 9008, 47312, 120000]
LINE = 16


def replace(host, end):
    for version in itertools.count():
        size = random.choice(SIZES)
        with open(host + ".new", "wb") as f:
            f.write(b"%07d %07d\n" % (version, size) * (size // LINE))
        os.rename(host + ".new", host)
        if time.time() > end:
            return
        time.sleep(random.choice([0, 0.002, 0.01, 0.05, 0.2]))


def read(path):
    pieces = []
    fd = os.open(path, os.O_RDONLY)
    try:
        if random.random() < 0.3:
            time.sleep(random.random() * 0.02)
        while piece := os.read(fd, 1 << 20):
            pieces.append(piece)
    finally:
        os.close(fd)
    return b"".join(pieces)


def runs(data):
    lines = (data[i : i + LINE - 1] for i in range(0, len(data), LINE))
    return [(line, len(list(same)) * LINE) for line, same in itertools.groupby(lines)]


def read_often(path, end, results):
    whole = stale = mixed = foreign = 0
    while time.time() < end:
        try:
            data = read(path)
        except OSError as e:
            if e.errno != errno.ESTALE:
                raise
            stale += 1
            continue
        found = runs(data)
        if len(found) == 1 and int(found[0][0].split()[1]) == len(data):
            whole += 1
            continue
        print(len(data), found, flush=True)
        mixed += 1
        foreign += b"\0" in data
    results.put((whole, stale, mixed, foreign))


def main():
    path, host = sys.argv[1:3]
    replace(host, 0)
    patience = time.time() + 60
    while os.stat(path).st_size < LINE:  # what was there before is no version
        if time.time() > patience:
            sys.exit("the first version is not seen")
        time.sleep(0.01)
    end = time.time() + float(sys.argv[3])
    results = multiprocessing.Queue()
    replacer = multiprocessing.Process(target=replace, args=(host, end))
    readers = [
        multiprocessing.Process(target=read_often, args=(path, end, results)) for _ in range(2)
    ]
    for p in [replacer, *readers]:
        p.start()
    for p in [replacer, *readers]:
        p.join()
    if any(p.exitcode for p in [replacer, *readers]):
        sys.exit("one of them failed")
    whole, stale, mixed, foreign = map(sum, zip(*(results.get() for _ in readers)))
    print(f"{whole} reads of one version, {stale} ESTALE, {mixed} of two")
    sys.exit(foreign > (2 if os.environ.get("SANITIZED") else 0) or whole == 0)


main()
