#!/usr/bin/env bats
# What the program says of itself (help --complete), its help pages, the manual, what it
# accepts and what the shells complete are one and the same. A new command needs a help page
# (fs/help.c) and a manual page (docs/threadfs-NAME.1.scd in docs/meson.build); what is
# missing is said here.

load ../lib/mount

DOCS=$SANDBOXD_ROOT/docs

setup() {
	mount_setup
	mkdir "$T/bin"
	ln -s "$THREADFS" "$T/bin/threadfs"
	PATH=$T/bin:$PATH
	threadfs help --complete >"$T/table"
}

teardown() {
	teardown_mount
}

# rows KIND [COMMAND]: the rest of the rows of that kind.
rows() {
	awk -F'\t' -v kind="$1" -v command="${2-}" -v any="${2+no}" \
		'$1 == kind && (any != "no" || $2 == command) { sub(/^[^\t]*\t/, ""); if (any == "no") sub(/^[^\t]*\t/, ""); print }' \
		"$T/table"
}

commands() {
	rows command | cut -f1
}

# terms PAGE: the terms that a manual page explains, one a line: those that begin a line and
# have an indented explanation below.
terms() {
	awk '/^\t/ && before ~ /^\*/ { print before } { before = $0 }' "$1"
}

same() {
	diff <(sort -u <<<"$1") <(sort -u <<<"$2")
}

@test "every command has a help page, a manual page and its place in threadfs(1)" {
	[ "$(commands | wc -l)" -ge 5 ]
	for command in $(commands); do
		echo "command: $command"
		run threadfs help "$command"
		[ "$status" -eq 0 ]
		page=$output
		run threadfs "$command" --help
		[ "$status" -eq 0 ]
		[ "$output" = "$page" ]
		[ -f "$DOCS/threadfs-$command.1.scd" ]
		grep -qF "'threadfs-$command.1'" "$DOCS/meson.build"
		grep -q "^\*$command\*" "$DOCS/threadfs.1.scd"
		grep -qF "*threadfs-$command*(1)" "$DOCS/threadfs.1.scd"
	done
	same "$(commands)" "$(cd "$DOCS" && printf '%s\n' threadfs-*.1.scd | sed 's/threadfs-//; s/\.1\.scd//')"
}

@test "each manual page and help page has the same usage, and the same options" {
	for command in $(commands); do
		echo "command: $command"
		# Without the markup, and as one line.
		manual=$(sed -n '/^# SYNOPSIS/,/^# DESC/p' "$DOCS/threadfs-$command.1.scd" |
			sed '1d;$d' | tr -d '*_' | tr -s ' \n' ' ' | sed 's/^ //; s/ $//; s/++ / /g')
		help=$(threadfs help "$command" | sed -n '1,/^$/p' | tr -s ' \n' ' ' |
			sed 's/^usage: //; s/ $//')
		[ "${manual//_/}" = "${help//_/}" ] || { echo "manual: $manual"; echo "help:   $help"; false; }
		manual=$(terms "$DOCS/threadfs-$command.1.scd" | grep -o '\*--*[a-z][a-z-]*\*' | tr -d '*' || true)
		same "$(rows option "$command" | cut -f1)" "$manual"
	done
}

@test "README.md has each command with all its options" {
	for command in $(commands); do
		[ "$command" != help ] || continue
		line=$(sed -n '/^## Commands and options/,/^## /p' "$SANDBOXD_ROOT/README.md" | grep "^threadfs $command ")
		# Of the two forms of an option, which mean the same, one is enough.
		while IFS= read -r meaning; do
			forms=$(rows option "$command" | awk -F'\t' -v m="$meaning" '$3 == m { print $1 }')
			echo "$command: $forms in: $line"
			grep -qwF -e "$forms" <<<"$line"
		done < <(rows option "$command" | cut -f3 | sort -u | grep . || true)
	done
}

@test "every option of a command is accepted, and no other" {
	for command in $(commands); do
		while IFS=$'\t' read -r option value _; do
			echo "$command $option $value"
			run threadfs "$command" "$option" ${value:+A=B} --help
			[ "$status" -eq 0 ]
		done < <(rows option "$command" | grep . || true)
		[ "$command" != help ] || continue
		for letter in {a..z} {A..Z}; do
			# An option that is not told of would be taken, or want a value. getopt
			# takes the beginning of a long one for it.
			for option in "-$letter" "--$letter"; do
				run threadfs "$command" "$option" A=B --help
				[[ $status = 0 || $output != *"unknown option"* ]] || continue
				[[ $letter != h ]] || continue
				echo "$command: $option is taken: $output"
				rows option "$command" | cut -f1 | grep -q -- "^$option"
			done
		done
	done
}

