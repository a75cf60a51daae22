#!/usr/bin/env bats
# Mounting and unmounting as people do it, and everything that can be wrong then: one
# clear line, an exit status, and nothing left behind.

load ../lib/mount

setup() {
	mount_setup
	M=$T/m
	mkdir "$M"
}

teardown() {
	teardown_mount
}

# refused STATUS PATTERN ARGS…: threadfs says one line that matches, and ends so.
refused() {
	local want=$1 pattern=$2

	shift 2
	said "$want" "$pattern" "$THREADFS" "$@"
}

# said STATUS PATTERN CMD…
said() {
	local want=$1 pattern=$2

	shift 2
	run timeout 60 "$@" 3>&-
	echo "status $status: $output"
	[ "$status" = "$want" ] || return 1
	[ "${#lines[@]}" = 1 ] || return 1
	# shellcheck disable=SC2053 # a pattern
	[[ $output == threadfs:\ $pattern ]] || return 1
	not_mounted "$M" || return 1
	[ -z "$(sandbox_processes_)" ]
}

opts() {
	echo "data=$T/data,cache=$T/cache,dialect=$DIALECT"
}

# --- mistakes ---

@test "unknown and bad options name the nearest one, or what is wrong" {
	refused 2 "*unknown option 'lingr': did you mean 'linger'?*" mount -o lingr=3 "$M"
	refused 2 "*linger*" mount -o linger=soon "$M"
	refused 2 "*symlinks*" mount -o symlinks=follow "$M"
	refused 2 "*memory*" mount -o memory=1 "$M"
	refused 2 "*-z*" mount -z "$M"
	refused 2 "**point is missing*" mount
	refused 2 "**point is missing*" mount embedded:
	refused 2 "*too many*" mount embedded: "$M" "$M"
	refused 2 "*unknown command 'muont': did you mean 'mount'?*" muont "$M"
	refused 2 "*api_key_file*" mount -o api_key=abc "$M"
	THREADFS_LINGER=soon refused 2 "*THREADFS_LINGER*" mount "$M"
	[ ! -e "$T/data" ]
}

@test "unknown sources" {
	refused 2 "*unknown source 'foo:'*embedded:*" mount foo: "$M"
	refused 2 "*expected provisioner:http://HOST:8002*" mount provisioner: "$M"
	refused 1 "*http://127.0.0.1:9: the provisioner does not answer*" \
		mount provisioner:http://127.0.0.1:9 "$M"
	refused 2 "*source*" mount http:// "$M"
	run "$THREADFS" mount http://me:s3cret@localhost:1 "$M"
	[ "$status" = 2 ]
	[[ $output != *s3cret* ]]
}

@test "bad config files: the file, the line, the key" {
	printf 'threadfs:\n  linger: 3\n  replicsa: 2\n' >"$T/c.yaml"
	refused 2 "*$T/c.yaml:3: *replicsa*did you mean 'replicas'?*" mount --config "$T/c.yaml" "$M"
	printf 'threadfs: [\n' >"$T/c.yaml"
	refused 2 "*$T/c.yaml:*" mount --config "$T/c.yaml" "$M"
	printf 'sandbox:\n  idle_timeout: never\n' >"$T/c.yaml"
	refused 2 "*$T/c.yaml:2: *idle_timeout*" mount --config "$T/c.yaml" "$M"
	printf 'threadfs:\n  api_key: abc\n' >"$T/c.yaml"
	refused 2 "*$T/c.yaml:2: *secret*" mount --config "$T/c.yaml" "$M"
	refused 2 "*$T/none.yaml*No such file*" mount --config "$T/none.yaml" "$M"
}

@test "a good config file, overruled by the environment, overruled by -o" {
	cat >"$T/c.yaml" <<-'YAML'
		models: [{name: x}]
		sandbox:
		  use: deerflow.sandbox.local:LocalSandboxProvider
		  idle_timeout: 77
		  replicas: 7
		  unknown_key: {a: b}
		threadfs:
		  linger: 11
		  timeout: 12
	YAML
	THREADFS_TIMEOUT=13 THREADFS_REPLICAS=8 mount_start --config "$T/c.yaml" -o replicas=9
	run cat "$M/.ctl/config"
	for line in idle_timeout=77 linger=11 timeout=13 replicas=9; do
		grep -qx "$line" <<<"$output"
	done
}

@test "bad mountpoints" {
	refused 1 "*$T/none*No such file*" mount -o "$(opts)" "$T/none"
	: >"$T/file"
	refused 1 "*$T/file*not a directory*" mount -o "$(opts)" "$T/file"
	[ ! -e "$T/data" ]
}

