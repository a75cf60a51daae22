# The provider: leases of an active sandbox, cold starts against bwrap, reclaims
# against a GET. Sourced by scripts/bench, which has the helpers.
# shellcheck shell=bash
# shellcheck disable=SC2154,SC2034 # work, rounds, root, build_dir, started: scripts/bench

# measure WORKLOAD ROUNDS: its figures are in the array f. In the background, so
# that a signal to this script does not wait for it.
measure() {
	"$bench" "$disk_work" "$work" "$(realpath "$build_dir")/threadfs-sandboxd" "$1" "$2" >"$work/figures" &
	started=($!)
	wait "$!" || die "$1 failed"
	started=()
	read -ra f <"$work/figures"
}

ms() { awk -v t="$1" 'BEGIN { printf "%.2f ms", t * 1000 }'; }
share() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", a / b }'; }

bench_provider() {
	local f cores bound
	need_packages "${build_packages[@]}" "${run_packages[@]}" "${test_packages[@]}"
	build "$build_dir"
	bench=$(realpath "$build_dir")/tests/bench_provider
	# Data is on a disk; the runtime directory, as a rule, is not.
	make_work 64
	disk_work=$(mktemp -d /tmp/threadfs-bench.XXXXXX)
	chmod 755 "$disk_work"
	table workload provider reference ratio wanted verdict

	measure hot $((2 * rounds + 1))
	judge "acquire + release, one core" "${f[0]} /s" "1000000 /s" "$(share "${f[0]}" 1000000)" \
		'>=' 1
	judge "the same, 8 workers: per core of ${f[3]}" "${f[1]} /s" "${f[0]} /s" "${f[2]}" '>=' 0.5
	measure warm $((20 * rounds))
	judge "reclaim (one GET)" "$(ms "${f[0]}")" "$(ms "${f[1]}")" "$(share "${f[0]}" "${f[1]}")" - ""
	judge "reclaim: more than one GET" "$(ms "${f[2]}")" "3 ms" "$(share "${f[2]}" 0.003)" '<=' 1
	measure cold $((6 * rounds + 1))
	judge "cold acquire (bwrap … true)" "$(ms "${f[0]}")" "$(ms "${f[1]}")" \
		"$(printf %.2f "${f[3]}")" '<=' 4
	judge "cold acquire (threadfs-sandboxd alone)" "$(ms "${f[0]}")" "$(ms "${f[2]}")" \
		"$(printf %.2f "${f[4]}")" - ""
	measure crowd $((rounds + 2))
	# A start is nearly all computing. Twenty can take three times as long as one only where
	# seven of them run at a time; with fewer cores it is the cores that have to be kept busy.
	cores=$(nproc)
	if [ "$cores" -ge 7 ]; then
		bound=('<=' 3)
	else
		bound=(- "3 from 7 cores")
	fi
	judge "20 cold acquires at once (one)" "$(ms "${f[0]}")" "$(ms "${f[1]}")" \
		"$(printf %.2f "${f[2]}")" "${bound[@]}"
	judge "20 at once (20 in a row), $cores cores" "$(ms "${f[0]}")" \
		"$(awk -v t="${f[1]}" 'BEGIN { printf "%.2f ms", 20 * t * 1000 }')" \
		"$(awk -v q="${f[2]}" 'BEGIN { printf "%.2f", q / 20 }')" \
		'<=' "$(awk -v n="$cores" 'BEGIN { printf "%.2f", n < 7 ? 1.3 / n : 0.2 }')"
}
