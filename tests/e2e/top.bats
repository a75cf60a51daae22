#!/usr/bin/env bats
# threadfs top: what is on the screen, keys, sizes, terminals that can do little, a mount that
# does not answer; and one look where there is no terminal.

load ../lib/mount
load ../lib/screen

setup() {
	mount_setup
	# shellcheck disable=SC2034 # for screen_start
	SCREEN_ENV=(TERM=screen-256color)
}

teardown() {
	screen_end
	[ -z "${STOPPED:-}" ] || kill -CONT "$STOPPED" 2>/dev/null || true
	exec 5<&-
	teardown_mount
}

state_is() {
	jq -e --arg t "$1" --arg s "$2" '.threads[] | select(.thread == $t).state == $s' \
		"$M/.ctl/status.json" >/dev/null
}

leases_are() {
	jq -e --arg t "$1" --argjson n "$2" '.threads[] | select(.thread == $t).leases == $n' \
		"$M/.ctl/status.json" >/dev/null
}

three_threads() {
	mount_start -o linger=600
	thread alpha
	thread beta
	thread gamma
	echo hello >outputs/x
	cat outputs/x
	cd /
}

@test "threads, leases and totals at 80x24, and more of it at 200x50" {
	three_threads
	exec 5<"$M/threads/gamma/outputs/x"
	screen_start 80 24 "$THREADFS" top "$M"
	screen_shows '^  THREAD +STATE +LEASES +OPEN +USED +WATCH +LAST ERROR'
	screen_shows '^> alpha +active +1 +0 '
	screen_shows '^  beta +active +1 +0 '
	screen_shows '^  gamma +active +2 +1 '
	screen_shows "^threadfs [0-9.]+[^ ]* +embedded: on .* up "
	screen_shows '^threads 3: 3 active   open files 1   waiting [0-9]+   commands 0'
	screen_shows '^requests [0-9]+/s  50% .*  99% .*   sandboxes [0-9]+/s  50% .*  99% '
	screen_shows '^from cache  lookup [0-9-]+%?  getattr .*  readdir .*  open .*  read '
	screen_shows '^down .*   up .*   failed [0-9]+ of [0-9]+'
	screen_shows '^cache .* of 4.0 GiB   memory .* of 64.0 MiB'
	screen_shows '^q quit  r release  d destroy  s sort \(name\)'
	[ "$(screen | wc -l)" = 24 ]
	screen_fits 80 24
	screen_size 200 50
	screen_shows '^  THREAD +STATE .* SANDBOX +LAST ERROR'
	screen_shows '^> alpha .* [0-9a-f]{16} '
	[ "$(screen | wc -l)" = 50 ]
	screen_fits 200 50
	screen_size 40 10
	screen_shows_no SANDBOX
	screen_shows '^> alpha '
	screen_shows '^q quit'
	screen_keys q
	screen_shows '^ended 0'
}

@test "keys choose, sort, release, help, and destroy after asking" {
	three_threads
	screen_start 80 24 "$THREADFS" top "$M"
	screen_shows '^> alpha '
	screen_keys Down
	screen_shows '^> beta '
	screen_keys End
	screen_shows '^> gamma '
	screen_keys Up k
	screen_shows '^> alpha '
	screen_keys h
	screen_shows 'any key goes back'
	screen_fits 80 24
	screen_keys x
	screen_shows '^> alpha '
	screen_keys r
	screen_shows '^alpha: released'
	wait_until state_is alpha warm
	screen_shows '^> alpha +warm +0 '
	# The one that is chosen stays so wherever it goes.
	screen_keys s
	screen_shows 'sort \(state\)'
	screen_shows '^> alpha +warm '
	[ "$(screen | grep -nE '^> alpha ' | cut -d: -f1)" -gt "$(screen | grep -nE '^  beta ' | cut -d: -f1)" ]
	screen_keys Home
	screen_shows '^> beta '
	screen_keys d
	screen_shows 'Stop the sandbox of beta\? Its files stay. y/n'
	screen_keys n
	screen_shows '^q quit'
	state_is beta active
	screen_keys d
	screen_shows 'Stop the sandbox of beta'
	screen_keys y
	screen_shows '^> beta +cold '
	state_is beta cold
	[ -d "$DATA/users/default/threads/beta/user-data" ]
	screen_keys q
	screen_shows '^ended 0'
}

