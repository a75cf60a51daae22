#!/usr/bin/env bats
# Commands through the mount: .ctl/exec, .ctl/jobs, .ctl/events, .ctl/transfers and
# threadfs exec.

load ../lib/mount

bats_require_minimum_version 1.5.0

# The system's own: wrappers take longer than the tests.
PYTHON=$(command -v /usr/bin/python3 || command -v python3)

setup() {
	setup_mount
	thread
}

teardown() {
	exec 5>&- 6>&-
	[ -z "${STOPPED:-}" ] || kill -CONT "$STOPPED" 2>/dev/null || true
	teardown_mount
}

op() {
	"$PYTHON" "$BATS_TEST_DIRNAME/../lib/op.py" "$@"
}

# interruptible CMD…: in the background, where shells ignore SIGINT for their children.
interruptible() {
	spawn env --default-signal=INT "$@"
}

# A word that no other process on this machine has, for processes inside.
mark() {
	MARK=7$BASHPID$RANDOM
}

runs() {
	pgrep -f -- "$1" >/dev/null
}

runs_not() {
	! runs "$1"
}

# holds FILE STRING: FILE has exactly that content.
holds() {
	[ "$(cat "$1" 2>/dev/null)" = "$2" ]
}

ended() { # PID EXIT-STATUS
	local rc=0

	wait_for $((10 * SLOW)) pid_gone "$1" || return 1
	wait "$1" || rc=$?
	if [ "$rc" != "$2" ]; then
		echo "ended with $rc instead of $2" >&2
		return 1
	fi
}

# --- .ctl/exec ---

@test "exit codes, of the last command and of each" {
	[ "$(cat .ctl/exit_code)" = '' ]
	echo true >.ctl/exec
	[ "$(cat .ctl/exit_code)" = 0 ]
	echo '(exit 42)' >.ctl/exec
	[ "$(cat .ctl/exit_code)" = 42 ]
	echo 'kill -KILL $BASHPID' >.ctl/exec
	[ "$(cat .ctl/exit_code)" = 137 ]
	echo true >.ctl/exec
	[ "$(ls .ctl/jobs | sort -n | tr '\n' ' ')" = '1 2 3 4 ' ]
	[ "$(cat .ctl/jobs/{1,2,3,4}/exit_code | tr '\n' ' ')" = '0 42 137 0 ' ]
	[ "$(cat .ctl/jobs/2/cmd)" = '(exit 42)' ]
	[ "$(cat .ctl/jobs/2/status)" = 'done' ]
	[ "$(op stat .ctl/jobs/5)" = ENOENT ]
}

@test "several lines are one script" {
	cat >.ctl/exec <<-'CMD'
		total=0
		for i in 1 2 3; do
			total=$((total + i))
		done
		cat <<X
		total $total
		X
	CMD
	[ "$(cat .ctl/exec)" = 'total 6' ]
	[ "$(ls .ctl/jobs)" = 1 ]
}

@test "the session lasts: cd, export, functions; exit ends a command and not more" {
	[ "$(sandbox pwd)" = /mnt/user-data ]
	sandbox 'cd outputs; export COLOUR=red; f() { echo "f $1"; }'
	[ "$(sandbox 'pwd; echo $COLOUR; f 1')" = $'/mnt/user-data/outputs\nred\nf 1' ]
	echo 'echo before; exit 3; echo after' >.ctl/exec
	[ "$(cat .ctl/exec)" = before ]
	[ "$(cat .ctl/exit_code)" = 3 ]
	[ "$(sandbox 'echo again')" = again ]
}

@test "stdout and stderr together in exec, apart in jobs" {
	echo 'echo out; echo err >&2; echo out2' >.ctl/exec
	[ "$(sort .ctl/exec)" = $'err\nout\nout2' ]
	[ "$(cat .ctl/jobs/1/stdout)" = $'out\nout2' ]
	[ "$(cat .ctl/jobs/1/stderr)" = err ]
}

