/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a counter begins that may pass its end while a process lives: in debug
 * builds a little before it, so that every test sees it wrap. On the wire it
 * is counted from here: debug builds and others talk with each other.
 */
#ifndef KVPULL_BASE_WRAP_H
#define KVPULL_BASE_WRAP_H

#include <stdint.h>

#ifdef KVPULL_DEBUG
#define KVPULL_WRAP_START UINT32_C(0xfffffff9)
#else
#define KVPULL_WRAP_START UINT32_C(0)
#endif

#endif /* KVPULL_BASE_WRAP_H */
