#!/usr/bin/env bats
# /v1/bash: commands on pipes, sessions, output by offset, stdin, signals.
# shellcheck disable=SC2016 # the sandbox expands

load ../lib/sandboxd

setup() {
	sandboxd_setup
}

teardown() {
	sandboxd_teardown
}

# post ROUTE JSON STATUS: the answer has to have that status.
post() {
	api POST "/v1/bash/$1" "$2"
	[ "$HTTP" = "$3" ] || {
		echo "$1 $2: HTTP $HTTP, not $3: ${BODY:0:500}" >&2
		return 1
	}
}

# is EXPR: a jq expression that must be true of BODY.
is() {
	j "$1" >/dev/null
}

# output_has SESSION EXPR: polls /output from the start.
output_has() {
	post output "{\"session_id\":\"$1\"}" 200 && jq -e "$2" <<<"$BODY" >/dev/null
}

@test "bash: exec gives streams, exit code, offsets and null for no output" {
	sandboxd_start --dialect 1.9
	post exec '{"command":"echo out; echo err >&2; exit 3","session_id":"a"}' 200
	is '.success and .message == "Operation successful" and .hint == null'
	is '.data | .session_id == "a" and .status == "completed" and .exit_code == 3'
	is '.data | .stdout == "out\n" and .stderr == "err\n"'
	is '.data | .offset == 4 and .stderr_offset == 4 and (.command_id | length > 8)'
	post exec '{"command":"true","session_id":"a"}' 200
	is '.data | .stdout == null and .stderr == null and .exit_code == 0 and .offset == 4'
	post exec '{"command":""}' 200
	is '.data | .exit_code == 0 and .session_id != "a" and .session_id != ""'
	post exec '{"command":"echo x","session_id":""}' 200
	is '.data | .session_id != ""'
	sandboxd_stop
}

@test "bash: every route is missing in 1.0" {
	sandboxd_start --dialect 1.0
	local route

	for route in exec output write kill sessions/create sessions/x/close; do
		post "$route" '{"command":"true","session_id":"x","input":""}' 404
	done
	api GET /v1/bash/sessions
	[ "$HTTP" = 404 ]
	sandboxd_stop
}

@test "bash: bad requests" {
	sandboxd_start --dialect 1.9
	post exec '{}' 422
	post exec '{"command":1}' 422
	post exec '{"command":"true","timeout":"x"}' 422
	post exec '{"command":"true","env":{"A":1}}' 422
	post exec '{"command":"a\u0000b"}' 422
	post exec '{"command":"true","exec_dir":"/nowhere"}' 400
	post exec '{"command":"true","exec_dir":"/etc/passwd"}' 400
	post exec '{"command":"true","exec_dir":"tmp"}' 400
	post exec "{\"command\":\"true\",\"exec_dir\":\"/$(printf 'x%.0s' {1..5000})\"}" 400
	post exec '{"command":"true","env":{"1A":"x"}}' 400
	post exec '{"command":"true","env":{"A-B":"x"}}' 400
	post exec '{"command":"true","env":{"":"x"}}' 400
	post exec "{\"command\":\"true\",\"session_id\":\"$(printf 'x%.0s' {1..200})\"}" 400
	api GET /v1/bash/sessions
	is '.data == []'
	post output '{"session_id":"none"}' 404
	is '.success == false and .message == "Session not found" and .data == null'
	post output '{}' 422
	post write '{"session_id":"none","input":"x"}' 404
	post write '{"session_id":"none"}' 422
	post kill '{"session_id":"none"}' 404
	post sessions/none/close '' 404
	post sessions/create '{"exec_dir":"/nowhere"}' 400
	post sessions/create '{"session_id":7}' 422
	sandboxd_stop
}

