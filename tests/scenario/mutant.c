/* SPDX-License-Identifier: Apache-2.0 */
/* See mutant.h; mutant.sh does the work. */
#include "tests/scenario/mutant.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/scenario/scenario.h"

#define SCRIPT "tests/scenario/mutant.sh"

/* In the folder that make runs in, else above <root>/build/<variant>/. */
static void script_find(const char *build, char *script, size_t bytes)
{
	(void)snprintf(script, bytes, "./" SCRIPT);
	if (access(script, X_OK))
		(void)snprintf(script, bytes, "%.4000s/../../" SCRIPT, build);
	scenario_check(!access(script, X_OK),
		       "no source tree here or beside the program");
}

void mutant_use(const char *name, const char *file, const char *sed)
{
	char build[PATH_MAX];
	char script[PATH_MAX + 64];
	char command[4 * PATH_MAX];
	char library[PATH_MAX] = "";
	const ssize_t used =
		readlink("/proc/self/exe", build, sizeof(build) - 1);
	const char *made = getenv("KVPULL_TEST_MUTANT");
	FILE *output;
	char *slash;

	if (made && *made) {
		(void)setenv("KVPULL_TEST_LIBRARY", made, 1);
		return;
	}
	scenario_check(used > 0, "no /proc");
	build[used] = '\0';
	slash = strrchr(build, '/');
	*slash = '\0';
	script_find(build, script, sizeof(script));
	(void)snprintf(command, sizeof(command), "'%s' '%s' '%s' '%s' '%s'",
		       script, build, name, file, sed);
	/* A test's shell, with a command of its own making. */
	output = popen(command, "re");
	scenario_check(output && fgets(library, sizeof(library), output),
		       "the mutant %s was not built", name);
	scenario_check(!pclose(output), "the mutant %s was not built", name);
	library[strcspn(library, "\n")] = '\0';
	(void)setenv("KVPULL_TEST_LIBRARY", library, 1);
}
