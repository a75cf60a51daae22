# Names and attributes: what is asked of the sandbox for them, and what is not.

load ../lib/mount

setup() {
	setup_mount
	thread
}

teardown() {
	teardown_mount
}

# count NAME: one of the mount's counters. Asking costs some requests itself: those of
# two calls in a row are the same.
count() {
	awk -v name="threadfs_$1_total" '$1 == name { print $2 }' "$M/.ctl/metrics"
}

# costs COUNTER CMD…: sets COST to how much more of it there is after the command, less
# what counting costs.
costs() {
	local name=$1 a b c

	shift
	a=$(count "$name")
	b=$(count "$name")
	"$@"
	c=$(count "$name")
	COST=$((c - b - (b - a)))
}

# make_tree DIRS FILES, in the sandbox, behind our back.
make_tree() {
	local make="mkdir d\$d; (cd d\$d; seq -f f%.0f $2 | xargs touch)"

	sandbox "mkdir workspace/tree; cd workspace/tree; for d in \$(seq $1); do $make; done; cd ../.."
}

quiet() {
	"$@" >/dev/null
}

@test "a cold walk takes a handful of requests, a warm one none" {
	wait_until watch_settled
	make_tree 30 20
	no_watch && skip "no watch: nothing lasts"
	settled
	for tool in "find ." "ls -lR" "du -a"; do
		cd "$W/workspace/tree"
		# shellcheck disable=SC2086
		costs remote_operations quiet $tool
		echo "$tool, first: $COST"
		[ "$COST" -le 8 ]
		# shellcheck disable=SC2086
		quiet $tool
		# shellcheck disable=SC2086
		costs remote_operations quiet $tool
		echo "$tool, again: $COST"
		[ "$COST" -le 1 ] # the thread's own directory is looked at once in a while
	done
	same "$(find . | wc -l)" 631
	same "$(find . -type f -size 0 | wc -l)" 600
}

@test "what is near the root is known before anybody asks" {
	wait_until watch_settled
	sandbox 'mkdir -p workspace/a/b; touch workspace/a/b/c workspace/a/f; ln -s f workspace/a/l'
	no_watch && skip "no watch: nothing lasts"
	settled
	# Another mount's eyes: nothing of it was looked at here.
	mount_stop
	mount_start
	quiet ls "$W/uploads"
	wait_until watched
	asked() { [ "$(count prefetches)" -ge 1 ]; }
	wait_until asked
	quiet ls "$W/workspace" # shares it, if it is still under way
	look() {
		quiet ls -l "$W/workspace"
		quiet stat "$W/workspace/a" "$W/workspace/a/f" "$W/workspace/a/b"
		same "$(readlink "$W/workspace/a/l")" f
		[ ! -e "$W/workspace/a/none" ]
	}
	costs listings look
	same "$COST" 0
	# and changes are seen as ever
	sandbox 'mv workspace/a/f workspace/a/g; rm -r workspace/a/b; mkdir workspace/a/new'
	gone() { [ ! -e "$W/workspace/a/f" ] && [ ! -e "$W/workspace/a/b" ]; }
	wait_until gone
	same "$(ls "$W/workspace/a" | tr '\n' ' ')" "g l new "
}

@test "a directory brings what is in the few that it has" {
	wait_until watch_settled
	sandbox 'cd workspace; mkdir -p p/q/{x,y}/z; touch p/q/{x,y}/{1,2,3} p/q/x/z/4; mkdir p/q/empty'
	no_watch && skip "no watch: nothing lasts"
	settled
	quiet ls "$W/workspace/p"
	look() {
		same "$(ls "$W/workspace/p/q" | tr '\n' ' ')" "empty x y "
		same "$(ls "$W/workspace/p/q/x" | tr '\n' ' ')" "1 2 3 z "
		same "$(ls "$W/workspace/p/q/y" | tr '\n' ' ')" "1 2 3 z "
		same "$(ls "$W/workspace/p/q/empty")" ""
	}
	costs listings look
	echo "listings: $COST"
	[ "$COST" -le 1 ]
	same "$(cat "$W/workspace/p/q/x/z/4" && ls "$W/workspace/p/q/y/z")" ""
}

@test "names and attributes that are known do not reach the daemon" {
	wait_until watch_settled
	make_tree 1 300
	no_watch && skip "no watch: nothing lasts"
	settled
	cd "$W/workspace/tree/d1"
	quiet stat f*
	quiet stat f* || true
	stat none 2>/dev/null || true
	look() {
		quiet stat f* f1 f2
		[ ! -e none ]
		[ ! -e none ]
	}
	costs requests look
	echo "requests: $COST"
	[ "$COST" -le 20 ] # of more than 600: a second may end, and the glob reads the directory
	# and it is seen when that changes
	sandbox 'echo 12345 > workspace/tree/d1/f1; touch workspace/tree/d1/none; rm workspace/tree/d1/f2'
	same "$(stat -c %s f1)" 6
	[ -e none ]
	[ ! -e f2 ]
}

@test "one change leaves what is known of the other names" {
	wait_until watch_settled
	make_tree 1 100
	no_watch && skip "no watch: nothing lasts"
	settled
	cd "$W/workspace/tree/d1"
	quiet ls -l
	change() {
		mkdir new && rmdir new && mv f1 g1 && rm f2 && ln -s f3 link
		quiet stat f5 f6 f7
		[ ! -e absent ]
		[ ! -e f2 ]
	}
	costs remote_operations change
	echo "operations: $COST"
	[ "$COST" -le 12 ] # five changes, and looks at what they changed
	same "$(find . -mindepth 1 | wc -l)" 100
	same "$(sandbox 'ls workspace/tree/d1 | wc -l')" 100
	mkdir made
	look() {
		[ ! -e made/x ] && [ ! -e made/y ] && [ ! -e made/z ]
	}
	costs remote_operations look
	[ "$COST" -le 1 ] # it is empty; the sandbox's word that it was made may void its times
}

@test "a directory of many names" {
	local n=20000

	sandbox "mkdir workspace/big && cd workspace/big && seq -f 'name-%05.0f' $n | xargs touch"
	cd "$W/workspace/big"
	same "$(find . -type f | wc -l)" $n
	same "$(find . -type f | sort | cksum)" "$(seq -f './name-%05.0f' $n | cksum)"
	[ -e name-12345 ]
	[ ! -e name-20001 ]
	rm name-12345
	same "$(find . -type f | wc -l)" $((n - 1))
}

@test "reading a directory that changes" {
	mkdir workspace/d
	(cd workspace/d && touch $(seq 500))
	"$PYTHON" - "$W/workspace/d" <<'PY'
import os, sys
d = sys.argv[1]
seen = []
with os.scandir(d) as it:
    for e in it:
        seen.append(e.name)
        os.unlink(f"{d}/{e.name}")
        if len(seen) % 50 == 0:
            open(f"{d}/new-{len(seen)}", "w").close()
assert len(seen) == len(set(seen))
old = {s for s in seen if not s.startswith("new")}
assert old == {str(i) for i in range(1, 501)}, len(old)
left = os.listdir(d)
assert all(n.startswith("new") for n in left), left
PY
}
