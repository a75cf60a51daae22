#!/usr/bin/env bats
# What the mount counts and logs: metrics after Prometheus' conventions, the dashboard that
# shows them, log lines by topic, and that no key is ever in them.

load ../lib/mount

setup() {
	mount_setup
}

teardown() {
	teardown_mount
}

# metric SERIES: its value; 0 if it is not there.
metric() {
	awk -v s="$1" '$1 == s { v = $2 } END { print v + 0 }' "$M/.ctl/metrics"
}

# use_it [ID]: some of everything.
use_it() {
	thread "$@"
	echo one >outputs/a
	mkdir outputs/d
	cat outputs/a >/dev/null
	ls -l outputs >/dev/null
	ln -s a outputs/l
	readlink outputs/l >/dev/null
	refute cat outputs/none 2>/dev/null
	sandbox true
	mv outputs/a outputs/b
	sync -f outputs/b
}

@test "metrics pass Prometheus' own rules, and the dashboard names only what is there" {
	mount_start
	use_it
	cp "$M/.ctl/metrics" "$T/metrics"
	"$PYTHON" "$SANDBOXD_ROOT/tests/lib/promlint.py" "$T/metrics" "$SANDBOXD_ROOT/docs/grafana.json"
	# scripts/check sees to it that there is one
	PROMTOOL=${PROMTOOL:-$(command -v promtool || true)}
	if [ -n "$PROMTOOL" ]; then
		"$PROMTOOL" check metrics <"$T/metrics" >"$T/promtool" 2>&1 || { cat "$T/promtool"; return 1; }
		[ ! -s "$T/promtool" ]
	fi
}

@test "the rules find what is wrong" {
	rules() {
		"$PYTHON" "$SANDBOXD_ROOT/tests/lib/promlint.py" "$@"
	}
	printf '# HELP a_total x\n# TYPE a_total counter\na_total 1\n' >"$T/good"
	rules "$T/good"
	printf '# HELP a x\n# TYPE a counter\na 1\n' >"$T/bad"
	refute rules "$T/bad"
	printf '# HELP a_ms x\n# TYPE a_ms gauge\na_ms 1\n' >"$T/bad"
	refute rules "$T/bad"
	printf '# HELP h x\n# TYPE h histogram\nh_bucket{le="1"} 2\nh_bucket{le="+Inf"} 1\nh_sum 1\nh_count 1\n' >"$T/bad"
	refute rules "$T/bad"
	printf '{"panels": [{"targets": [{"expr": "rate(threadfs_no_such_total[1m])"}]}], "templating": {"list": []}}' >"$T/d.json"
	refute rules "$T/good" "$T/d.json"
}

