/* SPDX-License-Identifier: Apache-2.0 */
/* A reader's handle of the smallest model, as a host opens it by the ABI. */
#ifndef KVPULL_TESTS_LIB_HOST_READER_H
#define KVPULL_TESTS_LIB_HOST_READER_H

#include "kvpull/reader.h"

struct host_reader {
	const char *engine_id;
	const char *config;
	const char *weights;            /* NULL: "w" */
	const struct kvpull_host *host; /* NULL: none */
};

/* Return: what open() says. @detail: NULL, or its struct_size is set. */
static inline int host_reader_open(const struct kvpull_reader_ops *ops,
				   const struct host_reader *reader,
				   struct kvpull_reader **handle,
				   struct kvpull_error_detail *detail)
{
	const struct kvpull_model model = {
		.struct_size = sizeof(model),
		.model = "m",
		.weights = reader->weights ? reader->weights : "w",
		.dtype = "u8",
		.layout = "LBHNC",
	};
	const struct kvpull_reader_naming naming = {
		.struct_size = sizeof(naming), .model = &model, .hash = "sha256"
	};
	const struct kvpull_reader_params params = {
		.struct_size = sizeof(params),
		.host = reader->host,
		.config_json = reader->config,
		.naming = &naming,
		.engine_id = reader->engine_id,
	};

	return ops->open(&params, handle, detail);
}

#endif /* KVPULL_TESTS_LIB_HOST_READER_H */
