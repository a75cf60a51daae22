# Ordinary tools on a mount, with embedded sandboxes in the dialect DIALECT.

load ../lib/mount

setup() {
	mount_setup
}

teardown() {
	teardown_mount
}

# A small tree with what tools like to get wrong.
make_tree() {
	mkdir -p "$1/sub/deeper" "$1/empty"
	printf 'hello\n' >"$1/hello"
	: >"$1/nothing"
	head -c 300000 /dev/urandom >"$1/sub/binary"
	printf '#!/bin/sh\n' >"$1/sub/script"
	printf 'x\0y' >"$1/sub/deeper/nul"
	ln -s ../hello "$1/sub/link"
	ln -s nowhere "$1/dangling"
	ln "$1/hello" "$1/sub/deeper/hard"
	chmod 0755 "$1/sub/script"
	chmod 0600 "$1/nothing"
	chmod 0700 "$1/sub/deeper"
	find "$1" -depth -exec touch -h -d '2000-01-02 03:04:05.123456789' {} +
	touch -d '2001-02-03 04:05:06.789012345' "$1/hello"
	touch -d '2002-03-04 05:06:07.000000001' "$1/sub/binary"
	touch -h -d '2003-01-01 00:00:00.5' "$1/sub/link"
	touch -d '2004-05-06 07:08:09.111111111' "$1/sub" "$1/empty"
}

# What is known of every file in a tree, one line each, without the directory's own.
describe() (
	cd "$1" || exit
	find . -mindepth 1 ! -type d -printf '%P %y %m %s %n %T+ %l\n' | LC_ALL=C sort
	find . -mindepth 1 -type d -printf '%P %y %m %T+\n' | LC_ALL=C sort
)

same_trees() {
	diff -r --no-dereference "$1" "$2"
	diff <(describe "$1") <(describe "$2")
}

