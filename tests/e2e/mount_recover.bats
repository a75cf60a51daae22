#!/usr/bin/env bats
# What was written and no sandbox has confirmed when the daemon is killed: it comes back.

load ../lib/mount

setup() {
	mount_setup
	mount_start
	thread
	mkdir "$T/saved"
}

teardown() {
	teardown_mount
}

# write_and_wait PATH MODE BYTES-FILE: opens it, writes, and stays; returns when it has written.
write_and_wait() {
	spawn "$PYTHON" -I -S -c '
import os, sys, time
f = open(sys.argv[1], sys.argv[2])
f.write(open(sys.argv[3], "rb").read())
f.flush()
open(sys.argv[4] + "/written.%d" % os.getpid(), "w").close()
time.sleep(600)' "$@" "$T"
	wait_until test -e "$T/written.$SPAWN_PID"
}

# noted N: so many records are there.
noted() {
	[ "$(find "$CACHE/pending" -type f | wc -l)" = "$1" ]
}

same_text() {
	[ "$(cat "$2")" = "$1" ]
}

has_size() {
	[ "$(stat -c %s "$2")" = "$1" ]
}

kill_daemon() {
	cd /
	kill -KILL "$MOUNT_PID"
	wait "$MOUNT_PID" || true
	mount_end_spawned_
	wait_until not_mounted "$M"
}

again() {
	mount_start "$@"
	W=$M/threads/demo
	cd "$W" || exit
}

server() {
	server_of "$(jq .pid .ctl/status.json)"
}

# A mount that waits five seconds for its sandbox, which is stopped: $server; and a file for it, $T/a.
stand_still() {
	mount_stop
	again -o timeout=5
	head -c 500000 /dev/urandom >"$T/a"
	ls outputs >/dev/null
	wait_until watch_settled # at its start everything is asked for again
	ls outputs >/dev/null
	server=$(server)
	kill -STOP "$server"
}

@test "new, changed, appended to, large and empty files outlive a killed daemon" {
	local old

	head -c 300000 /dev/urandom >"$T/new"
	head -c 20000000 /dev/urandom >"$T/large"
	printf 'tiny' >"$T/tiny"
	printf 'XY' >"$T/xy"
	: >"$T/none"
	echo one >outputs/log
	cp "$T/new" outputs/changed
	chmod 0640 outputs/changed
	write_and_wait outputs/new wb "$T/new"
	write_and_wait outputs/large wb "$T/large"
	write_and_wait outputs/tiny wb "$T/tiny"
	write_and_wait outputs/empty wb "$T/none"
	write_and_wait outputs/changed r+b "$T/xy"
	write_and_wait outputs/log ab "$T/tiny"
	wait_until noted 6
	wait_until jq -e '.pending | map(select(.record)) | length >= 5' .ctl/status.json
	sleep 1 # every acknowledged write older than a quarter of a second
	[ "$(stat -c %a "$CACHE/pending")" = 700 ]
	[ "$(stat -c %a "$CACHE"/pending/* | sort -u)" = 600 ]
	kill_daemon
	run "$THREADFS" recover --cache "$CACHE"
	[ "$status" = 0 ]
	[ "${#lines[@]}" = 7 ]
	[[ $output == *"demo/outputs/log (appended)"* ]]
	again
	wait_until noted 0
	old=$(head -c 2 "$T/xy"; tail -c +3 "$T/new" | sha256sum)
	[ "$(head -c 2 outputs/changed; tail -c +3 outputs/changed | sha256sum)" = "$old" ]
	[ "$(stat -c %a outputs/changed)" = 640 ]
	cmp outputs/new "$T/new"
	cmp outputs/large "$T/large"
	cmp outputs/tiny "$T/tiny"
	[ "$(cat outputs/log)" = $'one\ntiny' ]
	[ -f outputs/empty ] && [ ! -s outputs/empty ]
	[ "$(sandbox 'ls -A outputs | wc -l')" = 6 ]
	jq -e '.pending == []' .ctl/status.json
	jq -e '.recovery == [] and .totals.pending_files == 0' "$M/.ctl/status.json"
}

