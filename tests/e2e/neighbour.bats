#!/usr/bin/env bats
# Another user of the machine: what he can reach of ours, what he can lay in our way.
# We are an ordinary user (65534) here, he is another one (65533).

load ../lib/mount

US=65534
HIM=65533

setup_file() {
	fuse_open_to_all
}

teardown_file() {
	fuse_restore
}

setup() {
	[ "$(id -u)" = 0 ] || skip "needs root to be two others"
	mount_setup
	programs_for_all
	mkdir "$T/m"
	# All that he needs to get as far as our own directories.
	chmod 0711 "$T" "$T/home"
	chown -R "$US:$US" "$T"
}

teardown() {
	[ -n "${T:-}" ] || return 0
	if [ -n "${M:-}" ] && is_mounted "$M"; then
		as "$US" "$THREADFS" unmount "$M" || true
	fi
	[ ! -e "$T/made" ] || xargs -r rm -rf -- <"$T/made"
	rmdir "/tmp/threadfs-$HIM" 2>/dev/null || true # he may not use ours
	teardown_mount
}

# as UID CMD…
as() {
	local uid=$1

	shift
	XDG_RUNTIME_DIR=$T/run setpriv --reuid="$uid" --regid="$uid" --clear-groups "$@"
}

mount_ours() {
	mount_prepare_
	as "$US" "$THREADFS" mount "${MOUNT_ARGS[@]}" 3>&-
	is_mounted "$M"
}

@test "modes: nobody else reads or writes mount, runtime, cache, data, log and sockets" {
	local path pid

	mount_ours
	as "$US" mkdir "$M/threads/demo"
	as "$US" sh -c "echo secret >'$M/threads/demo/outputs/f'"
	same "$(stat -c %a "$T/run/threadfs" "$T/cache" "$T/data" "$LOG")" $'700\n700\n700\n600'
	while read -r path; do
		refute as "$HIM" test -r "$path"
		refute as "$HIM" test -w "$path"
	done < <(find "$T/run" "$T/cache" "$T/data" "$LOG")
	path=$(find "$T/run" -type s)
	[ -n "$path" ]
	refute as "$HIM" curl -s --max-time 5 --unix-socket "$path" http://x/v1/sandbox
	for path in README .ctl/status .ctl/config threads/demo/outputs/f threads/demo/.ctl/exec; do
		refute as "$HIM" cat "$M/$path"
		refute as "$HIM" sh -c "echo x >'$M/$path'"
		refute cat "$M/$path" # nor root
	done
	# our process: its memory, descriptors and environment
	pid=$(pgrep -u "$US" -f -- "mount .*$M\$")
	for path in mem environ maps fd/0 cwd root; do
		refute as "$HIM" head -c1 "/proc/$pid/$path"
		refute as "$US" head -c1 "/proc/$pid/$path" # nor another program of ours
	done
	grep -q 'Max core file size  *1  *1 ' "/proc/$pid/limits"
	as "$US" "$THREADFS" unmount "$M"
	mount_ended
}

# What config.yaml calls $NAME is in the environment, and the daemon keeps it to itself.
@test "keys in the environment are in no process that another program can look into" {
	local pid path

	M=$T/m
	as "$US" env OUR_KEY=topsecret THREADFS_API_KEY=key-of-ours THREADFS_TOKEN=key-of-ours \
		THREADFS_PROVISIONER_API_KEY=key-of-ours "$THREADFS" mount -o "data=$T/data,cache=$T/cache" "$M" 3>&-
	as "$US" mkdir "$M/threads/demo"
	as "$US" ls "$M/threads/demo/outputs"
	# those that are for us alone are wiped
	pid=$(pgrep -u "$US" -f -- "mount .*$M\$")
	grep -qz '^OUR_KEY=' "/proc/$pid/environ"
	refute grep -q key-of-ours "/proc/$pid/environ"
	pid=$(pgrep -u "$US" -f -- "^threadfs-guardian $M\$")
	for path in mem environ maps fd/0 cwd root; do
		refute as "$US" head -c1 "/proc/$pid/$path"
	done
	# nor is it there for root
	refute grep -qe topsecret -e key-of-ours "/proc/$pid/environ"
	grep -qz '^PATH=' "/proc/$pid/environ" # for fusermount3
	for pid in $(pgrep -u "$US"); do
		as "$US" cat "/proc/$pid/environ" 2>/dev/null | refute grep -qe topsecret -e key-of-ours
	done
	as "$US" "$THREADFS" unmount "$M"
}

