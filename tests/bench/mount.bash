# The mount against the local directory, a FUSE filesystem that does nothing, curl
# and other network filesystems. Sourced by scripts/bench, which has the helpers.
#
# Every row is a workload that prints "SECONDS CHECK"; the check must be the local
# directory's. Cold is the first run on a fresh mount whose sandbox runs already,
# warm the second on the same.
# shellcheck shell=bash
# shellcheck disable=SC2154 # work, rounds, root, build_dir, …: scripts/bench

# shellcheck source=tests/bench/peers.bash
. "$root/tests/bench/peers.bash"
# shellcheck source=tests/bench/verdicts.bash
. "$root/tests/bench/verdicts.bash"

round_trip_ms=5
workspace=/mnt/user-data/workspace

all_rows=(seq readers first random put cpr find ls stats grep tar git
	far-seq far-find far-ls far-grep entries memory)
only_far= # a contender that is left out otherwise
warm_times=3 # warm runs in a round: some take 30 ms, and whatever else happens then is seen
declare -A row_title=() row_phases=()
declare -A expect=()   # row → the check of the local directory
declare -A samples=()  # "row phase contender" → seconds of each round
declare -A failures=() # the same → why there are none

set_sizes() {
	if [ -n "$quick" ]; then
		big=256 part=64 stored=128 tree_dirs=50 small_dirs=5 pieces=500
		far_big=128 far_dirs=10 far_small_dirs=1
		entry_counts=(1000 10000 20000)
	else
		big=1024 part=256 stored=512 tree_dirs=200 small_dirs=20 pieces=2000
		far_big=1024 far_dirs=50 far_small_dirs=4
		entry_counts=(1000 10000 100000)
	fi
	row_title=(
		[seq]="$big MiB sequential read"
		[readers]="4 readers × $part MiB"
		[first]="first byte of $big MiB (ms)"
		[random]="$pieces random 4 KiB reads"
		[put]="cp $stored MiB in, stored on the server"
		[cpr]="cp -r $((small_dirs * 100)) × 4 KiB in"
		[find]="find $((tree_dirs * 100)) files"
		[ls]="ls -lR $((tree_dirs * 100)) files"
		[stats]="$((tree_dirs * 100)) stats"
		[grep]="grep -r $((small_dirs * 100)) small files"
		[tar]="tar of $((small_dirs * 100)) small files"
		[git]="git status, $((small_dirs * 100)) files"
		[far-seq]="*$round_trip_ms ms:* $far_big MiB sequential read"
		[far-find]="*$round_trip_ms ms:* find $((far_dirs * 100)) files"
		[far-ls]="*$round_trip_ms ms:* ls -lR $((far_dirs * 100)) files"
		[far-grep]="*$round_trip_ms ms:* grep -r $((far_small_dirs * 100)) small files"
	)
	row_phases=([seq]="cold warm" [find]="cold warm" [ls]="cold warm" [stats]="cold warm"
		[grep]="cold warm" [git]="cold warm")
}

# ---- files ----

# make_tree DIR DIRS: directories of 100 files of a few bytes.
make_tree() {
	local d f
	for ((d = 0; d < $2; d++)); do
		mkdir -p "$1/d$d"
		for ((f = 0; f < 100; f++)); do
			printf '%s\n' "$d $f" >"$1/d$d/file-$f"
		done
	done
}

# make_small DIR DIRS: directories of 100 files of 4 KiB; every tenth has the needle.
make_small() {
	local d file
	for ((d = 0; d < $2; d++)); do
		mkdir -p "$1/d$d"
		split -b 4096 -a 2 -d - "$1/d$d/file-" < <(
			head -c 310000 /dev/urandom | base64 | head -c 409600
		)
		for file in "$1/d$d"/file-?0; do
			echo "needle in a haystack" 1<>"$file"
		done
	done
}

git_() {
	# Nobody's settings; an index that was made elsewhere is good if times and sizes are.
	GIT_CONFIG_GLOBAL=$work/gitconfig GIT_CONFIG_NOSYSTEM=1 GIT_OPTIONAL_LOCKS=0 \
		bounded git "$@"
}