# recover_after_boot ARGUMENT…: as after another start of the machine.
recover_after_boot() {
	echo 00000000-0000-0000-0000-000000000000 >"$T/boot"
	# shellcheck disable=SC2016 # for sh
	run unshare -m sh -c 'mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"' "$T/boot" \
		"$THREADFS" recover --cache "$CACHE" "$@"
	[ "$status" = 0 ]
}

@test "recover tells what may be incomplete after a failure of the power" {
	[ "$(id -u)" = 0 ] || skip "needs root for another boot's number"
	printf 'content' >"$T/c"
	write_and_wait outputs/f wb "$T/c"
	wait_until noted 1
	sleep 1
	kill_daemon
	run "$THREADFS" recover --cache "$CACHE"
	[[ $output == *"  waits  7 B  "* ]]
	recover_after_boot
	[[ $output == *"  waits, may be incomplete  7 B  "* ]]
	recover_after_boot --save "$T/saved"
	[ "$output" = "saved demo/outputs/f, may be incomplete" ]
	cmp "$T/c" "$T/saved/demo/outputs/f"
	run "$THREADFS" recover --cache "$CACHE" --discard --all
	[ "$output" = "discarded demo/outputs/f" ]
	again # for what the killed one left running
	[ "$(ls outputs)" = '' ]
}

@test "killed while a large cp is under way" {
	head -c 60000000 /dev/urandom >"$T/big"
	write_and_wait outputs/big wb "$T/big" # and never closed, which would confirm it
	wait_until noted 1
	wait_until has_size 60000000 outputs/big
	sleep 1
	kill_daemon
	again
	wait_until noted 0
	cmp "$T/big" outputs/big
}

@test "killed while close waits for a sandbox that stands still" {
	local server

	head -c 500000 /dev/urandom >"$T/a"
	server=$(server)
	spawn "$PYTHON" -I -S -c '
import os, sys, time
f = open(sys.argv[1], "wb")
f.write(open(sys.argv[2], "rb").read())
f.flush()
while not os.path.exists(sys.argv[3]):
    time.sleep(0.05)
f.close()' outputs/a "$T/a" "$T/go"
	wait_until noted 1
	wait_until has_size 500000 outputs/a
	kill -STOP "$server"
	touch "$T/go"
	wait_until waiting 1
	sleep 1
	kill_daemon
	again
	kill -CONT "$server"
	wait_until noted 0
	cmp "$T/a" outputs/a
	expect_errors
}

@test "a target that was changed meanwhile: both are kept" {
	local beside

	echo old >outputs/f
	printf 'mine, and longer' >"$T/mine"
	printf 'mine!' >"$T/same"
	write_and_wait outputs/f wb "$T/mine"
	write_and_wait outputs/new wb "$T/mine"
	write_and_wait outputs/same wb "$T/same"
	wait_until noted 3
	sleep 1
	kill_daemon
	echo theirs >"$DATA/users/default/threads/demo/user-data/outputs/f"
	echo theirs >"$DATA/users/default/threads/demo/user-data/outputs/new"
	# the same as was written is no conflict: perhaps it was sent and nobody heard
	cp "$T/same" "$DATA/users/default/threads/demo/user-data/outputs/same"
	again
	wait_until noted 0
	[ "$(cat outputs/f outputs/new)" = $'theirs\ntheirs' ]
	beside=$(echo outputs/f.threadfs-conflict-*)
	cmp "$beside" "$T/mine"
	cmp outputs/new.threadfs-conflict-* "$T/mine"
	# and the log says of which thread and file, and what the other one is called
	grep -q "thread demo: .*: outputs/f was changed by others meanwhile: .* beside it as ${beside#outputs/}\$" "$LOG"
	grep -q "thread demo: .*: outputs/new was changed by others .* as new\.threadfs-conflict-[-0-9]*\$" "$LOG"
	refute grep -q "outputs/same was changed" "$LOG"
	cmp outputs/same "$T/same"
	[ "$(ls outputs | wc -l)" = 5 ]
}

