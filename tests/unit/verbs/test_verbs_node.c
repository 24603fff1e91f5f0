/* SPDX-License-Identifier: Apache-2.0 */
/* Which node memory lies on, by a sample of its pages. */
#include <errno.h>

#include "tests/unit/verbs/world.h"
#include "verbs/node.h"

#define REGION_BYTES (UINT64_C(1) << 20)

static uint8_t *const bases[] = { (uint8_t *)0x10000000,
				  (uint8_t *)0x20000000 };
static int first, second; /* nodes of both halves of the first region */
static int other;         /* of the second region */

static int node_of_page(const void *page)
{
	const uint8_t *at = page;

	if (at >= bases[1])
		return other;
	return at < bases[0] + REGION_BYTES / 2 ? first : second;
}

static int32_t node_by(int one, int two, int three)
{
	static struct kvpull_serve serve;

	first = one;
	second = two;
	other = three;
	world_node = node_of_page;
	serve.region_count = 2;
	serve.regions[0] = (struct kvpull_region_view){ .base = bases[0],
							.bytes = REGION_BYTES };
	serve.regions[1] = (struct kvpull_region_view){ .base = bases[1],
							.bytes = REGION_BYTES };
	return kvpull_verbs_node_of(&serve);
}

UNIT_TEST(memory_is_where_most_of_its_pages_are)
{
	assert_int_equal(node_by(0, 0, 0), 0);
	assert_int_equal(node_by(3, 3, 3), 3);
	assert_int_equal(node_by(1, 0, 1), 1);
	/* Half and half. */
	assert_int_equal(node_by(1, 1, 0), -1);
	assert_int_equal(node_by(0, 1, 2), -1);
	/* Nobody has touched a part, or all. */
	assert_int_equal(node_by(-ENOENT, 2, -ENOENT), 2);
	assert_int_equal(node_by(-ENOENT, -ENOENT, -ENOENT), -1);
}

UNIT_TEST(memory_is_nowhere_where_the_kernel_may_not_be_asked)
{
	(void)node_by(1, 1, 1);
	world_node = NULL;
	assert_int_equal(kvpull_verbs_node_of(&(struct kvpull_serve){ 0 }), -1);
}
