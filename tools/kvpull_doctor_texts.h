/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All findings of kvpull_doctor, a line each: its level, its name, and its text as
 * printf() takes it, with what to do behind DOCTOR_ADVICE. doctor_say() takes one,
 * and the values of its text. A level that depends on more is given by the
 * caller, and advice that does is a value.
 */
#ifndef KVPULL_TOOLS_KVPULL_DOCTOR_TEXTS_H
#define KVPULL_TOOLS_KVPULL_DOCTOR_TEXTS_H

enum doctor_level {
	DOCTOR_OK,
	DOCTOR_NOTE,    /* good to know; nothing to do */
	DOCTOR_UNKNOWN, /* cannot be seen from here */
	DOCTOR_WARN,    /* works, but slower or not everywhere */
	DOCTOR_FAIL,    /* what was asked for does not work */
	/* Levels of what RDMA lacks, by the route: a note for shm. */
	DOCTOR_RDMA,     /* a failure for verbs, else a warning */
	DOCTOR_RDMA_PART /* a warning: another port may do */
};

/* clang-format off */
#define DOCTOR_ADVICE "\f" /* in no name; output_read() takes it out of what ib_pull says */
#define DOCTOR_RAISE_THE_FILES "ulimit -n 4096; systemd: LimitNOFILE=65536; docker: --ulimit nofile=65536"
#define DOCTOR_RESET_THE_GPU "nvidia-smi; dmesg | grep Xid; reset the GPU"

#define SAY_NOT_SEEN(level, name) level, name, "%s%s cannot be seen" DOCTOR_ADVICE "run it where the engine runs, with /sys and /proc"

#define SAY_CONFIG_NOT_UTF8 DOCTOR_FAIL, "configuration", "--socket-dir must be text in UTF-8"
#define SAY_CONFIG_REFUSED DOCTOR_FAIL, "configuration", "%s" DOCTOR_ADVICE "no worker opens with that: correct or unset it"

#define SAY_KERNEL_IS_OLD DOCTOR_FAIL, "kernel", "Linux %s is older than 5.10" DOCTOR_ADVICE "run a newer kernel"
#define SAY_KERNEL DOCTOR_OK, "kernel", "Linux %s, %s"
#define SAY_KERNEL_SEALS_NOT DOCTOR_FAIL, "kernel", "memory cannot be sealed (%s)" DOCTOR_ADVICE "allow memfd_create and fcntl(F_ADD_SEALS) in the sandbox"
#define SAY_KERNEL_PIDFD_NOT DOCTOR_WARN, "kernel", "pidfd_open: %s: deaths are seen by closed sockets only" DOCTOR_ADVICE "allow pidfd_open in the sandbox"
#define SAY_FILES_ARE_FEW(level) level, "kernel", "only %llu files may be open; a worker needs %u, and up to 4 for a peer" DOCTOR_ADVICE DOCTOR_RAISE_THE_FILES

#define SAY_RDMA_NO_SUCH DOCTOR_FAIL, "rdma", "no device is named %s" DOCTOR_ADVICE "--device and verbs_device: one of those that `rdma link` lists"
#define SAY_RDMA_NONE(level) level, "rdma", "no RDMA device: peers on this node only" DOCTOR_ADVICE "between machines: an RDMA card, or for tests soft-RoCE: rdma link add rxe0 type rxe netdev DEV"

#define SAY_PORT_IS_ABSENT DOCTOR_NOTE, "port", "%s is not in /dev/infiniband here: left out"
#define SAY_PORT_IS_IWARP DOCTOR_RDMA_PART, "port", "%s is iWARP, which kvpull does not use" DOCTOR_ADVICE "between machines kvpull needs RoCE v2 or InfiniBand: another card, or that mode of this one"
#define SAY_PORT_IS_DOWN DOCTOR_RDMA_PART, "port", "%s port %u is not active" DOCTOR_ADVICE "%s"
#define SAY_PORT_HAS_NO_GID DOCTOR_RDMA_PART, "port", "%s port %u has no GID that is used (%u in all)" DOCTOR_ADVICE "give its network device an IP address, and RoCE v2"
#define SAY_PORT DOCTOR_OK, "port", "%s port %u active, %s%s, GIDs %u, best %u: %s %s"