@test "a busy mountpoint" {
	mount_start
	run "$THREADFS" mount -o "$(opts)" "$M"
	[ "$status" = 1 ]
	[ "${#lines[@]}" = 1 ]
	[[ $output == threadfs:*"$M"*busy* ]]
	# the first one is unharmed
	stat "$M/README"
	[ "$(grep -c " $M " /proc/self/mountinfo)" = 1 ]
}

# said_busy FILE…: one of the mounts that wrote there was told.
said_busy() {
	[ "$(cat "$@" | grep -cxF "threadfs: $M is busy: threadfs is already mounted there")" = 1 ]
}

@test "of two mounts at the same moment one is there, and the other is told" {
	local first how rc

	for how in '' -f; do # the other is a daemon
		mount_prepare_
		: >"$LOG" # what -f says goes there
		"$THREADFS" mount ${how:+"$how"} "${MOUNT_ARGS[@]}" >"$T/first" 2>&1 </dev/null 3>&- &
		first=$!
		rc=0
		"$THREADFS" mount "${MOUNT_ARGS[@]}" >"$T/second" 2>&1 </dev/null 3>&- || rc=$?
		wait_until said_busy "$T/first" "$T/second" "$LOG"
		wait_until is_mounted "$M"
		stat "$M/README"
		[ "$(grep -c " $M " /proc/self/mountinfo)" = 1 ]
		if said_busy "$T/second"; then
			[ "$rc" = 1 ]
		else
			[ "$rc" = 0 ]
			rc=0
			wait "$first" || rc=$?
			[ "$rc" = 1 ]
			first=
		fi
		"$THREADFS" unmount "$M"
		not_mounted "$M"
		[ -z "$first" ] || wait "$first"
	done
	MOUNT_PID=
	mount_ended
}

@test "data and cache directories that cannot be used" {
	: >"$T/file"
	refused 1 "*$T/file/cache*" mount -o "data=$T/data,cache=$T/file/cache" "$M"
	refused 1 "*$T/file*" mount -o "data=$T/file/data,cache=$T/cache" "$M"
	refused 1 "*$T/no/log*" mount -o "$(opts),log=$T/no/log" "$M"
}

# In a mount namespace of its own, with a /dev of its own. Not one that keeps the mounts
# of other tests: their daemons would not end.
no_fuse() {
	unshare -m --propagation slave sh -euc '
		mount -t tmpfs threadfs-test "$0"
		for d in null zero full random urandom tty; do
			: >"$0/$d"
			mount --bind "/dev/$d" "$0/$d"
		done
		mount --move "$0" /dev
		exec "$@"' "$T/dev" "$@"
}

@test "no FUSE" {
	[ "$(id -u)" = 0 ] || skip "needs root to hide /dev/fuse"
	mkdir "$T/dev"
	export -f no_fuse
	export T
	said 1 "*no FUSE (/dev/fuse)*modprobe fuse*" bash -c 'no_fuse "$@"' - "$THREADFS" mount -o "$(opts)" "$M"
	[ -c /dev/fuse ]
}

@test "no bubblewrap, or one that cannot isolate" {
	local tool left

	mkdir "$T/bin"
	for tool in true fusermount3 timeout awk grep; do
		ln -s "$(command -v "$tool")" "$T/bin/$tool"
	done
	PATH=$T/bin said 1 "*bubblewrap*apt install bubblewrap*isolation=none*" \
		/usr/bin/env "$THREADFS" mount -o "$(opts)" "$M"
	printf '#!/bin/sh\necho "bwrap: No permissions to create new namespace" >&2\nexit 1\n' >"$T/bin/bwrap"
	chmod +x "$T/bin/bwrap"
	PATH=$T/bin:$PATH refused 1 "*No permissions to create new namespace*isolation=none*" \
		mount -o "$(opts)" "$M"
	# without walls it is not needed
	PATH=$T/bin:$PATH mount_start -o isolation=none
	rm "$T/bin/bwrap"
	thread
	[ "$(sandbox 'echo works')" = works ]
	# Its /tmp is the machine's, and what its shell has there stays (README).
	mapfile -t left < <(sandbox 'ls -d /tmp/.threadfs-*')
	mount_stop
	rm -rf "${left[@]}"
}