@test "a transfer has its bar, rate and time" {
	mount_start -o linger=600,memory=1M
	thread
	head -c 64M /dev/zero >"$DATA/users/default/threads/demo/user-data/outputs/big"
	exec 5<outputs/big
	head -c 1M <&5 >/dev/null # and then it stands still: its window is full
	cd /
	screen_start 80 24 "$THREADFS" top "$M"
	screen_shows '^  TRANSFERS 1'
	screen_shows '^  down  demo: outputs/big +\[#*-+\] +[0-9]+%  +[0-9.]+ [KM]iB/s +([0-9:]+|-)$'
	screen_fits 80 24
	screen_size 200 50
	screen_shows '^  down  demo: outputs/big +\[[#-]{38}\] '
	screen_keys q
	screen_shows '^ended 0'
}

@test "more threads than rows are scrolled through" {
	local i
	for i in {10..49}; do
		mkdir -p "$T/data/users/default/threads/t$i/user-data"
	done
	mount_start -o linger=600,replicas=100
	for i in {10..49}; do # shown once they are used or listed with their state
		stat "$M/threads/t$i" >/dev/null
	done
	screen_start 80 24 "$THREADFS" top "$M"
	screen_shows '^> t10 +cold '
	screen_shows '^  1 to [0-9]+ of 40'
	screen_keys End
	screen_shows '^> t49 '
	screen_shows ' to 40 of 40'
	screen_fits 80 24
	screen_keys NPage PPage Home
	screen_shows '^> t10 '
}

@test "without colour, and on terminals that know none" {
	three_threads
	SCREEN_ENV=(TERM=screen-256color NO_COLOR=1)
	screen_start 80 24 "$THREADFS" top "$M"
	screen_shows '^> alpha '
	refute grep -qE $'\e\\[([0-9;]*;)?[34][0-8]m' <<<"$(screen -e)"
	screen_keys q
	screen_shows '^ended 0'
	screen_end
	SCREEN_ENV=(TERM=vt100)
	screen_start 80 24 "$THREADFS" top "$M"
	screen_shows '^> alpha '
	refute grep -qE $'\e\\[([0-9;]*;)?[34][0-8]m' <<<"$(screen -e)"
	screen_keys q
	screen_shows '^ended 0'
	screen_end
	# one that can move nowhere gets one look
	SCREEN_ENV=(TERM=dumb)
	screen_start 80 24 "$THREADFS" top "$M"
	screen_shows 'TERM=dumb.* has no full screen'
	screen_shows '^  alpha +active'
	screen_shows '^ended 0'
	screen_end
	# and with colour there is some
	# shellcheck disable=SC2034
	SCREEN_ENV=(TERM=screen-256color)
	screen_start 80 24 "$THREADFS" top "$M"
	screen_shows '^> alpha '
	grep -qE $'\e\\[([0-9;]*;)?36m' <<<"$(screen -e)"
}

@test "a mount that hangs is told of, and keys are heard; then it goes on" {
	three_threads
	screen_start 80 24 "$THREADFS" top "$M"
	screen_shows '^> alpha '
	STOPPED=$MOUNT_PID
	kill -STOP "$MOUNT_PID"
	screen_shows 'the mount is not answering, for [0-9]+ s'
	screen_shows '^> alpha '
	screen_keys Down
	screen_shows '^> beta '
	kill -CONT "$MOUNT_PID"
	STOPPED=
	screen_shows '^q quit'
	STOPPED=$MOUNT_PID
	kill -STOP "$MOUNT_PID"
	screen_shows 'is not answering'
	screen_keys q
	screen_shows '^ended 0'
	# nor do the others wait
	run timeout 60 "$THREADFS" top "$M" </dev/null
	[ "$status" = 1 ]
	[ "$output" = "threadfs: the mount at '$M' is not answering" ]
	run timeout 60 "$THREADFS" status "$M" </dev/null
	[ "$status" = 1 ]
	[ "$output" = "threadfs: the mount at '$M' is not answering" ]
	kill -CONT "$MOUNT_PID"
	STOPPED=
}