@test "a command that cannot be found, one that is no bash" {
	echo no-such-command-here >.ctl/exec
	[[ "$(cat .ctl/exec)" == *"no-such-command-here"*"not found"* ]]
	[ "$(cat .ctl/exit_code)" = 127 ]
	echo 'if then (' >.ctl/exec
	[[ "$(cat .ctl/exec)" == *"syntax error"* ]]
	[ "$(cat .ctl/exit_code)" != 0 ]
	[ "$(sandbox 'echo fine')" = fine ]
}

@test "50 MiB of output arrive as they are" {
	local want

	[ -z "${SANITIZED:-}" ] || skip "too slow with sanitizers"
	echo 'head -c 52428800 /dev/urandom | tee workspace/copy' >.ctl/exec
	want=$(sandbox 'sha256sum <workspace/copy')
	[ "$(sha256sum <.ctl/jobs/1/stdout)" = "$want" ]
	[ "$(wc -c <.ctl/jobs/1/stdout)" = 52428800 ]
}

@test "output is bytes: NUL, bad UTF-8, carriage returns, no newline at the end" {
	"$PYTHON" -c 'import sys; sys.stdout.buffer.write(bytes(range(256)) * 33 + b"\r\n\r\n\0")' >uploads/all
	echo 'cat uploads/all; cat uploads/all >&2' >.ctl/exec
	cmp .ctl/jobs/1/stdout uploads/all
	cmp .ctl/jobs/1/stderr uploads/all
	echo 'printf "no newline"' >.ctl/exec
	printf 'no newline' | cmp - .ctl/exec
	echo true >.ctl/exec
	[ "$(wc -c <.ctl/exec)" = 0 ]
}

@test "128 KiB are a command, one byte more is E2BIG" {
	"$PYTHON" - <<-'PY'
		import errno, os
		def run(size, end=b""):
		    fd = os.open(".ctl/exec", os.O_RDWR)
		    head, tail = b"x='", b"'; echo ${#x}"
		    script = head + b"a" * (size - len(head) - len(tail)) + tail + end
		    try:
		        assert os.write(fd, script) == len(script)
		        out = b""
		        while piece := os.read(fd, 65536):
		            out += piece
		        return int(out) + len(head) + len(tail)
		    finally:
		        os.close(fd)
		assert run(131072) == 131072
		assert run(131072, b"\n") == 131072
		for size in 131073, 200000, 1048576:
		    try:
		        run(size)
		    except OSError as e:
		        assert e.errno == errno.E2BIG, e
		    else:
		        raise AssertionError(size)
	PY
	[ "$(ls .ctl/jobs | wc -l)" = 2 ]
}

@test "nothing, and a NUL, are no command" {
	[ "$(op write .ctl/exec '')" = OK ]
	[ "$(op write .ctl/exec $'\n')" = EINVAL ]
	printf 'echo a\0b' >"$T/nul"
	refute cp "$T/nul" .ctl/exec 2>/dev/null
	[ "$(ls .ctl/jobs)" = '' ]
}

@test "Ctrl-C on a reader ends the reading, not the command; kill ends that" {
	mark
	echo "echo first; sleep $MARK" | dd of=.ctl/exec oflag=nonblock status=none
	interruptible cat .ctl/exec >"$T/read"
	wait_until holds "$T/read" first
	wait_until waiting 1
	kill -INT "$SPAWN_PID"
	ended "$SPAWN_PID" 130
	runs "sleep $MARK"
	[ "$(cat .ctl/jobs/1/status)" = running ]
	[ "$(cat .ctl/jobs/1/exit_code)" = '' ]
	echo TERM >.ctl/jobs/1/kill
	[[ "$(cat .ctl/exec)" == first* ]] # bash may say that it was terminated
	wait_until runs_not "sleep $MARK"
	[ "$(cat .ctl/jobs/1/status)" = 'done' ]
	[ "$(cat .ctl/jobs/1/exit_code)" = 143 ]
	[ "$(op write .ctl/jobs/1/kill TERM)" = ESRCH ]
	[ "$(sandbox 'echo fine')" = fine ]
}

