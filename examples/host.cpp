// SPDX-License-Identifier: Apache-2.0
// host.c in C++17: the same lines on the pipe, the same ends of every request.
//
//   c++ -std=c++17 host.cpp $(pkg-config --cflags --libs kvpull) -o host
//   ./host prefill 1000 | ./host decode
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <poll.h>
#include <stdexcept>
#include <string>
#include <vector>

#include <kvpull/connector.h>

static const kvpull_connector_ops *const ops = kvpull_connector_v1();
constexpr uint32_t block_count = 64, block_bytes = 4096, block_tokens = 16;

// Every struct says its size, all else is zero.
template <class T> T sized()
{
	T t{};
	t.struct_size = sizeof(T);
	return t;
}

static int must(int code, const char *why = "")
{
	if (code < 0)
		throw std::runtime_error(std::string(ops->error_text(code)) + " " + why);
	return code;
}

struct Close {
	void operator()(kvpull_scheduler *s) const { ops->scheduler->close(s); }
	void operator()(kvpull_worker *w) const { ops->worker->close(w); }
};

struct Request {
	uint64_t key;
	uint32_t prompt;
	uint32_t ids[2]; // its blocks, until SENT (P), LOADED or FAILED (D)
	enum { waiting, busy, loaded, failed, ended } state;
	bool aborted;
};

class Engine {
	std::unique_ptr<kvpull_scheduler, Close> scheduler;
	std::unique_ptr<kvpull_worker, Close> worker; // closed first
	unsigned char *kv{};
	uint64_t last_key{}; // no key is used twice
	std::vector<uint32_t> free_ids;
	std::vector<Request> requests;

public:
	uint32_t released{}, expired{}, pulled{}, computed{}, rejected{}, aborted{}, wrong{};

	explicit Engine(const char *id)
	{
		auto model = sized<kvpull_model>();
		model.model = "toy", model.dtype = "u8", model.layout = "LBHNC";
		model.layer_count = model.head_count = 1;
		model.head_bytes = block_bytes / block_tokens;
		kvpull_group group{ block_tokens, KVPULL_GROUP_FULL, 0, 0 };
		auto params = sized<kvpull_open_params>();
		params.model = &model, params.engine_id = id, params.tp_size = 1;
		params.groups = &group, params.group_bytes = sizeof(group), params.group_count = 1;
		auto why = sized<kvpull_error_detail>();
		kvpull_scheduler *s;
		kvpull_worker *w;
		must(ops->scheduler->open(&params, &s, &why), why.message);
		scheduler.reset(s);
		must(ops->worker->open(&params, &w, &why), why.message);
		worker.reset(w);

		auto memory = sized<kvpull_memory>();
		must(ops->worker->memory_alloc(w, block_count * block_bytes, 0, &memory));
		kv = static_cast<unsigned char *>(memory.base);
		auto region = sized<kvpull_region>();
		region.fd = -1, region.base = kv, region.bytes = block_count * block_bytes;
		auto cache = sized<kvpull_cache>();
		cache.layer_count = cache.row_count = cache.head_count = 1;
		cache.block_count = block_count, cache.block_stride = block_bytes;
		cache.head_stride = cache.head_bytes = block_bytes;
		auto regions = sized<kvpull_regions>();
		regions.regions = &region, regions.region_count = 1;
		regions.caches = &cache, regions.cache_count = 1;
		must(ops->worker->regions_register(w, &regions, &why), why.message);
		char info[1024];
		size_t n;
		must(ops->worker->rank_info(w, info, sizeof(info), &n));
		must(ops->scheduler->rank_info(s, info, n));
		for (uint32_t i = 0; i < block_count; i++)
			free_ids.push_back(i);
	}

	bool idle() const { return requests.empty(); }
	bool full() const { return free_ids.size() < 2; }
	bool pending() { return must(ops->scheduler->has_pending(scheduler.get())) & KVPULL_PENDING_STEP; }

