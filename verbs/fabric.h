/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls of librdmacm and libibverbs that this route makes, as a table:
 * filled from the host's libraries at open, or by the fake of tests/fake. So a
 * host without RDMA libraries loads kvpull all the same and says what it lacks.
 *
 * What the headers inline (ibv_post_send, ibv_post_recv, ibv_poll_cq,
 * ibv_req_notify_cq) goes through the context's own table, and a fake context
 * has a fake one.
 */
#ifndef KVPULL_VERBS_FABRIC_H
#define KVPULL_VERBS_FABRIC_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "base/log.h"

#define KVPULL_FABRIC_CM(X)                                                    \
	X(create_event_channel)                                                \
	X(destroy_event_channel)                                               \
	X(create_id)                                                           \
	X(destroy_id)                                                          \
	X(bind_addr)                                                           \
	X(resolve_addr)                                                        \
	X(resolve_route)                                                       \
	X(init_qp_attr)                                                        \
	X(connect)                                                             \
	X(listen)                                                              \
	X(accept)                                                              \
	X(establish)                                                           \
	X(reject)                                                              \
	X(disconnect)                                                          \
	X(get_cm_event)                                                        \
	X(ack_cm_event)                                                        \
	X(get_src_port)                                                        \
	X(get_devices)                                                         \
	X(free_devices)                                                        \
	X(set_option)                                                          \
	X(event_str)

#define KVPULL_FABRIC_IBV(X)                                                   \
	X(get_device_name)                                                     \
	X(query_device)                                                        \
	X(alloc_pd)                                                            \
	X(dealloc_pd)                                                          \
	X(reg_mr)                                                              \
	X(dereg_mr)                                                            \
	X(create_comp_channel)                                                 \
	X(destroy_comp_channel)                                                \
	X(create_cq)                                                           \
	X(destroy_cq)                                                          \
	X(create_qp)                                                           \
	X(modify_qp)                                                           \
	X(destroy_qp)                                                          \
	X(get_cq_event)                                                        \
	X(ack_cq_events)                                                       \
	X(get_async_event)                                                     \
	X(ack_async_event)                                                     \
	X(wc_status_str)

/* clang-format off */
#define KVPULL_FABRIC_CM_MEMBER(name) __typeof__(&(rdma_##name))(name);
#define KVPULL_FABRIC_IBV_MEMBER(name) __typeof__(&(ibv_##name))(name);

struct kvpull_fabric {
	struct {
		KVPULL_FABRIC_CM(KVPULL_FABRIC_CM_MEMBER)
	} cm;
	struct {
		KVPULL_FABRIC_IBV(KVPULL_FABRIC_IBV_MEMBER)
		/* Since rdma-core 34; NULL before. */
		__typeof__(&ibv_reg_dmabuf_mr) reg_dmabuf_mr;
		/* These two are macros or inline over another symbol. */
		__typeof__(&_ibv_query_gid_ex) query_gid;
		int (*query_port)(struct ibv_context *context, uint8_t port,
				  struct _compat_ibv_port_attr *attr);
	} ibv;
};
/* clang-format on */

/*
 * Load both libraries; they stay loaded. 0, or KVPULL_EUNSUPPORTED and one
 * line of this level that says which is missing.
 */
int KVPULL_MUST_CHECK kvpull_fabric_load(struct kvpull_fabric *fabric,
					 const struct kvpull_log *log,
					 uint32_t level);

/* All of the port's attributes, also those that the symbol does not know. */
int KVPULL_MUST_CHECK kvpull_fabric_port(const struct kvpull_fabric *fabric,
					 struct ibv_context *context,
					 uint8_t port,
					 struct ibv_port_attr *attr);

#endif /* KVPULL_VERBS_FABRIC_H */
