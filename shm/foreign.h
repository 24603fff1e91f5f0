/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads of memory that the peer did not give us a descriptor of:
 * process_vm_readv. It needs the peer's pid in our namespace and ptrace rights
 * over it; reading an entry once, at attach, tries both.
 *
 * A pid may become another process's. That does no harm to data, which is not
 * believed before the entry was read: after that the pidfd is looked at, and if
 * the peer lives then, all that was read before was its memory.
 */
#ifndef KVPULL_SHM_FOREIGN_H
#define KVPULL_SHM_FOREIGN_H

#include "base/rows.h"
#include "base/transport.h"

struct kvpull_foreign {
	int32_t pid; /* from SO_PEERCRED, > 0 */
	/* Per region: mapped here, or NULL and its address in the peer. */
	const uint8_t *const *mapped;
	const uint64_t *remote_address;
};

/**
 * Go on with a read for at most byte_max bytes.
 * Return: 0: all was read; 1: more is left; KVPULL_EREAD (a range is not
 * there), KVPULL_EPEER (no such process).
 */
int KVPULL_MUST_CHECK kvpull_foreign_read(const struct kvpull_foreign *foreign,
					  const struct kvpull_read *read,
					  struct kvpull_rows_cursor *cursor,
					  uint64_t byte_max);

/* The entry at that address of the peer. 0, KVPULL_EREAD, KVPULL_EPEER. */
int KVPULL_MUST_CHECK
kvpull_foreign_entry(int32_t pid, uint64_t address,
		     struct kvpull_revocation_value *value);

#endif /* KVPULL_SHM_FOREIGN_H */
