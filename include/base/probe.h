/* SPDX-License-Identifier: Apache-2.0 */
/*
 * USDT probes: a no-op instruction each, and a note in the binary that says
 * where it is and what is in which register there. kvpull(7) lists them. Without
 * the header of systemtap-sdt-dev there are none.
 */
#ifndef KVPULL_BASE_PROBE_H
#define KVPULL_BASE_PROBE_H

#if defined(__has_include)
#if __has_include(<sys/sdt.h>)
#include <sys/sdt.h>
#ifdef __clang__
/* The macros of sys/sdt.h expand here, and clang warns of them. */
#pragma clang diagnostic ignored "-Wgnu-zero-variadic-macro-arguments"
#endif
#define KVPULL_PROBE5(name, a, b, c, d, e)                                     \
	DTRACE_PROBE5(kvpull, name, a, b, c, d, e)
#endif
#endif

#ifndef KVPULL_PROBE5
#define KVPULL_PROBE5(name, a, b, c, d, e)                                     \
	((void)(a), (void)(b), (void)(c), (void)(d), (void)(e))
#endif

#endif /* KVPULL_BASE_PROBE_H */
