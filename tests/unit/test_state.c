/* The states of a tenant: every pair of them is either an edge or not, as written here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "provider_i.h"

/* Rows: from; columns: to, in the order of the enum. */
static const char *const matrix[TENANT_STATES] = {
	/*		      cold starting active warm stopping failed */
	[TENANT_COLD] = "     .    x        .      .    x        .     ",
	[TENANT_STARTING] = " x    .        x      x    x        x     ",
	[TENANT_ACTIVE] = "   .    .        .      x    x        .     ",
	[TENANT_WARM] = "     .    x        .      .    x        .     ",
	[TENANT_STOPPING] = " x    .        .      x    .        x     ",
	[TENANT_FAILED] = "   .    x        .      .    x        .     ",
};

static bool is_edge(enum tenant_state from, enum tenant_state to)
{
	const char *cell = matrix[from];

	for (unsigned i = 0;; i++, cell++) {
		cell += strcspn(cell, ".x");
		assert_int_not_equal(*cell, '\0');
		if (i == to)
			return *cell == 'x';
	}
}

static void test_every_pair_of_states(void **state)
{
	for (enum tenant_state from = 0; from < TENANT_STATES; from++) {
		for (enum tenant_state to = 0; to < TENANT_STATES; to++) {
			if (tenant_edge_is_legal(from, to) == is_edge(from, to))
				continue;
			fail_msg("%s -> %s", tenant_state_name(from), tenant_state_name(to));
		}
	}
}

/* What no edge may ever do: hand out what is being stopped, or stay where it is. */
static void test_what_is_being_stopped_is_never_handed_out(void **state)
{
	assert_false(tenant_edge_is_legal(TENANT_STOPPING, TENANT_ACTIVE));
	assert_false(tenant_edge_is_legal(TENANT_STOPPING, TENANT_STARTING));
	assert_false(tenant_edge_is_legal(TENANT_FAILED, TENANT_ACTIVE));
	assert_false(tenant_edge_is_legal(TENANT_COLD, TENANT_ACTIVE));
	assert_false(tenant_edge_is_legal(TENANT_WARM, TENANT_ACTIVE)); /* not unchecked */
	for (enum tenant_state s = 0; s < TENANT_STATES; s++)
		assert_false(tenant_edge_is_legal(s, s));
}

static void test_every_state_has_a_name_of_its_own(void **state)
{
	static const char *const names[TENANT_STATES] = { "cold", "starting", "active",
							  "warm", "stopping", "failed" };

	for (enum tenant_state s = 0; s < TENANT_STATES; s++) {
		assert_non_null(tenant_state_name(s));
		assert_string_equal(tenant_state_name(s), names[s]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_pair_of_states),
		cmocka_unit_test(test_what_is_being_stopped_is_never_handed_out),
		cmocka_unit_test(test_every_state_has_a_name_of_its_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
