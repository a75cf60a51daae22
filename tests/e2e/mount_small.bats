#!/usr/bin/env bats
# Many small files: they come together, and are those that are in the sandbox.

load ../lib/mount

setup() {
	mount_setup
}

teardown() {
	teardown_mount
}

# inside COMMAND…: joined to one line, in the sandbox; where it goes to is not where the next one
# begins.
inside() {
	sandbox "( $* )"
}

# files COUNT BYTES [DIR]: made in the sandbox, each of other bytes.
files() {
	inside "mkdir -p ${3:-workspace/s}; cd ${3:-workspace/s};" \
		"for ((i = 0; i < $1; i++)); do printf '%0$2d' \$i >f\$i; done"
}

# metric NAME: of the mount.
metric() {
	awk -v name="threadfs_$1" '$1 == name { print $2 }' "$M/.ctl/metrics"
}

# errno_of_read FILE: the name of the errno with which reading it fails, or ok.
errno_of_read() {
	"$PYTHON" -c '
import errno, os, sys
try:
    os.read(os.open(sys.argv[1], os.O_RDONLY), 10)
    print("ok")
except OSError as e:
    print(errno.errorcode[e.errno])
' "$1"
}

# sums DIR: what every file below is, by its name.
sums() {
	(cd "$1" && find . -type f | sort | xargs cksum)
}

# true_sums DIR: the same as the sandbox sees it.
true_sums() {
	inside "cd $1 && find . -type f | sort | xargs cksum"
}

@test "grep, tar and cat see the right bytes" {
	mount_start
	thread
	files 500 4096
	same "$(grep -rlE '00(7|77|499)$' workspace/s | sort)" \
		$'workspace/s/f499\nworkspace/s/f7\nworkspace/s/f77'
	mkdir "$T/out"
	tar cf - -C workspace/s . | tar xf - -C "$T/out"
	same "$(sums "$T/out")" "$(true_sums workspace/s)"
	same "$(cat workspace/s/* | cksum)" "$(sandbox 'cat workspace/s/* | cksum')"
	# most came together
	[ "$(metric ahead_files_used_total)" -ge 400 ]
}

@test "in the order of their names" {
	mount_start
	thread
	files 300 1000
	# an event that comes late makes what was fetched ahead useless
	wait_until watch_settled
	settled
	same "$(cat workspace/s/* | cksum)" "$(sandbox 'cat workspace/s/* | cksum')"
	[ "$(metric ahead_files_used_total)" -ge 200 ]
	[ "$(metric ahead_files_wasted_total)" = 0 ]
}

@test "through a tree" {
	mount_start
	thread
	inside 'cd workspace; for d in {1..30}; do mkdir -p t/$d/a t/$d/b; for f in {1..4}; do' \
		'echo $d/a/$f >t/$d/a/$f; echo $d/b/$f >t/$d/b/$f; done; done'
	same "$(grep -r . workspace/t | sort | cksum)" \
		"$(sandbox 'grep -r . workspace/t | sort | cksum')"
	[ "$(metric ahead_files_used_total)" -ge 100 ]
}

@test "odd names and odd files" {
	mount_start
	thread
	local script

	read -r -d '' script <<-'S' || true
		mkdir workspace/s; cd workspace/s
		for n in a -n - --help "b c" "d'e" $'\377x' $'f\ng' "*" '$x' h{1..40}; do printf %s "$n" >"./$n"; done
		: >empty; mkfifo pipe; ln -s a link; ln -s /nowhere broken; mkdir dir
		head -c 300000 /dev/zero >large
	S
	inside "${script//$'\n'/; }"
	for name in workspace/s/*; do
		case $name in
		*/pipe | */dir | */empty | */broken | */large) ;;
		*/link) same "$(cat "$name")" a ;;
		*) same "$(cat "$name"; echo .)" "${name#workspace/s/}." ;;
		esac
	done
	same "$(find workspace/s -type f | wc -c)" "$(inside 'find workspace/s -type f | wc -c')"
	same "$(wc -c <workspace/s/large)" 300000
	same "$(wc -c <workspace/s/empty)" 0
}

@test "a single file is a single file" {
	mount_start
	thread
	files 100 4000
	ls -l workspace/s >/dev/null
	cat workspace/s/f50 >/dev/null
	cat workspace/s/f50 >/dev/null
	head -c 10 workspace/s/f50 >/dev/null
	same "$(metric ahead_files_total)" 0
	same "$(metric download_bytes_total)" 4000
}