@test "Ctrl-C on a writer that waits in close ends the wait, not the command" {
	mark
	echo "echo first; sleep $MARK; echo last" >"$T/cmd"
	interruptible cp "$T/cmd" .ctl/exec
	wait_until runs "sleep $MARK"
	wait_until waiting 1
	kill -INT "$SPAWN_PID"
	ended "$SPAWN_PID" 130
	[ "$(cat .ctl/jobs/1/status)" = running ]
	runs "sleep $MARK"
	kill "$(pgrep -f -- "^sleep $MARK\$")"
	cat .ctl/exec >/dev/null
	holds .ctl/jobs/1/stdout $'first\nlast'
	[ "$(cat .ctl/jobs/1/status)" = 'done' ]
}

@test "a killed writer goes at once, too" {
	mark
	echo "sleep $MARK" >"$T/cmd"
	spawn cp "$T/cmd" .ctl/exec
	wait_until runs "sleep $MARK"
	wait_until waiting 1
	kill -KILL "$SPAWN_PID"
	ended "$SPAWN_PID" 137
	runs "sleep $MARK"
	for signal in INT KILL; do
		echo "$signal" >.ctl/jobs/1/kill
	done 2>/dev/null || true
	wait_until runs_not "sleep $MARK"
	[ "$(sandbox 'echo fine')" = fine ]
}

@test "commands of several writers run one after the other, in order of arrival" {
	local i

	echo 'until [ -e workspace/go ]; do sleep 0.02; done; echo 1 >>outputs/order' |
		dd of=.ctl/exec oflag=nonblock status=none
	for i in 2 3 4; do
		spawn sh -c "echo 'echo $i >>outputs/order' >.ctl/exec"
		wait_until test -d ".ctl/jobs/$i"
	done
	[ "$(cat .ctl/jobs/3/status)" = waiting ]
	[ ! -e outputs/order ]
	touch workspace/go
	ended "$SPAWN_PID" 0
	holds outputs/order $'1\n2\n3\n4'
	# one that waits is killed without ever having run
	rm workspace/go
	echo 'until [ -e workspace/go ]; do sleep 0.02; done' | dd of=.ctl/exec oflag=nonblock status=none
	echo 'touch outputs/never' | dd of=.ctl/exec oflag=nonblock status=none
	echo 1 >.ctl/jobs/6/kill
	touch workspace/go
	sandbox true
	[ ! -e outputs/never ]
}

@test "a close with O_NONBLOCK does not wait" {
	mark
	echo "sleep $MARK" | timeout 10 dd of=.ctl/exec oflag=nonblock status=none
	wait_until runs "sleep $MARK"
	[ "$(cat .ctl/jobs/1/status)" = running ]
	echo KILL >.ctl/jobs/1/kill
	wait_until runs_not "sleep $MARK"
}

@test "the mount ends while a command runs and others wait for it" {
	local i

	for i in 1 2 3; do
		echo 'sleep 1000' | dd of=.ctl/exec oflag=nonblock status=none
	done
	[ "$(cat .ctl/jobs/3/status)" = waiting ]
	sleep 1.5 # nobody asks: by now the looks are seconds apart
	mount_stop
}

@test "a handle for both reads the output of what was written through it" {
	# somebody else's command in between does not matter
	"$PYTHON" - <<-'PY'
		import os, subprocess
		fd = os.open(".ctl/exec", os.O_RDWR)
		def output():
		    out = b""
		    while piece := os.read(fd, 4096):
		        out += piece
		    return out
		os.write(fd, b"echo mine; head -c 300000 /dev/zero")
		other = os.open(".ctl/exec", os.O_WRONLY)
		os.write(other, b"echo other")
		os.close(other)
		assert output() == b"mine\n" + bytes(300000)
		assert os.read(fd, 10) == b""
		os.write(fd, b"echo second")
		assert output() == b"second\n"
		os.close(fd)
		fd = os.open(".ctl/exec", os.O_RDONLY)
		assert output() == b"second\n"
		os.close(fd)
	PY
}

