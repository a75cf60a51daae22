#!/usr/bin/env bats
# Under stress: a clear error, bounded memory, and other clients are served on.

load ../lib/sandboxd

setup() {
	sandboxd_setup
	MIXLOAD=${MIXLOAD:-$SANDBOXD_ROOT/build/tests/mixload}
}
teardown() {
	[ -z "${umount_later:-}" ] || ! mountpoint -q "$umount_later" || umount -l "$umount_later"
	sandboxd_teardown
}

# The pids of a sandbox's own processes, supervisor first.
tree() {
	local pid=$1 child
	echo "$pid"
	for child in $(ps -o pid= --ppid "$pid"); do tree "$child"; done
}

# Sum of a field of /proc/PID/status over the supervisor, bwrap and the server.
sum_kib() {
	local pid total=0 kib
	for pid in $(tree "$SANDBOXD_PID"); do
		kib=$(awk -v f="$1:" '$1 == f { print $2 }' "/proc/$pid/status" 2>/dev/null)
		total=$((total + ${kib:-0}))
	done
	echo "$total"
}

# Sanitizers multiply memory, so bounds are checked in plain builds only.
at_most_mib() {
	[ -n "${SANITIZED:-}" ] || [ "$1" -le $(($2 * 1024)) ] || {
		echo "$1 KiB is more than $2 MiB" >&2
		return 1
	}
}

# Waits for the background jobs that are not the server.
wait_clients() {
	local pid
	for pid in $(jobs -p); do
		[ "$pid" = "$SANDBOXD_PID" ] || wait "$pid" || true
	done
}

server_fds() {
	local pid
	pid=$(tree "$SANDBOXD_PID" | tail -1)
	find "/proc/$pid/fd" -mindepth 1 | wc -l
}

@test "2,000 idle connections: others are answered" {
	sandboxd_start
	"$MIXLOAD" idle --socket "$SOCK" --connections 2000 --seconds 3
	at_most_mib "$(sum_kib VmHWM)" 64
	sandboxd_stop
}

@test "2,000 clients that drip headers, and bodies: others are answered" {
	sandboxd_start
	"$MIXLOAD" loris --socket "$SOCK" --connections 2000 --seconds 3
	"$MIXLOAD" loris --body --socket "$SOCK" --connections 2000 --seconds 3
	at_most_mib "$(sum_kib VmHWM)" 96
	sandboxd_stop
}

@test "clients that do not read their download: others are answered, memory stays" {
	sandboxd_start
	"$MIXLOAD" stall --socket "$SOCK" --connections 200 --seconds 3
	at_most_mib "$(sum_kib VmHWM)" 64
	sandboxd_stop
}

@test "more connections than allowed, again and again: others are served after" {
	local i
	sandboxd_start --max-connections 40
	for i in 1 2 3; do
		"$MIXLOAD" idle --socket "$SOCK" --connections 35 --seconds 1
		# keep-alive clients that use every place there is, then go
		for _ in {1..50}; do
			curl_sb /v1/sandbox --max-time 3 -o /dev/null -s 2>/dev/null &
		done
		wait_clients
		CURL_MAX_TIME=5 api GET /v1/sandbox
		expect 200
	done
	sandboxd_stop
}

@test "bodies that drip into every place there is make room for others" {
	local i
	sandboxd_start --listen 127.0.0.1:0 --max-connections 40
	CURL_TARGET=http://$(grep -o '127.0.0.1:[0-9]*' "$SANDBOXD_OUT")
	for i in {1..40}; do
		bash -c 'exec 5<>"/dev/tcp/127.0.0.1/$1"; printf "POST /v1/file/list HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{" >&5; cat <&5' \
			_ "${CURL_TARGET##*:}" >/dev/null 2>&1 3>&- &
	done
	CURL_MAX_TIME=30 api GET /v1/sandbox
	expect 200
	wait_clients
	sandboxd_stop
}

@test "a client that leaves after sending a byte too many is noticed" {
	local before
	sandboxd_start --listen 127.0.0.1:0
	CURL_TARGET=http://$(grep -o '127.0.0.1:[0-9]*' "$SANDBOXD_OUT")
	api POST /v1/bash/sessions/create '{"session_id":"s"}'
	before=$(server_fds)
	for _ in {1..10}; do
		bash -c 'exec 5<>"/dev/tcp/127.0.0.1/$1"; b="{\"session_id\":\"s\",\"wait\":true,\"wait_timeout\":1000}"
			printf "POST /v1/bash/output HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" "${#b}" "$b" >&5
			sleep 0.3; printf "\r\n" >&5; sleep 0.3' _ "${CURL_TARGET##*:}" 3>&- &
	done
	wait_clients
	wait_until bash -c "$(declare -f tree server_fds); SANDBOXD_PID=$SANDBOXD_PID; [ \$(server_fds) -le $((before + 2)) ]"
	sandboxd_stop
}