# stop_when_uploading: in the background, from before the mount that uploads is there; the server ($server)
# stands still as soon as a file comes to it that has no name yet. The mount has just that to do, so this
# must not be late.
stop_when_uploading() {
	spawn "$PYTHON" -I -S -c '
import os, signal, stat, sys, time
pid = int(sys.argv[1])
fds = "/proc/%d/fd/" % pid
def comes(fd):
    try:
        st = os.stat(fds + fd)
    except OSError:
        return False
    return stat.S_ISREG(st.st_mode) and st.st_nlink == 0 and st.st_size > 1 << 20
end = time.monotonic() + 60
while not any(map(comes, os.listdir(fds))):
    if time.monotonic() > end:
        sys.exit("no file has come")
    time.sleep(0.002)
os.kill(pid, signal.SIGSTOP)' "$server"
}

@test "a target that is changed while what was written before is uploaded: both are kept" {
	local HOST=$DATA/users/default/threads/demo/user-data/outputs name server

	head -c 300000000 /dev/urandom >"$T/mine"
	for name in host save; do
		echo old >outputs/f
		[ $name = host ] || echo theirs >outputs/f.new
		write_and_wait outputs/f wb "$T/mine"
		wait_until noted 1
		wait_until has_size 300000000 outputs/f
		sleep 1
		server=$(server)
		kill_daemon
		stop_when_uploading
		again
		wait "$SPAWN_PID"
		if [ $name = host ]; then
			echo theirs >"$HOST/f"
		else
			# as editors save: a new file gets the name
			spawn mv outputs/f.new outputs/f
			wait_until waiting 1
		fi
		kill -CONT "$server"
		wait_for 60 noted 0
		wait_until same_text theirs outputs/f
		cmp outputs/f.threadfs-conflict-* "$T/mine"
		rm outputs/*
	done
}

# stop_when_longer FILE BYTES: as stop_when_uploading, when the file is longer than that.
stop_when_longer() {
	spawn "$PYTHON" -I -S -c '
import os, signal, sys, time
pid, file, size = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
end = time.monotonic() + 60
while os.stat(file).st_size <= size:
    if time.monotonic() > end:
        sys.exit("nothing has come")
    time.sleep(0.002)
os.kill(pid, signal.SIGSTOP)' "$server" "$@"
}

@test "a file that comes in place of one that is appended to gets nothing of that" {
	local HOST=$DATA/users/default/threads/demo/user-data/outputs server

	head -c 300000000 /dev/urandom >"$T/mine"
	echo old >outputs/log
	echo new >outputs/log.new
	server=$(server)
	spawn "$PYTHON" -I -S -c '
import os, sys, time
f = open(sys.argv[1], "ab")
open(sys.argv[3] + "/opened", "w").close()
while not os.path.exists(sys.argv[3] + "/go"):
    time.sleep(0.05)
f.write(open(sys.argv[2], "rb").read())
f.flush()
open(sys.argv[3] + "/written", "w").close()
time.sleep(600)' outputs/log "$T/mine" "$T"
	wait_until test -e "$T/opened"
	kill -STOP "$server" # or it would have the most of it at once
	touch "$T/go"
	wait_until test -e "$T/written"
	wait_until noted 1
	sleep 1
	kill_daemon
	stop_when_longer "$HOST/log" 4
	kill -CONT "$server"
	again
	wait "$SPAWN_PID"
	spawn mv outputs/log.new outputs/log
	wait_until waiting 1
	kill -CONT "$server"
	wait_until has_size 4 "$HOST/log"
	wait_for 60 noted 0
	same_text new "$HOST/log"
	cmp outputs/log.threadfs-conflict-* "$T/mine"
	[ "$(ls outputs | wc -l)" = 2 ]
}

@test "without a mount: list, save, discard; nothing is removed by looking" {
	local record

	printf 'content' >"$T/c"
	write_and_wait $'outputs/\e[31mred' wb "$T/c"
	write_and_wait outputs/b wb "$T/c"
	wait_until noted 2
	sleep 1
	# somebody has them: they are his
	run "$THREADFS" recover --cache "$CACHE" --discard --all
	[ "$status" = 1 ]
	noted 2
	kill_daemon
	run "$THREADFS" recover --cache "$CACHE" --list
	[ "$status" = 0 ]
	[[ $output != *$'\e'* ]]
	[[ $output == *'\x1b[31mred'* ]]
	"$THREADFS" recover --cache "$CACHE" --save "$T/saved"
	[ "$(cat "$T/saved/demo/outputs/b")" = content ]
	[ "$(cat "$T/saved/demo/outputs/"$'\e[31mred')" = content ]
	"$THREADFS" recover --cache "$CACHE" --save "$T/saved" # a second time beside it
	[ "$(cat "$T"/saved/demo/outputs/b.*)" = content ]
	noted 2
	record=$("$THREADFS" recover --cache "$CACHE" | awk '/outputs\/b$/ { print $1 }')
	"$THREADFS" recover --cache "$CACHE" --discard "$record"
	noted 1
	# damaged and foreign ones stay, and are told of
	echo noise >"$CACHE/pending/$(find "$CACHE/pending" -type f -printf %f)"
	echo noise >"$CACHE/pending/foreign"
	ln -s /etc/passwd "$CACHE/pending/00000000-0000-0000-0000-000000000000"
	run "$THREADFS" recover --cache "$CACHE"
	[ "$status" = 1 ]
	[[ $output == *"is left alone: it is damaged"* ]]
	[[ $output == *"is left alone: a symbolic link"* ]]
	again
	jq -e '.totals.refused_records == 3' "$M/.ctl/status.json"
	grep -q "is left alone" "$LOG"
	[ "$(find "$CACHE/pending" | wc -l)" = 4 ]
	cd /
	mount_stop
	rm -r "$CACHE/pending"
	ln -s "$T/home" "$CACHE/pending"
	run "$THREADFS" mount "${MOUNT_ARGS[@]}"
	[ "$status" = 1 ]
	[[ $output == *"$CACHE/pending"* ]]
	rm "$CACHE/pending"
}

@test "SIGTERM with a sandbox that stands still: bounded, and nothing is lost" {
	local server

	stand_still
	write_and_wait outputs/a wb "$T/a"
	wait_until noted 1
	cd /
	kill -TERM "$MOUNT_PID"
	wait_for $((60 * SLOW)) pid_gone "$MOUNT_PID"
	kill -CONT "$server" 2>/dev/null || true
	mount_end_spawned_
	noted 1
	expect_errors
	again
	wait_until noted 0
	cmp "$T/a" outputs/a
}

# slow_disk: mounts again, and what is synced takes as long as there is a file $SLOW_SYNC.
slow_disk() {
	local lib=${SLOW_SYNC_LIB:-$SANDBOXD_ROOT/build/tests/libslow_sync.so}

	[ -z "${SANITIZED:-}" ] && [ -e "$lib" ] || skip "needs a build without sanitizers"
	mount_stop
	export SLOW_SYNC=$T/slow
	touch "$SLOW_SYNC"
	export LD_PRELOAD=$lib
	again
	unset LD_PRELOAD
}

@test "SIGTERM while what is written is on its way to the disk: nothing is lost" {
	local f

	head -c 500000 /dev/urandom >"$T/a"
	slow_disk
	for f in a b c; do
		write_and_wait outputs/$f wb "$T/a"
	done
	wait_until test -e "$SLOW_SYNC.begun"
	cd /
	kill -TERM "$MOUNT_PID"
	wait_until not_mounted "$M"
	rm "$SLOW_SYNC"
	mount_ended
	mount_end_spawned_
	again
	wait_until noted 0
	for f in a b c; do
		cmp "$T/a" outputs/$f
	done
}

@test "threads are listed and made while content is on its way to a slow disk" {
	local f

	printf 'content' >"$T/c"
	slow_disk
	for f in a b c; do
		write_and_wait outputs/$f wb "$T/c"
	done
	wait_until test -e "$SLOW_SYNC.begun"
	sleep 1
	[ "$(timeout 10 ls "$M/threads")" = demo ]
	timeout 10 mkdir "$M/threads/other"
	rm "$SLOW_SYNC"
	mount_end_spawned_
	[ "$(cat outputs/a)" = content ]
}

@test "unmount says what of the mount stays in the cache directory" {
	local server

	stand_still
	run cp "$T/a" outputs/a
	[ "$status" != 0 ]
	noted 1
	cd /
	run "$THREADFS" unmount "$M"
	kill -CONT "$server" 2>/dev/null || true
	[ "$status" = 0 ]
	# before that it may say that it takes long
	[ "${lines[-1]}" = "threadfs: 1 file not confirmed by the sandbox: kept for the next mount; threadfs recover --cache '$CACHE' lists it" ]
	mount_ended
	noted 1
	[[ "$("$THREADFS" recover --cache "$CACHE")" == *demo/outputs/a* ]]
	# another user's mount with the same cache has nothing to do with it
	mount_start -o user=other
	run "$THREADFS" unmount "$M"
	[ "$status" = 0 ]
	said_nothing
	mount_ended
	again
	wait_until noted 0
	cmp "$T/a" outputs/a
	cd /
	run "$THREADFS" unmount "$M"
	[ "$status" = 0 ]
	said_nothing
	mount_ended
	expect_errors
}

@test "an append that found the cache directory full is not there, nor any part of it" {
	[ "$(id -u)" = 0 ] || skip "needs root to make a small disk"
	mount_stop
	mount -t tmpfs -o size=1m,mode=0700 threadfs-test "$CACHE"
	MOUNTS+=("$CACHE") # for teardown
	again
	echo old >outputs/f
	cp outputs/f "$T/want"
	spawn "$PYTHON" -I -S -c '
import errno, os, sys, time
to, want = (open(p, "ab", buffering=0) for p in sys.argv[1:3])
def put(b):
    want.write(b[:to.write(b)])
for _ in range(2):
    put(os.urandom(100_000))
    time.sleep(0.5) # both places of the record have their room
try:
    while True:
        put(os.urandom(100_000))
except OSError as e:
    assert e.errno == errno.ENOSPC, e
put(b"small")
want.close()
open(sys.argv[3], "w").close()
time.sleep(600)' outputs/f "$T/want" "$T/written"
	wait_until test -e "$T/written"
	[ "$(stat -c %s "$T/want")" -gt 200000 ]
	sleep 1
	noted 1
	kill_daemon
	mount -o remount,size=64m "$CACHE"
	again
	wait_until noted 0
	cmp outputs/f "$T/want"
	cd /
	mount_stop
	umount "$CACHE"
	expect_errors
}

@test "recover does not wait for a mount that hangs" {
	kill -STOP "$MOUNT_PID"
	run timeout $((60 * SLOW)) "$THREADFS" recover "$M"
	kill -CONT "$MOUNT_PID"
	[ "$status" = 1 ]
	[ "$output" = "threadfs: '$M': Connection timed out" ]
}

@test "an upload that the sandbox refused is tried again when asked" {
	mkdir outputs/d
	printf 'content' >"$T/c"
	write_and_wait outputs/d/f wb "$T/c"
	wait_until noted 1
	sleep 1
	kill_daemon
	rm -r "$DATA/users/default/threads/demo/user-data/outputs/d"
	again
	wait_until jq -e '.recovery[0].state == "refused" and .recovery[0].error == "ENOENT"' "$M/.ctl/status.json"
	[[ "$("$THREADFS" status "$M")" == *"demo/outputs/d/f  7 B  refused (ENOENT)"* ]]
	noted 1
	mkdir outputs/d
	"$THREADFS" recover "$M" --retry
	wait_until noted 0
	[ "$(cat outputs/d/f)" = content ]
	expect_errors
}

@test "an upload that failed is tried again by itself when the sandbox returns" {
	local server

	stand_still
	run "$PYTHON" -I -S -c '
import sys
f = open(sys.argv[1], "wb")
f.write(open(sys.argv[2], "rb").read())
f.close()' outputs/a "$T/a"
	[ "$status" != 0 ] # who closed it was told
	noted 1
	jq -e '.pending[0].path == "outputs/a" and .pending[0].error' .ctl/status.json
	kill -CONT "$server" 2>/dev/null || true
	wait_for $((120 * SLOW)) noted 0
	cmp "$T/a" outputs/a
	[ "$(sandbox 'wc -c <outputs/a')" = 500000 ]
	expect_errors
}

@test "what waits goes with its name: removed, or moved" {
	mkdir outputs/d outputs/e
	printf 'content' >"$T/c"
	write_and_wait outputs/d/f wb "$T/c"
	write_and_wait outputs/d/h wb "$T/c"
	write_and_wait outputs/e/g wb "$T/c"
	wait_until noted 3
	sleep 1
	kill_daemon
	rm -r "$DATA/users/default/threads/demo/user-data/outputs/"{d,e}
	again
	wait_until jq -e '[.recovery[] | select(.state == "refused")] | length == 3' "$M/.ctl/status.json"
	mkdir outputs/d outputs/e
	echo other >outputs/d/f
	rm outputs/d/f
	noted 2
	# also if the sandbox has never seen it
	"$PYTHON" -I -S -c '
import os
f = open("outputs/d/h", "xb")
os.unlink("outputs/d/h")'
	noted 1
	mv outputs/e outputs/moved
	jq -e '[.recovery[].path] == ["outputs/moved/g"]' "$M/.ctl/status.json"
	"$THREADFS" recover "$M" --retry
	wait_until noted 0
	[ "$(cat outputs/moved/g)" = content ]
	[ ! -e outputs/d/f ] && [ ! -e outputs/d/h ] && [ ! -e outputs/e ]
	expect_errors
}

@test "what a broken upload left in the sandbox goes when it is old" {
	local dir=$DATA/users/default/threads/demo/user-data/outputs
	local old=.threadfs-upload-01234567-89ab-cdef-0123-456789abcdef
	local young=.threadfs-upload-11234567-89ab-cdef-0123-456789abcdef

	touch -d "2 hours ago" "$dir/$old" "$dir/.threadfs-upload-mine"
	touch "$dir/$young"
	gone() {
		ls -A outputs >/dev/null && [ ! -e "$dir/$old" ]
	}
	wait_until gone
	[ -e "$dir/$young" ] && [ -e "$dir/.threadfs-upload-mine" ]
}

# What failed is tried again behind an operation that went well.
used_and_noted() {
	mkdir -p outputs/d && rmdir outputs/d && noted "$1"
}

@test "what failed does not go over what the sandbox has written since" {
	local host=$DATA/users/default/threads/demo/user-data/outputs

	echo old >outputs/f
	stand_still
	printf kept >"$T/k"
	run cp "$T/k" outputs/f
	[ "$status" != 0 ]
	wait_until noted 1
	printf agent >"$host/tmp"
	mv "$host/tmp" "$host/f"
	kill -CONT "$server"
	wait_until used_and_noted 0
	[ "$(cat "$host/f")" = agent ]
	[ "$(cat "$host"/f.threadfs-conflict-*)" = kept ]
	wait_until same_text agent outputs/f
	wait_until same_text kept outputs/f.threadfs-conflict-*
	grep -q 'f was changed by others meanwhile' "$LOG"
	expect_errors
}

@test "what is on its way to a sandbox that hangs is listed, and can be discarded by its mount" {
	local record server=
	local host=$DATA/users/default/threads/demo/user-data/outputs

	server=$(server)
	printf 'content' >"$T/c"
	write_and_wait outputs/f wb "$T/c"
	wait_until noted 1
	sleep 1
	kill_daemon
	kill -STOP "$server"
	mount_start -o timeout=60
	wait_until jq -e '.recovery[0].state == "uploading"' "$M/.ctl/status.json"
	record=$(find "$CACHE/pending" -type f -printf %f)
	grep -qxF "not in the sandbox yet: 1 file, 7 B, kept in $CACHE/pending" "$M/.ctl/status"
	grep -qxF "  demo/outputs/f  7 B  uploading  pending/$record" "$M/.ctl/status"
	run "$THREADFS" recover --cache "$CACHE" --discard "$record"
	[ "$status" = 1 ]
	[[ $output == *"(a mount has it: name its mountpoint)" ]]
	cd "${M%/*}"
	run "$THREADFS" recover "${M##*/}" --discard "${record:0:8}"
	[ "$status" = 0 ]
	[ "$output" = "discarded demo/outputs/f" ]
	wait_until noted 0
	kill -CONT "$server"
	wait_until test -d "$M/threads/demo/outputs"
	[ "$(stat -c %s "$host/f" 2>/dev/null || echo 0)" = 0 ]
}

