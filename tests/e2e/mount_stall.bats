#!/usr/bin/env bats
# A server that refuses, or stalls before or in the middle of its answers, or is stopped:
# every operation can be interrupted, and ends by its deadline. The table in
# docs/RELIABILITY.md is what HANG_TABLE=FILE gets.

load ../lib/deerflow

TIMEOUT=3
HANG_TABLE_PY=$BATS_TEST_DIRNAME/hang_table.py

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
	teardown_deerflow
}

@test "there is nothing that the kernel may ask and that is not in the table" {
	"$PYTHON" "$HANG_TABLE_PY" --ops "$SANDBOXD_ROOT/fs/ops.c"
	# it would be seen
	sed 's/^\t\.statfs = .*/&\n\t.lseek = op_lseek,/' "$SANDBOXD_ROOT/fs/ops.c" >"$T/ops.c"
	run "$PYTHON" "$HANG_TABLE_PY" --ops "$T/ops.c"
	[ "$status" = 1 ]
	[[ $output == *"lseek has no row"* ]]
}

# is_made ID: the thread is there; what starts its sandbox has no more time than an operation.
is_made() {
	[ -d "$M/threads/$1" ] || mkdir "$M/threads/$1" 2>/dev/null
}

@test "every operation, in every way of not answering" {
	proxy_start
	provisioner_start --dialect "$DIALECT" --given "stalled=$PROXY_URL"
	printf '%s\n' "$KEY" >"$T/key"
	chmod 600 "$T/key"
	mount_start "provisioner:$PROVISIONER_URL" -o "provisioner_key_file=$T/key" \
		-o "timeout=$TIMEOUT,start_timeout=$TIMEOUT,replicas=0"
	wait_until is_made stalled
	wait_until is_made stalled-too
	wait_until is_made other
	SLOW=$SLOW "$PYTHON" "$HANG_TABLE_PY" "$M/threads/stalled" "$T/proxy.sock" \
		"$SANDBOXD_PID" "$TIMEOUT" --table 3>&- >"$T/table"
	[ -z "${HANG_TABLE:-}" ] || cp "$T/table" "$HANG_TABLE"
	expect_errors
	mount_stop # while there is a server: what is left goes up
}
