# shellcheck shell=bash
#
# Helpers for bats tests that talk to a real threadfs-sandboxd over its socket.
#
#	load ../lib/sandboxd
#	setup()    { sandboxd_setup; }
#	teardown() { sandboxd_teardown; }
#	@test "…"  { sandboxd_start --isolation none; bash_exec 'echo hi'; [ "$STDOUT" = hi ]; sandboxd_stop; }
#
# Call the functions directly, not in $( ) or under `run`: they set variables.
#
# Environment:
#	SANDBOXD       the program (default: build/threadfs-sandboxd of this tree)
#	SANDBOXD_ARGS  more arguments for every start, split at blanks
#
# Variables set here:
#	T      the test's own directory, mode 0755, removed by sandboxd_teardown
#	SANDBOXD_PID SOCK DATA SANDBOXD_LOG SANDBOXD_OUT   of the sandbox started last
#	BODY HTTP      of the last api call
#	STDOUT         of the last bash_exec

SANDBOXD_ROOT=$(cd "${BASH_SOURCE[0]%/*}/../.." && pwd)
SANDBOXD=${SANDBOXD:-$SANDBOXD_ROOT/build/threadfs-sandboxd}
SLOW=$((${SANITIZED:+4} + 1)) # waits are so many times longer

# sandboxd_setup: makes $T and the bookkeeping of what teardown has to end.
# To be called first in setup, before anything is started.
sandboxd_setup() {
	[ -x "$SANDBOXD" ] || { echo "no program at $SANDBOXD" >&2; return 1; }
	# Not below BATS_TEST_TMPDIR: an unprivileged user could not get there,
	# and a socket's path has to be short.
	T=$(mktemp -d /tmp/sbd.XXXXXX)
	chmod 0755 "$T"
	SANDBOXD_PIDS=()
	SANDBOXD_PID=
	unset CURL_TARGET API_KEY
}

# programs_for_all: an ordinary user has to get at the programs. If they are in somebody's home, where he
# may not go, $T has copies of them from now on.
programs_for_all() {
	local dir=${SANDBOXD%/*} program

	setpriv --reuid=65534 --regid=65534 --clear-groups test -x "$SANDBOXD" && return
	mkdir "$T/bin"
	for program in threadfs threadfs-sandboxd threadfs-sandboxd-server; do
		cp "$dir/$program" "$T/bin/"
	done
	SANDBOXD=$T/bin/threadfs-sandboxd
	# shellcheck disable=SC2034 # for mount.bash
	THREADFS=$T/bin/threadfs
}

# sandboxd_teardown: ends what is still running, kindly and then not, prints the
# logs (bats shows them when the test failed) and removes $T.
sandboxd_teardown() {
	local pid f

	for pid in "${SANDBOXD_PIDS[@]}"; do
		child_gone "$pid" && continue
		kill -TERM "$pid" 2>/dev/null || continue
		wait_for 3 child_gone "$pid" || kill -KILL "$pid" 2>/dev/null || true
		wait "$pid" 2>/dev/null || true
	done
	for f in "$T"/*.log; do
		[ -s "$f" ] && sed "s|^|${f##*/}: |" "$f"
	done
	[ -n "$T" ] && rm -rf "$T"
	return 0
}

# wait_for SECONDS CMD…: runs CMD every 20 ms until it succeeds; fails (with a
# word on stderr) when it never did.
wait_for() {
	local seconds=$1 end tick="" failed=0

	shift
	end=$((${EPOCHREALTIME/[.,]/} + seconds * 1000000))
	until "$@"; do
		if [ "${EPOCHREALTIME/[.,]/}" -ge "$end" ]; then
			echo "not within $seconds s: $*" >&2
			failed=1
			break
		fi
		# Nothing ever comes there: as sleep(1), which is one more process each time. One of
		# <( ) would change the caller's $!.
		[ -n "$tick" ] || exec {tick}<>/dev/udp/127.0.0.1/9
		read -rt 0.02 -u "$tick" _ || true
	done
	[ -z "$tick" ] || exec {tick}>&-
	return "$failed"
}

# wait_until CMD…: the same with 30 seconds, which only a test that fails needs.
# Redirections belong into a function or `bash -c`.
wait_until() {
	wait_for $((30 * SLOW)) "$@"
}

