/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library that is broken on purpose, or of another version: what shows that
 * a case can fail.
 */
#ifndef KVPULL_TESTS_MUTANT_H
#define KVPULL_TESTS_MUTANT_H

/*
 * Copy the source tree, change one file by a sed script, build the library:
 * engines load that one from here on. Objects of the build that this program
 * belongs to are taken over, so that only what was changed is compiled. Where
 * there is no compiler KVPULL_TEST_MUTANT names one that was built before.
 */
void mutant_use(const char *name, const char *file, const char *sed);

#endif /* KVPULL_TESTS_MUTANT_H */
