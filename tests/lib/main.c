/* SPDX-License-Identifier: Apache-2.0 */
/* Of a program that has no main() of its own. */
#include "tests/lib/unit.h"

int main(void)
{
	return unit_run(NULL, NULL);
}