# lose_to_the_sandbox: a close of outputs/f that fails, then the sandbox writes another f.
lose_to_the_sandbox() {
	local host=$DATA/users/default/threads/demo/user-data/outputs

	printf kept >"$T/k"
	run cp "$T/k" outputs/f
	[ "$status" != 0 ]
	wait_until noted 1
	printf agent >"$host/tmp"
	mv "$host/tmp" "$host/f"
	kill -CONT "$server"
}

both_are_there() {
	local host=$DATA/users/default/threads/demo/user-data/outputs

	[ "$(cat "$host/f")" = agent ] && [ "$(cat "$host"/f.threadfs-conflict-*)" = kept ]
}

@test "nor when somebody reads the file all the time" {
	echo old >outputs/f
	stand_still
	exec 8<outputs/f
	lose_to_the_sandbox
	wait_until used_and_noted 0
	both_are_there
	[ "$(cat <&8)" = agent ]
	exec 8<&-
	expect_errors
}

@test "nor when somebody who has it open for writing, and has not written, closes it" {
	echo old >outputs/f
	stand_still
	exec 8<>outputs/f
	lose_to_the_sandbox
	# who closes it may be told of the error, and nothing is sent again
	"$PYTHON" -I -S -c '
import errno, os
try:
    os.close(os.dup(8))
except OSError as e:
    assert e.errno in (errno.ETIMEDOUT, errno.ENOTCONN), e'
	exec 8<&-
	wait_until used_and_noted 0
	both_are_there
	expect_errors
}

