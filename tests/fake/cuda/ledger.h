/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This process's rows in the ledger over processes, tests/lib/gpu_ledger.h, which
 * FAKE_CUDA_LEDGER names; without one these do nothing. With the lock held, but for
 * fake_ledger_open().
 */
#ifndef KVPULL_TESTS_FAKE_CUDA_LEDGER_H
#define KVPULL_TESTS_FAKE_CUDA_LEDGER_H

#include <stdint.h>

/* The process uses the driver from here on. */
void fake_ledger_open(void);

/* It has the allocation of that number, own or foreign; it has it no more. */
void fake_ledger_take(uint64_t number);
void fake_ledger_give(uint64_t number);

/* The process ends, and has nothing left, or its context is lost. */
void fake_ledger_end(void);

#endif
