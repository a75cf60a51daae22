#!/usr/bin/env bats
# What all routes share: envelopes, errors, keys, bodies, connections.

load ../lib/sandboxd

setup() { sandboxd_setup; }
teardown() { sandboxd_teardown; }

# start_tcp [ARGS…]: a sandbox on loopback, so that raw bytes can be sent to it.
start_tcp() {
	sandboxd_start --listen 127.0.0.1:0 "$@"
	PORT=$(grep -o '127.0.0.1:[0-9]*' "$SANDBOXD_OUT" | cut -d: -f2)
	CURL_TARGET=http://127.0.0.1:$PORT
}

# raw FILE: sends its bytes as they are, prints what comes back until the end.
raw() {
	timeout 10 bash -c 'exec 5<>"/dev/tcp/127.0.0.1/$1"; cat "$2" >&5 2>/dev/null; cat <&5' _ "$PORT" "$1" || true
}

@test "GET /v1/sandbox tells version and home in every dialect" {
	local d
	for d in 1.0 1.9 aiod; do
		SANDBOXD_NAME=s$d sandboxd_start --dialect "$d"
		api GET /v1/sandbox
		expect 200
		[ "$(j .home_dir)" = /home/gem ]
		[ "$(j .detail.system.user)" = gem ]
		j '.detail.runtime.python | type == "array"'
		case $d in
		1.0) expect 200 '.version | startswith("1.0.0.")' 'has("hint") | not' ;;
		1.9) j '.version == "1.9.4" and has("hint")' ;;
		aiod) j '.version == "1.0.0"' ;;
		esac
		sandboxd_stop
	done
}

@test "aiod has ping, health and capabilities; the others have not" {
	sandboxd_start
	api GET /v1/ping
	expect 200
	api GET /health
	expect 200 '.status == "healthy"'
	api GET /v1/capabilities
	expect 200 '.data.capabilities | index("file.stat")'
	sandboxd_stop
	SANDBOXD_NAME=old sandboxd_start --dialect 1.9
	api GET /v1/capabilities
	expect 404 '.detail == "Not Found"'
	sandboxd_stop
}

@test "unknown routes are 404, wrong methods 405, in each dialect's words" {
	local d
	for d in 1.0 1.9 aiod; do
		SANDBOXD_NAME=s$d sandboxd_start --dialect "$d"
		api GET /v1/nothing
		expect 404
		j '.message == "Not Found" or .detail == "Not Found"'
		api DELETE /v1/file/list
		expect 405
		j '.success == false or .detail == "Method Not Allowed"'
		sandboxd_stop
	done
}

@test "a body that does not fit is 422 with the place named" {
	sandboxd_start --dialect 1.9
	api POST /v1/file/list '{}'
	expect 422
	j '.detail[0].loc == ["body","path"] and .detail[0].type == "missing"'
	api POST /v1/file/list '{"path":5}'
	expect 422 '.detail[0].type == "string_type"'
	api POST /v1/file/list '{"path"'
	expect 422 '.detail[0].type == "json_invalid"'
	api POST /v1/file/list '[]'
	expect 422
	api POST /v1/file/list
	expect 422
	sandboxd_stop
	SANDBOXD_NAME=aiod sandboxd_start
	api POST /v1/file/list '{}'
	expect 422 '.errors[0].location == "body.path"'
	sandboxd_stop
}

@test "NUL, 5,000-byte paths, deep and endless JSON get clear errors" {
	sandboxd_start
	api POST /v1/file/list '{"path":"/tmp\u0000x"}'
	expect 422
	api GET '/v1/file/download?path=/tmp%00x'
	expect 422
	api POST /v1/file/list "{\"path\":\"/$(printf 'x%.0s' {1..5000})\"}"
	expect 200
	j '.success == false and .data.errno_name == "ENAMETOOLONG" and .data.error_type == "invalid_path"'
	api POST /v1/file/list "{\"path\":$(printf '[%.0s' {1..500})$(printf ']%.0s' {1..500})}"
	expect 422 '.errors[0].message | test("nested")'
	{ printf '{"path":['; head -c 600000 /dev/zero | sed 's/\x0/1,/g'; printf '1]}'; } >"$T/many.json"
	api POST /v1/file/list '' -H 'Content-Type: application/json' --data-binary "@$T/many.json"
	expect 422 '.errors[0].message | test("too many")'
	sandboxd_stop
}

@test "a body over the limit is 413, announced or not, and the server goes on" {
	sandboxd_start --max-body 64K
	head -c 3000000 /dev/zero | tr '\0' ' ' >"$T/big"
	api POST /v1/file/list '' --data-binary "@$T/big"
	expect 413
	head -c 100000 "$T/big" >"$T/mid"
	api POST /v1/file/list '' -H 'Transfer-Encoding: chunked' --data-binary "@$T/mid"
	expect 413
	api GET /v1/sandbox
	expect 200
	sandboxd_stop
}

