#!/usr/bin/env bats
# shellcheck disable=SC2016 # jq has variables of its own
# GET/HEAD /v1/file/download and POST /v1/file/upload.

load ../lib/sandboxd

setup() {
	sandboxd_setup
	HELPER_PIDS=()
	MOUNTS=()
}

teardown() {
	local pid i

	for pid in "${HELPER_PIDS[@]}"; do
		kill -KILL "$pid" 2>/dev/null || true
		wait "$pid" 2>/dev/null || true
	done
	# A mount may sit on another.
	for ((i = ${#MOUNTS[@]} - 1; i >= 0; i--)); do
		umount "${MOUNTS[i]}" || return
	done
	sandboxd_teardown
}

D=/mnt/user-data
DL="/v1/file/download?path=$D"
UP=/v1/file/upload

# start DIALECT [ARGS…]
start() {
	local dialect=$1

	shift
	SANDBOXD_NAME=s$dialect sandboxd_start --dialect "$dialect" "$@"
}

# get PATH [CURL ARGS…]: the body to $T/got, its headers to $T/headers, sets HTTP.
get() {
	local path=$1 rc=0

	shift
	rm -f "$T/got"
	HTTP=$(curl_sb "$path" -o "$T/got" -D "$T/headers" -w '%{http_code}' "$@") || rc=$?
	touch "$T/got"
	BODY=$(tr -d '\0' <"$T/got" | head -c 100000)
	return $rc
}

# header NAME: its value in the last answer; fails when there is none.
header() {
	grep -i "^$1: " "$T/headers" | cut -d' ' -f2- | tr -d '\r' | grep .
}

# lacks NAME: the last answer has no such header.
lacks() {
	! header "$1"
}

# upload CURL ARGS…: sets BODY and HTTP.
upload() {
	HTTP=$(curl_sb "$UP" -o "$T/body" -w '%{http_code}' "$@") || return
	BODY=$(cat "$T/body")
}

# raw_form FILE [CURL ARGS…]: posts its bytes as a form with the boundary "b".
raw_form() {
	local file=$1

	shift
	upload -H 'Content-Type: multipart/form-data; boundary=b' --data-binary "@$file" "$@"
}

no_parts() {
	[ -z "$(find "$DATA" -name '.aiod*')" ]
}

# find_server: sets SERVER_PID to the innermost process, which serves.
find_server() {
	local next

	SERVER_PID=$SANDBOXD_PID
	while next=$(pgrep -o -P "$SERVER_PID"); do
		SERVER_PID=$next
	done
}

# staged_size: of the nameless files that the server has open, one a line.
staged_size() {
	find "/proc/$SERVER_PID/fd" -lname '*/#* (deleted)' -exec stat -L -c %s {} +
}

staged_grows() {
	staged_size | grep -q '[1-9]'
}

nothing_staged() {
	[ -z "$(staged_size)" ]
}

# slow_upload CURL ARGS…: in the background; returns when some of it is there. Sets CURL_PID.
slow_upload() {
	[ -e "$T/big" ] || truncate -s 200M "$T/big"
	curl -sS --unix-socket "$SOCK" --limit-rate 20M "$@" "http://localhost$UP" >"$T/curl.out" 2>&1 3>&- &
	CURL_PID=$!
	HELPER_PIDS+=("$CURL_PID")
	find_server
	wait_until staged_grows
}

# put HOW FILE PATH: stores FILE by an upload (path first or last) or a write.
put() {
	case $1 in
	first) upload -F path="$3" -F file=@"$2" ;;
	last) upload -F file=@"$2" -F path="$3" ;;
	write) api POST /v1/file/write "$(jq -Rs --arg p "$3" '{file: $p, content: .}' "$2")" ;;
	esac
}

# stalled PATH: a download whose client stops reading after the first bytes.
# Goes on when $T/pipe (fd 7) is read. Sets CURL_PID.
stalled() {
	mkfifo "$T/pipe"
	# Not by curl_sb: the process to wait for is curl itself.
	curl -sSN --max-time 20 --unix-socket "$SOCK" "http://localhost$1" >"$T/pipe" 2>"$T/curl.err" 3>&- &
	CURL_PID=$!
	HELPER_PIDS+=("$CURL_PID")
	exec 7<"$T/pipe"
	head -c 10000 <&7 >"$T/start"
	[ "$(stat -c %s "$T/start")" = 10000 ]
}

# drain: reads the rest of a stalled download, sets RC to curl's exit status.
drain() {
	cat <&7 >"$T/rest"
	exec 7<&-
	RC=0
	wait "$CURL_PID" || RC=$?
}

# ---- download ----