@test "a sandbox that cannot be reached" {
	local port

	refused 1 "*http://127.0.0.1:1*refused*" mount -o "cache=$T/cache" http://127.0.0.1:1 "$M"
	refused 1 "*no-such-host.invalid*" mount -o "cache=$T/cache" http://no-such-host.invalid:8080 "$M"
	# something that does not answer
	python3 -c '
import socket, time
s = socket.create_server(("127.0.0.1", 0))
print(s.getsockname()[1], flush=True)
time.sleep(1000)' >"$T/port" 3>&- &
	SPAWNED+=("$!")
	wait_until test -s "$T/port"
	port=$(cat "$T/port")
	refused 1 "*http://127.0.0.1:$port*timed out*" mount -o "cache=$T/cache,timeout=1,start_timeout=1" \
		"http://127.0.0.1:$port" "$M"
}

@test "a wrong API key" {
	local url

	echo 'right-key' >"$T/key"
	echo 'wrong-key' >"$T/wrong"
	chmod 0600 "$T/key" "$T/wrong"
	sandboxd_start --listen 127.0.0.1:0 --dialect "$DIALECT" --api-key-file "$T/key"
	url=$(sed -n 's/.*ready on \(http:[^ ]*\).*/\1/p' "$SANDBOXD_OUT")
	run timeout 60 "$THREADFS" mount -o "cache=$T/cache,api_key_file=$T/wrong" "$url" "$M"
	echo "$output"
	[ "$status" = 1 ]
	[ "${#lines[@]}" = 1 ]
	[[ $output == "threadfs: $url: "*key* && $output != *wrong-key* ]]
	not_mounted "$M"
	run timeout 60 "$THREADFS" mount -o "cache=$T/cache" "$url" "$M"
	[ "$status" = 1 ]
	[ "${#lines[@]}" = 1 ]
	[[ $output == *key* ]]
	not_mounted "$M"
	refused 2 "*$T/none*" mount -o "cache=$T/cache,api_key_file=$T/none" "$url" "$M"
	mount_start "$url" -o "api_key_file=$T/key"
	[ "$(ls "$M/threads")" = default ]
	echo x >"$M/threads/default/f"
	[ "$(cat "$M/threads/default/f")" = x ]
}

# --- mounting and unmounting ---

@test "mount returns when it answers, and is a daemon" {
	local pid

	mount_detached
	stat "$M/README"
	pid=$(jq .pid "$M/.ctl/status.json")
	[ "$(ps -o ppid= -p "$pid" | tr -d ' ')" != $$ ]
	[ "$(ps -o tty= -p "$pid")" = '?' ]
	[ "$(readlink "/proc/$pid/cwd")" = / ]
	[ "$(readlink "/proc/$pid/fd/0")" = /dev/null ]
	grep " $M " /proc/self/mountinfo >"$T/info"
	grep -q 'nosuid,nodev,noexec' "$T/info"
	grep -q ' - fuse.threadfs embedded: ' "$T/info"
	refute grep -q allow_other "$T/info"
	thread
	echo 'echo hi' >outputs/s
	chmod +x outputs/s
	refute ./outputs/s 2>/dev/null
	cd /
	run "$THREADFS" unmount "$M"
	[ "$status" = 0 ]
	said_nothing
	not_mounted "$M"
	mount_ended
	pid_gone "$pid"
	[ "$(ls -A "$M")" = '' ]
	# not a second time
	refused 1 "*$M*nothing is mounted*" unmount "$M"
}

@test "in the foreground it ends on SIGTERM, SIGINT and unmount, with 0" {
	local signal

	for signal in TERM INT HUP unmount; do
		# a shell's background jobs ignore SIGINT
		mount_prepare_
		env --default-signal=INT "$THREADFS" mount -f "${MOUNT_ARGS[@]}" >"$M.out" 2>&1 </dev/null 3>&- &
		MOUNT_PID=$!
		MOUNT_PIDS+=("$MOUNT_PID")
		wait_until is_mounted "$M"
		[ -d "$M/threads/demo" ] || mkdir "$M/threads/demo"
		echo "$signal" >"$M/threads/demo/outputs/f"
		case $signal in
		HUP) # a terminal that goes away is no reason
			kill -HUP "$MOUNT_PID"
			[ "$(cat "$M/threads/demo/outputs/f")" = HUP ]
			kill -TERM "$MOUNT_PID"
			;;
		unmount) umount "$M" 2>/dev/null || fusermount3 -u "$M" ;;
		*) kill "-$signal" "$MOUNT_PID" ;;
		esac
		mount_ended
		[ "$(cat "$T/data/users/default/threads/demo/user-data/outputs/f")" = "$signal" ]
	done
}

