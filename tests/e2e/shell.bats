#!/usr/bin/env bats
# /v1/shell: sessions of an interactive bash behind a terminal.
# shellcheck disable=SC2016 # most of the quoted text is for the bash in there

load ../lib/sandboxd

setup() { sandboxd_setup; }
teardown() { sandboxd_teardown; }

# sh_exec CMD [JSON OBJECT [ID]]: POST /v1/shell/exec with those fields added.
sh_exec() {
	local extra=${2-} id=${3-}

	api POST /v1/shell/exec "$(jq -n --arg c "$1" --argjson x "${extra:-{\}}" --arg id "$id" \
		'{command: $c} + (if $id == "" then {} else {id: $id} end) + $x')"
}

# in_s CMD [JSON OBJECT]: sh_exec in session "s".
in_s() {
	sh_exec "$1" "${2-}" s
}

# named ID: makes a session.
named() {
	api POST /v1/shell/sessions/create "{\"id\":\"$1\"}"
	expect 200 ".data.session_id == \"$1\""
}

# gives STATUS EXIT OUTPUT: what the last exec has to have answered.
gives() {
	local got

	expect 200 || return 1
	got=$(jq -r '.data | "\(.status) \(.exit_code) \(.output)"' <<<"$BODY")
	[ "$got" = "$1 $2 $3" ] || {
		printf 'got  %q\nwant %q\n' "$got" "$1 $2 $3" >&2
		return 1
	}
}

# stops_at SECONDS CMD…: runs CMD, which must take less than that.
stops_at() {
	local start=$EPOCHREALTIME limit=$1

	shift
	"$@" || return 1
	awk "BEGIN { exit !($EPOCHREALTIME - $start < $limit) }" || {
		echo "took longer than $limit s: $*" >&2
		return 1
	}
}

idle() {
	api POST /v1/shell/view '{"id":"s"}'
	[ "$(jq -r .data.status <<<"$BODY")" != running ]
}

@test "every dialect runs commands and keeps the session's state" {
	local d

	for d in 1.0 1.9 aiod; do
		SANDBOXD_NAME=s$d sandboxd_start --dialect "$d"
		sh_exec 'echo hi; echo err >&2; pwd'
		gives completed 0 $'hi\nerr\n/home/gem'
		expect 200 '.success' '.message == "Command executed"' \
			'.data.command | startswith("echo hi")' \
			'.data.console | length == 1' \
			'.data.console[0].ps1 == "gem@sandbox:/home/gem $ "' \
			'.data.console[0].output == .data.output'
		[ "$(jq 'has("hint")' <<<"$BODY")" = "$([ "$d" = 1.0 ] && echo false || echo true)" ]
		sh_exec 'tty; exit' "$(jq -c '{id: .data.session_id}' <<<"$BODY")"
		expect 200 '.data.output | startswith("/dev/pts/")'

		named s
		in_s 'cd /usr; X=1; export Y=2; f() { echo "f $1"; }; alias a="echo alias"; (exit 7)'
		gives completed 7 ''
		in_s 'echo "$? $X $(printenv Y)"; pwd; f 3; a'
		gives completed 0 $'7 1 2\n/usr\nf 3\nalias'
		api GET /v1/shell/sessions
		expect 200 '.data.sessions.s.working_dir == "/usr"' \
			'.data.sessions.s.created_at | test("^\\d{4}-\\d\\d-\\d\\dT[0-9:]{8}\\.\\d{6}$")' \
			'.data.sessions | length == 2' '.data.sessions.s.status == "completed"'
		api POST /v1/shell/sessions/update '{"id":"s","no_change_timeout":7}'
		expect 200 '.data == {"session_id":"s","no_change_timeout":7}'
		api POST /v1/shell/write '{"id":"s","input":"echo written","press_enter":true}'
		expect 200 '.data.status == "running"'
		api POST /v1/shell/wait '{"id":"s"}'
		expect 200 '.data.status == "completed"' '.message == "Process completed successfully"'
		api POST /v1/shell/view '{"id":"s"}'
		expect 200 '.data.output == "written"' '.data.command == "echo written"' \
			'.data.session_id == "s"' '.data.exit_code == 0' \
			'[.data.console[].command] | length == 3'
		api POST /v1/shell/kill '{"id":"s"}'
		expect 200 '.data == {"status":"terminated","exit_code":0,"returncode":0}'
		api DELETE /v1/shell/sessions
		expect 200 '.data.cleaned_sessions == 1'
		sandboxd_stop
	done
}

