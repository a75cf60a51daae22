# What scripts/bench mount makes of its samples: the table of medians, that of the
# ratios which must be shown, and both as JSON. Sourced by mount.bash.
# shellcheck shell=bash
# shellcheck disable=SC2154 # samples, failures, rows, contenders, …: mount.bash

# figure ROW PHASE CONTENDER: the median in seconds; empty if there is none.
figure() {
	local key="$1 $2 $3"
	[ -z "${failures[$key]:-}" ] && [ -n "${samples[$key]:-}" ] || return 0
	# shellcheck disable=SC2086 # blanks separate
	median ${samples[$key]}
}

# cell ROW PHASE CONTENDER: the same for people.
cell() {
	local t
	if [ -n "${failures["$1 $2 $3"]:-}" ]; then
		printf FAILED
		return
	fi
	t=$(figure "$@")
	if [ -z "$t" ]; then
		printf '–'
	elif [ "$1" = first ]; then
		awk -v t="$t" 'BEGIN { printf "%.2f", t * 1000 }'
	else
		awk -v t="$t" 'BEGIN { printf t < 0.0995 ? "%.3f" : "%.2f", t }'
	fi
}

markdown() {
	local IFS='|'
	printf '|%s|\n' "$*" | sed 's/|/ | /g; s/^ //; s/ $//'
}

# rule COLUMNS: the line below a table's head.
rule() {
	local i line=()
	for ((i = 0; i < $1; i++)); do
		line+=(---)
	done
	markdown "${line[@]}"
}