@test "with a key every way of giving it works and nothing works without" {
	local d
	echo s3cret >"$T/key"
	chmod 600 "$T/key"
	for d in 1.0 1.9 aiod; do
		SANDBOXD_NAME=s$d sandboxd_start --dialect "$d" --api-key-file "$T/key"
		api GET /v1/sandbox
		expect 401 '.success == false'
		api POST /v1/file/list '{"path":"/tmp"}'
		expect 401
		api GET /v1/sandbox '' -H 'Authorization: Bearer s3cret'
		expect 200
		api GET /v1/sandbox '' -H 'Authorization: Bearer s3cre'
		expect 401
		api GET /v1/sandbox '' -H 'Authorization: Bearer s3crets3cret'
		expect 401
		api GET /v1/sandbox '' -H 'X-AIO-API-Key: s3cret'
		expect 200
		api GET '/v1/sandbox?api_key=s3cret'
		expect 200
		api GET '/v1/sandbox?api_key='
		expect 401
		if [ "$d" = aiod ]; then
			api GET /v1/sandbox '' -H 'x-api-key: s3cret'
			expect 200
			api GET /health
			expect 200
			api GET /v1/ping
			expect 200
		fi
		refute grep -q s3cret "$SANDBOXD_LOG" "$SANDBOXD_OUT"
		# ps shows neither the key nor, inside, its file
		refute grep -qa s3cret "/proc/$SANDBOXD_PID/cmdline"
		sandboxd_stop
	done
}

@test "connections are kept alive and pipelined requests answered in order" {
	start_tcp --dialect 1.0
	curl -s -o "$T/1" "$CURL_TARGET/v1/sandbox" \
		--next -s -o "$T/2" -w '%{num_connects}' "$CURL_TARGET/nope" >"$T/connects"
	[ "$(cat "$T/connects")" = 0 ]
	printf 'GET /nope HTTP/1.1\r\nHost: x\r\n\r\nGET /v1/sandbox HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n' >"$T/two"
	raw "$T/two" >"$T/piped"
	[ "$(grep -ac 'HTTP/1.1' "$T/piped")" = 2 ]
	grep -a 'HTTP/1.1' "$T/piped" | head -1 | grep -q 404
	sandboxd_stop
}

@test "garbage instead of HTTP is refused and the server goes on" {
	start_tcp
	head -c 100000 /dev/urandom >"$T/garbage"
	printf 'GET / HTTP/9.9\r\nConnection: close\r\n\r\n' >"$T/version"
	printf 'POST /v1/file/list HTTP/1.1\r\nContent-Length: -5\r\n\r\n' >"$T/length"
	raw "$T/garbage" >/dev/null
	raw "$T/version" >/dev/null
	raw "$T/length" >/dev/null
	api GET /v1/sandbox
	expect 200
	sandboxd_stop
}

@test "after a large upload the connection ends; nothing that follows is mistaken for it" {
	start_tcp
	head -c 3M /dev/urandom >"$T/big"
	{
		printf -- '--B\r\nContent-Disposition: form-data; name="path"\r\n\r\n/mnt/user-data/one\r\n'
		printf -- '--B\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n'
		cat "$T/big"
		printf -- '\r\n--B--\r\n'
	} >"$T/form"
	printf 'POST /v1/file/upload HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=B\r\nContent-Length: %d\r\n\r\n' \
		"$(stat -c %s "$T/form")" >"$T/head"
	printf 'GET /v1/sandbox HTTP/1.1\r\nHost: x\r\n\r\n' >"$T/next"
	# raw returns only because the server closes the connection
	cat "$T/head" "$T/form" "$T/next" >"$T/all"
	raw "$T/all" >"$T/answers"
	[ "$(grep -ac '^HTTP/1.1' "$T/answers")" = 1 ]
	grep -aqi '^connection: close' "$T/answers"
	cmp "$T/big" "$DATA/one"
	# chunks are decoded, also where a Content-Length stands beside them
	sed -i 's/Content-Length/Transfer-Encoding: chunked\r\nContent-Length/' "$T/head"
	{
		cat "$T/head"
		printf '%x\r\n' "$(stat -c %s "$T/form")"
		sed 's|/mnt/user-data/one|/mnt/user-data/two|' "$T/form"
		printf '\r\n0\r\n\r\n'
	} >"$T/all"
	rm "$DATA/one"
	raw "$T/all" >"$T/answers"
	[ ! -e "$DATA/two" ] || cmp "$T/big" "$DATA/two"
	sandboxd_stop
}

@test "--idle-exit waits for requests and commands, then ends with status 0" {
	sandboxd_start --idle-exit 6
	api POST /v1/bash/exec '{"command":"sleep 7; echo done"}'
	j '.data.stdout == "done\n"'
	wait_until pid_gone "$SANDBOXD_PID"
	wait "$SANDBOXD_PID"
	[ ! -e "$SOCK" ]
}
