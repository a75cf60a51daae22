#!/bin/bash
# A container engine of a test's own: Podman's API on a private socket, with a small image that
# holds threadfs-sandboxd, made of this machine's files. Nothing is pulled and nothing of the
# machine's own engine, network or storage is touched.
#
#	engine.sh run COMMAND…   runs COMMAND beside it, and removes everything at the end
#	engine.sh start|stop     the API's server, for COMMAND: containers run on without it
#	engine.sh podman ARGS…   the client, for COMMAND
#	engine.sh layout DIR     an image that it does not have, for tests/lib/registry.py
#
# COMMAND runs in namespaces of its own (network, mounts, processes), so that its ports are free,
# nobody else sees its containers, and none outlives it. It gets
#	DOCKER_HOST     the socket
#	ENGINE          this script
#	ENGINE_IMAGE    the image; sandboxes of the dialect aiod
#	ENGINE_DIR      what belongs to the engine; ENGINE_DIR/pid is the server's
# Where that cannot be it says why and ends with 77, or as TAP if ENGINE_TAP is set.
#
# Environment: SANDBOXD, the program (default: build/threadfs-sandboxd of this tree).
set -euo pipefail

self=$(readlink -f "$0")
SANDBOXD=${SANDBOXD:-${self%/tests/lib/*}/build/threadfs-sandboxd}

skip() {
	if [ -n "${ENGINE_TAP:-}" ]; then
		echo "1..0 # SKIP $*"
		exit 0
	fi
	echo "skipped: $*" >&2
	exit 77
}

# ---- the server ----

podman_() {
	(exec_podman "$@")
}

exec_podman() {
	exec env "CONTAINERS_CONF=$ENGINE_DIR/containers.conf" \
		"CONTAINERS_STORAGE_CONF=$ENGINE_DIR/storage.conf" \
		"CONTAINERS_REGISTRIES_CONF=$ENGINE_DIR/registries.conf" \
		podman --tmpdir "$ENGINE_DIR/tmp" "$@"
}

configure() {
	# The runtime works where cgroups are of both kinds, the limits where none can be raised.
	cat >"$ENGINE_DIR/containers.conf" <<-END
		[containers]
		default_ulimits = ["nofile=4096:4096", "nproc=8192:8192"]
		[engine]
		runtime = "runc"
		cgroup_manager = "cgroupfs"
		events_logger = "none"
		[network]
		network_backend = "netavark"
		network_config_dir = "$ENGINE_DIR/networks"
	END
	# for a registry of the test's own
	cat >"$ENGINE_DIR/registries.conf" <<-END
		[[registry]]
		location = "127.0.0.1:5000"
		insecure = true
	END
	cat >"$ENGINE_DIR/storage.conf" <<-END
		[storage]
		driver = "$1"
		graphroot = "$ENGINE_DIR/root"
		runroot = "$ENGINE_DIR/run"
	END
}

answers() {
	curl -sf --max-time 5 --unix-socket "$ENGINE_DIR/sock" http://engine/_ping >/dev/null
}

start() {
	rm -f "$ENGINE_DIR/sock"
	# Where the caller stands may be a mount that goes.
	(cd / && exec_podman --log-level info system service --time 0 "unix://$ENGINE_DIR/sock") \
		</dev/null >>"$ENGINE_DIR/log" 2>&1 3>&- &
	disown # its end is nobody's news
	echo $! >"$ENGINE_DIR/pid"
	for ((i = 0; i < 300; i++)); do
		! answers || return 0
		kill -0 "$(cat "$ENGINE_DIR/pid")" 2>/dev/null || break
		sleep .1
	done
	cat "$ENGINE_DIR/log" >&2
	return 1
}

stop() {
	local pid

	pid=$(cat "$ENGINE_DIR/pid")
	kill -KILL "$pid" 2>/dev/null || true
	while kill -0 "$pid" 2>/dev/null && ! grep -qs '^State:.Z' "/proc/$pid/status"; do
		sleep .05
	done
}

# ---- the image ----

rootfs() {
	local dir=$1 file

	mkdir -p "$dir"/{bin,etc,opt,proc,dev,sys,root,tmp,mnt/user-data}
	chmod 1777 "$dir/tmp"
	echo root:x:0:0:root:/root:/bin/bash >"$dir/etc/passwd"
	echo root:x:0: >"$dir/etc/group"
	dpkg -L bash coreutils findutils | while read -r file; do
		[[ $file != *bin/* || ! -f $file || ! -x $file ]] || cp -L "$file" "$dir/bin/"
	done
	for file in setsid flock fallocate mount grep sed; do
		cp -L "$(command -v "$file")" "$dir/bin/"
	done
	ln -sf bash "$dir/bin/sh"
	cp "$SANDBOXD" "$SANDBOXD-server" "$dir/opt/"
	for file in "$dir"/opt/*-server "$dir"/bin/{bash,ls,cp,sort,find,mount,grep,sed}; do
		ldd "$file"
	done | grep -o '/[^ ]*' | sort -u | while read -r file; do
		mkdir -p "$dir${file%/*}"
		cp -L "$file" "$dir$file"
	done
}

image() {
	rootfs "$ENGINE_DIR/rootfs"
	import "$ENGINE_IMAGE"
	rm -rf "$ENGINE_DIR/rootfs"
}

# import NAME: from what is in $ENGINE_DIR/rootfs.
import() {
	tar -C "$ENGINE_DIR/rootfs" -cf - . | podman_ import -q \
		-c 'CMD ["/opt/threadfs-sandboxd","--data","/mnt/user-data","--isolation","none","--listen","0.0.0.0:8080"]' \
		- "$1"
}

# layout DIR: another image, which the engine does not have, as an OCI layout.
layout() {
	rootfs "$ENGINE_DIR/rootfs"
	head -c 8M /dev/urandom >"$ENGINE_DIR/rootfs/ballast"
	import localhost/another:1
	rm -rf "$ENGINE_DIR/rootfs"
	podman_ save -q --format oci-dir -o "$1" localhost/another:1
	podman_ rmi -f localhost/another:1
}

# ---- its place ----

# Where the runtime keeps its cgroups: the machine's, as those are in no namespace of ours.
cgroups() {
	{ find /sys/fs/cgroup -maxdepth 3 -type d -name libpod_parent 2>/dev/null || true; } | sort
}

# Those that were not there before; who was in them may take a moment to go.
remove_cgroups() {
	local dir i

	for ((i = 0; i < 50; i++)); do
		dir=$(comm -13 <(echo "$cgroups_before") <(cgroups) | head -n 1)
		[ -n "$dir" ] || return
		find "$dir" -depth -type d -exec rmdir {} + 2>/dev/null || sleep .1
	done
}

clean() {
	set +e
	podman_ rm -fa -t 0 >/dev/null 2>&1
	stop
	kill -KILL -1 2>/dev/null # all in this namespace, but for ourselves
	umount -R "$ENGINE_DIR/root/overlay" 2>/dev/null
	remove_cgroups
	rm -rf "$ENGINE_DIR"
}

inside() {
	[ $$ = 1 ] || { echo "not in a namespace of its own" >&2; exit 2; }
	mount -t tmpfs tmpfs /run
	mount -t tmpfs tmpfs /dev/shm
	ip link set lo up
	cgroups_before=$(cgroups)
	trap clean EXIT
	if ! { configure overlay && image; } >"$ENGINE_DIR/log" 2>&1; then
		configure vfs
		rm -rf "$ENGINE_DIR/root" "$ENGINE_DIR/run"
		image >>"$ENGINE_DIR/log" 2>&1 || { cat "$ENGINE_DIR/log" >&2; exit 1; }
	fi
	start
	podman_ run --rm --security-opt seccomp=unconfined -p 127.0.0.1:1:8080 "$ENGINE_IMAGE" true \
		>>"$ENGINE_DIR/log" 2>&1 ||
		skip "no container can be run here: $(tail -n 1 "$ENGINE_DIR/log")"
	"$@" &
	wait $! # so that a signal is not kept waiting
}

case ${1:-} in
run)
	shift
	[ "$(id -u)" = 0 ] || skip "only root can give an engine namespaces of its own"
	for program in podman runc iptables /usr/lib/podman/netavark curl ip; do
		command -v "$program" >/dev/null || skip "$program is not installed"
	done
	unshare --net --mount --pid --fork --mount-proc true 2>/dev/null ||
		skip "the kernel gives no namespaces here"
	ENGINE_DIR=$(mktemp -d "${TMPDIR:-/tmp}/engine.XXXXXX")
	chmod 0755 "$ENGINE_DIR"
	export ENGINE=$self ENGINE_DIR ENGINE_IMAGE=localhost/threadfs-sandbox:test SANDBOXD
	export DOCKER_HOST=unix://$ENGINE_DIR/sock
	exec unshare --net --mount --propagation private --pid --fork --kill-child --mount-proc \
		"$self" inside "$@"
	;;
inside)
	shift
	inside "$@"
	;;
start | stop)
	"$1"
	;;
layout)
	layout "$2" >/dev/null
	;;
podman)
	shift
	podman_ "$@"
	;;
*)
	echo "usage: engine.sh run COMMAND… | start | stop | podman ARGS… | layout DIR" >&2
	exit 2
	;;
esac
