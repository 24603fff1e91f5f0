/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/scenario/fabric.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

void scenario_load(const char *name, void **library)
{
	char path[PATH_MAX + 64];
	const ssize_t used = readlink("/proc/self/exe", path, PATH_MAX);

	if (used <= 0)
		scenario_fail("where is this program?");
	path[used] = '\0';
	(void)snprintf(strrchr(path, '/') + 1, 64, "%s", name);
	*library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!*library)
		scenario_fail("%s", dlerror());
}

/* The fake NIC reads other processes' memory, as some containers forbid. */
static void reads_probe(void)
{
	uint8_t from = 1;
	uint8_t to = 0;
	const struct iovec local = { &to, 1 };
	const struct iovec remote = { &from, 1 };

	if (process_vm_readv(getpid(), &local, 1, &remote, 1, 0) != 1)
		scenario_refuse("process_vm_readv: %s", strerror(errno));
}

void fabric_use(const struct scenario *scenario, uint32_t rails)
{
	char folder[PATH_MAX];
	void *library;

	reads_probe();
	(void)snprintf(folder, sizeof(folder), "%.4000s/fabric",
		       scenario->folder);
	scenario_check(!mkdir(folder, 0700) || errno == EEXIST, "%s: %s",
		       folder, strerror(errno));
	/* The library finds what is loaded under its name. */
	scenario_load("rdma/librdmacm.so.1", &library);
	(void)setenv("FAKE_RDMA", folder, 1);
	(void)setenv("FAKE_RDMA_ADDRESSES",
		     rails > 1 ? "10.66.0.1,10.66.1.1" : "10.66.0.1", 1);
	(void)setenv("FAKE_CUDA_RDMA", "2", 1);
	(void)setenv("KVPULL_ROUTE", "verbs", 1);
	(void)setenv("KVPULL_NETWORKS", "10.66.0.0/16", 1);
	(void)setenv("KVPULL_VERBS_RAILS", rails > 1 ? "2" : "1", 1);
	scenario_be_remote();
}