@test "bash: directory stays with the session, cd and export do not" {
	sandboxd_start --dialect aiod
	post exec '{"command":"pwd","session_id":"a"}' 200
	is '.data.stdout == "/home/gem\n"'
	post exec '{"command":"cd /; export X=1; pwd","session_id":"a","exec_dir":"/usr/bin"}' 200
	is '.data.stdout == "/\n"'
	post exec '{"command":"pwd; echo ${X-unset}","session_id":"a"}' 200
	is '.data.stdout == "/usr/bin\nunset\n"'
	post exec '{"command":"mkdir /tmp/d","session_id":"a","exec_dir":"/mnt/user-data/workspace"}' 200
	post exec '{"command":"pwd; rmdir /tmp/d","session_id":"a","exec_dir":"/tmp/d"}' 200
	is '.data.stdout == "/tmp/d\n"'
	post exec '{"command":"true","session_id":"a"}' 400
	is '.message | test("No such file or directory")'
	post exec '{"command":"pwd","session_id":"a","exec_dir":"/tmp"}' 200
	is '.data.stdout == "/tmp\n"'
	sandboxd_stop
}

@test "bash: a command that waits keeps the directory it was given" {
	sandboxd_start --dialect 1.9
	post sessions/create '{"session_id":"a","exec_dir":"/tmp"}' 200
	post exec '{"command":"read x; pwd","session_id":"a","async_mode":true}' 200
	post exec '{"command":"pwd","session_id":"a","async_mode":true}' 200
	post exec '{"command":"pwd","session_id":"a","async_mode":true,"exec_dir":"/usr"}' 200
	post exec '{"command":"pwd","session_id":"a","async_mode":true}' 200
	post write '{"session_id":"a","input":"\n"}' 200
	wait_until output_has a '.data.stdout == "/tmp\n/tmp\n/usr\n/usr\n"'
	wait_until output_has a '.data.command.status == "completed"'
	sandboxd_stop
}

@test "bash: a command that is refused does not move the session" {
	sandboxd_start --dialect 1.9
	post sessions/create '{"session_id":"a","exec_dir":"/tmp"}' 200
	post exec '{"command":"sleep 60","session_id":"a","async_mode":true}' 200
	for _ in {1..100}; do
		post exec '{"command":"true","session_id":"a","async_mode":true}' 200
	done
	post exec '{"command":"true","session_id":"a","async_mode":true,"exec_dir":"/usr"}' 429
	api GET /v1/bash/sessions
	expect 200 '.data[0].working_dir == "/tmp"'
	sandboxd_stop
}

@test "bash: a command that starts with a dash is no option of bash" {
	sandboxd_start --dialect 1.9
	for command in --version -x +x --; do
		post exec "{\"command\":\"$command\"}" 200
		is '.data | .exit_code == 127 and .stdout == null'
		is '.data.stderr | test("command not found")'
	done
	sandboxd_stop
}

@test "bash: environment is the sandbox's own plus what the request adds" {
	SANDBOX_API_KEY=secret THREADFS_X=secret sandboxd_start --dialect 1.9
	post exec '{"command":"echo $A:$HOME:$USER:$LANG:$TERM","env":{"A":"é x","LANG":"C"}}' 200
	is '.data.stdout == "é x:/home/gem:gem:C:dumb\n"'
	post exec '{"command":"env | grep -c secret"}' 200
	is '.data.stdout == "0\n"'
	sandboxd_stop
	IMAGE=given SANDBOX_API_KEY=secret AIO_API_KEY=secret THREADFS_X=secret SANDBOXD_NAME=none \
		sandboxd_start --dialect 1.9 --isolation none
	post exec '{"command":"echo $IMAGE:$USER; env | grep -c secret"}' 200
	is '.data.stdout == "given:gem\n0\n"'
	sandboxd_stop
}

@test "bash: timeout ends the wait, hard_timeout the command" {
	sandboxd_start --dialect 1.9
	post exec '{"command":"echo a; sleep 60","session_id":"a","timeout":2}' 200
	is '.data | .status == "running" and .stdout == "a\n" and .exit_code == null and .offset == 2'
	post kill '{"session_id":"a","signal":"SIGKILL"}' 200
	is '.success and .data == null'
	post output '{"session_id":"a","wait":true,"offset":2}' 200
	is '.data.command | .status == "completed" and .exit_code == -9'
	post exec '{"command":"echo b; sleep 60 | cat","session_id":"a","hard_timeout":2}' 200
	is '.data | .status == "timed_out" and .stdout == "b\n" and .exit_code == -1'
	post exec '{"command":"pgrep sleep","session_id":"a"}' 200
	is '.data | .stdout == null and .exit_code == 1'
	sandboxd_stop
}

