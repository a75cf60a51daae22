#!/usr/bin/env bats
# A mount of containers, with the engine that tests/lib/engine.sh runs this beside.
# shellcheck disable=SC2034 # the variables are for the functions loaded

load ../lib/deerflow

setup() {
	[ -n "${ENGINE_DIR:-}" ] || skip "to be run by tests/lib/engine.sh run"
	mount_setup
}

teardown() {
	local failed=0

	if [ -n "${ENGINE_DIR:-}" ] && ! engine /_ping -o /dev/null 2>/dev/null; then
		"$ENGINE" start
	fi
	teardown_mount || failed=1
	[ -n "${ENGINE_DIR:-}" ] || return "$failed"
	if [ -n "$(containers)" ]; then
		echo "left behind: $(containers)" >&2
		"$ENGINE" podman rm -fa -t 0 >/dev/null
		[ -z "${BATS_TEST_COMPLETED:-}" ] || failed=1
	fi
	if [ -n "$(ls "$XDG_RUNTIME_DIR/threadfs/containers" 2>/dev/null)" ]; then
		echo "locks are left behind" >&2
		[ -z "${BATS_TEST_COMPLETED:-}" ] || failed=1
	fi
	return "$failed"
}

# engine PATH [ARGS…]: its API, with curl.
engine() {
	curl -sS --max-time 30 --unix-socket "$ENGINE_DIR/sock" "http://engine/v1.41$1" "${@:2}"
}

# containers: the names of all that there are.
containers() {
	engine '/containers/json?all=true' | jq -r '.[].Names[0][1:]'
}

# container USER THREAD: what it is called.
container() {
	echo "deer-flow-sandbox-$(sandbox_id "$1" "$2")"
}

# kill_container NAME: kill -9 of its first process.
kill_container() {
	kill -KILL "$(engine "/containers/$1/json" | jq .State.Pid)"
	wait_until gone "$1" # with all that it had: the engine takes its ports away late
}

gone() {
	[ "$(engine "/containers/$1/json" -o /dev/null -w '%{http_code}')" = 404 ]
}

runs() {
	[ "$(engine "/containers/$1/json" | jq .State.Running)" = true ]
}

# docker_mount [-o OPTIONS]…
docker_mount() {
	mount_start "docker:$ENGINE_IMAGE" -o start_timeout=120,timeout=60 "$@"
}

# run_theirs NAME PORT: a sandbox that somebody else runs, as deer-flow does.
run_theirs() {
	"$ENGINE" podman run -d --rm --security-opt seccomp=unconfined -p "127.0.0.1:$2:8080" \
		--name "$1" "$ENGINE_IMAGE" >/dev/null 3>&-
}

