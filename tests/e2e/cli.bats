#!/usr/bin/env bats
# The command line of threadfs as far as it needs no mount: what is said to whom,
# and with which exit status. THREADFS is the program.

setup() {
	DIR=$(mktemp -d "${TMPDIR:-/tmp}/tfc.XXXXXX")
	mkdir "$DIR/m"
	export HOME=$DIR
	unset XDG_STATE_HOME XDG_CACHE_HOME THREADFS_API_KEY THREADFS_TOKEN
}

teardown() {
	rm -rf "$DIR"
}

# usage WORDS ARGUMENT…: exit status 2, and exactly this one line on standard error.
usage() {
	local words=$1
	shift
	run "$THREADFS" "$@"
	echo "$output"
	[ "$status" -eq 2 ]
	[ "$output" = "threadfs: $words" ]
}

fails() {
	local words=$1
	shift
	run "$THREADFS" "$@"
	echo "$output"
	[ "$status" -eq 1 ]
	[ "$output" = "threadfs: $words" ]
}

@test "version and help go to standard output, with status 0" {
	run "$THREADFS" --version
	[ "$status" -eq 0 ]
	[[ $output =~ ^threadfs\ [0-9]+\.[0-9]+\.[0-9]+\ \((unknown|[0-9a-f]{12}(-dirty)?)\)$ ]]
	run "$THREADFS" --help
	[ "$status" -eq 0 ]
	[ "${lines[0]}" = "usage: threadfs COMMAND [ARGUMENT...]" ]
	for command in mount unmount status exec; do
		run "$THREADFS" help "$command"
		[ "$status" -eq 0 ]
		[[ ${lines[0]} == "usage: threadfs $command "* ]]
		page=$output
		run "$THREADFS" "$command" --help
		[ "$status" -eq 0 ]
		[ "$output" = "$page" ]
	done
}

@test "help that cannot be written is an error" {
	run bash -c '"$THREADFS" --help >/dev/full'
	[ "$status" -eq 1 ]
}

@test "commands that do not exist" {
	usage "a command is missing (see threadfs help)"
	usage "unknown command 'moutn': did you mean 'mount'? (see threadfs help)" moutn
	usage "unknown command 'umount': did you mean 'unmount'? (see threadfs help)" umount
	usage "unknown command 'xyzzy' (see threadfs help)" xyzzy
	usage "unknown command 'foo' (see threadfs help)" help foo
}

@test "wrong arguments of mount" {
	cd "$DIR"
	usage "the mountpoint is missing (see threadfs help mount)" mount
	usage "the mountpoint is missing (see threadfs help mount)" mount embedded:
	usage "the mountpoint is missing (see threadfs help mount)" mount http://host
	usage "too many arguments, beginning with 'c' (see threadfs help mount)" mount a b c
	usage "unknown option '-x' (see threadfs help mount)" mount -x m
	usage "unknown option '--bogus' (see threadfs help mount)" mount m --bogus
	usage "option '-o' needs a value (see threadfs help mount)" mount m -o
	usage "unknown option 'ligner': did you mean 'linger'? (see threadfs help mount)" \
		mount m -o ro,ligner=3
	usage "option linger: 'soon': expected seconds, such as 30 or 0.5 (see threadfs help mount)" \
		mount m -o linger=soon
	usage "the mountpoint is missing (see threadfs help mount)" mount docker:some/image
	usage "source: the URL does not start with http:// or https:// (see threadfs help mount)" \
		mount provisioner:host:8002 m
	fails "the mountpoint 'none': No such file or directory" mount none
	usage "config file 'none' cannot be read: No such file or directory" mount m --config none
}

@test "secrets on the command line are refused, and not repeated" {
	for arguments in "m -o api_key=hush" "http://ann:hush@host m" "m -o ro,token=hush"; do
		# shellcheck disable=SC2086
		cd "$DIR" && run "$THREADFS" mount $arguments
		[ "$status" -eq 2 ]
		[[ $output == *"can be read by others: use api_key_file=FILE"* ]]
		[[ $output != *hush* ]]
	done
}

@test "a bad config file and a bad variable are named" {
	cd "$DIR"
	printf 'threadfs:\n  linger: soon\n' >c.yaml
	usage "c.yaml:2: linger: 'soon': expected seconds, such as 30 or 0.5" \
		mount m --config c.yaml
	THREADFS_UMASK=9 usage \
		"THREADFS_UMASK: '9': expected octal permissions from 0 to 777, such as 022" mount m
}

@test "wrong arguments of exec" {
	local behind="expected '--' and a command behind the path (see threadfs help exec)"

	usage "the path is missing (see threadfs help exec)" exec
	usage "the path is missing (see threadfs help exec)" exec -- ls
	usage "$behind" exec .
	usage "$behind" exec . --
	usage "$behind" exec . ls
	usage "option -e: 'A': expected NAME=VALUE (see threadfs help exec)" exec -e A . -- ls
	usage "option -e: '1=x': expected NAME=VALUE (see threadfs help exec)" exec . -e 1=x -- ls
	usage "unknown option '-z' (see threadfs help exec)" exec -z . -- ls
	usage "option '-d' needs a value (see threadfs help exec)" exec . -d
}

@test "unmount touches nothing but mounts of its own" {
	cd "$DIR"
	usage "the mountpoint is missing (see threadfs help unmount)" unmount
	usage "only one mountpoint at a time (see threadfs help unmount)" unmount a b
	fails "'m': nothing is mounted there" unmount m
	fails "'none': No such file or directory" unmount none
}

# In a namespace of its own, on a directory of its own: a program that got it wrong
# must not find anything of the machine's to unmount.
@test "unmount refuses a mount of another type and leaves it" {
	unshare -rm true || skip "no user namespaces"
	cd "$DIR"
	for lazy in "" -l; do
		# shellcheck disable=SC2016
		run unshare -rm --propagation slave bash -c 'mount -t tmpfs none m && touch m/x || exit 99
			"$THREADFS" unmount $1 m/; status=$?; [ -e m/x ] || exit 98; exit $status' _ "$lazy"
		echo "$output"
		[ "$status" -eq 1 ]
		[ "$output" = "threadfs: 'm/' is a mount of type tmpfs, not of threadfs" ]
	done
}

@test "status outside of a mount" {
	cd "$DIR"
	fails "'.' is not in a mount of threadfs" status .
	fails "'none': No such file or directory" status none --json
	usage "only one mountpoint at a time (see threadfs help status)" status a b
	usage "unknown option '--jsn' (see threadfs help status)" status --jsn
}

@test "mount.threadfs takes what mount(8) passes" {
	cd "$DIR"
	ln -s "$THREADFS" mount.threadfs
	# -f is mount(8)'s: all but the mounting
	run ./mount.threadfs embedded: m -sfnv -o rw,nosuid,noauto,_netdev,x-systemd.automount
	echo "$output"
	[ "$status" -eq 0 ]
	[ -z "$output" ]
	run ./mount.threadfs embedded: m -f -o rw,ligner=3
	[ "$status" -eq 2 ]
	run ./mount.threadfs m -f
	[ "$status" -eq 2 ]
	[ "$output" = "threadfs: the source is missing (see threadfs help mount)" ]
}