@test "unknown sessions, wrong bodies" {
	local d route

	for d in 1.0 1.9 aiod; do
		SANDBOXD_NAME=s$d sandboxd_start --dialect "$d"
		for route in 'exec {"id":"no","command":"true"}' 'view {"id":"no"}' 'wait {"id":"no"}' \
			'write {"id":"no","input":"x","press_enter":false}' 'kill {"id":"no"}' \
			'sessions/update {"id":"no"}'; do
			api POST "/v1/shell/${route%% *}" "${route#* }"
			expect 404 '.message == "Session not found"' '.success == false'
		done
		api DELETE /v1/shell/sessions/no
		expect 200 '.success == false' '.message == "Session no not found"'
		for route in 'exec {}' 'exec {"command":3}' 'exec {"command":"x","timeout":"soon"}' \
			'exec {"command":"a\u0000b"}' 'view {}' 'wait {"id":"a","seconds":"x"}' \
			'write {"id":"a","input":"b"}' 'kill {"id":null}' 'sessions/create {"id":[]}'; do
			api POST "/v1/shell/${route%% *}" "${route#* }"
			expect 422
		done
		api GET /v1/shell/sessions/stats
		if [ "$d" = 1.0 ]; then
			[[ $HTTP == 404 || $HTTP == 405 ]]
		else
			expect 200 '.data.total_sessions == 0' '.data.max_sessions == 10' \
				'.data.session_timeout == 3600' '.data.usage_ratio == 0'
		fi
		sandboxd_stop
	done
}

@test "what a command does to bash does not break the session" {
	sandboxd_start
	named s
	in_s 'echo "open'
	expect 200 '.data.status == "completed"' '.data.exit_code == 2'
	in_s $'cat <<END\nabc'
	expect 200 '.data.exit_code == 0' '.data.output | endswith("abc")'
	in_s 'if then'
	expect 200 '.data.exit_code == 2'
	in_s 'set -u; echo $nothing; echo not reached'
	gives completed 1 'bash: nothing: unbound variable'
	in_s 'set +u; readonly R=1; R=2'
	expect 200 '.data.exit_code == 1'
	in_s 'PROMPT_COMMAND=true PS1="\w> " PS2=x'
	gives completed 0 ''
	in_s 'break; continue; echo still'
	in_s 'echo here'
	gives completed 0 here
	in_s 'trap "echo debug" DEBUG'
	in_s 'trap - DEBUG'
	in_s 'set -f; IFS=0123456789; TMOUT=1'
	in_s 'unset IFS TMOUT; set +f; kill $$; echo alive'
	gives completed 0 alive
	in_s 'exec 3>/tmp/three'
	in_s 'echo x >&3; exec 3>&-; cat /tmp/three'
	gives completed 0 x
	in_s 'exec >/tmp/out; echo lost'
	in_s 'exec >/dev/tty; cat /tmp/out'
	gives completed 0 lost
	in_s 'ls /proc/self/fd | tr "\n" " "; env | grep -c -e sbx -e PROMPT'
	gives completed 1 $'0 1 2 3 0'
	in_s 'suspend'
	expect 200 '.data.exit_code == 127'
	in_s 'echo "no ! history !!"; echo $$ | grep -c "^[0-9]*$"'
	gives completed 0 $'no ! history !!\n1'
	sandboxd_stop
}

# next_works: the session takes another command.
next_works() {
	in_s 'echo next'
	gives completed 0 next
}

