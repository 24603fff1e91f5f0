/* SPDX-License-Identifier: Apache-2.0 */
/* A socket folder that cannot be written, as a container's /tmp often cannot. */
#include "tests/unit/shm/raw.h"

#include <sched.h>
#include <sys/mount.h>

#define SKIPPED 77

uint32_t world_blocks = 64u; /* nobody reads here */

/* In a mount namespace of its own; -1: this process may not have one. */
static int read_only_mount(const char *path)
{
	return unshare(CLONE_NEWNS) ||
			       mount(NULL, "/", NULL, MS_REC | MS_PRIVATE,
				     NULL) ||
			       mount("tmpfs", path, "tmpfs", 0, "mode=700") ||
			       mount(NULL, path, NULL, MS_REMOUNT | MS_RDONLY,
				     NULL) ?
		       -1 :
		       0;
}

/* Return 0: each line on a socket or a folder that cannot be made is complete. */
static int read_only_look(struct world *world)
{
	const char *const words[] = {
		"cannot be made: Read-only file system: ",
		"name a folder that can be written by socket_dir",
	};
	const char *const names[] = { "", "/below" };
	char folder[sizeof(world->folder) + 16];
	size_t i;

	if (read_only_mount(world->folder))
		return SKIPPED;
	for (i = 0; i < 2; i++) {
		struct kvpull_shm_params params = world_params(world, "p");

		(void)snprintf(folder, sizeof(folder), "%s%s", world->folder,
			       names[i]);
		params.socket_dir = folder;
		side_open(&world->p, &params);
		lines.bad[0] = '\0';
		if (world->p.transport->ops->serve(world->p.transport,
						   &world->serve) !=
			    KVPULL_EDEVICE ||
		    !strstr(lines.bad, folder) ||
		    !strstr(lines.bad, words[0]) ||
		    !strstr(lines.bad, words[1]))
			return 1;
		side_close(&world->p);
	}
	return 0;
}

UNIT_TEST(read_only_folder_is_named_with_its_key)
{
	struct world world;
	int status = 0;
	pid_t child;

	world_begin(&world);
	world_memory_make(&world);
	child = fork();
	assert_true(child >= 0);
	if (!child)
		_exit(read_only_look(&world));
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	world_close(&world);
	if (WEXITSTATUS(status) == SKIPPED)
		skip();
	assert_int_equal(WEXITSTATUS(status), 0);
}
