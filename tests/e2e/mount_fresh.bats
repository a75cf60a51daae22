# Changes that are made in the sandbox show outside, whatever was cached: told by its
# watch, or after a second where there is none. How long each took is in the output.

load ../lib/mount

setup() {
	mount_setup
}

teardown() {
	[ -z "${STOPPED:-}" ] || kill -CONT "$STOPPED" 2>/dev/null || true
	teardown_mount
}

# fresh ARGS…: fresh_test.py in a new directory of the thread.
fresh() {
	DEADLINE=$((40 * SLOW)) "$PYTHON" "$(cd "$BATS_TEST_DIRNAME" && pwd)/fresh_test.py" "$@" \
		>"$T/delays" 3>&- || { cat "$T/delays"; return 1; }
	cat "$T/delays" >&3
}

# host: the sandbox's workspace beside the mount, $H. Whoever works there is not seen but by
# the watch.
host() {
	H=$(find "$DATA" -type d -path '*/demo/*' -name workspace)
	[ -d "$H" ]
}

watch_is() {
	[ "$(jq -r .watch "$W/.ctl/status.json")" = "$1" ]
}

# start [-o OPTIONS]: a mount and a thread that is watched, if it can be.
start() {
	mount_start "$@"
	thread
	host
	ls workspace
	if [ "$DIALECT" = 1.0 ]; then
		wait_until watch_is unsupported
	else
		wait_until watch_is live
	fi
}

has() {
	[ "$(cat "$1" 2>/dev/null)" = "$2" ]
}

@test "changes beside the mount" {
	local promise=0.15 # the debounce that we ask for, and 100 ms
	[ "$DIALECT" != 1.0 ] || promise=1.5 # without a watch
	# Longer than anybody waits: with the sandbox all that is stale would go.
	start -o linger=600
	mkdir workspace/d
	PROMISE=$promise fresh "$W/workspace/d" --host "$H/d"
}

lists() {
	[ "$(ls "$1")" = "$2" ]
}

# Its node is remembered, as it is open, and what was listed is not: the number alone says nothing.
@test "a file that went and comes back is there" {
	start
	mkdir "$H/d"
	echo one >"$H/d/f"
	wait_until lists workspace/d f
	[ "$(stat -c %s workspace/d/f)" = 4 ]
	exec 5<workspace/d/f
	mv "$H/d/f" "$H/aside"
	wait_until lists workspace/d ''
	is ENOENT stat workspace/d/f
	mv workspace/d workspace/e
	is ENOENT stat workspace/e/f
	ln "$H/aside" "$H/e/f"
	wait_until test -e workspace/e/f
	exec 5<&-
	[ "$(cat workspace/e/f)" = one ]
}

shows() {
	[ "$(stat -c %h,%s "$1")" = "$2" ]
}

# The event is of the second name; the first was known to be the only one, and is open.
@test "what gets a second name shows it, and what is written there" {
	start -o linger=600
	mkdir "$H/x" "$H/y"
	for i in 1 2 3; do
		echo old >"$H/x/a$i"
		wait_until has "workspace/x/a$i" old
		wait_until shows "workspace/x/a$i" 1,4
	done
	exec 5<workspace/x/a1
	read -r line <&5
	[ "$line" = old ]
	ln "$H/x/a1" "$H/y/b1"
	echo new >>"$H/y/b1"
	wait_until shows workspace/x/a1 2,8
	wait_until has workspace/x/a1 $'old\nnew'
	read -r line <&5
	exec 5<&-
	[ "$line" = new ]
	# one after the other, over a name that is there, and gone again
	ln "$H/x/a2" "$H/y/b2"
	wait_until shows workspace/x/a2 2,4
	echo newer >"$H/y/b2"
	wait_until has workspace/x/a2 newer
	ln -f "$H/x/a3" "$H/y/b2"
	wait_until shows workspace/x/a3 2,4
	wait_until shows workspace/x/a2 1,6
	echo newest >>"$H/y/b2"
	wait_until has workspace/x/a3 $'old\nnewest'
	rm "$H/y/b2"
	wait_until shows workspace/x/a3 1,11
}