@test "the manual explains exactly the settings that there are" {
	sed -n '/^# OPTIONS/,/^# ENV/p' "$DOCS/threadfs-mount.1.scd" >"$T/part"
	manual=$(terms "$T/part" | grep -o '^\*[a-z_]*=*\*' | tr -d '*=')
	same "$(rows setting | cut -f1)" "$manual"
	same "$(rows setting | cut -f1)" "$(threadfs help mount | sed -n '/^Options/,/^$/s/^  \([a-z_][a-z_]*\)[ =].*/\1/p')"
	same "$(rows source | cut -f1 | grep -o '^[a-z]*:')" \
		"$(sed -n '/^# DESC/,/^# ARG/p' "$DOCS/threadfs-mount.1.scd" | grep -o '^\*[a-z]*:' | tr -d '*')"
}

@test "threadfs-ctl(7) explains every control file" {
	mount_start
	thread
	echo true >.ctl/exec
	page() { sed -n "/^# $1/,/^# /p" "$DOCS/threadfs-ctl.7.scd" >"$T/part"; terms "$T/part" | grep -o '\*[^*]*\*' | tr -d '*'; }
	same "$(ls -A "$M/.ctl")" "$(page "OF THE MOUNT")"
	same "$(ls -A .ctl)" "$(page "OF A THREAD")"
	same "$(ls -A .ctl/jobs/1)" "$(page "OF A JOB")"
	cd /
}

# bash_offers LINE: what bash would offer, sorted.
bash_offers() {
	LINE=$1 bash --norc -c '
		. "$0"; compopt() { :; }
		COMP_LINE=$LINE COMP_POINT=${#LINE}; _threadfs
		printf "%s\n" "${COMPREPLY[@]}"' "$DOCS/completions/threadfs.bash" | sort
}

fish_offers() {
	LINE=$1 fish --no-config -c 'source $argv[1]; complete -C "$LINE"' "$DOCS/completions/threadfs.fish" |
		cut -f1 | sort
}

@test "bash and fish complete commands, options and settings as the table has them" {
	cd "$T/run" # where there is nothing
	for offers in bash_offers fish_offers; do
		echo "$offers"
		same "$(commands)" "$($offers 'threadfs ')"
		same "$(commands)" "$($offers 'threadfs help ')"
		for command in $(commands); do
			same "$({ rows option "$command" | cut -f1; echo --help; } | grep .)" \
				"$($offers "threadfs $command -")"
		done
		same "$(rows setting | awk -F'\t' '{ print "ro," $1 ($2 == "" ? "" : "=") }')" \
			"$($offers "threadfs mount -o ro,")"
		same "$(rows source | cut -f1 | grep -o '^[a-z]*:/*')" "$($offers "threadfs mount ")"
	done
	same $'hidden\nvisible' "$(bash_offers "threadfs mount -o ctl=")"
	same $'ctl=hidden\nctl=visible' "$(fish_offers "threadfs mount -o ctl=")"
}

@test "mounted paths and thread ids are completed, and a dead mount holds nobody up" {
	MOUNT_NAME=agents mount_start
	mkdir "$M/threads/demo-1" "$M/threads/demo-2"
	cd "$T/run"
	for offers in bash_offers fish_offers; do
		same "$M" "$($offers "threadfs unmount ${M%gents}")"
		same "$M" "$($offers "threadfs status ${M%gents}")"
		same "$M/threads/demo-1"$'\n'"$M/threads/demo-2" \
			"$($offers "threadfs exec $M/threads/demo" | sed 's|/$||')"
	done
	kill -STOP "$MOUNT_PID"
	run threadfs help --complete -- unmount "$M"
	kill -CONT "$MOUNT_PID"
	[[ $output == "$M"$'\t'* ]]
}

# As people press the key.
@test "the tabulator works in bash and zsh" {
	cd "$T/run"
	typed=$SANDBOXD_ROOT/tests/lib/typed.py
	printf 'PS1="READY> "\nbind "set enable-bracketed-paste off"\n. "%s"\n' "$DOCS/completions/threadfs.bash" >"$T/bashrc"
	[ "$("$typed" 'threadfs unmo' bash --rcfile "$T/bashrc" -i)" = "threadfs unmount " ]
	[ "$("$typed" 'threadfs mount -o ro,ling' bash --rcfile "$T/bashrc" -i)" = "threadfs mount -o ro,linger=" ]
	mkdir "$T/z"
	printf 'PS1="READY> "\nunset zle_bracketed_paste\nfpath=(%q $fpath)\nautoload -Uz compinit\ncompinit -D -u\nbindkey -e\n' \
		"$DOCS/completions" >"$T/z/.zshrc"
	[ "$(ZDOTDIR=$T/z "$typed" 'threadfs unmo' zsh -d -i)" = "threadfs unmount " ]
	[ "$(ZDOTDIR=$T/z "$typed" 'threadfs mount -o ro,ling' zsh -d -i)" = "threadfs mount -o ro,linger=" ]
}