#define SAY_MTU_DIFFERS DOCTOR_WARN, "mtu", "%s takes frames of %d bytes, this side sends MTU %u: the smaller one is gone by" DOCTOR_ADVICE "give the network devices of both sides one MTU: ip link set DEV mtu 4200"
#define SAY_MTU_NONE_ARRIVES DOCTOR_FAIL, "mtu", "frames of MTU %u are lost on the way to %s or back, and so are those of 1024: no pull can end" DOCTOR_ADVICE "let every switch and tunnel between carry frames of 1500 bytes and more: ip link, ping -M do -s 1472"
#define SAY_MTU_LOST DOCTOR_FAIL, "mtu", "frames of MTU %u are lost on the way to %s or back, those of %u arrive: no pull can end" DOCTOR_ADVICE "let every switch between carry %u bytes and more, or on both hosts: ip link set DEV mtu %u"
#define SAY_MTU_IS_SMALL DOCTOR_WARN, "mtu", "%s: MTU %u, as %s has %lld; 4096 sends fewer packets" DOCTOR_ADVICE "if the network carries it: ip link set %s mtu 4200, or 9000, on all hosts"

#define SAY_IB_BY_IP DOCTOR_NOTE, "choice", "%s is InfiniBand: peers find it by the IP address of its IPoIB device" DOCTOR_ADVICE "`ip addr` shows that address; verbs_address chooses one of several"
#define SAY_IB_HAS_NO_IP DOCTOR_RDMA, "choice", "%s is InfiniBand, is found by its IP address, and has no IPoIB device here" DOCTOR_ADVICE "configure IPoIB on it and give that an IP address; a container needs its network device, too"
#define SAY_GID_IS_V1 DOCTOR_WARN, "choice", "GID %u of %s is RoCE v1: no router carries it, and the peer's may be v2" DOCTOR_ADVICE "verbs_gid_index of a RoCE v2 GID"
#define SAY_GID_IS_LINK_LOCAL DOCTOR_WARN, "choice", "%s has a link-local address only: hosts of other links are out of reach" DOCTOR_ADVICE "give %s an IP address"
#define SAY_DEVICE_IS_FAR DOCTOR_WARN, "choice", "%s is on NUMA node %d, none of whose CPUs this process may use" DOCTOR_ADVICE "start the engine with numactl --cpunodebind=%d"
#define SAY_CHOICE_IS_NOT_THERE DOCTOR_FAIL, "choice", "nothing has what is configured: verbs_device %s, verbs_port %s, verbs_gid_index %s, verbs_address %s" DOCTOR_ADVICE "correct or unset them; there is %s"
#define SAY_CHOICE_NONE DOCTOR_RDMA, "choice", "no port%s%s can be used between machines"
#define SAY_CHOICE DOCTOR_OK, "choice", "%s port %u, GID %u (%s %s), %s: %s" DOCTOR_ADVICE "%s"
#define SAY_ADDRESS_IS_NOT_THERE DOCTOR_FAIL, "choice", "no port has the address %s of verbs_address" DOCTOR_ADVICE "correct or unset it: that rail would be missing"
#define SAY_CM_HAS_NO_GID DOCTOR_RDMA, "choice", "%s connects by %s GIDs (default_roce_mode), and none has the address %s of GID %u" DOCTOR_ADVICE "%s"
#define SAY_CM_BY_OTHER_GID(level) level, "choice", "%s connects by %s GIDs (default_roce_mode): by GID %u, not %u" DOCTOR_ADVICE "%s"

#define SAY_FORK_SAFE DOCTOR_OK, "fork", "Linux %.40s: RDMAV_FORK_SAFE keeps registered memory from children"
#define SAY_FORK_UNSAFE DOCTOR_WARN, "fork", "Linux %.40s may give pinned pages to a child at fork(): the device then misses what the engine writes into its own (foreign) memory" DOCTOR_ADVICE "Linux 5.12; or RDMAV_FORK_SAFE=1 in the engine's environment; or memory that kvpull provides, and no fork() after open"

#define SAY_LIBRARIES DOCTOR_OK, "libraries", "libibverbs and librdmacm"
#define SAY_LIBRARIES_NOT DOCTOR_RDMA, "libraries", "%s" DOCTOR_ADVICE "%s"

#define SAY_PROVIDERS_NOT DOCTOR_RDMA, "providers", "libibverbs does not list %s: %s" DOCTOR_ADVICE "apt-get install ibverbs-providers, of the version of libibverbs1; in a container likewise"

#define SAY_RIGHTS_NOT DOCTOR_RDMA, "rights", "/dev/infiniband/%s: %s" DOCTOR_ADVICE "%s"
#define SAY_RIGHTS DOCTOR_OK, "rights", "/dev/infiniband can be opened"