@test "nor when its mode is changed, or somebody opens it for writing" {
	local i

	for i in 'chmod 600 outputs/f' 'touch outputs/f' 'exec 8<>outputs/f'; do
		rm -f outputs/f outputs/f.*
		echo old >outputs/f
		stand_still
		lose_to_the_sandbox
		eval "$i"
		sleep 2 # for what would have been sent
		same agent "$(cat "$DATA/users/default/threads/demo/user-data/outputs/f")"
		exec 8<&-
		"$THREADFS" recover --retry "$M" # what waits is not waited for
		wait_until noted 0
		both_are_there
		noted 0
	done
	expect_errors
}

@test "of what failed those are told who had it open, and not who comes later" {
	local host=$DATA/users/default/threads/demo/user-data/outputs

	echo old >outputs/f
	stand_still
	"$PYTHON" -I -S -c '
import errno, os, signal, sys
w = os.open("outputs/f", os.O_WRONLY)
early = os.open("outputs/f", os.O_RDWR)
os.write(w, b"new\n")
def told(fd):
    try:
        os.close(fd)
    except OSError as e:
        return e.errno in (errno.ETIMEDOUT, errno.ENOTCONN)
    return False
assert told(os.dup(w))
assert told(os.dup(early))
os.kill(int(sys.argv[1]), signal.SIGCONT)
while True:
    try:
        late = os.open("outputs/f", os.O_RDWR)
        break
    except OSError:
        pass
assert not told(late)
assert not told(w)' "$server"
	same new "$(cat "$host/f")"
	expect_errors
}

