#!/usr/bin/env bats
# A sandbox that is known not to answer: operations fail at once with ENOTCONN and without
# a request, it is asked in the background, and when it answers again everything goes on.
# One that is dead for certain is no such sandbox: it is replaced.

load ../lib/mount

setup() {
	mount_setup
	STOPPED=
}

teardown() {
	[ -z "$STOPPED" ] || kill -CONT "$STOPPED" 2>/dev/null || true
	cd /
	teardown_mount
}

# says ERRNO PATH: that is what mkdir says, which needs the sandbox whatever is cached.
says() {
	local said

	said=$("$PYTHON" "$BATS_TEST_DIRNAME/../lib/op.py" mkdir "$2")
	[ "$said" = "$1" ] || { echo "$2: $said, not $1"; return 1; }
}

# breaker FILTER: of the only thread, by jq; never waits for a sandbox.
breaker() {
	jq -r ".threads[0].breaker$1" "$M/.ctl/status.json"
}

breaker_is() {
	[ "$(breaker .state)" = "$1" ]
}

# Requests to the sandbox other than probes, and than those of the watch, which has pauses of its
# own; from one moment.
requests() {
	awk '/^threadfs_sandbox_request_duration_seconds_count/ && !/request="watch"/ { n += $NF }
	     /^threadfs_thread_breaker_probes_total/ { n -= $NF }
	     END { print n + 0 }' "$M/.ctl/metrics"
}

# Nothing is asked of it for so many operations; those that fail are refused at once.
refuses() {
	local before refused i

	before=$(requests)
	refused=$(breaker .refused)
	for i in $(seq "$1"); do
		says ENOTCONN "outputs/unknown$i"
	done
	# A probe counts as a request when it ends.
	[ "$(requests)" -le $((before + 1)) ]
	[ "$(breaker .refused)" -ge $((refused + $1)) ]
}

pending() {
	[ "$(jq .totals.pending_files "$M/.ctl/status.json")" = "$1" ]
}

asked_since() {
	[ "$(breaker .probes)" -gt "$1" ]
}

# lines TEXT N: so often, and no more, it is in the log.
lines() {
	[ "$(grep -c "$1" "$LOG")" = "$2" ]
}

# Stops the sandbox, until that is known.
stop_until_known() {
	sandbox true
	stop_sandbox
	says ETIMEDOUT outputs/unknown
	wait_until breaker_is open
}

@test "refused connections: known once, asked in the background, back by itself" {
	local fd probed

	proxy_mount
	cd "$W"
	exec {fd}>outputs/kept
	sandbox true # nothing that is cached counts
	breaker_is closed
	proxy refuse
	# The default timeout is 30 s: nobody waits for that.
	says ENOTCONN outputs/unknown
	breaker_is open
	refuses 30
	breaker_is open
	[ "$(breaker .opened)" = 1 ]
	[ "$(breaker .since)" != null ]
	jq -e '.threads[0].last_error.errno == "ENOTCONN"' "$M/.ctl/status.json"
	"$THREADFS" status "$M" | grep -q '^default  *no-answer '
	grep -q '^threadfs_thread_breaker_open{thread="default",user="default"} 1$' "$M/.ctl/metrics"
	lines 'does not answer' 1

	# what is written meanwhile is kept, and goes up when it is back: nobody else asks
	echo precious >&"$fd"
	exec {fd}>&- # bash does not tell
	pending 1
	probed=$(breaker .probes)
	wait_until asked_since "$probed"
	proxy forward
	wait_until breaker_is closed
	wait_until pending 0
	[ "$(cat "$T/url.data/outputs/kept")" = precious ]
	[ "$(cat outputs/kept)" = precious ]
	lines 'does not answer' 1
	lines 'answers again' 1
	expect_errors
}

@test "SIGSTOP: ETIMEDOUT at the deadline, then at once; the same sandbox goes on" {
	mount_start -o timeout=5
	thread
	echo old >outputs/f
	stop_until_known
	refuses 30
	cont_sandbox
	wait_until breaker_is closed
	[ "$(cat outputs/f)" = old ]
	[ "$(jq .restarts .ctl/status.json)" = 0 ]
	lines 'does not answer' 1
	lines 'answers again' 1
	expect_errors
}

@test "one that dies while it is known not to answer is replaced" {
	mount_start -o timeout=5
	thread
	echo old >outputs/f
	stop_until_known
	kill -KILL "$STOPPED"
	STOPPED=
	wait_until grep -qsx old outputs/f
	[ "$(jq .restarts .ctl/status.json)" = 1 ]
	breaker_is closed
	lines 'answers again' 0
	expect_errors
}

@test "one that is killed is replaced by the next operation, and never known not to answer" {
	local i

	mount_start
	thread
	echo old >outputs/f
	for i in 1 2 3; do
		sandbox true
		kill_sandbox "$(jq .pid .ctl/status.json)"
		[ "$(cat outputs/f)" = old ]
	done
	[ "$(jq .restarts .ctl/status.json)" = 3 ]
	[ "$(breaker .opened)" = 0 ]
	[ "$(breaker .refused)" = 0 ]
	expect_errors
}

@test "the same without auto_restart, and unmounting meanwhile" {
	mount_start -o timeout=5,auto_restart=false
	thread
	echo old >outputs/f
	stop_until_known
	refuses 3
	cont_sandbox
	wait_until breaker_is closed
	[ "$(cat outputs/f)" = old ]
	stop_until_known
	cd /
	expect_errors
	mount_stop
}