@test "bash: a signalled command is completed with a negative exit code" {
	sandboxd_start --dialect 1.9
	post exec '{"command":"kill -TERM $$","session_id":"a"}' 200
	is '.data | .status == "completed" and .exit_code == -15'
	post exec '{"command":"sleep 60 | sleep 60","session_id":"a","async_mode":true}' 200
	is '.data | .status == "running" and .stdout == null and .exit_code == null'
	post kill '{"session_id":"a"}' 200
	wait_until output_has a '.data.command | .status == "completed" and .exit_code == -15'
	post kill '{"session_id":"a","signal":"SIGINT"}' 200
	post kill '{"session_id":"a","signal":"SIGHUP"}' 400
	post kill '{"session_id":"a","signal":"9"}' 400
	sandboxd_stop
}

@test "bash: output by byte offset, over all commands of the session" {
	sandboxd_start --dialect 1.9
	post exec '{"command":"printf aé","session_id":"a"}' 200
	is '.data.offset == 3'
	post exec '{"command":"printf b; printf e >&2","session_id":"a"}' 200
	post output '{"session_id":"a"}' 200
	is '.data | .stdout == "aéb" and .stderr == "e" and .offset == 4 and .stderr_offset == 1'
	is '.data.command | .command == "printf b; printf e >&2" and .status == "completed"'
	post output '{"session_id":"a","offset":2,"stderr_offset":1}' 200
	is '.data | .stdout == "\ufffdb" and .stderr == "" and .offset == 4'
	post output '{"session_id":"a","offset":999,"stderr_offset":-5}' 200
	is '.data | .stdout == "" and .offset == 4 and .stderr == "e"'
	post output '{"session_id":"a","command_id":"unknown"}' 200
	is '.data | .command == null and .stdout == "aéb"'
	post sessions/create '{"session_id":"new"}' 200
	post output '{"session_id":"new","wait":true}' 200
	is '.data | .command == null and .stdout == "" and .offset == 0'
	sandboxd_stop
}

@test "bash: a poll does not tear a character apart" {
	sandboxd_start --dialect 1.9
	local half='printf \"a\\xc3\"; printf \"\\xe2\\x82\" >&2; touch /tmp/half; read x; '
	local rest='printf \"\\xa9b\"; printf \"\\xac\" >&2; read y; printf \"\\xf0\\x9f\\x98\"'

	post exec "{\"command\":\"$half$rest\",\"session_id\":\"a\",\"async_mode\":true}" 200
	post exec '{"command":"until [ -e /tmp/half ]; do :; done","session_id":"b"}' 200
	wait_until output_has a '.data.stdout == "a"'
	is '.data | .offset == 1 and .stderr == "" and .stderr_offset == 0'
	# half a character is no news
	post output '{"session_id":"a","offset":1,"wait":true,"wait_timeout":0.2}' 200
	is '.data | .stdout == "" and .offset == 1 and .stderr == ""'
	# one that asks for the middle of a character gets it
	post output '{"session_id":"a","offset":1,"stderr_offset":1}' 200
	is '.data | .stdout == "" and .stderr == "\ufffd" and .stderr_offset == 2'
	# a command that waits points to where the next poll has to start
	post exec '{"command":"true","session_id":"a","timeout":0}' 200
	is '.data | .status == "running" and .stdout == null and .offset == 1 and .stderr_offset == 0'
	post write '{"session_id":"a","input":"\n"}' 200
	wait_until output_has a '.data.stdout == "aéb" and .data.stderr == "€"'
	post output '{"session_id":"a","offset":1}' 200
	is '.data | .stdout == "éb" and .offset == 4 and .stderr_offset == 3'
	# what has ended gives everything
	post write '{"session_id":"a","input":"\n"}' 200
	wait_until output_has a '.data.command.command == "true"'
	wait_until output_has a '.data.command.status == "completed"'
	post output '{"session_id":"a","offset":4}' 200
	is '.data | (.stdout | test("^\ufffd+$")) and .offset == 7'
	sandboxd_stop
}

