# threadfs-sandboxd against nginx serving the same files, find and bash.
# Sourced by scripts/bench, which has the helpers.
# shellcheck shell=bash
# shellcheck disable=SC2154 # work, rounds, root, build_dir: scripts/bench

workspace=/mnt/user-data/workspace

make_files() {
	mkdir -p "$work/data/workspace/list" "$work/put" "$work/temp"
	# workers and the sandbox may run as someone else
	chmod 777 "$work/put" "$work/temp"
	head -c 1G /dev/urandom >"$work/data/workspace/1g"
	head -c 256M "$work/data/workspace/1g" >"$work/data/workspace/256m"
	head -c 512M "$work/data/workspace/1g" >"$work/upload"
	head -c 4096 "$work/upload" >"$work/data/workspace/4k"
	local i
	for ((i = 0; i < 10000; i++)); do
		printf '%s' "$i" >"$work/data/workspace/list/entry-$i.txt"
	done
}

port_is_free() {
	! (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null
}

start_nginx() {
	local port user='' i
	for ((i = 0; i < 20; i++)); do
		port=$((20000 + RANDOM % 12000))
		! port_is_free "$port" || break
	done
	[ "$(id -u)" != 0 ] || user='user root;'
	cat >"$work/nginx.conf" <<-END
		$user
		worker_processes 1;
		daemon off;
		pid $work/nginx.pid;
		error_log $work/nginx.log error;
		events { worker_connections 1024; }
		http {
			access_log off;
			sendfile on;
			tcp_nopush on;
			tcp_nodelay on;
			keepalive_requests 100000;
			default_type application/octet-stream;
			client_max_body_size 0;
			client_body_buffer_size 1m;
			client_body_temp_path $work/temp;
			proxy_temp_path $work/temp;
			fastcgi_temp_path $work/temp;
			uwsgi_temp_path $work/temp;
			scgi_temp_path $work/temp;
			server {
				listen 127.0.0.1:$port;
				location / { root $work/data/workspace; }
				location /put/ { alias $work/put/; dav_methods PUT; }
			}
		}
	END
	"$(command -v nginx || echo /usr/sbin/nginx)" -c "$work/nginx.conf" -e "$work/nginx.log" &
	nginx_pid=$!
	started+=("$nginx_pid")
	nginx=http://127.0.0.1:$port
	for ((i = 0; i < 200; i++)); do
		kill -0 "$nginx_pid" 2>/dev/null || die "nginx ended: $(cat "$work/nginx.log")"
		! curl -sf -o /dev/null "$nginx/4k" || return 0
		sleep 0.05
	done
	die "nginx does not answer"
}

start_sandboxd() {
	local i
	: >"$work/sandboxd.out"
	: >"$work/sandboxd.err"
	"$(realpath "$build_dir")/threadfs-sandboxd" --listen 127.0.0.1:0 --data "$work/data" \
		>"$work/sandboxd.out" 2>"$work/sandboxd.err" &
	sandboxd_pid=$!
	started+=("$sandboxd_pid")
	for ((i = 0; i < 200; i++)); do
		kill -0 "$sandboxd_pid" 2>/dev/null ||
			die "threadfs-sandboxd ended: $(cat "$work/sandboxd.err")"
		sandboxd=$(grep -ohE '127\.0\.0\.1:[1-9][0-9]*' "$work/sandboxd.out" \
			"$work/sandboxd.err" | head -n 1) || true
		[ -z "$sandboxd" ] || break
		sleep 0.05
	done
	[ -n "$sandboxd" ] || die "threadfs-sandboxd does not say where it listens"
	sandboxd=http://$sandboxd
	curl -sf -o /dev/null "$sandboxd/v1/sandbox" || die "threadfs-sandboxd does not answer"
}

# fetch URL SIZE: seconds of one download; the whole file must come.
fetch() {
	local t size
	read -r t size < <(curl -sf -o /dev/null -w '%{time_total} %{size_download}\n' "$1")
	[ "$size" = "$2" ] && echo "$t"
}
download_ours() { fetch "$sandboxd/v1/file/download?path=$workspace/1g" 1073741824; }
download_theirs() { fetch "$nginx/1g" 1073741824; }

# A new file every time: replacing one would measure how the old one is freed.
upload_ours() {
	local stored=$work/data/workspace/uploaded t
	t=$(curl -sf -o "$work/answer" -w '%{time_total}' -F "file=@$work/upload" \
		-F "path=$workspace/uploaded" "$sandboxd/v1/file/upload") || return
	[ "$(stat -c %s "$stored")" = 536870912 ] || return
	rm -f "$stored"
	echo "$t"
}
upload_theirs() {
	local t
	t=$(curl -sf -o /dev/null -w '%{time_total}' -T "$work/upload" "$nginx/put/uploaded") || return
	[ "$(stat -c %s "$work/put/uploaded")" = 536870912 ] || return
	rm -f "$work/put/uploaded"
	echo "$t"
}

# many URL COUNT FILE: a curl configuration with the same URL again and again.
many() {
	local i
	for ((i = 0; i < $2; i++)); do
		printf 'url = "%s"\noutput = /dev/null\n' "$1"
	done >"$3"
}
# in_sequence CONFIG COUNT CURL-OPTION…: one connection, every answer a 200.
in_sequence() {
	local config=$1 count=$2
	shift 2
	curl -sf -K "$config" -w '%{http_code} %{num_connects}\n' "$@" >"$work/codes" || return
	awk -v want="$count" '$1 == 200 { ok++ } { connects += $2 }
		END { exit !(ok == want && connects == 1) }' "$work/codes"
}
small_ours() { elapsed in_sequence "$work/small-ours" 2000; }
small_theirs() { elapsed in_sequence "$work/small-theirs" 2000; }

list_ours() {
	curl -sf -o /dev/null -w '%{time_total}\n' -H 'Content-Type: application/json' \
		-d "{\"path\":\"$workspace/list\",\"include_permissions\":true}" \
		"$sandboxd/v1/file/list"
}
find_to_null() {
	find "$work/data/workspace/list" -mindepth 1 -printf '%f %s %m %T@\n' >/dev/null
}
list_theirs() { elapsed find_to_null; }

exec_ours() {
	elapsed in_sequence "$work/exec-ours" 200 -H 'Content-Type: application/json' \
		-d '{"command":"true","session_id":"bench"}'
}
local_bash() {
	local i
	for ((i = 0; i < 200; i++)); do
		bash -c true || return
	done
}
exec_theirs() { elapsed local_bash; }

download_by_64() {
	many "$sandboxd/v1/file/download?path=$workspace/256m" 64 "$work/crowd"
	curl -sf -Z --no-progress-meter --parallel-immediate --parallel-max 64 -K "$work/crowd" \
		-w '%{http_code} %{size_download}\n' >"$work/codes" || return
	[ "$(grep -c '^200 268435456$' "$work/codes")" = 64 ]
}

bench_sandboxd() {
	need_packages "${build_packages[@]}" "${run_packages[@]}" nginx-light curl jq findutils
	build "$build_dir"
	make_work 4096
	make_files
	start_nginx
	start_sandboxd
	table workload sandboxd reference ratio wanted verdict

	memory_row "memory, idle" "$(memory_kib "$sandboxd_pid" VmRSS)" 16
	# both have every file in the page cache before anything counts
	download_ours >/dev/null
	download_theirs >/dev/null
	compare "$rounds" download_ours download_theirs
	rate_row "download 1 GiB" 1024 MiB/s 0.9
	compare "$rounds" upload_ours upload_theirs
	rate_row "upload 512 MiB" 512 MiB/s 0.8
	many "$sandboxd/v1/file/download?path=$workspace/4k" 2000 "$work/small-ours"
	many "$nginx/4k" 2000 "$work/small-theirs"
	compare "$rounds" small_ours small_theirs
	rate_row "2000 x 4 KiB, one connection" 2000 /s 0.7

	[ "$(curl -sf -H 'Content-Type: application/json' -d "{\"path\":\"$workspace/list\"}" \
		"$sandboxd/v1/file/list" | jq .data.total_count)" = 10000 ] ||
		die "the listing is not complete"
	compare "$((rounds * 3))" list_ours list_theirs
	time_row "list 10000 entries (find)" 4
	many "$sandboxd/v1/bash/exec" 200 "$work/exec-ours"
	compare "$rounds" exec_ours exec_theirs
	time_row "200 x exec true (bash -c)" 3

	reset_peak "$sandboxd_pid"
	download_by_64 || die "not all of 64 parallel downloads were complete"
	memory_row "memory, peak of 64 x 256 MiB" "$(memory_kib "$sandboxd_pid" VmHWM)" 64
	memory_row "memory, after all this" "$(memory_kib "$sandboxd_pid" VmRSS)"
}