@test "poll, and O_NONBLOCK reads" {
	"$PYTHON" - <<-'PY'
		import os, select
		fd = os.open(".ctl/exec", os.O_RDWR | os.O_NONBLOCK)
		p = select.poll()
		p.register(fd, select.POLLIN)
		os.write(fd, b"until [ -e workspace/go ]; do sleep 0.02; done; echo news;"
		             b"until [ -e workspace/end ]; do sleep 0.02; done")
		assert p.poll(100) == [], "too early"
		try:
		    os.read(fd, 100)
		    raise AssertionError("read something")
		except BlockingIOError:
		    pass
		open("workspace/go", "w").close()
		assert p.poll(20000) == [(fd, select.POLLIN)]
		assert os.read(fd, 100) == b"news\n"
		assert p.poll(100) == [], "too early"
		open("workspace/end", "w").close()
		assert p.poll(20000) == [(fd, select.POLLIN)]
		assert os.read(fd, 100) == b""
		os.close(fd)
	PY
}

@test "echo cmd > exec; cat file is no race; the oldest jobs are forgotten" {
	local i

	for i in {1..105}; do
		echo "echo $i >outputs/x; echo $i" >.ctl/exec
		[ "$(cat outputs/x)" = "$i" ]
	done
	[ "$(ls .ctl/jobs | wc -l)" = 100 ]
	[ "$(cat .ctl/jobs/105/stdout)" = 105 ]
	[ "$(op stat .ctl/jobs/5)" = ENOENT ]
}

@test "a sandbox that dies takes its command along; the next one runs" {
	mark
	echo "echo first; sleep $MARK" >"$T/cmd"
	interruptible cp "$T/cmd" .ctl/exec
	wait_until runs "sleep $MARK"
	kill -KILL "$(jq .pid .ctl/status.json)"
	wait_for $((10 * SLOW)) pid_gone "$SPAWN_PID"
	refute wait "$SPAWN_PID"
	wait_until runs_not "sleep $MARK"
	[ "$(sandbox 'echo again')" = again ]
	wait_until holds .ctl/jobs/1/status lost
	[ "$(cat .ctl/jobs/1/exit_code)" = '' ]
	run op read .ctl/jobs/1/stdout
	[[ ${lines[-1]} =~ ^(ENOTCONN|EIO)$ ]]
	expect_errors
}

# --- events and transfers ---

event_came() {
	echo "echo x >'$1'" >.ctl/exec
	grep -q "\"path\":\"$1\"" "$T/events"
}

@test "events: a JSON line for each change in the sandbox" {
	if [ "$DIALECT" = 1.0 ]; then
		run op read .ctl/events
		[ "${lines[-1]}" = ENOTSUP ]
		return
	fi
	spawn cat .ctl/events >"$T/events"
	# until the watch is there
	wait_until event_came outputs/first
	sandbox 'mkdir outputs/dir; echo 12345 >outputs/second; rm outputs/first'
	wait_until grep -q '"remove".*outputs/first' "$T/events"
	wait_until grep -q outputs/second "$T/events"
	jq -es 'all(.[]; (.type | IN("create", "write", "remove", "rename", "chmod", "overflow"))
			and (.path | type == "string") and (.is_dir | type == "boolean"))
		and any(.[]; .path == "outputs/dir" and .is_dir)
		and any(.[]; .path == "outputs/second" and .size == 6)' "$T/events"
	kill "$SPAWN_PID"
	ended "$SPAWN_PID" 143
}

