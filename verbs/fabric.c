/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Symbols are looked up by name; one that is missing, unless it is optional,
 * makes the route unsupported. The libraries are never unloaded: their
 * providers do not expect it.
 */
#include "verbs/fabric.h"

#include <dlfcn.h>
#include <string.h>

struct symbol {
	const char *name;
	size_t offset;
	int is_optional;
};

#define CM_SYMBOL(symbol)                                                      \
	{ "rdma_" #symbol, offsetof(struct kvpull_fabric, cm.symbol), 0 },
#define IBV_SYMBOL(symbol)                                                     \
	{ "ibv_" #symbol, offsetof(struct kvpull_fabric, ibv.symbol), 0 },

/* clang-format off */
static const struct symbol symbols[] = {
	KVPULL_FABRIC_CM(CM_SYMBOL)
	KVPULL_FABRIC_IBV(IBV_SYMBOL)
	{ "ibv_reg_dmabuf_mr",
	  offsetof(struct kvpull_fabric, ibv.reg_dmabuf_mr), 1 },
	{ "_ibv_query_gid_ex", offsetof(struct kvpull_fabric, ibv.query_gid), 0 },
	{ "ibv_query_port", offsetof(struct kvpull_fabric, ibv.query_port), 0 },
};
/* clang-format on */

int kvpull_fabric_load(struct kvpull_fabric *fabric,
		       const struct kvpull_log *log, uint32_t level)
{
	/*
	 * librdmacm loads libibverbs, whose symbols are found through the same
	 * handle.
	 */
	void *const handle = dlopen("librdmacm.so.1", RTLD_NOW | RTLD_LOCAL);
	size_t i;

	if (!handle) {
		kvpull_log(log, level, "verbs: no RDMA on this host: %s",
			   dlerror());
		return KVPULL_EUNSUPPORTED;
	}
	for (i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		void *const found = dlsym(handle, symbols[i].name);

		if (!found && !symbols[i].is_optional) {
			kvpull_log(
				log, level,
				"verbs: librdmacm and libibverbs are too old: they have no %s",
				symbols[i].name);
			return KVPULL_EUNSUPPORTED;
		}
		/* ISO C has no cast from an object to a function pointer. */
		memcpy((uint8_t *)fabric + symbols[i].offset, &found,
		       sizeof(found));
	}
	return 0;
}

int kvpull_fabric_port(const struct kvpull_fabric *fabric,
		       struct ibv_context *context, uint8_t port,
		       struct ibv_port_attr *attr)
{
	const struct verbs_context *extended = verbs_get_ctx(context);

	memset(attr, 0, sizeof(*attr));
	/* As the header's inline does, but without linking to the library. */
	if (extended &&
	    extended->sz >= sizeof(*extended) - offsetof(struct verbs_context,
							 query_port) &&
	    extended->query_port)
		return extended->query_port(context, port, attr,
					    sizeof(*attr)) ?
			       KVPULL_EDEVICE :
			       0;
	return fabric->ibv.query_port(
		       context, port,
		       (struct _compat_ibv_port_attr *)(void *)attr) ?
		       KVPULL_EDEVICE :
		       0;
}
