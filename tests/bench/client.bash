# The client library against the curl command and the server's own speed, over
# one unix socket. Sourced by scripts/bench, which has the helpers.
# shellcheck shell=bash
# shellcheck disable=SC2154 # work, rounds, root, build_dir: scripts/bench

workspace=/mnt/user-data/workspace
crowd=64   # sandboxes, each a server of its own
small=2000 # lstat and exec in sequence
cycles=10000

make_files() {
	local d f
	mkdir -p "$work/data/workspace/tree"
	head -c 1G /dev/urandom >"$work/data/workspace/1g"
	head -c 16M "$work/data/workspace/1g" >"$work/data/workspace/16m"
	# 200 directories of 99 files: 20000 entries
	for ((d = 0; d < 200; d++)); do
		mkdir "$work/data/workspace/tree/d$d"
		for ((f = 0; f < 99; f++)); do
			: >"$work/data/workspace/tree/d$d/file-$f"
		done
	done
}

# start_server NAME: listens on $work/NAME.sock.
start_server() {
	"$(realpath "$build_dir")/threadfs-sandboxd" --socket "$work/$1.sock" \
		--data "$work/data" >"$work/$1.log" 2>&1 &
	started+=($!)
}

wait_server() {
	local i
	for ((i = 0; i < 400; i++)); do
		! curl -sf -o /dev/null --unix-socket "$work/$1.sock" http://sandbox/v1/sandbox ||
			return 0
		sleep 0.05
	done
	die "threadfs-sandboxd does not answer: $(cat "$work/$1.log")"
}

ours() { "$bench" "$socket" "$@"; }
theirs() { curl -sf --unix-socket "$socket" "$@"; }

download_ours() {
	local t size
	read -r t size < <(ours download "$workspace/1g")
	[ "$size" = 1073741824 ] && echo "$t"
}
download_theirs() {
	local t size
	read -r t size < <(theirs -o /dev/null -w '%{time_total} %{size_download}\n' \
		"http://sandbox/v1/file/download?path=$workspace/1g")
	[ "$size" = 1073741824 ] && echo "$t"
}

