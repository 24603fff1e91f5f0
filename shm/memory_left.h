/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much memory this process may still take before something is killed or
 * swapped: what the machine has free, and what the control groups that it is in
 * leave it. A guess: others take memory, too.
 */
#ifndef KVPULL_SHM_MEMORY_LEFT_H
#define KVPULL_SHM_MEMORY_LEFT_H

#include <stdint.h>

/* Below `root`, "" but in tests. UINT64_MAX: nobody says. */
uint64_t kvpull_memory_left(const char *root);

#endif /* KVPULL_SHM_MEMORY_LEFT_H */
