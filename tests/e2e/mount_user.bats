#!/usr/bin/env bats
# All of it as an ordinary user, with the system's fusermount3.

load ../lib/mount

USER_ID=65534

setup_file() {
	fuse_open_to_all
}

teardown_file() {
	fuse_restore
}

setup() {
	[ "$(id -u)" = 0 ] || skip "needs root to be somebody else"
	mount_setup
	programs_for_all
	mkdir "$T/m"
	chown -R "$USER_ID:$USER_ID" "$T"
}

teardown() {
	[ -n "${T:-}" ] || return 0
	if [ -n "${M:-}" ] && is_mounted "$M"; then
		as "$USER_ID" "$THREADFS" unmount "$M" || true
	fi
	teardown_mount
}

# as UID CMD…: with a runtime directory of his own, lest the program makes one in /tmp.
as() {
	local uid=$1 run=$T/run

	shift
	if [ "$uid" != "$USER_ID" ]; then
		run+=.$uid
		[ -d "$run" ] || install -d -m 0700 -o "$uid" "$run"
	fi
	XDG_RUNTIME_DIR=$run setpriv --reuid="$uid" --regid="$uid" --clear-groups "$@"
}

as_user() {
	as "$USER_ID" "$@"
}

mount_as_user() {
	mount_prepare_
	as_user "$THREADFS" mount "${MOUNT_ARGS[@]}" 3>&-
	is_mounted "$M"
}

# user BODY: a function, run by a shell of that user in the thread's directory.
user() {
	as_user env THREADFS="$THREADFS" M="$M" T="$T" SLOW="$SLOW" bash -euc "
		$(declare -f "$1" another_server make_repository wait_for wait_until pid_gone server_of kill_sandbox)
		cd \"\$M\"
		set -x
		$1" 3>&-
}

files_body() {
	[ "$(id -u)" = 65534 ]
	mkdir threads/demo
	cd threads/demo || return
	[ "$(ls | tr '\n' ' ')" = 'outputs uploads workspace ' ]
	[ "$(stat -c %u:%g . outputs)" = $'65534:65534\n65534:65534' ]
	head -c 3000000 /dev/urandom >"$T/home/big"
	cp "$T/home/big" uploads/
	cmp "$T/home/big" uploads/big
	[ "$(stat -c %u uploads/big)" = 65534 ]
	echo 'wc -c <uploads/big >outputs/size' >.ctl/exec
	[ "$(cat outputs/size)" = 3000000 ]
	[ "$("$THREADFS" exec . -- id -un)" = gem ]
	mkdir -p outputs/d/e
	echo x >outputs/d/e/f
	mv outputs/d outputs/g
	chmod 640 outputs/g/e/f
	[ "$(stat -c %a outputs/g/e/f)" = 640 ]
	ln -s g outputs/link
	[ "$(readlink outputs/link)" = g ]
	tar -cf - outputs | tar -tf - >/dev/null
	grep -rq x outputs/g
	rm -r outputs/g
	[ "$(jq -r .state .ctl/status.json)" = active ]
	echo 1 >.ctl/release
	cat outputs/size >/dev/null
	echo 1 >.ctl/destroy
	[ "$(cat outputs/size)" = 3000000 ]
	"$THREADFS" status "$M" >/dev/null
	cd ../..
	rm -r threads/demo
	[ "$(ls threads)" = '' ]
}

@test "files, commands and leases as an ordinary user" {
	mount_as_user
	user files_body
	as_user "$THREADFS" unmount "$M"
	mount_ended
}

make_repository() {
	git init -q -b main repo
	cp "$T/home/text" repo/
	git -C repo add text
	git -C repo commit -q -m first
	git -C repo fsck --strict --no-progress
	git clone -q repo clone
	cmp clone/text "$T/home/text"
	[ "$(git -C clone status --porcelain)" = '' ]
}

tools_body() {
	export GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
	mkdir threads/demo
	cd threads/demo/workspace || return
	printf 'one\ntwo\n' >"$T/home/text"
	make_repository
	# trees, there and back
	cp -a clone copy
	diff -r clone copy
	mkdir ../outputs/tree
	tar -cf - clone | tar -C ../outputs/tree -xpf -
	diff -r clone ../outputs/tree/clone
	rsync -a clone/ "$T/home/back"
	[ "$(rsync -ai clone/ "$T/home/back")" = '' ]
	# editors
	cp clone/text f
	chmod 640 f
	sed -i 's/one/ONE/' f
	vim -es -u NONE -i NONE -c '%s/two/TWO/' -c 'wq!' f
	[ "$(cat f)" = $'ONE\nTWO' ]
	[ "$(stat -c '%a %u' f)" = '640 65534' ]
	sqlite3 t.db 'create table t(a); insert into t values (1), (2)'
	sqlite3 t.db 'begin; update t set a = 3 where a = 2; commit; vacuum'
	[ "$(sqlite3 t.db 'select sum(a) from t; pragma integrity_check')" = $'4\nok' ]
	# commands, and what they append
	[ "$(printf 'to stdin' | "$THREADFS" exec . -- cat)" = 'to stdin' ]
	code=0
	"$THREADFS" exec . -- sh -c 'echo told >&2; exit 7' 2>"$T/home/told" || code=$?
	[ "$code $(cat "$T/home/told")" = '7 told' ]
	echo first >log
	tail -n +1 -f log >"$T/home/seen" &
	tail=$!
	"$THREADFS" exec . -- sh -c 'echo second >>log'
	wait_until grep -q second "$T/home/seen" || code=failed
	kill "$tail"
	[ "$code" = 7 ]
	# a large one
	head -c 256M /dev/urandom >"$T/home/large"
	cp "$T/home/large" ../uploads/
	cmp "$T/home/large" ../uploads/large
	[ "$("$THREADFS" exec .. -- sh -c 'cksum <uploads/large')" = "$(cksum <"$T/home/large")" ]
	rm "$T/home/large" ../uploads/large
}

