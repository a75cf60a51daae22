#!/usr/bin/env bats
# A server that refuses, or stalls before or in the middle of its answers, or is stopped:
# every operation can be interrupted, and ends by its deadline. The table in
# docs/RELIABILITY.md is what HANG_TABLE=FILE gets.

load ../lib/mount

TIMEOUT=3

setup() {
	mount_setup
}

# Those that it started, too.
continue_all() {
	local pid

	kill -CONT "$1" 2>/dev/null || return 0
	for pid in $(pgrep -P "$1"); do
		continue_all "$pid"
	done
}

teardown() {
	[ -z "${SANDBOXD_PID:-}" ] || continue_all "$SANDBOXD_PID"
	teardown_mount
}

@test "every operation, in every way of not answering" {
	local port server

	SANDBOXD_NAME=url sandboxd_start --listen 127.0.0.1:0 --dialect "$DIALECT"
	server=$SANDBOXD_PID
	port=$(sed -n 's/.*: ready on [^ ]*:\([0-9]*\) .*/\1/p' "$SANDBOXD_OUT")
	spawn "$PYTHON" "$BATS_TEST_DIRNAME/../lib/stallproxy.py" "$port" "$T/proxy.sock" >"$T/proxy.port"
	wait_until test -s "$T/proxy.port"
	mount_start "http://127.0.0.1:$(cat "$T/proxy.port")" -o timeout="$TIMEOUT"
	SLOW=$SLOW "$PYTHON" "$BATS_TEST_DIRNAME/hang_table.py" "$M/threads/default" "$T/proxy.sock" \
		"$server" "$TIMEOUT" --table 3>&- >"$T/table"
	[ -z "${HANG_TABLE:-}" ] || cp "$T/table" "$HANG_TABLE"
	expect_errors
	mount_stop # while there is a server: what is left goes up
}
