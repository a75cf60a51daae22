#!/usr/bin/env bats
# README.md and docs/*.md: every code block is run and gives what it says, or says itself why it
# is not (tests/lib/docblocks.py); the code map knows every file; links lead somewhere; the
# recorded session is what the program does.

load ../lib/mount

cd "$SANDBOXD_ROOT" || exit 1
DOCUMENTS=(README.md CONTRIBUTING.md CHANGELOG.md docs/*.md)

setup() {
	mount_setup
	mkdir "$T/bin"
	ln -s "$THREADFS" "$T/bin/threadfs"
	PATH=$T/bin:$PATH
}

teardown() {
	teardown_mount
}

# As scripts do it: with the flags of the build.
compile_() {
	cc -std=gnu11 -D_GNU_SOURCE -Wall -Werror -fsyntax-only -I"$SANDBOXD_ROOT/base" \
		-I"$SANDBOXD_ROOT/client" -I"$SANDBOXD_ROOT/provider" "$1"
}
export -f compile_
export SANDBOXD_ROOT

@test "every code block gives what it says" {
	MOUNTS+=("$HOME/agents")
	for document in "${DOCUMENTS[@]}"; do
		tests/lib/docblocks.py --script "$document" >"$T/script"
		(cd && bash -e "$T/script" 3>&-) || { echo "in $document"; return 1; }
	done
}

@test "what is not run says why" {
	tests/lib/docblocks.py --list "${DOCUMENTS[@]}" >"$T/list"
	sed -n 's/^/# /; /not run: /p' "$T/list" >&3
	echo "# $(grep -c ': run$' "$T/list") blocks run, $(grep -c 'not run: ' "$T/list") not run" >&3
	refute grep 'not run: *$' "$T/list"
}

@test "the code map names every file, and no other" {
	local wrong=0
	map=$(sed -n '/^## Code map/,/^## The file/p' docs/ARCHITECTURE.md)
	for folder in base fs client provider sandboxd; do
		part=$(awk -v f="**$folder/**" '/^\| \*\*/ { on = index($0, f) } on' <<<"$map" | cut -d'|' -f2)
		names=$(grep -o '`[^`]*`' <<<"$part" | tr -d '\`' | sed 's/\.[ch]$//')
		for file in "$folder"/*.c; do
			name=$(basename "$file" .c)
			known=
			for pattern in $names; do
				# shellcheck disable=SC2053
				[[ $name != $pattern ]] || known=1
			done
			[ "$known" ] || { echo "not in the code map: $file"; wrong=1; }
		done
		for pattern in $names; do
			compgen -G "$folder/$pattern.[ch]" >/dev/null || { echo "in the code map only: $folder/$pattern"; wrong=1; }
		done
	done
	[ "$wrong" = 0 ]
}

@test "links of the documents lead to files that there are" {
	for document in "${DOCUMENTS[@]}"; do
		while read -r link; do
			[ -e "$(dirname "$document")/${link%%#*}" ] || { echo "$document: $link"; return 1; }
		done < <(grep -oE '\]\([^)]*\)' "$document" | tr -d '()]' | grep -v '^[a-z]*:' | grep -v '^#' || true)
	done
}

@test "the recorded session is what the program does" {
	scripts/record README.md "A session" >"$T/session.svg"
	diff "$T/session.svg" docs/session.svg
}