@test "download sends the bytes and describes them, in every dialect" {
	local d size

	for d in 1.0 1.9 aiod; do
		start "$d"
		for size in 0 4096 65536 65537 3000000; do
			head -c "$size" /dev/urandom >"$DATA/f.bin"
			get "$DL/f.bin"
			[ "$HTTP" = 200 ]
			cmp "$T/got" "$DATA/f.bin"
			[ "$(header content-length)" = "$size" ]
			[ "$(header content-type)" = application/octet-stream ]
			[ "$(header content-disposition)" = 'attachment; filename="f.bin"' ]
			[ "$(header last-modified)" = "$(LC_ALL=C TZ=GMT date -r "$DATA/f.bin" '+%a, %d %b %Y %T GMT')" ]
			[[ $(header etag) == '"'*'"' ]]
			case $d in
			1.0) lacks accept-ranges ;;
			*) [ "$(header accept-ranges)" = bytes ] ;;
			esac
		done
		sandboxd_stop
	done
}

@test "download with change_policy=abort sends the bytes; 1.9 says less about them" {
	local d size

	for d in 1.0 1.9 aiod; do
		start "$d"
		for size in 0 4096 3000000; do
			head -c "$size" /dev/urandom >"$DATA/f"
			get "$DL/f&change_policy=abort"
			[ "$HTTP" = 200 ]
			cmp "$T/got" "$DATA/f"
			[ "$(header content-length)" = "$size" ]
			case $d in
			1.0)
				lacks accept-ranges
				header etag
				;;
			1.9)
				[ "$(header accept-ranges)" = none ]
				lacks etag
				;;
			aiod)
				[ "$(header accept-ranges)" = bytes ]
				header etag
				;;
			esac
		done
		get "$DL/f&change_policy=maybe"
		case $d in
		1.0) [ "$HTTP" = 200 ] ;;
		*) [ "$HTTP" = 422 ] ;;
		esac
		sandboxd_stop
	done
}

@test "download of what is no readable file" {
	local d

	for d in 1.0 1.9 aiod; do
		start "$d"
		mkdir "$DATA/dir"
		mkfifo "$DATA/fifo"
		ln -s nowhere "$DATA/dangling"
		echo secret >"$DATA/closed"
		chmod 0 "$DATA/closed"
		for p in missing dangling missing/deeper closed/x; do
			api GET "$DL/$p"
			[ "$HTTP" = 404 ]
			j --arg p "$D/$p" '.success == false and .data == null and .message == "File does not exist: " + $p'
		done
		for p in dir dir/ fifo; do
			api GET "$DL/$p"
			[ "$HTTP" = 400 ]
			j --arg p "$D/$p" '.message == "Path is not a file: " + $p'
		done
		api GET "/v1/file/download?path=/dev/null"
		[ "$HTTP" = 400 ]
		api GET "/v1/file/download?path="
		[ "$HTTP" = 404 ]
		api GET "$DL/$(printf '%05000d' 1)"
		[ "$HTTP" = 404 ]
		api GET "$DL/closed"
		[ "$HTTP" = 500 ]
		j '.message | startswith("Failed to open file for download: [Errno 13]")'
		api GET /v1/file/download
		[ "$HTTP" = 422 ]
		[ "$d" = aiod ] || j '.detail[0] | .loc == ["query", "path"] and .msg == "Field required" and .type == "missing"'
		api GET "$DL/a%00b"
		[ "$HTTP" = 422 ]
		sandboxd_stop
	done
}

@test "download: names cannot add headers" {
	start aiod
	printf x >"$DATA/é \"1\""
	printf x >"$DATA/"$'a\r\nX-Bad: 1'
	get "$DL/%C3%A9%20%221%22"
	[ "$HTTP" = 200 ]
	[ "$(header content-disposition)" = "attachment; filename*=utf-8''%C3%A9%20%221%22" ]
	get "$DL/a%0D%0AX-Bad:%201"
	[ "$HTTP" = 200 ]
	lacks x-bad
	[ "$(header content-disposition)" = "attachment; filename*=utf-8''a%0D%0AX-Bad%3A%201" ]
	sandboxd_stop
}

