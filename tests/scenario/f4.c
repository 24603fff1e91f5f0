/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/scenario/scenario.h"

const struct scenario_case scenario_f4[] = {
	{ 0 },
};