@test "what is in use is not unmounted, unless lazily" {
	mount_start
	thread
	echo content >outputs/f
	exec 5<outputs/f
	cd /
	run "$THREADFS" unmount "$M"
	[ "$status" = 1 ]
	[ "${#lines[@]}" = 1 ]
	[[ $output == threadfs:*busy* ]]
	stat "$M/README"
	"$THREADFS" unmount -l "$M"
	not_mounted "$M"
	[ "$(cat <&5)" = content ]
	exec 5<&-
	mount_ended
}

@test "a mount inside is named by who cannot unmount" {
	mount_start
	thread
	cd /
	mount -t tmpfs none "$W/outputs" || skip "needs root to mount another"
	run "$THREADFS" unmount "$M"
	umount "$W/outputs"
	[ "$status" = 1 ]
	[ "$output" = "threadfs: '$M' is busy: something is mounted in it, at '$W/outputs', which has to be unmounted first" ]
	"$THREADFS" unmount "$M"
	mount_ended
}

@test "who waits for the end of a daemon is told" {
	local pid unmounter

	mount_detached
	pid=$(jq .pid "$M/.ctl/status.json")
	kill -STOP "$pid"
	"$THREADFS" unmount "$M" >"$T/said" 2>&1 3>&- &
	unmounter=$!
	SPAWNED+=("$unmounter")
	if ! wait_until grep -q 'is unmounted; waiting for its daemon to end' "$T/said" || ! not_mounted "$M"; then
		kill -CONT "$pid"
		return 1
	fi
	kill -CONT "$pid"
	wait "$unmounter"
	[ "$(wc -l <"$T/said")" = 1 ]
	mount_ended
}

@test "unmount and status of what is not ours" {
	refused 1 "*$M*nothing is mounted*" unmount "$M"
	refused 1 "*/proc*not of threadfs*" unmount /proc
	refused 1 "*$T/none*" unmount "$T/none"
	refused 1 "*$M*not in a mount of threadfs*" status "$M"
	refused 2 "**point is missing*" unmount
	refused 2 "*only one*" unmount "$M" "$M"
	[ -e /proc/self ]
}

@test "threadfs status" {
	mount_start
	thread
	run "$THREADFS" status "$M"
	[ "$status" = 0 ]
	[[ $output == *THREAD*demo*active*"1 thread"* ]]
	"$THREADFS" status --json "$M" | jq -e '.threads[0].thread == "demo"'
	"$THREADFS" status "$W/outputs" --json | jq -e --arg m "$M" '.mountpoint == $m'
	# without a place: all of mine
	[[ $("$THREADFS" status) == *demo* ]]
}

@test "mount.threadfs, as mount(8) calls it" {
	ln -s "$THREADFS" "$T/mount.threadfs"
	"$T/mount.threadfs" embedded: "$M" -n -o "rw,nosuid,_netdev,noauto,$(opts),linger=5" 3>&-
	MOUNTS+=("$M")
	is_mounted "$M"
	grep -qx linger=5 "$M/.ctl/config"
	mkdir "$M/threads/demo"
	"$THREADFS" unmount "$M"
	wait_until no_process_ "$M"
	# all but the mounting
	"$T/mount.threadfs" embedded: "$M" -f -o "$(opts)"
	not_mounted "$M"
	said 2 "*source is missing*" "$T/mount.threadfs" "$M"
	said 2 "*unknown option 'lingr'*" "$T/mount.threadfs" embedded: "$M" -o lingr=5
}

@test "options of the mount: ro, exec, visible, uid" {
	mount_start
	thread
	echo 'echo ran' >outputs/s
	chmod 755 outputs/s
	mount_stop
	mount_start -o ro,ctl=visible,uid=12345,gid=12346,umask=027
	cd "$M/threads/demo"
	[ "$(cat outputs/s)" = 'echo ran' ]
	[ "$(stat -c '%u %g %a' outputs/s)" = '12345 12346 750' ]
	[ "$(ls -A "$M" | tr '\n' ' ')" = '.ctl README threads ' ]
	[[ "$(ls -A)" == *.ctl* ]]
	refute touch outputs/new 2>/dev/null
	refute rm -f outputs/s 2>/dev/null
	mount_stop
	mount_start -o exec
	[ "$("$M/threads/demo/outputs/s" 2>/dev/null || bash -c "$M/threads/demo/outputs/s")" = ran ]
	[[ "$(ls -A "$M")" != *.ctl* ]]
}