@test "download by range" {
	local d size last

	for d in 1.9 aiod; do
		start "$d"
		for size in 1000 3000000; do
			head -c "$size" /dev/urandom >"$DATA/f"
			last=$((size - 1))
			get "$DL/f" -H 'Range: bytes=10-19'
			[ "$HTTP" = 206 ]
			[ "$(header content-range)" = "bytes 10-19/$size" ]
			[ "$(header content-length)" = 10 ]
			cmp "$T/got" <(tail -c +11 "$DATA/f" | head -c 10)
			get "$DL/f" -H 'Range: bytes=1-'
			[ "$HTTP" = 206 ]
			[ "$(header content-range)" = "bytes 1-$last/$size" ]
			cmp "$T/got" <(tail -c +2 "$DATA/f")
			get "$DL/f" -H 'Range: bytes=-7'
			[ "$HTTP" = 206 ]
			cmp "$T/got" <(tail -c 7 "$DATA/f")
			get "$DL/f" -H "Range: bytes=$size-"
			[ "$HTTP" = 416 ]
			[ "$(header content-range)" = "bytes */$size" ]
			get "$DL/f" -H 'Range: bytes=0-1,4-5'
			[ "$HTTP" = 200 ]
			cmp "$T/got" "$DATA/f"
			get "$DL/f" -H 'Range: bytes=oops'
			[ "$HTTP" = 200 ]
		done
		sandboxd_stop
	done
}

@test "download by range with abort: aiod has it, 1.9 sends everything; 1.0 has no ranges" {
	start aiod
	head -c 3000000 /dev/urandom >"$DATA/f"
	get "$DL/f&change_policy=abort" -H 'Range: bytes=100-2999000'
	[ "$HTTP" = 206 ]
	cmp "$T/got" <(tail -c +101 "$DATA/f" | head -c 2998901)
	sandboxd_stop
	start 1.9
	echo 0123456789 >"$DATA/f"
	get "$DL/f&change_policy=abort" -H 'Range: bytes=1-2'
	[ "$HTTP" = 200 ]
	cmp "$T/got" "$DATA/f"
	sandboxd_stop
	start 1.0
	echo 0123456789 >"$DATA/f"
	get "$DL/f" -H 'Range: bytes=1-2'
	[ "$HTTP" = 200 ]
	cmp "$T/got" "$DATA/f"
	sandboxd_stop
}

@test "If-Range keeps a range only for the same file" {
	local d etag date

	for d in 1.9 aiod; do
		start "$d"
		echo 0123456789 >"$DATA/f"
		get "$DL/f"
		etag=$(header etag) date=$(header last-modified)
		get "$DL/f" -H 'Range: bytes=1-2' -H "If-Range: $etag"
		[ "$HTTP" = 206 ]
		get "$DL/f" -H 'Range: bytes=1-2' -H "If-Range: $date"
		[ "$HTTP" = 206 ]
		get "$DL/f" -H 'Range: bytes=1-2' -H 'If-Range: "else"'
		[ "$HTTP" = 200 ]
		echo abcdefghij >"$DATA/f"
		touch -d '2001-02-03 04:05:06 UTC' "$DATA/f"
		get "$DL/f" -H 'Range: bytes=1-2' -H "If-Range: $etag"
		[ "$HTTP" = 200 ]
		get "$DL/f" -H 'Range: bytes=1-2' -H "If-Range: $date"
		[ "$HTTP" = 200 ]
		[ "$BODY" = abcdefghij ]
		[ "$(header last-modified)" = 'Sat, 03 Feb 2001 04:05:06 GMT' ]
		sandboxd_stop
	done
}

@test "HEAD describes a file in aiod; 405 in 1.x" {
	local d size

	start aiod
	for size in 0 100 3000000; do
		head -c "$size" /dev/zero >"$DATA/f"
		# Two on one connection: a body would garble the second.
		curl -sS --unix-socket "$SOCK" --head -o "$T/headers" -w '%{http_code} ' "http://localhost$DL/f" \
			--next -sS --unix-socket "$SOCK" -o "$T/got" -w '%{http_code}' "http://localhost$DL/f" >"$T/codes"
		[ "$(cat "$T/codes")" = '200 200' ]
		[ "$(header content-length)" = "$size" ]
		header etag
		header last-modified
		cmp "$T/got" "$DATA/f"
	done
	api HEAD "$DL/missing"
	[ "$HTTP" = 404 ]
	sandboxd_stop
	for d in 1.0 1.9; do
		start "$d"
		echo x >"$DATA/f"
		api HEAD "$DL/f"
		[ "$HTTP" = 405 ]
		sandboxd_stop
	done
}

@test "a file that changes during a download with abort cuts the connection" {
	local d

	for d in 1.9 aiod; do
		start "$d"
		truncate -s 64M "$DATA/f"
		stalled "$DL/f&change_policy=abort"
		echo more >>"$DATA/f"
		drain
		[ "$RC" = 18 ]
		[ "$(stat -c %s "$T/rest")" -lt 67000000 ]
		rm "$T/pipe"
		# Replacing it by name leaves the old file as it was.
		truncate -s 64M "$DATA/f"
		stalled "$DL/f&change_policy=abort"
		echo new >"$DATA/g"
		mv "$DATA/g" "$DATA/f"
		drain
		[ "$RC" = 0 ]
		rm "$T/pipe"
		sandboxd_stop
	done
}