# changes_under FROM TO: somebody asks for a file of FROM bytes, and before he is answered it has TO
# others. He gets all of one version, or an error. Or the kernel throws the longer size away, and he
# gets the first FROM bytes of the others: $CUT is 1 then (docs/RELIABILITY.md, "Files that are replaced
# while they are read").
changes_under() {
	head -c "$1" /dev/zero | tr '\0' o >"$H/under"
	wait_until cmp -s workspace/under "$H/under"
	STOPPED=$(server_of "$(jq .pid .ctl/status.json)")
	CUT=$("$PYTHON" - workspace/under "$H/under" "$STOPPED" "$1" "$2" <<-'PY'
		import errno, os, signal, sys, threading, time
		path, host, server, old, new = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
		good = [b"o" * old, b"n" * new]
		if new > old:
		    good.append(b"n" * old)
		fd = os.open(path, os.O_RDONLY)
		os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
		os.kill(server, signal.SIGSTOP)
		got = bytearray()
		def read():
		    try:
		        while piece := os.read(fd, 1 << 20):
		            got.extend(piece)
		    except OSError as e:
		        assert e.errno == errno.ESTALE, e
		        got[:] = b"n" * new
		t = threading.Thread(target=read)
		t.start()
		time.sleep(0.3)
		with open(host, "r+b") as f:
		    f.truncate(0)
		    f.write(b"n" * new)
		os.kill(server, signal.SIGCONT)
		t.join()
		assert got in good, (len(got), {chr(c): got.count(c) for c in set(got)})
		print(int(got == b"n" * old))
	PY
	)
	STOPPED=
}

@test "a file that changes before a read is answered is read as one of both" {
	start -o linger=600
	for sizes in "120000 5000" "5000 120000" "120000 9000" "9000 9100" "300 70000" "400000 200000"; do
		# shellcheck disable=SC2086 # two words
		set -- $sizes
		for _ in 1 2 3; do
			changes_under "$1" "$2"
			[ "$CUT" = 1 ] || break
			echo "$sizes: cut"
		done
		# that is rare, unless everything takes long
		[ "$CUT" = 0 ] || [ -n "${SANITIZED:-}" ]
	done
}

@test "a file that is replaced all the time: never bytes that nobody wrote" {
	start -o linger=600
	echo >workspace/replaced
	"$PYTHON" "$(cd "$BATS_TEST_DIRNAME" && pwd)/replaced_test.py" workspace/replaced "$H/replaced" \
		"${REPLACED_SECONDS:-5}" >"$T/replaced" 3>&- || { cat "$T/replaced"; return 1; }
	sed 's/^/# /' "$T/replaced" >&3
}

@test "changes by a command that still runs" {
	start
	mkdir workspace/d
	fresh "$W/workspace/d" --shell "$THREADFS" exec "$W/workspace/d" -- sh -e
}

@test "changes by a command that has ended are there at once" {
	start
	for i in 1 2 3 4 5 6 7 8 9 10; do
		is ENOENT stat "workspace/n$i"
		[ "$i" = 1 ] || has workspace/same $((i - 1))
		"$THREADFS" exec . -- sh -c "echo $i >workspace/n$i; echo $i >workspace/same"
		[ "$(cat "workspace/n$i")" = "$i" ]
		[ "$(cat workspace/same)" = "$i" ]
		[ "$(find workspace -type f | wc -l)" = $((i + 1)) ]
	done
}

@test "who works in a directory stays in it" {
	start
	mkdir -p workspace/here/below
	cd workspace/here/below
	ls -la .. >/dev/null
	echo x >"$H/here/new"
	wait_until has ../new x
	chmod 700 "$H/here" "$H/here/below"
	mode() { [ "$(stat -c %a .)" = 700 ]; }
	wait_until mode
	mv "$H/here/new" "$H/here/below/"
	wait_until has new x
	same "$(/bin/pwd)" "$W/workspace/here/below"
	"$THREADFS" exec "$W" -- true
	same "$(/bin/pwd)" "$W/workspace/here/below"
}

