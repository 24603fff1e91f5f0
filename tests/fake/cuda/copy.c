/* SPDX-License-Identifier: Apache-2.0 */
/* The fake driver's copies and kernels: what they are asked, and what they do. */
#include "tests/fake/cuda/cuda.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/kernels.cu"
#include "tests/lib/random.h"

/* ---- copies ---- */

static int copy_queue(enum fake_kind kind, uint64_t target, uint64_t source,
		      size_t bytes, struct gpu_stream *stream)
{
	const struct fake_entry entry = {
		.kind = kind,
		.target = target,
		.source = source,
		.bytes = bytes,
		.spans = { { target, bytes }, { source, bytes } },
	};

	return bytes ? fake_queue(stream, &entry) : GPU_EINVALID_VALUE;
}

int cuMemcpyDtoDAsync(uint64_t target, uint64_t source, size_t bytes,
		      struct gpu_stream *stream)
{
	FAKE_READY();
	return copy_queue(FAKE_COPY, target, source, bytes, stream);
}

int cuMemcpyDtoHAsync(void *target, uint64_t source, size_t bytes,
		      struct gpu_stream *stream)
{
	FAKE_READY();
	return copy_queue(FAKE_COPY_TO_HOST, (uint64_t)(uintptr_t)target,
			  source, bytes, stream);
}

int cuMemcpyHtoDAsync(uint64_t target, const void *source, size_t bytes,
		      struct gpu_stream *stream)
{
	FAKE_READY();
	return copy_queue(FAKE_COPY_FROM_HOST, target,
			  (uint64_t)(uintptr_t)source, bytes, stream);
}

int cuMemsetD8Async(uint64_t target, uint8_t byte, size_t bytes,
		    struct gpu_stream *stream)
{
	const struct fake_entry entry = {
		.kind = FAKE_FILL,
		.target = target,
		.bytes = bytes,
		.fill = byte,
		.spans = { { target, bytes } },
	};

	FAKE_READY();
	return bytes ? fake_queue(stream, &entry) : GPU_EINVALID_VALUE;
}

static size_t random_below(size_t bound)
{
	uint64_t drawn;

	(void)pthread_mutex_lock(&fake.lock);
	drawn = random_next(&fake.random);
	(void)pthread_mutex_unlock(&fake.lock);
	return (size_t)(drawn % bound);
}

/* Copies of a batch have no order among them: any one goes next. */
static int batch(uint64_t *targets, uint64_t *sources, size_t *bytes,
		 size_t count, struct gpu_stream *stream)
{
	size_t *const order = malloc(count * sizeof(*order));
	int code = order ? GPU_OK : GPU_EOUT_OF_MEMORY;
	size_t at;

	for (at = 0; at < count && order; at++) {
		const size_t other = random_below(at + 1);

		order[at] = at;
		order[at] = order[other];
		order[other] = at;
	}
	for (at = 0; at < count && !code; at++)
		code = copy_queue(FAKE_COPY, targets[order[at]],
				  sources[order[at]], bytes[order[at]], stream);
	free(order);
	return code;
}

static int is_batch(const struct gpu_copy_attributes *attributes,
		    const size_t *attribute_from, size_t attribute_count,
		    size_t count)
{
	return count && attribute_count == 1 && !attribute_from[0] &&
	       attributes->order == GPU_ORDER_STREAM && !attributes->flags;
}

int fake_batch_12(uint64_t *targets, uint64_t *sources, size_t *bytes,
		  size_t count, struct gpu_copy_attributes *attributes,
		  size_t *attribute_from, size_t attribute_count,
		  size_t *failed, struct gpu_stream *stream)
{
	FAKE_READY();
	*failed = SIZE_MAX;
	if (!is_batch(attributes, attribute_from, attribute_count, count))
		return GPU_EINVALID_VALUE;
	return batch(targets, sources, bytes, count, stream);
}

int fake_batch_13(uint64_t *targets, uint64_t *sources, size_t *bytes,
		  size_t count, struct gpu_copy_attributes *attributes,
		  size_t *attribute_from, size_t attribute_count,
		  struct gpu_stream *stream)
{
	FAKE_READY();
	if (!is_batch(attributes, attribute_from, attribute_count, count))
		return GPU_EINVALID_VALUE;
	return batch(targets, sources, bytes, count, stream);
}

/* ---- kernels ---- */

struct gpu_kernel {
	const char *name;
	size_t argument_bytes[3];
};

static const struct gpu_kernel kernels[] = {
	{ "gather", { sizeof(struct gather_job), 8, 8 } },
	{ "stamp", { 8, 8, 8 } },
	{ "compare",
	  { sizeof(struct gather_job), 8, sizeof(struct gather_expected) } },
};

