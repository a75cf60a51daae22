#!/usr/bin/env bats
# Two hosts with one provisioner: three network namespaces, on a bridge in that of the
# cluster. Both mount the same thread.
# shellcheck disable=SC2034 # the variables are for the functions loaded

load ../lib/deerflow

NET=10.99.77

setup() {
	mount_setup
	HOSTS=()
	[ "$(id -u)" = 0 ] || skip "only root can make network namespaces"
	make_net || skip "no network namespaces with veth here"
	PROVISIONER_IN=(nsenter --net="/run/netns/$CLUSTER")
	provisioner_start --listen "$NET.1:8002" --node-host "$NET.1" --node-bind "$NET.1" \
		--dialect "$DIALECT"
	deerflow_config
}

teardown() {
	local host failed=0

	end_host a
	end_host b
	BATS_TEST_COMPLETED=${BATS_TEST_COMPLETED:-} teardown_deerflow || failed=1
	for host in "${HOSTS[@]}"; do
		ip netns del "$host"
	done
	return "$failed"
}

# make_net: $CLUSTER with a bridge, and a host on it for each of A and B.
make_net() {
	local host number=2

	CLUSTER=tfc$$
	ip netns add "$CLUSTER" || return 1
	HOSTS+=("$CLUSTER")
	ip -n "$CLUSTER" link add br0 type bridge || return 1
	ip -n "$CLUSTER" link set lo up
	ip -n "$CLUSTER" addr add "$NET.1/24" dev br0
	ip -n "$CLUSTER" link set br0 up
	for host in a b; do
		ip netns add "tf$host$$" || return 1
		HOSTS+=("tf$host$$")
		ip -n "$CLUSTER" link add "v$host" type veth peer name eth0 netns "tf$host$$" || return 1
		ip -n "$CLUSTER" link set "v$host" master br0 up
		ip -n "tf$host$$" link set lo up
		ip -n "tf$host$$" addr add "$NET.$number/24" dev eth0
		ip -n "tf$host$$" link set eth0 up
		number=$((number + 1))
	done
}

# start_host NAME [ARGS…]: threadfs on that host, at $T/NAME, with directories of its own.
start_host() {
	local name=$1

	shift
	MOUNT_IN=(nsenter --net="/run/netns/tf$name$$" env "XDG_STATE_HOME=$T/$name.state"
		"XDG_CACHE_HOME=$T/$name.cache" "XDG_RUNTIME_DIR=$T/$name.run")
	mkdir -p "$T/$name.run"
	chmod 0700 "$T/$name.run"
	MOUNT_NAME=$name config_mount "$@"
	declare -g "PID_$name=$MOUNT_PID"
}

# end_host NAME: unmounts it, if it is mounted.
end_host() {
	local pid=PID_$1

	M=$T/$1 LOG=$T/$1.log MOUNT_PID=${!pid:-}
	[ -n "$MOUNT_PID" ] || return 0
	is_mounted "$M" || return 0
	MOUNT_NAME=$1 mount_stop
}

# kill_host NAME: its power fails.
kill_host() {
	local pid=PID_$1

	ip -n "$CLUSTER" link set "v$1" down
	kill -KILL "${!pid}"
	wait_until pid_gone "${!pid}"
	wait_until not_mounted "$T/$1"
	declare -g "PID_$1="
}

# says FILE TEXT: for wait_until.
says() {
	[ "$(cat "$1" 2>/dev/null)" = "$2" ]
}

@test "each sees the other's writes" {
	start_host a
	start_host b
	mkdir "$T/a/threads/t"
	echo from a >"$T/a/threads/t/workspace/f"
	same "$(cat "$T/b/threads/t/workspace/f")" "from a"
	echo from b >"$T/b/threads/t/workspace/f"
	wait_until says "$T/a/threads/t/workspace/f" "from b"
	# new names, removed names, a command's files, in both directions
	mkdir "$T/b/threads/t/outputs/dir"
	wait_until test -d "$T/a/threads/t/outputs/dir"
	echo 'seq 1000 >outputs/dir/numbers' >"$T/a/threads/t/.ctl/exec"
	wait_until test -s "$T/b/threads/t/outputs/dir/numbers"
	same "$(md5sum <"$T/b/threads/t/outputs/dir/numbers")" "$(seq 1000 | md5sum)"
	rm "$T/b/threads/t/outputs/dir/numbers"
	wait_until bash -c '! test -e "$1"' - "$T/a/threads/t/outputs/dir/numbers"
	same "$(pods)" "$(sandbox_id default t)" # it is one
}

@test "a host that dies takes nothing with it that was closed" {
	local i

	start_host a
	start_host b
	mkdir "$T/a/threads/t"
	for i in $(seq 20); do
		seq "$i" 1000 >"$T/a/threads/t/outputs/$i"
	done
	ls "$T/b/threads/t/outputs" >/dev/null
	spawn "$PYTHON" -c '
import os, sys, time
fd = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)
os.write(fd, b"lost")
open(sys.argv[2], "w").close()
time.sleep(100)' "$T/a/threads/t/outputs/open" "$T/written"
	wait_until test -e "$T/written"
	kill_host a
	for i in $(seq 20); do
		same "$(md5sum <"$T/b/threads/t/outputs/$i")" "$(seq "$i" 1000 | md5sum)"
	done
	[ ! -e "$T/b/threads/t/outputs/open" ]
	# who is left goes on, and who comes back sees it
	echo after >"$T/b/threads/t/outputs/after"
	ip -n "$CLUSTER" link set va up
	start_host a
	same "$(cat "$T/a/threads/t/outputs/after")" after
	same "$(cat "$T/a/threads/t/outputs/20")" "$(seq 20 1000)"
	same "$(pods)" "$(sandbox_id default t)"
}

@test "who made a sandbox leaves, and the other one gets a new one" {
	start_host a
	start_host b
	mkdir "$T/a/threads/t"
	echo kept >"$T/a/threads/t/workspace/f"
	same "$(cat "$T/b/threads/t/workspace/f")" kept
	end_host a
	echo more >"$T/b/threads/t/workspace/g"
	same "$(cat "$PODS"/deer-flow/users/default/threads/t/user-data/workspace/[fg])" $'kept\nmore'
	same "$(pods)" "$(sandbox_id default t)"
	end_host b
	no_pods
}
