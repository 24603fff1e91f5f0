/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gather.ptx in the library, as the text that it is and a zero behind it. The
 * assembler takes it in, so that building needs no other program.
 */
#include "cuda/ptx.h"

__asm__(".pushsection .rodata\n"
	".globl kvpull_cuda_ptx\n"
	".hidden kvpull_cuda_ptx\n"
	".type kvpull_cuda_ptx, %object\n"
	"kvpull_cuda_ptx:\n"
	".incbin \"cuda/gather.ptx\"\n"
	".byte 0\n"
	".size kvpull_cuda_ptx, . - kvpull_cuda_ptx\n"
	".popsection\n");
