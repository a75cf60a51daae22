#!/usr/bin/env bats
# Who keeps a sandbox, and for how long: open files, the mount's own lease, the warm
# pool, its end. And what the status files tell of it.

load ../lib/mount

setup() {
	mount_setup
}

teardown() {
	exec 5>&- 6>&- 7>&-
	teardown_mount
}

# of THREAD EXPRESSION…: jq on what the mount says of a thread; false and null fail.
# From the mount's own file: to look must not be to use.
of() {
	local thread=$1

	shift
	jq -er --arg t "$thread" ".threads[] | select(.thread == \$t) | $1" "$M/.ctl/status.json"
}

# is THREAD EXPRESSION: it holds.
is() {
	of "$@" >/dev/null
}

# How many connections to that socket there are (03: connected).
connections() {
	awk -v path="$1" '$6 == "03" && $8 == path { n++ } END { print n + 0 }' /proc/net/unix
}

no_connection() {
	[ "$(connections "$1")" = 0 ]
}

socket_of() {
	of "$1" .url | sed s/^unix://
}

@test "leases rise with each open and fall with each close" {
	mount_start -o linger=60
	thread
	echo one >outputs/a
	echo two >outputs/b
	# what is fetched ahead and the watch's start have leases of their own, for moments
	wait_until is demo '.open_files == 0 and .leases == 1'
	exec 5<outputs/a
	wait_until is demo '.open_files == 1 and .leases == 2'
	exec 6<outputs/b
	wait_until is demo '.open_files == 2 and .leases == 3'
	exec 7>>outputs/b
	wait_until is demo '.open_files == 3 and .leases == 4'
	jq -e '.totals.open_files == 3' "$M/.ctl/status.json"
	exec 5<&-
	wait_until is demo '.open_files == 2 and .leases == 3'
	exec 6<&- 7>&-
	wait_until is demo '.open_files == 0 and .leases == 1'
	# the mount's own one
	echo 1 >.ctl/release
	wait_until is demo '.leases == 0 and .state == "warm"'
}

@test "a sandbox with an open file is neither parked nor stopped" {
	local pid

	mount_start -o linger=0.2,idle_timeout=0.5
	thread
	echo content >outputs/f
	exec 5<outputs/f
	pid=$(of demo .pid)
	echo 1 >.ctl/release
	wait_until is demo '.state == "active" and .leases == 1'
	# Another one, made later and not used, goes through all of it meanwhile.
	mkdir "$M/threads/idle"
	wait_until is idle '.state == "cold"'
	is demo ".state == \"active\" and .pid == $pid and .leases == 1"
	kill -0 "$pid"
	[ "$(cat <&5)" = content ]
	exec 5<&-
	wait_until is demo '.state == "cold"'
	pid_gone "$pid"
}

@test "unused it is warm, with no connection to it; used again it is the same one" {
	local pid socket

	mount_start -o linger=0.2,idle_timeout=0
	thread
	echo content >outputs/f
	exec 5<outputs/f
	socket=$(socket_of demo)
	[ -S "$socket" ]
	[ "$(connections "$socket")" -gt 0 ]
	pid=$(of demo .pid)
	exec 5<&-
	wait_until is demo '.state == "warm"'
	is demo '.leases == 0'
	wait_until no_connection "$socket"
	kill -0 "$pid"
	[ "$(cat outputs/f)" = content ]
	is demo ".pid == $pid and .starts == 1 and .restarts == 0"
}

@test "written to release gives it up at once, whoever lingers" {
	mount_start -o linger=600,idle_timeout=0
	thread
	ls -l >/dev/null
	wait_until is demo '.state == "active" and .leases == 1'
	# in a moment: to walk to .ctl is to look at the thread
	echo 1 >.ctl/release
	wait_until is demo '.state == "warm" and .leases == 0'
	wait_until no_connection "$(socket_of demo)"
	# again: nothing to give up, and no error
	echo 1 >.ctl/release
	wait_until is demo '.state == "warm"'
}

@test "looking at a thread's status neither starts nor keeps its sandbox" {
	local starts

	mount_start -o linger=0.2,idle_timeout=0.5
	thread
	cd "$M"
	wait_until is demo '.state == "cold"'
	starts=$(of demo .starts)
	cat threads/demo/.ctl/status threads/demo/.ctl/transfers threads/demo/.ctl/exit_code
	jq -e '.state == "cold" and .pid == null' threads/demo/.ctl/status.json
	ls threads .ctl/ threads/demo/.ctl threads/demo/.ctl/jobs
	df "$M"
	is demo ".state == \"cold\" and .starts == $starts"
	# one that was never used here
	mount_stop
	mount_start
	jq -e '.state == "cold" and .starts == 0' "$M/threads/demo/.ctl/status.json"
}