	// P computes a prompt and returns its ticket. What is held stays until SENT.
	std::string prefill(uint32_t prompt)
	{
		Request &r = add(prompt);
		tell(r, KVPULL_REQUEST_WANTS_HOLD, nullptr);
		compute(r);
		std::string ticket(4096, '\0');
		kvpull_blocks blocks{ 0, 2, r.ids };
		auto finish = sized<kvpull_finish>();
		finish.key = r.key, finish.computed_tokens = 2 * block_tokens;
		finish.groups = &blocks, finish.group_bytes = sizeof(blocks), finish.group_count = 1;
		finish.ticket = ticket.data(), finish.ticket_capacity = ticket.size();
		if (prompt % 10 == 9) // its client left
			finish.reason = KVPULL_FINISH_ABORT, aborted++;
		r.state = Request::busy;
		if (must(ops->scheduler->request_finished(scheduler.get(), &finish)) == KVPULL_FINISH_FREE)
			r.state = Request::ended;
		ticket.resize(finish.ticket_bytes);
		return ticket;
	}

	// D takes a ticket. One that does not help is computed: nothing matches.
	void decode(uint32_t prompt, const std::string &ticket)
	{
		int code;
		if (prompt % 10 == 3) { // refused before it became a request
			code = ops->scheduler->request_rejected(scheduler.get(), ticket.data(), ticket.size());
			rejected++;
		} else {
			code = tell(add(prompt), KVPULL_REQUEST_PULL, &ticket);
		}
		if (code)
			std::cerr << "prompt " << prompt << ": " << ops->error_text(code) << "\n";
	}

	// One turn: requests go on, the scheduler half decides, the worker answers.
	void turn(int input = -1, bool *readable = nullptr)
	{
		for (Request &r : requests)
			advance(r);
		for (const Request &r : requests)
			if (r.state == Request::ended)
				free_ids.insert(free_ids.end(), r.ids, r.ids + 2);
		requests.erase(std::remove_if(requests.begin(), requests.end(),
					      [](const Request &r) { return r.state == Request::ended; }),
			       requests.end());
		step();
		pollfd ready[] = { { ops->worker->event_fd(worker.get()), POLLIN, 0 }, { input, POLLIN, 0 } };
		poll(ready, 2, 100); // less than a third of lease_ms
		if (readable)
			*readable = ready[1].revents;
	}

private:
	Request &add(uint32_t prompt)
	{
		requests.push_back({ ++last_key, prompt, {}, Request::waiting, false });
		for (uint32_t &id : requests.back().ids)
			id = free_ids.back(), free_ids.pop_back();
		return requests.back();
	}

	int tell(const Request &r, uint32_t flags, const std::string *ticket)
	{
		auto request = sized<kvpull_request>();
		request.key = r.key, request.prompt_tokens = 2 * block_tokens, request.flags = flags;
		if (ticket)
			request.ticket = ticket->data(), request.ticket_bytes = ticket->size();
		// A real digest is of the token ids; both ends make it alike.
		std::memcpy(request.prompt_digest, &r.prompt, sizeof(r.prompt));
		return ops->scheduler->request_new(scheduler.get(), &request);
	}

	void finish(const Request &r, uint32_t reason) // once each
	{
		auto finish = sized<kvpull_finish>();
		finish.key = r.key, finish.reason = reason;
		must(ops->scheduler->request_finished(scheduler.get(), &finish));
	}

	// The model: the KV of a prompt is its number, again and again.
	void compute(const Request &r)
	{
		for (uint32_t id : r.ids)
			std::fill_n(reinterpret_cast<uint32_t *>(kv + id * block_bytes), block_bytes / 4, r.prompt);
	}

	bool is_right(const Request &r) const
	{
		const std::vector<uint32_t> want(block_bytes / 4, r.prompt);
		return std::all_of(r.ids, r.ids + 2, [&](uint32_t id) {
			return !std::memcmp(kv + id * block_bytes, want.data(), block_bytes);
		});
	}

	void load(Request &r, uint32_t tokens)
	{
		kvpull_blocks blocks{ 0, 2, r.ids };
		auto allocation = sized<kvpull_allocation>();
		allocation.key = r.key, allocation.external_tokens = tokens;
		allocation.groups = &blocks, allocation.group_bytes = sizeof(blocks), allocation.group_count = 1;
		const int code = ops->scheduler->allocated(scheduler.get(), &allocation);
		if (code != KVPULL_ETRUNCATED && code != KVPULL_EFULL) // those two come as FAILED
			must(code);
		r.state = Request::busy;
		if ((r.aborted = r.prompt % 10 == 7)) // its client left: the blocks stay
			finish(r, KVPULL_FINISH_ABORT);
	}

