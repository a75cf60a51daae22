#!/usr/bin/env bats
# shellcheck disable=SC2016,SC2030,SC2031,SC2153
# /v1/file/watch*: watchers, polls, streams and waits over a real socket. One
# sandbox per dialect serves the whole file; every test has directories of its
# own, and most run in both dialects that have the routes.

load ../lib/sandboxd

setup_file() {
	local d pid child

	sandboxd_setup
	WATCH_T=$T
	for d in 1.0 1.9 aiod; do
		SANDBOXD_NAME=$d sandboxd_start --dialect "$d" --max-watchers 4
		# The server itself is the last of the processes that isolation makes.
		pid=$SANDBOXD_PID
		while child=$(pgrep -P "$pid"); do pid=$child; done
		echo "$pid" >"$T/$d.pid"
	done
	export WATCH_T
}

teardown_file() {
	local rc=0 d i=0

	T=$WATCH_T
	for d in 1.0 1.9 aiod; do
		SANDBOXD_LOG=$T/$d.log sandboxd_stop "${SANDBOXD_PIDS[i++]}" || rc=1
	done
	sandboxd_teardown
	return $rc
}

setup() {
	T=$WATCH_T/test$BATS_TEST_NUMBER
	mkdir -p "$T"
	SANDBOXD_PIDS=()
	LEASES=()
	STOPPED=
}

teardown() {
	[ -z "$STOPPED" ] || kill -CONT "$STOPPED"
	end_leases
	sandboxd_teardown
}

# use DIALECT: the sandbox to talk to. H is the test's directory on the host, O one
# beside it, W what H is inside; YES and NO are what is_dir has there.
use() {
	local name=test$BATS_TEST_NUMBER

	DIALECT=$1
	SOCK=$WATCH_T/$1.run/sock
	SERVER=$(<"$WATCH_T/$1.pid")
	H=$WATCH_T/$1.data/workspace/$name
	O=$WATCH_T/$1.data/workspace/$name.out
	W=/mnt/user-data/workspace/$name
	mkdir -p "$H" "$O"
	[ "$1" = aiod ] && YES=true NO=false || YES=1 NO=0
}

# both FUNCTION: runs it with each of the two.
both() {
	local d

	for d in 1.9 aiod; do
		use "$d"
		echo "dialect $d"
		"$1"
		end_leases
	done
}

# end_leases: gives back what watch took, and is not in the way of the next test.
end_leases() {
	local id

	for id in "${LEASES[@]}"; do
		api DELETE "/v1/file/watch/$id" || true
	done
	LEASES=()
}

# failed STATUS CODE: the last call ended with this error, in the dialect's shape.
failed() {
	local shape='keys == ["detail"]'

	[ "$DIALECT" != aiod ] || shape='keys == ["data","detail","hint","message","success"] and
		.success == false and .data == .detail and .message == .detail.message'
	expect "$1" "$shape and .detail.code == \"$2\" and (.detail | keys == [\"code\",\"message\"])"
}

