#!/usr/bin/env bats
# Beside deer-flow: its config.yaml, its data, its provisioner with real sandboxes.

load ../lib/deerflow

setup() {
	mount_setup && provisioner_start --dialect "$DIALECT" && deerflow_config
}

teardown() {
	local failed=0

	teardown_deerflow || failed=1
	[ -z "${NET:-}" ] || ip netns del "$NET"
	return "$failed"
}

# home: deer-flow's directory, with threads of two users and one from before there were any.
home() {
	export DEER_FLOW_HOME=$T/deer-flow-home
	mkdir -p "$DEER_FLOW_HOME"/users/default/threads/{t1,t2}/user-data/workspace \
		"$DEER_FLOW_HOME"/users/ann/threads/hers/user-data/workspace \
		"$DEER_FLOW_HOME"/threads/old/user-data/workspace
}

@test "config.yaml is all that is needed" {
	home
	config_mount
	same "$(ls "$M/threads")" $'old\nt1\nt2'
	no_pods # looking costs nothing
	thread new
	same "$(ls)" $'outputs\nuploads\nworkspace'
	echo hello >uploads/f
	same "$(pods)" "$(sandbox_id default new)"
	same "$(cat "$PODS"/deer-flow/users/default/threads/new/user-data/uploads/f)" hello
	sandbox 'cat /mnt/user-data/uploads/f; echo made >outputs/g'
	same "$(cat outputs/g)" made
	# a thread of deer-flow's gets its sandbox when it is used
	echo x >"$M/threads/t1/x"
	same "$(pods | sort)" "$(printf '%s\n' "$(sandbox_id default new)" "$(sandbox_id default t1)" | sort)"
	grep -q "^source=provisioner:$PROVISIONER_URL\$" "$M/.ctl/config"
	grep -q '^provisioner_api_key=\*\*\*\*\*\*\*\*$' "$M/.ctl/config"
	run grep -q -- "$KEY" "$LOG" "$M/.ctl/config" "$M/.ctl/status" "$M/.ctl/status.json"
	[ "$status" = 1 ]
	mount_stop
	no_pods # ours, all of them
	# the pods' volumes keep the files
	config_mount
	same "$(cat "$M/threads/new/uploads/f")" hello
}

@test "whose threads" {
	home
	config_mount -o user=ann
	same "$(ls "$M/threads")" hers
	echo x >"$M/threads/hers/f"
	same "$(pods)" "$(sandbox_id ann hers)"
	same "$(cat "$PODS"/deer-flow/users/ann/threads/hers/user-data/f)" x
}

@test "deer-flow's directory is found beside its config file" {
	mkdir -p "$T"/project/backend/.deer-flow/users/default/threads/beside
	config_mount
	same "$(ls "$M/threads")" beside
}

@test "a sandbox of deer-flow's is used, and left to it" {
	local id

	id=$(sandbox_id default theirs)
	ask_provisioner /api/sandboxes -o /dev/null \
		-d "{\"sandbox_id\":\"$id\",\"thread_id\":\"theirs\"}"
	config_mount
	same "$(ls "$M/threads")" "" # nobody can tell whose pods there are, but who names it finds it
	W=$M/threads/theirs
	echo x >"$W/f"
	sandbox 'cat f'
	mount_stop
	same "$(pods)" "$id"
	same "$(cat "$PODS"/deer-flow/users/default/threads/theirs/user-data/f)" x
	# also one that has an id of former times
	id=$(printf older | sha256sum | cut -c 1-8)
	ask_provisioner /api/sandboxes -o /dev/null \
		-d "{\"sandbox_id\":\"$id\",\"thread_id\":\"older\"}"
	config_mount
	echo y >"$M/threads/older/f"
	same "$(cat "$PODS"/deer-flow/users/default/threads/older/user-data/f)" y
}