#define KERNELS (sizeof(kernels) / sizeof(*kernels))

struct gpu_function {
	const struct gpu_module *module;
	const struct gpu_kernel *kernel;
};

struct gpu_module {
	uint32_t gpu;
	char *text;
	struct gpu_function functions[KERNELS]; /* as kernels[] */
};

/* Arguments of a launch, as they lie in an entry. */
struct gather_arguments {
	struct gather_job job;
	uint64_t first;
	uint64_t end;
};

struct stamp_arguments {
	uint64_t address;
	uint64_t pieces;
	uint64_t seed;
};

struct compare_arguments {
	struct gather_job job;
	uint64_t end;
	struct gather_expected expected;
};

int cuModuleLoadData(struct gpu_module **module, const void *image)
{
	struct gpu_module *made;
	size_t at;

	FAKE_READY();
	/* PTX 7.0 is the newest that drivers of 11.0 take. */
	if (!strstr(image, ".version 7.0\n"))
		return GPU_EINVALID_PTX;
	made = calloc(1, sizeof(*made));
	if (made)
		made->text = strdup(image);
	if (!made || !made->text)
		return GPU_EOUT_OF_MEMORY;
	made->gpu = fake_current();
	for (at = 0; at < KERNELS; at++)
		made->functions[at] =
			(struct gpu_function){ made, &kernels[at] };
	fake.modules++;
	*module = made;
	return GPU_OK;
}

int cuModuleUnload(struct gpu_module *module)
{
	FAKE_READY();
	if (fake_is_launched(module))
		fake_wrong("a module is unloaded under a kernel of its");
	free(module->text);
	free(module);
	fake.modules--;
	return GPU_OK;
}

int cuModuleGetFunction(struct gpu_function **function,
			struct gpu_module *module, const char *name)
{
	const size_t bytes = strlen(name);
	const char *entry = module->text;
	size_t at;

	FAKE_READY();
	while ((entry = strstr(entry, ".entry ")) != NULL) {
		entry += strlen(".entry ");
		if (!strncmp(entry, name, bytes) && entry[bytes] == '(')
			break;
	}
	for (at = 0; entry && at < KERNELS; at++)
		if (!strcmp(kernels[at].name, name)) {
			*function = &module->functions[at];
			return GPU_OK;
		}
	return GPU_ENOT_FOUND;
}

int cuLaunchKernel(struct gpu_function *function, uint32_t grid_x,
		   uint32_t grid_y, uint32_t grid_z, uint32_t block_x,
		   uint32_t block_y, uint32_t block_z, uint32_t shared_bytes,
		   struct gpu_stream *stream, void **arguments, void **extra)
{
	struct fake_entry entry = { .kind = FAKE_LAUNCH,
				    .bytes = grid_x,
				    .function = function };
	size_t used = 0;
	uint32_t i;

	FAKE_READY();
	if (!grid_x || grid_y != 1 || grid_z != 1 || block_y != 1 ||
	    block_z != 1 || shared_bytes || extra)
		return GPU_EINVALID_VALUE;
	if (!fake.modules)
		fake_wrong("a kernel of a module that is unloaded");
	if (block_x != GATHER_LANES)
		fake_wrong("a kernel of %u threads is launched with %u",
			   GATHER_LANES, block_x);
	entry.gpu = fake_current();
	if (function->module->gpu != entry.gpu)
		return GPU_EINVALID_HANDLE;
	for (i = 0; i < 3; i++) {
		memcpy(entry.arguments + used, arguments[i],
		       function->kernel->argument_bytes[i]);
		used += function->kernel->argument_bytes[i];
	}
	fake_kernel_spans(&entry);
	/* A statistic, which orders nothing: relaxed. */
	(void)atomic_fetch_add_explicit(&fake.launches, 1,
					memory_order_relaxed);
	return fake_queue(stream, &entry);
}

int fake_is_of(const struct fake_entry *entry, const struct gpu_module *module)
{
	return entry->kind == FAKE_LAUNCH && entry->function->module == module;
}

uint64_t fake_launches(void)
{
	return atomic_load_explicit(&fake.launches, memory_order_relaxed);
}

/* A thread of a kernel that touches what it may not goes on in a place apart. */
static int is_illegal;
static uint32_t kernel_gpu; /* that the kernel runs on */

static void *thread_memory(uint64_t address, uint64_t bytes, int is_store)
{
	static uint64_t apart[8];
	void *memory = fake_memory(kernel_gpu, address, bytes, is_store);

	if (memory)
		return memory;
	is_illegal = 1;
	return apart;
}

/* This thread acts as the first one of a kernel of so many blocks. */
static void thread_be(const struct fake_entry *entry, uint64_t blocks)
{
	kernel_gpu = entry->gpu;
	gather_thread = (struct gather_thread){ .blocks = (uint32_t)blocks,
						.memory = thread_memory };
	is_illegal = 0;
}

