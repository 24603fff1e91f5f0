/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which routine for which size, on this CPU, with cold memory. Measured once a
 * process: the answer does not depend on who asks.
 */
#ifndef KVPULL_SHM_COPY_CALIBRATE_H
#define KVPULL_SHM_COPY_CALIBRATE_H

#include "shm/copy_plan.h"

/* The first caller measures (tens of ms), others wait; then it costs ns. */
void kvpull_copy_calibrate(const struct kvpull_log *log);

/* After calibrate(): what to use now, forced or chosen. */
void kvpull_copy_choices_get(struct kvpull_copy_choices *choices);

#endif /* KVPULL_SHM_COPY_CALIBRATE_H */