@test "bash: half a character does not end a long poll, the rest does" {
	sandboxd_start --dialect 1.9
	local command='read x; printf \"\\xc3\"; touch /tmp/half; read y; printf \"\\xa9\"; read z'

	post exec "{\"command\":\"$command\",\"session_id\":\"a\",\"async_mode\":true}" 200
	curl_sb /v1/bash/output -d '{"session_id":"a","wait":true}' >"$T/poll" 3>&- &
	poll=$!
	post write '{"session_id":"a","input":"\n"}' 200
	post exec '{"command":"until [ -e /tmp/half ]; do :; done","session_id":"b"}' 200
	post output '{"session_id":"a","wait":true,"wait_timeout":0.2}' 200
	is '.data | .stdout == "" and .offset == 0'
	kill -0 "$poll"
	post write '{"session_id":"a","input":"\n"}' 200
	wait "$poll"
	jq -e '.data | .stdout == "é" and .offset == 2 and .command.status == "running"' "$T/poll"
	sandboxd_stop
}

@test "bash: exec that times out does not tear a character apart" {
	sandboxd_start --dialect 1.9
	post exec '{"command":"printf \"a\\xc3\"; read x; printf \"\\xa9b\"","session_id":"a","timeout":2}' 200
	is '.data | .status == "running" and .stdout == "a" and .offset == 1'
	post write '{"session_id":"a","input":"\n"}' 200
	post output '{"session_id":"a","offset":1,"wait":true}' 200
	is '.data | .stdout == "éb" and .offset == 4'
	# of an ended command everything comes, also while the next one runs
	post exec '{"command":"printf \"\\xc3\"","session_id":"a"}' 200
	is '.data | .stdout == "\ufffd" and .offset == 5'
	post exec '{"command":"sleep 60","session_id":"a","async_mode":true}' 200
	is '.data.offset == 5'
	post output '{"session_id":"a","offset":4}' 200
	is '.data | .stdout == "\ufffd" and .offset == 5'
	sandboxd_stop
}

@test "bash: long poll returns on data, on the end and on timeout" {
	sandboxd_start --dialect 1.9
	post exec '{"command":"read x; echo $x; read y","session_id":"a","async_mode":true}' 200
	id=$(j .data.command_id)
	post output '{"session_id":"a","wait":true,"wait_timeout":0.1}' 200
	is '.data | .stdout == "" and .command.status == "running"'
	curl_sb /v1/bash/output -d '{"session_id":"a","wait":true}' >"$T/poll" 3>&- &
	poll=$!
	post write '{"session_id":"a","input":"hello\n"}' 200
	wait "$poll"
	jq -e '.data | .stdout == "hello\n" and .command.status == "running"' "$T/poll"
	# past the end is the end
	post output '{"session_id":"a","wait":true,"wait_timeout":0.1,"offset":999}' 200
	is '.data | .stdout == "" and .offset == 6'
	curl_sb /v1/bash/output -d '{"session_id":"a","wait":true,"offset":6}' >"$T/poll" 3>&- &
	poll=$!
	post write "{\"session_id\":\"a\",\"command_id\":\"$id\",\"input\":\"\\n\"}" 200
	wait "$poll"
	jq -e '.data | .stdout == "" and .command.status == "completed"' "$T/poll"
	sandboxd_stop
}