# pid_gone PID: true once there is no such process (zombies count as gone).
pid_gone() {
	local stat

	[ -n "$1" ] && read -r stat 2>/dev/null <"/proc/$1/stat" || return 0
	[[ ${stat##*) } == [ZX]* ]]
}

# child_gone PID: as pid_gone, for what this shell started: also if the number is somebody else's by
# now. Whoever ends processes has to ask before: on a busy machine numbers come again soon.
child_gone() {
	local stat

	[ -n "$1" ] && read -r stat 2>/dev/null <"/proc/$1/stat" || return 0
	[[ ${stat##*) } != [!ZX]" $BASHPID "* ]]
}

# sandboxd_launch [ARGS…]: starts the program in the background without waiting.
# The variables are the ones sandboxd_start documents.
sandboxd_launch() {
	local name=${SANDBOXD_NAME:-sb} as=() arg own_listen=0 own_data=0 args=()

	SOCK=$T/$name.run/sock
	DATA=$T/$name.data
	SANDBOXD_LOG=$T/$name.log
	SANDBOXD_OUT=$T/$name.out
	for arg in "$@"; do
		case $arg in
		--socket | --socket=* | --listen | --listen=*) own_listen=1 ;;
		--data | --data=*) own_data=1 ;;
		esac
	done
	mkdir -p "$T/$name.run"
	chmod 0700 "$T/$name.run"
	[ "$own_data" = 1 ] || mkdir -p "$DATA"
	if [ -n "${SANDBOXD_AS:-}" ]; then
		programs_for_all
		chown "$SANDBOXD_AS:$SANDBOXD_AS" "$T/$name.run"
		[ "$own_data" = 1 ] || chown "$SANDBOXD_AS:$SANDBOXD_AS" "$DATA"
		as=(setpriv --reuid="$SANDBOXD_AS" --regid="$SANDBOXD_AS" --clear-groups)
	fi
	[ "$own_listen" = 1 ] || args+=(--socket "$SOCK")
	[ "$own_data" = 1 ] || args+=(--data "$DATA")
	# shellcheck disable=SC2206 # blanks separate
	args+=(${SANDBOXD_ARGS:-} "$@")
	# Now, not when the background shell gets there: an old ready line would be believed.
	: >"$SANDBOXD_OUT"
	: >"$SANDBOXD_LOG"
	# fd 3 is how bats talks to itself; a process that keeps it hangs bats.
	"${as[@]}" "$SANDBOXD" "${args[@]}" >"$SANDBOXD_OUT" 2>"$SANDBOXD_LOG" </dev/null 3>&- &
	SANDBOXD_PID=$!
	SANDBOXD_PIDS+=("$SANDBOXD_PID")
}

sandboxd_ready_or_gone_() {
	grep -q ': ready on ' "$SANDBOXD_OUT" || pid_gone "$SANDBOXD_PID"
}

# sandboxd_start [ARGS…]: starts a sandbox with its own socket ($SOCK) and data
# directory ($DATA), unless ARGS name others, and waits for its ready line.
# Sets SANDBOXD_PID SOCK DATA SANDBOXD_LOG SANDBOXD_OUT.
#	SANDBOXD_NAME=b   for a second sandbox in the same test (default: sb)
#	SANDBOXD_AS=UID   runs it as that user; socket and data directory are its
sandboxd_start() {
	sandboxd_launch "$@"
	wait_for 20 sandboxd_ready_or_gone_ || return 1
	if ! grep -q ': ready on ' "$SANDBOXD_OUT"; then
		echo "threadfs-sandboxd did not start: $(cat "$SANDBOXD_LOG")" >&2
		return 1
	fi
}

# sandboxd_stop [PID]: SIGTERM, at most 15 s, exit status 0, and nothing in the log
# that looks like an error or a sanitizer's report. A test that provokes error
# lines sets SANDBOXD_LOG_OK to an extended regular expression of those.
# shellcheck disable=SC2120 # the argument is for those with two sandboxes
sandboxd_stop() {
	local pid=${1:-$SANDBOXD_PID} rc=0

	kill -TERM "$pid" || return 1
	wait_for 15 pid_gone "$pid" || return 1
	wait "$pid" || rc=$?
	if [ "$rc" != 0 ]; then
		echo "threadfs-sandboxd ended with status $rc" >&2
		return 1
	fi
	sandboxd_log_clean
}

# server_of PID: the server in the sandbox of that process, which is a supervisor with bubblewrap
# in between.
server_of() {
	pgrep -P "$(pgrep -P "$1")"
}

# kill_sandbox PID: returns when its server is gone, too, which ends after the one who watches it.
kill_sandbox() {
	local server

	server=$(server_of "$1")
	kill -KILL "$1"
	wait_until pid_gone "$server"
}

# sandboxd_log_clean: fails when $SANDBOXD_LOG has suspicious lines.
sandboxd_log_clean() {
	local bad

	bad=$(grep -E 'ERROR|error:|Sanitizer|runtime error|[Aa]ssertion' "$SANDBOXD_LOG" |
		grep -vE "${SANDBOXD_LOG_OK:-^\$}") || return 0
	echo "suspicious lines in the log: $bad" >&2
	return 1
}

# curl_sb PATH [CURL ARGS…]: curl to the current sandbox; output as curl's own.
# CURL_TARGET=http://127.0.0.1:PORT talks TCP instead of $SOCK; API_KEY=… is sent.
curl_sb() {
	local path=$1 args=(--silent --show-error --max-time "${CURL_MAX_TIME:-$((60 * SLOW))}")

	shift
	[ -n "${CURL_TARGET:-}" ] || args+=(--unix-socket "$SOCK")
	[ -z "${API_KEY:-}" ] || args+=(-H "Authorization: Bearer $API_KEY")
	curl "${args[@]}" "$@" "${CURL_TARGET:-http://localhost}$path"
}

# api METHOD PATH [JSON [CURL ARGS…]]: sets BODY and HTTP (the status code; 000
# when there was no answer). Fails only when there was no answer.
api() {
	local method=$1 path=$2 json=${3-} args=() rc=0

	shift 2
	[ $# -eq 0 ] || shift
	[ -z "$json" ] || args+=(-H 'Content-Type: application/json' --data-binary "$json")
	[ "$method" = HEAD ] && args+=(--head) || args+=(-X "$method")
	HTTP=$(curl_sb "$path" "${args[@]}" -o "$T/body" -w '%{http_code}' "$@") || rc=$?
	{ BODY=$(<"$T/body"); } 2>/dev/null # bash complains of NUL, and drops it
	return $rc
}

# j EXPR [JQ ARGS…]: jq -er on BODY; fails when the result is false or null, and
# then shows BODY.
j() {
	jq -er "$@" <<<"$BODY" || {
		echo "jq $*: HTTP $HTTP: ${BODY:0:2000}" >&2
		return 1
	}
}

# bash_exec CMD [JSON OBJECT]: runs CMD with POST /v1/bash/exec (the object adds or
# replaces request fields), sets STDOUT; returns the command's exit status, or
# 255 when the server did not answer 200.
bash_exec() {
	local req extra=${2-}

	req=$(jq -n --arg c "$1" --argjson x "${extra:-{\}}" '{command: $c} + $x')
	api POST /v1/bash/exec "$req" || return 255
	if [ "$HTTP" != 200 ]; then
		echo "bash/exec: HTTP $HTTP: ${BODY:0:2000}" >&2
		return 255
	fi
	# shellcheck disable=SC2034 # for the caller
	STDOUT=$(jq -r '.data.stdout // ""' <<<"$BODY")
	return "$(jq -r '.data.exit_code // 254' <<<"$BODY")"
}

# expect STATUS [JQ-EXPR…]: the last api call ended with that HTTP status and every
# expression holds for its body. (In `a && b && c` bats does not see a or b fail.)
expect() {
	local want=$1 expr all=true

	shift
	if [ "$HTTP" != "$want" ]; then
		echo "HTTP $HTTP instead of $want: ${BODY:0:2000}" >&2
		return 1
	fi
	for expr in "$@"; do
		all+=" and last($expr)"
	done
	[ $# -eq 0 ] || ! jq -e "$all" <<<"$BODY" >/dev/null 2>&1 || return 0
	# One by one, to tell which.
	for expr in "$@"; do
		j "$expr" >/dev/null || return 1
	done
}

# refute CMD…: CMD fails. (A plain `! cmd` never fails a bats test.)
refute() {
	if "$@"; then
		echo "unexpectedly true: $*" >&2
		return 1
	fi
}

# each_user BODY [ARGS…]: runs BODY once with a sandbox that root started and once with an ordinary
# user's; when we are an ordinary user ourselves, only as that one. $WHO is
# the uid. The remaining arguments are the program's.
each_user() {
	local body=$1 uids=(self)

	shift
	[ "$(id -u)" = 0 ] && uids=(0 65534)
	for WHO in "${uids[@]}"; do
		echo "# sandbox of user $WHO"
		if [ "$WHO" = 65534 ]; then
			SANDBOXD_AS=$WHO SANDBOXD_NAME=u$WHO sandboxd_start "$@"
		else
			SANDBOXD_NAME=u$WHO sandboxd_start "$@"
		fi
		"$body"
		sandboxd_stop
	done
}

need_root() {
	[ "$(id -u)" = 0 ] || skip "needs root"
}

# in_sandbox CMD: its stdout and stderr in $STDOUT; the exit status is the command's.
in_sandbox() {
	bash_exec "exec 2>&1; $1"
}

# Fails unless CMD was run and failed inside.
refused() {
	local rc=0

	in_sandbox "$1" || rc=$?
	if [ "$rc" = 0 ] || [ "$rc" -ge 254 ]; then
		echo "status $rc inside: $1: $STDOUT" >&2
		return 1
	fi
}
