# The directory of threads: which there are, making and removing them.

load ../lib/mount

setup() {
	mount_setup
}

teardown() {
	teardown_mount
}

@test "ids that are none" {
	mount_start
	for id in 'a b' a.b 'ü' 'a+b' 'a:b' $'a\nb' '~' '$(id)' ... "$(printf 'x%.0s' {1..65})"; do
		same "$id $(errno_of mkdir "$M/threads/$id")" "$id EINVAL"
		same "$id $(errno_of stat "$M/threads/$id")" "$id ENOENT"
		same "$id $(errno_of listdir "$M/threads/$id")" "$id ENOENT"
	done
	for id in - _ A-b_9 "$(printf 'x%.0s' {1..64})"; do
		mkdir "$M/threads/$id"
		echo x >"$M/threads/$id/uploads/f"
		rm "$M/threads/$id/uploads/f"
		rmdir "$M/threads/$id"
	done
	is EPERM open "$M/threads/file" 'O_WRONLY|O_CREAT'
	is EPERM symlink x "$M/threads/link"
}

@test "a lookup never creates" {
	mount_start
	is ENOENT stat "$M/threads/none"
	is ENOENT open "$M/threads/none/uploads/f" 'O_WRONLY|O_CREAT'
	is ENOENT open "$M/threads/none/.ctl/exec" O_WRONLY
	is ENOENT rmdir "$M/threads/none"
	same "$(echo "$M"/threads/n*)" "$M/threads/n*"
	ls "$M/threads/" "$M/threads"/none 2>/dev/null || true
	refute "$THREADFS" exec "$M/threads/none" -- true
	same "$(ls "$M/threads")" ''
	same "$(jq '.threads | length' "$M/.ctl/status.json")" 0
	same "$(find "$DATA" -path '*threads/*')" ''
	same "$(sandbox_processes_)" ''
}

@test "-o autocreate: a lookup does" {
	mount_start -o autocreate
	same "$(ls "$M/threads/new")" $'outputs\nuploads\nworkspace'
	echo x >"$M/threads/other/uploads/f"
	same "$(ls "$M/threads")" $'new\nother'
	is ENOENT stat "$M/threads/a.b"
}

@test "making one twice, and several beside each other" {
	mount_start
	thread one
	is EEXIST mkdir "$M/threads/one"
	mkdir -p "$M/threads/one/workspace/a/b"
	same "$(ls)" $'outputs\nuploads\nworkspace'
	echo 1 >uploads/f
	thread two
	same "$(ls uploads)" ''
	echo 2 >uploads/f
	same "$(cat "$M/threads/one/uploads/f")" 1
	same "$(sandbox 'cat uploads/f; ls /mnt/user-data/../user-data/workspace')" 2
	same "$(ls "$M/threads")" $'one\ntwo'
	is EPERM rename "$M/threads/one" "$M/threads/three"
	is EXDEV link "$M/threads/one/uploads/f" "$M/threads/two/uploads/g"
	is EXDEV rename "$M/threads/one/uploads/f" "$M/threads/two/uploads/g"
	mv "$M/threads/one/uploads/f" "$M/threads/two/uploads/g"
	same "$(cat uploads/g)" 1
	# at the same time
	for id in a b c d; do
		spawn mkdir "$M/threads/$id"
	done
	wait "${SPAWNED[@]}"
	same "$(ls "$M/threads" | paste -sd ' ')" 'a b c d one two'
}

@test "rmdir of one that holds something, and of one that does not" {
	mount_start
	thread
	cd /
	echo x >"$W/outputs/f"
	is ENOTEMPTY rmdir "$W"
	same "$(cat "$W/outputs/f")" x
	rm "$W/outputs/f"
	mkdir "$W/workspace/d"
	is ENOTEMPTY rmdir "$W"
	rmdir "$W/workspace/d"
	rmdir "$W"
	is ENOENT stat "$W"
	same "$(ls "$M/threads")" ''
	same "$(find "$DATA" -name demo)" ''
	same "$(sandbox_processes_)" ''
	is ENOENT rmdir "$W"
	# again, and nothing of the old one is there
	mkdir "$W"
	same "$(find "$W" -type f)" ''
	same "$(sandbox 'echo new')" new
}

@test "rm -r of a thread does what it says" {
	mount_start
	thread
	mkdir -p workspace/a/b/c
	echo x >workspace/a/b/file
	ln -s / workspace/a/link
	echo y >uploads/file
	thread other
	echo keep >uploads/f
	cd /
	rm -r "$M/threads/demo"
	same "$(ls "$M/threads")" other
	same "$(cat "$M/threads/other/uploads/f")" keep
	same "$(find "$DATA" -name demo)" ''
	is ENOENT stat "$M/threads/demo"
}

@test "after another mount the threads are there again" {
	mount_start
	thread
	mkdir -p workspace/d
	echo x >workspace/d/f
	chmod 0640 workspace/d/f
	touch -d '2001-02-03 04:05:06.789' workspace/d/f
	before=$(stat -c '%a %s %y' workspace/d/f)
	ln -s d/f workspace/l
	mount_stop
	same "$(ls "$M")" ''
	mount_start
	same "$(ls "$M/threads")" demo
	same "$(stat -c '%a %s %y' "$W/workspace/d/f")" "$before"
	same "$(cat "$W/workspace/l")" x
	same "$(sandbox 'cat workspace/l')" x
	is EEXIST mkdir "$W"
}

@test "a thread of which only the files are there is known" {
	mkdir -p "$T/data/users/default/threads/old/user-data/uploads"
	chmod 0700 "$T/data"
	echo x >"$T/data/users/default/threads/old/user-data/uploads/f"
	mount_start
	# before anybody has listed them
	same "$(jq -r '.threads[] | .thread + " " + .state' "$M/.ctl/status.json")" 'old cold'
	grep -q '^old .*cold' "$M/.ctl/status"
	same "$(ls "$M/threads")" old
	same "$(cat "$M/threads/old/uploads/f")" x
}

@test "another user's threads are not shown" {
	mount_start -o user=alice
	thread
	echo x >uploads/f
	mount_stop
	mount_start -o user=bob
	same "$(ls "$M/threads")" ''
	is ENOENT stat "$M/threads/demo"
	mount_stop
	mount_start -o user=alice
	same "$(cat "$M/threads/demo/uploads/f")" x
}

@test "the mount's own files" {
	mount_start
	grep -q threads "$M/README"
	[ "$(wc -l <"$M/README")" -le 40 ]
	is EACCES open "$M/README" O_WRONLY
	same "$(stat -c %F "$M" "$M/threads" "$M/README")" $'directory\ndirectory\nregular file'
	ls -la "$M" "$M/threads"
	df "$M"
	grep -q "^data=$DATA\$" "$M/.ctl/config"
	"$THREADFS" status "$M"
	"$THREADFS" status --json "$M" | jq -e . >/dev/null
}