@test "bash: stdin is a pipe without an end" {
	sandboxd_start --dialect 1.9
	post exec '{"command":"head -c 5 | od -An -tx1","session_id":"a","async_mode":true}' 200
	post write '{"session_id":"a","input":"a\u0000é","command_id":"other"}' 400
	post write '{"session_id":"a","input":"a\u0000é\n"}' 200
	wait_until output_has a '.data.stdout == " 61 00 c3 a9 0a\n"'
	wait_until output_has a '.data.command.status == "completed"'
	post write '{"session_id":"a","input":"x"}' 400
	post exec '{"command":"exec <&-; echo closed; sleep 60","session_id":"a","async_mode":true}' 200
	wait_until output_has a '.data.stdout | endswith("closed\n")'
	post write '{"session_id":"a","input":"x"}' 400
	post kill '{"session_id":"a"}' 200
	sandboxd_stop
}

@test "bash: input that nobody reads is bounded" {
	sandboxd_start --dialect 1.9
	post exec '{"command":"sleep 60","session_id":"a","async_mode":true}' 200
	jq -nc '{session_id: "a", input: ("x" * 900000)}' >"$T/input"
	post write "@$T/input" 200
	post write "@$T/input" 400
	is '.message | test("not read yet")'
	sandboxd_stop
}

@test "bash: output is cut in the middle, by characters" {
	sandboxd_start --dialect 1.9
	post exec '{"command":"printf é%.0s {1..50}; printf aaaa","max_output_length":10}' 200
	is '.data.stdout | startswith("ééééé\n") and endswith("\néaaaa") and test("44 characters")'
	post exec '{"command":"printf é%.0s {1..10}","max_output_length":10}' 200
	is '.data.stdout == "éééééééééé"'
	post exec '{"command":"yes | head -c 60000"}' 200
	is '.data | (.stdout | length) < 50100 and .offset == 60000'
	post exec '{"command":"yes | head -c 60000","max_output_length":0}' 200
	is '.data.stdout | length == 60000'
	post exec '{"command":"printf \"\\xff\\xfeok\""}' 200
	is '.data.stdout == "\ufffd\ufffdok"'
	sandboxd_stop
}

@test "bash: commands of a session queue, those of others do not" {
	sandboxd_start --dialect 1.9
	post exec '{"command":"read x; echo one","session_id":"a","async_mode":true}' 200
	post exec '{"command":"echo two","session_id":"a","async_mode":true}' 200
	is '.data.status == "running"'
	post exec '{"command":"echo three","session_id":"a","timeout":0.1}' 200
	is '.data | .status == "running" and .stdout == null'
	post exec '{"command":"echo other","session_id":"b"}' 200
	is '.data.stdout == "other\n"'
	post write '{"session_id":"a","input":"\n"}' 200
	wait_until output_has a '.data.stdout == "one\ntwo\nthree\n"'
	post exec '{"command":"sleep 60","session_id":"a","async_mode":true}' 200
	for _ in {1..100}; do
		post exec '{"command":"true","session_id":"a","async_mode":true}' 200
	done
	post exec '{"command":"true","session_id":"a","async_mode":true}' 429
	sandboxd_stop
}

@test "bash: a background process does not delay the answer" {
	sandboxd_start --dialect 1.9
	post exec '{"command":"(until [ -e /tmp/go ]; do sleep 0.02; done; echo late) & echo now","session_id":"a"}' 200
	is '.data | .status == "completed" and .stdout == "now\n"'
	post exec '{"command":"touch /tmp/go","session_id":"b"}' 200
	wait_until output_has a '.data.stdout == "now\nlate\n"'
	for _ in {1..40}; do
		post exec '{"command":"sleep 60 & echo $!","session_id":"a"}' 200
	done
	post exec '{"command":"echo still here","session_id":"a"}' 200
	is '.data.stdout == "still here\n"'
	sandboxd_stop
}

# starts_as NUMBER: session b's command gets that process id, which must be free.
starts_as() {
	api POST /v1/bash/sessions/b/close ''
	nsenter --target "$inner" --pid sh -c "echo $(($1 - 1)) >/proc/sys/kernel/ns_last_pid"
	post exec '{"command":"echo $$; exec sleep 60","session_id":"b","async_mode":true}' 200
	post output '{"session_id":"b","wait":true}' 200
	is ".data.stdout == \"$1\\n\"" 2>/dev/null
}