@test "git, cp, rsync, editors, sqlite3, commands, tail -f, a large file as an ordinary user" {
	mount_as_user
	user tools_body
	as_user "$THREADFS" unmount "$M"
	mount_ended
}

@test "nobody else can look into the mount" {
	mount_as_user
	user secret_body
	refute as 65533 ls "$M"
	refute as 65533 cat "$M/threads/demo/outputs/secret"
	refute as 65533 cat "$M/README"
	# not even root
	refute ls "$M"
	# nor past it: the sandbox's socket, its data, what is on its way
	refute as 65533 ls "$T/run"
	refute as 65533 ls "$T/data/users/default/threads/demo"
	refute as 65533 ls "$T/cache"
	refute as 65533 cat "$T/m.log"
	as_user "$THREADFS" unmount "$M"
	mount_ended
}

secret_body() {
	mkdir threads/demo
	echo secret >threads/demo/outputs/secret
	[ "$(cat threads/demo/outputs/secret)" = secret ]
}

# The server of another sandbox than that of $pid, which may still be told of: a supervisor
# and bubblewrap are in front of it.
another_server() {
	local next

	next=$(jq .pid threads/demo/.ctl/status.json)
	[[ $next != null && $next != "$pid" ]] || return 1
	next=$(pgrep -P "$next") && server=$(pgrep -P "$next") && [[ $server != *$'\n'* ]]
}

dead_body() {
	mkdir threads/demo
	echo content >threads/demo/outputs/f
	pid=$(jq .pid threads/demo/.ctl/status.json)
	kill_sandbox "$pid"
	[ "$(cat threads/demo/outputs/f)" = content ]
	mkdir threads/demo/uploads/after # what was read may have come from the cache
	wait_until another_server
	kill -STOP "$server"
	refused=0
	# something that nobody can know without asking
	timeout -k 10 -s INT 0.5 mkdir threads/demo/uploads/new || refused=$?
	[ "$refused" = 124 ]
	kill -CONT "$server"
	ls threads/demo/uploads
}

@test "dead and hanging sandboxes as an ordinary user" {
	mount_as_user
	user dead_body
	expect_errors
	as_user "$THREADFS" unmount "$M"
	mount_ended
}

@test "what an ordinary user may not" {
	local status output

	mkdir "$T/theirs"
	chown 0:0 "$T/theirs"
	chmod 0755 "$T/theirs"
	run as_user "$THREADFS" mount -o "data=$T/data,cache=$T/cache" "$T/theirs"
	[ "$status" = 1 ]
	[ "${#lines[@]}" = 1 ]
	[[ $output == *"$T/theirs"*"fusermount3: user has no write access to mountpoint"* ]]
	not_mounted "$T/theirs"
	if ! grep -qs '^user_allow_other' /etc/fuse.conf; then
		run as_user "$THREADFS" mount -o "data=$T/data,cache=$T/cache,allow_other" "$T/m"
		[ "$status" = 1 ]
		[ "${#lines[@]}" = 1 ]
		[[ $output == *allow_other* ]]
		not_mounted "$T/m"
	fi
	# one whom the system has no name for: fusermount3 says it
	mkdir "$T/nameless"
	chown 54321:54321 "$T/nameless"
	refute getent passwd 54321
	run as 54321 env HOME="$T/nameless" "$THREADFS" mount \
		-o "data=$T/nameless/data,cache=$T/nameless/cache" "$T/nameless"
	[ "$status" = 1 ]
	[ "${#lines[@]}" = 1 ]
	[[ $output == "threadfs: cannot mount at $T/nameless: fusermount3: could not determine username" ]]
	not_mounted "$T/nameless"
	# somebody else's mount
	mount_as_user
	run as 65533 "$THREADFS" unmount "$M"
	[ "$status" != 0 ]
	is_mounted "$M"
	as_user "$THREADFS" unmount "$M"
	mount_ended
}

user_daemon() {
	pgrep -u "$USER_ID" -f -- "mount .*$M\$"
}

@test "the mountpoint of a killed daemon of an ordinary user is free, or freed by him" {
	local pid how

	mount_as_user
	pid=$(user_daemon)
	kill -KILL "$pid"
	wait_until pid_gone "$pid"
	wait_until not_mounted "$M"
	for how in unmount mount; do
		as_user "$THREADFS" mount "${MOUNT_ARGS[@]}" 3>&-
		pid=$(user_daemon)
		kill -KILL "$(pgrep -u "$USER_ID" -f -- "^threadfs-guardian $M\$")" "$pid"
		wait_until pid_gone "$pid"
		is_mounted "$M"
		[ "$how" != unmount ] || as_user "$THREADFS" unmount "$M"
	done
	as_user "$THREADFS" mount "${MOUNT_ARGS[@]}" 3>&-
	is_mounted "$M"
	as_user "$THREADFS" unmount "$M"
	mount_ended
}

@test "likewise when a directory above the mountpoint was renamed" {
	local pid signal

	mkdir -p "$T/p/a/m"
	chown -R "$USER_ID:$USER_ID" "$T/p"
	for signal in TERM KILL; do
		MOUNT_NAME=p/a/m mount_as_user
		pid=$(user_daemon)
		MOUNTS+=("$T/p/b/m")
		mv "$T/p/a" "$T/p/b"
		kill "-$signal" "$pid"
		wait_until pid_gone "$pid"
		wait_until not_mounted "$T/p/b/m"
		mv "$T/p/b" "$T/p/a"
		wait_until no_process_ "$M"
	done
}