@test "nor when the mount ends" {
	echo old >outputs/f
	stand_still
	lose_to_the_sandbox
	mount_stop
	noted 0
	both_are_there
	expect_errors
}

@test "nor when the mount ends before it is known what the file was" {
	local host=$DATA/users/default/threads/demo/user-data/outputs

	mount_stop
	again -o timeout=5
	ls outputs >/dev/null
	wait_until watch_settled
	server=$(server)
	# what is uploaded first is not looked at
	"$PYTHON" -I -S -c '
import os, signal, sys
f = os.open("outputs/f", os.O_WRONLY | os.O_CREAT)
os.write(f, b"old\n")
os.close(os.dup(f))
os.kill(int(sys.argv[1]), signal.SIGSTOP)
os.pwrite(f, b"kept", 0)
try:
    os.close(f)
except OSError:
    sys.exit()
sys.exit("no error")' "$server"
	printf agent >"$host/tmp"
	mv "$host/tmp" "$host/f"
	kill -CONT "$server"
	mount_stop
	noted 0
	both_are_there
	expect_errors
}

# leave_large: a killed daemon has left 300 MB for outputs/f; $server is its sandbox's.
leave_large() {
	server=$(server)
	echo old >outputs/f
	head -c 300M /dev/zero | tr '\0' S >"$T/large"
	write_and_wait outputs/f wb "$T/large"
	wait_until noted 1
	sleep 1
	kill_daemon
}