@test "a command that breaks the loop ends, runs once, and the next one works" {
	local cmd

	sandboxd_start
	named s
	for cmd in 'builtin() { :; }' 'unset() { :; }' 'eval() { :; }' 'kill() { :; }'; do
		in_s "$cmd; echo x >>/tmp/once"
		gives completed 0 ''
		next_works
		in_s 'wc -l </tmp/once; rm /tmp/once'
		gives completed 0 1
	done
	for cmd in 'enable -n printf' 'enable -n read' '__sbx_n=7777' 'unset ${!__sbx_*}' \
		'readonly __sbx_n __sbx_s __sbx' 'declare -i __sbx' 'readonly __sbx_d'; do
		stops_at 15 in_s "$cmd"
		gives terminated 137 ''
		next_works
	done
	# These only the server can notice.
	for cmd in 'shopt -s extdebug; trap false DEBUG' 'PROMPT_COMMAND=; unset __sbx_pc; break 9' \
		'builtin() { :; }; unset() { :; }; readonly -f builtin unset' '__sbx_n=0'; do
		stops_at 15 in_s "$cmd; echo x >>/tmp/once"
		expect 200 '.data.status | IN("terminated", "completed")'
		stops_at 15 next_works
	done
	in_s 'wc -l </tmp/once'
	gives completed 0 2
	stops_at 6 in_s 'kill -STOP $$; echo on'
	gives completed 0 on
	next_works
	in_s ''
	gives completed 0 ''
	sandboxd_stop
}

@test "a long command is not mistaken for a broken loop" {
	sandboxd_start
	named s
	in_s 'trap "sleep 3.6; echo bye" EXIT; (exec -a x sleep 0); cat <(sleep 3.6; echo late); exit 3'
	gives completed 3 $'late\nbye'
	in_s 'for ((e = SECONDS + 4; SECONDS < e;)); do :; done; echo spun'
	gives completed 0 spun
	in_s 'exec sleep 3.6'
	gives completed 0 ''
	sandboxd_stop
}

@test "a command that ends bash has an exit code, and the next gets a new one" {
	local dir=/tmp/here

	sandboxd_start
	named s
	in_s "mkdir $dir; cd $dir; export GONE=1"
	in_s 'exit 3'
	gives completed 3 ''
	in_s 'pwd; echo "[$GONE]"'
	gives completed 0 $'/tmp/here\n[]'
	in_s 'exec false'
	gives completed 1 ''
	in_s 'set -e; (exit 4); echo not reached'
	gives completed 4 ''
	in_s 'kill -9 $$'
	gives terminated 137 ''
	in_s "rmdir $dir; exit 0"
	in_s pwd
	gives completed 0 /home/gem
	sandboxd_stop
}

@test "commands of a session run one after the other" {
	local i

	sandboxd_start
	named s
	in_s 'sleep 0.4; echo first >>/tmp/order' '{"async_mode":true}'
	expect 200 '.data.status == "running"' '.data.output == null' \
		'.message == "Command sent for execution"'
	for i in 1 2 3 4 5 6 7 8; do
		in_s "echo $i >>/tmp/order" '{"async_mode":true}'
	done
	in_s 'tr "\n" " " </tmp/order'
	gives completed 0 'first 1 2 3 4 5 6 7 8 '
	in_s 'sleep 30' '{"async_mode":true}'
	api POST '/v1/shell/exec?[1-64]' '{"id":"s","command":"true","async_mode":true}'
	[ "$HTTP" = "$(printf '200%.0s' {1..64})" ]
	in_s 'echo one too many'
	expect 429
	sandboxd_stop
}

@test "no_change_timeout counts from the last output and leaves the command alone" {
	sandboxd_start
	api POST /v1/shell/sessions/create '{"id":"s","no_change_timeout":4}'
	in_s 'for i in a b c d; do echo $i; sleep 1.5; done
		until [ -e /mnt/user-data/go ]; do sleep 0.02; done; echo e'
	gives no_change_timeout -1 $'a\nb\nc\nd'
	touch "$DATA/go"
	wait_until idle
	expect 200 '.data.output == "a\nb\nc\nd\ne"' '.data.exit_code == 0'
	in_s 'sleep 4.5; echo done' '{"no_change_timeout":60}'
	gives completed 0 'done'
	sandboxd_stop
}

