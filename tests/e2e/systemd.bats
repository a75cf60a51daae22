#!/usr/bin/env bats
# How others start the mount: mount(8), fstab, service managers. UNITS is where the build
# has put the units.

load ../lib/mount

DOCS=$SANDBOXD_ROOT/docs
UNITS=${UNITS:-${THREADFS%/*}/docs}

setup() {
	mount_setup
	M=$T/m
	mkdir "$M"
}

teardown() {
	teardown_mount
}

opts() {
	echo "data=$T/data,cache=$T/cache,dialect=$DIALECT"
}

# notified SOCKET ARGS…: as a service manager starts it; what it hears is in $T/heard.
notified() {
	local socket=$1
	shift
	: >"$T/heard" # what another one said
	"$SANDBOXD_ROOT/tests/lib/notified.py" "$socket" "$M" "$THREADFS" mount -f "$@" >"$T/heard" 2>&1 3>&- &
	MANAGER=$!
	SPAWNED+=("$MANAGER")
}

heard() {
	grep -q "^$1" "$T/heard"
}

@test "a service is ready when the mount answers, and says when it stops" {
	MOUNTS+=("$M")
	for socket in "$T/notify" "@threadfs-test-$$"; do
		notified "$socket" -o "$(opts)" "$M"
		wait_for $((30 * SLOW)) heard READY=1
		heard "READY=1 mounted"
		heard "STATUS=Mounted at $M"
		mkdir -p "$M/threads/demo"
		echo "env >outputs/env" >"$M/threads/demo/.ctl/exec"
		refute grep -r NOTIFY_SOCKET "$M/threads/demo/outputs/env"
		for pid in $(sandbox_processes_); do
			refute grep -qz NOTIFY_SOCKET "/proc/$pid/environ"
		done
		kill "$MANAGER" # it passes that on
		wait_for $((30 * SLOW)) heard EXIT=
		cat "$T/heard"
		heard STOPPING=1
		heard EXIT=0
		not_mounted "$M"
		rm -f "$T/notify"
	done
}

@test "a service that cannot mount says why, and is never ready" {
	notified "$T/notify" -o "cache=$T/cache" http://127.0.0.1:1 "$M"
	wait_for $((60 * SLOW)) heard EXIT=
	cat "$T/heard"
	heard "STATUS=http://127.0.0.1:1: "
	heard "ERRNO="
	heard EXIT=1
	refute heard READY=1
}

# A service that died is started again: nothing of its first life is in the way.
@test "killed, cleared away as the unit does it, and started again" {
	MOUNTS+=("$M")
	notified "$T/notify" -o "$(opts)" "$M"
	wait_for $((30 * SLOW)) heard READY=1
	mkdir "$M/threads/demo"
	echo kept >"$M/threads/demo/outputs/x"
	kill -KILL "$(pgrep -P "$MANAGER")"
	wait_for $((30 * SLOW)) heard EXIT=-9
	rm "$T/notify"
	stat -f "$M" || umount -l -q "$M" || true # the guardian may be first
	wait_until not_mounted "$M"
	notified "$T/notify" -o "$(opts)" "$M"
	wait_for $((30 * SLOW)) heard READY=1
	[ "$(cat "$M/threads/demo/outputs/x")" = kept ]
	kill "$MANAGER"
	wait_for $((30 * SLOW)) heard EXIT=0
}

@test "the units are what systemd expects" {
	mkdir -p "$T/system" "$T/user"
	for kind in system user; do
		# As installed, but with the program that there is.
		sed "s|^ExecStart=[^ ]*|ExecStart=$THREADFS|" "$UNITS/threadfs@.$kind.service" >"$T/$kind/threadfs@agents.service"
		run systemd-analyze verify --man=no "--$kind" "$T/$kind/threadfs@agents.service"
		echo "$output"
		[ "$status" -eq 0 ]
		refute grep -E "threadfs@|Unknown|ignoring" <<<"$output"
	done
	cp "$DOCS/systemd/srv-agents.mount" "$T/system/"
	run systemd-analyze verify --man=no "$T/system/srv-agents.mount"
	echo "$output"
	[ "$status" -eq 0 ]
	refute grep -E "srv-agents|Unknown|ignoring" <<<"$output"
}

@test "the example of a config file is what holds without it" {
	"$THREADFS" mount -o "$(opts)" "$M" 3>&-
	MOUNTS+=("$M")
	cat "$M/.ctl/config" >"$T/without"
	"$THREADFS" unmount "$M"
	"$THREADFS" mount --config "$DOCS/threadfs.yaml" -o "$(opts)" "$M" 3>&-
	diff "$T/without" "$M/.ctl/config"
	"$THREADFS" unmount "$M"
}

# mount(8) looks for its helpers in /sbin only: it gets one there, in a mount namespace that
# ends with the test. Not one that keeps the mounts of other tests: their daemons would not end.
in_namespace() {
	mkdir -p "$T/sbin"
	ln -sf "$THREADFS" "$T/sbin/mount.threadfs"
	unshare --mount --propagation private bash -euc '
		umount -a -l -t fuse.threadfs || true
		mount -t overlay overlay -o "lowerdir=$T/sbin:$(realpath /sbin)" "$(realpath /sbin)" || exit 77
		'"$1" _ "${@:2}" 3>&-
}

@test "mount -t threadfs, an fstab line, umount" {
	[ "$(id -u)" = 0 ] || skip "needs root"
	export T M THREADFS
	OPTS=$(opts)
	export OPTS
	# shellcheck disable=SC2016
	run in_namespace '
		mount -t threadfs embedded: "$M" -o "$OPTS,nosuid,nodev,noatime"
		findmnt -n -o FSTYPE,SOURCE,OPTIONS -M "$M"
		mkdir "$M/threads/demo"
		echo hello >"$M/threads/demo/outputs/x"
		umount "$M"
		! findmnt -M "$M"
		echo "embedded: $M threadfs $OPTS,noauto,ro,defaults,_netdev,nofail,user,x-systemd.automount,x-systemd.idle-timeout=60 0 0" >"$T/fstab"
		mount -T "$T/fstab" "$M"
		cat "$M/threads/demo/outputs/x"
		! touch "$M/threads/demo/outputs/y" 2>/dev/null
		umount -T "$T/fstab" "$M" 2>/dev/null || umount "$M"
		echo "embedded: $M threadfs $OPTS,lingr=3 0 0" >"$T/fstab"
		! mount -T "$T/fstab" "$M" || exit 1
		mount --fake -t threadfs embedded: "$M" -o "$OPTS"
		! findmnt -M "$M"
		echo done'
	echo "$output"
	[ "$status" -ne 77 ] || skip "no overlay over /sbin here"
	[ "$status" -eq 0 ]
	[[ ${lines[0]} == "fuse.threadfs "*nosuid,nodev,noexec* ]]
	[ "${lines[1]}" = hello ]
	[[ $output == *"did you mean 'linger'?"* ]]
	[ "${lines[-1]}" = "done" ]
	wait_for $((30 * SLOW)) no_sandboxes
}

no_sandboxes() {
	[ -z "$(sandbox_processes_)" ]
}