@test "an unmount ends it" {
	three_threads
	screen_start 80 24 "$THREADFS" top "$M"
	screen_shows '^> alpha '
	mount_stop
	screen_shows '^ended 1'
}

@test "piped it prints one look, whole lines, harmless" {
	three_threads
	# what a sandbox says reaches no terminal as it is
	echo x >"$M/threads/alpha/outputs/f"
	run "$THREADFS" top "$M" </dev/null
	[ "$status" = 0 ]
	grep -qE '^  alpha +active +1 ' <<<"$output"
	grep -qE '^  THREAD .*SANDBOX +LAST ERROR$' <<<"$output"
	refute grep -q 'q quit' <<<"$output"
	refute grep -q $'\e' <<<"$output"
	refute grep -qE ' $' <<<"$output"
	COLUMNS=60 run "$THREADFS" top "$M" </dev/null
	[ "$(wc -L <<<"$output")" -le 60 ]
}

@test "names with escape sequences in them stay words" {
	local name=$'x\e]0;owned\a\e[31m\e[2Jy\xc2\x9b31m\nz'

	mount_start -o linger=600,memory=1M
	thread
	head -c 64M /dev/zero >"$DATA/users/default/threads/demo/user-data/outputs/$name"
	exec 5<"outputs/$name"
	head -c 1M <&5 >/dev/null # and then it stands still
	cd /
	"$THREADFS" top "$M" </dev/null >"$T/look"
	grep -qF 'demo: outputs/x\x1b]0;owned\x07\x1b[31m' "$T/look"
	harmless "$T/look"
	screen_start 200 50 "$THREADFS" top "$M"
	screen_shows 'demo: outputs/x.x1b.0;owned.x07'
	screen_harmless
	screen_fits 200 50
	screen_keys q
	screen_shows '^ended 0'
}

@test "without a mountpoint it is the only mount; of several one has to be named" {
	run "$THREADFS" top "$T"
	[ "$status" = 1 ]
	[ "$output" = "threadfs: '$T' is not in a mount of threadfs" ]
	run "$THREADFS" top a b
	[ "$status" = 2 ]
	# Others' mounts are on this machine: in a namespace of its own there are none.
	mount_start
	MOUNT_NAME=b mount_start
	run "$THREADFS" top </dev/null
	[ "$status" = 1 ]
	grep -qE 'there are [0-9]+ mounts: say which one, threadfs top MOUNTPOINT' <<<"$output"
	grep -qxF "  $T/m" <<<"$output"
	grep -qxF "  $T/b" <<<"$output"
	MOUNT_NAME=b mount_stop
	M=$T/m MOUNT_PID=${MOUNT_PIDS[0]}
	run unshare -m sh -c '
		grep " - fuse.threadfs " /proc/self/mountinfo | while read -r _ _ _ _ dir _; do
			[ "$dir" = "$1" ] || umount -l "$dir"
		done
		exec "$2" top </dev/null' - "$M" "$THREADFS"
	[ "$status" = 0 ]
	grep -qF "embedded: on $M" <<<"$output"
	run unshare -m sh -c '
		grep " - fuse.threadfs " /proc/self/mountinfo | while read -r _ _ _ _ dir _; do
			umount -l "$dir"
		done
		exec "$1" top </dev/null' - "$THREADFS"
	[ "$status" = 1 ]
	[ "$output" = "threadfs: nothing is mounted" ]
}