@test "while the provisioner is down nothing is lost" {
	local id

	config_mount
	thread a
	echo one >workspace/f
	id=$(sandbox_id default a)
	kill -STOP "$PROVISIONER_PID"
	# what runs goes on
	echo two >workspace/f
	sandbox 'cat workspace/f >outputs/g'
	same "$(cat outputs/g)" two
	# also when it is wanted again
	echo 1 >.ctl/release
	cd /
	spawn bash -c "sleep 1; kill -CONT $PROVISIONER_PID"
	same "$(cat "$W/outputs/g")" two
	# a provisioner that cannot read the pod's state has not lost the pod
	order "$id" NotFound
	echo 1 >"$W/.ctl/release"
	echo three >"$W/workspace/f"
	same "$(pods)" "$id"
	same "$(cat "$PODS"/deer-flow/users/default/threads/a/user-data/workspace/f)" three
}

@test "a provisioner that is gone" {
	expect_errors 'does not answer|could not be stopped'
	home
	config_mount
	thread a
	kill -KILL "$PROVISIONER_PID"
	wait_until pid_gone "$PROVISIONER_PID"
	same "$(ls "$M/threads")" $'a\nold\nt1\nt2' # that is known here
	is ENOTCONN listdir "$M/threads/t1"
	is ENOTCONN stat "$M/threads/unheard-of" # not ENOENT: who knows?
	is ENOTCONN mkdir "$M/threads/new"
	grep -q 'the provisioner does not answer' "$M/threads/t1/.ctl/status"
	# its sandboxes outlive it, and go on
	echo x >"$W/workspace/f"
	same "$(cat "$W/workspace/f")" x
	end_pods
}

# end_pods: what a killed provisioner left.
end_pods() {
	local pid

	cd /
	"$THREADFS" unmount "$M" && mount_ended
	for pid in $(pgrep -f -- "threadfs-sandboxd --listen.*$PODS/"); do
		kill -TERM "$pid"
	done
	wait_until no_process_ "$PODS/.*"
}

@test "keys" {
	run env PROVISIONER_API_KEY=wrong "$THREADFS" mount --config "$CONFIG" "$T"
	[ "$status" = 1 ]
	[[ $output == "threadfs: $PROVISIONER_URL: the provisioner refuses the API key" ]]
	run env -u PROVISIONER_API_KEY "$THREADFS" mount --config "$CONFIG" "$T"
	[ "$status" = 2 ]
	[[ $output == *"the environment variable 'PROVISIONER_API_KEY' is not set"* ]]
	run "$THREADFS" mount "provisioner:$PROVISIONER_URL" "$T"
	[ "$status" = 1 ]
	[[ $output == *"the provisioner wants an API key"* ]]
	run "$THREADFS" mount "provisioner:$PROVISIONER_URL" "$T" -o provisioner_api_key=hush
	[ "$status" = 2 ]
	[[ $output != *hush* ]]
	echo "$KEY" >"$T/key"
	run "$THREADFS" mount "provisioner:$PROVISIONER_URL" "$T/project" \
		-o "provisioner_key_file=$T/key,data=$T/data"
	MOUNTS+=("$T/project")
	[ "$status" = 0 ]
	mkdir "$T/project/threads/a"
	same "$(pods)" "$(sandbox_id default a)"
	"$THREADFS" unmount "$T/project"
	wait_until no_process_ "$T/project"
	same "$(tr '\0' '\n' <"/proc/$PROVISIONER_PID/cmdline" | grep -c "$KEY")" 0
}

@test "rmdir removes an empty thread, and only that" {
	config_mount
	thread a
	echo x >outputs/f
	cd /
	is ENOTEMPTY rmdir "$W"
	same "$(pods)" "$(sandbox_id default a)"
	same "$(cat "$W/outputs/f")" x
	rm -r "$W"
	no_pods
	same "$(ls "$M/threads")" ""
	[ ! -e "$W" ]
}

@test "pods that die" {
	local id

	config_mount
	thread a
	id=$(sandbox_id default a)
	echo kept >workspace/f
	order "$id" kill # Kubernetes restarts it
	wait_until cat workspace/f
	same "$(cat workspace/f)" kept
	order "$id" delete # and of this one only the service stays
	echo 1 >workspace/g
	order "$id" Failed # evicted
	echo 2 >workspace/g
	same "$(sandbox 'cat workspace/[fg]')" $'kept\n2'
	same "$(pods)" "$id"
}

