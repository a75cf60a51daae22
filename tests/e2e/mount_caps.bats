#!/usr/bin/env bats
# What a user can make grow has a cap, with a clear error there, and everything else goes on.
# The table in docs/RELIABILITY.md says what else is capped, and where that is tested.

load ../lib/mount

setup() {
	mount_setup
}

teardown() {
	cd /
	teardown_mount
}

@test "more files are written than the daemon may have open: ENFILE, nothing is lost" {
	mount_start
	thread
	sandbox 'echo theirs >outputs/theirs'
	prlimit --pid "$MOUNT_PID" --nofile=200:200
	"$PYTHON" -I - <<-'PY'
		import errno, os
		content = b"x" * 200_000  # more than is kept in memory
		fds = []
		while True:
		    assert len(fds) < 200, "no cap"
		    fd = os.open(f"outputs/f{len(fds)}", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
		    try:
		        assert os.write(fd, content) == len(content)
		    except OSError as e:
		        assert e.errno == errno.ENFILE, e
		        break
		    fds.append(fd)
		assert len(fds) > 50, len(fds)
		# what needs no such file goes on
		assert open("outputs/theirs").read() == "theirs\n"
		os.mkdir("outputs/d")
		open("outputs/d/small", "w").write("small")
		with open(".ctl/exec", "w") as f:
		    f.write("echo more >>outputs/theirs")
		assert open("outputs/theirs").read() == "theirs\nmore\n"
		for each in fds:
		    os.close(each)
		try:
		    os.close(fd)
		except OSError:
		    pass
		os.unlink(f"outputs/f{len(fds)}")
		with open("outputs/after", "wb") as f:
		    f.write(content)
		sizes = {len(open(f"outputs/f{i}", "rb").read()) for i in range(len(fds))}
		assert sizes == {len(content)}, sizes
		open("outputs/count", "w").write(str(len(fds)))
	PY
	[ "$(sandbox 'find outputs -name "f*" -size 200000c | wc -l')" = "$(cat outputs/count)" ]
	[ "$(jq .totals.pending_files "$M/.ctl/status.json")" = 0 ]
	expect_errors
}

runs_more() {
	[ "$(sandbox 'echo more' 2>/dev/null)" = more ]
}

@test "commands that have not ended: EAGAIN beyond 256" {
	mount_start
	thread
	"$PYTHON" -I - <<-'PY'
		import errno, os, time
		fd = os.open(".ctl/exec", os.O_WRONLY | os.O_NONBLOCK)
		os.write(fd, b"sleep 1000")
		n = 1
		try:
		    while n < 300:
		        os.write(fd, b"echo x >>workspace/ran")
		        n += 1
		except OSError as e:
		    assert e.errno == errno.EAGAIN, e
		assert n == 256, n
		os.close(fd)
		with open(".ctl/destroy", "w") as f:
		    f.write("1")
	PY
	# they are lost with their sandbox, and there is room again
	wait_for $((60 * SLOW)) runs_more
	[ ! -e workspace/ran ]
	expect_errors
}

@test "cache_size: ENOSPC from write, and output of a command that is cut" {
	mount_start -o cache_size=1M
	thread
	sandbox 'head -c 600000 /dev/zero' >"$T/seen"
	[ "$(wc -c <"$T/seen")" = 262144 ]
	[ "$(cat .ctl/jobs/1/status)" = 'done cut' ]
	[ "$(wc -c <.ctl/jobs/1/stdout)" = 262144 ]
	"$PYTHON" -I - <<-'PY'
		import errno, os
		fd = os.open("outputs/big", os.O_WRONLY | os.O_CREAT)
		try:
		    for _ in range(32):
		        os.pwrite(fd, b"x" * 65536, _ * 131072)  # not in sequence: nothing goes up yet
		    raise SystemExit("no cap")
		except OSError as e:
		    assert e.errno == errno.ENOSPC, e
		os.ftruncate(fd, 0)
		os.write(fd, b"small")
		os.close(fd)
	PY
	expect_errors
}
