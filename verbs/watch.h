/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one descriptor tells of: completions of each device, what each says of
 * itself, the CM, a timer.
 */
#ifndef KVPULL_VERBS_WATCH_H
#define KVPULL_VERBS_WATCH_H

#include "verbs/endpoint.h"

/*
 * What it tells: a device's completions by its index, what it says of itself by
 * its index and TAG_ASYNC, or one of the others.
 */
#define KVPULL_VERBS_TAG_ASYNC KVPULL_VERBS_RAILS_MAX
#define KVPULL_VERBS_TAG_CM (2 * KVPULL_VERBS_RAILS_MAX)
#define KVPULL_VERBS_TAG_TIMER (KVPULL_VERBS_TAG_CM + 1)
#define KVPULL_VERBS_WATCHED_MAX (KVPULL_VERBS_TAG_CM + 2)

struct kvpull_verbs_watch {
	int fd;
};

/* 0, or -1 and errno. */
int KVPULL_MUST_CHECK
kvpull_verbs_watch_add(const struct kvpull_verbs_watch *watch, int fd,
		       uint32_t tag);
/* One of those that share a context is listened to for all. */
int KVPULL_MUST_CHECK
kvpull_verbs_watch_device(const struct kvpull_verbs_watch *watch,
			  const struct kvpull_verbs_device *devices,
			  uint32_t index);
void kvpull_verbs_watch_remove(const struct kvpull_verbs_watch *watch, int fd);

#endif /* KVPULL_VERBS_WATCH_H */