@test "latencies are counted by operation, what was cached by hits" {
	local before hits
	mount_start
	use_it
	[ "$(metric 'threadfs_request_duration_seconds_count{operation="names",class="control"}')" = 1 ]
	[ "$(metric 'threadfs_request_duration_seconds_count{operation="names",class="sandbox"}')" -ge 3 ]
	[ "$(metric 'threadfs_request_duration_seconds_count{operation="close",class="sandbox"}')" -ge 1 ]
	[ "$(metric "threadfs_sandbox_request_duration_seconds_count{request=\"context\",backend=\"embedded\"}")" -ge 1 ]
	[ "$(metric 'threadfs_cache_misses_total{operation="lookup"}')" -ge 1 ]
	# The sum of the buckets in status.json is what was asked of sandboxes.
	jq -e '.totals.latency | (.bounds_s | length) + 1 == (.requests | length) and
		(.requests | add) > 5 and (.sandbox | add) > 1' "$M/.ctl/status.json"
	jq -e '.totals.cache | .lookup.hits + .lookup.misses > 0' "$M/.ctl/status.json"
	# What is watched is not asked for again.
	wait_until watch_settled
	watched || return 0
	settled
	hits=$(metric 'threadfs_cache_hits_total{operation="readdir"}')
	before=$(metric 'threadfs_cache_misses_total{operation="readdir"}')
	ls outputs >/dev/null
	ls outputs >/dev/null
	[ "$(metric 'threadfs_cache_hits_total{operation="readdir"}')" -gt "$hits" ]
	[ "$(metric 'threadfs_cache_misses_total{operation="readdir"}')" = "$before" ]
}

# lines TOPIC: how many lines of the log are about it.
lines() {
	grep -cE "^[0-9TZ.:-]+ threadfs: debug: $1: " "$LOG" || true
}

@test "topics are logged each for itself, one line per event, with thread and sandbox" {
	local id topic
	mount_start -o debug=http:lease
	use_it
	id=$(jq -r '.threads[0].sandbox_id' "$M/.ctl/status.json")
	mount_stop
	[ "$(lines http)" -gt 0 ]
	[ "$(lines lease)" -gt 0 ]
	[ "$(lines fuse)" = 0 ]
	[ "$(lines file)" = 0 ]
	[ "$(lines ctl)" = 0 ]
	grep -qE "debug: http: default/demo: sandbox $id: [A-Z]+ /v1/[^ ]+: 200 after [0-9.]+ ms$" "$LOG"
	grep -qE "debug: lease: default/demo: sandbox $id: cold, then starting" "$LOG"
	# with a comma, as people write it, and all
	MOUNT_NAME=b mount_start -o debug=fuse,file,ctl
	use_it other
	id=$(jq -r '.threads[] | select(.thread == "other").sandbox_id' "$M/.ctl/status.json")
	MOUNT_NAME=b mount_stop
	for topic in fuse file ctl; do
		[ "$(lines "$topic")" -gt 0 ]
		[ "$(grep -E "debug: $topic: " "$LOG" | grep -cvE "thread [^ ]+: sandbox [^ ]+: ")" = 0 ]
	done
	[ "$(lines http)" = 0 ]
	grep -qE "debug: fuse: thread other: sandbox $id: lookup of inode [0-9]+: (done|ENOENT) after" "$LOG"
	grep -qE "debug: file: thread other: sandbox $id: upload of outputs/a: 4 bytes" "$LOG"
	grep -qE "debug: ctl: thread other: sandbox $id: written exec \([0-9]+ bytes\)" "$LOG"
	# every line is one event with its time
	[ "$(grep -cvE '^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\.[0-9]{3}Z threadfs: (error|warning|info|debug): ' "$LOG")" = 0 ]
}

@test "nothing is logged in detail unless somebody asks" {
	mount_start
	use_it
	mount_stop
	[ "$(grep -c debug: "$LOG")" = 0 ]
}

@test "the journal gets priorities and no times" {
	local file=$T/journal id
	: >"$file"
	id=$(stat -c %d:%i "$file")
	mkdir -p "$T/j"
	M=$T/j LOG=$file DATA=$T/data
	MOUNTS+=("$M")
	JOURNAL_STREAM=$id "$THREADFS" mount -f -o "data=$DATA,cache=$T/cache,debug=lease" "$M" \
		>/dev/null 2>>"$file" </dev/null 3>&- &
	MOUNT_PID=$!
	MOUNT_PIDS+=("$MOUNT_PID")
	wait_for $((30 * SLOW)) is_mounted "$M"
	thread
	echo x >outputs/a
	mount_stop
	grep -q '^<7>lease: default/demo: sandbox ' "$file"
	[ "$(grep -cvE '^<[3467]>' "$file")" = 0 ]
	# somebody else's stream: a file has times
	[ "$(JOURNAL_STREAM=1:1 "$THREADFS" mount -f "$T/none" 2>&1 | grep -c '^<')" = 0 ]
}

@test "a key is in no log at any level, nor in what control files show" {
	local key=s3cret-Key-0123456789 url
	printf '%s\n' "$key" >"$T/key"
	chmod 600 "$T/key"
	SANDBOXD_NAME=url sandboxd_start --listen 127.0.0.1:0 --api-key-file "$T/key"
	url=$(sed -n 's/.*: ready on \([^ ]*\) .*/\1/p' "$SANDBOXD_OUT")
	mount_start "http://${url#http://}" -o "debug=all,api_key_file=$T/key"
	W=$M/threads/default
	cd "$W"
	echo one >outputs/a
	sandbox 'cat outputs/a'
	cat "$M"/.ctl/{status,status.json,metrics,config} "$W"/.ctl/{status,status.json} >"$T/shown"
	mount_stop
	[ "$(lines http)" -gt 0 ]
	refute grep -F "$key" "$LOG" "$M.out" "$T/shown"
	# a wrong one neither
	printf '%s\n' "wrong-$key" >"$T/key2"
	chmod 600 "$T/key2"
	expect_errors
	refute "$THREADFS" mount "http://${url#http://}" -o "data=$T/data,cache=$T/cache,log=$T/w.log,debug=all,api_key_file=$T/key2" "$M" 2>"$T/refused"
	grep -q 'refuses the key' "$T/refused"
	refute grep -F "$key" "$T/w.log" "$T/refused"
}
