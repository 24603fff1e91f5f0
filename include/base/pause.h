/* SPDX-License-Identifier: Apache-2.0 */
/* For who spins: the other half of the core has more of it meanwhile. */
#ifndef KVPULL_BASE_PAUSE_H
#define KVPULL_BASE_PAUSE_H

static inline void kvpull_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ __volatile__("yield");
#endif
}

#endif /* KVPULL_BASE_PAUSE_H */
