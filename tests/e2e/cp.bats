#!/usr/bin/env bats
# threadfs cp: both directions, the bar on a terminal, going on after an interruption,
# checksums that differ.

load ../lib/mount
load ../lib/screen

setup() {
	setup_mount -o linger=600
	thread
	# shellcheck disable=SC2034 # for screen_start
	SCREEN_ENV=(TERM=screen-256color)
	INSIDE=$DATA/users/default/threads/demo/user-data
}

teardown() {
	screen_end
	teardown_mount
}

sum_of() {
	sha256sum <"$1" | cut -d' ' -f1
}

no_parts() {
	[ -z "$(find "$T/there" "$T/back" "$INSIDE" -name '.*.part*' 2>/dev/null)" ]
}

@test "files go in and come back, one line each where there is no terminal" {
	local sum
	head -c 3000000 /dev/urandom >"$T/a"
	: >"$T/empty"
	chmod 640 "$T/a"
	sum=$(sum_of "$T/a")
	run "$THREADFS" cp "$T/a" "$T/empty" uploads/
	echo "$output"
	[ "$status" = 0 ]
	[ "${lines[0]}" = "$T/a -> uploads//a: 2.9 MiB, sha256 $sum" ]
	[ "${#lines[@]}" = 2 ]
	cmp "$T/a" "$INSIDE/uploads/a"
	[ "$(stat -c %a uploads/a)" = 640 ]
	mkdir "$T/back"
	"$THREADFS" cp uploads/a "$T/back"
	cmp "$T/a" "$T/back/a"
	# what is there already is only compared
	run "$THREADFS" cp uploads/a "$T/back"
	[ "$status" = 0 ]
	grep -q 'was there' <<<"$output"
	# but replaced if it is not the same
	printf X | dd of="$T/back/a" conv=notrunc status=none
	touch -r uploads/a "$T/back/a"
	"$THREADFS" cp uploads/a "$T/back"
	cmp "$T/a" "$T/back/a"
	no_parts
}

@test "trees with -r, and errors that say what is wrong" {
	mkdir -p "$T/tree/d/e"
	echo one >"$T/tree/d/a"
	echo two >"$T/tree/d/e/b"
	ln -s d/a "$T/tree/l"
	run "$THREADFS" cp "$T/tree" uploads
	[ "$status" = 1 ]
	[ "$output" = "threadfs: '$T/tree' is a directory: with -r it is copied" ]
	"$THREADFS" cp -r "$T/tree" uploads
	diff -r "$T/tree" "$INSIDE/uploads/tree"
	[ "$(readlink uploads/tree/l)" = d/a ]
	mkdir "$T/back"
	"$THREADFS" cp -r uploads/tree/ "$T/back/"
	diff -r "$T/tree" "$T/back/tree"
	run "$THREADFS" cp "$T/none" uploads
	[ "$status" = 1 ]
	[ "$output" = "threadfs: '$T/none': No such file or directory" ]
	run "$THREADFS" cp "$T/tree/d/a" "$T/tree/d/a"
	[ "$status" = 1 ]
	run "$THREADFS" cp a
	[ "$status" = 2 ]
	# the name that was given, not that of the file which becomes it
	run "$THREADFS" cp "$T/tree/d/a" "$T/none/a"
	[ "$status" = 1 ]
	[ "$output" = "threadfs: '$T/none/a': No such file or directory" ]
	# the rest is copied all the same
	run "$THREADFS" cp "$T/none" "$T/tree/d/a" uploads
	[ "$status" = 1 ]
	[ "$(cat uploads/a)" = one ]
}