@test "the sandbox dies: nothing of before is believed" {
	start
	echo old >"$H/f"
	wait_until has workspace/f old
	is ENOENT stat workspace/g
	# Who is inside goes with it; then nobody tells of changes.
	kill -KILL "$(jq .pid .ctl/status.json)"
	wait_until refute watch_is live
	echo new >"$H/f"
	echo more >"$H/g"
	wait_until has workspace/f new
	wait_until has workspace/g more
	[ "$DIALECT" = 1.0 ] || wait_until watch_is live
	rm "$H/g"
	wait_until test ! -e workspace/g
	expect_errors
}

@test "the sandbox is stopped, and goes by itself when nobody uses it" {
	start -o linger=1
	echo old >"$H/f"
	wait_until has workspace/f old
	is ENOENT stat workspace/g
	echo >.ctl/destroy
	refute watch_is live
	echo new >"$H/f"
	echo more >"$H/g"
	has workspace/f new
	has workspace/g more
	[ "$DIALECT" = 1.0 ] || wait_until watch_is live
	# The watch does not keep it.
	state_is() { [ "$(jq -r .state .ctl/status.json)" = "$1" ]; }
	wait_until state_is warm
	refute watch_is live
	echo newer >"$H/f"
	rm "$H/g"
	has workspace/f newer
	is ENOENT stat workspace/g
}

@test "more changes than the server remembers" {
	start
	mkdir workspace/d
	ls workspace/d
	is ENOENT stat workspace/d/7
	STOPPED=$MOUNT_PID
	kill -STOP "$STOPPED"
	(cd "$H/d" && seq 30000 | xargs touch)
	(cd "$H/d" && seq 1 2 30000 | xargs rm)
	kill -CONT "$STOPPED"
	STOPPED=
	[ -e workspace/d/8 ] || wait_until test -e workspace/d/8
	wait_until test ! -e workspace/d/7
	count() { [ "$(find workspace/d -type f | wc -l)" = 15000 ]; }
	wait_until count
}

@test "unmounting in the middle of changes" {
	start
	mkdir workspace/d
	spawn sh -c 'cd "$1" && while :; do
		for i in 1 2 3 4 5 6 7 8 9; do echo $i >$i; mv $i $i.x; mkdir -p s/$i; done; rm -rf s
		done' sh "$H/d"
	# It leaves by itself: what a shell had started would keep the mount busy.
	spawn sh -c 'cd "$1" && until [ -e "$2" ]; do
		cat * >/dev/null 2>&1; find . >/dev/null 2>&1; done' sh "$W/workspace/d" "$T/enough"
	count() { [ "$(sed -n 's/^threadfs_watch_events_total //p' "$M/.ctl/metrics")" -gt 200 ]; }
	[ "$DIALECT" = 1.0 ] || wait_until count
	: >"$T/enough"
	wait_for $((20 * SLOW)) pid_gone "$SPAWN_PID"
	mount_stop
}

# has_bytes FILE TEXT: it begins with that.
has_bytes() {
	[ "$(head -c ${#2} "$1" | tr '\0' '?')" = "$2" ]
}

@test "a file that others wrote to between open and the first write" {
	start -o linger=600
	: >workspace/f
	head -c 1000000 /dev/urandom >"$T/theirs"
	exec 8<>workspace/f
	ls workspace >/dev/null
	cp "$T/theirs" "$H/f"
	# nobody looks at it here until that is heard of, or what was known is old
	settled
	sleep 1.1
	printf XY >&8
	exec 8>&-
	wait_until has_bytes "$H/f" XY
	[ "$(stat -c %s "$H/f")" = 1000000 ]
	cmp <(tail -c +3 "$H/f") <(tail -c +3 "$T/theirs")
	# who removed it takes nothing away from one that is all written here
	exec 8<>workspace/g
	printf abc >&8
	exec 8>&-
	exec 8<>workspace/g
	rm "$H/g"
	settled
	sleep 1.1
	printf defg >&8
	exec 8>&-
	wait_until has_bytes "$H/g" defg
}