@test "sandboxes by the names of a cluster, past any proxy" {
	[ "$(id -u)" = 0 ] || skip "only root can give a process another /etc/hosts"
	provisioner_stop
	cp /etc/hosts "$T/hosts"
	provisioner_start --service ClusterIP --hosts "$T/hosts" --dialect "$DIALECT"
	deerflow_config
	M=$T/m
	mkdir "$M"
	# In a mount namespace of its own, so that nobody else has these names.
	run unshare -m --propagation private bash -eu <<-END
		umount -a -l -t fuse.threadfs || true # of others: their daemons would not end
		mount --bind "$T/hosts" /etc/hosts
		export http_proxy=http://127.0.0.1:9 all_proxy=http://127.0.0.1:9
		"$THREADFS" mount --config "$CONFIG" "$M" 3>&-
		mkdir "$M/threads/a"
		echo hello >"$M/threads/a/outputs/f"
		cat "$PODS/deer-flow/users/default/threads/a/user-data/outputs/f"
		sed -n 's/.*\(http:[^ ]*cluster.local:8080\).*/\1/p' "$M/threads/a/.ctl/status"
		"$THREADFS" unmount "$M"
	END
	[ "$status" = 0 ]
	same "${lines[0]}" hello
	same "${lines[1]}" \
		"http://sandbox-$(sandbox_id default a)-svc.deer-flow.svc.cluster.local:8080"
	wait_until no_process_ "$M"
}

@test "a pod's name that is a link-local address is not gone to" {
	[ "$(id -u)" = 0 ] || skip "only root can give a process another /etc/hosts"
	ip netns add "tfl$$" || skip "no network namespaces here"
	NET=tfl$$
	ip -n "$NET" link set lo up
	ip -n "$NET" addr add 169.254.77.1/32 dev lo
	provisioner_stop
	PROVISIONER_IN=(nsenter --net="/run/netns/$NET")
	cp /etc/hosts "$T/hosts"
	provisioner_start --service ClusterIP --cluster-net 169.254.77. --hosts "$T/hosts" --dialect "$DIALECT"
	deerflow_config
	M=$T/m
	mkdir "$M"
	run "${PROVISIONER_IN[@]}" unshare -m --propagation private bash -eu <<-END
		umount -a -l -t fuse.threadfs || true # of others: their daemons would not end
		mount --bind "$T/hosts" /etc/hosts
		"$THREADFS" mount --config "$CONFIG" -o timeout=5,start_timeout=5 "$M" 3>&-
		(mkdir "$M/threads/a" && echo hello >"$M/threads/a/outputs/f") || echo refused
		cat "$M/threads/a/.ctl/status.json"
		"$THREADFS" unmount "$M"
	END
	echo "$output"
	[ "$status" = 0 ]
	wait_until no_process_ "$M"
	grep -qx refused <<<"$output"
	# not for want of a name
	grep -q '"message":"Failed to connect to sandbox-[^ ]*.cluster.local' <<<"$output"
	refute test -e "$PODS/deer-flow/users/default/threads/a/user-data/outputs/f"
}

@test "mistakes in config.yaml are named with their line" {
	printf 'sandbox:\n  replicas: many\n' >"$CONFIG"
	run "$THREADFS" mount --config "$CONFIG" "$T"
	[ "$status" = 2 ]
	same "$output" "threadfs: $CONFIG:2: replicas: 'many': expected a number from 0 to 100000"
	printf 'sandbox:\n  use: x\n bad\n' >"$CONFIG"
	run "$THREADFS" mount --config "$CONFIG" "$T"
	[ "$status" = 2 ]
	[[ $output == "threadfs: $CONFIG:3: "* ]]
	printf 'threadfs:\n  lingerr: 3\n' >"$CONFIG"
	run "$THREADFS" mount --config "$CONFIG" "$T"
	same "$output" "threadfs: $CONFIG:2: unknown key 'lingerr': did you mean 'linger'?"
}