@test "bash: closing a session spares a command that got an old group's number" {
	[ "$EUID" = 0 ] || skip "needs root to choose a process id"
	[ -w /proc/sys/kernel/ns_last_pid ] || skip "the kernel cannot choose process ids"
	sandboxd_start --dialect 1.9
	inner=$(server_of "$SANDBOXD_PID")
	post exec '{"command":"setsid sleep 60 & echo $$","session_id":"a"}' 200
	wait_until starts_as "$(j '.data.stdout | rtrimstr("\n")')"
	post sessions/a/close '' 200
	post output '{"session_id":"b","wait":true,"wait_timeout":0.3,"offset":100}' 200
	is '.data.command | .status == "running" and .exit_code == null'
	# the group of one that did not leave it still ends
	post exec '{"command":"sleep 77 & true","session_id":"c"}' 200
	post sessions/c/close '' 200
	post exec '{"command":"until ! pgrep -f \"sleep 7[7]\"; do :; done","session_id":"d"}' 200
	sandboxd_stop
}

@test "bash: sessions are listed, created and closed" {
	sandboxd_start --dialect aiod
	post sessions/create '{"session_id":"a","exec_dir":"/tmp","snapshot_path":"/x"}' 200
	is '.data | .session_id == "a" and .status == "ready" and .working_dir == "/tmp"'
	is '.data | .current_command == null and .command_count == 0'
	is '.data.created_at | test("^\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d\\.\\d{6}$")'
	post sessions/create '{"session_id":"a","exec_dir":"/"}' 200
	is '.data.working_dir == "/tmp"'
	post sessions/create '{}' 200
	is '.data | (.session_id | length > 8) and .working_dir == "/home/gem"'
	post exec '{"command":"echo x; sleep 60","session_id":"a","async_mode":true}' 200
	wait_until output_has a '.data.stdout == "x\n"'
	api GET /v1/bash/sessions
	is '.data | length == 2 and .[0].current_command == "echo x; sleep 60"'
	is '.data[0].command_count == 1'
	curl_sb /v1/bash/exec -d '{"command":"echo y","session_id":"a"}' >"$T/waiting" 3>&- &
	waiting=$!
	wait_until two_submitted
	post sessions/a/close '' 200
	is '.success and .data == null'
	wait "$waiting"
	jq -e '.data | .status == "killed" and .exit_code == null and .stdout == null' "$T/waiting"
	post output '{"session_id":"a"}' 404
	post exec '{"command":"pgrep sleep","session_id":"a"}' 200
	is '.data.stdout == null'
	sandboxd_stop
}

two_submitted() {
	api GET /v1/bash/sessions && is '.data[0].command_count == 2' 2>/dev/null
}

@test "bash: past the cap the oldest idle session goes; all busy is refused" {
	for dialect in 1.9:400 aiod:429; do
		SANDBOXD_NAME=${dialect%:*} sandboxd_start --dialect "${dialect%:*}" --max-bash-sessions 2
		post exec '{"command":"sleep 60","session_id":"busy","async_mode":true}' 200
		post exec '{"command":"true","session_id":"idle"}' 200
		post exec '{"command":"true","session_id":"next"}' 200
		api GET /v1/bash/sessions
		is '[.data[].session_id] == ["busy", "next"]'
		post exec '{"command":"sleep 60","session_id":"next","async_mode":true}' 200
		post exec '{"command":"true"}' "${dialect#*:}"
		is '.message == "Cannot create bash session: session limit reached and all 2 existing sessions have active commands"'
		post sessions/create '{}' "${dialect#*:}"
		sandboxd_stop
	done
}

@test "bash: idle sessions expire, busy ones do not" {
	sandboxd_start --dialect 1.9 --session-timeout 1
	post exec '{"command":"sleep 60","session_id":"busy","async_mode":true}' 200
	post exec '{"command":"true","session_id":"idle"}' 200
	wait_until only_busy_left
	sandboxd_stop
}

