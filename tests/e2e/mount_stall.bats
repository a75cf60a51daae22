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
	proxy_mount -o timeout="$TIMEOUT"
	SLOW=$SLOW "$PYTHON" "$BATS_TEST_DIRNAME/hang_table.py" "$W" "$T/proxy.sock" \
		"$SANDBOXD_PID" "$TIMEOUT" --table 3>&- >"$T/table"
	[ -z "${HANG_TABLE:-}" ] || cp "$T/table" "$HANG_TABLE"
	expect_errors
	mount_stop # while there is a server: what is left goes up
}