# take_up_large: they are about to be uploaded, but $server stands still, so that what begins now does
# so at the same time.
take_up_large() {
	kill -STOP "$server"
	mount_start -o timeout=60
	wait_until jq -e '.recovery[0].state == "uploading"' "$M/.ctl/status.json"
}

@test "who reads a file while what a killed daemon left for it goes beside it is answered" {
	local host=$DATA/users/default/threads/demo/user-data/outputs server

	leave_large
	{ head -c $((300 * 1024 * 1024 - 1)) "$T/large"; printf X; } >"$host/tmp"
	mv "$host/tmp" "$host/f"
	take_up_large
	# fallocate: it is opened as by who writes
	spawn "$PYTHON" -I -S -c '
import ctypes, os, sys
f = os.open(sys.argv[1] + "/threads/demo/outputs/f", os.O_RDWR)
assert ctypes.CDLL(None).fallocate(f, 1, ctypes.c_long(0), ctypes.c_long(10)) == 0
assert os.pread(f, 10, 0) == b"S" * 10' "$M"
	sleep 0.5
	kill -CONT "$server"
	wait_for $((60 * SLOW)) noted 0
	wait_for $((20 * SLOW)) child_gone "$SPAWN_PID"
	wait "$SPAWN_PID"
	[ "$(tail -c 1 "$host/f")" = X ]
	[ "$(tail -c 1 "$host"/f.threadfs-conflict-*)" = S ]
	expect_errors
}

@test "a file is changed while what a killed daemon left for it is on its way: neither is lost" {
	local host=$DATA/users/default/threads/demo/user-data/outputs server

	leave_large
	take_up_large
	spawn "$PYTHON" -I -S -c '
import os, sys
f = os.open(sys.argv[1] + "/threads/demo/outputs/f", os.O_RDWR)
os.pwrite(f, b"P", 0)
os.close(f)' "$M"
	sleep 0.5
	kill -CONT "$server"
	wait "$SPAWN_PID"
	wait_for $((60 * SLOW)) noted 0
	[ "$(head -c 2 "$host/f")" = PS ]
	[ "$(stat -c %s "$host/f")" = 314572800 ]
	expect_errors
}
