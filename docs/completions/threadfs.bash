# bash completion for threadfs: asks the program itself. See fs/complete.c.
# shellcheck shell=bash

_threadfs() {
	local line=${COMP_LINE:0:COMP_POINT} words=() token piece before candidate

	read -ra words <<<"$line"
	[[ $line != *[[:space:]] ]] || words+=("")
	token=${words[-1]}
	# What readline replaces begins behind the last of these.
	piece=${token##*[:=]}
	before=${token%"$piece"}
	COMPREPLY=()
	while IFS=$'\t' read -r candidate _; do
		case $candidate in
		:files | :dirs)
			compopt -o filenames
			mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(
				if [ "$candidate" = :dirs ]; then
					compgen -d -- "$piece"
				else
					compgen -f -- "$piece"
				fi
			)
			;;
		*)
			COMPREPLY+=("${candidate#"$before"}")
			[[ $candidate != *[=:/] ]] || compopt -o nospace
			;;
		esac
	done < <(threadfs help --complete -- "${words[@]:1}" 2>/dev/null)
}
complete -F _threadfs threadfs