@test "the session of the manual works as it is written" {
	export THREADFS_DIALECT=$DIALECT THREADFS_LOG=$T/m.log
	# shellcheck disable=SC2034 # mount_ended looks there
	LOG=$T/m.log M=$HOME/agents DATA=$HOME/state/threadfs
	PATH=${THREADFS%/*}:$PATH
	mkdir ~/agents
	MOUNTS+=("$M")
	printf 'a,1\nb,2\n' >~/sales.csv
	cat >"$T/begin" <<-'END'
		threadfs mount ~/agents                                # embedded sandboxes, nothing else needed
		mkdir ~/agents/threads/demo && cd ~/agents/threads/demo
	END
	cat >"$T/session" <<-'END'
		cp ~/sales.csv uploads/                                # upload with cp
		echo 'python3 -c "print(open(\"uploads/sales.csv\").read().count(chr(10)))" > outputs/rows.txt' > .ctl/exec
		cat outputs/rows.txt                                   # inspect with the usual tools
		grep -r total outputs | sort | less
		threadfs exec . -- make report                         # stdout, stderr and exit code come back
		echo 1 > .ctl/release                                  # done: the sandbox goes back to the warm pool
	END
	bash -e "$T/begin" 3>&-
	cd ~/agents/threads/demo
	printf 'report:\n\t@echo made; echo warned >&2\n' >Makefile
	echo 'total 3' >outputs/sum.txt
	bash -e "$T/session" >"$T/stdout" 2>"$T/stderr" 3>&-
	same "$(cat "$T/stdout")" $'2\noutputs/sum.txt:total 3\nmade'
	same "$(cat "$T/stderr")" warned
	wait_until parked
	cd /
	threadfs unmount ~/agents
	mount_ended
	same "$(find "$DATA" -name rows.txt -exec cat {} +)" 2
}

parked() {
	jq -e '.state == "warm"' ~/agents/threads/demo/.ctl/status.json >/dev/null
}

@test "cp: in and out, with everything that cp -a keeps" {
	mount_start
	thread
	make_tree "$T/tree"
	cp -a "$T/tree" workspace/
	same_trees "$T/tree" workspace/tree
	[ workspace/tree/hello -ef workspace/tree/sub/deeper/hard ]
	cp -a workspace/tree "$T/back"
	same_trees "$T/tree" "$T/back"
	cp -a workspace/tree workspace/copy
	same_trees "$T/tree" workspace/copy
	cp -r "$T/tree/sub" outputs/
	diff -r --no-dereference "$T/tree/sub" outputs/sub
	sandbox 'cmp uploads/../workspace/tree/sub/binary workspace/copy/sub/binary'
	# over what is there
	cp "$T/tree/sub/binary" workspace/tree/hello
	cmp "$T/tree/sub/binary" workspace/tree/hello
	cp --remove-destination "$T/tree/hello" workspace/tree/hello
	touch -d 2000-01-01 workspace/tree/hello
	cp -u "$T/tree/sub/script" workspace/tree/hello
	cp -n "$T/tree/sub/binary" workspace/tree/hello || true
	same "$(cat workspace/tree/hello)" '#!/bin/sh'
	install -m 0640 "$T/tree/sub/script" outputs/installed
	same "$(stat -c %a outputs/installed)" 640
	cp --sparse=always --reflink=auto "$T/tree/sub/binary" outputs/b
	cmp "$T/tree/sub/binary" outputs/b
}

@test "mv: within, across directories, over what is there, in and out" {
	mount_start
	thread
	make_tree "$T/tree"
	cp -a "$T/tree" "$T/again"
	mv "$T/again" workspace/tree
	[ ! -e "$T/again" ]
	same_trees "$T/tree" workspace/tree
	mv workspace/tree workspace/moved
	mv workspace/moved outputs/
	same_trees "$T/tree" outputs/moved
	[ ! -e workspace/moved ]
	mv outputs/moved/hello outputs/moved/nothing
	same "$(cat outputs/moved/nothing)" hello
	mv outputs/moved/sub/deeper/nul uploads/
	mkdir workspace/a workspace/b
	mv -T workspace/a workspace/b
	mkdir workspace/full
	touch workspace/full/x
	refute mv -T workspace/b workspace/full
	mv -n uploads/nul outputs/moved/nothing || true
	same "$(cat outputs/moved/nothing)" hello
	mv outputs/moved "$T/out"
	[ ! -e outputs/moved ]
	cmp "$T/out/sub/binary" "$T/tree/sub/binary"
	same "$(sandbox 'find . -type f -size +0 | sort')" ./uploads/nul
	# another thread is another place
	mkdir "$M/threads/other"
	mv uploads/nul "$M/threads/other/uploads/"
	same "$(ls "$M/threads/other/uploads")" nul
	[ ! -e uploads/nul ]
}

@test "rsync: a second run has nothing to do" {
	mount_start
	thread
	make_tree "$T/tree"
	rsync -aH "$T/tree/" workspace/tree
	same_trees "$T/tree" workspace/tree
	same "$(rsync -aHi "$T/tree/" workspace/tree)" ''
	same "$(rsync -aHic "$T/tree/" workspace/tree)" ''
	rsync -a --inplace --no-whole-file "$T/tree/" outputs/tree
	same "$(rsync -ai --inplace "$T/tree/" outputs/tree)" ''
	# a change in the middle, in place and by a new file; and what is gone
	printf changed | dd of="$T/tree/sub/binary" bs=1 seek=150000 conv=notrunc status=none
	rm "$T/tree/sub/script"
	# rsync compares whole seconds
	touch -d '2003-04-05 06:07:08.123456789' "$T/tree/sub"
	rsync -a --inplace --no-whole-file "$T/tree/" outputs/tree
	rsync -aH --no-whole-file --delete "$T/tree/" workspace/tree
	cmp "$T/tree/sub/binary" outputs/tree/sub/binary
	same_trees "$T/tree" workspace/tree
	rsync -aH workspace/tree/ "$T/back"
	same_trees "$T/tree" "$T/back"
	same "$(rsync -aHi --delete workspace/tree/ "$T/back")" ''
}

@test "tar: in and out" {
	mount_start
	thread
	make_tree "$T/tree"
	tar -C "$T" --format=posix -cf "$T/tree.tar" tree
	tar -C workspace -xpf "$T/tree.tar"
	same_trees "$T/tree" workspace/tree
	tar -C "$T" -czf outputs/tree.tgz tree
	tar -tzf outputs/tree.tgz >"$T/list"
	same "$(sort "$T/list")" "$(tar -tf "$T/tree.tar" | sort)"
	tar --format=posix -cf - workspace/tree | (mkdir "$T/back" && tar -C "$T/back" -xpf -)
	same_trees "$T/tree" "$T/back/workspace/tree"
	tar -df "$T/tree.tar" -C workspace
	sandbox 'mkdir -p /tmp/x && tar -C /tmp/x -xzf outputs/tree.tgz && cmp /tmp/x/tree/sub/binary workspace/tree/sub/binary'
}

@test "git: init, add, commit, status, clone, log, gc" {
	export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
	export GIT_CONFIG_NOSYSTEM=1
	mount_start
	thread
	cd workspace
	git init -q -b main repo
	cd repo
	make_tree tree
	rmdir tree/empty # git knows no empty directories
	git add .
	git commit -q -m first
	same "$(git status --porcelain)" ''
	printf 'more\n' >>tree/nothing
	same "$(git status --porcelain)" ' M tree/nothing'
	same "$(git diff --stat | tail -n 1)" ' 1 file changed, 1 insertion(+)'
	git commit -q -a -m second
	git checkout -q -b side HEAD~
	same "$(cat tree/nothing)" ''
	git checkout -q main
	git merge -q side
	git rm -q -r tree/sub
	git stash -q
	git stash pop -q
	git reset -q --hard
	git gc -q
	git fsck --strict --no-progress
	same "$(git log --format=%s)" $'second\nfirst'
	git clone -q . ../clone
	diff -r --no-dereference tree ../clone/tree
	git clone -q "$W/workspace/repo" "$T/out"
	diff -r --no-dereference tree "$T/out/tree"
	same "$(git -C ../clone status --porcelain)" ''
}

@test "editors: sed -i, vim with its ways to write, ed-like tools" {
	mount_start
	thread
	cd workspace
	printf 'one\ntwo\n' >f
	chmod 0640 f
	sed -i 's/one/ONE/' f
	same "$(cat f)" $'ONE\ntwo'
	same "$(stat -c %a f)" 640
	sed -i.bak '$d' f
	same "$(cat f f.bak)" $'ONE\nONE\ntwo'
	perl -pi -e 's/ONE/1/' f
	for settings in 'nobackup nowritebackup' 'nobackup writebackup backupcopy=auto' \
		'backup backupcopy=yes' 'backup backupcopy=no' 'nobackup writebackup backupcopy=no fsync'; do
		printf 'old\n' >g
		chmod 0750 g
		vim -es -u NONE -i NONE -c "set $settings" -c '%s/old/new/' -c 'normal Gotail' -c 'wq!' g
		same "$settings: $(cat g)" "$settings: new"$'\ntail'
		same "$settings: $(stat -c %a g)" "$settings: 750"
		same "$(sandbox 'cat workspace/g')" $'new\ntail'
		rm -f g g~
	done
	# as one types it, on a terminal, with a swap file
	printf 'ityped\e:wq\r' | TERM=vt100 script -qec 'vim -u NONE -i NONE h' /dev/null >/dev/null 3>&-
	same "$(cat h)" typed
	printf 'x\n' | tee -a h >/dev/null
	sort -o h h
	truncate -s +3 h
	same "$(od -An -c h | tr -d ' ')" 'typed\nx\n\0\0\0'
	same "$(ls -A)" $'f\nf.bak\nh'
}

@test "sqlite3: creating, querying, updating, journals" {
	mount_start
	thread
	cd workspace
	sqlite3 t.db 'create table t(a integer primary key, b text); insert into t(b) values ("x"), ("y")'
	same "$(sqlite3 t.db 'select group_concat(b) from t')" x,y
	sqlite3 t.db 'begin; update t set b = "z" where a = 1; delete from t where a = 2; commit; vacuum'
	same "$(sqlite3 t.db 'select * from t')" '1|z'
	for mode in delete truncate persist memory; do
		sqlite3 t.db "pragma journal_mode=$mode; with recursive c(x) as (values(1) union all
			select x+1 from c where x<300) insert into t(b) select '$mode' || x from c" >/dev/null
	done
	sqlite3 t.db 'begin; delete from t; rollback'
	same "$(sqlite3 t.db 'select count(*) from t; pragma integrity_check')" $'1201\nok'
	# two at a time: one waits for the other
	for i in 1 2; do
		spawn sqlite3 -cmd '.timeout 20000' t.db "insert into t(b) values ('p$i'); insert into t(b) values ('q$i')"
	done
	wait "${SPAWNED[@]}"
	same "$(sqlite3 t.db 'select count(*) from t where b in ("p1","q1","p2","q2")')" 4
	cp t.db "$T/t.db"
	same "$(sqlite3 "$T/t.db" 'pragma integrity_check')" ok
	cmp t.db "$T/t.db"
}

@test "tail -f: what a command in the sandbox appends arrives" {
	mount_start
	thread
	echo first >outputs/log
	spawn tail -n +1 -f outputs/log >"$T/seen"
	wait_until grep -q first "$T/seen"
	sandbox 'echo second >> outputs/log'
	wait_until grep -q second "$T/seen"
	sandbox 'for i in 3 4 5; do echo line $i >> outputs/log; done'
	wait_until grep -q 'line 5' "$T/seen"
	echo last >>outputs/log
	wait_until grep -q last "$T/seen"
	same "$(cat "$T/seen")" "$(sandbox 'cat outputs/log')"
}

@test "what a command makes, changes and removes is seen" {
	mount_start
	thread
	sandbox 'mkdir -p outputs/a/b; echo 1 > outputs/a/b/f; echo 1 > outputs/g; chmod 600 outputs/g'
	same "$(cat outputs/a/b/f)" 1
	same "$(stat -c '%a %s' outputs/g)" '600 2'
	sandbox 'echo longer > outputs/a/b/f; chmod 640 outputs/g; mv outputs/a outputs/z'
	wait_until test -e outputs/z/b/f
	same "$(cat outputs/z/b/f)" longer
	wait_until [ ! -e outputs/a ]
	wait_until mode_is outputs/g 640
	sandbox 'rm -r outputs/z outputs/g'
	wait_until gone outputs/z outputs/g
	same "$(ls outputs)" ''
	# the same name, twice, of the same size
	sandbox 'echo aaa > outputs/f'
	same "$(cat outputs/f)" aaa
	sandbox 'echo bbb > outputs/f.new; mv outputs/f.new outputs/f'
	wait_until contains outputs/f bbb
}

gone() {
	local name

	for name in "$@"; do
		[ ! -e "$name" ] || return 1
	done
}

mode_is() {
	[ "$(stat -c %a "$1")" = "$2" ]
}

contains() {
	[ "$(cat "$1")" = "$2" ]
}

@test "dd: seek, skip, conv=notrunc, append, holes" {
	mount_start
	thread
	head -c 1000000 /dev/urandom >"$T/in"
	cp "$T/in" "$T/f"
	cp "$T/in" workspace/f
	for f in "$T/f" workspace/f; do
		dd if="$T/in" of="$f" bs=1000 skip=17 seek=333 count=50 conv=notrunc status=none
		dd if="$T/in" of="$f" bs=7 skip=5 seek=9 count=11 conv=notrunc,fsync status=none
		dd if="$T/in" of="$f" bs=64K oflag=append conv=notrunc count=2 status=none
		dd if="$T/in" of="$f" bs=1 seek=1200000 count=3 conv=notrunc status=none
	done
	cmp "$T/f" workspace/f
	same "$(sandbox 'md5sum < workspace/f')" "$(md5sum <"$T/f")"
	for f in "$T/f" workspace/f; do # without notrunc it ends at seek first
		dd if="$T/in" of="$f" bs=1000 seek=100 count=1 status=none
	done
	cmp "$T/f" workspace/f
	dd if=workspace/f of="$T/part" bs=1000 skip=99 count=2 status=none
	cmp "$T/part" <(tail -c 2000 "$T/f")
	same "$(dd if=workspace/f bs=1M count=1 iflag=direct status=none | md5sum)" "$(md5sum <"$T/f")"
	tail -c 10 workspace/f | cmp - <(tail -c 10 "$T/f")
	split -b 40000 workspace/f outputs/part.
	cat outputs/part.* | cmp - "$T/f"
}

@test "1 GiB in and out" {
	local mib=1024

	mount_start -o timeout=120
	thread
	head -c 64M /dev/urandom >"$T/piece"
	for i in {1..16}; do
		echo "$i"
		cat "$T/piece"
	done | head -c "${mib}M" >"$T/big"
	sum=$(cksum <"$T/big")
	cp "$T/big" uploads/
	same "$(stat -c %s uploads/big)" $((mib * 1048576))
	same "$(sandbox 'cksum < uploads/big')" "$sum"
	same "$(cksum <uploads/big)" "$sum"
	# all at once from the middle, and its end, without reading what is between
	tail -c 1M uploads/big | cmp - <(tail -c 1M "$T/big")
	dd if=uploads/big bs=1M skip=$((mib / 2)) count=3 status=none |
		cmp - <(dd if="$T/big" bs=1M skip=$((mib / 2)) count=3 status=none)
	rm uploads/big
}

@test "10,000 files in one directory" {
	mount_start -o timeout=120
	thread
	sandbox 'mkdir workspace/many && (cd workspace/many && seq -f "file number %05g" 10000 | tr "\n" "\0" | xargs -0 touch)'
	same "$(ls workspace/many | wc -l)" 10000
	same "$(find workspace/many -type f | wc -l)" 10000
	same "$(ls -l workspace/many | wc -l)" 10001
	same "$(find workspace/many -mindepth 1 -printf '%f\n' | sort | tail -n 1)" 'file number 10000'
	# by the mount, from an archive
	mkdir "$T/some" && (cd "$T/some" && for i in {1..300}; do echo "$i" >"f$i"; done)
	tar -C "$T" -cf - some | tar -C workspace -xf -
	diff -r "$T/some" workspace/some
	rm workspace/many/*0
	same "$(sandbox 'ls workspace/many | wc -l')" 9000
	rm -r workspace/some
	sandbox 'rm -r workspace/many'
	wait_until gone workspace/many
	same "$(ls workspace)" ''
}
