/* Counting leases: every acquire counts one, every release one less, the last one parks. */
#include <errno.h>

#include "rig.h"

static void test_acquire_starts_and_release_parks(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = rig_tenant(r, "a");

	assert_int_equal(tenant_try_acquire(t), -EAGAIN);
	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(rig_state(t), TENANT_ACTIVE);
	assert_int_equal(rig_leases(t), 1);
	assert_int_equal(rig_ping(t), 0);
	assert_int_equal(rig_processes(r), 1);
	assert_int_equal(tenant_release(t), 0);
	assert_int_equal(rig_state(t), TENANT_WARM);
	assert_int_equal(rig_processes(r), 1);
	tenant_put(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(test_acquire_starts_and_release_parks),
	};

	return RIG_RUN(tests);
}
