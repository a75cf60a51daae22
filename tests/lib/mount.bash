# shellcheck shell=bash
#
# Helpers for bats tests that use a real mount. What belongs to a test lies in its
# own directory $T, also what the program and the tools would look for in $HOME.
#
#	load ../lib/mount
#	setup()    { setup_mount; thread; }
#	teardown() { teardown_mount; }
#	@test "…"  { cp "$T/x" uploads/; sandbox 'cat uploads/x'; }
#
# Call the functions directly, not in $( ) or under `run`: they set variables.
# Those of sandboxd.bash are here, too (wait_until, refute, …).
#
# Environment:
#	THREADFS  the program (default: build/threadfs of this tree)
#	DIALECT   what embedded sandboxes and url_mount behave like (default: aiod)
#	SANITIZED set if everything is slow
#
# Variables set here:
#	T           the test's own directory
#	M           the mountpoint, DATA CACHE LOG: what the mount uses
#	MOUNT_PID   the program, in the foreground; empty after mount_detached
#	W           the directory of the thread made last

# shellcheck source=tests/lib/sandboxd.bash
. "${BASH_SOURCE[0]%/*}/sandboxd.bash"

THREADFS=${THREADFS:-$SANDBOXD_ROOT/build/threadfs}
DIALECT=${DIALECT:-aiod}
# The system's own where there is one: a version manager's takes longer to start.
PYTHON=$(command -v /usr/bin/python3 || command -v python3)

# mount_setup: makes $T and what teardown_mount goes by. setup_mount does it; a test
# that mounts with options of its own calls this in setup.
mount_setup() {
	local name

	[ -x "$THREADFS" ] || { echo "no program at $THREADFS" >&2; return 1; }
	sandboxd_setup || return 1
	MOUNTS=()
	SPAWNED=()
	MOUNT_PIDS=()
	MOUNT_PID=
	ERRORS_OK='^$'
	for name in ${!THREADFS_*}; do
		unset "$name"
	done
	mkdir -p "$T/home" "$T/run"
	chmod 0700 "$T/run"
	export HOME=$T/home XDG_RUNTIME_DIR=$T/run XDG_STATE_HOME=$T/home/state
	export XDG_CACHE_HOME=$T/home/cache XDG_CONFIG_HOME=$T/home/config
	unset XDG_DATA_HOME
}

# setup_mount [SOURCE] [-o OPTIONS]…: a directory and a mount. To be called first in setup.
setup_mount() {
	mount_setup && mount_start "$@"
}

