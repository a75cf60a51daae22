#!/usr/bin/env bats
# A sandbox that does not answer: whoever waits for it can leave at any time and is
# let go at the deadline, and nobody else notices.

load ../lib/mount

PYTHON=$(command -v /usr/bin/python3 || command -v python3)

setup() {
	mount_setup
	STOPPED=
	declare -gA HELD=()
	HELD_FDS=()
}

teardown() {
	[ -z "$STOPPED" ] || kill -CONT "$STOPPED" 2>/dev/null || true
	cd /
	let_go
	teardown_mount
}

op() {
	"$PYTHON" "$BATS_TEST_DIRNAME/../lib/op.py" "$@"
}

# hold NAME DIR: $HELD[NAME] is a path to DIR that needs no lookup. Those who look up
# one name together wait for each other in the kernel, where nobody can interrupt them.
hold() {
	local fd

	exec {fd}<"$2"
	HELD_FDS+=("$fd")
	HELD[$1]=/proc/self/fd/$fd
}

let_go() {
	local fd

	for fd in "${HELD_FDS[@]}"; do
		exec {fd}>&-
	done
	HELD_FDS=()
}

# A directory for each operation, so that none is in the way of another.
prepare() {
	local name

	for name in stat ls read put append mkdir rmdir rm mv ln chmod truncate utime exec readlink; do
		mkdir "outputs/$name"
	done
	for name in read append rm mv chmod truncate utime; do
		echo content >"outputs/$name/f"
	done
	mkdir outputs/rmdir/d outputs/ls/d
	ln -s f outputs/readlink/l
	for name in outputs/*; do
		hold "${name#outputs/}" "$name"
	done
	hold ctl .ctl
	sandbox true # after a command nothing that is cached counts
}

# each_op OPTIONS…: starts them all together; what each printed is then in $T/op.NAME.
each_op() {
	local pids=() pid

	one() {
		local name=$1

		shift
		op "$@" >"$T/op.$name" 2>/dev/null 3>&- &
		pids+=("$!")
	}
	rm -f "$T"/op.*
	one stat "$@" stat "${HELD[stat]}/new"
	one ls "$@" ls "${HELD[ls]}/d"
	one read "$@" read "${HELD[read]}/f"
	one put "$@" put "${HELD[put]}/new" 100000
	one append "$@" append "${HELD[append]}/f" 10
	one mkdir "$@" mkdir "${HELD[mkdir]}/new"
	one rmdir "$@" rmdir "${HELD[rmdir]}/d"
	one rm "$@" rm "${HELD[rm]}/f"
	one mv "$@" mv "${HELD[mv]}/f" "${HELD[mv]}/g"
	one ln "$@" ln "${HELD[ln]}/l" f
	one chmod "$@" chmod "${HELD[chmod]}/f" 600
	one truncate "$@" truncate "${HELD[truncate]}/f" 3
	one utime "$@" utime "${HELD[utime]}/f"
	one exec "$@" write "${HELD[ctl]}/exec" 'echo x >/dev/null'
	for pid in "${pids[@]}"; do
		wait_for $((30 * SLOW)) pid_gone "$pid" || return 1
	done
}

# Everybody printed WORD, an extended regular expression.
all_say() {
	local file bad=0

	for file in "$T"/op.*; do
		[[ "$(cat "$file")" =~ ^($1)$ ]] && continue
		echo "${file##*/}: $(cat "$file") instead of $1" >&2
		bad=1
	done
	return "$bad"
}


# It may be known for a moment longer that it did not answer.
works_again() {
	wait_until grep -qsx content outputs/read/f
	echo new >outputs/put/after
	[ "$(sandbox 'cat outputs/put/after')" = new ]
	mkdir outputs/mkdir/after
	rmdir outputs/mkdir/after
	ls -lR . >/dev/null
}

@test "every operation is let go at once by a signal" {
	mount_start -o timeout=60
	thread
	prepare
	stop_sandbox
	each_op -i 0.5
	all_say EINTR
	cont_sandbox
	works_again
	expect_errors
}

@test "signals that ask for no end do not hide one that does" {
	mount_start -o timeout=60
	thread
	prepare
	stop_sandbox
	each_op -n -i 0.5
	all_say EINTR
	cont_sandbox
	works_again
	expect_errors
}

# All of each_op wait, and have had signals for a while.
cont_later() {
	wait_until waiting 14 || true
	sleep 0.5
	kill -CONT "$STOPPED"
}

@test "signals that ask for no end fail nothing" {
	local helper

	mount_start -o timeout=60
	thread
	prepare
	stop_sandbox
	cont_later 3>&- &
	helper=$!
	each_op -n
	wait "$helper"
	STOPPED=
	all_say 'OK|ENOENT' # stat asks for what is not there
	[ "$(jq .totals.interrupted "$M/.ctl/status.json")" = 0 ] # Python tries some again by itself
	expect_errors
}

