#!/usr/bin/env bats
# What the daemon takes of the machine's memory.

load ../lib/mount

PYTHON=$(command -v /usr/bin/python3 || command -v python3)

setup() {
	[ -z "${SANITIZED:-}" ] || skip "sanitizers need memory of their own"
	setup_mount
	thread
}

teardown() {
	[ -z "${T:-}" ] || teardown_mount
}

# below MIB: the most that the daemon ever had in memory.
below() {
	local most

	most=$(awk '$1 == "VmHWM:" { print int($2 / 1024) }' "/proc/$MOUNT_PID/status")
	echo "# $DIALECT: $BATS_TEST_DESCRIPTION: $most MiB" >&3
	[ "$most" -le "$1" ]
}

@test "2 GiB through cat (512 MiB in older dialects)" {
	local start mib=2048

	# In the others a part of it tells as much: no window grows after the first.
	[ "$DIALECT" = aiod ] || mib=512
	sandbox "truncate -s ${mib}M workspace/sparse"
	start=$EPOCHSECONDS
	[ "$(cat workspace/sparse | wc -c)" = $((mib * 1048576)) ]
	echo "# $DIALECT: $((mib / (EPOCHSECONDS - start + 1))) MiB/s or more" >&3
	below 96
	# nor is it on the disk now
	[ "$(du -sm "$CACHE" | cut -f 1)" -lt 100 ]
}

@test "1,000 open files (500 in 1.0)" {
	local files=1000 step=1

	# Each read is a request, and those of the others take longer. In 1.0 all that was read waits
	# for one shell to tell that it was one version; 1,000 of them took 125 MiB and more.
	[ "$DIALECT" = aiod ] || step=10
	[ "$DIALECT" != 1.0 ] || files=500
	sandbox "mkdir workspace/many; cd workspace/many; for i in {1..$files}; do head -c 100000 /dev/zero >\$i; done"
	"$PYTHON" - "$M" "$files" "$step" <<-'PY'
		import json, os, resource, sys
		resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
		fds = [os.open(f"workspace/many/{i + 1}", os.O_RDONLY) for i in range(int(sys.argv[2]))]
		for fd in fds:
		    assert os.read(fd, 10) == bytes(10)
		with open(sys.argv[1] + "/.ctl/status.json") as f:
		    assert json.load(f)["totals"]["open_files"] == len(fds)
		for fd in fds[:: int(sys.argv[3])]:
		    assert len(os.pread(fd, 100000, 50000)) == 50000
	PY
	below 128
}

@test "1 GiB written (256 MiB in older dialects)" {
	local mib=1024

	[ "$DIALECT" = aiod ] || mib=256
	head -c "${mib}M" /dev/zero >workspace/zeros
	[ "$(stat -c %s workspace/zeros)" = $((mib * 1048576)) ]
	below 96
	[ "$(du -sm "$CACHE" | cut -f 1)" -lt 100 ]
}
