#!/usr/bin/env bats
# shellcheck disable=SC2016,SC2030,SC2031,SC2153,SC2314
# /v1/file/watch*: watchers, polls, streams and waits over a real socket.

load ../lib/sandboxd

setup() {
	sandboxd_setup
	W=/mnt/user-data/workspace
}

teardown() {
	sandboxd_teardown
}

# start DIALECT [ARGS…]; H is the workspace on the host.
start() {
	local dialect=$1

	shift
	sandboxd_start --dialect "$dialect" "$@"
	H=$DATA/workspace
	mkdir -p "$H"
}

# watch [JSON]: creates a watcher of $W without excludes; sets ID.
watch() {
	api POST /v1/file/watch "$(jq -n --arg p "$W" --argjson x "${1:-{\}}" \
		'{path: $p, exclude: [], debounce: 50} + $x')"
	[ "$HTTP" = 200 ]
	ID=$(j .data.watcher_id)
	CURSOR=0
	SEEN=
}

# poll JSON
poll() {
	api POST "/v1/file/watch/$ID/poll" "$1"
}

# Takes new events (waiting up to a second); SEEN grows by "type path[<old]" lines.
take() {
	poll "{\"cursor\":$CURSOR,\"timeout\":1,\"limit\":1000}"
	[ "$HTTP" = 200 ]
	CURSOR=$(jq '.data // . | .cursor' <<<"$BODY")
	SEEN+=$(jq -r --arg w "$W/" '.data // . | .events[] | .type + " " + .relative_path +
		(if .old_path then "<" + (.old_path | ltrimstr($w)) else "" end)' <<<"$BODY")$'\n'
}

saw_() {
	take
	grep -Fxq -- "$1" <<<"$SEEN"
}

# saw LINE: waits until the event was reported.
saw() {
	grep -Fxq -- "$1" <<<"$SEEN" || wait_until saw_ "$1" || { echo "$SEEN" >&2; return 1; }
}

@test "1.0 has no watch routes" {
	start 1.0
	api GET /v1/file/watch
	[ "$HTTP" = 404 ]
	api POST /v1/file/watch "{\"path\":\"$W\"}"
	[ "$HTTP" = 404 ]
	api POST /v1/file/watch/wait "{\"path\":\"$W/x\"}"
	[ "$HTTP" = 404 ]
	api POST /v1/file/watch/000000000000/poll '{}'
	[ "$HTTP" = 404 ]
	api GET /v1/file/watch/000000000000/events
	[ "$HTTP" = 404 ]
	api DELETE /v1/file/watch/000000000000
	[ "$HTTP" = 404 ]
	sandboxd_stop
}

@test "1.9: shapes of create, list, poll, delete; leases" {
	start 1.9
	watch
	j '(keys == ["data"]) and (.data | keys == ["created_at","path","reused","status","watcher_id"])'
	j '.data | .reused == false and .status == "running" and (.created_at | type) == "number"'
	[[ $ID =~ ^[0-9a-f]{12}$ ]]
	first=$ID
	watch
	[ "$ID" = "$first" ]
	j '.data.reused'
	watch '{"recursive":false}'
	[ "$ID" != "$first" ]
	api DELETE "/v1/file/watch/$ID"
	j '.data.status == "stopped"'
	ID=$first
	api GET /v1/file/watch
	j '.data | length == 1'
	j '.data[0] | keys == ["created_at","path","status","subscriber_count","watcher_id"]'
	poll '{}'
	j '. == {events: [], cursor: 0, overflow: false}'
	echo hi >"$H/f"
	poll '{"timeout":10}'
	j '.events[0] | .type == "create" and .path == "/mnt/user-data/workspace/f" and
		.relative_path == "f" and .is_dir == 0 and .old_path == null and .seq == 1 and
		.size == 3 and (.mtime | type) == "number" and (.inode | type) == "number"'
	j '.events[0].watcher_id == $id' --arg id "$ID"
	api DELETE "/v1/file/watch/$ID"
	j '.data == {watcher_id: $id, status: "running"}' --arg id "$ID"
	api DELETE "/v1/file/watch/$ID"
	j '.data.status == "stopped"'
	api DELETE "/v1/file/watch/$ID"
	[ "$HTTP" = 404 ]
	j '.detail.code == "WATCHER_NOT_FOUND"'
	sandboxd_stop
}

@test "aiod: everything is in the envelope" {
	start aiod
	watch
	j '.success and .data.initial_cursor == 0 and has("hint")'
	mkdir "$H/d"
	poll '{"timeout":10}'
	j '.success and .data.overflow == false and .data.events[0].is_dir == true'
	watch
	j '.data.reused and .data.initial_cursor == 1'
	api GET /v1/file/watch
	j '.success and (.data | length == 1)'
	api POST /v1/file/watch/nope/poll '{}'
	[ "$HTTP" = 404 ]
	j '.success == false and .data.code == "WATCHER_NOT_FOUND"' >/dev/null
	api POST /v1/file/watch/wait "{\"path\":\"$W/never\",\"timeout\":1}"
	[ "$HTTP" = 503 ]
	j '.data.code == "WATCH_TIMEOUT"'
	api POST /v1/file/watch/wait "{\"path\":\"$W/d\"}"
	j '.data.event | .seq == 0 and .type == "create"'
	api DELETE "/v1/file/watch/$ID"
	j '.success and .data.status == "running"'
	sandboxd_stop
}

@test "what happens to files and directories is reported" {
	start 1.9
	mkdir -p "$H/old/sub"
	watch
	mkdir -p "$H/a/b/c"
	echo 1 >"$H/a/b/c/f"
	saw "create a"
	saw "create a/b/c"
	saw "create a/b/c/f"
	echo 2 >>"$H/a/b/c/f"
	saw "write a/b/c/f"
	chmod 600 "$H/a/b/c/f"
	saw "chmod a/b/c/f"
	mv "$H/a" "$H/z"
	saw "rename z<a"
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
	sandboxd_stop
}

@test "trees moved in and out" {
	start 1.9
	watch
	mkdir -p "$DATA/outside/x/y"
	echo 1 >"$DATA/outside/x/y/f"
	mv "$DATA/outside/x" "$H/in"
	saw "create in"
	saw "create in/y"
	saw "create in/y/f"
	echo 2 >>"$H/in/y/f"
	saw "write in/y/f"
	mv "$H/in" "$DATA/outside/back"
	saw "remove in"
	echo 3 >>"$DATA/outside/back/y/f"
	mkdir "$H/mark"
	saw "create mark"
	! grep -q '^[^ ]* in/y/f$' <<<"${SEEN##*remove in}"
	sandboxd_stop
}

@test "a directory that is replaced by rename" {
	start 1.9
	mkdir -p "$H/a" "$H/b"
	watch
	mv -T "$H/a" "$H/b"
	saw "rename b<a"
	echo 1 >"$H/b/f"
	saw "create b/f"
	sandboxd_stop
}

@test "exclude, include, debounce and recursion" {
	start 1.9
	mkdir -p "$H/.git" "$H/src"
	api POST /v1/file/watch "{\"path\":\"$W\",\"debounce\":50}"
	ID=$(j .data.watcher_id)
	CURSOR=0 SEEN=
	echo 1 >"$H/.git/x"
	echo 1 >"$H/src/a.pyc"
	echo 1 >"$H/src/a.py"
	saw "create src/a.py"
	! grep -q 'git\|pyc' <<<"$SEEN"
	watch '{"include_patterns":["*.c","?.h"]}'
	echo 1 >"$H/src/x.txt"
	echo 1 >"$H/src/xx.h"
	mkdir "$H/src/new"
	echo 1 >"$H/src/new/x.h"
	echo 1 >"$H/src/m.c"
	saw "create src/new/x.h"
	saw "create src/m.c"
	! grep -q 'txt\|xx.h\|new$' <<<"$SEEN"
	mv "$H/src/x.txt" "$H/src/x.c"
	saw "create src/x.c"
	mv "$H/src/x.c" "$H/src/x.txt"
	saw "remove src/x.c"
	mv "$H/src/new" "$H/src/newer"
	saw "rename src/newer<src/new"
	watch '{"recursive":false}'
	echo 1 >"$H/src/deep"
	echo 1 >"$H/top"
	saw "create top"
	! grep -q deep <<<"$SEEN"
	sandboxd_stop
}

@test "one file, also when it is replaced" {
	start 1.9
	echo 1 >"$H/f"
	api POST /v1/file/watch "{\"path\":\"$W/f\",\"debounce\":50}"
	ID=$(j .data.watcher_id)
	CURSOR=0 SEEN=
	echo 2 >"$H/other"
	echo 2 >>"$H/f"
	saw "write ."
	poll '{}'
	j '(.events | length) == 1 and .events[0].path == "/mnt/user-data/workspace/f"'
	mv "$H/other" "$H/f"
	saw "create ."
	rm "$H/f"
	saw "remove ."
	sandboxd_stop
}

@test "the root goes and comes back" {
	start 1.9
	mkdir -p "$H/p/root/d"
	W=$W/p/root
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
	j '.data[0].status == "running"'
	sandboxd_stop
}

@test "polls: limit, cursor, long poll, a watcher that ends" {
	start 1.9
	watch
	for i in 1 2 3 4 5; do echo "$i" >"$H/f$i"; done
	saw "create f5"
	poll '{"limit":2}'
	j '(.events | length) == 2 and .cursor == .events[1].seq'
	poll "{\"cursor\":$CURSOR}"
	j '.events == []'
	poll "{\"cursor\":$((CURSOR + 1000))}"
	j '.overflow and .cursor == $c' --argjson c "$CURSOR"
	curl_sb "/v1/file/watch/$ID/poll" -H 'Content-Type: application/json' \
		-d "{\"cursor\":$CURSOR,\"timeout\":60}" >"$T/long" 3>&- &
	waiting() { api GET /v1/file/watch && j '.data[0].subscriber_count == 1' >/dev/null; }
	wait_until waiting 2>/dev/null
	api DELETE "/v1/file/watch/$ID"
	wait $!
	[ "$(jq -r .detail.code "$T/long")" = WATCHER_NOT_FOUND ]
	sandboxd_stop
}

@test "events by SSE: names, resume, disconnects, end" {
	start 1.9
	watch
	# Not by curl_sb: the pid must be curl's own.
	curl -sN -m 30 --unix-socket "$SOCK" "http://localhost/v1/file/watch/$ID/events" \
		>"$T/sse" 3>&- &
	pid=$!
	wait_until grep -q '^event: watch_started' "$T/sse"
	echo 1 >"$H/one"
	wait_until grep -q '"relative_path":"one"' "$T/sse"
	grep -q "^id: $ID:1$" "$T/sse"
	grep -q '^event: file_change$' "$T/sse"
	kill "$pid"
	wait "$pid" || true
	gone() { api GET /v1/file/watch && j '.data[0].subscriber_count == 0' >/dev/null; }
	wait_until gone
	echo 2 >"$H/two"
	saw "create two"
	CURL_MAX_TIME=30 curl_sb "/v1/file/watch/$ID/events" -N -H "Last-Event-ID: $ID:1" >"$T/sse2" 3>&- &
	wait_until grep -q '"relative_path":"two"' "$T/sse2"
	! grep -q '"relative_path":"one"' "$T/sse2"
	api DELETE "/v1/file/watch/$ID"
	wait $!
	api GET "/v1/file/watch/$ID/events"
	[ "$HTTP" = 404 ]
	sandboxd_stop
}

@test "too many events: overflow, then it goes on" {
	start 1.9
	watch
	# Moved in at once, so that the kernel's queue has no part in it.
	mkdir "$DATA/many"
	(cd "$DATA/many" && seq 12000 | xargs touch)
	mv "$DATA/many" "$H/many"
	overflowed() { poll '{"limit":1}' && jq -e .overflow <<<"$BODY" >/dev/null; }
	wait_until overflowed
	curl_sb "/v1/file/watch/$ID/events" -N -H "Last-Event-ID: $ID:1" >"$T/sse"
	grep -q '^event: overflow' "$T/sse"
	echo 1 >"$H/after"
	saw "create after"
	poll "{\"cursor\":$CURSOR}"
	j '.overflow == false' >/dev/null
	sandboxd_stop
}

@test "a busy tree does not keep others waiting, and is in step afterwards" {
	start 1.9
	watch
	(cd "$H" && for i in {1..30000}; do : >"f$i"; done; mkdir -p deep/er) 3>&- &
	for _ in {1..20}; do
		api GET /v1/file/watch '' --max-time 2
		[ "$HTTP" = 200 ]
	done
	wait $!
	saw_mark() { echo x >>"$H/deep/er/mark"; take; grep -q 'deep/er/mark$' <<<"$SEEN"; }
	wait_until saw_mark
	sandboxd_stop
}

@test "wait: there already, created, renamed, written, removed, timeout" {
	start 1.9
	wait_for_it() { api POST /v1/file/watch/wait "$1"; }
	echo 1 >"$H/f"
	wait_for_it "{\"path\":\"$W/f\"}"
	j '.event | .seq == 0 and .type == "create" and .path == "/mnt/user-data/workspace/f"'
	later() { (for _ in {1..200}; do eval "$1"; sleep 0.05; [ -e "$T/stop" ] && break; done) 3>&- & }
	later "echo x >>'$H/f'"
	wait_for_it "{\"path\":\"$W/f\",\"event_types\":[\"write\"],\"timeout\":20}"
	touch "$T/stop"
	wait $!
	j '.event.type == "write" and .event.seq > 0'
	rm "$T/stop"
	later ": >'$H/t'; mv '$H/t' '$H/new'"
	wait_for_it "{\"path\":\"$W/new\",\"event_types\":[\"rename\"],\"timeout\":20}"
	touch "$T/stop"
	wait $!
	j '.event | .type == "rename" and .old_path == "/mnt/user-data/workspace/t"'
	rm "$T/stop"
	later "rm -f '$H/new'; : >'$H/new'"
	wait_for_it "{\"path\":\"$W/new\",\"event_types\":[\"remove\"],\"timeout\":20}"
	touch "$T/stop"
	wait $!
	j '.event | .type == "remove" and .size == null'
	wait_for_it "{\"path\":\"$W/never\",\"timeout\":1}"
	[ "$HTTP" = 408 ]
	j '.detail.code == "WATCH_TIMEOUT"'
	wait_for_it "{\"path\":\"$W/no/where\"}"
	[ "$HTTP" = 400 ]
	wait_for_it "{\"path\":\"/\",\"event_types\":[\"write\"]}"
	[ "$HTTP" = 400 ]
	wait_for_it "{\"path\":\"$W/f\",\"event_types\":[\"open\"]}"
	[ "$HTTP" = 422 ]
	wait_for_it "{\"path\":\"$W/f\",\"timeout\":301}"
	[ "$HTTP" = 422 ]
	sandboxd_stop
}

@test "odd requests are refused" {
	start 1.9 --max-watchers 2
	long=$(printf 'x%.0s' {1..5000})
	api POST /v1/file/watch "{\"path\":\"/$long\"}"
	[ "$HTTP" = 400 ]
	api POST /v1/file/watch/wait "{\"path\":\"/$long\"}"
	[ "$HTTP" = 400 ]
	api POST /v1/file/watch '{"path":"/nowhere"}'
	[ "$HTTP" = 400 ]
	j '.detail.code == "PATH_NOT_FOUND"'
	api POST /v1/file/watch "{\"path\":\"$W\",\"exclude\":[\"$long\"]}"
	[ "$HTTP" = 400 ]
	for body in '{}' '[]' '{"path":""}' '{"path":1}' '{"path":"/tmp\u0000x"}' \
		'{"path":"/tmp","debounce":49}' '{"path":"/tmp","debounce":5001}' \
		'{"path":"/tmp","exclude":"x"}' '{"path":"/tmp","recursive":"maybe"}'; do
		api POST /v1/file/watch "$body"
		[ "$HTTP" = 422 ] || { echo "$body: $HTTP $BODY"; false; }
	done
	watch
	for body in '{"cursor":-1}' '{"limit":0}' '{"limit":1001}' '{"timeout":61}'; do
		poll "$body"
		[ "$HTTP" = 422 ] || { echo "$body: $HTTP $BODY"; false; }
	done
	watch '{"debounce":60}'
	api POST /v1/file/watch "{\"path\":\"$W\"}"
	[ "$HTTP" = 429 ]
	j '.detail.code == "WATCH_LIMIT_EXCEEDED"'
	sandboxd_stop
}

@test "a name that is not UTF-8 does not stop the events" {
	start 1.9
	watch
	touch "$H/"$'\xff'
	touch "$H/after"
	saw "create after"
	sandboxd_stop
}