@test "what changed between two passes is seen" {
	mount_start
	thread
	files 200 2000
	same "$(sums workspace/s)" "$(true_sums workspace/s)"
	# by a command, which says when it is done
	inside 'cd workspace/s; for i in {0..199..7}; do printf "%02000d" 9$i >f$i; done; rm f3; echo new >n'
	same "$(sums workspace/s)" "$(true_sums workspace/s)"
	# and by itself: same length, within the same second
	inside '(sleep 0.5; cd workspace/s; printf "%02000d" 77 >f50; mv f51 f52; touch done) >/dev/null 2>&1 &'
	wait_until [ -e workspace/s/done ]
	seen() { [ "$(sums workspace/s)" = "$(true_sums workspace/s)" ]; }
	wait_until seen
}

@test "a file that is replaced again and again is one version or the other" {
	mount_start
	thread
	files 60 30000
	inside '(cd workspace/s; for ((i = 0; i < 200; i++)); do head -c 30000 /dev/zero |' \
		'tr "\0" $((i % 10)) >.new; mv .new f30; done; touch end) >/dev/null 2>&1 &'
	while [ ! -e workspace/s/end ]; do
		for file in workspace/s/f*; do
			[[ $file = */f30 ]] || continue
			bytes=$(cat "$file" 2>/dev/null) || continue
			same "${bytes//${bytes:0:1}/}" '' || [ "${bytes:0:5}" = 00000 ]
		done
		cat workspace/s/* >/dev/null 2>&1 || true
	done
	seen() { [ "$(cat workspace/s/f30 | cksum)" = "$(sandbox 'cksum <workspace/s/f30')" ]; }
	wait_until seen
	same "$(sums workspace/s)" "$(true_sums workspace/s)"
}

@test "our own writes and renames are seen at once" {
	mount_start
	thread
	files 100 1000
	cat workspace/s/* >/dev/null
	for i in 10 20 30; do
		echo "mine $i" >workspace/s/f$i
		same "$(cat workspace/s/f$i)" "mine $i"
	done
	mv workspace/s/f40 workspace/s/f41
	same "$(cat workspace/s/f41)" "$(printf %01000d 40)"
	is ENOENT stat workspace/s/f40
	mv workspace/s workspace/r
	same "$(sums workspace/r)" "$(true_sums workspace/r)"
}

@test "an open file stays what it was when its name goes" {
	mount_start
	thread
	files 50 1000
	cat workspace/s/f{1,10,11,12,13} >/dev/null
	exec 8<workspace/s/f14
	rm workspace/s/f14
	same "$(cat <&8)" "$(printf %01000d 14)"
	exec 8<&-
}

@test "what cannot be read says why, and the others can" {
	mount_start
	thread
	files 100 500
	inside 'cd workspace/s; chmod 0 f30 f60'
	# In a sandbox of root every file can be read.
	expect=$(sandbox 'cat workspace/s/f30 >/dev/null 2>&1 && echo ok || echo EACCES')
	for i in {0..99}; do
		if [ "$i" = 30 ] || [ "$i" = 60 ]; then
			same "$(errno_of_read "workspace/s/f$i")" "$expect"
		else
			same "$(cat "workspace/s/f$i")" "$(printf %0500d "$i")"
		fi
	done
}

@test "the sandbox is killed in the middle" {
	mount_start
	expect_errors
	thread
	files 400 4096
	want=$(true_sums workspace/s)
	spawn bash -c "cd '$W/workspace/s' && find . -type f | sort | xargs cksum >'$T/got'"
	began() { [ "$(metric ahead_files_total)" != 0 ]; }
	wait_until began
	pid=$(pgrep -f "threadfs-sandboxd.*$T/" | head -n 1)
	kill -KILL "$pid"
	wait "$SPAWN_PID"
	same "$(cat "$T/got")" "$want"
}

@test "memory is bounded" {
	[ -z "${SANITIZED:-}" ] || skip "sanitizers need memory of their own"
	mount_start -o memory=16M
	thread
	files 5000 61440
	same "$(cat workspace/s/* | cksum)" "$(sandbox 'cat workspace/s/* | cksum')"
	[ "$(metric ahead_files_used_total)" -ge 1000 ]
	[ "$(metric memory_used_bytes)" -le 16777216 ]
	most=$(awk '$1 == "VmHWM:" { print int($2 / 1024) }' "/proc/$MOUNT_PID/status")
	echo "# $DIALECT: $most MiB" >&3
	[ "$most" -le 64 ]
}
