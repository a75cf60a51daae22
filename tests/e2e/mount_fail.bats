#!/usr/bin/env bats
# What breaks, and what is left then: full disks, sandboxes and daemons that die.

load ../lib/mount

PYTHON=$(command -v /usr/bin/python3 || command -v python3)

setup() {
	mount_setup
}

teardown() {
	exec 5>&- 6>&-
	teardown_mount
}

op() {
	"$PYTHON" "$BATS_TEST_DIRNAME/../lib/op.py" "$@"
}

sandbox_pid() {
	jq ".threads[] | select(.thread == \"demo\") | .pid" "$M/.ctl/status.json"
}

@test "a full disk in the sandbox is ENOSPC, and the old file stays" {
	local how

	[ "$(id -u)" = 0 ] || skip "needs root to make a small disk"
	only_the_old() {
		[ "$(sandbox 'cat outputs/f; ls -A outputs')" = $'old\nballast\nf' ]
	}
	mkdir "$T/data"
	mount -t tmpfs -o size=8m,mode=0755 threadfs-test "$T/data"
	MOUNTS+=("$T/data") # for teardown
	mount_start
	thread
	echo old >outputs/f
	head -c 6000000 /dev/zero >outputs/ballast
	for how in put put+fsync; do
		[ "$(op "$how" outputs/f 5000000)" = ENOSPC ]
		[ "$(op "$how" outputs/new 5000000)" = ENOSPC ]
		# the sandbox has the old one and nothing else, once what was begun is removed; what was
		# written is kept here
		wait_until only_the_old
		jq -e '[.pending[].path] | sort == ["outputs/f", "outputs/new"]' .ctl/status.json
		rm outputs/new
		jq -e '[.pending[].path] == ["outputs/f"]' .ctl/status.json
	done
	[ "$(stat -f -c %a outputs)" -lt 1000 ]
	rm outputs/ballast
	[ "$(op put outputs/f 5000000)" = OK ]
	[ "$(sandbox 'wc -c <outputs/f')" = 5000000 ]
	jq -e '.pending == []' .ctl/status.json
	cd /
	expect_errors
	mount_stop
	umount "$T/data"
}

@test "a full cache directory on the host is ENOSPC, too" {
	[ "$(id -u)" = 0 ] || skip "needs root to make a small disk"
	mkdir "$T/cache"
	mount -t tmpfs -o size=4m,mode=0700 threadfs-test "$T/cache"
	MOUNTS+=("$T/cache")
	mount_start
	thread
	echo old >outputs/f
	[ "$(op put outputs/f 9000000)" = ENOSPC ]
	[ "$(op put outputs/g 9000000)" = ENOSPC ]
	[ "$(op put outputs/f 1000000)" = OK ]
	[ "$(stat -c %s outputs/f)" = 1000000 ]
	cd /
	expect_errors
	mount_stop
	umount "$T/cache"
}

# moved BYTES: so many went up or down.
moved() {
	jq -e ".totals | .bytes_$1 >= $2" "$M/.ctl/status.json" >/dev/null
}

@test "killed during an upload of 200 MiB: all of it, or an error and the old file" {
	local rc=0 size=209715200

	[ -z "${SANITIZED:-}" ] || size=20971520
	mount_start
	thread
	echo old >outputs/f
	head -c "$size" /dev/urandom >"$T/big"
	spawn cp "$T/big" outputs/f
	wait_until moved up $((size / 10))
	kill_sandbox "$(sandbox_pid)"
	wait "$SPAWN_PID" || rc=$?
	echo "cp: $rc"
	if [ "$rc" = 0 ]; then
		cmp "$T/big" outputs/f
	else
		# what was staged is shown here, and sent again later
		[ "$(sandbox 'cat outputs/f')" = old ]
	fi
	# no half of it lies around
	[ "$(sandbox 'ls -A outputs')" = f ]
	cp "$T/big" outputs/f
	cmp "$T/big" outputs/f
	expect_errors
}