@test "a file that grows or is touched during a plain download is sent as it was sized" {
	start aiod
	truncate -s 64M "$DATA/f"
	stalled "$DL/f"
	echo more >>"$DATA/f"
	drain
	[ "$RC" = 0 ]
	[ "$(stat -c %s "$T/rest")" = $((64 * 1024 * 1024 - 10000)) ]
	sandboxd_stop
}

@test "a file that shrinks during a plain download cuts the connection soon" {
	local d

	for d in 1.0 aiod; do
		start "$d"
		truncate -s 64M "$DATA/f"
		stalled "$DL/f"
		truncate -s 20000 "$DATA/f"
		drain
		[ "$RC" = 18 ] # not 28, curl's own patience
		rm "$T/pipe"
		echo ok >"$DATA/g"
		get "$DL/g"
		[ "$BODY" = ok ]
		sandboxd_stop
	done
}

@test "a file that is short for a moment during a plain download does not hang it" {
	start aiod
	truncate -s 64M "$DATA/f"
	stalled "$DL/f"
	truncate -s 1 "$DATA/f"
	# The server runs into the short file when the client reads on.
	timeout 0.2 cat <&7 >"$T/more" || true
	truncate -s 64M "$DATA/f"
	drain
	# Cut if the server looked in that moment, else sent to the end.
	[ "$RC" = 0 ] || [ "$RC" = 18 ]
	sandboxd_stop
}

@test "a small file that changes while it is read with abort answers 409" {
	local d

	changed() {
		api GET "$DL/f&change_policy=abort"
		[ "$HTTP" = 409 ]
	}
	for d in 1.9 aiod; do
		start "$d"
		truncate -s 50000 "$DATA/f"
		perl -e 'open(my $f, "+<", $ARGV[0]) or die; while (1) { truncate($f, 40000); truncate($f, 50000) }' \
			"$DATA/f" 3>&- &
		HELPER_PIDS+=($!)
		wait_until changed
		j --arg p "$D/f" '.success == false and .message == "File changed before download started"
			and .data == {path: $p, change_policy: "abort", phase: "before_start"} and has("hint")'
		kill -KILL "${HELPER_PIDS[-1]}"
		sandboxd_stop
	done
}

@test "clients that leave during downloads leave no descriptor behind" {
	local before

	start aiod --isolation none
	truncate -s 64M "$DATA/f"
	get "$DL/f"
	before=$(find "/proc/$SANDBOXD_PID/fd" -type l | wc -l)
	for _ in 1 2 3 4 5; do
		curl_sb "$DL/f" 2>/dev/null | head -c 1000 >/dev/null || true
		curl_sb "$DL/f&change_policy=abort" 2>/dev/null | head -c 1000 >/dev/null || true
	done
	fds_back() {
		[ "$(find "/proc/$SANDBOXD_PID/fd" -type l | wc -l)" -le "$before" ]
	}
	wait_until fds_back
	sandboxd_stop
}

# ---- upload ----

@test "upload stores the file and makes its directories, in every dialect" {
	local d size

	for d in 1.0 1.9 aiod; do
		start "$d"
		for size in 0 5000 3000000; do
			head -c "$size" /dev/urandom >"$T/f.bin"
			upload -F path="$D/a$size/b/f" -F file=@"$T/f.bin"
			[ "$HTTP" = 200 ]
			j --arg p "$D/a$size/b/f" --argjson n "$size" '.success and .data == {file_path: $p, file_size: $n, success: true}'
			cmp "$T/f.bin" "$DATA/a$size/b/f"
			[ "$(stat -c %a "$DATA/a$size/b/f")" = 644 ]
			# the path after the file, other parts in between
			upload -F x=y -F file=@"$T/f.bin" -F 'other=@/dev/null' -F path="$D/c$size/d"
			[ "$HTTP" = 200 ]
			j --arg p "$D/c$size/d" '.data.file_path == $p'
			cmp "$T/f.bin" "$DATA/c$size/d"
			[ "$(stat -c %a "$DATA/c$size/d")" = 644 ]
			# chunked
			upload -H 'Transfer-Encoding: chunked' -F path="$D/e" -F file=@"$T/f.bin"
			[ "$HTTP" = 200 ]
			cmp "$T/f.bin" "$DATA/e"
		done
		no_parts
		sandboxd_stop
	done
}