# Not .git: the WebDAV server does not show names that begin with a dot.
in_repo() {
	local repo=$1
	shift
	git_ --git-dir "$repo/git" --work-tree "$repo/tree" "$@"
}

make_repo() {
	make_small "$1/tree" "$2"
	cat >"$work/gitconfig" <<-END
		[user]
			name = bench
			email = bench@localhost
		[safe]
			directory = *
		[core]
			checkStat = minimal
			trustctime = false
		[gc]
			auto = 0
	END
	# Older than the index, or git would read them to be sure.
	find "$1" -type f -exec touch -d '1 hour ago' {} +
	in_repo "$1" init -q && in_repo "$1" add . && in_repo "$1" commit -q -m bench
}

make_files() {
	local i n
	mkdir -p "$files" "$user_data/uploads" "$user_data/outputs" "$work/run" "$work/home"
	chmod 700 "$work/run"
	chmod 777 "$user_data"/*
	if wanted seq first random memory; then
		head -c "${big}M" /dev/urandom >"$files/big"
	fi
	! wanted far-seq || head -c "${far_big}M" /dev/urandom >"$files/far-big"
	if wanted readers memory; then
		for ((i = 0; i < 4; i++)); do
			head -c "${part}M" /dev/urandom >"$files/part$i"
		done
	fi
	! wanted put memory || head -c "${stored}M" /dev/urandom >"$work/source"
	! wanted cpr memory || make_small "$work/source-small" "$small_dirs"
	if wanted find ls stats memory; then
		make_tree "$files/tree" "$tree_dirs"
		(cd "$files/tree" && find . -type f) >"$work/names"
	fi
	! wanted far-find far-ls || make_tree "$files/far-tree" "$far_dirs"
	! wanted grep tar memory || make_small "$files/small" "$small_dirs"
	! wanted far-grep || make_small "$files/far-small" "$far_small_dirs"
	! wanted git memory || make_repo "$files/repo" "$small_dirs" || die "no repository"
	if wanted entries memory; then
		for n in "${entry_counts[@]}"; do
			mkdir "$files/entries-$n"
			(cd "$files/entries-$n" && seq -f 'entry-%06.0f' "$n" | xargs touch)
		done
	fi
}

# ---- workloads of a directory ----

# timed COMMAND…: "SECONDS OUTPUT"
timed() {
	local start=${EPOCHREALTIME/./} us
	"$@" >"$work/out" || return
	us=$((${EPOCHREALTIME/./} - start))
	printf '%d.%06d %s\n' $((us / 1000000)) $((us % 1000000)) "$(cat "$work/out")"
}

bounded() { timeout --foreground -k 5 "$limit" "$@"; }
on_files() { bounded "$programs/tests/bench_files" "$@"; }

run_seq() { on_files read "$view/workspace/big"; }
run_readers() { on_files read "$view/workspace/part"{0..3}; }
run_first() { on_files first "$view/workspace/big"; }
run_random() { on_files random "$view/workspace/big" "$pieces"; }
run_stats() { on_files stats "$view/workspace/tree" "$work/names"; }

# All write to a pipe: programs look less carefully if nobody can see it.
find_it() { bounded find "$1" | wc -l; }
ls_it() { bounded ls -lR "$1" | wc -l; }
grep_it() { bounded grep -r needle "$1" | wc -l; }
# 1 is "file changed as we read it": davfs2 sets a directory's time when it is listed.
tar_it() { { bounded tar cf - -C "$1" . || [ $? = 1 ]; } | wc -c; }
entries_it() { bounded ls -lU "$1" | wc -l; }
run_find() { timed find_it "$view/workspace/tree"; }
run_ls() { timed ls_it "$view/workspace/tree"; }
run_grep() { timed grep_it "$view/workspace/small"; }
run_tar() { timed tar_it "$view/workspace/small"; }
run_git() { timed in_repo "$view/workspace/repo" status --porcelain; }
run_far_seq() { on_files read "$view/workspace/far-big"; }
run_far_find() { timed find_it "$view/workspace/far-tree"; }
run_far_ls() { timed ls_it "$view/workspace/far-tree"; }
run_far_grep() { timed grep_it "$view/workspace/far-small"; }

# Others may say that they are done before they are; the clock runs until the server
# has it. Ours promise it for the close.
stored_big_() { [ "$(stat -c %s "$files/put" 2>/dev/null)" = $((stored * 1048576)) ]; }
stored_small_() {
	[ "$(find "$files/cpr" -type f -size 4096c -printf . | wc -c)" = $((small_dirs * 100)) ]
}
until_stored() {
	local is_stored=$1
	shift
	"$@" || return
	"$is_stored" && return
	if [[ $mount_who == threadfs-* ]]; then
		echo "not stored when it was closed" >&2
		return 1
	fi
	await "$limit" "$is_stored"
}
run_put() {
	timed until_stored stored_big_ bounded cp "$work/source" "$view/workspace/put" || return
	cmp "$work/source" "$files/put" >&2
}
run_cpr() {
	timed until_stored stored_small_ bounded cp -r "$work/source-small" "$view/workspace/cpr" ||
		return
	diff -r "$work/source-small" "$files/cpr" >&2
}
remove_put() { rm -f "$files/put"; }
remove_cpr() { rm -rf "$files/cpr"; }

# Contents are compared outside of the clock.
verify_seq() { bounded cmp "$files/big" "$view/workspace/big"; }
verify_readers() { bounded cmp "$files/part3" "$view/workspace/part3"; }
verify_grep() { bounded diff -r "$files/small" "$view/workspace/small"; }
verify_tar() { verify_grep; }
verify_far_seq() { bounded cmp "$files/far-big" "$view/workspace/far-big"; }
verify_far_grep() { bounded diff -r "$files/far-small" "$view/workspace/far-small"; }

# ---- the same with curl ----

on_http() { bounded "$programs/tests/bench_http" "$in_flight" "$http" "$@"; }

# as_local WANT: the check of the local directory if the one that comes in is WANT.
as_local() {
	local t got
	read -r t got || return
	if [ "$got" != "$1" ]; then
		echo "got $got instead of $1" >&2
		return 1
	fi
	echo "$t ${expect[$row]}"
}
below() { find "$files/$1" -mindepth 1 | wc -l; }

curl_seq() { on_http read "$workspace/big"; }
curl_readers() { on_http read "$workspace/part"{0..3}; }
curl_first() { on_http first "$workspace/big"; }
curl_random() { on_http random "$workspace/big" $((big * 1048576)) "$pieces"; }
curl_put() {
	on_http put "$work/source" "$workspace/put" | as_local 1 && cmp "$work/source" "$files/put" >&2
}
curl_cpr() {
	on_http put "$work/source-small" "$workspace/cpr" | as_local $((small_dirs * 100)) &&
		diff -r "$work/source-small" "$files/cpr" >&2
}
curl_find() { on_http list "$workspace/tree" | as_local "$(below tree)"; }
curl_ls() { curl_find; }
curl_grep() { on_http walk "$workspace/small" | as_local $((small_dirs * 409600)); }
curl_tar() { curl_grep; }
curl_far_seq() { on_http read "$workspace/far-big"; }
curl_far_find() { on_http list "$workspace/far-tree" | as_local "$(below far-tree)"; }
curl_far_ls() { curl_far_find; }
curl_far_grep() { on_http walk "$workspace/far-small" | as_local $((far_small_dirs * 409600)); }

# ---- measuring ----

# wanted ROW…: is any of them to be measured?
wanted() {
	local row
	for row; do
		[[ " ${rows[*]} " != *" $row "* ]] || return 0
	done
	return 1
}

# applies ROW CONTENDER: whether it can be compared there at all.
applies() {
	[ -z "${absent[$2]:-}" ] && [[ $2 != "$only_far" || $1 == far-* ]] || return 1
	case "$1 $2" in
	"far-"*" local" | "far-"*" passthrough") return 1 ;;
	"put rclone-http" | "cpr rclone-http") return 1 ;; # it only reads
	"seq curl16" | "first curl16" | "random curl16" | "put curl16" | "far-seq curl16") return 1 ;;
	"far-"*" curl-unix") return 1 ;;
	*" curl" | *" curl16" | *" curl-unix") declare -F "curl_${1//-/_}" >/dev/null ;;
	esac
}

# note ROW PHASE CONTENDER COMMAND: one sample, or why there is none.
note() {
	local row=$1 key="$1 $2 $3" out t check status=0
	out=$("$4" 2>"$work/errors") || status=$?
	if [ "$status" = 124 ] || [ "$status" = 137 ]; then # timeout, the hard way
		failures[$key]="it took longer than $limit s"
	elif [ "$status" != 0 ]; then
		failures[$key]=$(tail -n 1 "$work/errors" | cut -c 1-200)
		: "${failures[$key]:=status $status without a word}"
	else
		read -r t check <<<"$out" || true
		if [ "$check" = "${expect[$row]=$check}" ]; then
			samples[$key]+=" $t"
			progress+=" $2 $t"
			return 0
		fi
		failures[$key]="got '$check' instead of '${expect[$row]}'"
	fi
	progress+=" $2 FAILED (${failures[$key]})"
	return 1
}

# verify ROW CONTENDER: whether it has the right contents, where the row looks at them.
verify() {
	local name=verify_${1//-/_} status=0
	declare -F "$name" >/dev/null || return 0
	"$name" >"$work/errors" 2>&1 || status=$?
	[ "$status" != 0 ] || return 0
	if [ "$status" = 124 ] || [ "$status" = 137 ]; then # timeout, the hard way
		echo "comparing took longer than $limit s" >"$work/errors"
	fi
	failures["$1 cold $2"]="contents: $(tail -n 1 "$work/errors" | cut -c 1-200)"
	progress+=" FAILED (${failures["$1 cold $2"]})"
}

measure_curl() {
	local row=$1 who=$2 in_flight=1 http=$work/sock port
	[ "$who" != curl16 ] || in_flight=16
	if [ "$who" != curl-unix ]; then
		near_or_far "$net" aiod || die "$why"
		http=http://127.0.0.1:$port
	fi
	note "$row" cold "$who" "curl_${row//-/_}" || true
}

# measure ROW CONTENDER ROUND
measure() {
	local row=$1 who=$2 phase net=near name=${1//-/_} good=1 times i
	[[ $row != far-* ]] || net=far
	progress="$row: $who"
	if [[ $who == curl* ]]; then
		measure_curl "$row" "$who"
	elif enter "$who" "$net"; then
		for phase in ${row_phases[$row]:-cold}; do
			times=1
			[ "$phase" = cold ] || { settle && times=$warm_times; }
			for ((i = 0; i < times; i++)); do
				note "$row" "$phase" "$who" "run_$name" || { good= && break 2; }
			done
		done
		[ -z "$good" ] || [ "$3" != 0 ] || verify "$row" "$who"
	else
		for phase in ${row_phases[$row]:-cold}; do
			failures["$row $phase $who"]=$why
		done
		progress+=" FAILED ($why)"
	fi
	leave
	! declare -F "remove_$name" >/dev/null || "remove_$name"
	echo "$progress" >&2
}

# The local directory's check, also where it is not shown; and the programs are in
# memory again.
learn_check() {
	local row=$1 out
	enter local near
	out=$("run_${row//-/_}") || die "$row fails in the local directory"
	read -r _ "expect[$row]" <<<"$out" || true
	! declare -F "remove_${row//-/_}" >/dev/null || "remove_${row//-/_}"
}

# took_long ROW CONTENDER: once is enough then.
took_long() {
	local t
	for t in ${samples["$1 cold $2"]:-}; do
		[ "${t%.*}" -lt 20 ] || return 0
	done
	return 1
}

measure_row() {
	local row=$1 who i
	for ((i = 0; i < rounds; i++)); do
		drop_caches
		learn_check "$row"
		for who in "${contenders[@]}"; do
			if [ "$who" != threadfs-1.0 ] && applies "$row" "$who" && ! took_long "$row" "$who"; then
				measure "$row" "$who" "$i"
			fi
		done
	done
}

run_entries() { timed entries_it "$view/workspace/entries-$entry_count"; }

# Those who list many entries: in every dialect.
listers() {
	local who
	for who in "${contenders[@]}"; do
		[[ $who != local && $who != threadfs-* ]] || echo "$who"
	done
	[ -n "$contender_list" ] || echo threadfs-1.0
}

# One directory after another on one fresh mount per round.
measure_entries() {
	local who i n entry_count
	for ((i = 0; i < rounds; i++)); do
		for who in $(listers); do
			[ -z "${absent[$who]:-}" ] || continue
			progress="entries: $who"
			if enter "$who" near; then
				for n in "${entry_counts[@]}"; do
					entry_count=$n
					expect[entries]=$((n + 1)) # with the total
					note entries "$n" "$who" run_entries || true
				done
			else
				failures["entries ${entry_counts[0]} $who"]=$why
				progress+=" FAILED ($why)"
			fi
			leave
			echo "$progress" >&2
		done
	done
}

# One mount that does everything, and what it holds at the end.
measure_memory() {
	local who row entry_count=${entry_counts[-1]}
	for who in "${contenders[@]}"; do
		[[ $who == threadfs-* && $who != threadfs-1.0 ]] && [ -z "${absent[$who]:-}" ] || continue
		progress="memory: $who"
		if enter "$who" near; then
			for row in seq readers random put cpr find ls stats grep tar git entries; do
				"run_$row" >/dev/null 2>"$work/errors" ||
					failures["memory $row $who"]=$(tail -n 1 "$work/errors" | cut -c 1-200)
			done
			rss_kib[$who]=$(awk '$1 == "VmRSS:" { print $2 }' "/proc/$mount_pid/status")
			peak_kib[$who]=$(awk '$1 == "VmHWM:" { print $2 }' "/proc/$mount_pid/status")
			progress+=" ${rss_kib[$who]} KiB, at most ${peak_kib[$who]} KiB"
		else
			failures["memory rss $who"]=$why
			progress+=" FAILED ($why)"
		fi
		leave
		remove_put
		remove_cpr
		echo "$progress" >&2
	done
}

# shellcheck disable=SC2317 # called by the cleanup of scripts/bench
cleanup_mount() { leave; }

# pick NAME LIST CHOICE… [-- CHOICE…]: sets the array NAME to those of the comma-separated
# list; to all before the -- if it is empty.
pick() {
	local -n picked=$1
	local list=$2 one choices all
	shift 2
	choices=" $* "
	all=${choices%% -- *}
	if [ -z "$list" ]; then
		read -ra picked <<<"$all"
		return
	fi
	IFS=, read -ra picked <<<"$list"
	for one in "${picked[@]}"; do
		[ "$one" != -- ] && [[ $choices == *" $one "* ]] || die "'$one' is none of:${choices/ -- / }"
	done
}

# Three minutes are not enough for everybody: of two alike the one goes that was
# never the best, but where it is the measure.
without_the_slowest() {
	local who kept=()
	for who in "${contenders[@]}"; do
		[ "$who" = rclone ] || kept+=("$who")
	done
	contenders=("${kept[@]}")
	only_far=sshfs
}

bench_mount() {
	local row who progress limit=${quick:+15}
	: "${limit:=180}" # seconds, for one run of a workload
	declare -gA rss_kib=() peak_kib=()
	pick rows "$only" "${all_rows[@]}"
	pick contenders "$contender_list" "${all_contenders[@]}" -- "${more_contenders[@]}"
	[ -z "$quick" ] || [ -n "$contender_list" ] || without_the_slowest
	set_sizes
	need_packages "${build_packages[@]}" "${run_packages[@]}" "${test_packages[@]}" findutils grep tar
	build "$build_dir"
	programs=$(realpath "$build_dir")
	make_work 4096
	user_data=$work/data/users/default/threads/bench/user-data
	files=$user_data/workspace
	export HOME=$work/home XDG_RUNTIME_DIR=$work/run
	unset XDG_STATE_HOME XDG_CACHE_HOME XDG_CONFIG_HOME XDG_DATA_HOME
	for who in "${!THREADFS_@}"; do
		unset "$who"
	done
	echo "making files in $work" >&2
	make_files
	for who in "${contenders[@]}"; do
		prepare_contender "$who"
	done
	for row in "${rows[@]}"; do
		case $row in
		entries) measure_entries ;;
		memory) measure_memory ;;
		*) measure_row "$row" ;;
		esac
	done
	show_results
	[ -z "$json" ] || write_json "$json"
}
