#!/usr/bin/env python3
"""The code blocks of a document, as a bash script that runs them and checks what they show.

usage: docblocks.py --script FILE [HEADING]    the script; of the part under HEADING only
       docblocks.py --list FILE...             a line for each block: what becomes of it

Every block says by its language what it is:

    console     "$ " begins a command, "> " goes on with it; the lines below are what it prints, blanks
                and line breaks aside. "…" stands for anything. Without such lines only the
                exit status counts, which has to be 0. A command sees the directory and the
                variables that those before it left.
    fstab       each line is given to mount.threadfs -f, which looks at its options
    yaml, json  is parsed
    c           all of a document's are compiled as one file
    text        is no code: a picture, a usage, an excerpt

What cannot run is marked by a comment on the line before it, with the reason:
<!-- not run: needs a cluster -->. <!-- first: COMMAND --> runs COMMAND before the block.

The script wants $THREADFS in PATH as threadfs, and HOME to be a directory of its own.
"""
import json
import re
import shlex
import sys

LANGUAGES = ("console", "fstab", "yaml", "json", "c", "text")

PRELUDE = r"""
out_=$(mktemp)
trap 'rm -f "$out_"' EXIT
check_() { # WHERE STATUS [PATTERN]
	local said
	said=$(tr -s ' \t\n' ' ' <"$out_")
	said=${said# } said=${said% }
	if [ "$2" -ne 0 ]; then
		echo "$1: ended with $2:" >&2; cat "$out_" >&2; exit 1
	fi
	# shellcheck disable=SC2053
	if [ $# -gt 2 ] && [[ $said != $3 ]]; then
		echo "$1: not what the document shows:" >&2; cat "$out_" >&2; exit 1
	fi
}
"""


class Block:
    def __init__(self, path, line, language, heading):
        self.path, self.line, self.language, self.heading = path, line, language, heading
        self.lines, self.skip, self.first = [], None, []

    def where(self):
        return f"{self.path}:{self.line}"


def blocks_of(path):
    found, block, heading, marks = [], None, "", []
    for number, line in enumerate(open(path, encoding="utf-8").read().split("\n"), 1):
        fence = re.match(r"^```(\w*)\s*$", line)
        if block is not None:
            if fence:
                block = None
            else:
                block.lines.append(line)
        elif fence:
            block = Block(path, number, fence.group(1), heading)
            for kind, text in marks:
                if kind == "not run":
                    block.skip = text
                else:
                    block.first.append(text)
            marks = []
            found.append(block)
            if block.language not in LANGUAGES:
                sys.exit(f"{block.where()}: the language '{block.language}' is none of {', '.join(LANGUAGES)}")
        else:
            mark = re.match(r"^<!-- (not run|first): (.*) -->$", line)
            if mark:
                marks.append(mark.groups())
            elif line.strip():
                marks = []
            if line.startswith("#"):
                heading = line.lstrip("# ")
    return found


def commands_of(block):
    """(line, command, expected lines) of each."""
    found = []
    for number, line in enumerate(block.lines, block.line + 1):
        if line.startswith("$ "):
            found.append((number, [line[2:]], []))
        elif not found:
            sys.exit(f"{block.path}:{number}: a console block begins with '$ '")
        elif line.startswith("> ") and not found[-1][2]:
            found[-1][1].append(line[2:])
        elif line.strip():
            found[-1][2].append(line)
    return [(n, "\n".join(c), e) for n, c, e in found]


def pattern_of(lines):
    words = re.sub(r"\s+", " ", " ".join(lines)).strip()
    return "*".join(shlex.quote(piece) if piece else "" for piece in words.split("…"))


def console(block):
    text = ["cd"]
    for number, command, expected in commands_of(block):
        where = shlex.quote(f"{block.path}:{number}")
        # In this shell, so that cd and variables last. A command that fails is seen by check_.
        text.append(f"{{\n{command}\n}} >\"$out_\" 2>&1 </dev/null && status_=0 || status_=$?")
        text.append(f"check_ {where} $status_ {pattern_of(expected)}".rstrip())
    return text


def fstab(block):
    text = ['ln -sf "$(command -v threadfs)" ~/mount.threadfs', "mkdir -p ~/point"]
    for line in block.lines:
        fields = line.split()
        if not fields or fields[0].startswith("#"):
            continue
        if len(fields) != 6 or fields[2] != "threadfs":
            sys.exit(f"{block.where()}: not a line of fstab: {line}")
        text.append(f"~/mount.threadfs {shlex.quote(fields[0])} ~/point -f -o {shlex.quote(fields[3])}")
    return text


def script_of(path, heading=None):
    blocks = [b for b in blocks_of(path) if heading in (None, b.heading)]
    if not blocks and heading:
        sys.exit(f"{path}: no block under '{heading}'")
    text, code = [PRELUDE], []
    for block in blocks:
        if block.skip or block.language == "text":
            continue
        text += [f"echo {shlex.quote(block.where())}"] + block.first
        if block.language == "console":
            text += console(block)
        elif block.language == "fstab":
            text += fstab(block)
        elif block.language == "json":
            json.loads("\n".join(block.lines))
        elif block.language == "yaml":
            import yaml
            yaml.safe_load("\n".join(block.lines))
        elif block.language == "c":
            code += [f'#line {block.line + 1} "{path}"'] + block.lines
    if code:
        text += ["cat >~/block.c <<'END_OF_CODE_'", *code, "END_OF_CODE_", "compile_ ~/block.c"]
    return "\n".join(text) + "\n"


def main():
    if len(sys.argv) > 2 and sys.argv[1] == "--script":
        print(script_of(*sys.argv[2:4]), end="")
    elif len(sys.argv) > 2 and sys.argv[1] == "--list":
        for path in sys.argv[2:]:
            for b in blocks_of(path):
                fate = f"not run: {b.skip}" if b.skip else "no code" if b.language == "text" else "run"
                print(f"{b.where()}: {b.language or '-'}: {fate}")
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
