# Shared by the scripts in this folder; sourced, never run.
# Sets root (the repository) and changes into it.
# shellcheck shell=bash
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

die() {
	printf '%s: %s\n' "${0##*/}" "$*" >&2
	exit 1
}

# need_packages NAME…: installs those that are missing, and only those.
need_packages() {
	local missing=() p
	for p in "$@"; do
		dpkg-query -W -f='${Status}\n' "$p" 2>/dev/null | grep -q '^install ok installed' ||
			missing+=("$p")
	done
	[ ${#missing[@]} -gt 0 ] || return 0
	command -v apt-get >/dev/null || die "please install: ${missing[*]}"
	local sudo=()
	if [ "$(id -u)" != 0 ]; then
		command -v sudo >/dev/null || die "as root, install: ${missing[*]}"
		sudo=(sudo)
	fi
	echo "installing: ${missing[*]}" >&2
	"${sudo[@]}" apt-get update -qq >&2
	DEBIAN_FRONTEND=noninteractive "${sudo[@]}" apt-get install -y -qq \
		--no-install-recommends "${missing[@]}" >/dev/null
}

# shellcheck disable=SC2034 # for the scripts that source this
build_packages=(gcc libc6-dev meson ninja-build pkg-config libmicrohttpd-dev libcjson-dev
	libcurl4-openssl-dev libssl-dev libpcre2-dev libev-dev libfuse3-dev libyaml-dev libhiredis-dev
	uthash-dev libncurses-dev scdoc)
# shellcheck disable=SC2034
run_packages=(bubblewrap bash fuse3)
# shellcheck disable=SC2034
test_packages=(libcmocka-dev bats curl jq openssl python3 python3-yaml procps util-linux iproute2 coreutils socat
	rsync git tmux vim sqlite3 nodejs less make perl
	fish zsh systemd podman runc netavark iptables
	redis-tools) # which has the server as well, without starting one
# Others than Debian package it as well, under the same path.
command -v kubectl >/dev/null || test_packages+=(kubernetes-client)

# end_sandboxes DIR: ends what still runs of the embedded sandboxes whose runtime
# directories are somewhere in DIR. They outlive a program that was killed.
end_sandboxes() {
	local file pid
	while read -r file; do
		pid=$(cat "$file" 2>/dev/null) || continue
		# unless the pid is another's by now
		tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline" | grep -qF "$1/" || continue
		echo "ending sandbox $pid" >&2
		kill "$pid" 2>/dev/null || true
		tail --pid="$pid" -f /dev/null
	done < <(find "$1" -name pid -path '*/run/*' 2>/dev/null)
}

# build [DIR [MESON-OPTION…]]: configures DIR (default build) once and compiles.
build() {
	local dir=${1:-build}
	shift || true
	if [ -f "$dir/build.ninja" ]; then
		[ $# -eq 0 ] || meson configure "$dir" "$@" >/dev/null
	else
		meson setup "$dir" "$@" >"$dir.log" 2>&1 || { cat "$dir.log" >&2; return 1; }
		mv "$dir.log" "$dir/setup.log"
	fi
	meson compile -C "$dir" >"$dir/compile.log" 2>&1 || { cat "$dir/compile.log" >&2; return 1; }
}