@test "a link that was copied before is not followed" {
	mkdir -p workspace/app "$T/secret"
	ln -s ../secret workspace/app/l
	"$THREADFS" cp -r workspace/app "$T"
	[ "$(readlink "$T/app/l")" = ../secret ]
	rm workspace/app/l
	mkdir workspace/app/l
	echo evil >workspace/app/l/keys
	echo good >workspace/app/z
	run "$THREADFS" cp -r workspace/app "$T"
	[ "$status" = 1 ]
	grep -qFx "threadfs: 'workspace/app/l': Not a directory" <<<"$output"
	[ -z "$(ls -A "$T/secret")" ]
	# the rest is copied all the same
	[ "$(cat "$T/app/z")" = good ]
	# nor the last part of where it goes
	mv workspace/app/l workspace/l
	ln -s secret "$T/l"
	run "$THREADFS" cp -r workspace/l "$T"
	[ "$status" = 1 ]
	[ -z "$(ls -A "$T/secret")" ]
}

@test "names with escape sequences in them stay words" {
	local name=$'x\e]0;owned\a\e[31m\e[2Jy\xc2\x9b31m\nz'

	mkdir "$T/back"
	head -c 1M /dev/zero >"$T/$name"
	"$THREADFS" cp "$T/$name" uploads/ >"$T/out" 2>&1
	grep -qF 'x\x1b]0;owned\x07\x1b[31m' "$T/out"
	[ "$(wc -l <"$T/out")" = 1 ]
	cmp "$T/$name" "$INSIDE/uploads/$name"
	refute "$THREADFS" cp "uploads/$name/none" "uploads/$name-none" "$T/back" >"$T/errors" 2>&1
	grep -q owned "$T/errors"
	[ "$(wc -l <"$T/errors")" = 2 ]
	harmless "$T/out" "$T/errors"
	screen_start 200 50 "$THREADFS" cp -r "$W/uploads" "$T/back/"
	screen_shows 'owned.*100%  verified'
	screen_shows '^ended 0'
	screen_harmless
	cmp "$T/$name" "$T/back/uploads/$name"
}

@test "checksums that differ are an error, and nothing is left" {
	mkdir -p "$T/back"
	head -c 20000000 /dev/zero >outputs/b
	# a part of the right name with other bytes in it is taken up, and found out
	part=$(cd "$T/back" && "$PYTHON" - "$W/outputs/b" <<-'END'
		import hashlib, os, sys
		st = os.stat(sys.argv[1])
		key = "%d:%d.%09d" % (st.st_size, st.st_mtime_ns // 10**9, st.st_mtime_ns % 10**9)
		print(".b.%s.part" % hashlib.sha256(key.encode()).hexdigest()[:8])
	END
	)
	head -c 1000000 /dev/urandom >"$T/back/$part"
	run "$THREADFS" cp outputs/b "$T/back/b"
	echo "$output"
	[ "$status" = 1 ]
	grep -q "checksums differ" <<<"$output"
	[ ! -e "$T/back/b" ]
	no_parts
	"$THREADFS" cp outputs/b "$T/back/b"
	cmp outputs/b "$T/back/b"
}

part_grows() {
	[ "$(find "$T/back" -name '.big.*.part' -size +2M | wc -l)" = 1 ]
}

# As in /tmp: the name of what becomes the copy can be guessed from the source's size and time.
@test "what another has laid where the copy is made is not written to" {
	local part kind

	[ "$(id -u)" = 0 ] || skip "needs root to make another's file"
	mkdir -m 1777 "$T/back"
	echo content >"$INSIDE/outputs/f"
	wait_until test -s outputs/f
	part=$T/back/.f.$(printf %s "$(stat -c %s:%.9Y outputs/f)" | sha256sum | cut -c1-8).part
	echo mine >"$T/mine"
	for kind in another hardlink pipe link; do
		case $kind in
		another) install -m 0666 -o 12345 /dev/null "$part" ;;
		hardlink) ln "$T/mine" "$part" ;;
		pipe) mkfifo "$part" ;;
		link) ln -s "$T/mine" "$part" ;;
		esac
		run timeout 20 "$THREADFS" cp outputs/f "$T/back"
		echo "$kind: $output"
		[ "$status" = 1 ]
		[ "${#lines[@]}" = 1 ]
		[[ $kind != another && $kind != hardlink ]] ||
			[ "$output" = "threadfs: '$part': it is there, and not a file of yours alone" ]
		[ ! -e "$T/back/f" ]
		[ ! -s "$part" ] || [ "$(cat "$part")" = mine ]
		rm "$part"
	done
	same "$(cat "$T/mine")" mine
	# what we left there ourselves is
	printf con >"$part"
	"$THREADFS" cp outputs/f "$T/back"
	same "$(cat "$T/back/f")" content
}

