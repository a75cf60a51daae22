#!/usr/bin/env bats
# What desktops, indexers, shells and git do to any directory that they come by starts no
# sandbox, and asks nobody.

load ../lib/deerflow

setup() {
	mount_setup
}

teardown() {
	teardown_deerflow
}

# asked: how many HTTP requests there were, to whomever.
asked() {
	awk '/^threadfs_sandbox_request_duration_seconds_count/ { n += $2 } END { print n + 0 }' \
		"$M/.ctl/metrics"
}

# look_for DIR NAME…: each is not there.
look_for() {
	local dir=$1 name
	shift
	for name in "$@"; do
		is ENOENT stat "$dir/$name"
	done
}

odd_names=(.Trash .Trash-1000 .hidden .directory autorun.inf .autorun desktop.ini Thumbs.db
	.git .hg .svn .bzr .DS_Store .xdg-volume-info .metadata_never_index .nomedia .trackerignore
	.localized .envrc .editorconfig package.json tags~ .demo.swp 4913.txt '._demo')
known_names=(HEAD objects refs config tags TAGS CVS RCS Makefile makefile GNUmakefile node_modules)

no_sandbox() {
	[ "$(jq '[.threads[] | select(.state != "cold")] | length' "$M/.ctl/status.json")" = 0 ]
	[ -z "$(sandbox_processes_)" ]
}

@test "odd names in the mount and among the threads cost nothing: a provisioner is not asked" {
	local before
	provisioner_start
	printf '%s\n' "$KEY" >"$T/key"
	chmod 600 "$T/key"
	mount_start "provisioner:$PROVISIONER_URL" -o "provisioner_key_file=$T/key"
	stat "$M/threads" >/dev/null
	before=$(asked)
	look_for "$M" "${odd_names[@]}" "${known_names[@]}"
	look_for "$M/threads" "${odd_names[@]}" "${known_names[@]}"
	[ "$(asked)" = "$before" ]
	# the one who might be there is asked for
	look_for "$M/threads" somebody
	[ "$(asked)" -gt "$before" ]
	[ -z "$(pods)" ]
}

@test "neither with autocreate is a sandbox started by them" {
	mount_start -o autocreate
	look_for "$M/threads" "${odd_names[@]}" "${known_names[@]}"
	no_sandbox
	# but by a name that somebody means
	stat "$M/threads/meant" >/dev/null
	refute no_sandbox
}

@test "a thread of such a name is there when it is here" {
	mount_start
	thread tags
	echo x >outputs/a
	[ "$(cat "$M/threads/tags/outputs/a")" = x ]
	rm -r "$M/threads/tags/outputs/a"
	cd /
	mount_stop
	mount_start
	[ "$(ls "$M/threads")" = tags ]
	stat "$M/threads/tags" >/dev/null
}

@test "listing, du of the top, find, git going up, ls -l, a shell's completion start nothing" {
	mkdir -p "$T/data/users/default/threads/"{one,two}/user-data/{workspace,uploads,outputs}
	mount_start
	ls "$M" "$M/threads" >/dev/null
	ls -la "$M/threads" >/dev/null
	find "$M" -maxdepth 2 >/dev/null
	df "$M" >/dev/null
	(cd "$M/threads" && refute git status 2>/dev/null)
	(cd "$M" && refute git rev-parse --show-toplevel 2>/dev/null)
	bash -c "compgen -f $M/threads/" >/dev/null
	no_sandbox
	[ "$(asked)" = 0 ]
}