@test "a command whose output is waited for can be stopped, and goes on" {
	local pid

	mount_start
	thread
	"$THREADFS" exec . -- sh -c 'echo begun; until [ -e go ]; do sleep 0.1; done; echo over' \
		>"$T/said" 3>&- &
	pid=$!
	wait_until grep -qsx begun "$T/said"
	kill -STOP "$pid"
	wait_until is_stopped "$pid"
	kill -CONT "$pid"
	touch go
	wait "$pid"
	[ "$(cat "$T/said")" = $'begun\nover' ]
}

# All of its threads.
is_stopped() {
	! grep -h '^State:' "/proc/$1/task"/*/status | grep -qv T
}

# Those that begin, or take a second step, when others have timed out may be told at once.
@test "every operation ends with ETIMEDOUT at its deadline, or with ENOTCONN after others have" {
	mount_start -o timeout=3 # long enough for what comes before on a busy machine
	thread
	prepare
	stop_sandbox
	each_op
	all_say 'ETIMEDOUT|ENOTCONN'
	grep -qx ETIMEDOUT "$T"/op.*
	jq -e '.threads[0].last_error.errno | . == "ETIMEDOUT" or . == "ENOTCONN"' \
		"$M/.ctl/status.json"
	cont_sandbox
	works_again
	expect_errors
}

@test "Ctrl-C and kill -9 end real tools" {
	local signal tool

	mount_start -o timeout=60
	thread
	prepare
	echo x >"$T/x"
	stop_sandbox
	for signal in INT KILL; do
		for tool in "stat ${HELD[stat]}/new" "ls -l ${HELD[ls]}/d" "cat ${HELD[read]}/f" \
			"cp $T/x ${HELD[put]}/x" "mkdir ${HELD[mkdir]}/n" "rm -f ${HELD[rm]}/f" \
			"mv ${HELD[mv]}/f ${HELD[mv]}/g" "tee ${HELD[ctl]}/exec"; do
			# shellcheck disable=SC2086 # words
			run timeout -k 10 -s "$signal" 0.3 $tool <<<true
			echo "$signal $tool: $status"
			[[ $status = 124 || ($signal = KILL && $status = 137) ]]
		done
	done
	cont_sandbox
	works_again
	expect_errors
}

@test "an open file: read, write, fsync, close" {
	mount_start -o timeout=3
	thread
	sandbox 'truncate -s 300000000 outputs/large'
	echo old >outputs/f
	STOPPED=$(server_of "$(jq .pid .ctl/status.json)")
	"$PYTHON" - "$STOPPED" <<-'PY'
		import errno, os, signal, sys
		server = int(sys.argv[1])
		# The second when it is known that it does not answer: a read takes several steps.
		known = (errno.ETIMEDOUT, errno.ENOTCONN)
		def expect(name, call, *args):
		    try:
		        call(*args)
		    except OSError as e:
		        assert e.errno in known, (name, e)
		    else:
		        raise AssertionError(name + " went well")
		def read_all(fd):
		    while os.read(fd, 1 << 17):
		        pass
		reader = os.open("outputs/large", os.O_RDONLY)
		os.read(reader, 1000)
		writer = os.open("outputs/f", os.O_WRONLY | os.O_TRUNC)
		new = os.open("outputs/new", os.O_WRONLY | os.O_CREAT)
		os.kill(server, signal.SIGSTOP)
		try:
		    expect("read", read_all, reader)
		    assert os.write(writer, b"new") == 3
		    expect("fsync", os.fsync, writer)
		    expect("close", os.close, writer)
		    assert os.write(new, b"new") == 3
		    expect("close", os.close, new)
		    os.close(reader)
		finally:
		    os.kill(server, signal.SIGCONT)
	PY
	STOPPED=
	# what was written is not lost: it is there once somebody looks after it
	wait_until test -e outputs/f
	[[ "$(cat outputs/f)" =~ ^(old|new)$ ]]
	expect_errors
}

@test "input of a command: told at the deadline, and what comes later is behind it" {
	mount_start -o timeout=3
	thread
	STOPPED=$(server_of "$(jq .pid .ctl/status.json)")
	timeout $((60 * SLOW)) "$PYTHON" - "$STOPPED" <<-'PY'
		import errno, os, signal, sys
		server = int(sys.argv[1])
		run = os.open(".ctl/run", os.O_RDWR)
		os.write(run, b'{"script": "cat >outputs/got", "stdin": true}')
		number = os.read(run, 100).decode().strip()
		fd = os.open(f".ctl/jobs/{number}/stdin", os.O_WRONLY)
		os.kill(server, signal.SIGSTOP)
		try:
		    os.write(fd, b"one\n")
		except OSError as e:
		    assert e.errno == errno.ETIMEDOUT, e
		else:
		    raise AssertionError("nobody took that")
		finally:
		    os.kill(server, signal.SIGCONT)
		os.write(fd, b"two\n")
		os.close(fd)
	PY
	STOPPED=
	wait_until has_got $'one\ntwo'
	expect_errors
}

# has_got TEXT: that is what the command was given, and it is over.
has_got() {
	grep -qx "done" .ctl/jobs/*/status && [ "$(cat outputs/got)" = "$1" ]
}