@test "transfers shows an upload in flight" {
	STOPPED=$(server_of "$(jq .pid .ctl/status.json)")
	head -c 20000000 /dev/urandom >"$T/big"
	# It is opened by who writes it: a copy of the descriptor here would wait at its close.
	spawn sh -c 'exec 5>uploads/big; : >"$1/opened"
		until [ -e "$1/go" ]; do sleep 0.02; done
		cat "$0" >&5' "$T/big" "$T"
	wait_until test -e "$T/opened"
	[ "$(cat .ctl/transfers)" = '' ]
	kill -STOP "$STOPPED"
	: >"$T/go"
	wait_until grep -qP '^up\tuploads/big\t\d+\t(\d+|-)\t\d+\t(\d+|-)$' .ctl/transfers
	jq -e '.transfers[0] | .direction == "up" and .path == "uploads/big"' .ctl/status.json
	kill -CONT "$STOPPED"
	ended "$SPAWN_PID" 0
	[ "$(cat .ctl/transfers)" = '' ]
	cmp "$T/big" uploads/big
}

# --- threadfs exec ---

tx() {
	"$THREADFS" exec "$@"
}

@test "threadfs exec: stdout, stderr and the exit code" {
	tx . -- sh -c 'echo out; echo err >&2; exit 7' >"$T/o" 2>"$T/e" && rc=0 || rc=$?
	[ "$rc" = 7 ]
	holds "$T/o" out
	holds "$T/e" err
	tx . -- true
	refute tx . -- false
	# as behind bash -c: nothing of how it is run
	run -127 tx . -- no-such-command-here
	[ "$output" = 'bash: line 1: no-such-command-here: command not found' ]
	run -126 tx . -- /etc
	[ "$output" = 'bash: line 1: /etc: Is a directory' ]
	[ "$(tx . -- bash -c 'echo /proc/self/fd/*')" = "$(tx . -- bash -c $'true\necho /proc/self/fd/*')" ]
	run tx . -- sh -c 'kill -TERM $$'
	[ "$status" = 143 ]
}

@test "threadfs exec: stdin" {
	local want

	head -c 10485760 /dev/urandom >"$T/in"
	want=$(sha256sum <"$T/in")
	[ "$(tx . -- sha256sum <"$T/in")" = "$want" ]
	truncate -s 1M "$T/in"
	cat "$T/in" | tx . -- cat | cmp - "$T/in"
	[ "$(tx . -- wc -c </dev/null)" = 0 ]
	# one that does not read it
	[ "$(yes | timeout $((20 * SLOW)) "$THREADFS" exec . -- echo ended)" = ended ]
}

@test "threadfs exec: stdin arrives once, also of one who is stopped meanwhile" {
	local pid

	head -c 3000000 /dev/urandom >"$T/in"
	"$THREADFS" exec . -- sha256sum <"$T/in" >"$T/sum" 3>&- &
	pid=$!
	while kill -STOP "$pid" 2>/dev/null; do
		sleep 0.02
		kill -CONT "$pid" || true # it may have ended just before
		sleep 0.1
	done
	wait "$pid"
	[ "$(cat "$T/sum")" = "$(sha256sum <"$T/in")" ]
}

@test "threadfs exec: arguments arrive as they are" {
	tx . -- printf '[%s]' 'a b' '$x' "it's" $'new\nline' '' '*' '`id`' '"' '\n' -n ü $'\xff' >"$T/o"
	printf '[%s]' 'a b' '$x' "it's" $'new\nline' '' '*' '`id`' '"' '\n' -n ü $'\xff' | cmp - "$T/o"
}