#define SAY_MEMORY_IS_SMALL DOCTOR_FAIL, "memory", "this machine has %.3f GiB; a worker needs %.3f GiB (--memory)" DOCTOR_ADVICE "a smaller KV cache"
#define SAY_MEMORY_IS_TAKEN DOCTOR_WARN, "memory", "%.3f GiB are free here; a worker needs %.3f GiB (--memory)" DOCTOR_ADVICE "less KV cache, or a higher memory.max of the container"
#define SAY_MEMORY DOCTOR_OK, "memory", "%.1f GiB free, of which a worker needs %.3f GiB"

#define SAY_FILE_SIZE DOCTOR_FAIL, "file size", "%.3f GiB, also of shared memory, of which a worker needs %.3f GiB (--memory)" DOCTOR_ADVICE "ulimit -f unlimited; a service: LimitFSIZE=infinity"

#define SAY_MEMLOCK_FREE DOCTOR_OK, "memlock", "no limit for this user (CAP_IPC_LOCK)"
#define SAY_MEMLOCK_UNLIMITED DOCTOR_OK, "memlock", "unlimited"
#define SAY_MEMLOCK_ENOUGH DOCTOR_OK, "memlock", "%.3f GiB, of which a worker needs %.3f GiB"
#define SAY_MEMLOCK_IS_LOW(level) level, "memlock", "%.3f GiB; between machines a worker needs %.3f GiB (--memory), on one node nothing" DOCTOR_ADVICE "ulimit -l unlimited; systemd: LimitMEMLOCK=infinity; docker: --ulimit memlock=-1 (hard limit now: %s)"

#define SAY_DEVICE_MEMORY_NONE DOCTOR_NOTE, "device memory", "no GPU driver: KV cache is host memory"
#define SAY_DEVICE_MEMORY_DMABUF DOCTOR_OK, "device memory", "the open GPU kernel modules export dmabuf"
#define SAY_DEVICE_MEMORY_PEERMEM DOCTOR_OK, "device memory", "nvidia_peermem is loaded"
#define SAY_DEVICE_MEMORY_CLOSED DOCTOR_WARN, "device memory", "a GPU driver without dmabuf (open modules) and without peermem" DOCTOR_ADVICE "install the open GPU kernel modules, or modprobe nvidia_peermem"
#define SAY_DEVICE_MEMORY_USE DOCTOR_NOTE, "device memory", "kvpull pulls between GPUs of one node (key device), and has never run on one"

#define SAY_URING DOCTOR_OK, "io_uring", "works"
#define SAY_URING_NOT DOCTOR_NOTE, "io_uring", "not allowed (%s): files and sockets are read by plain calls" DOCTOR_ADVICE "%s"

#define SAY_HUGE_PAGES DOCTOR_OK, "huge pages", "granted for shared memory (MADV_COLLAPSE)"
#define SAY_HUGE_PAGES_NOT DOCTOR_NOTE, "huge pages", "not granted for shared memory (%s): pulls cost more TLB misses" DOCTOR_ADVICE "Linux 6.1 or later, with memory that is not in pieces"
#define SAY_HUGE_PAGES_RESERVED DOCTOR_NOTE, "huge pages", "%lld reserved pages (vm.nr_hugepages) are not used"

#define SAY_NETWORKS DOCTOR_NOTE, "networks", "not set: peers are those of the own subnet, and %s is routed to more" DOCTOR_ADVICE "on all hosts: networks=%s"

#define SAY_SOCKETS_OF_MANY DOCTOR_NOTE, "sockets", "%s is for several users (mode %o): uids says whose"
#define SAY_SOCKETS_OF_GROUP DOCTOR_WARN, "sockets", "%s: its group may replace sockets in it (mode %o)" DOCTOR_ADVICE "chmod 700 %s"
#define SAY_SOCKETS_NO_PARENT DOCTOR_FAIL, "sockets", "%s is missing, and no worker can make it: %s: %s" DOCTOR_ADVICE "make it, mode 700, for the engine's user; or name another: socket_dir"
#define SAY_SOCKETS_TO_MAKE DOCTOR_NOTE, "sockets", "%s: the first worker makes it" DOCTOR_ADVICE "in containers: share one folder, and set socket_dir"
#define SAY_SOCKETS_REFUSED DOCTOR_FAIL, "sockets", "no worker takes it: %s%s" DOCTOR_ADVICE "name a folder of mode 700, or of 1777 for several users: socket_dir"
#define SAY_SOCKETS_DOUBT DOCTOR_WARN, "sockets", "%s"
#define SAY_SOCKETS_NO_SOCKET DOCTOR_FAIL, "sockets", "no socket can be made in %s: %s" DOCTOR_ADVICE "name a folder that this user can write: socket_dir"
#define SAY_SOCKETS DOCTOR_OK, "sockets", "%s"