@test "SIGTERM does not wait for file operations under way" {
	sandboxd_start --isolation none
	for _ in {1..12}; do
		curl_sb /v1/file/grep -d '{"path":"/usr","pattern":"[a-z]+q[0-9]zz","max_file_size":"50M"}' -o /dev/null 2>/dev/null &
	done
	wait_until bash -c "$(declare -f tree server_fds); SANDBOXD_PID=$SANDBOXD_PID; [ \$(server_fds) -ge 15 ]"
	sandboxd_stop
	wait_clients
}

@test "a command that writes 10 GiB of output: bounded memory, others are answered" {
	sandboxd_start
	api POST /v1/bash/exec '{"command":"head -c 10G /dev/zero | tr \"\\0\" x","session_id":"big","async_mode":true}'
	api POST /v1/shell/sessions/create '{"id":"pty"}'
	api POST /v1/shell/exec '{"id":"pty","command":"head -c 200M /dev/zero | tr \"\\0\" x","async_mode":true}'
	for _ in {1..20}; do
		CURL_MAX_TIME=5 api GET /v1/sandbox
		expect 200
	done
	api POST /v1/bash/output '{"session_id":"big","wait":true,"wait_timeout":1}'
	j '.data.command.status == "running" or .data.command.status == "completed"'
	at_most_mib "$(sum_kib VmHWM)" 128
	api POST /v1/bash/kill '{"session_id":"big","signal":"SIGKILL"}'
	expect 200
	sandboxd_stop
}

@test "a full disk: ENOSPC in the answer, no part files, the rest works" {
	[ "$(id -u)" = 0 ] || skip "needs root to mount a small filesystem"
	mkdir "$T/small"
	mount -t tmpfs -o size=4m none "$T/small"
	umount_later=$T/small
	sandboxd_start --data "$T/small/data"
	head -c 8M /dev/zero >"$T/8m"
	api POST /v1/file/upload '' -F path=/mnt/user-data/uploads/big -F "file=@$T/8m" || true
	expect 200 '.success == false and .data.errno_name == "ENOSPC" and .data.error_type == "no_space_left"'
	head -c 6M /dev/zero | base64 -w0 | jq -Rs '{file:"/mnt/user-data/outputs/w",content:.,encoding:"base64"}' >"$T/w.json"
	api POST /v1/file/write '' --data-binary "@$T/w.json"
	j '.data.errno_name == "ENOSPC"'
	[ -z "$(find "$T/small/data" -name '.aiod*' -o -name big -size +0)" ]
	api POST /v1/file/write '{"file":"/mnt/user-data/outputs/ok","content":"fits"}'
	expect 200 '.success'
	[ "$(cat "$T/small/data/outputs/ok")" = fits ]
	sandboxd_stop
	umount "$umount_later"
}

@test "1,000 clients that leave mid-transfer or mid-wait: no descriptor is lost" {
	local before i
	sandboxd_start
	head -c 3M /dev/urandom >"$DATA/uploads/f"
	api GET /v1/sandbox
	before=$(server_fds)
	for i in {1..250}; do
		curl_sb '/v1/file/download?path=/mnt/user-data/uploads/f' --max-time 0.005 -o /dev/null 2>/dev/null &
		curl_sb /v1/file/upload --max-time 0.01 -F path=/mnt/user-data/uploads/g -F "file=@$DATA/uploads/f" -o /dev/null 2>/dev/null &
		curl_sb /v1/bash/output --max-time 0.01 -d '{"session_id":"none","wait":true}' -o /dev/null 2>/dev/null &
		curl_sb /v1/file/watch/wait --max-time 0.01 -d '{"path":"/mnt/user-data/nope"}' -o /dev/null 2>/dev/null &
		((i % 25)) || wait_clients
	done
	wait_clients
	wait_until bash -c "$(declare -f tree server_fds); SANDBOXD_PID=$SANDBOXD_PID; [ \$(server_fds) -le $((before + 3)) ]"
	[ -z "$(find "$DATA" -name ".aiod-*")" ]
	sandboxd_stop
}

@test "ten seconds of mixed load and disconnects: no wrong answer" {
	sandboxd_start
	"$MIXLOAD" mix --socket "$SOCK" --seconds 10 --clients 24
	sandboxd_stop
}
