/* SPDX-License-Identifier: Apache-2.0 */
/* The main() of a program that has none of its own. */
#include "tests/lib/unit.h"

int main(void)
{
	return unit_run(NULL, NULL);
}