#define SAY_USERS_LACK_KEY DOCTOR_WARN, "users", "no process of user %u pulls or is pulled from: %u %s" DOCTOR_ADVICE "one key_file for all engines; or run this one as a user that no other namespace's looks like"
#define SAY_USERS_UNKNOWN DOCTOR_NOTE, "users", "this user namespace does not map all users: the others look like %u, and need %u in uids and a key_file"

#define SAY_STATUS_OFF DOCTOR_NOTE, "status", "off: kvpull_top sees no worker"
#define SAY_STATUS_NOT DOCTOR_WARN, "status", "%s" DOCTOR_ADVICE "a tmpfs with room (--shm-size, an emptyDir of medium Memory) at /dev/shm, or socket_dir in one"
#define SAY_STATUS DOCTOR_OK, "status", "%.1f MiB a worker, %s"

#define SAY_CALIBRATION_NOT DOCTOR_FAIL, "calibration", "%s" DOCTOR_ADVICE "%s"
#define SAY_CALIBRATION_LOST DOCTOR_FAIL, "calibration", "measured, but not remembered: %s" DOCTOR_ADVICE "run it as the user of the engines or as root"

#define SAY_COPY_NOT DOCTOR_FAIL, "copy", "%s" DOCTOR_ADVICE "%s"
#define SAY_COPY(level) level, "copy", "%s" DOCTOR_ADVICE "%s"

#define SAY_NUMA_ONE DOCTOR_OK, "numa", "one node"
#define SAY_NUMA_BOUND DOCTOR_OK, "numa", "%u nodes, this process is bound to one of them"
#define SAY_NUMA_UNBOUND DOCTOR_WARN, "numa", "%u nodes, and this process may run on several: copies may cross them" DOCTOR_ADVICE "numactl --cpunodebind=N --membind=N for each worker"

#define SAY_FOREIGN DOCTOR_OK, "foreign memory", "of the same user can be read (process_vm_readv)"
#define SAY_FOREIGN_NOT DOCTOR_NOTE, "foreign memory", "kernel.yama.ptrace_scope is %lld: an engine's own memory cannot be read" DOCTOR_ADVICE "let kvpull provide the memory (memory_alloc), or sysctl kernel.yama.ptrace_scope=0"

#define SAY_GPU_IMPORT_HANGS DOCTOR_WARN, "gpu", "GPU %d: a process that maps its memory is not done in %u s, and was ended" DOCTOR_ADVICE DOCTOR_RESET_THE_GPU
#define SAY_GPU_IMPORT_ENDED DOCTOR_WARN, "gpu", "GPU %d: its driver ended a process that mapped its memory" DOCTOR_ADVICE DOCTOR_RESET_THE_GPU
#define SAY_GPU_ENDED DOCTOR_WARN, "gpu", "GPU %d: its driver ended the process that asked it" DOCTOR_ADVICE DOCTOR_RESET_THE_GPU
#define SAY_GPU_HANGS DOCTOR_WARN, "gpu", "GPU %d: its driver does not answer in %u s" DOCTOR_ADVICE DOCTOR_RESET_THE_GPU
#define SAY_GPUS_LEFT_OUT DOCTOR_NOTE, "gpu", "%d GPUs: the first %u were tried"
#define SAY_GPU_FACTS DOCTOR_NOTE, "gpu", "GPU %d: %s at %s, driver of %s, which says: VMM %s, descriptors %s; MIG %s, BAR1 %s"
#define SAY_GPU_AND_NICS DOCTOR_NOTE, "gpu", "GPU %d and NICs, as its driver says: GPUDirect RDMA %s, of VMM %s, dmabuf %s, flush by the host %s, order of writes for %s"
#define SAY_GPU_READS DOCTOR_NOTE, "gpu", "GPU %d reads memory of these GPUs, as its driver says: %s"
#define SAY_GPU_READS_NOT DOCTOR_NOTE, "gpu", "GPU %d reads no memory of these GPUs, as its driver says: %s" DOCTOR_ADVICE "P and D on GPUs that reach each other: nvidia-smi topo -p2p r; or pulls by RDMA"
#define SAY_GPU_IS_MIG DOCTOR_NOTE, "gpu", "GPU %d is an instance of MIG: memory of other instances is not mapped" DOCTOR_ADVICE "P and D in one instance, or pulls by RDMA"
#define SAY_GPU_HAS_MPS DOCTOR_WARN, "gpu", "GPU %d is shared by MPS (%s): a fault of one process ends the others" DOCTOR_ADVICE "P and D without MPS: echo quit | nvidia-cuda-mps-control; or engines that may end together"
#define SAY_GPU_ANSWERS_PARTLY DOCTOR_WARN, "gpu", "GPU %d: its driver does not answer all: %s" DOCTOR_ADVICE DOCTOR_RESET_THE_GPU
#define SAY_GPU_REFUSES DOCTOR_WARN, "gpu", "%s%s" DOCTOR_ADVICE "%s"
#define SAY_GPU_IS_SHARED DOCTOR_OK, "gpu", "GPU %d: its memory can be shared with processes of this node: one mapped it for %s and copied %llu MiB at %.2f GB/s by %s, the median of %u"

