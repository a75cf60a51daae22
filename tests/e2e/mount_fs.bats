# The filesystem API, as programs use it: fs_test.py, fs_test.mjs; of embedded
# sandboxes, of one by its URL, and the options that change what is shown.

load ../lib/mount

setup() {
	mount_setup
}

teardown() {
	teardown_mount
}

here() {
	cd "$BATS_TEST_DIRNAME" && pwd
}

@test "python on an embedded sandbox" {
	mount_start
	thread
	"$PYTHON" "$(here)/fs_test.py" "$W/workspace"
}

@test "node.js on an embedded sandbox" {
	mount_start
	thread
	node "$(here)/fs_test.mjs" "$W/workspace" 3>&-
}

@test "a sandbox by its URL: python, tools, commands" {
	url_mount
	cd "$W"
	same "$(ls "$M/threads")" default
	[ -d "$W/workspace" ] || mkdir "$W/workspace"
	"$PYTHON" "$(here)/fs_test.py" "$W/workspace"
	head -c 5000000 /dev/urandom >"$T/in"
	cp "$T/in" workspace/in
	same "$(sandbox 'cksum < workspace/in')" "$(cksum <"$T/in")"
	cmp "$T/in" workspace/in
	cmp "$T/in" "$T/url.data/workspace/in"
	is EPERM rmdir "$M/threads/default"
	# no other one can be made, nor stays as one that could not be
	is EPERM mkdir "$M/threads/another"
	is ENOENT stat "$M/threads/another"
	same "$(ls "$M/threads")" default
	# it is not ours to stop
	mount_stop
	kill -0 "$SANDBOXD_PID"
	sandboxd_stop
}

@test "a sandbox by its URL: another name, another root" {
	url_mount -o thread=mine,root=/tmp
	W=$M/threads/mine
	same "$(ls "$M/threads")" mine
	echo x >"$W/file"
	same "$(sandbox 'pwd; cat /tmp/file')" $'/tmp\nx'
	is ENOENT stat "$M/threads/default"
	is ENOENT stat "$W/workspace"
}

@test "the flags of a mount" {
	mount_start
	thread
	options=$(awk -v dir="$M" '$5 == dir { print $6; print $(NF - 2), $(NF - 1) }' /proc/self/mountinfo)
	for flag in nosuid nodev noexec; do
		grep -qE "(^|,)$flag(,|\$)" <<<"$options"
	done
	refute grep -q allow_other <<<"$options"
	grep -q 'fuse.threadfs embedded:' <<<"$options"
	printf '#!/bin/sh\necho ran\n' >workspace/run
	chmod 0755 workspace/run
	run workspace/run
	same "$status" 126
	same "$(sandbox workspace/run)" ran
	same "$(df --output=fstype "$M" | tail -n 1)" fuse.threadfs
	df workspace
}

@test "-o exec, uid, gid, umask" {
	mount_start -o exec,uid=12345,gid=23456,umask=077
	thread
	printf '#!/bin/sh\necho ran\n' >workspace/run
	chmod 0755 workspace/run
	same "$(stat -c '%u %g %a' workspace/run)" '12345 23456 700'
	same "$(stat -c '%u %g' . workspace "$M")" $'12345 23456\n12345 23456\n12345 23456'
	same "$(sandbox 'stat -c %a workspace/run')" 755
	same "$(workspace/run)" ran
	is ok chown workspace/run =12345 =23456
	is EPERM chown workspace/run =0 =0
}

@test "-o ro" {
	mount_start
	thread
	echo x >workspace/f
	mount_stop
	mount_start -o ro
	same "$(cat "$W/workspace/f")" x
	is EROFS open "$W/workspace/f" O_WRONLY
	is EROFS mkdir "$W/workspace/d"
	is EROFS mkdir "$M/threads/new"
	is EROFS unlink "$W/workspace/f"
	is EROFS rename "$W/workspace/f" "$W/workspace/g"
	is EROFS chmod "$W/workspace/f" =0o600
}
