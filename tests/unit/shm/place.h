/* SPDX-License-Identifier: Apache-2.0 */
/* A folder for sockets, and what is said of a call that the kernel refuses. */
#ifndef KVPULL_TESTS_UNIT_SHM_PLACE
#define KVPULL_TESTS_UNIT_SHM_PLACE

#include "shm/folder.h"
#include "tests/lib/refuse.h"
#include "tests/unit/shm/world.h"

struct row {
	struct refuse refused;
	int code;
	const char *said; /* "": no line */
};

struct place {
	char path[64];
	struct kvpull_folder folder;
	struct kvpull_log log;
	uint32_t fds_at_start;
};

static inline void place_begin(struct place *place)
{
	memset(place, 0, sizeof(*place));
	place->fds_at_start = fds_open();
	(void)snprintf(place->path, sizeof(place->path),
		       "/tmp/kvpull-test-XXXXXX");
	assert_non_null(mkdtemp(place->path));
	lines_forget();
	place->log = lines_from(KVPULL_LOG_WARN);
	place->folder = (struct kvpull_folder){ .path = place->path, .fd = -1 };
	assert_int_equal(kvpull_folder_open(&place->folder, &place->log), 0);
}

static inline void place_end(struct place *place)
{
	kvpull_folder_close(&place->folder);
	/* Nothing is left in it. */
	assert_int_equal(rmdir(place->path), 0);
	assert_int_equal(fds_open(), place->fds_at_start);
}

static inline void place_listen(const struct place *place,
				struct kvpull_listener *listener)
{
	assert_int_equal(kvpull_listener_open(listener, &place->folder, "p", 0,
					      &place->log),
			 0);
}

/* A call with that row's refusal returned `code`: it and its line are right. */
static inline void row_check(const struct row *row, int code, uint32_t level)
{
	assert_int_equal(refuse_end(), 1);
	assert_int_equal(code, row->code);
	assert_int_equal(lines.bad_count, row->said[0] ? 1 : 0);
	if (row->said[0]) {
		assert_non_null(strstr(lines.bad, row->said));
		assert_int_equal(lines.level, level);
	}
	lines_forget();
}

#endif /* KVPULL_TESTS_UNIT_SHM_PLACE */