# watch [MEMBERS [EXCLUDE]]: creates a watcher of $W without excludes; sets ID.
watch() {
	local exclude=${2-\"exclude\":[],} debounce='"debounce":50,'

	[[ ${1-} != *debounce* ]] || debounce=
	api POST /v1/file/watch "{$exclude$debounce${1:+$1,}\"path\":\"$W\"}"
	expect 200
	[[ $BODY =~ \"watcher_id\":\"([0-9a-f]*)\" ]]
	ID=${BASH_REMATCH[1]}
	LEASES+=("$ID")
	# Only aiod tells where to start; the log of a new watcher is empty anyway.
	[[ $BODY =~ \"initial_cursor\":([0-9]*) ]] && CURSOR=${BASH_REMATCH[1]} || CURSOR=0
	SEEN=
	OVERFLOWS=0
}

# poll JSON: the answer without an envelope is in BODY.
poll() {
	api POST "/v1/file/watch/$ID/poll" "$1"
	if [ "$HTTP" = 200 ] && [ "$DIALECT" = aiod ]; then
		BODY=${BODY#*\"data\":}
		BODY=${BODY%,\"hint\":*}
	fi
}

# Takes new events (waiting up to a second); SEEN grows by "type path[<old]" lines,
# and begins anew when some were lost.
take() {
	local out

	poll "{\"cursor\":$CURSOR,\"timeout\":1,\"limit\":1000}"
	expect 200
	out=$(jq -r --arg w "$W/" '"\(.cursor) \(.overflow)", (.events[] | .type + " " + .relative_path +
		(if .old_path then "<" + (.old_path | ltrimstr($w)) else "" end))' <<<"$BODY")
	CURSOR=${out%% *}
	if [[ $out == "$CURSOR true"* ]]; then
		OVERFLOWS=$((OVERFLOWS + 1))
		SEEN=
	fi
	[[ $out != *$'\n'* ]] || SEEN+=${out#*$'\n'}$'\n'
}

# Goes on with what happens from now on.
skip() {
	poll '{"cursor":4000000000000}'
	CURSOR=$(j .cursor)
	SEEN=
}

saw_() {
	take
	grep -Fxq -- "$1" <<<"$SEEN"
}

# saw LINE: waits until the event was reported.
saw() {
	grep -Fxq -- "$1" <<<"$SEEN" || wait_until saw_ "$1" || { tail -n 50 <<<"$SEEN" >&2; return 1; }
}

# halt, go: the server does not run in between, so the kernel's queues grow.
halt() {
	STOPPED=$SERVER
	kill -STOP "$SERVER"
}
go() {
	kill -CONT "$SERVER"
	STOPPED=
}

# flood DIR: more happens there than the kernel's queue holds. A touch is two events;
# two files in turn, because an event like the one before it is not queued.
flood() {
	(cd "$1" && seq $(($(</proc/sys/fs/inotify/max_queued_events) * 2 / 3)) |
		sed 's/.*[02468]$/even/; s/.*[0-9]$/odd/' | xargs touch)
}

watches() { cat "/proc/$SERVER/fdinfo/"* 2>/dev/null | grep -c '^inotify wd'; }
more_watches() { [ "$(watches)" -gt "$1" ]; }

# waiter NAME PATH TYPES: waits in the background until something happens to PATH
# (below H, in a directory in which nobody waits yet); back when the server waits.
declare -gA WAITERS # bats reads this file in a function
waiter() {
	local before

	before=$(watches) || true
	curl_sb /v1/file/watch/wait -H 'Content-Type: application/json' -o "$T/$1" -d \
		"{\"path\":\"$W/$2\",\"event_types\":$3,\"timeout\":50}" 3>&- &
	WAITERS[$1]=$!
	wait_until more_watches "$before"
}

# woken NAME JQ-EXPR: that one was answered with this event.
woken() {
	wait "${WAITERS[$1]}"
	HTTP=200 BODY=$(jq -c '.data // . | .event // .' "$T/$1")
	rm "$T/$1"
	j ".seq > 0 and .watcher_id == \"\" and ($2)"
}

@test "1.0 has no watch routes" {
	use 1.0
	api GET /v1/file/watch
	expect 404
	api POST /v1/file/watch "{\"path\":\"$W\"}"
	expect 404
	api POST /v1/file/watch/wait "{\"path\":\"$W/x\"}"
	expect 404
	api POST /v1/file/watch/000000000000/poll '{}'
	expect 404
	api GET /v1/file/watch/000000000000/events
	expect 404
	api DELETE /v1/file/watch/000000000000
	expect 404
}

@test "1.9: shapes of create, list, poll, delete, wait" {
	use 1.9
	watch
	expect 200 'keys == ["data"]' \
		'.data | keys == ["created_at","path","reused","status","watcher_id"]' \
		'.data | .reused == false and .status == "running" and (.created_at | type) == "number"'
	[[ $ID =~ ^[0-9a-f]{12}$ ]]
	api GET /v1/file/watch
	expect 200 'keys == ["data"]' '.data | length == 1' \
		'.data[0] | keys == ["created_at","path","status","subscriber_count","watcher_id"]'
	api POST "/v1/file/watch/$ID/poll" '{}'
	expect 200 '. == {events: [], cursor: 0, overflow: false}'
	echo hi >"$H/f"
	api POST "/v1/file/watch/$ID/poll" '{"timeout":10}'
	expect 200 'keys == ["cursor","events","overflow"]' '.cursor == .events[-1].seq'
	api POST /v1/file/watch/wait "{\"path\":\"$W/f\"}"
	expect 200 'keys == ["event"]' '.event | .seq == 0 and .type == "create" and .is_dir == 0'
	api POST /v1/file/watch/wait "{\"path\":\"$W/never\",\"timeout\":1}"
	failed 408 WATCH_TIMEOUT
	api DELETE "/v1/file/watch/$ID"
	expect 200 ". == {data: {watcher_id: \"$ID\", status: \"stopped\"}}"
}

@test "aiod: everything is in the envelope" {
	use aiod
	envelope='keys == ["data","hint","message","success"] and .success'
	watch
	expect 200 "$envelope" '.data | keys ==
		["created_at","initial_cursor","path","reused","status","watcher_id"]'
	first=$CURSOR
	mkdir "$H/d"
	api POST "/v1/file/watch/$ID/poll" "{\"cursor\":$first,\"timeout\":10}"
	expect 200 "$envelope" '.data | keys == ["cursor","events","overflow"]'
	watch
	expect 200 "$envelope" ".data.reused and .data.initial_cursor == $((first + 1))"
	api GET /v1/file/watch
	expect 200 "$envelope" '.data | length == 1' \
		'.data[0] | keys == ["created_at","path","status","subscriber_count","watcher_id"]'
	api POST /v1/file/watch/wait "{\"path\":\"$W/never\",\"timeout\":1}"
	failed 503 WATCH_TIMEOUT
	api POST /v1/file/watch/wait "{\"path\":\"$W/d\"}"
	expect 200 "$envelope" '.data.event | .seq == 0 and .type == "create" and .is_dir == true'
	api DELETE "/v1/file/watch/$ID"
	expect 200 "$envelope" ".data == {watcher_id: \"$ID\", status: \"running\"}"
}

leases() {
	local first

	watch
	expect 200 '.data.reused == false'
	first=$ID
	watch
	[ "$ID" = "$first" ]
	expect 200 '.data.reused'
	W=$W/ watch
	[ "$ID" = "$first" ]
	watch '"recursive":false'
	[ "$ID" != "$first" ]
	expect 200 '.data.reused == false'
	api DELETE "/v1/file/watch/$ID"
	expect 200 '.data.status == "stopped"'
	for _ in 1 2; do
		api DELETE "/v1/file/watch/$first"
		expect 200 '.data.status == "running"'
	done
	api DELETE "/v1/file/watch/$first"
	expect 200 ".data.status == \"stopped\" and .data.watcher_id == \"$first\""
	for id in "$first" nope 000000000000; do
		api DELETE "/v1/file/watch/$id"
		failed 404 WATCHER_NOT_FOUND
		api POST "/v1/file/watch/$id/poll" '{}'
		failed 404 WATCHER_NOT_FOUND
		api GET "/v1/file/watch/$id/events"
		failed 404 WATCHER_NOT_FOUND
	done
}
@test "the same watcher for the same question, until the last DELETE" { both leases; }

by_target() {
	local first w=$W

	mkdir -p "$H/root" "$H/t1" "$H/t2"
	ln -sfn t1 "$H/lnk"
	W=$w/root watch
	first=$ID
	rm -r "$H/root"
	W=$w/root api POST /v1/file/watch "{\"path\":\"$w/root\",\"exclude\":[],\"debounce\":50}"
	failed 400 PATH_NOT_FOUND
	echo 1 >"$H/root"
	W=$w/root watch
	expect 200 '.data.reused == false'
	echo 2 >>"$H/root"
	saw "write ."
	rm "$H/root"
	mkdir "$H/root"
	W=$w/root watch
	expect 200 ".data.reused and .data.watcher_id == \"$first\""
	W=$w/lnk watch
	ln -sfn t2 "$H/lnk"
	W=$w/lnk watch
	expect 200 '.data.reused == false'
	mkdir "$H/t2/d"
	saw "create d"
	expect 200 ".events[0].path == \"$w/lnk/d\""
}
@test "a watcher is shared only while its path leads to the same" { both by_target; }

changes() {
	mkdir -p "$H/old/sub"
	watch
	mkdir -p "$H/a/b/c"
	echo 1 >"$H/a/b/c/f"
	saw "create a"
	saw "create a/b/c"
	saw "create a/b/c/f"
	poll '{"limit":1000}'
	j ".events[] | select(.relative_path == \"a/b/c/f\") | .type == \"create\" and
		.path == \"$W/a/b/c/f\" and .is_dir == $NO and .old_path == null and .seq > 0 and
		.watcher_id == \"$ID\" and .size == 2 and (.mtime | type) == \"number\" and
		(.timestamp | type) == \"number\" and .inode == $(stat -c %i "$H/a/b/c/f")"
	j ".events[] | select(.relative_path == \"a\") | .is_dir == $YES"
	echo 2 >>"$H/a/b/c/f"
	saw "write a/b/c/f"
	chmod 600 "$H/a/b/c/f"
	saw "chmod a/b/c/f"
	mv "$H/a" "$H/z"
	saw "rename z<a"
	j ".events[] | select(.type == \"rename\") | .is_dir == $YES and .old_path == \"$W/a\""
	echo 3 >>"$H/z/b/c/f"
	saw "write z/b/c/f"
	mv "$H/z/b/c/f" "$H/old/sub/g"
	saw "rename old/sub/g<z/b/c/f"
	rm "$H/old/sub/g"
	saw "remove old/sub/g"
	poll '{"limit":1000}'
	j '[.events[] | select(.type == "remove")] | length == 1 and
		(.[0] | .mtime == null and .size == null and .inode == null)'
	rm -r "$H/z"
	saw "remove z/b/c"
	saw "remove z"
	# The halves of a rename go by their number, not by their order.
	mkdir "$H/r"{1..30}
	saw "create r30"
	SEEN=
	for i in {1..30}; do mv "$H/r$i" "$H/old/s$i" 3>&- & done
	wait
	mkdir "$H/end"
	saw "create end"
	diff <(sort <<<"$SEEN" | grep .) <({ echo create end; seq 30 | sed 's/.*/rename old\/s&<r&/'; } | sort)
}
@test "what happens to files and directories is reported" { both changes; }

moves() {
	watch
	mkdir -p "$O/x/y"
	echo 1 >"$O/x/y/f"
	mv "$O/x" "$H/in"
	saw "create in"
	saw "create in/y"
	saw "create in/y/f"
	echo 2 >>"$H/in/y/f"
	saw "write in/y/f"
	mv "$H/in" "$O/back"
	saw "remove in"
	echo 3 >>"$O/back/y/f"
	mkdir "$O/back/y/d" "$H/mark"
	saw "create mark"
	refute grep -q ' in/y\| back' <<<"${SEEN##*remove in}"
}
@test "trees moved in and out" { both moves; }

replacement() {
	mkdir -p "$H/a" "$H/b"
	watch
	mv -T "$H/a" "$H/b"
	saw "rename b<a"
	echo 1 >"$H/b/f"
	saw "create b/f"
}
@test "a directory that is replaced by rename" { both replacement; }

patterns() {
	mkdir -p "$H/.git" "$H/src"
	watch '"recursive":true' ''
	echo 1 >"$H/.git/x"
	echo 1 >"$H/src/a.pyc"
	echo 1 >"$H/src/a.py"
	saw "create src/a.py"
	refute grep -q 'git\|pyc' <<<"$SEEN"
	watch '"include_patterns":["*.c","?.h"]'
	echo 1 >"$H/src/x.txt"
	echo 1 >"$H/src/xx.h"
	mkdir "$H/src/new"
	echo 1 >"$H/src/new/x.h"
	echo 1 >"$H/src/m.c"
	saw "create src/new/x.h"
	saw "create src/m.c"
	refute grep -q 'txt\|xx.h\|new$' <<<"$SEEN"
	mv "$H/src/x.txt" "$H/src/x.c"
	saw "create src/x.c"
	mv "$H/src/x.c" "$H/src/x.txt"
	saw "remove src/x.c"
	mv "$H/src/new" "$H/src/newer"
	saw "rename src/newer<src/new"
	watch '"recursive":false'
	echo 1 >"$H/src/deep"
	echo 1 >"$H/top"
	saw "create top"
	refute grep -q deep <<<"$SEEN"
}
@test "exclude, include, debounce and recursion" { both patterns; }

one_file() {
	local w=$W

	echo 1 >"$H/f"
	W=$w/f watch
	echo 2 >"$H/other"
	echo 2 >>"$H/f"
	saw "write ."
	poll '{}'
	j "(.events | length) == 1 and .events[0].path == \"$w/f\""
	mv "$H/other" "$H/f"
	saw "create ."
	rm "$H/f"
	saw "remove ."
}
@test "one file, also when it is replaced" { both one_file; }

root() {
	W=$W/p/root
	mkdir -p "$H/p/root/d"
	watch
	mv "$H/p" "$H/q"
	saw "remove ."
	SEEN=
	mkdir -p "$H/p/root/e"
	echo 1 >"$H/p/root/e/f"
	saw "create ."
	saw "create e/f"
	echo 2 >>"$H/p/root/e/f"
	saw "write e/f"
	rm -r "$H/p/root"
	saw "remove ."
	api GET /v1/file/watch
	expect 200 '.data[0].status == "running"'
}
@test "the root goes and comes back" { both root; }

subscribers() { api GET /v1/file/watch && [[ $BODY == *"\"subscriber_count\":$1,"* ]]; }

polls() {
	local first long

	watch
	first=$CURSOR
	for i in 1 2 3 4 5; do echo "$i" >"$H/f$i"; done
	saw "create f5"
	poll "{\"cursor\":$first,\"limit\":2}"
	j '(.events | length) == 2 and .cursor == .events[1].seq and .overflow == false'
	poll "{\"cursor\":$CURSOR}"
	j '.events == [] and .overflow == false'
	poll "{\"cursor\":$((CURSOR + 1000))}"
	j ".overflow and .cursor == $CURSOR"
	for body in '{"cursor":-1}' '{"limit":0}' '{"limit":1001}' '{"timeout":61}'; do
		poll "$body"
		expect 422
	done
	curl_sb "/v1/file/watch/$ID/poll" -H 'Content-Type: application/json' \
		-d "{\"cursor\":$CURSOR,\"timeout\":60}" >"$T/long" 3>&- &
	long=$!
	wait_until subscribers 1
	mkdir "$H/wake"
	wait "$long"
	[ "$(jq -r '.data // . | .events[].relative_path' "$T/long")" = wake ]
	curl_sb "/v1/file/watch/$ID/poll" -H 'Content-Type: application/json' \
		-d "{\"cursor\":$((CURSOR + 1)),\"timeout\":60}" >"$T/long" 3>&- &
	long=$!
	wait_until subscribers 1
	api DELETE "/v1/file/watch/$ID"
	expect 200 '.data.status == "stopped"'
	wait "$long"
	[ "$(jq -r .detail.code "$T/long")" = WATCHER_NOT_FOUND ]
}
@test "polls: limit, cursor, long poll, a watcher that ends" { both polls; }

# frames FILE: the data of the events of a stream, one JSON line each.
frames() { sed -n '/^event: file_change$/{n;s/^data: //p}' "$1"; }

stream() {
	local pid

	rm -f "$T/sse"*
	watch
	# Not by curl_sb: the pid must be curl's own.
	curl -sN -m 30 --unix-socket "$SOCK" "http://localhost/v1/file/watch/$ID/events" \
		>"$T/sse" 3>&- &
	pid=$!
	wait_until grep -q '^event: watch_started' "$T/sse"
	sed -n '/^event: watch_started$/{n;s/^data: //p}' "$T/sse" |
		jq -e ". == {watcher_id: \"$ID\", path: \"$W\"}"
	mkdir "$H/one"
	wait_until grep -q '"relative_path":"one"' "$T/sse"
	[ "$(frames "$T/sse" | jq -c '[.type, .is_dir, .path, .watcher_id]')" = \
		"[\"create\",$YES,\"$W/one\",\"$ID\"]" ]
	seq=$(frames "$T/sse" | jq .seq)
	grep -qx "id: $ID:$seq" "$T/sse"
	kill "$pid"
	wait "$pid" || true
	wait_until subscribers 0
	: >"$H/two"
	saw "create two"
	CURL_MAX_TIME=30 curl_sb "/v1/file/watch/$ID/events" -N -H "Last-Event-ID: $ID:$seq" \
		>"$T/sse2" 3>&- &
	pid=$!
	wait_until grep -q '"relative_path":"two"' "$T/sse2"
	frames "$T/sse2" | jq -es ".[0].relative_path == \"two\" and .[0].is_dir == $NO"
	refute grep -q '"relative_path":"one"' "$T/sse2"
	api DELETE "/v1/file/watch/$ID"
	wait "$pid"
	api GET "/v1/file/watch/$ID/events"
	failed 404 WATCHER_NOT_FOUND
}
@test "events by SSE: frames, resume, disconnects, end" { both stream; }

too_many() {
	local first

	watch
	first=$CURSOR
	# Moved in at once, so that the kernel's queue has no part in it.
	[ -d "$T/many" ] || (mkdir "$T/many" && cd "$T/many" && seq 12000 | xargs touch)
	mv "$T/many" "$H/many"
	wait_until overflowed_since "$first"
	curl_sb "/v1/file/watch/$ID/events" -N -H "Last-Event-ID: $ID:$first" >"$T/sse"
	grep -qx 'event: overflow' "$T/sse"
	sed -n '/^event: overflow$/{n;s/^data: //p}' "$T/sse" |
		jq -e "keys == [\"message\",\"watcher_id\"] and .watcher_id == \"$ID\""
	[ -z "$(frames "$T/sse")" ]
	skip
	echo 1 >"$H/after"
	saw "create after"
	poll "{\"cursor\":$CURSOR}"
	j '.overflow == false'
	mv "$H/many" "$T/many" # for the other dialect
}
@test "too many events: overflow, then it goes on" { both too_many; }

overflowed_since() {
	poll "{\"cursor\":$1,\"limit\":1}"
	[[ $BODY == *'"overflow":true'* ]]
}

arrived_or_lost() {
	take
	[ "$OVERFLOWS" -gt 0 ] || grep -Fxq "create $1" <<<"$SEEN"
}

# Makes directories (one event each) until no overflow comes between: all that were
# made after the last one are reported, and once.
after_overflow() {
	local try

	skip
	for try in {1..50}; do
		OVERFLOWS=0
		mkdir "$H/deep/er/$try."{1,2,3}
		wait_until arrived_or_lost "deep/er/$try.3"
		[ "$OVERFLOWS" -gt 0 ] || break
	done
	mkdir "$H/deep/er/end"
	saw "create deep/er/end"
	[ "$OVERFLOWS" = 0 ]
	grep 'deep/er/' <<<"$SEEN" >"$T/after"
	tail -n 4 "$T/after" | diff - <(printf 'create deep/er/%s\n' "$try."{1,2,3} end)
	[ -z "$(sort "$T/after" | uniq -d)" ]
}

busy() {
	watch
	(cd "$H" && seq 4000 | xargs -n 200 touch && mkdir -p deep/er) 3>&- &
	for _ in {1..20}; do
		api GET /v1/file/watch '' --max-time 15
		expect 200
	done
	wait $!
	after_overflow
}
@test "a busy tree does not keep others waiting, and is in step afterwards" { both busy; }

lost() {
	local first

	mkdir -p "$H/deep"
	watch
	mkdir "$H/first"
	saw "create first"
	first=$CURSOR
	halt
	flood "$H"
	mkdir -p "$H/deep/er" # nobody is told of this one
	go
	wait_until overflowed_since "$first"
	after_overflow
}
@test "the kernel's queue overflows: it is told, and later events come once" { both lost; }

@test "long paths: events wait for room, and none is lost" {
	use 1.9
	part=$(printf 'd%.0s' {1..200})
	deep=$(printf "$part/%.0s" {1..10})
	mkdir -p "$H/$deep"
	watch
	halt
	(cd "$H/$deep" && seq 3000 | xargs mkdir)
	go
	more() {
		poll "{\"cursor\":$CURSOR,\"timeout\":1,\"limit\":1000}"
		j '.overflow == false' >/dev/null || { rm -f "$T/names"; return 0; }
		CURSOR=$(jq .cursor <<<"$BODY")
		jq -r '.events[] | .type + " " + (.relative_path | split("/")[-1])' <<<"$BODY" >>"$T/names"
		[ "$(wc -l <"$T/names")" -ge 3000 ]
	}
	wait_until more
	diff <(sort "$T/names") <(seq -f 'create %g' 3000 | sort)
}

waits() {
	wait_for_it() { api POST /v1/file/watch/wait "$1"; }
	mkdir -p "$H"/w{1..7}
	waiter create w1/f '["create"]'
	: >"$H/w1/other"
	echo 1 >"$H/w1/f"
	woken create ".type == \"create\" and .path == \"$W/w1/f\" and .is_dir == $NO"
	echo 1 >"$H/w2/f"
	waiter write w2/f '["write"]'
	chmod 600 "$H/w2/f"
	echo 2 >>"$H/w2/f"
	woken write '.type == "write" and .size == 4 and .relative_path == "f"'
	waiter rename w3/new '["rename"]'
	: >"$H/w3/t"
	mv "$H/w3/t" "$H/w3/new"
	woken rename ".type == \"rename\" and .old_path == \"$W/w3/t\""
	mkdir "$H/w4/d"
	waiter remove w4/d '["remove"]'
	rmdir "$H/w4/d"
	woken remove ".type == \"remove\" and .size == null and .is_dir == $YES"
	: >"$H/w5/f"
	waiter chmod w5/f '["chmod"]'
	chmod 640 "$H/w5/f"
	woken chmod '.type == "chmod"'
	: >"$H/w6/t"
	waiter moved w6/f '["create"]'
	mv "$H/w6/t" "$H/w6/f"
	woken moved '.type == "create"'
	waiter any w7/d '["create","write","remove","rename","chmod"]'
	mkdir "$H/w7/d"
	woken any ".type == \"create\" and .is_dir == $YES"
	wait_for_it "{\"path\":\"$W/no/where\"}"
	failed 400 PATH_NOT_FOUND
	wait_for_it '{"path":"/","event_types":["write"]}'
	failed 400 INVALID_PATH
	wait_for_it "{\"path\":\"$W/f\",\"event_types\":[\"open\"]}"
	expect 422
	wait_for_it "{\"path\":\"$W/f\",\"timeout\":301}"
	expect 422
}
@test "wait: woken by each kind of event; errors" { both waits; }

lost_waits() {
	mkdir -p "$H"/{c,cd,w,wd,m,md,r,rn,x,same,noise} "$H/wd/d" "$H/md/d"
	for f in w/f m/f r/f x/f same/f; do echo 1 >"$H/$f"; done
	waiter created c/f '["create","write","remove"]'
	waiter made cd/d '["create"]'
	waiter written w/f '["write","chmod"]'
	waiter quiet wd/d '["write","remove"]'
	waiter moded m/f '["write","chmod"]'
	waiter dirmode md/d '["chmod"]'
	waiter removed r/f '["write","remove"]'
	waiter renamed rn/f '["rename"]'
	waiter replaced x/f '["chmod","remove"]'
	waiter same same/f '["write","remove","chmod"]'
	waiter noise noise/never '["create"]'
	halt
	flood "$H/noise"
	echo 1 >"$H/c/f"
	mkdir "$H/cd/d" "$H/wd/d/entry"
	echo 2 >>"$H/w/f"
	chmod 600 "$H/m/f"
	chmod 700 "$H/md/d"
	rm "$H/r/f"
	: >"$H/rn/f"
	echo 3 >"$H/x/new"
	mv "$H/x/new" "$H/x/f"
	go
	woken created '.type == "create" and .size == 2'
	woken made ".type == \"create\" and .is_dir == $YES"
	woken written '.type == "write" and .size == 4'
	woken moded '.type == "chmod"'
	woken dirmode ".type == \"chmod\" and .is_dir == $YES"
	woken removed '.type == "remove"'
	woken replaced '.type == "remove"'
	[ ! -s "$T/same" ]
	[ ! -s "$T/quiet" ]
	[ ! -s "$T/renamed" ]
	chmod 600 "$H/same/f"
	woken same '.type == "chmod"'
	rmdir "$H/wd/d/entry" "$H/wd/d"
	woken quiet '.type == "remove"'
	mv "$H/rn/f" "$H/rn/g"
	mv "$H/rn/g" "$H/rn/f"
	woken renamed ".type == \"rename\" and .old_path == \"$W/rn/g\""
	: >"$H/noise/never"
	woken noise '.type == "create"'
}
@test "wait: the kernel's queue overflows, and what happened is seen" { both lost_waits; }

odd() {
	local long

	long=$(printf 'x%.0s' {1..5000})
	api POST /v1/file/watch "{\"path\":\"/$long\"}"
	failed 400 INVALID_PATH
	api POST /v1/file/watch/wait "{\"path\":\"/$long\"}"
	failed 400 INVALID_PATH
	api POST /v1/file/watch '{"path":"/nowhere"}'
	failed 400 PATH_NOT_FOUND
	ln -s loop "$H/loop"
	api POST /v1/file/watch "{\"path\":\"$W/loop\"}"
	failed 400 INVALID_PATH
	api POST /v1/file/watch "{\"path\":\"$W\",\"exclude\":[\"$long\"]}"
	failed 400 INVALID_PATTERN
	for body in '{}' '[]' '{"path":""}' '{"path":1}' '{"path":"/tmp\u0000x"}' \
		'{"path":"/tmp","debounce":49}' '{"path":"/tmp","debounce":5001}' \
		'{"path":"/tmp","exclude":"x"}' '{"path":"/tmp","recursive":"maybe"}'; do
		api POST /v1/file/watch "$body"
		[ "$HTTP" = 422 ] || { echo "$body: $HTTP $BODY"; false; }
	done
	for i in 1 2 3 4; do watch "\"debounce\":$((50 + i))"; done
	api POST /v1/file/watch "{\"path\":\"$W\"}"
	failed 429 WATCH_LIMIT_EXCEEDED
	watch '"debounce":54'
	expect 200 '.data.reused'
}
@test "odd requests are refused" { both odd; }

not_utf8() {
	watch
	mkdir "$H/a"$'\xff'z "$H/after"
	saw "create after"
	saw $'create a\ufffdz'
}
@test "a name that is not UTF-8 does not stop the events" { both not_utf8; }