@test "a file that was empty when it was opened is read as it is, also behind the first write" {
	start
	: >workspace/f
	ls workspace >/dev/null
	exec 8<>workspace/f
	printf 'from the sandbox' >"$H/f"
	settled
	sleep 1.1
	"$PYTHON" -I -S - "$H/f" <<-'END'
		import mmap, os, sys
		os.pwrite(8, b"W", 100)
		got = os.pread(8, 200, 0)
		assert got == b"from the sandbox" + bytes(84) + b"W", got
		m = mmap.mmap(8, 101)
		m[50:51] = b"m"
		m.flush()
	END
	exec 8>&-
	wait_until has_bytes "$H/f" 'from the sandbox'
	"$PYTHON" -I -S -c '
import sys
got = open(sys.argv[1], "rb").read()
assert got == b"from the sandbox" + bytes(34) + b"m" + bytes(49) + b"W", got' "$H/f"
}

# append_beside PAUSE: to workspace/f, then the sandbox does, and then it is written to elsewhere.
append_beside() {
	run "$PYTHON" -I -S - "$H/f" "$1" <<-'END'
		import os, sys, time
		f = os.open("workspace/f", os.O_WRONLY | os.O_APPEND)
		os.write(f, b"mine 1\n")
		with open(sys.argv[1], "ab") as beside:
		    beside.write(b"the sandbox's\n")
		time.sleep(float(sys.argv[2]))
		os.write(f, b"mine 2\n")
		g = os.open("workspace/f", os.O_WRONLY)
		os.pwrite(g, b"O", 0)
		for h in g, f:
		    try:
		        os.close(h)
		    except OSError as e:
		        print(e.strerror)
	END
	[ "$status" = 0 ]
	grep -qx "the sandbox's" "$H/f"
}

@test "what is to be appended does not go over what the sandbox has appended" {
	start
	echo old >workspace/f
	append_beside 0
	# both lines of ours are there, or somebody was told
	[ "$output" ] || [ "$(sort "$H/f")" = "$(printf 'Old\nmine 1\nmine 2\nthe sandbox%ss\n' "'" | sort)" ]
	expect_errors
}

@test "nor in a file that was empty" {
	start
	: >workspace/f
	ls -l workspace
	append_beside 2
	expect_errors
}

@test "nor while what was appended before is being looked at" {
	start
	"$PYTHON" -I -S - "$H" <<-'END'
		import os, random, sys, threading, time
		quick = 0
		for i in range(300):
		    name = "f%d" % i
		    errors = []

		    def attempt(do, *args):
		        try:
		            do(*args)
		        except OSError as e:
		            errors.append(e)

		    with open("workspace/" + name, "w") as f:
		        f.write("old\n")
		    os.stat("workspace/" + name)
		    f = os.open("workspace/" + name, os.O_WRONLY | os.O_APPEND)
		    g = os.open("workspace/" + name, os.O_WRONLY)
		    beside = os.open(sys.argv[1] + "/" + name, os.O_WRONLY | os.O_APPEND)
		    os.write(f, b"mine 1\n")
		    os.utime(f, (1e9, 1e9))
		    closing = threading.Thread(target=attempt, args=(os.close, os.dup(f)))
		    closing.start()
		    time.sleep(random.random() * 0.0015)
		    attempt(os.write, f, b"mine 2\n")
		    # Between the look that comes now and the upload anything is overwritten (README).
		    began = time.monotonic()
		    attempt(os.pwrite, g, b"O", 0)
		    os.write(beside, b"the sandbox's\n")
		    took = time.monotonic() - began
		    closing.join()
		    for fd in g, f, beside:
		        attempt(os.close, fd)
		    if took > 0.0003:
		        continue
		    with open(sys.argv[1] + "/" + name) as there:
		        got = there.read()
		    assert "the sandbox's" in got or errors, (i, got)
		    quick += 1
		    if quick == 40:
		        break
		print(quick, "of", i + 1, "were quick enough")
	END
	expect_errors
}