@test "upload without a path goes to /tmp under the file's own name" {
	local d form

	for d in 1.0 1.9 aiod; do
		start "$d"
		head -c 100000 /dev/urandom >"$T/f"
		for form in 'filename=n.txt' 'filename=../../etc/n.txt' 'filename=/n.txt'; do
			upload -F "file=@$T/f;$form"
			[ "$HTTP" = 200 ]
			j '.data.file_path == "/tmp/n.txt" and .data.file_size == 100000'
			get '/v1/file/download?path=/tmp/n.txt'
			cmp "$T/f" "$T/got"
		done
		upload -F path= -F "file=@$T/f;filename=empty-path"
		[ "$HTTP" = 200 ]
		j '.data.file_path == "/tmp/empty-path"'
		printf -- '--b\r\nContent-Disposition: form-data; name="file"; filename*=utf-8'"''"'%%C3%%A9\r\n\r\nhi\r\n--b--' >"$T/form"
		raw_form "$T/form"
		[ "$HTTP" = 200 ]
		j '.data.file_path == "/tmp/é"'
		sandboxd_stop
	done
}

@test "upload: 1.x writes onto the file, aiod replaces it and keeps its mode" {
	local d before

	for d in 1.0 1.9 aiod; do
		start "$d"
		seq 10000 >"$DATA/f"
		chmod 640 "$DATA/f"
		ln -s f "$DATA/link"
		before=$(stat -c %i "$DATA/f")
		echo new >"$T/f"
		for args in "-F path=$D/link -F file=@$T/f" "-F file=@$T/f -F path=$D/link"; do
			# shellcheck disable=SC2086 # split
			upload $args
			[ "$HTTP" = 200 ]
			j --arg p "$D/link" '.data.file_path == $p'
			[ "$(cat "$DATA/f")" = new ]
			[ -L "$DATA/link" ]
			[ "$(stat -c %a "$DATA/f")" = 640 ]
			case $d in
			aiod) [ "$(stat -c %i "$DATA/f")" != "$before" ] ;;
			*) [ "$(stat -c %i "$DATA/f")" = "$before" ] ;;
			esac
			before=$(stat -c %i "$DATA/f")
		done
		ln -s sub/target "$DATA/dangling"
		mkdir "$DATA/sub"
		upload -F path="$D/dangling" -F file=@"$T/f"
		[ "$HTTP" = 200 ]
		[ "$(cat "$DATA/sub/target")" = new ]
		no_parts
		sandboxd_stop
	done
}

@test "upload failures carry their errno: HTTP 500 in 1.0, FileOperationError later" {
	local d order p errno

	for d in 1.0 1.9 aiod; do
		start "$d"
		echo x >"$T/f"
		mkdir "$DATA/dir" "$DATA/closed"
		echo x >"$DATA/file"
		chmod 0555 "$DATA/closed"
		ln -s loop "$DATA/loop"
		while read -r p errno; do
			for order in "-F path=$D/$p -F file=@$T/f" "-F file=@$T/f -F path=$D/$p"; do
				# shellcheck disable=SC2086 # split
				upload $order
				if [ "$d" = 1.0 ]; then
					[ "$HTTP" = 500 ]
					j --arg m "Failed to upload file: [Errno $errno]" '.success == false and (.message | startswith($m))'
				else
					[ "$HTTP" = 200 ]
					j --argjson n "$errno" --arg p "$D/$p" '.success == false and .data.errno == $n and .data.operation == "upload" and .data.path == $p'
				fi
			done
		done <<-END
			dir 21
			dir/ 21
			file/x 20
			closed/x 13
			closed/sub/x 13
			loop 40
			$(printf '%0300d' 1) 36
		END
		no_parts
		sandboxd_stop
	done
}

@test "upload to a bare name fails in 1.x and goes to the home in aiod" {
	local d

	echo x >"$T/f"
	for d in 1.0 1.9; do
		start "$d"
		upload -F path=bare -F file=@"$T/f"
		case $d in
		1.0) [ "$HTTP" = 500 ] ;;
		*) j '.data.errno == 2' ;;
		esac
		sandboxd_stop
	done
	start aiod
	upload -F path=bare -F file=@"$T/f"
	[ "$HTTP" = 200 ]
	get '/v1/file/download?path=/home/gem/bare'
	[ "$BODY" = x ]
	sandboxd_stop
}