@test "timeout ends the wait only" {
	sandboxd_start
	named s
	in_s 'until [ -e /mnt/user-data/go ]; do sleep 0.02; done; echo end' '{"timeout":0.25}'
	gives running null null
	expect 200 '.success' '.message == "Command still running (timeout 0.25s reached)"'
	api POST /v1/shell/view '{"id":"s"}'
	expect 200 '.data.status == "running"' '.data.exit_code == null'
	touch "$DATA/go"
	api POST /v1/shell/wait '{"id":"s","seconds":20}'
	expect 200 '.data.status == "completed"'
	api POST /v1/shell/view '{"id":"s"}'
	expect 200 '.data.output == "end"'
	in_s 'sleep 60' '{"async_mode":true}'
	api POST /v1/shell/wait '{"id":"s","seconds":-1}'
	expect 200 '.data.status == "running"' '.message == "Process is still running"'
	api POST /v1/shell/kill '{"id":"s"}'
	expect 200 '.data.exit_code == null' '.data.status == "terminated"'
	sandboxd_stop
}

@test "hard_timeout stops the command and the session lives on" {
	local slow cmd

	sandboxd_start
	named s
	in_s 'cd /usr; export KEEP=me'
	for cmd in 'echo a; sleep 50; echo no' 'echo a; while :; do :; done' \
		'echo a; cat' 'echo a; while :; do sleep 1 || true; done' 'echo a; read x' \
		'echo a; (while :; do :; done); echo no'; do
		# A second, so that a busy machine gets as far as the echo.
		stops_at 9 in_s "$cmd" '{"hard_timeout":1}'
		gives hard_timeout -1 a
	done
	in_s 'pwd; echo $KEEP'
	gives completed 0 $'/usr\nme'
	# Deaf to SIGINT and SIGTERM.
	slow='python3 -c "import signal as s,time; [s.signal(x,s.SIG_IGN) for x in (2,15)]; time.sleep(60)"'
	stops_at 6 in_s "$slow" '{"hard_timeout":0.5}'
	gives hard_timeout -1 ''
	in_s 'pwd; echo $KEEP'
	gives completed 0 $'/usr\nme'
	# bash itself is deaf: the last resort is a new one, in the same place.
	stops_at 6 in_s 'cd /tmp; trap "" INT; while :; do :; done' '{"hard_timeout":0.3}'
	gives hard_timeout -1 ''
	in_s 'pwd'
	gives completed 0 /tmp
	stops_at 6 in_s 'kill -STOP $$' '{"hard_timeout":0.3}'
	gives hard_timeout -1 ''
	in_s 'echo fine'
	gives completed 0 fine
	sandboxd_stop
}

@test "1.0 knows neither hard_timeout nor truncate" {
	sandboxd_start --dialect 1.0
	sh_exec 'sleep 0.5; seq 20000' '{"hard_timeout":0.1,"truncate":false}'
	expect 200 '.data.status == "completed"' '.data.output | length <= 30000'
	sandboxd_stop
}

@test "a command that waits for input gets none of the next commands" {
	sandboxd_start
	named s
	in_s 'cat' '{"no_change_timeout":1}'
	gives no_change_timeout -1 ''
	in_s 'echo next' '{"timeout":0.2}'
	gives running null null
	api POST /v1/shell/view '{"id":"s"}'
	expect 200 '.data.command == "cat"' '.data.output == ""'
	sandboxd_stop
}

@test "output: codes stripped, truncated on demand, bounded" {
	sandboxd_start
	named s
	in_s 'printf "\033[31mred\033[0m x\by\r\n\377\303\244"'
	gives completed 0 $'red y\n\xef\xbf\xbd\xc3\xa4'
	in_s 'seq 20000'
	expect 200 '.data.output | length <= 30000 and length > 29000' \
		'.data.output | startswith("1\n2\n") and endswith("\n20000")' \
		'.data.output | test("characters truncated")'
	in_s 'seq 20000' '{"truncate":false}'
	[ "$(j .data.output)" = "$(seq 20000)" ]
	expect 200 '.data.console[0].output | length <= 30000'
	in_s 'head -c 60M /dev/zero | tr "\0" x; echo; echo end' '{"truncate":false}'
	expect 200 '.data.output | length <= 11000000 and endswith("\nend")'
	in_s 'head -c 100k /dev/urandom'
	expect 200 '.data.status == "completed"'
	sandboxd_stop
}