@test "killed during a download: all of it, or an error" {
	local rc=0 size=67108864 want

	[ -z "${SANITIZED:-}" ] || size=20971520
	mount_start -o memory=1M
	thread
	sandbox "head -c $size /dev/urandom >outputs/f"
	want=$(sandbox 'sha256sum <outputs/f')
	mkfifo "$T/go"
	spawn sh -c 'exec <outputs/f; head -c 1000000; read -r _ <"$0"; cat' "$T/go" >"$T/got"
	wait_until moved down 1000000
	kill_sandbox "$(sandbox_pid)"
	echo go >"$T/go"
	wait "$SPAWN_PID" || rc=$?
	echo "cat: $rc"
	[ "$rc" != 0 ] || [ "$(sha256sum <"$T/got")" = "$want" ]
	# what came is right as far as it goes
	cmp -n "$(stat -c %s "$T/got")" "$T/got" outputs/f
	[ "$(sha256sum <outputs/f)" = "$want" ]
	expect_errors
}

restarted() {
	ls outputs >/dev/null && jq -e ".restarts == $1" .ctl/status.json
}

@test "killed between operations: the next one works" {
	local i

	mount_start
	thread
	echo content >outputs/f
	for i in 1 2 3; do
		kill_sandbox "$(sandbox_pid)"
		case $i in
		1) [ "$(ls outputs)" = f ] ;;
		2) [ "$(cat outputs/f)" = content ] ;;
		3) echo new >outputs/g ;;
		esac
		# what was read a moment ago needs no sandbox
		wait_until restarted "$i"
	done
	[ "$(cat outputs/g)" = new ]
	[ "$(sandbox 'cat outputs/g')" = new ]
	expect_errors
}

@test "fsync counts for what others wrote to the file" {
	local INSIDE

	mount_start
	thread
	INSIDE=$DATA/users/default/threads/demo/user-data
	# in one process: an end of another one that has the file, too, is a close
	"$PYTHON" -c '
import os, sys
inside = sys.argv[1]
w = os.open("outputs/f", os.O_CREAT | os.O_WRONLY)
os.write(w, b"one")
r = os.open("outputs/f", os.O_RDONLY)
assert not os.path.exists(inside) or os.path.getsize(inside) == 0
os.fsync(r)
assert open(inside).read() == "one"' "$INSIDE/outputs/f"
}

@test "killed with files open: they go on" {
	mount_start
	thread
	echo content >outputs/f
	exec 5<outputs/f 6>outputs/g
	echo one >&6
	kill_sandbox "$(sandbox_pid)"
	echo two >&6
	[ "$(cat <&5)" = content ]
	"$PYTHON" -c 'import os; os.fsync(6)'
	exec 5<&- 6>&-
	[ "$(cat outputs/g)" = $'one\ntwo' ]
	expect_errors
}

gone() {
	[ "$(op stat "$1")" = ENOTCONN ]
}

@test "without auto_restart a dead sandbox is ENOTCONN" {
	mount_start -o auto_restart=false
	thread
	echo content >outputs/f
	kill_sandbox "$(sandbox_pid)"
	# what was read a moment ago needs no sandbox
	wait_until gone outputs/new
	[ "$(op mkdir outputs/d)" = ENOTCONN ]
	jq -e '.last_error.errno | type == "string"' .ctl/status.json
	# until somebody says that it is to be another one
	echo 1 >.ctl/destroy
	[ "$(cat outputs/f)" = content ]
	expect_errors
}

# Sandboxes outlive it; the next mount adopts them.
# guardian: the pid of the one beside the mount at $M.
guardian() {
	pgrep -f -- "^threadfs-guardian $M\$"
}

@test "a daemon that was killed: its mountpoint is free at once, and can be used again" {
	local pid guard

	mount_start
	thread
	echo one >outputs/f
	pid=$(sandbox_pid)
	guard=$(guardian)
	spawn sleep 60 # somebody whose working directory is in there
	cd /
	kill -KILL "$MOUNT_PID"
	wait "$MOUNT_PID" || true
	wait_until not_mounted "$M"
	wait_until pid_gone "$guard"
	[ -d "$M" ]
	[ -z "$(ls -A "$M")" ]
	kill -0 "$pid"
	mount_start
	[ "$(cat "$M/threads/demo/outputs/f")" = one ]
	[ "$(sandbox_pid)" = "$pid" ]
	guard=$(guardian)
	mount_stop
	pid_gone "$guard"
}