@test "upload: wrong forms are refused and store nothing" {
	local d

	for d in 1.0 1.9 aiod; do
		start "$d"
		echo x >"$T/f"
		upload -F path="$D/n"
		[ "$HTTP" = 422 ]
		[ "$d" = aiod ] || j '.detail[0] | .loc == ["body", "file"] and .type == "missing"'
		upload -F file=text -F path="$D/n"
		[ "$HTTP" = 422 ]
		upload -F "file=@$T/f;filename=.."
		[ "$HTTP" = 422 ]
		upload -H 'Content-Type: application/json' -d '{}'
		[ "$HTTP" = 422 ]
		upload -H 'Content-Type: multipart/form-data' -d x
		[ "$HTTP" = 422 ]
		upload -X POST
		[ "$HTTP" = 422 ]
		printf -- '--b\r\nContent-Disposition: form-data; name="path"\r\n\r\n%s/a\0b\r\n--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\nx\r\n--b--' "$D" >"$T/form"
		raw_form "$T/form"
		[ "$HTTP" = 422 ]
		: >"$T/form"
		raw_form "$T/form"
		[ "$HTTP" = 400 ]
		echo garbage >"$T/form"
		raw_form "$T/form"
		[ "$HTTP" = 400 ]
		upload -F file=@"$T/f" -F file=@"$T/f"
		[ "$HTTP" = 400 ]
		upload -F path="$D/n" -F path="$D/m" -F file=@"$T/f"
		[ "$HTTP" = 400 ]
		# shellcheck disable=SC2046 # split
		upload $(printf -- '-F x=y %.0s' {1..101}) -F file=@"$T/f"
		[ "$HTTP" = 400 ]
		upload -F path="$D/$(printf '%05000d' 1)" -F file=@"$T/f"
		case $d in
		1.0) [ "$HTTP" = 500 ] ;;
		*) j '.data.errno == 36' ;;
		esac
		[ -z "$(find "$DATA" -type f)" ]
		api GET "$UP"
		[ "$HTTP" = 405 ]
		sandboxd_stop
	done
}

@test "upload: a form cut short leaves aiod's old file whole" {
	start aiod
	echo old >"$DATA/f"
	printf -- '--b\r\nContent-Disposition: form-data; name="path"\r\n\r\n%s/f\r\n--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\nnew\r\n--b' "$D" >"$T/form"
	raw_form "$T/form"
	[ "$HTTP" = 400 ]
	[ "$(cat "$DATA/f")" = old ]
	wait_until no_parts
	sandboxd_stop
}

@test "upload: a client that leaves in the middle leaves nothing behind in aiod" {
	local how

	start aiod
	mkdir "$DATA/dir"
	echo old >"$DATA/dir/f"
	for how in first last; do
		case $how in
		first) slow_upload -F path="$D/dir/f" -F file=@"$T/big" ;;
		last) slow_upload -F file=@"$T/big" -F path="$D/dir/f" ;;
		esac
		[ "$(ls -A "$DATA/dir")" = f ]
		kill -KILL "$CURL_PID"
		wait_until nothing_staged
		[ "$(ls -A "$DATA/dir")" = f ]
		[ "$(cat "$DATA/dir/f")" = old ]
	done
	no_parts
	sandboxd_stop
}

@test "upload: a server that is killed in the middle leaves nothing behind in aiod" {
	local isolation victim

	for isolation in bwrap none; do
		for victim in server supervisor; do
			start aiod --isolation "$isolation"
			rm -rf "$DATA/dir"
			mkdir "$DATA/dir"
			echo old >"$DATA/dir/f"
			slow_upload -F path="$D/dir/f" -F file=@"$T/big"
			case $victim in
			server) kill -KILL "$SERVER_PID" ;;
			supervisor) kill -KILL "$SANDBOXD_PID" ;;
			esac
			wait_until pid_gone "$SERVER_PID"
			wait_until pid_gone "$SANDBOXD_PID"
			[ "$(ls -A "$DATA/dir")" = f ]
			[ "$(cat "$DATA/dir/f")" = old ]
			no_parts
		done
	done
}

@test "upload and write keep owner and mode; in place where a rename could not" {
	local how before

	[ "$(id -u)" = 0 ] || skip "only root gives files away"
	start aiod
	for how in first last write; do
		mkdir "$DATA/$how" "$DATA/$how/closed"
		echo old >"$DATA/$how/mine"
		chmod 6751 "$DATA/$how/mine"
		echo old >"$DATA/$how/foreign"
		chmod 666 "$DATA/$how/foreign"
		chown 12345:12346 "$DATA/$how/foreign"
		echo old >"$DATA/$how/closed/f"
		chmod 555 "$DATA/$how/closed"
		echo "new $how" >"$T/f"

		before=$(stat -c %i "$DATA/$how/mine")
		put "$how" "$T/f" "$D/$how/mine"
		expect 200 .success
		cmp "$T/f" "$DATA/$how/mine"
		[ "$(stat -c %a "$DATA/$how/mine")" = 751 ] # no set-user-id behind a write
		[ "$(stat -c %i "$DATA/$how/mine")" != "$before" ]

		before=$(stat -c '%i %u %g %a' "$DATA/$how/foreign")
		put "$how" "$T/f" "$D/$how/foreign"
		expect 200 .success
		cmp "$T/f" "$DATA/$how/foreign"
		[ "$(stat -c '%i %u %g %a' "$DATA/$how/foreign")" = "$before" ]

		before=$(stat -c %i "$DATA/$how/closed/f")
		put "$how" "$T/f" "$D/$how/closed/f"
		expect 200 .success
		cmp "$T/f" "$DATA/$how/closed/f"
		[ "$(stat -c %i "$DATA/$how/closed/f")" = "$before" ]
	done
	no_parts
	sandboxd_stop
}

