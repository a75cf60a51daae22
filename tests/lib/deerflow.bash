# shellcheck shell=bash
#
# Helpers for bats tests of mounts beside deer-flow: its provisioner (provisioner.py)
# with real sandboxes, and a config.yaml as it has one.
#
#	load ../lib/deerflow
#	setup()    { mount_setup && provisioner_start; }
#	teardown() { teardown_deerflow; }
#
# PROVISIONER_IN and MOUNT_IN may be set to a command in which they are run: another
# network namespace.
#
# Variables set here:
#	PROVISIONER_URL PROVISIONER_PID PODS   of the provisioner; PODS holds what pods keep
#	KEY                                    its key
#	CONFIG                                 the file that deerflow_config wrote

# shellcheck source=tests/lib/mount.bash
. "${BASH_SOURCE[0]%/*}/mount.bash"

PROVISIONER_SCRIPT=${BASH_SOURCE[0]%/*}/provisioner.py

# provisioner_start [ARGS…]: starts it, on 127.0.0.1 unless ARGS say otherwise.
provisioner_start() {
	KEY=the-key
	PODS=$T/pods
	mkdir -p "$PODS"
	chmod 0755 "$PODS"
	: >"$T/provisioner.out"
	PROVISIONER_API_KEY=$KEY "${PROVISIONER_IN[@]}" "$PYTHON" "$PROVISIONER_SCRIPT" --data "$PODS" \
		--sandboxd "$SANDBOXD" "$@" >"$T/provisioner.out" 2>"$T/provisioner.log" </dev/null 3>&- &
	PROVISIONER_PID=$!
	SPAWNED+=("$PROVISIONER_PID")
	wait_for $((20 * SLOW)) grep -q '^ready on ' "$T/provisioner.out" || return 1
	PROVISIONER_URL=$(sed -n 's/^ready on //p' "$T/provisioner.out")
}

provisioner_stop() {
	kill -TERM "$PROVISIONER_PID"
	wait_for 20 pid_gone "$PROVISIONER_PID"
}

# ask_provisioner PATH [ARGS…]: with curl.
ask_provisioner() {
	"${PROVISIONER_IN[@]}" curl -sSf --noproxy '*' -H "X-API-Key: $KEY" "$PROVISIONER_URL$1" "${@:2}"
}

# order ID WHAT: what the cluster does to a pod; see provisioner.py.
order() {
	ask_provisioner "/test/pods/$1" -o /dev/null -d "{\"do\":\"$2\"}"
}

# pods: the ids of those that run.
pods() {
	ask_provisioner /api/sandboxes | jq -r '.sandboxes[].sandbox_id'
}

no_pods() {
	[ -z "$(pods)" ]
}

# sandbox_id USER THREAD: as deer-flow makes it.
sandbox_id() {
	printf '%s:%s' "$1" "$2" | sha256sum | cut -c 1-16
}

# deerflow_config: a config.yaml with this provisioner, in deer-flow's project $T/project.
deerflow_config() {
	mkdir -p "$T/project"
	CONFIG=$T/project/config.yaml
	cat >"$CONFIG" <<-END
		models:
		  - name: some-model
		    api_key: \$NO_SUCH_VARIABLE
		sandbox:
		  use: deerflow.community.aio_sandbox:AioSandboxProvider
		  provisioner_url: $PROVISIONER_URL
		  provisioner_api_key: \$PROVISIONER_API_KEY
		  image: ignored/by-provisioners:1
		  idle_timeout: 600
		  bash_output_max_chars: 20000
		skills:
		  container_path: /mnt/skills
	END
	export PROVISIONER_API_KEY=$KEY
}

# config_mount [ARGS…]: mounts by $CONFIG and nothing else, but for a log, at $M.
config_mount() {
	local name=${MOUNT_NAME:-m}

	M=$T/$name
	LOG=$T/$name.log
	# shellcheck disable=SC2034 # of nobody: for what looks for sandboxes of our own
	DATA=$T/data
	mkdir -p "$M"
	MOUNTS+=("$M")
	"${MOUNT_IN[@]}" "$THREADFS" mount -f --config "$CONFIG" "$M" -o "log=$LOG" "$@" >"$M.out" 2>&1 \
		</dev/null 3>&- &
	MOUNT_PID=$!
	MOUNT_PIDS+=("$MOUNT_PID")
	wait_for $((30 * SLOW)) mounted_or_gone_ || return 1
	is_mounted "$M" || { cat "$M.out" >&2; return 1; }
	stat "$M/README" >/dev/null
}

# The provisioner last: mounts give their sandboxes back to it.
teardown_deerflow() {
	local failed=0 spawned=("${SPAWNED[@]}")

	cd /
	SPAWNED=()
	if [ -n "${BATS_TEST_COMPLETED:-}" ] && [ -n "${M:-}" ] && is_mounted "$M"; then
		mount_stop || failed=1
	fi
	SPAWNED=("${spawned[@]}")
	teardown_mount || failed=1
	return "$failed"
}