@test "meanwhile everything else answers" {
	local stuck

	mount_start -o timeout=60
	thread other
	echo theirs >outputs/f
	thread
	prepare
	stop_sandbox
	spawn op ls "${HELD[ls]}/d"
	stuck=$SPAWN_PID
	for _ in {1..40}; do
		spawn op stat "${HELD[stat]}/n$RANDOM"
	done >/dev/null
	cd "$M"
	wait_until waiting 20
	timeout 30 ls -l threads >/dev/null
	timeout 30 df . >/dev/null
	timeout 30 cat .ctl/status .ctl/metrics .ctl/config README >/dev/null
	timeout 30 cat "${HELD[ctl]}/status" "${HELD[ctl]}/status.json" "${HELD[ctl]}/transfers" >/dev/null
	[ "$(timeout 30 cat threads/other/outputs/f)" = theirs ]
	timeout 30 sh -c 'echo new >threads/other/outputs/g; ls -lR threads/other >/dev/null'
	[ "$(timeout 30 "$THREADFS" exec threads/other -- cat outputs/g)" = new ]
	timeout 30 mkdir threads/third
	timeout 30 "$THREADFS" status "$M" >/dev/null
	kill -0 "$stuck"
	cont_sandbox
	wait_until pid_gone "$stuck"
	wait "$stuck"
	expect_errors
}

@test "unmount works while it hangs" {
	mount_start -o timeout=60
	thread
	prepare
	stop_sandbox
	cd /
	let_go
	timeout 20 "$THREADFS" unmount "$M"
	mount_ended
	STOPPED=
}

@test "SIGTERM unmounts while it hangs and somebody waits" {
	mount_start -o timeout=60
	thread
	prepare
	stop_sandbox
	op stat "${HELD[stat]}/new" >"$T/said" 3>&- &
	wait_until waiting 1
	cd /
	kill -TERM "$MOUNT_PID"
	mount_ended
	STOPPED=
	wait_until test -s "$T/said"
	[[ "$(cat "$T/said")" =~ ^(ENOTCONN|EINTR|ECONNABORTED)$ ]]
}