@test "upload and write onto a file that is a mount go into the file mounted" {
	local how

	mkdir -p "$T/saiod.data/ro"
	touch "$T/a" "$T/b" "$T/saiod.data/f" "$T/saiod.data/ro/f"
	mount --bind "$T/a" "$T/saiod.data/f" || skip "no mounts here"
	MOUNTS+=("$T/saiod.data/f")
	mount --bind "$T/saiod.data/ro" "$T/saiod.data/ro"
	MOUNTS+=("$T/saiod.data/ro")
	mount -o remount,bind,ro "$T/saiod.data/ro"
	mount --bind "$T/b" "$T/saiod.data/ro/f"
	MOUNTS+=("$T/saiod.data/ro/f")
	start aiod
	for how in first last write; do
		echo "new $how" >"$T/new"
		seq 1000 | tee "$T/a" >"$T/b"
		put "$how" "$T/new" "$D/f"
		expect 200 .success
		cmp "$T/new" "$T/a"
		put "$how" "$T/new" "$D/ro/f"
		expect 200 .success
		cmp "$T/new" "$T/b"
		put "$how" "$T/new" "$D/ro/g"
		expect 200 '.success == false and .data.errno_name == "EROFS"'
	done
	no_parts
	sandboxd_stop
}

@test "upload of 8 MiB: chunked, and without Expect, over the socket and over TCP" {
	local d

	head -c 8388608 /dev/urandom >"$T/f"
	send_all() {
		upload -H 'Transfer-Encoding: chunked' -F path="$D/chunked" -F file=@"$T/f"
		expect 200 '.data.file_size == 8388608'
		cmp "$T/f" "$DATA/chunked"
		upload -H 'Transfer-Encoding: chunked' -H 'Expect:' -F file=@"$T/f" -F path="$D/last"
		expect 200 '.data.file_size == 8388608'
		cmp "$T/f" "$DATA/last"
		upload -H 'Expect:' -F path="$D/plain" -F file=@"$T/f"
		expect 200 '.data.file_size == 8388608'
		cmp "$T/f" "$DATA/plain"
		rm "$DATA/chunked" "$DATA/last" "$DATA/plain"
	}
	for d in 1.0 1.9 aiod; do
		start "$d"
		send_all
		no_parts
		sandboxd_stop
		start "$d" --listen 127.0.0.1:0
		# shellcheck disable=SC2034 # for curl_sb
		CURL_TARGET=http://$(grep -o '127.0.0.1:[0-9]*' "$SANDBOXD_OUT")
		send_all
		sandboxd_stop
		unset CURL_TARGET
	done
}

@test "upload: a file over the limit is EFBIG for the path given, also when that comes last" {
	local d how

	head -c 1048576 /dev/zero >"$T/fits"
	head -c 1048577 /dev/zero >"$T/over"
	for d in 1.0 1.9 aiod; do
		start "$d" --max-file-size 1M
		for how in first last; do
			put $how "$T/fits" "$D/$how.fits"
			expect 200 .success
			put $how "$T/over" "$D/$how"
			case $d in
			1.0) expect 500 ".success == false and .message == \"Failed to upload file: [Errno 27] File too large: '$D/$how'\"" ;;
			*) expect 200 ".success == false and .data.errno_name == \"EFBIG\" and .data.path == \"$D/$how\"" ;;
			esac
		done
		[ "$d" != aiod ] || [ ! -e "$DATA/first" ]
		[ ! -e "$DATA/last" ]
		no_parts
		sandboxd_stop
	done
}