@test "root's daemon takes no new privileges" {
	local set caps bit

	chown -R 0:0 "$T"
	mount_start
	same "$(awk '/^NoNewPrivs/ { print $2 }' "/proc/$MOUNT_PID/status")" 1
	# raw sockets, modules, raw I/O, rebooting, the clock, device nodes, bpf
	for set in Prm Eff Bnd; do
		caps=$((16#$(awk -v set="Cap$set:" '$1 == set { print $2 }' "/proc/$MOUNT_PID/status")))
		for bit in 13 16 17 22 25 27 39; do
			same "$set $bit $((caps >> bit & 1))" "$set $bit 0"
		done
	done
	grep -q 'Max core file size  *1  *1 ' "/proc/$MOUNT_PID/limits"
	refute as 65534 head -c1 "/proc/$MOUNT_PID/environ"
	mount_stop
}

# A user without XDG_RUNTIME_DIR has /tmp/threadfs-UID: a name that anybody can take first.
@test "a runtime directory that somebody else made in /tmp is refused" {
	local uid=4000000177 dir=/tmp/threadfs-4000000177 kind

	[ ! -e "$dir" ] && [ ! -L "$dir" ] || skip "$dir is there"
	echo "$dir" >"$T/made"
	install -d -o "$uid" "$T/u" "$T/u/m"
	for kind in directory link; do
		if [ "$kind" = directory ]; then
			as "$HIM" mkdir -m 0777 "$dir"
		else
			install -d -m 0777 -o "$uid" "$T/u/elsewhere"
			as "$HIM" ln -s "$T/u/elsewhere" "$dir"
		fi
		run env -u XDG_RUNTIME_DIR setpriv --reuid="$uid" --regid="$uid" --clear-groups "$THREADFS" mount \
			-o "data=$T/u/data,cache=$T/u/cache" "$T/u/m"
		[ "$status" = 1 ]
		[ "${#lines[@]}" = 1 ]
		not_mounted "$T/u/m"
		[ -z "$(ls -A "$dir/")" ]
		rm -rf "$dir"
	done
}

@test "a cache directory, a log or a runtime directory that is another's is refused" {
	as "$US" install -d -m 0777 "$T/open"
	install -d -m 0777 -o "$HIM" "$T/his"
	install -m 0666 -o "$HIM" /dev/null "$T/his.log"
	as "$US" mkfifo "$T/pipe"
	for what in "cache=$T/open" "cache=$T/his" "cache=$T/c,log=$T/his.log" "cache=$T/c,log=$T/pipe"; do
		run as "$US" timeout 30 "$THREADFS" mount -o "data=$T/data,$what" "$T/m"
		[ "$status" = 1 ]
		[[ $output == *"cannot use the cache directory"* || $output == *"cannot open the log"* ]]
		not_mounted "$T/m"
	done
	[ -z "$(ls -A "$T/his")$(ls -A "$T/open")" ]
	[ ! -s "$T/his.log" ]
}

# deerflow_of UID DIR: a deer-flow of that user's in DIR, with a thread called like him.
deerflow_of() {
	as "$1" mkdir -p "$2/backend/.deer-flow/users/default/threads/of-$1/user-data"
	as "$1" sh -c "printf 'sandbox:\n  use: deerflow.sandbox.local:LocalSandboxProvider\n' >'$2/config.yaml'"
}

# data_of_mount UID ARGS…: mounts as UID from within $T/pub; prints which data root it has.
data_of_mount() {
	(cd "$T/pub" && as "$1" env -u XDG_STATE_HOME "$THREADFS" mount "${@:2}" -o "cache=$T/c$1" "$M" \
		>"$T/said" 2>&1 3>&-) || { cat "$T/said" >&2; return 1; }
	as "$1" sed -n 's/^data=//p' "$M/.ctl/config"
}

# deer-flow's directory is looked for in the working directory first, which may be his.
@test "a .deer-flow that another has laid in the working directory is passed over" {
	local uid

	chmod 0755 "$T"
	M=$T/m
	MOUNTS+=("$M")
	for uid in "$US" 0; do
		rm -rf "$T/pub" "$T/df"
		install -d -o "$HIM" "$T/pub"
		install -d -o "$uid" "$T/df"
		chown "$uid" "$M"
		install -d -m 0700 -o "$uid" "$T/c$uid"
		[ "$uid" != 0 ] || chown -R 0:0 "$T/run"
		deerflow_of "$uid" "$T/df"
		as "$HIM" mkdir -p "$T/pub/.deer-flow/users/default/threads/demo/user-data"
		as "$HIM" chmod -R 0777 "$T/pub/.deer-flow"
		same "$(data_of_mount "$uid" --config "$T/df/config.yaml")" "$T/df/backend/.deer-flow"
		same "$(cat "$T/said")" "threadfs: warning: $T/pub/.deer-flow is passed over: it is another user's, or \
others can write to it (data=DIR takes it all the same)"
		same "$(as "$uid" ls "$M/threads")" "of-$uid"
		as "$uid" sh -c "echo secret >'$M/threads/of-$uid/f'"
		[ -z "$(find "$T/pub" -type f)" ]
		as "$uid" "$THREADFS" unmount "$M"
		# one that is ours is not
		mv "$T/df/backend/.deer-flow" "$T/df/.deer-flow"
		rm -rf "$T/pub/.deer-flow"
		same "$(data_of_mount "$uid" --config "$T/df/config.yaml")" "$T/df/.deer-flow"
		same "$(cat "$T/said")" ""
		as "$uid" "$THREADFS" unmount "$M"
	done
}

# It may be deer-flow's own user's, and shared by a group: so it is used, but not without a word.
@test "a data root of another's is used by who names it, and ordinary users are warned" {
	chmod 0755 "$T"
	M=$T/m
	MOUNTS+=("$M")
	install -d -o "$HIM" "$T/pub"
	install -d -m 0777 -o "$HIM" "$T/his"
	install -d -m 0777 "$T/roots"
	install -d -m 0700 -o "$US" "$T/c$US"
	same "$(data_of_mount "$US" -o "data=$T/his")" "$T/his"
	same "$(cat "$T/said")" \
		"threadfs: warning: the data root $T/his is another user's, who can read and change all that is in it"
	as "$US" "$THREADFS" unmount "$M"
	same "$(data_of_mount "$US" -o "data=$T/roots")" "$T/roots"
	same "$(cat "$T/said")" ""
	as "$US" "$THREADFS" unmount "$M"
	# root is not, and his sandboxes run as the owner of a thread's files
	chown -R 0:0 "$T/run"
	as "$HIM" mkdir -p "$T/his/users/default/threads/demo/user-data/outputs"
	same "$(data_of_mount 0 -o "data=$T/his")" "$T/his"
	same "$(cat "$T/said")" ""
	echo x >"$M/threads/demo/outputs/f"
	same "$(stat -c %u "$T/his/users/default/threads/demo/user-data/outputs/f")" "$HIM"
	"$THREADFS" unmount "$M"
}

# Not in a sticky directory: there the kernel may refuse before we do (fs.protected_symlinks).
@test "a log that is another's link is refused, one that is ours or root's is followed" {
	install -d -m 0777 "$T/open"
	as "$US" sh -c "echo precious >'$T/mine'; ln -s '$T/mine' '$T/open/ours'"
	as "$HIM" ln -s "$T/mine" "$T/open/his"
	as "$HIM" ln -s "$T/new" "$T/open/nowhere"
	ln -s /dev/null "$T/open/roots"
	M=$T/m
	for what in his nowhere; do
		run as "$US" "$THREADFS" mount -o "data=$T/data,cache=$T/cache,log=$T/open/$what" "$M"
		[ "$status" = 1 ]
		[[ $output == *"cannot open the log $T/open/$what: it is not a link of yours" ]]
		not_mounted "$M"
	done
	same "$(cat "$T/mine")" precious
	[ ! -e "$T/new" ]
	for what in ours roots; do
		as "$US" "$THREADFS" mount -o "data=$T/data,cache=$T/cache,log=$T/open/$what" "$M" 3>&-
		is_mounted "$M"
		as "$US" "$THREADFS" unmount "$M"
	done
}

@test "links planted in our runtime directory lead nobody out of it" {
	local id

	as "$US" mkdir -m 0700 "$T/run/threadfs"
	mkdir -m 0700 "$T/victim"
	echo precious >"$T/victim/pid"
	chown -R "$US" "$T/victim"
	mount_ours
	as "$US" mkdir "$M/threads/demo"
	id=$(as "$US" jq -r .sandbox "$M/threads/demo/.ctl/status.json")
	[ -d "$T/run/threadfs/$id" ] || id=$(find "$T/run/threadfs" -name sock -printf '%h\n' | xargs basename)
	as "$US" sh -c "echo 1 >'$M/threads/demo/.ctl/destroy'"
	wait_until test ! -e "$T/run/threadfs/$id"
	as "$US" ln -s "$T/victim" "$T/run/threadfs/$id"
	refute as "$US" cat "$M/threads/demo/outputs/x"
	same "$(cat "$T/victim/pid")" precious
	same "$(ls "$T/victim")" pid
	rm "$T/run/threadfs/$id"
	wait_until as "$US" ls "$M/threads/demo/outputs"
	expect_errors
	as "$US" "$THREADFS" unmount "$M"
	mount_ended
}

@test "what is staged has no name, and others' sandboxes cannot be named" {
	mount_ours
	as "$US" mkdir "$M/threads/demo"
	# nor once it is written down: then it has one that nobody can guess
	as "$US" "$PYTHON" -c "
import os, re, time
uuid = re.compile('[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}')

def names():
    return {os.path.join(d, n) for d, _, files in os.walk('$T/cache') for n in files}

before = names()
f = open('$M/threads/demo/outputs/big', 'wb'); f.write(os.urandom(3000000)); f.flush()
new = set()
until = time.monotonic() + 60
while not new and time.monotonic() < until:
    new = names() - before
    time.sleep(0.02)
assert new
for path in new:
    assert uuid.fullmatch(os.path.basename(path)), path
    assert os.stat(path).st_mode & 0o077 == 0 and os.stat(os.path.dirname(path)).st_mode & 0o077 == 0, path
f.close()
while names() != before:
    assert time.monotonic() < until, names()
    time.sleep(0.02)"
	refute as "$HIM" "$THREADFS" status "$M"
	refute as "$HIM" "$THREADFS" exec "$M/threads/demo" -- id
	refute as "$HIM" "$THREADFS" unmount "$M"
	is_mounted "$M"
	as "$US" "$THREADFS" unmount "$M"
	mount_ended
}

# As in /tmp: whoever can make files there must not have them run by others.
@test "a stranger's threadfs-sandboxd beside the program is not run" {
	local owner mode

	M=$T/m
	mkdir -m 1777 "$T/public" "$T/ran"
	cp "$THREADFS" "$T/public/threadfs"
	printf '#!/bin/sh\n: >%s/ran/x\n' "$T" >"$T/public/threadfs-sandboxd"
	while read -r owner mode; do
		chown "$owner" "$T/public/threadfs-sandboxd"
		chmod "$mode" "$T/public/threadfs-sandboxd"
		run as "$US" env "PATH=$T/run" "$T/public/threadfs" mount -o "data=$T/data,isolation=none" "$M"
		echo "$owner $mode: $output"
		[ "$status" = 1 ]
		[[ ${lines[-1]} == *"was not found beside this program nor in PATH"* ]]
		not_mounted "$M"
	done <<-END
		$HIM 0755
		0 0757
		$US 0757
	END
	# that of the program's owner is
	chown 0 "$T/public/threadfs-sandboxd"
	chmod 0755 "$T/public/threadfs-sandboxd"
	as "$US" "$T/public/threadfs" mount -o "data=$T/data,isolation=none" "$M" 3>&-
	[ ! -e "$T/ran/x" ]
	refute as "$US" ls "$M/threads/demo/outputs"
	refute as "$US" sh -c "mkdir '$M/threads/demo' && ls '$M/threads/demo/outputs'"
	[ -e "$T/ran/x" ]
}

# slowly CMD…: each umount2(2) of it waits, after it is in $T/trace. A leak checker would trace as
# well, and there can be only one who does.
slowly() {
	ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0 strace -f -o "$T/trace" -e trace=umount2 -e inject=umount2:delay_enter=2s -e signal=none "$@"
}

# swap: what he does in that moment with his directory, in which root's mount is.
swap() {
	wait_until grep -q umount2 "$T/trace"
	as "$HIM" mv "$T/his/p" "$T/his/away"
	as "$HIM" ln -s "$T/other" "$T/his/p"
}

# taken_away HOW: root's mount, while that happens; the other one stays.
taken_away() {
	local pid unmount=("$THREADFS" unmount "$M")

	"${RUN[@]}" "$THREADFS" mount -f "${MOUNT_ARGS[@]}" >"$T/out" 2>&1 </dev/null 3>&- &
	MOUNT_PID=$!
	MOUNT_PIDS+=("$MOUNT_PID")
	wait_until is_mounted "$M"
	wait_until test -e "$M/README"
	pid=$(jq .pid "$M/.ctl/status.json")
	case $1 in
	unmount) spawn slowly "${unmount[@]}" ;;
	lazily) spawn slowly "${unmount[@]}" -l ;;
	*) kill "-$1" "$pid" ;;
	esac
	swap
	wait_until pid_gone "$pid"
	wait "$MOUNT_PID" || [ "$1" = KILL ]
	wait_until not_mounted "$T/his/away/m"
	not_mounted "$M"
	is_mounted "$T/other/m"
	rm "$T/his/p" "$T/trace"
	mv "$T/his/away" "$T/his/p"
}

@test "no mount is taken away through a link" {
	local how

	command -v strace >/dev/null || skip "needs strace, to have the moment last"
	chown -R 0:0 "$T"
	mkdir -p "$T/other/m" "$T/his"
	chown "$HIM" "$T/his"
	mount -t tmpfs threadfs-test "$T/other/m"
	MOUNTS+=("$T/other/m" "$T/his/away/m") # for teardown
	MOUNT_NAME=his/p/m mount_prepare_
	chown "$HIM" "$T/his/p"
	for how in TERM KILL unmount lazily; do
		echo "$how"
		RUN=()
		[[ $how = [a-z]* ]] || RUN=(slowly)
		taken_away "$how"
	done
	MOUNT_PID=
	umount "$T/other/m"
}