#define SAY_PROBE_FAILED DOCTOR_FAIL, "probe", "a pull on this node failed: %s" DOCTOR_ADVICE "%s"
#define SAY_PROBE DOCTOR_OK, "probe", "%u MiB pulled from another process, every byte right, %.1f GB/s"
#define SAY_PROBE_NO_PROCESS DOCTOR_FAIL, "probe", "no second process can be made"
#define SAY_PROBE_NO_LIBRARY DOCTOR_FAIL, "probe", "libkvpull.so.1 cannot be loaded" DOCTOR_ADVICE "make install, or set LD_LIBRARY_PATH"
#define SAY_PROBE_NO_FOLDER DOCTOR_FAIL, "probe", "no folder can be made in /tmp"

#define SAY_PEER_IS_OUTSIDE DOCTOR_FAIL, "peer", "no pull from %s: its address %s is in none of our networks" DOCTOR_ADVICE "here and there: networks=%s"
#define SAY_PEER_HAS_NO_RDMA DOCTOR_FAIL, "peer", "no pull from %s: it offers no RDMA address" DOCTOR_ADVICE "there: kvpull_doctor --route verbs says why; and route must not be shm"
#define SAY_PEER_FAILED_BY DOCTOR_FAIL, "peer", "no pull from %s: %.220s" DOCTOR_ADVICE "%s%s"
#define SAY_PEER_NOT_CALLED DOCTOR_FAIL, "peer", "no pull from %s: %.200s" DOCTOR_ADVICE "here: what the lines on rdma, libraries and memlock above say; %s was not called"
#define SAY_PEER_FAILED DOCTOR_FAIL, "peer", "no pull from %s: %.200s" DOCTOR_ADVICE "what ib_pull --port %s prints there says more; compare kvpull_doctor --route verbs of both hosts"
#define SAY_PEER_BY_SOFTWARE DOCTOR_OK, "peer", "%s: every byte right, %.2f GB/s, connected in %.0f ms; the link is software: its rate says nothing"
#define SAY_PEER_SPEED(level) level, "peer", "%s: every byte right, %.2f GB/s, %.0f %% of this link's %.0f Gb/s, connected in %.0f ms" DOCTOR_ADVICE "%s"
#define SAY_PEER_IS_FULL DOCTOR_FAIL, "peer", "no pull from %s: %llu of its %llu blocks are free" DOCTOR_ADVICE "wait until others have pulled, or their leases have ended; or raise --blocks there"
#define SAY_PEER_NOBODY DOCTOR_FAIL, "peer", "no pull from %s: port %s: %s" DOCTOR_ADVICE "%s %s"
#define SAY_PEER_IS_OTHER DOCTOR_FAIL, "peer", "no pull from %s: what listens at port %s is no ib_pull" DOCTOR_ADVICE "another program has that port, or ib_pull is stopped: ss -ltnp there"
#define SAY_PEER_NO_ADDRESS DOCTOR_FAIL, "peer", "no pull from %s: no address of %s: %s" DOCTOR_ADVICE "give a host's name or address; getent hosts NAME says what is known"
/* clang-format on */

#endif /* KVPULL_TOOLS_KVPULL_DOCTOR_TEXTS_H */