# mount_prepare_ [SOURCE] [-o OPTIONS]…: sets the variables and MOUNT_ARGS.
mount_prepare_() {
	local name=${MOUNT_NAME:-m} options source=

	if [ $# -gt 0 ] && [[ $1 != -* ]]; then
		source=$1
		shift
	fi
	M=$T/$name
	DATA=$T/data
	CACHE=$T/cache
	LOG=$T/$name.log
	options=data=$DATA,cache=$CACHE,log=$LOG
	[[ -n $source && $source != embedded: ]] || options+=,dialect=$DIALECT
	mkdir -p "$M"
	MOUNTS+=("$M")
	MOUNT_ARGS=(-o "$options" "$@" ${source:+"$source"} "$M")
}

# mount_start [SOURCE] [-o OPTIONS]…: mounts at $M and waits until it answers; SOURCE
# is embedded: by default. After mount_stop it mounts the same again. A second one
# beside it has its own name: MOUNT_NAME=b mount_start.
mount_start() {
	mount_prepare_ "$@"
	# fd 3 is how bats talks to itself; a process that keeps it hangs bats.
	"$THREADFS" mount -f "${MOUNT_ARGS[@]}" >"$M.out" 2>&1 </dev/null 3>&- &
	MOUNT_PID=$!
	MOUNT_PIDS+=("$MOUNT_PID")
	wait_for $((30 * SLOW)) mounted_or_gone_ || return 1
	if ! is_mounted "$M"; then
		echo "threadfs mount failed: $(cat "$M.out")" >&2
		return 1
	fi
	stat "$M/README" >/dev/null
}

# mount_detached [SOURCE] [-o OPTIONS]…: the same as users do it, without -f.
mount_detached() {
	mount_prepare_ "$@"
	MOUNT_PID=
	"$THREADFS" mount "${MOUNT_ARGS[@]}" 3>&-
}

# url_mount [-o OPTIONS]…: a mount of one sandbox by its URL: one that is started here,
# in the dialect, with its data in $T/url.data. Its thread is `default`.
url_mount() {
	local url

	SANDBOXD_NAME=url sandboxd_start --listen 127.0.0.1:0 --dialect "$DIALECT" || return 1
	url=$(sed -n 's/.*: ready on \([^ ]*\) .*/\1/p' "$SANDBOXD_OUT")
	mount_start "http://${url#http://}" "$@"
	W=$M/threads/default
}

# proxy_start: such a sandbox behind a proxy, which can be told not to be helpful; at $PROXY_URL.
proxy_start() {
	local port

	SANDBOXD_NAME=url sandboxd_start --listen 127.0.0.1:0 --dialect "$DIALECT" || return 1
	port=$(sed -n 's/.*: ready on [^ ]*:\([0-9]*\) .*/\1/p' "$SANDBOXD_OUT")
	spawn "$PYTHON" "${BASH_SOURCE[0]%/*}/stallproxy.py" "$port" "$T/proxy.sock" >"$T/proxy.port"
	wait_until test -s "$T/proxy.port" || return 1
	PROXY_URL=http://127.0.0.1:$(cat "$T/proxy.port")
}

# proxy_mount [-o OPTIONS]…: a mount of it.
proxy_mount() {
	proxy_start || return 1
	mount_start "$PROXY_URL" "$@"
	W=$M/threads/default
}

# proxy STATE: one of stallproxy.py's.
proxy() {
	# -I: it does not look at the directory it is in.
	"$PYTHON" -I - "$T/proxy.sock" "$1" <<-'PY'
		import socket, sys
		s = socket.socket(socket.AF_UNIX)
		s.connect(sys.argv[1])
		s.sendall(sys.argv[2].encode() + b"\n")
		assert s.recv(100) == b"done\n"
	PY
}

# is_mounted DIR: without asking the filesystem, which may not answer.
is_mounted() {
	local all dir

	# In one go: read seeks back after each line, and what comes and goes meanwhile shifts them.
	all=$(</proc/self/mountinfo)
	while read -r _ _ _ _ dir _; do
		[ "$dir" != "$1" ] || return 0
	done <<<"$all"
	return 1
}

not_mounted() {
	! is_mounted "$1"
}

mounted_or_gone_() {
	is_mounted "$M" || pid_gone "$MOUNT_PID"
}

# thread [ID]: makes the thread, $W, and goes there.
thread() {
	W=$M/threads/${1:-demo}
	mkdir "$W" && cd "$W" || return 1
}

# stop_sandbox, cont_sandbox: the server of the thread that is the working directory stands
# still ($STOPPED, for the test's teardown), and goes on.
stop_sandbox() {
	STOPPED=$(server_of "$(jq .pid .ctl/status.json)")
	[ -n "$STOPPED" ]
	kill -STOP "$STOPPED"
}

cont_sandbox() {
	kill -CONT "$STOPPED"
	STOPPED=
}

# sandbox COMMAND: runs it in the sandbox of $W by its .ctl/exec, and prints its
# output. Fails as the command does.
sandbox() {
	local code

	printf '%s\n' "$1" >"$W/.ctl/exec" || return 255
	cat "$W/.ctl/exec" || return 255
	code=$(cat "$W/.ctl/exit_code") || return 255
	return "${code:-254}"
}

# waiting N: so many requests wait for something in the mount.
waiting() {
	[ "$(jq .totals.waiting "$M/.ctl/status.json")" -ge "$1" ]
}

# watched: the sandbox of $W tells of changes; no_watch: it cannot (1.0); watch_settled: one of both.
watched() {
	grep -q '^watch *live' "$W/.ctl/status"
}

no_watch() {
	grep -q '^watch *unsupported' "$W/.ctl/status"
}

watch_settled() {
	watched || no_watch
}

# settled: all that sandboxes have to tell so far has been told: nothing comes for a while.
settled() {
	local before=-1 now

	while now=$(awk '$1 == "threadfs_watch_events_total" { print $2 }' "$M/.ctl/metrics") &&
		[ "$now" != "$before" ]; do
		before=$now
		sleep 0.5
	done
}

# spawn CMD…: in the background, and ended by teardown if it still runs; sets SPAWN_PID.
spawn() {
	"$@" 3>&- &
	SPAWN_PID=$!
	SPAWNED+=("$SPAWN_PID")
}

# expect_errors [REGEX]: lines of the log at error level that match are in order.
# Reports of sanitizers never are.
expect_errors() {
	ERRORS_OK=${1:-.}
}

# fuse_open_to_all: everybody may use /dev/fuse, where root alone may; for setup_file. Not two files
# at a time: teardown_file restores it with fuse_restore.
fuse_open_to_all() {
	[ "$(id -u)" = 0 ] || return 0
	stat -c %a /dev/fuse >"$BATS_FILE_TMPDIR/mode"
	chmod 0666 /dev/fuse
}

fuse_restore() {
	[ ! -s "$BATS_FILE_TMPDIR/mode" ] || chmod "$(cat "$BATS_FILE_TMPDIR/mode")" /dev/fuse
}

# harmless FILE…: there is nothing in them that a terminal obeys.
harmless() {
	LC_ALL=C refute grep -lP '[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]' "$@"
}

# mount_stop: unmounts $M and requires that the program ends by itself, with 0, that
# nothing of it is left and that its log is clean.
mount_stop() {
	cd / || return 1
	# It does not wait for ever; mount_ended waits longer.
	"$THREADFS" unmount "$M" || not_mounted "$M" || return 1
	mount_ended
}

# mount_ended: what mount_stop requires, of a mount that ended in another way.
mount_ended() {
	local rc=0 left

	wait_for $((20 * SLOW)) not_mounted "$M" || return 1
	if [ -n "$MOUNT_PID" ]; then
		wait_for $((30 * SLOW)) pid_gone "$MOUNT_PID" || return 1
		wait "$MOUNT_PID" || rc=$?
		if [ "$rc" != 0 ]; then
			echo "threadfs ended with status $rc" >&2
			mount_log_clean || true # for what it says
			return 1
		fi
	else
		wait_for $((30 * SLOW)) no_process_ "$M" || return 1
	fi
	MOUNT_PID=
	if [ "${MOUNT_NAME:-m}" = m ]; then # a second one may share them
		# Those that were killed end when the kernel gets there.
		if ! wait_for $((20 * SLOW)) no_sandbox_process_ 2>/dev/null; then
			left=$(sandbox_processes_)
			echo "of its sandboxes are left:" >&2
			ps -o pid=,args= -p "$(paste -sd, <<<"$left")" >&2
			return 1
		fi
	fi
	mount_log_clean
}

no_process_() {
	! pgrep -f -- "$1( |\$)" >/dev/null
}

# Processes that see something of $T as a mount of their own: those inside of
# sandboxes, whatever they did to their parents and names. That of url_mount is not
# the mount's to end.
sandbox_processes_() {
	local file

	# Not the mount itself, of which others' namespaces may have a copy.
	for file in $(grep -ls -- "${T##*/}/" /proc/[0-9]*/mountinfo); do
		awk -v dir="/${T##*/}/data/" 'index($4, dir) { found = 1 } END { exit !found }' \
			"$file" 2>/dev/null || continue
		file=${file#/proc/}
		echo "${file%/mountinfo}"
	done
}

no_sandbox_process_() {
	[ -z "$(sandbox_processes_)" ]
}

# mount_log_clean: fails when the log has lines at error level that nobody expects,
# or anything has a sanitizer's report, of which it shows the beginning.
mount_log_clean() {
	local bad file files=("$LOG" "$M.out")

	[ ! -d "$DATA/logs" ] || files+=("$DATA"/logs/*)
	bad=$(grep -sE 'Sanitizer|runtime error|[Aa]ssertion' "${files[@]}"
		grep -shE '^([0-9TZ.:-]+ )?threadfs: error:' "$LOG" "$M.out" | grep -vE -- "$ERRORS_OK") || true
	[ -n "$bad" ] || return 0
	echo "suspicious lines in the log: $bad" >&2
	for file in "${files[@]}"; do
		grep -sE -A 40 'Sanitizer:|runtime error' "$file" | head -n 60 | cut -c 1-500 >&2
	done
	return 1
}

# teardown_mount: unmounts what is still mounted and requires a clean end; after a test
# that failed it only sees to it that nothing is left, and shows the logs' ends.
teardown_mount() {
	local failed=0 file

	cd /
	[ -n "${T:-}" ] || return 0
	mount_end_spawned_
	if [ -n "${BATS_TEST_COMPLETED:-}" ] && [ -n "${M:-}" ] && is_mounted "$M"; then
		mount_stop || failed=1
	fi
	mount_clean_ || failed=1
	if [ "$failed" = 1 ] || [ -z "${BATS_TEST_COMPLETED:-}" ]; then
		for file in "$T"/*.out "$T"/*.log "$T"/data/logs/*; do
			[ -s "$file" ] && tail -n 40 "$file" | cut -c 1-500 | sed "s|^|${file##*/}: |"
		done
	fi
	sandboxd_teardown >/dev/null
	return "$failed"
}

mount_end_spawned_() {
	local pid

	for pid in "${SPAWNED[@]}"; do
		child_gone "$pid" && continue
		kill -TERM "$pid" 2>/dev/null || continue
		wait_for 3 child_gone "$pid" 2>/dev/null || kill -KILL "$pid" 2>/dev/null
		wait "$pid" 2>/dev/null || true
	done
}

# It runs, and is what the test started and not somebody else with the same number.
is_of_test_() {
	grep -qsF -- "$T/" "/proc/$1/cmdline" && ! pid_gone "$1"
}

# Ends by force what did not end by itself; fails if there was anything after a test
# that passed.
mount_clean_() {
	local dir pid left=()

	for dir in "${MOUNTS[@]}"; do
		is_mounted "$dir" || continue
		left+=("mount $dir")
		timeout 10 "$THREADFS" unmount "$dir" >/dev/null 2>&1 || umount -l "$dir" 2>/dev/null ||
			fusermount3 -uz "$dir"
	done
	for pid in "${MOUNT_PIDS[@]}" $(pgrep -f -- "threadfs mount.*$T/"); do
		is_of_test_ "$pid" || continue
		wait_for 5 pid_gone "$pid" 2>/dev/null && continue
		is_of_test_ "$pid" || continue
		left+=("$(ps -o pid=,args= -p "$pid")")
		kill -TERM "$pid" 2>/dev/null
		wait_for 5 pid_gone "$pid" 2>/dev/null || kill -KILL "$pid" 2>/dev/null
	done
	while read -r pid; do
		left+=("sandbox $pid")
		kill -TERM "$pid" 2>/dev/null
		wait_for 5 pid_gone "$pid" 2>/dev/null || kill -KILL "$pid" 2>/dev/null
	done < <(pgrep -f -- "threadfs-sandboxd.*$T/(run|data)/")
	for pid in $(sandbox_processes_); do
		left+=("process $pid in a sandbox")
		kill -KILL "$pid" 2>/dev/null
	done
	for dir in "${MOUNTS[@]}"; do
		# So that what removes $T never gets into a mount.
		is_mounted "$dir" && umount -l "$dir"
	done
	[ ${#left[@]} -eq 0 ] || [ -z "${BATS_TEST_COMPLETED:-}" ] && return 0
	printf 'left behind: %s\n' "${left[@]}" >&2
	return 1
}

# errno_of CALL ARGS…: the name of the errno with which os.CALL of python fails, or ok.
# Arguments are paths, but O_… flags (joined with |) and =NUMBER. Not by message: they
# differ by tool.
errno_of() {
	"$PYTHON" -I -S -c '
import errno, os, re, sys
def value(a):
    if re.match(rb"O_[A-Z]+", a):
        return sum(getattr(os, f) for f in a.decode().split("|"))
    return int(a[1:], 0) if a[:1] == b"=" else a
try:
    getattr(os, sys.argv[1])(*(value(os.fsencode(a)) for a in sys.argv[2:]))
    print("ok")
except OSError as e:
    print(errno.errorcode[e.errno])
' "$@"
}

# is ERRNO CALL ARGS…: that is what errno_of says.
is() {
	local want=$1 got

	shift
	got=$(errno_of "$@")
	[ "$got" = "$want" ] && return
	echo "$*: $got instead of $want" >&2
	return 1
}

# said_nothing: what was run had no output, unless that an end takes its time on a busy machine.
said_nothing() {
	! grep -vF 'waiting for its daemon to end' <<<"${output-}" | grep -q .
}

# same A B: both strings are equal.
same() {
	[ "$1" = "$2" ] && return
	printf 'got:  %q\nwant: %q\n' "$1" "$2" >&2
	return 1
}
