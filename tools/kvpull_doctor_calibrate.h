/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures which routine copies which size fastest on this CPU, with cold
 * memory. The doctor remembers the result (copy_choice.h); no worker waits for it.
 */
#ifndef KVPULL_TOOLS_DOCTOR_CALIBRATE_H
#define KVPULL_TOOLS_DOCTOR_CALIBRATE_H

#include "shm/copy_plan.h"

/*
 * Takes 1 GiB for some seconds; less where four times as much is not free, and
 * 128 MiB at least. Return: 0; KVPULL_ENOMEM: there are no 256 MiB; KVPULL_EDEVICE:
 * not as shared memory (ulimit -f); KVPULL_EAGAIN: this machine is too busy, try
 * again later.
 */
int KVPULL_MUST_CHECK doctor_calibrate(struct kvpull_copy_choices *choices);

#endif /* KVPULL_TOOLS_DOCTOR_CALIBRATE_H */