@test "threadfs exec: environment and directory" {
	mkdir 'outputs/a b'
	[ "$(tx -e A=1 -e 'B=$x y' . -- sh -c 'echo "$A|$B"')" = '1|$x y' ]
	[ "$(tx . -- pwd)" = /mnt/user-data ]
	[ "$(tx outputs -- pwd)" = /mnt/user-data/outputs ]
	[ "$(tx "$W/outputs/a b" -- pwd)" = '/mnt/user-data/outputs/a b' ]
	[ "$(tx -d 'a b' outputs -- pwd)" = '/mnt/user-data/outputs/a b' ]
	cd 'outputs/a b'
	[ "$(tx . -- pwd)" = '/mnt/user-data/outputs/a b' ]
	# not the shared session's
	sandbox 'cd /tmp; export C=3'
	[ "$(tx . -- sh -c 'pwd; echo "$C"')" = '/mnt/user-data/outputs/a b' ]
}

@test "threadfs exec: Ctrl-C reaches the command" {
	mark
	interruptible "$THREADFS" exec . -- sleep "$MARK"
	wait_until runs "^sleep $MARK"
	kill -INT "$SPAWN_PID"
	ended "$SPAWN_PID" 130
	wait_until runs_not "^sleep $MARK"
	# one that does not care: a second time
	mark
	interruptible "$THREADFS" exec . -- sh -c "trap '' INT; echo ready; sleep $MARK; :" >"$T/o"
	wait_until holds "$T/o" ready
	kill -INT "$SPAWN_PID"
	refute wait_for 1 pid_gone "$SPAWN_PID" 2>/dev/null
	kill -INT "$SPAWN_PID"
	ended "$SPAWN_PID" 137
	wait_until runs_not "sleep $MARK"
}

# piped CMD…: to a reader that leaves; PIPED: how it ended.
piped() {
	timeout $((20 * SLOW)) "$@" | :
	PIPED=${PIPESTATUS[0]}
	return "$PIPED"
}

@test "threadfs exec: a reader that leaves ends it" {
	local endless=(yes)

	mark
	# What it says until it hears that nobody listens is fetched: with sanitizers, for minutes.
	[ -z "${SANITIZED:-}" ] || endless=(sh -c 'while sleep 0.01; do echo "$0"; done')
	[ "$(timeout $((20 * SLOW)) "$THREADFS" exec . -- "${endless[@]}" "$MARK" | head -n 1)" = "$MARK" ]
	refute piped "$THREADFS" exec . -- "${endless[@]}" "$MARK"
	same "$PIPED" 141
	wait_until runs_not "$MARK\$"
}

@test "threadfs exec: a sandbox that dies: where the command's fate will be told" {
	local job words="the sandbox does not answer ([^)]*): what became of the command is not known"
	local rc=0

	mark
	spawn "$THREADFS" exec . -- sleep "$MARK" </dev/null >"$T/said" 2>&1
	wait_until pgrep -xf "sleep $MARK" # not threadfs exec itself
	kill_sandbox "$(jq .pid .ctl/status.json)"
	wait_for $((30 * SLOW)) pid_gone "$SPAWN_PID"
	wait "$SPAWN_PID" || rc=$?
	[ "$rc" = 255 ]
	job=$(sed -n "s|^threadfs: $words; \\.ctl/\\(jobs/[0-9]*\\)/status will tell\$|\\1|p" "$T/said")
	[ -n "$job" ]
	sandbox true # in another one
	wait_until holds ".ctl/$job/status" lost
	expect_errors
}

@test "threadfs exec: what is not in a thread, and other mistakes" {
	local path

	for path in "$T" "$M" "$M/threads" "$M/.ctl" "$W/no-such-dir" /nonexistent; do
		run tx "$path" -- true
		[ "$status" = 125 ]
		[ "${#lines[@]}" = 1 ]
		[[ $output == "threadfs: $path: "* ]]
	done
	run tx . true
	[ "$status" = 2 ]
	run tx -e '1A=b' . -- true
	[ "$status" = 2 ]
	run tx -d ../.. . -- true
	[ "$status" = 125 ]
	[ "${#lines[@]}" = 1 ]
}