@test "an interrupted download goes on where it was" {
	local part size
	mkdir "$T/back"
	truncate -s 1G "$INSIDE/outputs/big"
	wait_until test -e outputs/big
	spawn env LC_ALL=C "$THREADFS" cp outputs/big "$T/back/" 2>"$T/err"
	wait_until part_grows
	kill -INT "$SPAWN_PID"
	rc=0
	wait "$SPAWN_PID" || rc=$?
	cat "$T/err"
	[ "$rc" = 130 ]
	grep -q 'interrupted: what is there is kept; the same command goes on' "$T/err"
	part=$(echo "$T"/back/.big.*.part)
	size=$(stat -c %s "$part")
	[ "$size" -gt 0 ]
	[ ! -e "$T/back/big" ]
	# what is there is not read again: what is asked of the sandbox is less than all
	before=$(awk '$1 == "threadfs_read_bytes_total" { print $2 }' "$M/.ctl/metrics")
	"$THREADFS" cp outputs/big "$T/back/"
	after=$(awk '$1 == "threadfs_read_bytes_total" { print $2 }' "$M/.ctl/metrics")
	[ $((after - before)) -le $((1073741824 - size + 4194304)) ]
	cmp "$INSIDE/outputs/big" "$T/back/big"
	no_parts
}

piece_is_there() {
	[ -n "$(find "$INSIDE/uploads" -name p00000000)" ]
}

@test "an interrupted upload keeps the pieces that arrived" {
	local before after
	truncate -s 300M "$T/big"
	printf end >>"$T/big"
	spawn "$THREADFS" cp "$T/big" uploads/ 2>"$T/err"
	wait_until piece_is_there
	kill -INT "$SPAWN_PID"
	rc=0
	wait "$SPAWN_PID" || rc=$?
	cat "$T/err"
	[ "$rc" = 130 ]
	[ ! -e "$INSIDE/uploads/big" ]
	before=$(awk '$1 == "threadfs_written_bytes_total" { print $2 }' "$M/.ctl/metrics")
	"$THREADFS" cp "$T/big" uploads/
	after=$(awk '$1 == "threadfs_written_bytes_total" { print $2 }' "$M/.ctl/metrics")
	[ $((after - before)) -le $((300 * 1048576 + 3 - 64 * 1048576)) ]
	cmp "$T/big" "$INSIDE/uploads/big"
	no_parts
}

@test "on a terminal there is a bar, at 80x24 and at 200x50" {
	mkdir "$T/back"
	truncate -s 3G "$INSIDE/outputs/big"
	wait_until test -e outputs/big
	screen_start 80 24 "$THREADFS" cp "$W/outputs/big" "$T/back/"
	screen_shows 'outputs/big|…' || true
	screen_shows '\[#*-*\] +[0-9]+%  +[0-9.]+ [KMG]?i?B/s +([0-9:]+|-)'
	screen_fits 80 24
	screen_keys C-c
	screen_shows 'interrupted: what is there is kept'
	screen_shows '^ended 130'
	[ "$(screen | grep -c '\[#*-*\]')" -le 1 ]
	screen_end
	truncate -s 5M "$INSIDE/outputs/small"
	wait_until test -e outputs/small
	screen_start 200 50 "$THREADFS" cp "$W/outputs/small" "$T/back/"
	screen_shows "outputs/small +\[#{18}\] 100%  verified"
	screen_shows '^ended 0'
	screen_fits 200 50
	[ "$(screen | grep -c '\[#')" = 1 ]
}