static int spans_meet(uint64_t from, uint64_t bytes, uint64_t address,
		      uint64_t length)
{
	return from < address + length && address < from + bytes;
}

/* Each unit of a job, as the kernel would find it. */
static int job_uses(const struct gather_arguments *gathered, uint64_t address,
		    uint64_t bytes)
{
	uint64_t unit;

	for (unit = gathered->first; unit < gathered->end; unit++) {
		const struct gather_place place =
			gather_place_of(&gathered->job, unit);

		if (spans_meet(place.source, place.bytes, address, bytes) ||
		    spans_meet(place.target, place.bytes, address, bytes))
			return 1;
	}
	return 0;
}

int fake_kernel_uses(const struct fake_entry *entry, uint64_t address,
		     uint64_t bytes)
{
	if (entry->function->kernel != &kernels[0])
		return 0;
	thread_be(entry, 1);
	return job_uses((const void *)entry->arguments, address, bytes);
}

static uint64_t mixed(uint64_t sum, uint64_t word)
{
	return (sum ^ word) * UINT64_C(0x100000001b3);
}

/* A sum of a job's strips and ids; 0 where they lie on the device. */
static uint64_t job_sum(const struct fake_entry *entry)
{
	const struct gather_arguments *gathered =
		(const void *)entry->arguments;
	uint64_t sum = UINT64_C(0xcbf29ce484222325);
	uint64_t unit;

	if (entry->function->kernel != &kernels[0] ||
	    !fake_is_host((uint64_t)(uintptr_t)gathered->job.source_ids))
		return 0;
	thread_be(entry, 1);
	for (unit = gathered->first; unit < gathered->end; unit++) {
		const struct gather_place place =
			gather_place_of(&gathered->job, unit);

		sum = mixed(sum, place.source);
		sum = mixed(sum, place.target);
		sum = mixed(sum, place.bytes);
	}
	return sum;
}

void fake_kernel_spans(struct fake_entry *entry)
{
	const struct stamp_arguments *stamped = (void *)entry->arguments;
	const struct gather_job *job = (void *)entry->arguments;

	(void)pthread_mutex_lock(&fake.lock);
	if (entry->function->kernel == &kernels[1]) {
		entry->spans[0] = (struct fake_span){
			stamped->address, stamped->pieces * GATHER_PIECE_BYTES
		};
	} else {
		entry->spans[0] =
			(struct fake_span){ (uint64_t)(uintptr_t)job->strips,
					    job->strip_count *
						    sizeof(*job->strips) };
		entry->spans[1] = (struct fake_span){
			(uint64_t)(uintptr_t)job->source_ids, 4
		};
		entry->spans[2] = (struct fake_span){
			(uint64_t)(uintptr_t)job->target_ids, 4
		};
	}
	entry->sum = job_sum(entry);
	(void)pthread_mutex_unlock(&fake.lock);
}

static void thread_run(const struct fake_entry *entry)
{
	const void *arguments = entry->arguments;
	const struct gather_arguments *gathered = arguments;
	const struct stamp_arguments *stamped = arguments;
	const struct compare_arguments *compared = arguments;

	if (entry->function->kernel == &kernels[0])
		gather(gathered->job, gathered->first, gathered->end);
	else if (entry->function->kernel == &kernels[1])
		stamp(stamped->address, stamped->pieces, stamped->seed);
	else
		compare(compared->job, compared->end, compared->expected);
}

static void block_run(const struct fake_entry *entry, uint32_t block)
{
	uint32_t lane;

	thread_be(entry, entry->bytes);
	gather_thread.block = block;
	for (lane = 0; lane < GATHER_LANES && !is_illegal; lane++) {
		gather_thread.lane = lane;
		thread_run(entry);
	}
}

/* The device reads strips and ids at any time until the kernel ends. */
static void sum_compare(const struct fake_entry *entry)
{
	if (job_sum(entry) != entry->sum)
		fake_wrong(
			"strips or ids of a kernel change while it is queued");
}

int fake_kernel_run(const struct fake_entry *entry)
{
	uint32_t block;

	sum_compare(entry);
	for (block = 0; block < entry->bytes; block++) {
		block_run(entry, block);
		if (is_illegal)
			return GPU_EILLEGAL_ADDRESS;
		/* Other streams go on between two blocks. */
		(void)pthread_mutex_unlock(&fake.lock);
		(void)sched_yield();
		(void)pthread_mutex_lock(&fake.lock);
		if (block == (entry->bytes - 1) / 2)
			fake_inside(UINT64_MAX);
	}
	sum_compare(entry);
	return GPU_OK;
}