show_medians() {
	local row phase who columns=() line
	for who in "${contenders[@]}"; do
		[ "$who" = threadfs-1.0 ] || columns+=("$who")
	done
	markdown "workload (seconds, median of $rounds)" "${columns[@]}"
	rule $((${#columns[@]} + 1))
	for row in "${rows[@]}"; do
		[ "$row" != entries ] && [ "$row" != memory ] || continue
		for phase in ${row_phases[$row]:-cold}; do
			line=("${row_title[$row]}, $phase")
			for who in "${columns[@]}"; do
				line+=("$(cell "$row" "$phase" "$who")")
			done
			markdown "${line[@]}"
		done
	done
}

show_entries() {
	local n who line
	wanted entries || return 0
	echo
	line=("ls -lU of one directory (seconds)")
	for n in "${entry_counts[@]}"; do
		line+=("$n entries")
	done
	markdown "${line[@]}"
	rule "${#line[@]}"
	for who in $(listers); do
		line=("$who")
		for n in "${entry_counts[@]}"; do
			line+=("$(cell entries "$n" "$who")")
		done
		markdown "${line[@]}"
	done
}

show_remarks() {
	local who key
	[ $((${#absent[@]} + ${#failures[@]})) -gt 0 ] || return 0
	echo
	for who in "${!absent[@]}"; do
		echo "- $who is not there: ${absent[$who]}"
	done | sort
	for key in "${!failures[@]}"; do
		echo "- FAILED: $key: ${failures[$key]}"
	done | sort
}

# ---- what must be shown ----

# verdict ROW PHASE TITLE CONTENDER WANTED GOT [OPERATOR BOUND]: one row of the table
# of ratios. An empty GOT cannot be judged; FAILED is missed.
verdict() {
	local result=ok
	if [ -z "$6" ]; then
		result=–
	elif [ "$6" = FAILED ] || ! awk -v r="$6" -v w="$8" -v op="$7" \
		'BEGIN { exit !(op == "≥" ? r + 0 >= w + 0 : op == "<" ? r + 0 < w + 0 : r + 0 <= w + 0) }'; then
		result=MISSED
		missed=$((missed + 1))
	fi
	verdicts+=("$(printf '%s\t%s\t%s\t%s\t%s\t%s\t%s' "$1" "$2" "$3" "$4" "$5" "${6:-–}" "$result")")
}

ours() {
	local who
	for who in "${contenders[@]}"; do
		[[ $who != threadfs-* || $who == threadfs-1.0 ]] || echo "$who"
	done
}

# ratio A B: A / B; FAILED if A failed, empty if there is no B.
ratio() {
	[ -n "$2" ] || return 0
	[ -n "$1" ] || { echo FAILED && return; }
	awk -v a="$1" -v b="$2" 'BEGIN { printf "%.3g", a / b }'
}

title_of() { echo "${row_title[$1]}, $2"; }

# at_most ROW PHASE BOUND REFERENCE: seconds against the reference's.
at_most() {
	local who
	wanted "$1" || return 0
	for who in $(ours); do
		verdict "$1" "$2" "$(title_of "$1" "$2")" "$who" "≤ $3 × $4" \
			"$(ratio "$(figure "$1" "$2" "$who")" "$(figure "$1" "$2" "$4")")" ≤ "$3"
	done
}

# at_least ROW PHASE BOUND REFERENCE: speed against the reference's.
at_least() {
	local who t
	wanted "$1" || return 0
	for who in $(ours); do
		t=$(figure "$1" "$2" "$who")
		t=$(ratio "$t" "$(figure "$1" "$2" "$4")")
		[ -z "$t" ] || [ "$t" = FAILED ] || t=$(ratio 1 "$t")
		verdict "$1" "$2" "$(title_of "$1" "$2")" "$who" "≥ $3 × $4's speed" "$t" ≥ "$3"
	done
}

# quickest ROW PHASE CONTENDER…: sets best to its seconds, and best_who; empty if none ran.
quickest() {
	local row=$1 phase=$2 who t
	shift 2
	best=
	for who; do
		t=$(figure "$row" "$phase" "$who")
		[ -n "$t" ] || continue
		[ -z "$best" ] || awk -v a="$t" -v b="$best" 'BEGIN { exit !(a < b) }' || continue
		best=$t
		best_who=$who
	done
}

# ahead ROW PHASE TIMES PEER…: so many times ahead of each that ran.
ahead() {
	local row=$1 phase=$2 times=$3 who t words best best_who
	shift 3
	wanted "$row" || return 0
	quickest "$row" "$phase" "$@"
	words="ahead of $*"
	if [ $# -gt 1 ]; then
		words="ahead of every peer${best:+ (best: $best_who)}"
	fi
	[ "$times" = 1 ] || words="≥ $times × $words"
	for who in $(ours); do
		t=$(ratio "$(figure "$row" "$phase" "$who")" "$best")
		[ -z "$t" ] || [ "$t" = FAILED ] || t=$(ratio 1 "$t")
		verdict "$row" "$phase" "$(title_of "$row" "$phase")" "$who" "$words" "$t" ≥ "$times"
	done
}

judge_random() {
	local who
	wanted random || return 0
	for who in $(ours); do
		if [ "$who" = threadfs-1.9 ]; then
			verdict random cold "$(title_of random cold)" "$who" "≤ 1.5 × a full download by curl" \
				"$(ratio "$(figure random cold "$who")" "$(figure seq cold curl)")" ≤ 1.5
		else
			verdict random cold "$(title_of random cold)" "$who" "< 1 × sshfs-plain" \
				"$(ratio "$(figure random cold "$who")" "$(figure random cold sshfs-plain)")" '<' 1
		fi
	done
}

# Linear: an entry of the larger directory costs no more than one and a half of the
# smaller's. That all were listed was checked with the time.
judge_entries() {
	local who i a b got from to
	wanted entries || return 0
	for who in $(listers); do
		[ "$who" != local ] || continue
		to=${entry_counts[-1]}
		b=$(figure entries "$to" "$who")
		verdict entries "$to" "entries in one directory" "$who" "all $to are listed" \
			"$([ -n "$b" ] && echo 1 || echo FAILED)" ≥ 1
		for ((i = 1; i < ${#entry_counts[@]}; i++)); do
			from=${entry_counts[i - 1]}
			to=${entry_counts[i]}
			a=$(figure entries "$from" "$who")
			b=$(figure entries "$to" "$who")
			got=$(ratio "$b" "$a")
			[ -z "$got" ] || [ "$got" = FAILED ] || got=$(ratio "$got" "$((to / from))")
			verdict entries "$to" "entries in one directory" "$who" \
				"$from → $to: ≤ 1.5 × per entry" "$got" ≤ 1.5
		done
	done
}

judge_memory() {
	local who got
	wanted memory || return 0
	for who in $(ours); do
		got=FAILED
		[ -z "${rss_kib[$who]:-}" ] ||
			got=$(awk -v k="${rss_kib[$who]}" 'BEGIN { printf "%.1f", k / 1024 }')
		verdict memory rss "memory at the end (MiB)" "$who" "≤ 128" "$got" ≤ 128
	done
}

judge_all() {
	verdicts=()
	at_least seq cold 0.5 curl
	ahead seq cold 1 "${peers[@]}"
	at_least seq warm 0.8 local
	at_least readers cold 0.5 curl
	ahead readers cold 1 "${peers[@]}"
	at_most first cold 2.5 curl
	judge_random
	at_least put cold 0.6 curl
	ahead put cold 1 "${peers[@]}"
	at_most cpr cold 1.5 curl
	ahead cpr cold 1 "${peers[@]}"
	at_most find cold 0.7 sshfs-plain
	at_most find warm 4 local
	at_most ls cold 0.5 sshfs-plain
	at_most ls warm 1.5 local
	at_most stats warm 1.3 local
	at_most grep cold 1 curl
	ahead grep cold 1 davfs2
	at_most grep warm 15 local
	at_most tar cold 1.5 curl
	ahead tar cold 1 davfs2
	at_most git cold 0.5 sshfs-plain
	at_most git warm 5 local
	at_least far-seq cold 0.8 curl
	ahead far-seq cold 1 "${peers[@]}"
	ahead far-find cold 1 davfs2
	ahead far-find cold 5 sshfs
	ahead far-ls cold 1 davfs2
	ahead far-ls cold 5 sshfs
	ahead far-grep cold 5 davfs2
	judge_entries
	judge_memory
}

show_verdicts() {
	local line fields
	[ ${#verdicts[@]} -gt 0 ] || return 0
	echo
	markdown workload mount "must show" got verdict
	rule 5
	for line in "${verdicts[@]}"; do
		IFS=$'\t' read -ra fields <<<"$line"
		markdown "${fields[@]:2}"
	done
}

show_results() {
	show_medians
	show_entries
	show_remarks
	judge_all
	show_verdicts
}

write_json() {
	local key row phase who
	{
		for key in "${!samples[@]}"; do
			read -r row phase who <<<"$key"
			printf 's\t%s\t%s\t%s\t%s\t%s\n' "$row" "$phase" "$who" \
				"$(figure "$row" "$phase" "$who")" "${samples[$key]# }"
		done
		for key in "${!failures[@]}"; do
			read -r row phase who <<<"$key"
			printf 'f\t%s\t%s\t%s\t%s\n' "$row" "$phase" "$who" "${failures[$key]}"
		done
		for who in "${!absent[@]}"; do
			printf 'a\t%s\t%s\n' "$who" "${absent[$who]}"
		done
		for who in "${!rss_kib[@]}"; do
			printf 'm\t%s\t%s\t%s\n' "$who" "${rss_kib[$who]}" "${peak_kib[$who]}"
		done
		for row in "${rows[@]}"; do
			[ -z "${row_title[$row]:-}" ] || printf 't\t%s\t%s\n' "$row" "${row_title[$row]}"
		done
		[ ${#verdicts[@]} -eq 0 ] || printf 'v\t%s\n' "${verdicts[@]}"
	} | jq -Rn --argjson rounds "$rounds" --arg quick "$quick" '
		[inputs | split("\t")] as $lines |
		def of($kind): $lines[] | select(.[0] == $kind);
		{
			rounds: $rounds,
			quick: ($quick != ""),
			titles: (reduce of("t") as $l ({}; .[$l[1]] = $l[2])),
			seconds: (reduce of("s") as $l ({};
				.[$l[1]][$l[2]][$l[3]] = {
					median: ($l[4] | tonumber? // null),
					samples: ($l[5] / " " | map(tonumber))
				})),
			failed: [of("f") | {row: .[1], phase: .[2], contender: .[3], why: .[4]}],
			absent: (reduce of("a") as $l ({}; .[$l[1]] = $l[2])),
			memory_kib: (reduce of("m") as $l ({};
				.[$l[1]] = {rss: ($l[2] | tonumber), peak: ($l[3] | tonumber)})),
			ratios: [of("v") | {row: .[1], phase: .[2], title: .[3], contender: .[4],
				wanted: .[5], got: (.[6] | tonumber? // null), verdict: .[7]}]
		}' >"$1"
}
