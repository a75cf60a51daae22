#!/usr/bin/env bats
# Random operations on a file, compared with a model: FSX_OPERATIONS of them from
# FSX_SEED on; without these a short run from a seed of its own each time. The last test does a fifth
# of them, with a fault before each FSX_FAULTS-th on average.

load ../lib/mount

setup() {
	mount_setup
	SEED=${FSX_SEED:-$((RANDOM << 15 | RANDOM))}
	N=${FSX_OPERATIONS:-1500}
}

teardown() {
	teardown_mount
}

# fsx ARGS…: in the outputs of the thread demo.
fsx() {
	echo "# seed $SEED" >&3
	"$FSX" -s "$SEED" -H "$DATA/users/default/threads/demo/user-data/outputs" -R "$T/run" \
		-P "$MOUNT_PID" "$@" "$W/outputs" 3>&-
}

@test "small files and commands" {
	mount_start
	thread
	fsx -n "$N" -c 400
}

@test "files that are streamed" {
	mount_start -o memory=1M
	thread
	fsx -n $((N / 10)) -m 6000000
}

@test "while sandboxes die, connections break and the watch ends" {
	[ "$(id -u)" = 0 ] || skip "needs root to break connections"
	mount_start
	thread
	fsx -n $((N / 5)) -F "${FSX_FAULTS:-25}" -c 100
	expect_errors
}