	void advance(Request &r)
	{
		uint32_t tokens = 0;
		if (r.state == Request::waiting) {
			const int answer = must(ops->scheduler->matched_tokens(scheduler.get(), r.key, 0, &tokens));
			if (answer == KVPULL_MATCH_LOAD)
				load(r, tokens);
			else if (answer == KVPULL_MATCH_NOTHING)
				r.state = Request::failed;
		}
		if (r.state != Request::loaded && r.state != Request::failed)
			return;
		if (r.aborted) { // finished before; now its blocks are free, too
			aborted++;
		} else {
			if (r.state == Request::failed)
				compute(r), computed++;
			else
				is_right(r) ? pulled++ : wrong++;
			finish(r, KVPULL_FINISH_STOP);
		}
		r.state = Request::ended;
	}

	void take(const kvpull_poll_record &record)
	{
		if (record.kind > KVPULL_POLL_FAILED)
			return; // of a later version
		for (Request &r : requests) {
			if (r.key != record.key)
				continue;
			if (record.kind == KVPULL_POLL_SENT) {
				record.reason == KVPULL_END_RELEASED ? released++ : expired++;
				r.state = Request::ended;
			} else {
				r.state = record.kind == KVPULL_POLL_LOADED ? Request::loaded : Request::failed;
			}
		}
	}

	void step()
	{
		static char bytes[1 << 20];
		kvpull_poll_record record;
		size_t n;
		must(ops->scheduler->step_build(scheduler.get(), bytes, sizeof(bytes), &n));
		must(ops->worker->step(worker.get(), bytes, n));
		must(ops->worker->start_loads(worker.get(), nullptr));
		while (must(ops->worker->poll(worker.get(), &record, 1, sizeof(record))))
			take(record);
		must(ops->worker->result_build(worker.get(), bytes, sizeof(bytes), &n));
		if (n)
			must(ops->scheduler->result_take(scheduler.get(), bytes, n));
	}
};

static void serve(Engine &engine, uint32_t prompts)
{
	std::signal(SIGPIPE, SIG_IGN);
	for (uint32_t prompt = 0; prompt < prompts || !engine.idle(); engine.turn()) {
		while (prompt < prompts && !engine.full()) {
			const std::string ticket = engine.prefill(++prompt);
			if (prompt % 10 != 9)
				std::cout << prompt << ' ' << ticket << '\n';
		}
		if (!std::cout.flush())
			prompt = prompts; // what nobody got expires
	}
	std::cerr << "prefill: " << engine.released << " released, " << engine.expired << " expired, "
		  << engine.aborted << " aborted\n";
}

static void decode(Engine &engine)
{
	char line[4096];
	std::setvbuf(stdin, nullptr, _IONBF, 0); // else poll() misses what was read
	for (bool more = true; more || !engine.idle() || engine.pending();) {
		bool readable = false;
		engine.turn(more && !engine.full() ? 0 : -1, &readable);
		if (!readable || !(more = std::fgets(line, sizeof(line), stdin)))
			continue;
		char *ticket;
		const auto prompt = static_cast<uint32_t>(std::strtoul(line, &ticket, 10));
		const std::string text(ticket + (*ticket == ' '));
		engine.decode(prompt, text.substr(0, text.find('\n')));
	}
	std::cerr << "decode: " << engine.pulled << " pulled, " << engine.computed << " computed, " << engine.rejected
		  << " rejected, " << engine.aborted << " aborted, " << engine.wrong << " wrong\n";
}

int main(int argc, char **argv)
try {
	if (argc < 2)
		throw std::runtime_error("host prefill COUNT | host decode");
	Engine engine(argv[1]);
	if (argc > 2)
		serve(engine, static_cast<uint32_t>(std::stoul(argv[2])));
	else
		decode(engine);
	return engine.wrong != 0;
} catch (const std::exception &error) {
	std::cerr << error.what() << "\n";
	return 1;
}