@test "exec_dir, strict, preserve_symlinks" {
	sandboxd_start
	api POST /v1/shell/sessions/create '{"id":"s","exec_dir":"/mnt/user-data/workspace"}'
	expect 200 '.data.working_dir == "/mnt/user-data/workspace"'
	api POST /v1/shell/sessions/create '{"id":"s","exec_dir":"/usr"}'
	expect 200 '.data.working_dir == "/mnt/user-data/workspace"' \
		'.message == "Session had created successfully"'
	in_s pwd '{"exec_dir":"/nope"}'
	gives completed 0 /mnt/user-data/workspace
	in_s pwd '{"exec_dir":"/nope","strict":true}'
	gives terminated 1 '/nope No such file or directory'
	in_s pwd '{"exec_dir":"/etc/passwd","strict":true}'
	expect 200 '.data.status == "terminated"'
	in_s pwd '{"exec_dir":"usr"}'
	gives completed 0 /mnt/user-data/workspace
	in_s 'mkdir -p "/tmp/a b/-x"; ln -s "/tmp/a b" /tmp/link'
	in_s pwd '{"exec_dir":"/tmp/a b/-x","strict":true}'
	gives completed 0 '/tmp/a b/-x'
	in_s pwd
	gives completed 0 '/tmp/a b/-x'
	in_s pwd '{"exec_dir":"/tmp/link"}'
	gives completed 0 '/tmp/a b'
	in_s pwd '{"exec_dir":"/tmp/link","preserve_symlinks":true}'
	gives completed 0 /tmp/link
	sh_exec pwd '{"exec_dir":"/tmp/link","preserve_symlinks":true}'
	gives completed 0 /tmp/link
	sh_exec pwd '{"exec_dir":"/tmp/link","preserve_symlinks":null,"strict":null}'
	gives completed 0 '/tmp/a b'
	api POST /v1/shell/sessions/create '{"exec_dir":"/nope"}'
	expect 200 '.data.working_dir == "/home/gem"' '.data.session_id | length > 7'
	sh_exec pwd "{\"exec_dir\":\"/$(printf 'x%.0s' {1..5000})\",\"strict\":true}"
	expect 200 '.data.status == "terminated"'
	sandboxd_stop
}

@test "ids: odd ones are kept apart, impossible ones refused" {
	sandboxd_start
	api POST /v1/shell/sessions/create '{"id":"a \"b\" ü/{}"}'
	expect 200 '.data.session_id == "a \"b\" ü/{}"'
	api GET /v1/shell/sessions
	expect 200 '.data.sessions | has("a \"b\" ü/{}")'
	api POST /v1/shell/sessions/create '{"id":"a\nb"}'
	expect 400
	api POST /v1/shell/sessions/create "{\"id\":\"$(printf 'x%.0s' {1..129})\"}"
	expect 400
	sh_exec 'echo fresh' '{"id":""}'
	gives completed 0 fresh
	sandboxd_stop
}

@test "the cap evicts the idle session used least recently; all busy is an error" {
	local d

	for d in 1.9 aiod; do
		SANDBOXD_NAME=s$d sandboxd_start --dialect "$d" --max-sessions 2
		named s
		named t
		in_s 'sleep 50' '{"async_mode":true}'
		named u
		api GET /v1/shell/sessions
		expect 200 '.data.sessions | keys == ["s","u"]' '.data.sessions.s.status == "running"' \
			'.data.sessions.s.current_command == "sleep 50"'
		sh_exec 'sleep 50' '{"id":"u","async_mode":true}'
		sh_exec 'true'
		expect "$([ "$d" = 1.9 ] && echo 400 || echo 429)" \
			'.message == "Cannot create shell session: session limit reached and all 2 existing sessions have active commands"'
		api GET /v1/shell/sessions/stats
		expect 200 '.data.total_sessions == 2' '.data.active_sessions == 2' \
			'.data.usage_ratio == 1'
		sandboxd_stop
	done
}

no_sessions() {
	api GET /v1/shell/sessions
	[ "$(jq '.data.sessions | length' <<<"$BODY")" = 0 ]
}

