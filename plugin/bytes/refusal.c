/* SPDX-License-Identifier: Apache-2.0 */
/* Texts of refusals: the field that differs and both values. Pure. */
#include "plugin/bytes/handshake.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void kvpull_refusal_texts(struct kvpull_refusal *refusal, int32_t code,
			  const char *field, const char *ours,
			  const char *theirs)
{
	memset(refusal, 0, sizeof(*refusal));
	refusal->code = code;
	(void)snprintf(refusal->field, sizeof(refusal->field), "%s", field);
	(void)snprintf(refusal->ours, sizeof(refusal->ours), "%s", ours);
	(void)snprintf(refusal->theirs, sizeof(refusal->theirs), "%s", theirs);
}

void kvpull_refusal_numbers(struct kvpull_refusal *refusal, int32_t code,
			    const char *field, uint64_t ours, uint64_t theirs)
{
	char our_text[24];
	char their_text[24];

	(void)snprintf(our_text, sizeof(our_text), "%" PRIu64, ours);
	(void)snprintf(their_text, sizeof(their_text), "%" PRIu64, theirs);
	kvpull_refusal_texts(refusal, code, field, our_text, their_text);
}

void kvpull_refusal_version(struct kvpull_refusal *refusal,
			    const struct kvpull_sealed *sealed)
{
	kvpull_refusal_numbers(refusal, KVPULL_EVERSION, "",
			       KVPULL_WIRE_VERSION, sealed->version);
	(void)snprintf(refusal->field, sizeof(refusal->field),
		       "wire version (by %s)",
		       sealed->unknown[0] ? sealed->unknown : "message kind");
}

void kvpull_refusal_hello(struct kvpull_refusal *refusal, int32_t code,
			  const struct kvpull_sealed *sealed)
{
	if (code == KVPULL_EVERSION)
		kvpull_refusal_version(refusal, sealed);
	else
		kvpull_refusal_numbers(refusal, code,
				       code == KVPULL_EAUTH ? "key_file" :
							      "hello",
				       KVPULL_WIRE_VERSION, 0);
}

int kvpull_refusal_compare(const struct kvpull_table *table, const void *ours,
			   const void *theirs, struct kvpull_refusal *refusal)
{
	struct kvpull_fields_difference difference;

	_Static_assert(sizeof(difference.name) == sizeof(refusal->field) &&
			       sizeof(difference.ours) == sizeof(refusal->ours),
		       "a difference fits a refusal");
	if (!kvpull_fields_differ(table, ours, theirs, &difference))
		return 0;
	memset(refusal, 0, sizeof(*refusal));
	refusal->code = KVPULL_EREJECTED;
	memcpy(refusal->field, difference.name, sizeof(refusal->field));
	memcpy(refusal->ours, difference.ours, sizeof(refusal->ours));
	memcpy(refusal->theirs, difference.theirs, sizeof(refusal->theirs));
	return KVPULL_EREJECTED;
}
