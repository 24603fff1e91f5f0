/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worker half: marks of what the engine has queued on its device. Loads land behind
 * one, and a hold is ready once one was reached.
 *
 * A mark that a pull or a hold waits for keeps its place until that is over. The
 * driver is asked by the engine's thread, whether a hold's mark was reached, and by
 * the device's thread, for copies.
 */
#include "plugin/worker/worker_state.h"

#include "base/device_thread.h"

void kvpull_marks_init(struct kvpull_marks *marks, uint32_t pulls_max,
		       struct kvpull_arena *arena)
{
	marks->newest = KVPULL_NONE;
	marks->place_count = 2 * pulls_max + 1;
	KVPULL_ARENA_TAKE(arena, marks->users, marks->place_count);
	KVPULL_ARENA_TAKE(arena, marks->numbers, marks->place_count);
	KVPULL_ARENA_TAKE(arena, marks->holds, pulls_max);
}

static const struct kvpull_device_thread *
thread_of(const struct kvpull_worker *worker)
{
	return kvpull_progress_device(worker->progress);
}

/*
 * A place that nobody waits for: the newest one's again, if it can be. There is
 * one more than there can be pulls and holds that wait.
 */
static uint32_t mark_place(const struct kvpull_worker *worker)
{
	const struct kvpull_marks *const marks = &worker->marks;
	uint32_t at = marks->newest;

	if (at != KVPULL_NONE && !marks->users[at])
		return at;
	for (at = 0; at < marks->place_count && marks->users[at];)
		at++;
	kvpull_check(&worker->facts.log, at < marks->place_count);
	return at;
}

/* 1: taken; 0: a graph is captured; else the table's error. */
static int mark_take(struct kvpull_worker *worker, uint64_t stream)
{
	const struct kvpull_device_thread *const thread = thread_of(worker);
	struct kvpull_device *const device =
		kvpull_device_thread_device(thread);
	const uint32_t at = mark_place(worker);
	struct kvpull_device_event *event;
	int code = kvpull_device_thread_mark_open(thread, at);

	if (code)
		return code;
	event = kvpull_device_thread_mark(thread, at);
	code = device->ops->mark(device, stream, event);
	if (code == 1) {
		worker->marks.newest = at;
		worker->marks.after = (uint64_t)(uintptr_t)event;
	}
	return code;
}

int64_t kvpull_worker_mark(struct kvpull_worker *worker, uint64_t stream)
{
	struct kvpull_marks *const marks = &worker->marks;
	int code = 1;

	if (!thread_of(worker))
		return KVPULL_EUNSUPPORTED;
	if (stream == KVPULL_STREAM_NONE) {
		marks->newest = KVPULL_NONE;
		marks->after = KVPULL_AFTER_NOTHING;
	} else {
		code = mark_take(worker, stream);
	}
	marks->is_fresh = code == 1;
	marks->is_capturing = !code;
	if (code != 1)
		return code;
	marks->count++;
	if (marks->newest != KVPULL_NONE)
		marks->numbers[marks->newest] = marks->count;
	return marks->count;
}

void kvpull_worker_marks_step(struct kvpull_worker *worker)
{
	worker->marks.is_of_step = worker->marks.is_fresh;
	worker->marks.is_fresh = 0;
}

static int has_mark(const struct kvpull_marks *marks)
{
	return marks->is_of_step || marks->is_fresh;
}

int kvpull_worker_marks_wait(const struct kvpull_worker *worker)
{
	return worker->marks.is_capturing && !has_mark(&worker->marks);
}

void kvpull_worker_pull_mark(struct kvpull_worker *worker, uint32_t index)
{
	struct kvpull_pull_order *const order = &worker->handover.pulls[index];
	struct kvpull_marks *const marks = &worker->marks;

	if (!kvpull_serve_has_devices(&worker->facts.serve))
		return;
	if (has_mark(marks)) {
		order->after = marks->after;
		worker->pulls.notes[index].mark = marks->newest;
		if (marks->newest != KVPULL_NONE)
			marks->users[marks->newest]++;
	} else if (kvpull_second_passed(&worker->said.full_ns,
					kvpull_facts_now(&worker->facts))) {
		kvpull_error(
			&worker->facts.log,
			"pull of request %s is not made: the engine has not said what its device still does: call engine_mark() before each step()",
			order->label);
	}
}

void kvpull_worker_pull_unmark(struct kvpull_worker *worker, uint32_t index)
{
	struct kvpull_pull_note *const note = &worker->pulls.notes[index];

	if (note->mark != KVPULL_NONE)
		worker->marks.users[note->mark]--;
	note->mark = KVPULL_NONE;
}

/* ---- holds ---- */

/*
 * The mark's place; that of the newest one if another was recorded over it, which
 * comes later. KVPULL_NONE: nothing was queued by then.
 */
static uint32_t mark_find(const struct kvpull_marks *marks, int64_t mark)
{
	uint32_t at = 0;

	while (at < marks->place_count && marks->numbers[at] != mark)
		at++;
	return at < marks->place_count ? at : marks->newest;
}

/* 1: all that was queued before it is done; 0: not yet; or the table's error. */
static int mark_is_reached(const struct kvpull_worker *worker, uint32_t at)
{
	const struct kvpull_device_thread *const thread = thread_of(worker);
	struct kvpull_device *const device =
		kvpull_device_thread_device(thread);

	return at == KVPULL_NONE ||
	       device->ops->query(device,
				  kvpull_device_thread_mark(thread, at));
}

int kvpull_worker_hold_ready_after(struct kvpull_worker *worker, uint64_t key,
				   int64_t mark)
{
	struct kvpull_marks *const marks = &worker->marks;
	uint64_t generation;
	uint32_t at;
	int code;

	if (mark <= 0 || mark > marks->count)
		return KVPULL_EINVAL;
	generation = kvpull_holds_generation(worker->holds, key);
	if (!generation)
		return KVPULL_ENOKEY;
	at = mark_find(marks, mark);
	code = mark_is_reached(worker, at);
	if (code)
		return code == 1 ? kvpull_holds_ready(worker->holds, key) :
				   code;
	if (marks->hold_count == worker->facts.config.pulls_max)
		return KVPULL_EAGAIN;
	marks->holds[marks->hold_count++] = (struct kvpull_marked_hold){
		.key = key, .generation = generation, .mark = at
	};
	marks->users[at]++;
	kvpull_wakeup_keep(&worker->wakeup);
	return 0;
}

/* A lost device reaches no mark: such a hold is never ready. */
uint32_t kvpull_worker_marks_run(struct kvpull_worker *worker)
{
	struct kvpull_marks *const marks = &worker->marks;
	uint32_t at = 0;

	while (at < marks->hold_count) {
		const struct kvpull_marked_hold hold = marks->holds[at];
		const int is_reached = mark_is_reached(worker, hold.mark);

		if (!is_reached) {
			at++;
			continue;
		}
		marks->holds[at] = marks->holds[--marks->hold_count];
		marks->users[hold.mark]--;
		/* The key may name another hold by now. */
		if (is_reached == 1 &&
		    kvpull_holds_generation(worker->holds, hold.key) ==
			    hold.generation)
			kvpull_check(
				&worker->facts.log,
				!kvpull_holds_ready(worker->holds, hold.key));
	}
	return marks->hold_count;
}
