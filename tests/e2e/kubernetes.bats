#!/usr/bin/env bats
# docs/kubernetes: manifests that a cluster takes, whose commands do what they say.

load ../lib/deerflow

DOCS=$SANDBOXD_ROOT/docs/kubernetes

setup() {
	mount_setup
}

teardown() {
	teardown_deerflow
}

manifests() {
	"$PYTHON" "$SANDBOXD_ROOT/tests/lib/manifests.py" "$@"
}

@test "the manifests hold together" {
	"$PYTHON" -c 'import yaml' || skip "python3-yaml is not installed"
	manifests check "$DOCS"/*.yaml
}

@test "kubectl takes them, and knows every field" {
	command -v kubectl || skip "kubectl (package kubernetes-client) is not installed"
	manifests kubectl "$DOCS"/*.yaml
	# and would not take everything
	sed 's/mountPropagation: Bi/mountPropagatoin: Bi/' "$DOCS/threadfs.yaml" >"$T/bad.yaml"
	run manifests kubectl "$T/bad.yaml"
	[ "$status" != 0 ]
	[[ $output == *mountPropagatoin* ]]
}

# in_pod FILE: the script of its container threadfs, with the pod's places in $T.
in_pod() {
	manifests script "$DOCS/$1" threadfs | sed "
		s|/var/lib/threadfs|$T/lib|g
		s|/agents/mnt|$T/mnt|g
		s|/tmp/state|$T/state|g
		s|/etc/threadfs/config.yaml|$T/config.yaml|
		s|threadfs unmount|\"$THREADFS\" unmount|
		s|exec threadfs mount|exec \"$THREADFS\" mount|"
}

# The same, and its ConfigMap, against a provisioner.
@test "what their containers run mounts, answers the probes and ends with SIGTERM" {
	local file

	provisioner_start
	manifests config "$DOCS/threadfs.yaml" | sed "
		s|http://provisioner.*|$PROVISIONER_URL|
		s|/var/lib/threadfs|$T/lib|
		s|/var/cache/threadfs|$T/cache|" >"$T/config.yaml"
	export PROVISIONER_API_KEY=$KEY
	for file in threadfs.yaml sidecar.yaml; do
		M=$T/lib/agents
		[ "$file" = threadfs.yaml ] || M=$T/mnt
		MOUNTS+=("$M")
		in_pod "$file" >"$T/script"
		sh "$T/script" >"$T/$file.out" 2>&1 </dev/null 3>&- &
		MOUNT_PID=$!
		MOUNT_PIDS+=("$MOUNT_PID")
		wait_until is_mounted "$M"
		stat "$M/README"
		mkdir "$M/threads/a"
		echo x >"$M/threads/a/outputs/f"
		kill -KILL "$MOUNT_PID" # a container that is killed leaves its mount
		wait_until pid_gone "$MOUNT_PID"
		run stat "$M/README"
		[ "$status" != 0 ]
		sh "$T/script" >>"$T/$file.out" 2>&1 </dev/null 3>&- &
		MOUNT_PID=$!
		MOUNT_PIDS+=("$MOUNT_PID")
		wait_until stat "$M/README"
		same "$(cat "$M/threads/a/outputs/f")" x
		kill -TERM "$MOUNT_PID"
		wait_until pid_gone "$MOUNT_PID"
		run is_mounted "$M"
		[ "$status" != 0 ]
	done
}