@test "upload to a full disk is an error, the old file of aiod stays, and the server lives on" {
	local d how

	head -c 1048576 /dev/zero >"$T/fits"
	truncate -s 6M "$T/six"
	echo old >"$T/old"
	for d in 1.0 1.9 aiod; do
		start "$d" --tmp-size 4M
		for how in first last; do
			put write "$T/old" /tmp/f
			expect 200 .success
			put $how "$T/six" /tmp/f
			case $d in
			1.0) expect 500 ".success == false and .message == \"Failed to upload file: [Errno 28] No space left on device: '/tmp/f'\"" ;;
			*) expect 200 '.success == false and .data.error_type == "no_space_left" and .data.path == "/tmp/f"' ;;
			esac
			get '/v1/file/download?path=/tmp/f'
			[ "$HTTP" = 200 ]
			[ "$d" != aiod ] || cmp "$T/old" "$T/got"
			put $how "$T/six" "/tmp/new.$how"
			[ "$d" != aiod ] || {
				api GET "/v1/file/download?path=/tmp/new.$how"
				expect 404
			}
			# In place, 1.x has filled the disk.
			put write /dev/null /tmp/f
			expect 200 .success
			put write /dev/null "/tmp/new.$how"
			expect 200 .success
			put $how "$T/fits" /tmp/g
			expect 200 .success
		done
		api POST /v1/file/list '{"path":"/tmp"}'
		expect 200 '[.data.files[].name] == ["f", "g", "new.first", "new.last"]'
		sandboxd_stop
	done
}

# A request that lay in the socket while the server stood still, and nobody waits for.
@test "upload: what comes too late is not stored" {
	local server

	start aiod
	server=$(server_of "$SANDBOXD_PID")
	kill -STOP "$server"
	python3 -I -S - "$SOCK" >"$T/answer" <<'PY' &
import socket, sys
def send(name):
    s = socket.socket(socket.AF_UNIX)
    s.connect(sys.argv[1])
    body = ('--b\r\nContent-Disposition: form-data; name="path"\r\n\r\n/mnt/user-data/%s\r\n'
            '--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\nx\r\n--b--\r\n' % name)
    s.sendall(('POST /v1/file/upload HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=b\r\n'
               'Content-Length: %d\r\n\r\n%s' % (len(body), body)).encode())
    return s
send("late").close()
s = send("half")
s.shutdown(socket.SHUT_WR)
print("sent", flush=True)
print(s.recv(4096).split(b"\r\n")[0].decode(), flush=True)
PY
	HELPER_PIDS+=($!)
	wait_until grep -q sent "$T/answer"
	kill -CONT "$server"
	wait_until grep -q 'HTTP/1.1 200' "$T/answer"
	[ -e "$DATA/half" ]
	get "$DL/half"
	[ ! -e "$DATA/late" ]
}

# The same for one that had been taken and waited for a worker: all have something to search. One that libmicrohttpd
# reads, and one that we read ourselves; over a unix socket and TCP.
@test "upload: what nobody waits for any more is not stored when a worker has time for it" {
	local where

	sandboxd_start --dialect aiod --listen 127.0.0.1:0
	where=$(grep -o '127.0.0.1:[0-9]*' "$SANDBOXD_OUT")
	expect_none_late "$where"
	sandboxd_stop
	SANDBOXD_NAME=unix sandboxd_start --dialect aiod
	expect_none_late "$SOCK"
}

# expect_none_late WHERE: what is said above, of the server there.
expect_none_late() {
	yes "$(printf 'x%.0s' {1..60}).y" | head -n 20000 >"$DATA/heavy"
	python3 -I -S - "$1" <<'PY'
import socket, sys
where = sys.argv[1]
def ask(line, head, body):
    if where[0] == "/":
        s = socket.socket(socket.AF_UNIX)
        s.connect(where)
    else:
        host, port = where.split(":")
        s = socket.create_connection((host, int(port)))
    s.sendall(("%s HTTP/1.1\r\nHost: x\r\n%sContent-Length: %d\r\n\r\n" % (line, head, len(body))).encode() + body)
    return s
def grep():
    return ask("POST /v1/file/grep", "Content-Type: application/json\r\n",
               b'{"path":"/mnt/user-data/heavy","pattern":"(x+x+)+y","max_file_size":"16M"}')
def upload(name, size):
    body = ('--b\r\nContent-Disposition: form-data; name="path"\r\n\r\n/mnt/user-data/%s\r\n'
            '--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n%s\r\n--b--\r\n' % (name, "x" * size))
    return ask("POST /v1/file/upload", "Content-Type: multipart/form-data; boundary=b\r\n", body.encode())
def status(s):
    return s.recv(4096).split(b"\r\n")[0].decode()
greps = [grep() for _ in range(8)]
status(ask("GET /v1/ping", "", b""))
late = [upload("late%d" % size, size) for size in (300000, 3000000)]
# that they were taken: the loop does one after the other
for _ in range(5):
    assert status(ask("GET /v1/ping", "", b"")).endswith("200 OK")
after = [upload("after%d" % size, size) for size in (300000, 3000000)]
for s in late + greps:
    s.close()
for s in after:
    assert status(s).endswith("200 OK")
PY
	[ -e "$DATA/after300000" ]
	[ -e "$DATA/after3000000" ]
	[ ! -e "$DATA/late300000" ]
	[ ! -e "$DATA/late3000000" ]
}
