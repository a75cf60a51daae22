# shellcheck shell=bash
#
# A terminal for bats tests: a tmux of the test's own, whose screen can be looked at.
#
#	screen_start 80 24 "$THREADFS" top "$M"
#	screen_shows 'demo +active'
#	screen_keys Down d
#	screen_size 200 50
#
# teardown calls screen_end.

# screen_start WIDTH HEIGHT CMD…: SCREEN_ENV holds NAME=VALUE words for it. Each has a socket of
# its own: a server that was told to end may still be there, and takes whoever comes with it.
screens=0
screen_start() {
	local width=$1 height=$2 words
	shift 2
	printf -v words '%q ' "$@"
	screens=$((screens + 1))
	env -u TMUX LC_ALL=C.UTF-8 tmux -S "$T/tmux.$screens" -f /dev/null new-session -d -x "$width" -y "$height" \
		"exec env ${SCREEN_ENV[*]} sh -c $(printf %q "trap : INT; $words; echo \"ended \$?\"; exec sleep 600")" \
		</dev/null 3>&-
}

# tmux_ ARGS…
tmux_() {
	env -u TMUX tmux -S "$T/tmux.$screens" "$@" 3>&-
}

# screen [OPTION…]: what is on it.
# shellcheck disable=SC2120
screen() {
	tmux_ capture-pane -p "$@"
}

screen_keys() {
	tmux_ send-keys "$@"
}

screen_size() {
	tmux_ resize-window -x "$1" -y "$2"
}

# screen_harmless: nothing on it made the terminal do anything: its title is its own, nothing is red.
screen_harmless() {
	refute grep -q owned <(tmux_ display-message -p '#{pane_title}') &&
		refute grep -qP '\x1b\[([0-9;]*;)?31m' <(screen -e)
}

screen_has_() {
	screen | grep -qE -- "$1"
}

screen_lacks_() {
	! screen_has_ "$1"
}

# screen_shows REGEX: waits until a line of it matches; shows the screen if none does.
screen_shows() {
	wait_for $((20 * SLOW)) screen_has_ "$1" && return
	echo "not on the screen: $1" >&2
	screen >&2
	return 1
}

screen_shows_no() {
	wait_for $((20 * SLOW)) screen_lacks_ "$1" && return
	echo "still on the screen: $1" >&2
	return 1
}

# screen_fits WIDTH HEIGHT: nothing was wrapped: as many lines, none longer.
screen_fits() {
	local longest lines
	longest=$(screen | wc -L)
	lines=$(screen | wc -l)
	[ "$longest" -le "$1" ] && [ "$lines" -le "$2" ]
}

screen_end() {
	[ ! -S "$T/tmux.$screens" ] || tmux_ kill-server 2>/dev/null || true
}
