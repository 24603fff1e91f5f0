/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel of gather.cu as PTX, which the driver compiles for its GPU. */
#ifndef KVPULL_CUDA_PTX_H
#define KVPULL_CUDA_PTX_H

/* The text of gather.ptx, and a zero. */
extern const char kvpull_cuda_ptx[] __attribute__((visibility("hidden")));

#endif /* KVPULL_CUDA_PTX_H */
