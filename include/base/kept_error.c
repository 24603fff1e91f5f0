/* SPDX-License-Identifier: Apache-2.0 */
#include "base/kept_error.h"

#include "base/params.h"

static void kept_write(void *context, uint32_t level, const char *message)
{
	struct kvpull_kept_error *kept = context;

	if (level == KVPULL_LOG_ERROR)
		(void)snprintf(kept->message, sizeof(kept->message), "%s",
			       message);
	if (kept->log.write && level <= kept->log.level)
		kept->log.write(kept->log.context, level, message);
}

static void kept_fatal(void *context, const char *message)
{
	const struct kvpull_kept_error *kept = context;

	if (kept->log.fatal)
		kept->log.fatal(kept->log.context, message);
}

void kvpull_kept_begin(struct kvpull_log *log, struct kvpull_kept_error *kept)
{
	kept->log = *log;
	kept->message[0] = '\0';
	log->write = kept_write;
	log->fatal = kept_fatal;
	log->context = kept;
	if (!kept->log.write)
		log->level = KVPULL_LOG_ERROR;
}

int kvpull_kept_end(struct kvpull_log *log,
		    const struct kvpull_kept_error *kept, int code,
		    struct kvpull_error_detail *detail)
{
	*log = kept->log;
	return code ? kvpull_detail_set(
			      detail, code, "", "%s",
			      kept->message[0] ?
				      kept->message :
				      "an operation of this host failed: see the log") :
		      0;
}