# On a busy machine the session may have expired before the command comes.
survives() {
	named s
	in_s 'sleep 2.5; echo survived'
	[ "$HTTP" != 404 ]
}

@test "idle sessions expire, running commands are not idle" {
	sandboxd_start --session-timeout 1
	wait_until survives
	gives completed 0 survived
	wait_until no_sessions
	sandboxd_stop
}

# runs WORD: whether a process with that argument runs in the sandbox.
runs() {
	bash_exec "grep -lza '^$1$' /proc/[0-9]*/cmdline | wc -l"
	[ "$STDOUT" -gt 0 ]
}
not_runs() { ! runs "$1"; }

@test "killing a session ends all it started" {
	sandboxd_start
	named s
	in_s 'sleep 7001 & (trap "" HUP TERM; sleep 7001) & sleep 7001 | cat &'
	in_s 'sleep 7001' '{"async_mode":true}'
	wait_until runs 7001
	api POST /v1/shell/kill '{"id":"s"}'
	expect 200 '.data == {"status":"terminated","exit_code":null,"returncode":null}' \
		'.message == "Process terminated"'
	wait_until not_runs 7001
	named s
	in_s 'sleep 7002 & exit 5'
	gives completed 5 ''
	wait_until not_runs 7002
	in_s 'sleep 7003 &'
	wait_until runs 7003
	api DELETE /v1/shell/sessions/s
	expect 200 '.success' '.message == "Session s cleaned up successfully"'
	wait_until not_runs 7003
	sandboxd_stop
}

@test "those who wait for a killed session are told" {
	local waiter runner

	sandboxd_start
	named s
	curl_sb /v1/shell/exec -d '{"id":"s","command":"echo begun; sleep 60"}' >"$T/exec.json" 3>&- &
	runner=$!
	wait_until busy
	curl_sb /v1/shell/wait -d '{"id":"s"}' >"$T/wait.json" 3>&- &
	waiter=$!
	wait_until begun
	# The wait has no visible start; either order gives one of these answers.
	api DELETE /v1/shell/sessions
	wait "$runner" "$waiter"
	jq -e '.data.status == "terminated" and .data.output == "begun"' "$T/exec.json"
	jq -e '.message == "Session unavailable" and .data.status == "terminated"
		or .message == "Session not found"' "$T/wait.json"
	sandboxd_stop
}
busy() { ! idle; }
says() { busy && [ "$(jq -r .data.output <<<"$BODY")" = "$1" ]; }
begun() { idle || [ "$(jq -r .data.output <<<"$BODY")" = begun ]; }

@test "a client that goes away leaves the command running" {
	local client rc=0

	sandboxd_start
	named s
	# Not by curl_sb: the pid must be curl's own.
	curl -s --unix-socket "$SOCK" http://localhost/v1/shell/exec -d '{"id":"s","command":
		"echo on; until [ -e /mnt/user-data/go ]; do sleep 0.02; done; echo on and on"}' >"$T/exec.json" 3>&- &
	client=$!
	wait_until says on
	kill "$client"
	wait "$client" || rc=$?
	[ "$rc" = 143 ]
	[ ! -s "$T/exec.json" ]
	touch "$DATA/go"
	wait_until idle
	expect 200 '.data.output == "on\non and on"' '.data.exit_code == 0'
	CURL_MAX_TIME=0.3 api POST /v1/shell/wait '{"id":"s"}' || true
	in_s 'echo fine'
	gives completed 0 fine
	sandboxd_stop
}

# sse PATH JSON: the stream in $T/sse, as it comes
sse() {
	curl_sb "$1" -N -H 'Accept: text/event-stream' -d "$2" >"$T/sse"
}

