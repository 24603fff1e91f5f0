/* SPDX-License-Identifier: Apache-2.0 */
/* Libraries of engines whose blocks are a file: for node_params.library. */
#ifndef KVPULL_TESTS_SCENARIO_FILE_LIBRARY_H
#define KVPULL_TESTS_SCENARIO_FILE_LIBRARY_H

#include "kvpull/connector.h"

/* P's: of two halves of its memory the second is a file's. */
const struct kvpull_connector_ops *file_library_mixed(void);
/* A library whose regions are all files. */
const struct kvpull_connector_ops *file_library_only(void);

/* From now on no pread() of an unnamed file of this process returns. */
void file_disk_hangs(void);
/* D's: it is unloaded behind its close, and then the disk goes on. */
const struct kvpull_connector_ops *file_library_unloading(void);

#endif /* KVPULL_TESTS_SCENARIO_FILE_LIBRARY_H */