@test "an idle sandbox is stopped; the next use starts another with the same files" {
	local pid starts

	mount_start -o linger=0.1,idle_timeout=0.3
	thread
	# held while it is looked at: it may have been stopped before already
	exec 5>outputs/f
	echo content >&5
	pid=$(of demo .pid)
	starts=$(of demo .starts)
	exec 5>&-
	wait_until is demo '.state == "cold"'
	pid_gone "$pid"
	is demo '.pid == null and .leases == 0'
	exec 5<outputs/f
	is demo ".state == \"active\" and .pid != $pid and .starts == $((starts + 1)) and .restarts == 0"
	[ "$(cat <&5)" = content ]
}

@test "destroy stops it; the next use starts another with the same files" {
	local pid

	mount_start
	thread
	echo content >outputs/f
	pid=$(of demo .pid)
	echo 1 >.ctl/destroy
	pid_gone "$pid"
	is demo '.state == "cold" and .pid == null'
	[ "$(cat outputs/f)" = content ]
	is demo ".state == \"active\" and .pid != $pid"
	# what is not running can be stopped, too
	echo 1 >.ctl/destroy
	echo 1 >.ctl/destroy
	is demo '.state == "cold"'
	[ "$(cat outputs/f)" = content ]
}

@test "the oldest warm one makes room; active ones never do" {
	local pid

	mount_start -o replicas=2,idle_timeout=0
	thread a
	echo 1 >.ctl/release
	wait_until is a '.state == "warm"'
	thread b
	echo 1 >.ctl/release
	wait_until is b '.state == "warm"'
	thread c
	wait_until is a '.state == "cold"'
	is b '.state == "warm"'
	is c '.state == "active"'
	# both in use: the cap is soft
	pid=$(of c .pid)
	cat "$M/threads/b/.ctl/status" >/dev/null
	ls "$M/threads/b"
	thread d
	is b '.state == "active"'
	is c ".state == \"active\" and .pid == $pid"
	is d '.state == "active"'
}

@test "a second mount of the same data root shares threads and sandboxes" {
	local pid first=$T/m

	mount_start
	thread
	echo content >outputs/f
	pid=$(of demo .pid)
	MOUNT_NAME=b mount_start
	[ "$(ls "$M/threads")" = demo ]
	[ "$(cat "$M/threads/demo/outputs/f")" = content ]
	is demo ".pid == $pid and .ours == false"
	echo theirs >"$M/threads/demo/outputs/g"
	wait_until grep -q theirs "$first/threads/demo/outputs/g"
	# it leaves what it only found
	MOUNT_NAME=b mount_stop
	kill -0 "$pid"
	M=$first
	MOUNT_PID=${MOUNT_PIDS[0]}
	LOG=$T/m.log
	is demo ".pid == $pid and .ours == true"
	[ "$(cat "$M/threads/demo/outputs/f")" = content ]
}

