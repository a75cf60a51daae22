#!/usr/bin/env python3
"""Whether each line of docs/SECURITY.md's tables of attacks names tests, and each of them exists.

usage: security_doc.py [ROOT]
"""
import os
import re
import sys

root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
bad, tests, lines = [], 0, 0


def has(path, name):
    """As a test, not just a mention: @test in bats; a function, or a row of a table, in C."""
    text = open(os.path.join(root, path), encoding="utf-8").read()
    if path.endswith(".bats"):
        return '@test "%s" {' % name in text
    return re.search(r"^static void %s\(" % re.escape(name), text, re.M) or '{ "%s",' % name in text


with open(os.path.join(root, "docs/SECURITY.md"), encoding="utf-8") as doc:
    in_table = False
    for number, line in enumerate(doc, 1):
        cells = [c.strip() for c in line.strip().strip("|").split(" | ")]
        if not line.startswith("|"):
            in_table = False
        elif cells == ["attack", "answer", "test"]:
            in_table = True
        elif in_table and not line.startswith("| ---"):
            lines += 1
            named = re.findall(r"`(tests/[^`]+)`: (.+?)(?=; `tests/|$)", cells[-1])
            if len(cells) != 3 or not named:
                bad.append("line %d names no test" % number)
            for path, name in named:
                tests += 1
                if not os.path.exists(os.path.join(root, path)):
                    bad.append("line %d: there is no %s" % (number, path))
                elif not has(path, name):
                    bad.append("line %d: %s has no test '%s'" % (number, path, name))
if lines < 30:
    bad.append("only %d lines were found" % lines)
for text in bad:
    print("docs/SECURITY.md: " + text)
print("%d lines, %d tests named, %d mistakes" % (lines, tests, len(bad)))
sys.exit(bool(bad))