@test "a guardian that is late does not take the next mount away" {
	local guard resume

	mount_start
	guard=$(guardian)
	kill -STOP "$guard"
	kill -KILL "$MOUNT_PID"
	wait "$MOUNT_PID" || true
	(sleep 2 && kill -CONT "$guard") 3>&- &
	resume=$!
	MOUNT_PID=
	"$THREADFS" mount "${MOUNT_ARGS[@]}" 3>&- # which takes the dead one away itself
	wait "$resume"
	wait_until pid_gone "$guard"
	[ -f "$M/README" ]
	[ -d "$M/threads" ]
}

@test "the daemon and its guardian killed: unmount frees the mountpoint, and so does mount" {
	local how

	for how in unmount mount; do
		mount_start
		[ -d "$M/threads/demo" ] || thread
		cd "$M/threads/demo"
		echo "$how" >"outputs/$how"
		cd /
		kill -KILL "$(guardian)" "$MOUNT_PID"
		wait "$MOUNT_PID" || true
		is_mounted "$M"
		[ "$(op stat "$M/README")" = ENOTCONN ]
		run "$THREADFS" status "$M"
		[ "$status" = 1 ]
		[ "$how" != unmount ] || "$THREADFS" unmount "$M"
	done
	MOUNT_PID=
	"$THREADFS" mount "${MOUNT_ARGS[@]}" 3>&- # mount_start would take what is left for it
	[ "$(grep -c " $M " /proc/self/mountinfo)" = 1 ]
	[ "$(cat "$M"/threads/demo/outputs/*)" = $'mount\nunmount' ]
}

# moved_and_ended SIGNAL: the mount at p/a/m, also bound to $T/bound if anybody may do that,
# when the directory above it has another name, and what has its old one is another mount.
moved_and_ended() {
	local guard there=("$T/p/b/m")

	mkdir -p "$T/p" "$T/other/m" "$T/bound"
	MOUNT_NAME=p/a/m mount_start
	guard=$(guardian)
	MOUNTS+=("$T/p/b/m" "$T/bound" "$T/other/m")
	if [ "$(id -u)" = 0 ]; then
		mount -t tmpfs threadfs-test "$T/other/m"
		mount --bind "$M" "$T/bound"
		there+=("$T/bound")
	fi
	mv "$T/p/a" "$T/p/b"
	ln -s "$T/other" "$T/p/a"
	kill "-$1" "$MOUNT_PID"
	wait "$MOUNT_PID" || [ "$1" = KILL ]
	for M in "${there[@]}"; do
		wait_until not_mounted "$M"
	done
	wait_until pid_gone "$guard"
	[ -z "$(ls -A "$T/p/b/m")" ]
	[ "$(id -u)" != 0 ] || umount "$T/other/m"
}

@test "a mount whose place was renamed is taken away at the end" {
	moved_and_ended TERM
}

@test "likewise when the daemon is killed" {
	moved_and_ended KILL
	MOUNT_PID=
}

@test "a sandbox that cannot be started: the reason is told" {
	mount_start -o start_timeout=20
	thread
	echo content >outputs/f
	echo 1 >.ctl/destroy
	# its data is not a directory any more
	mv "$DATA/users/default/threads/demo/user-data" "$T/away"
	: >"$DATA/users/default/threads/demo/user-data"
	[[ "$(op ls outputs)" =~ ^(EIO|ENOTDIR|ENOTCONN|ETIMEDOUT)$ ]]
	jq -e '.last_error.message | length > 0' "$M/threads/demo/.ctl/status.json"
	rm "$DATA/users/default/threads/demo/user-data"
	mv "$T/away" "$DATA/users/default/threads/demo/user-data"
	wait_until grep -q content outputs/f
	expect_errors
}
