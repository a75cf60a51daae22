#!/usr/bin/env bats
# A mount of a sandbox whose server is in hostile hands (tests/lib/hostile.py).
#
# Environment, for scripts/fuzz: FUZZ_SECONDS and FUZZ_SEED of the mutated answers.

load ../lib/mount

KEY=kN9-secret-of-the-user

setup() {
	mount_setup
}

teardown() {
	teardown_mount
}

# hostile_mount HOW [ARGS…] [-- MOUNT-OPTIONS…]: a mount of a sandbox through hostile.py.
hostile_mount() {
	local how=() url

	while [ $# -gt 0 ] && [ "$1" != -- ]; do
		how+=("$1")
		shift
	done
	[ $# -eq 0 ] || shift
	sandboxd_start --dialect "$DIALECT"
	spawn hostile "${how[@]}"
	wait_until test -s "$T/url"
	url=$(cat "$T/url")
	mount_start "$url" -o timeout=4 "$@"
	W=$M/threads/default
	cd "$W" || return 1
	: >"$T/now"
}

hostile() {
	HOSTILE_WHEN=$T/now exec "$PYTHON" -B "$SANDBOXD_ROOT/tests/lib/hostile.py" "$SOCK" "$@" >"$T/url" 2>"$T/hostile.out"
}

@test "a server that repeats the key and sends escape sequences" {
	printf '%s\n' "$KEY" >"$T/key"
	chmod 0600 "$T/key"
	expect_errors
	hostile_mount echo -- -o "api_key_file=$T/key"
	refute cat outputs/none
	refute cp "$T/key" outputs/new
	refute mkdir outputs/d
	refute timeout 20 "$THREADFS" exec . -- true 2>"$T/exec.err"
	cat .ctl/status >"$T/status"
	cat .ctl/status.json >"$T/status.json"
	cat "$M/.ctl/status" "$M/.ctl/config" "$M/.ctl/metrics" >"$T/all"
	"$THREADFS" status "$M" >"$T/shown"
	COLUMNS=1000 "$THREADFS" top "$M" </dev/null >"$T/top"
	grep -q 'owned' "$T/top"
	refute timeout 60 "$THREADFS" cp outputs/none "$T/key" "$W/outputs/" >"$T/cp.err" 2>&1
	# it was said, and without what it must not say
	grep -q 'Authorization: Bearer \*\*\*' "$T/status"
	grep -q 'owned' "$T/status"
	jq -e . "$T/status.json" >/dev/null
	set -- "$T/status" "$T/status.json" "$T/all" "$T/shown" "$T/top" "$T/cp.err" "$T/exec.err" \
		"$LOG" "$M.out"
	refute grep -l "$KEY" "$@"
	harmless "$@"
}

# Says on which port it listens, then a line for each who comes.
listen() {
	exec "$PYTHON" -Bc '
import socket
s = socket.create_server(("127.0.0.1", 0))
print(s.getsockname()[1], flush=True)
while True:
    s.accept()[0].close()
    print("came", flush=True)' >"$T/listen"
}

@test "redirections lead nowhere: a link-local address, a socket, a file" {
	local to

	expect_errors
	spawn listen
	wait_until test -s "$T/listen"
	for to in "http://127.0.0.1:$(cat "$T/listen")/" http://169.254.169.254/latest/meta-data/ \
		"file://$T/victim" unix:///run/docker.sock; do
		echo secret >"$T/victim"
		hostile_mount redirect "$to"
		refute cat outputs/x
		refute ls outputs
		refute grep -s secret outputs/x
		refute sh -c 'echo x >outputs/new'
		refute timeout 20 "$THREADFS" exec . -- true
		same "$(wc -l <"$T/listen")" 1
		mount_stop
		mount_end_spawned_
		rm "$T/url" "$T/now"
		sandboxd_stop
	done
}

@test "a directory that is in itself, without end: walks end" {
	local d

	expect_errors
	d=$(printf 'd%.0s' {1..100})
	hostile_mount nest
	# many in each, so that none is listed along with the one that it is in
	sandbox "mkdir -p outputs/$d/{1..40} outputs/$d/$d/{1..40}; echo x >outputs/$d/f"
	wait_until test -e "outputs/$d/$d/$d/$d/f"
	# 1: a loop, or what is no longer the directory that it was
	run timeout $((60 * SLOW)) find outputs -name f
	[ "$status" = 1 ]
	# who does not look for loops comes to where paths end
	timeout $((60 * SLOW)) "$PYTHON" -c "
import errno, os
os.chdir('outputs')
depth = 0
try:
    while depth < 1000:
        os.chdir('$d')
        depth += 1
except OSError as e:
    assert e.errno == errno.ENAMETOOLONG, e
assert 35 < depth < 42, depth"
	same "$(cat "outputs/$d/f")" x
}

@test "a directory of more names than are listed: who reads it is told that there are more" {
	expect_errors
	hostile_mount many 1001 -- -o timeout=$((240 * SLOW))
	sandbox 'mkdir outputs/many && cd outputs/many && seq 1000 | xargs touch'
	refute ls outputs/many >"$T/names" 2>"$T/why"
	same "$(wc -l <"$T/names")" 1000
	grep -q 'Argument list too long' "$T/why"
	grep -q '^last error .*outputs/many: .*too many' .ctl/status
	refute cp -r outputs/many "$T/copy"
	test -e outputs/many/7
	refute test -e outputs/many/no
}

@test "a range of which more was copied than was asked for is not believed" {
	expect_errors
	hostile_mount boast
	printf content >"$T/sb.data/outputs/f"
	: >"$T/sb.data/outputs/g"
	run -0 "$PYTHON" -c '
import errno, os
f, g = os.open("outputs/f", os.O_RDONLY), os.open("outputs/g", os.O_WRONLY)
try:
    print(os.copy_file_range(f, g, 3))
except OSError as e:
    print(errno.errorcode[e.errno])'
	same "$output" EIO
	same "$(stat -c %s outputs/g)" 0
}

@test "a gigabyte of zeros in a megabyte is neither unpacked nor taken for the file" {
	local before after

	expect_errors
	hostile_mount gzip
	printf 'content\n' >"$T/sb.data/outputs/f"
	before=$(awk '/VmRSS/ { print $2 }' "/proc/$MOUNT_PID/status")
	same "$(stat -c %s outputs/f)" 8 # what is asked of it is still answered
	refute timeout 60 cat outputs/f >"$T/got" 2>"$T/why"
	grep -q 'outputs/f: Input/output error' "$T/why"
	[ ! -s "$T/got" ]
	grep -q '^last error  *EBADMSG: .*unknown content encoding' .ctl/status
	after=$(awk '/VmRSS/ { print $2 }' "/proc/$MOUNT_PID/status")
	[ "$((after - before))" -lt $((64 * 1024)) ]
}

@test "answers with changed bytes: every call comes back, nothing leads out" {
	local seconds=${FUZZ_SECONDS:-6} seed=${FUZZ_SEED:-$((RANDOM * 32768 + RANDOM))}

	echo "seed $seed, $DIALECT"
	expect_errors
	hostile_mount mutate "$seed"
	timeout -k 5 $((seconds + 60 * SLOW)) "$PYTHON" -B "$SANDBOXD_ROOT/tests/lib/workload.py" "$W" \
		"$seconds" "$seed" >"$T/work.out" 2>&1 || { tail -5 "$T/work.out"; false; }
	cat "$T/work.out"
	kill -0 "$MOUNT_PID"
	grep -c mutated "$T/hostile.out"
	echo "# seed $seed, $DIALECT: $(cat "$T/work.out"), $(grep -c mutated "$T/hostile.out") answers changed" >&3
	cat "$W/.ctl/status" >"$T/status"
	LC_ALL=C refute grep -lP '[\x00-\x08\x0b-\x1f\x7f]' "$T/status" "$LOG"
	[ "$(wc -l <"$LOG")" -lt 2000 ]
	# It ends, and in good order: no other status than that of files that could not be uploaded.
	cd /
	timeout $((60 * SLOW)) "$THREADFS" unmount "$M" || not_mounted "$M"
	wait_for $((60 * SLOW)) pid_gone "$MOUNT_PID"
	wait "$MOUNT_PID" || [ $? = 1 ]
	not_mounted "$M"
	mount_log_clean
}