# A new file every time: replacing one would measure how the old one is freed.
uploaded() {
	[ "$(stat -c %s "$work/data/workspace/uploaded")" = 1073741824 ] || return
	rm -f "$work/data/workspace/uploaded"
}
upload_ours() {
	local t
	t=$(ours upload "$work/data/workspace/1g" "$workspace/uploaded") || return
	uploaded && echo "$t"
}
upload_theirs() {
	local t
	t=$(theirs -o /dev/null -w '%{time_total}' -F "file=@$work/data/workspace/1g" \
		-F "path=$workspace/uploaded" http://sandbox/v1/file/upload) || return
	uploaded && echo "$t"
}

lstat_ours() { ours lstat "$small" "$workspace/1g"; }
stat_theirs() { ours exec-stat "$small" "$workspace/1g"; }
true_theirs() { ours exec "$small" true; }

list_ours() {
	local t entries requests
	read -r t entries requests < <(ours list "$workspace/tree")
	[ "$entries" = 20000 ] || return
	echo "$requests" >"$work/requests"
	echo "$t"
}
find_theirs() {
	ours exec 1 "find $workspace/tree -mindepth 1 -printf '%y %m %s %b %i %D %n %U %G %T@ %C@ %P %l\n'"
}

crowd_rows() {
	local i t bytes threads peak sockets=()
	for ((i = 0; i < crowd; i++)); do
		start_server "crowd$i"
		sockets+=("$work/crowd$i.sock")
	done
	for ((i = 0; i < crowd; i++)); do
		wait_server "crowd$i"
	done
	read -r t bytes threads peak < <(ours crowd "$workspace/16m" "${sockets[@]}")
	[ "$bytes" = $((crowd * 4 * 16777216)) ] || die "not all of the crowd's downloads were complete"
	judge "$crowd sandboxes x 4: loop threads" "$((threads - 1))" 1 "$((threads - 1))" '<=' 1
	memory_row "$crowd sandboxes x 4: memory, peak" "$peak" 64
	judge "$crowd sandboxes x 4: throughput" \
		"$(awk -v b="$bytes" -v t="$t" 'BEGIN { printf "%.0f MiB/s", b / 1048576 / t }')" "" "" - ""
}

# The program waits when it is done, so that its sockets can be looked at.
cycle_rows() {
	local t fds_before fds_after rss_before rss_after left pid
	coproc CYCLES { exec "$bench" "$socket" cycles "$cycles"; }
	pid=$CYCLES_PID
	read -r t fds_before fds_after rss_before rss_after <&"${CYCLES[0]}" || die "cycles failed"
	left=$(ss -xtupnH 2>/dev/null | grep -c "pid=$pid," || true)
	eval "exec ${CYCLES[1]}>&-"
	wait "$pid" || die "cycles failed"
	judge "$cycles cycles: descriptors" "$fds_after" "$fds_before" \
		"$((fds_after - fds_before))" '<=' 0
	judge "$cycles cycles: memory" "$rss_after KiB" "$rss_before KiB" \
		"$(awk -v a="$rss_after" -v b="$rss_before" 'BEGIN { printf "%.2f", a / b }')" '<=' 1.1
	judge "$cycles cycles: sockets left (ss)" "$left" 0 "$left" '<=' 0
	judge "$cycles cycles: rate" "$(awk -v n="$cycles" -v t="$t" 'BEGIN { printf "%.0f /s", n / t }')" \
		"" "" - ""
}

cancel_rows() {
	local median longest n
	read -r median longest n < <(ours cancel 20)
	judge "cancel, median of $n" "$(awk -v t="$median" 'BEGIN { printf "%.2f ms", t * 1000 }')" \
		"100 ms" "$(awk -v t="$median" 'BEGIN { printf "%.3f", t / 0.1 }')" '<=' 1
	judge "cancel, longest of $n" "$(awk -v t="$longest" 'BEGIN { printf "%.2f ms", t * 1000 }')" \
		"100 ms" "$(awk -v t="$longest" 'BEGIN { printf "%.3f", t / 0.1 }')" '<=' 1
}

bench_client() {
	need_packages "${build_packages[@]}" "${run_packages[@]}" "${test_packages[@]}"
	build "$build_dir"
	bench=$(realpath "$build_dir")/tests/bench_client
	make_work 4096
	make_files
	start_server server
	wait_server server
	socket=$work/server.sock
	table workload client reference ratio wanted verdict

	# Everything is in the page cache before anything counts. These are the
	# shortest and depend most on who has which processor: more rounds.
	download_ours >/dev/null || die "the download fails"
	compare $((2 * rounds + 1)) download_ours download_theirs
	rate_row "download 1 GiB (curl)" 1024 MiB/s 0.95
	compare $((2 * rounds + 1)) upload_ours upload_theirs
	rate_row "upload 1 GiB (curl -F)" 1024 MiB/s 0.95
	compare "$rounds" lstat_ours stat_theirs
	rate_row "$small x lstat (exec stat)" "$small" /s 0.8
	compare 1 lstat_ours true_theirs
	judge "$small x lstat (exec true)" \
		"$(awk -v n="$small" -v t="$ours_s" 'BEGIN { printf "%.0f /s", n / t }')" \
		"$(awk -v n="$small" -v t="$theirs_s" 'BEGIN { printf "%.0f /s", n / t }')" \
		"$(awk -v a="$theirs_s" -v b="$ours_s" 'BEGIN { printf "%.2f", a / b }')" - ""
	compare "$rounds" list_ours find_theirs
	judge "list a tree of 20000: requests" "$(cat "$work/requests")" 1 "$(cat "$work/requests")" \
		'<=' 1
	judge "list a tree of 20000: time (exec find)" \
		"$(awk -v t="$ours_s" 'BEGIN { printf "%.1f ms", t * 1000 }')" \
		"$(awk -v t="$theirs_s" 'BEGIN { printf "%.1f ms", t * 1000 }')" \
		"$(awk -v a="$ours_s" -v b="$theirs_s" 'BEGIN { printf "%.2f", a / b }')" - ""
	cancel_rows
	cycle_rows
	crowd_rows
}