only_busy_left() {
	api GET /v1/bash/sessions && jq -e '[.data[].session_id] == ["busy"]' <<<"$BODY" >/dev/null
}

@test "bash: a command longer than one argument may be" {
	sandboxd_start --dialect 1.9
	jq -nc '{command: ("echo $0 start; : " + "x" * 300000 + "; echo end; exit 7")}' >"$T/long"
	post exec "@$T/long" 200
	is '.data | .stdout == "/bin/bash start\nend\n" and .exit_code == 7'
	jq -nc '{command: (": " + "x" * 9000000)}' >"$T/long"
	post exec "@$T/long" 400
	jq -nc '{command: "true", env: {A: ("x" * 200000)}}' >"$T/env"
	post exec "@$T/env" 400
	jq -nc '{command: "true", env: ([range(2000) | {key: "A\(.)", value: ""}] | from_entries)}' \
		>"$T/env"
	post exec "@$T/env" 400
	sandboxd_stop
}

@test "bash: endless output is bounded and others are served" {
	sandboxd_start --dialect 1.9
	post exec '{"command":"yes","session_id":"a","async_mode":true}' 200
	wait_until past_the_buffer
	post exec '{"command":"echo served","session_id":"b"}' 200
	is '.data.stdout == "served\n"'
	post output '{"session_id":"a"}' 200
	is '.data | (.stdout | length) <= 10485760 and .offset > 30000000'
	post sessions/a/close '' 200
	sandboxd_stop
}

past_the_buffer() {
	post output '{"session_id":"a","offset":100000000000}' 200 && is '.data.offset > 30000000' \
		2>/dev/null
}

@test "bash: a client that goes away leaves its command alone" {
	sandboxd_start --dialect 1.9
	# Not by curl_sb: the pid must be curl's own.
	curl -s --unix-socket "$SOCK" http://localhost/v1/bash/exec \
		-d '{"command":"echo on; read x; echo $x","session_id":"a"}' 3>&- &
	client=$!
	wait_until output_has a '.data.stdout == "on\n"'
	kill "$client"
	wait "$client" || [ $? = 143 ]
	# that one is there does not show; it must not matter if it comes too late
	curl_sb /v1/bash/output --max-time 1 -d '{"session_id":"a","wait":true,"offset":3}' || [ $? = 28 ]
	post write '{"session_id":"a","input":"alive\n"}' 200
	wait_until output_has a '.data.stdout == "on\nalive\n" and .data.command.status == "completed"'
	sandboxd_stop
}

@test "bash: limits of a command" {
	sandboxd_start --dialect 1.9 --max-file-size 1M --max-open-files 100 --max-memory 256M
	post exec '{"command":"ulimit -n; ulimit -f; ulimit -d; ulimit -c"}' 200
	is '.data.stdout == "100\n1024\n262144\n0\n"'
	post exec '{"command":"head -c 2M /dev/zero > /tmp/big; stat -c %s /tmp/big"}' 200
	is '.data.stdout == "1048576\n"'
	sandboxd_stop
}

@test "bash: commands go before the server when memory runs out" {
	sandboxd_start --dialect 1.9 --isolation none
	post exec '{"command":"cat /proc/$$/oom_score_adj"}' 200
	is '.data.stdout == "1000\n"'
	refute grep -qx 1000 "/proc/$SANDBOXD_PID/oom_score_adj"
	sandboxd_stop
}

@test "bash: 100 commands of history" {
	sandboxd_start --dialect 1.9
	post exec '{"command":"true","session_id":"a"}' 200
	first=$(j .data.command_id)
	for _ in {1..101}; do
		api POST /v1/bash/exec '{"command":"true","session_id":"a"}'
	done
	last=$(j .data.command_id)
	post output "{\"session_id\":\"a\",\"command_id\":\"$first\"}" 200
	is '.data.command == null'
	post output "{\"session_id\":\"a\",\"command_id\":\"$last\"}" 200
	is '.data.command.exit_code == 0'
	sandboxd_stop
}
