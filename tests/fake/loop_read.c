/* SPDX-License-Identifier: Apache-2.0 */
/* A read is told once, before its peer's end; what was cut says how far it came. */
#include "tests/fake/loop_state.h"

/* Bytes of a read, in the order of strips, ids and rows, up to so many. */
static uint64_t copy(const struct kvpull_read *read,
		     const struct kvpull_serve *serve, uint64_t bytes_max)
{
	uint64_t bytes = 0;
	uint32_t strip, id, row;

	for (strip = 0; strip < read->strip_count; strip++) {
		const struct kvpull_strip *at = &read->strips[strip];
		const uint8_t *from = serve->regions[at->region_index].base +
				      at->remote_offset;

		for (id = read->group_first[at->group_index];
		     id < read->group_first[at->group_index + 1]; id++)
			for (row = 0; row < at->row_count; row++) {
				if (bytes + at->row_bytes > bytes_max)
					return bytes;
				memcpy(at->local +
					       read->local_ids[id] *
						       at->local_block_stride +
					       row * at->local_row_stride,
				       from +
					       read->remote_ids[id] *
						       at->remote_block_stride +
					       row * at->remote_row_stride,
				       at->row_bytes);
				bytes += at->row_bytes;
			}
	}
	return bytes;
}

const struct kvpull_serve *loop_serve_of(const struct conn *conn)
{
	return !conn->over && conn->server ? conn->server->serve : NULL;
}

static void check(const struct kvpull_read *read,
		  const struct kvpull_serve *serve)
{
	uint32_t at;

	for (at = 0; at < read->slot_count; at++)
		read->entries[at] = kvpull_revocation_read(
			&serve->entries[read->slots[at]]);
}

static void read_work(struct open_read *open)
{
	const struct kvpull_serve *serve = loop_serve_of(open->conn);

	open->is_over = 1;
	if (!serve)
		open->code = KVPULL_EPEER;
	else if (open->checks)
		check(open->read, serve);
	else
		(void)copy(open->read, serve, UINT64_MAX);
}

void loop_reads_end(struct end *end, const struct conn *conn, int32_t code)
{
	uint32_t at;

	for (at = 0; at < READS; at++) {
		struct open_read *open = &end->reads[at];

		if (!open->read || open->conn != conn || open->is_over)
			continue;
		open->is_over = 1;
		open->code = code;
		if (code == KVPULL_EABORTED && !open->checks &&
		    loop_serve_of(conn))
			open->read->done_bytes = copy(
				open->read, loop_serve_of(conn),
				below(end->net,
				      (uint32_t)open->read->byte_count + 1));
	}
}

static void cut(struct end *end, struct conn *conn)
{
	end->net->counts.cuts++;
	end->was_cut[conn->peer] = 1;
	loop_reads_end(end, conn, KVPULL_EABORTED);
	loop_conn_end(conn, end, KVPULL_EABORTED);
}

/* 0: it may be read. */
static int peer_code(const struct end *end, uint32_t peer)
{
	const struct conn *conn = end->peers[peer];

	if (end->was_cut[peer])
		return KVPULL_EABORTED;
	return conn && conn->attached && loop_serve_of(conn) ? 0 : KVPULL_EPEER;
}

static int read_open(struct end *end, uint32_t peer, struct kvpull_read *read,
		     uint32_t checks)
{
	struct open_read *open = &end->reads[read->index];
	const int code = peer_code(end, peer);

	must(read->index < READS && !open->read, "a read is begun twice");
	if (code)
		return code;
	/* A read of guard slots is never refused with EAGAIN. */
	if (!checks && again(end))
		return KVPULL_EAGAIN;
	*open = (struct open_read){
		.read = read,
		.conn = end->peers[peer],
		.peer = peer,
		.checks = checks,
		.due_ns = due(end),
		.number = ++end->net->reads,
	};
	if (!checks && read->done_bytes)
		end->net->counts.resumes++;
	if (chance(end->net, 800))
		return 0;
	read_work(open);
	open->read = NULL;
	return open->code ? open->code : 1;
}

int loop_read_start(struct kvpull_transport *transport, uint32_t peer,
		    struct kvpull_read *read)
{
	return read_open(of(transport), peer, read, 0);
}

int loop_check_start(struct kvpull_transport *transport, uint32_t peer,
		     struct kvpull_read *read)
{
	return read_open(of(transport), peer, read, 1);
}

void loop_read_cancel(struct kvpull_transport *transport, uint32_t peer,
		      struct kvpull_read *read)
{
	struct open_read *open = &of(transport)->reads[read->index];

	(void)peer;
	must(open->read == read, "a read is cancelled that is not open");
	if (open->is_over)
		return;
	open->is_over = 1;
	open->code = KVPULL_EABORTED;
}

int loop_read_tell(struct end *end, struct open_read *open,
		   struct kvpull_event *event)
{
	uint32_t at;

	if (!open->read || (!open->is_over && open->due_ns > end->now_ns))
		return 0;
	if (!open->is_over && !open->checks &&
	    chance(end->net, end->net->cut_chance))
		cut(end, open->conn);
	if (!open->is_over)
		read_work(open);
	for (at = 0; at < READS; at++)
		end->net->counts.reorders +=
			end->reads[at].read &&
			end->reads[at].number < open->number;
	*event = (struct kvpull_event){
		.kind = open->checks ? KVPULL_EVENT_CHECK_DONE :
				       KVPULL_EVENT_READ_DONE,
		.read = open->read,
		.code = open->code,
	};
	open->read = NULL;
	return 1;
}

int loop_has_reads(const struct end *end, const struct conn *conn)
{
	uint32_t at;

	for (at = 0; at < READS; at++)
		if (end->reads[at].read && end->reads[at].conn == conn)
			return 1;
	return 0;
}