@test "server-sent events: exec in one piece or as it comes, view with keepalives" {
	local end='data: {"end":true,"message":"No more output"}' stream

	sandboxd_start
	named s
	sse /v1/shell/exec '{"id":"s","command":"echo 1; sleep 0.3; echo 2"}'
	[ "$(cat "$T/sse")" = $': connected\n\ndata: {"output":"1\\n2"}\n\n'"$end" ]
	: >"$T/sse" # not what the last one left there
	sse /v1/shell/exec '{"id":"s","async_mode":true,"command":
		"echo 1; until [ -e /mnt/user-data/go ]; do sleep 0.02; done; echo 2"}' 3>&- &
	stream=$!
	wait_until grep -q '"output":"1' "$T/sse"
	touch "$DATA/go"
	wait "$stream"
	[ "$(cat "$T/sse")" = $': connected\n\ndata: {"output":"1\\n"}\n\ndata: {"output":"2\\n"}\n\n'"$end" ]
	sse /v1/shell/exec '{"id":"s","command":"true"}'
	[ "$(cat "$T/sse")" = $': connected\n\n'"$end" ]
	sse /v1/shell/exec '{"id":"s","command":"true","strict":true,"exec_dir":"/nope"}'
	[ "$(cat "$T/sse")" = $': connected\n\ndata: {"error":"/nope No such file or directory"}' ]
	sse /v1/shell/exec '{"id":"s","command":"seq 300000","async_mode":true}'
	[ "$(sed -n 's/^data: //p' "$T/sse" | jq -j '.output // ""')" = "$(seq 300000)" ]
	sse /v1/shell/exec '{"id":"s","command":"seq 300000; echo ä; echo","truncate":false}'
	[ "$(sed -n 's/^data: //p' "$T/sse" | jq -j '.output // ""'; echo .)" = "$(seq 300000)"$'\nä.' ]
	sse /v1/shell/exec '{"id":"s","command":"seq 300000"}'
	[ "$(grep -c '"output"' "$T/sse")" = 1 ]
	[ "$(sed -n 's/^data: //p' "$T/sse" | jq -j '.output // ""' | wc -c)" -le 30000 ]

	in_s 'echo seen'
	sse /v1/shell/view '{"id":"s"}'
	[ "$(cat "$T/sse")" = $': connected\n\ndata: {"output":"seen\\n"}\n\n'"$end" ]
	in_s 'echo a; sleep 50' '{"async_mode":true}'
	stops_at 8 sse /v1/shell/view '{"id":"s"}'
	grep -q '{"keepalive":true}' "$T/sse"
	[ "$(tail -n 2 "$T/sse" | head -n 1)" = "$end" ]
	api POST /v1/shell/view '{"id":"none"}' -H 'Accept: text/event-stream'
	expect 404
	sandboxd_stop
}

# unread_streams COUNT JSON: that many exec streams whose clients never read. Says
# when all have ended their command, and holds them until its stdin ends.
unread_streams() {
	python3 -c 'import socket, sys
held = []
for i in range(int(sys.argv[2])):
	s = socket.socket(socket.AF_UNIX)
	s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
	s.connect(sys.argv[1])
	body = sys.argv[3].encode()
	s.sendall(b"POST /v1/shell/exec HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n"
		b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
	# Until the first output: the command has ended then.
	got = b""
	while b"data: " not in got:
		got += s.recv(256)
	held.append(s)
print("held", flush=True)
sys.stdin.read()' "$SOCK" "$@"
}

# rss_kib: of the server, the only child of the bwrap around it.
rss_kib() {
	ps -o rss= -p "$(server_of "$SANDBOXD_PID")" | tr -d ' '
}

@test "streams nobody reads do not hold their commands' outputs" {
	local before id n=0 streams

	# A sanitizer keeps freed memory for a while.
	export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}quarantine_size_mb=1
	sandboxd_start
	named s
	next_works
	before=$(rss_kib)
	# In one session, and each in its own.
	for id in '"id":"s",' ''; do
		mkfifo "$T/hold$((++n))"
		unread_streams 20 "{$id"'"command":"head -c 9M /dev/zero | tr \\\\0 x","truncate":false}' \
			<"$T/hold$n" >"$T/held$n" 2>&1 3>&- &
		streams=$!
		exec {hold}>"$T/hold$n"
		wait_for $((60 * SLOW)) grep -q held "$T/held$n"
		sh_exec 'echo next'
		gives completed 0 next
		echo "$id: from $before to $(rss_kib) KiB"
		# 64 MiB of old outputs and the latest of up to 10 sessions.
		[ $(($(rss_kib) - before)) -lt 300000 ]
		exec {hold}>&-
		wait "$streams"
	done
	sandboxd_stop
}