@test "status.json of a thread has every field" {
	local file id

	id=$(printf %s alice:demo | sha256sum | cut -c 1-16)
	every_field() {
		jq -e --arg d "$DIALECT" --arg id "$id" '
			(.threads // [.])[0] |
			.thread == "demo" and .user == "alice" and .sandbox_id == $id and
			.state == "active" and .leases == 2 and .open_files == 1 and
			(.url | type == "string" and length > 0) and .backend == "embedded" and
			.dialect == $d and .restarts == 0 and
			(.watch | IN("live", "starting", "lost", "unsupported", "off")) and
			(.pid | type == "number" and . > 1) and
			has("last_error") and .last_error == null and
			(.created_at | sub("\\.[0-9]+Z$"; "Z") | fromdate) > (now - 600) and
			(.last_activity | sub("\\.[0-9]+Z$"; "Z") | fromdate) >= (now - 600)
		' "$1" >/dev/null
	}
	mount_start -o user=alice,linger=600
	thread
	echo x >outputs/f
	exec 5<outputs/f
	# a listing in the background has a lease, too, for a moment
	for file in .ctl/status.json "$M/.ctl/status.json"; do
		wait_until every_field "$file" || { cat "$file"; return 1; }
	done
	[[ "$(ps -o args= -p "$(jq .pid .ctl/status.json)")" == *threadfs-sandboxd* ]]
	grep -q '^thread  *demo$' .ctl/status
	wait_until grep -q '^demo  *active  *2  *1 ' "$M/.ctl/status"
}

@test "status.json of the mount has every field" {
	mount_start
	thread a
	thread b
	echo 1 >.ctl/destroy
	jq -e --argjson pid "$MOUNT_PID" --arg m "$M" '
		(.version | test("^[0-9]+\\.[0-9]+")) and .source == "embedded:" and
		.mountpoint == $m and .pid == $pid and
		(.uptime_s | type == "number" and . >= 0 and . < 600) and
		([.threads[].thread] == ["a", "b"]) and
		.totals.threads == 2 and .totals.states.active == 1 and .totals.states.cold == 1 and
		(.totals | .open_files == 0 and .requests > 0 and .waiting == 0)
	' "$M/.ctl/status.json"
	[[ "$("$THREADFS" --version)" == "threadfs $(jq -r .version "$M/.ctl/status.json")"* ]] # and the commit
	[[ "$(cat "$M/.ctl/status")" == *"2 threads"*"embedded: on $M"* ]]
}

@test "a dead sandbox is told: last_error, restarts" {
	local pid

	mount_start
	thread
	pid=$(of demo .pid)
	kill_sandbox "$pid"
	wait_until test -d workspace/
	touch outputs/again
	is demo ".state == \"active\" and .pid != $pid and .restarts == 1"
}

# job_is WORD: of the first command.
job_is() {
	[ "$(cat .ctl/jobs/1/status)" = "$1" ]
}

lost() {
	is demo '.last_error.errno'
}

@test "what was given up on purpose is no error; a new one is, with its age" {
	mount_start -o auto_restart=false
	thread
	# a command is lost with its sandbox
	echo '{"script": "sleep 600"}' >.ctl/run
	wait_until job_is running
	echo 1 >.ctl/destroy
	wait_until job_is lost
	grep -q "a command was lost" "$LOG"
	is demo '.state == "cold" and .last_error == null'
	grep -q '^demo  *cold .* -$' "$M/.ctl/status"
	touch outputs/again
	is demo '.last_error == null'
	kill_sandbox "$(of demo .pid)"
	refute mkdir outputs/d
	wait_until lost
	run "$THREADFS" status "$M"
	[ "$status" = 0 ]
	grep -qE '^demo .* E[A-Z]+ [0-9]+[smhd] ago: ' <<<"$output"
	echo 1 >.ctl/release
	is demo '.last_error == null'
	echo 1 >.ctl/destroy
	touch outputs/again
	cd /
	expect_errors
}

@test "the metrics agree with the status" {
	local sample

	mount_start
	thread
	echo x >outputs/f
	exec 5<outputs/f
	# a listing in the background has a lease, too, for a moment
	for sample in 'threadfs_open_files 1' 'threadfs_threads{state="active"} 1' \
		'threadfs_thread_leases{thread="demo",user="default"} 2'; do
		wait_until grep -qxF "$sample" "$M/.ctl/metrics"
	done
}

@test "no secret in any file, in the log, or in the list of processes" {
	local secret=s3cret-$RANDOM$RANDOM url dir

	printf %s "$secret" >"$T/key"
	chmod 0600 "$T/key"
	sandboxd_start --listen 127.0.0.1:0 --dialect "$DIALECT" --api-key-file "$T/key"
	url=$(sed -n 's/.*ready on \(http:[^ ]*\).*/\1/p' "$SANDBOXD_OUT")
	for dir in file environment; do
		if [ "$dir" = file ]; then
			mount_start "$url" -o "api_key_file=$T/key,debug=all"
			grep -qx "api_key_file=$T/key" "$M/.ctl/config"
		else
			THREADFS_API_KEY=$secret mount_start "$url" -o debug=all
		fi
		cd "$M/threads/default"
		echo x >outputs/f
		grep -q x outputs/f
		refute grep -rqF "$secret" "$M/.ctl/status" "$M/.ctl/status.json" "$M/.ctl/metrics" \
			"$M/.ctl/config" .ctl/status .ctl/status.json .ctl/transfers
		grep -qx 'timeout=30' "$M/.ctl/config"
		refute grep -qF "$secret" "/proc/$MOUNT_PID/cmdline"
		refute grep -qF "$secret" "$LOG" "$M.out"
		mount_stop
	done
}