# is_held PID: the kernel holds a thread of it. So it does with who waits for a page, not with who waits for
# the answer to an open or a stat.
is_held() {
	grep -q '^State:.D' /proc/"$1"/task/*/status
}

# unmount_while_dripping [COMMAND…]: nobody reads any more, but the kernel waits for a page, which comes byte
# by byte; meanwhile COMMAND.
unmount_while_dripping() {
	[ "$DIALECT" != 1.0 ] || skip "nobody tells of changes there, so nothing is dropped"
	proxy_mount -o timeout=600 # it drips so slowly that it ends then
	cd "$W" || return 1
	mkdir -p outputs
	sandbox 'head -c 3000000 /dev/zero >outputs/big'
	wait_until watched
	proxy drip
	spawn cat outputs/big >/dev/null
	wait_until is_held "$SPAWN_PID"
	kill -KILL "$SPAWN_PID"
	wait "$SPAWN_PID" || true
	# what the kernel has of it is to be dropped: that waits for what is on its way
	echo x >>"$T/url.data/outputs/big"
	wait_until is_held "$MOUNT_PID"
	cd /
	spawn umount "$M"
	wait_until not_mounted "$M"
	"$@"
	wait_for $((20 * SLOW)) child_gone "$SPAWN_PID"
	wait "$SPAWN_PID"
	mount_ended
	grep -q 'unmounted, but the kernel waits for a sandbox' "$LOG"
}

@test "a file that drips is waited for as long as one that does not come" {
	proxy_mount -o timeout=3
	cd "$W"
	mkdir -p outputs
	sandbox 'head -c 3000000 /dev/zero >outputs/big'
	proxy drip
	[[ "$(timeout 60 "$PYTHON" "$BATS_TEST_DIRNAME/../lib/op.py" read outputs/big)" = ETIMEDOUT ]]
	proxy forward
	wait_until cmp -n 3000000 outputs/big /dev/zero
	expect_errors
}

@test "unmount works while the kernel waits for a page that drips" {
	unmount_while_dripping true
}

@test "likewise when the watch is lost, and the daemon has something to tell the kernel" {
	unmount_while_dripping sandboxd_stop
}

@test "destroy ends a sandbox that hangs; the next use starts another" {
	mount_start -o timeout=20
	thread
	prepare
	stop_sandbox
	timeout 20 sh -c 'echo 1 >"$0/destroy"' "${HELD[ctl]}"
	wait_until pid_gone "$STOPPED"
	STOPPED=
	works_again
	expect_errors
}

@test "a sandbox that makes and moves large directories all the time holds up no other, also on a busy machine" {
	local host other longest dirs=${FLOOD_DIRS:-10000}
	[ "$DIALECT" != 1.0 ] || skip "nobody tells of changes there"
	mount_start -o linger=600
	thread other
	other=$W
	ls "$other/outputs"
	thread
	sandbox "mkdir outputs/d && cd outputs/d && seq $dirs | xargs mkdir"
	wait_until watched
	[ "$(find outputs/d | wc -l)" = $((dirs + 1)) ]
	host=$(find "$DATA" -type d -path '*/demo/*' -name outputs)
	spawn "$PYTHON" - "$host" >"$T/moved" <<-'END'
		import os, sys, time
		os.chdir(sys.argv[1])
		until = time.monotonic() + 8
		for _ in range(4):
		    if os.fork() == 0:
		        while time.monotonic() < until:
		            pass
		        os._exit(0)
		n = 0
		while time.monotonic() < until:
		    os.mkdir(f"x{n}")
		    os.rename("d", "d2")
		    os.rename("d2", "d")
		    n += 1
	END
	longest=$("$PYTHON" - "$other/outputs" "$SPAWN_PID" 3>&- <<-'END'
		import os, sys, time
		longest = 0
		while os.path.exists(f"/proc/{sys.argv[2]}"):
		    began = time.monotonic()
		    os.listdir(sys.argv[1])
		    os.statvfs(sys.argv[1])
		    longest = max(longest, time.monotonic() - began)
		    time.sleep(0.01)
		print(int(longest * 1000))
	END
	)
	wait "$SPAWN_PID"
	echo "# the other's longest wait: $longest ms" >&3
	((longest < 5000 * SLOW)) # it was most of the time
	grep '^threadfs_watch_floods_total [1-9]' "$M/.ctl/metrics"
	wait_for $((90 * SLOW)) watched
	wait_until same_names outputs "$host"
}

same_names() {
	[ "$(ls "$1")" = "$(ls "$2")" ]
}

# brim: fills the pipe $T/err.
brim() {
	"$PYTHON" -c '
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_NONBLOCK)
for size in 4096, 1:
    try:
        while True:
            os.write(fd, b"." * (size - 1) + b"\n")
    except BlockingIOError:
        pass' "$T/err"
}

# drained: what is in it, without waiting for more.
drained() {
	"$PYTHON" -c '
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_NONBLOCK)
try:
    while True:
        sys.stdout.buffer.write(os.read(fd, 65536))
except BlockingIOError:
    pass' "$T/err"
}

# lose_sandbox: which is something for the log.
lose_sandbox() {
	kill_sandbox "$(jq '.threads[] | select(.thread == "demo") | .pid' "$M/.ctl/status.json")"
	wait_until timeout 20 touch "$M/threads/demo/outputs/f"
}

@test "nobody reads the log: neither the mount nor its end waits for that" {
	local fd

	mkfifo "$T/err"
	exec {fd}<>"$T/err"
	HELD_FDS+=("$fd")
	mount_prepare_
	"$THREADFS" mount -f "${MOUNT_ARGS[@]/,log=$LOG/}" >"$M.out" 2>"$T/err" </dev/null 3>&- &
	MOUNT_PID=$!
	MOUNT_PIDS+=("$MOUNT_PID")
	wait_until is_mounted "$M"
	mkdir "$M/threads/demo"
	echo content >"$M/threads/demo/outputs/f"
	brim
	lose_sandbox
	timeout 20 grep -q content "$M/threads/demo/outputs/f"
	drained >/dev/null
	# somebody reads again: it says so, and then what is the matter
	lose_sandbox
	drained >"$T/said"
	grep -Eq '^threadfs: warning: [1-9][0-9]* line\(s\) of this log could not be written$' "$T/said"
	[ "$(tail -n 1 "$T/said")" != "$(grep 'line(s)' "$T/said")" ]
	brim
	kill -TERM "$MOUNT_PID"
	mount_ended
}
