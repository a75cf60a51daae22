# The mount against a directory of the host: the same random operations (twins.py) have
# the same outcomes. A failure names its seed; `SEEDS="7 8" STEPS=5000` tries others.

load ../lib/mount

setup() {
	mount_setup
}

teardown() {
	teardown_mount
}

@test "a directory of the host and one of the mount do the same" {
	local seed

	mount_start
	thread
	for seed in ${SEEDS:-1 22 30}; do
		mkdir "$T/local.$seed" "workspace/$seed"
		"$PYTHON" "$BATS_TEST_DIRNAME/twins.py" "$T/local.$seed" "$W/workspace/$seed" \
			"$seed" "${STEPS:-$((600 / SLOW))}"
	done
}