@test "the commands of the README" {
	# as written there, with the image under the name of deer-flow's
	"$ENGINE" podman tag "$ENGINE_IMAGE" \
		enterprise-public-cn-beijing.cr.volces.com/vefaas-public/all-in-one-sandbox:latest
	mkdir ~/agents
	MOUNTS+=(~/agents)
	echo 1,2 >~/sales.csv
	PATH=${THREADFS%/*}:$PATH
	threadfs mount docker: ~/agents 3>&-
	mkdir ~/agents/threads/demo
	cp ~/sales.csv ~/agents/threads/demo/uploads/
	threadfs exec ~/agents/threads/demo -- ls -l uploads | grep -q sales.csv
	same "$("$ENGINE" podman ps --filter name=deer-flow-sandbox --format '{{.Names}} {{.Ports}}')" \
		"$(container default demo) 127.0.0.1:8080->8080/tcp"
	threadfs unmount ~/agents
	same "$(containers)" ""
	same "$(cat "$XDG_STATE_HOME"/threadfs/users/default/threads/demo/user-data/uploads/sales.csv)" 1,2
}

@test "a thread is a container" {
	docker_mount
	same "$(containers)" "" # looking costs nothing
	thread a
	same "$(containers)" "$(container default a)"
	same "$(ls)" $'outputs\nuploads\nworkspace'
	echo hello >uploads/f
	same "$(cat "$DATA/users/default/threads/a/user-data/uploads/f")" hello
	sandbox 'cat /mnt/user-data/uploads/f; echo made >outputs/g'
	same "$(cat outputs/g)" made
	run sandbox 'echo x >/mnt/acp-workspace/f'
	[[ $output == *"Read-only file system"* ]]
	grep -q '^backend *docker$' .ctl/status
	# the container goes, its files stay
	echo 1 >.ctl/destroy
	same "$(containers)" ""
	same "$(cat outputs/g)" made
	same "$(containers)" "$(container default a)"
	cd /
	is ENOTEMPTY rmdir "$W"
	rm "$W"/*/*
	rmdir "$W"
	same "$(containers)" ""
	[ ! -e "$DATA/users/default/threads/a/user-data" ]
}

@test "two mounts share a container, and the last one stops it" {
	local first

	docker_mount
	thread a
	echo one >workspace/f
	first=$MOUNT_PID
	cd /
	MOUNT_NAME=b docker_mount -o idle_timeout=4 # so that it looks around often
	same "$(cat "$M/threads/a/workspace/f")" one
	echo two >"$M/threads/a/workspace/f"
	wait_until grep -q two "$T/m/threads/a/workspace/f"
	same "$(containers)" "$(container default a)"
	# its maker leaves first: it is in use
	"$THREADFS" unmount "$T/m"
	wait_until pid_gone "$first"
	same "$(containers)" "$(container default a)"
	W=$M/threads/a
	same "$(sandbox 'cat workspace/f')" two
	wait_until grep -q "adopted sandbox $(sandbox_id default a)" "$LOG"
	mount_stop
	same "$(containers)" ""
}

@test "a container that dies is started again" {
	docker_mount
	thread a
	echo kept >workspace/f
	kill_container "$(container default a)"
	same "$(cat workspace/f)" kept
	same "$(jq .restarts .ctl/status.json)" 1
	# its port is another sandbox's by the time that we look: that one is not ours
	kill_container "$(container default a)"
	run_theirs somebody 8080
	wait_until curl -sf -o /dev/null http://127.0.0.1:8080/v1/sandbox
	echo more >>workspace/f
	same "$(sandbox 'cat workspace/f')" $'kept\nmore'
	grep -q ':8081$' .ctl/status
	same "$("$ENGINE" podman exec somebody find /mnt/user-data -type f)" ""
	"$ENGINE" podman rm -f -t 0 somebody >/dev/null
}

@test "what a killed threadfs leaves is adopted" {
	local name

	name=$(container default a)
	docker_mount
	thread a
	echo kept >workspace/f
	cd /
	kill -KILL "$MOUNT_PID"
	wait_until pid_gone "$MOUNT_PID"
	umount -l "$M" 2>/dev/null || true
	same "$(containers)" "$name"
	docker_mount
	wait_until grep -q "adopted sandbox ${name##*-}" "$LOG"
	same "$(cat "$M/threads/a/workspace/f")" kept
	same "$(containers)" "$name"
	mount_stop
	same "$(containers)" ""
}

@test "unused containers make room, and go when they are idle" {
	docker_mount -o replicas=1,linger=0,idle_timeout=3
	thread a
	cd /
	echo 1 >"$M/threads/a/.ctl/release"
	mkdir "$M/threads/b"
	wait_until only "$(container default b)"
	echo 1 >"$M/threads/b/.ctl/release"
	wait_for 120 only ""
}

only() {
	[ "$(containers)" = "$1" ]
}

@test "a container of somebody else's is used, and left to him" {
	local name

	name=$(container default theirs)
	run_theirs "$name" 9001
	docker_mount
	same "$(ls "$M/threads")" "" # nobody can tell whose it is, but who names it finds it
	W=$M/threads/theirs
	echo x >"$W/f"
	same "$(sandbox 'cat f')" x
	mount_stop
	same "$(containers)" "$name"
	# its owner replaces it under us
	docker_mount
	W=$M/threads/theirs
	same "$(cat "$W/f")" x
	"$ENGINE" podman stop -t 1 "$name" >/dev/null
	wait_until run_theirs "$name" 9002 # its name is free when the engine has removed it
	is ENOENT stat "$W/f" # it was in the container
	echo y >"$W/f"
	grep -q ':9002$' "$W/.ctl/status"
	# and by an id of former times
	name=deer-flow-sandbox-$(printf older | sha256sum | cut -c 1-8)
	run_theirs "$name" 9003
	echo z >"$M/threads/older/f"
	# only who asks for it stops it
	echo 1 >"$M/threads/older/.ctl/destroy"
	refute runs "$name"
	echo 1 >"$W/.ctl/destroy"
	same "$(containers)" ""
}

@test "while the engine is gone nothing is lost" {
	expect_errors 'does not answer'
	mkdir -p "$T/data/users/default/threads/known/user-data/workspace"
	docker_mount
	thread a
	echo one >workspace/f
	"$ENGINE" stop
	# what runs goes on, also when it is wanted again
	echo two >workspace/f
	same "$(sandbox 'cat workspace/f')" two
	echo 1 >.ctl/release
	same "$(cat workspace/f)" two
	is ENOTCONN mkdir "$M/threads/b"
	is ENOTCONN listdir "$M/threads/known"
	grep -q 'the engine does not answer' "$M/threads/known/.ctl/status"
	"$ENGINE" start
	wait_until mkdir "$M/threads/c"
	same "$(jq .restarts "$M/threads/a/.ctl/status.json")" 0
}

@test "an image that is missing is pulled, however long that takes" {
	expect_errors 'is being pulled'
	"$ENGINE" layout "$T/image"
	spawn "$PYTHON" "$BATS_TEST_DIRNAME/../lib/registry.py" "$T/image" 127.0.0.1:5000 12 \
		>"$T/registry.out" 2>&1
	wait_until grep -q ready "$T/registry.out"
	mount_start docker:127.0.0.1:5000/sandbox:1 -o start_timeout=6
	spawn mkdir "$M/threads/a"
	# who waits can see what for, and gives up before it is here
	wait_until grep -qE '127.0.0.1:5000/sandbox:1 is being pulled: [0-9]+ of [0-9]+ MB' "$M/.ctl/status.json"
	wait_until pid_gone "$SPAWN_PID"
	refute wait "$SPAWN_PID"
	grep -qE 'cannot start .*: image 127.0.0.1:5000/sandbox:1 is being pulled: ' "$LOG"
	wait_for 90 grep -q 'image 127.0.0.1:5000/sandbox:1 is here' "$LOG"
	wait_until mkdir -p "$M/threads/a"
	wait_until cp "$T/registry.out" "$M/threads/a/uploads/f"
	grep -q 'last error *-' "$M/threads/a/.ctl/status" || cat "$M/threads/a/.ctl/status"
	mount_stop
	"$ENGINE" podman rmi -f 127.0.0.1:5000/sandbox:1 >/dev/null
}

@test "an image that cannot be had" {
	expect_errors 'cannot be pulled'
	mount_start docker:127.0.0.1:1/no/such:image
	is EIO mkdir "$M/threads/a"
	grep -q 'image 127.0.0.1:1/no/such:image cannot be pulled: ' "$LOG"
}

@test "config.yaml says what containers are like" {
	export DEER_FLOW_HOME=$T/deer-flow-home THE_SECRET=hush-hush
	mkdir -p "$DEER_FLOW_HOME/users/default/threads/t1/user-data" "$T/shared" "$T/project"
	echo shared >"$T/shared/f"
	CONFIG=$T/project/config.yaml
	cat >"$CONFIG" <<-END
		sandbox:
		  use: deerflow.community.aio_sandbox:AioSandboxProvider
		  image: $ENGINE_IMAGE
		  port: 8200
		  container_prefix: mine
		  mounts:
		    - host_path: $T/shared
		      container_path: /mnt/shared
		      read_only: true
		  environment:
		    SECRET: \$THE_SECRET
		    PLAIN: plain-value
	END
	config_mount
	same "$(ls "$M/threads")" t1
	W=$M/threads/t1
	cd "$W"
	# shellcheck disable=SC2016 # for the sandbox
	same "$(sandbox 'cat /mnt/shared/f; echo $SECRET $PLAIN')" $'shared\nhush-hush plain-value'
	run sandbox 'touch /mnt/shared/g'
	[[ $output == *"Read-only file system"* ]]
	same "$(containers)" "mine-$(sandbox_id default t1)"
	grep -q ':8200$' .ctl/status
	echo x >uploads/f
	same "$(cat "$DEER_FLOW_HOME/users/default/threads/t1/user-data/uploads/f")" x
	run grep -rsE 'hush|plain-value' "$LOG" "$M/.ctl/config" "$M/.ctl/status.json"
	[ "$status" = 1 ]
	cd /
	mount_stop
	same "$(containers)" ""
}

@test "no engine: one clear line" {
	local url

	run "$THREADFS" mount -o engine=unix:///nonexistent/sock docker: "$T"
	[ "$status" = 1 ]
	same "$output" "threadfs: there is no engine: /nonexistent/sock does not exist"
	run env DOCKER_HOST=tcp://127.0.0.1:1 "$THREADFS" mount docker: "$T"
	[ "$status" = 1 ]
	[[ $output == "threadfs: the engine at http://127.0.0.1:1 does not answer: "* ]]
	run env DOCKER_HOST=ssh://host "$THREADFS" mount docker: "$T"
	[[ $output == "threadfs: the engine 'ssh://host': ssh:// is not supported"* ]]
	chmod 0755 "$T"
	programs_for_all
	mkdir -m 0755 "$T/other"
	chown 65534:65534 "$T/other"
	run setpriv --reuid 65534 --regid 65534 --clear-groups env HOME="$T/other" \
		XDG_STATE_HOME="$T/other" XDG_CACHE_HOME="$T/other" XDG_RUNTIME_DIR="$T/other" \
		"$THREADFS" mount docker: "$T/other"
	[ "$status" = 1 ]
	[[ $output == "threadfs: no permission for the engine's socket "* ]]
	run env -u DOCKER_HOST "$THREADFS" mount docker: "$T"
	[ "$status" = 1 ]
	[[ $output == "threadfs: there is no engine: neither Docker's nor Podman's socket is there"* ]]
	# an HTTP server that is none
	url_mount
	url=$(sed -n 's/.*: ready on \([^ ]*\) .*/\1/p' "$SANDBOXD_OUT")
	run "$THREADFS" mount -o "engine=tcp://${url#http://}" docker: "$T/other"
	[ "$status" = 1 ]
	[[ $output == "threadfs: there is no container engine at "* ]]
}
