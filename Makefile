# SPDX-License-Identifier: Apache-2.0
# kvpull: one non-recursive Makefile. `make help` lists the targets.

VERSION := 0.1.0
SONAME := libkvpull.so.1
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
DESTDIR ?=
# 0: install with the debug sections in place, for who splits them off.
STRIP ?= 1
OBJCOPY ?= $(shell $(CC) -print-prog-name=objcopy)
ifeq ($(origin CC),default)
CC := gcc
endif
CLANG ?= clang
PYTHON ?= python3
# release, debug, asan, tsan or fuzz; each has its own build/<variant>/.
VARIANT ?= release
B := build/$(VARIANT)
VARIANTS := release debug asan tsan fuzz
$(if $(filter-out $(VARIANTS),$(VARIANT)),$(error VARIANT=$(VARIANT): one of $(VARIANTS)))
V ?= 0
WERROR ?= 0
Q := $(if $(filter 1,$(V)),,@)
SAY = $(if $(filter 0,$(V)),@echo "  $(1)	$(2)")
SUBMAKE := $(MAKE) --no-print-directory

# Knobs of the tests.
SEEDS ?= 200
BIG ?= --instances 200 --holds 4096
BIG_POOL ?= --chunks 100000
SEED ?=
STEPS ?=
SECONDS ?= 60
HALF ?=
SEQUENCES ?= 1000000
MODE ?= --full
STAGES ?=
ENGINE_ARGS ?=
# What the user gave is a number, before anything runs for an hour.
NUMBERS := SEEDS SEED STEPS SECONDS HALF SEQUENCES
is_number = $(if $(shell printf '%d' '$(1)' >/dev/null 2>&1 || echo no),,1)
$(foreach name,$(NUMBERS),$(if $(and $(strip $($(name))),$(filter command environment,$(firstword $(origin $(name))))),\
	$(if $(call is_number,$($(name))),,$(error $(name)=$($(name)): a number is needed))))

WARN := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion \
	-Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition \
	-Wpointer-arith -Wcast-qual -Wcast-align -Wwrite-strings -Wundef -Wvla \
	-Wformat=2 -Wimplicit-fallthrough -Wdouble-promotion
WARN_GCC := -Wlogical-op -Wduplicated-cond -Wduplicated-branches \
	-Wjump-misses-init -Wnull-dereference
ISCLANG := $(findstring clang,$(shell $(CC) --version 2>/dev/null))
ASAN := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
OPT_release := -O2 -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
OPT_debug := -O1 -DKVPULL_DEBUG
OPT_asan := -O1 -DKVPULL_DEBUG $(ASAN)
OPT_tsan := -O1 -DKVPULL_DEBUG -fsanitize=thread -fno-builtin -fno-omit-frame-pointer
OPT_fuzz := -O1 -DKVPULL_DEBUG -fsanitize=fuzzer-no-link $(ASAN)
SANITIZE := $(filter -fsanitize=%,$(OPT_$(VARIANT)))
# Instrumented code makes gcc warn of what is not there: no -Werror then.
STRICT := $(if $(SANITIZE),-Wall -Wextra -Wno-unknown-warning-option -Wno-tsan,\
	$(WARN) $(if $(ISCLANG),,$(WARN_GCC)) $(if $(filter 1,$(WERROR)),-Werror))
BASE_CFLAGS := -std=c11 -D_GNU_SOURCE -Iinclude -I. -DKVPULL_VERSION='"$(VERSION)"'
# Control-flow integrity, and no page of a stack that is jumped over. The start
# files of Debian 12 have no note of shadow stacks, and need none.
MACHINE := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine 2>/dev/null)))
POINTER_BYTES := $(shell echo __SIZEOF_POINTER__ | $(CC) $(CPPFLAGS) $(CFLAGS) -E -P - 2>/dev/null)
$(if $(filter-out 8,$(POINTER_BYTES)),$(error kvpull is for 64-bit processors: words of 64 bits in shared memory are read and written whole))
HARDEN_x86_64 := -fcf-protection -fstack-clash-protection
HARDEN_aarch64 := -mbranch-protection=standard -fstack-clash-protection
HARDEN_LD_x86_64 := -Wl,-z,shstk
HARDEN := $(HARDEN_$(MACHINE))
HARDEN_LD := -Wl,-z,relro,-z,now $(HARDEN_LD_$(MACHINE))
# Paths of this machine are in no file that is built.
OUR_CFLAGS := $(BASE_CFLAGS) -g -ffile-prefix-map='$(CURDIR)'=. -fPIC -fvisibility=hidden \
	-fstack-protector-strong $(HARDEN) -fno-common -pthread \
	$(OPT_$(VARIANT)) $(STRICT) $(MUTANT)
LIBS := -ljansson -lsodium -luring -lpthread
# The user's flags come last, so that they win.
ALL_CFLAGS = $(OUR_CFLAGS) $(CPPFLAGS) $(CFLAGS)
ALL_LDFLAGS = $(SANITIZE) -pthread $(HARDEN_LD) $(LDFLAGS)
# clang leaves the sanitizers' symbols to the program, so not -z defs there. After
# dlclose() threads of halves that nobody closed still run in the library.
SO_FLAGS := -shared -Wl,--version-script=plugin/kvpull.map,-soname,$(SONAME),-z,nodelete \
	$(if $(and $(ISCLANG),$(SANITIZE)),,-Wl,-z,defs)
# A program finds the library beside it (build) or in ../lib (installed).
RPATH := -Wl,-rpath,'$$ORIGIN:$$ORIGIN/../lib'

LIB_OBJ := $(patsubst %.c,$(B)/%.o,$(wildcard include/base/*.c plugin/*/*.c) \
	$(filter-out tools/% examples/%,$(wildcard */*.c)))
# tools/<name>.c is a tool; tools/<name>_*.c are its further parts.
TOOL_FILES := $(basename $(notdir $(wildcard tools/*.c)))
TOOL_PARTS := $(foreach t,$(TOOL_FILES),$(filter $(t)_%,$(TOOL_FILES)))
TOOLS := $(addprefix $(B)/,$(filter-out $(TOOL_PARTS),$(TOOL_FILES)))
# Files that install takes, unless STRIP is 0.
STRIPPED := $(if $(filter-out 0,$(STRIP)),$(patsubst $(B)/%,$(B)/stripped/%,$(B)/$(SONAME) $(TOOLS)))
UNIT := $(patsubst %.c,$(B)/unit/%,$(notdir $(wildcard tests/unit/*/test_*.c tests/abi/test_*.c)))
STRESS := $(patsubst tests/%.c,$(B)/%,$(filter-out %_bench.c,$(wildcard tests/stress/*.c)))
BENCHES := $(patsubst tests/%.c,$(B)/%,$(wildcard tests/stress/*_bench.c))
BENCH_OBJ := $(patsubst %.c,$(B)/%.o,$(wildcard tests/bench/*.c))
SIM_OBJ := $(patsubst %.c,$(B)/%.o,$(wildcard tests/sim/*.c))
SCENARIO_OBJ := $(patsubst %.c,$(B)/%.o,$(wildcard tests/scenario/*.c))
FAKE_OBJ := $(patsubst %.c,$(B)/%.o,$(wildcard tests/fake/*.c))
FAKE_CUDA := $(B)/cuda/libcuda.so.1
FAKE_RDMA := $(B)/rdma/librdmacm.so.1
UNIT_OBJ := $(patsubst %.c,$(B)/%.o,$(wildcard tests/lib/*.c))
FUZZ := $(patsubst tests/%.c,$(B)/%,$(wildcard tests/fuzz/fuzz_*.c))
# A fuzz target's further parts; main.c is that of sequences from a seed.
PARTS_fuzz_sequence := $(patsubst %.c,$(B)/%.o,$(filter-out %/main.c,$(wildcard tests/fuzz/sequence/*.c)))
FUZZ_MAIN := $(if $(filter fuzz,$(VARIANT)),,$(B)/tests/fuzz/replay.o)
API_FUZZ_OBJ := $(patsubst %.c,$(B)/%.o,$(wildcard tests/fuzz/api_*.c tests/fuzz/pool_*.c))
SIM := $(if $(SIM_OBJ),$(B)/kvpull_sim)
SCENARIOS := $(if $(SCENARIO_OBJ),$(B)/kvpull_scenarios)

# What a stress program reads to be done in seconds. Not KVPULL_*: the library
# refuses variables of its own prefix that it does not know.
export TEST_QUICK := $(if $(filter --quick,$(MODE)),1)
# ThreadSanitizer wants a fixed layout; setarch -R gives it one.
export TEST_RUN := $(if $(filter tsan,$(VARIANT)),setarch $(shell uname -m) -R)
# Not detect_stack_use_after_return: gcc's fake stack is aligned for AVX2 at the
# most, and a spilled 64-byte register of the copy routines then faults.
export ASAN_OPTIONS ?= detect_stack_use_after_return=0:strict_string_checks=1
export UBSAN_OPTIONS ?= print_stacktrace=1
# A process that ends with live threads sleeps a second by default; a test that
# forks a child a driver call ends hundreds.
export TSAN_OPTIONS ?= halt_on_error=1:second_deadlock_stack=1:atexit_sleep_ms=50

.DEFAULT_GOAL := all
.SECONDARY:
.SECONDEXPANSION:
.DELETE_ON_ERROR:

# ---- build ----

all: lib tools stripped ## the library and the tools
programs: all $(UNIT) $(STRESS) $(SIM) $(SCENARIOS) $(B)/kvpull_bench $(BENCHES) $(B)/gpu_probe $(FAKE_CUDA) $(FAKE_RDMA) ## what the tests run, and the benches
fuzz-programs: $(FUZZ) $(B)/kvpull_sequences $(B)/kvpull_api_fuzz
unit-programs: $(UNIT)
lib: $(B)/libkvpull.so ## the library alone
tools: $(TOOLS)
stripped: $(STRIPPED)

# Rewritten when the user's flags are others than those that it was built with.
USER_FLAGS := $(VERSION) $(CPPFLAGS) | $(CFLAGS) | $(LDFLAGS)
$(B)/flags: always
	@mkdir -p $(@D)
	@echo '$(USER_FLAGS)' | cmp -s - $@ || echo '$(USER_FLAGS)' >$@

$(B)/%.o: %.c $(B)/flags
	@mkdir -p $(@D)
	$(call SAY,CC,$<)
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -c $< -o $@

# The assembler takes it in.
$(B)/cuda/ptx.o: cuda/gather.ptx

$(B)/libkvpull.a: $(LIB_OBJ)
	@mkdir -p $(@D) && rm -f $@
	$(Q)ar rcsD $@ $^

$(B)/libfake.a: $(FAKE_OBJ)
	@mkdir -p $(@D) && rm -f $@
	$(Q)ar rcsD $@ $^

$(B)/libunit.a: $(UNIT_OBJ)
	@mkdir -p $(@D) && rm -f $@
	$(Q)ar rcsD $@ $^

$(B)/$(SONAME): $(LIB_OBJ) plugin/kvpull.map
	$(call SAY,LD,$@)
	$(Q)$(CC) $(SO_FLAGS) -o $@ $(LIB_OBJ) $(ALL_LDFLAGS) $(LIBS)

$(B)/libkvpull.so: $(B)/$(SONAME)
	$(Q)ln -sf $(SONAME) $@

# Its probe is the model engine of ib_pull.
$(B)/kvpull_doctor: $(B)/tools/ib_pull_engine.o $(B)/tools/ib_pull_blocks.o
# Tools dlopen the library, as an engine does.
$(TOOLS): $(B)/%: $$(addsuffix .o,$$(addprefix $(B)/,$$(basename \
		$$(wildcard tools/$$*.c tools/$$*_*.c tools/cli/*.c)))) \
		$(B)/libkvpull.a $(B)/libkvpull.so
	$(call SAY,LD,$@)
	$(Q)$(CC) -o $@ $(filter-out %.so,$^) $(ALL_LDFLAGS) $(RPATH) $(LIBS) -ldl -lm

# Without symbols and debug sections. Those are in .debug beside it, where gdb and
# perf look by the name in .gnu_debuglink. Notes of probes stay.
$(STRIPPED): $(B)/stripped/%: $(B)/%
	@mkdir -p $(@D)/.debug
	$(Q)$(OBJCOPY) --only-keep-debug --compress-debug-sections $< $(@D)/.debug/$*.debug
	$(Q)$(OBJCOPY) --strip-unneeded --add-gnu-debuglink=$(@D)/.debug/$*.debug $< $@

# ---- test programs ----

TEST_LIBS := $(B)/libfake.a $(B)/libkvpull.a
# For who changes the library and runs many tests (tests/mutants.sh): they are
# linked once. Wants CFLAGS=-fvisibility=default.
$(B)/libtested.so: $(LIB_OBJ)
	$(Q)$(CC) -shared -o $@ $^ $(ALL_LDFLAGS) $(LIBS)

define LINK_TEST
@mkdir -p $(@D)
$(call SAY,LD,$@)
$(Q)$(CC) -o $@ $^ $(ALL_LDFLAGS) $(RPATH) $(1) $(LIBS) -ldl -lm
endef

UNIT_ALSO_route := tests/unit/verbs/world.c
UNIT_ALSO_device := tests/unit/cuda/world.c
UNIT_ALSO_tools := $(addprefix tools/kvpull_doctor_,causes.c findings.c gpu_ask.c gpu_say.c kernel.c networks.c) tools/cli/*.c
UNIT_ALSO_top := tools/kvpull_top_*.c
UNIT_ALSO_share := tests/unit/pool/world.c tests/unit/shm/world.c tests/unit/shm/raw.c
# Their device is the fake one.
$(B)/unit/test_share_verbs $(B)/unit/test_route_ports: ALL_LDFLAGS += -Wl,--wrap=kvpull_fabric_load
# What opens a route is the test's.
$(B)/unit/test_route_keys: ALL_LDFLAGS += -Wl,--wrap=kvpull_shm_open,--wrap=kvpull_verbs_open
# Its clock is the test's.
$(B)/unit/test_device_thread: ALL_LDFLAGS += -Wl,--wrap=clock_gettime
# The ring's results are the test's.
$(B)/unit/test_slots: ALL_LDFLAGS += -Wl,--wrap=kvpull_uring_poll
# Whatever lies in a room of tests/unit beside its tests is linked to all of them.
define UNIT_ROOM
$(patsubst $(1)/%.c,$(B)/unit/%,$(wildcard $(1)/test_*.c)): $(B)/unit/%: $(B)/$(1)/%.o \
		$(patsubst %.c,$(B)/%.o,$(filter-out $(1)/test_%,$(wildcard $(1)/*.c $(UNIT_ALSO_$(notdir $(1)))))) $(B)/libunit.a $(TEST_LIBS)
	$$(call LINK_TEST,-lcmocka)
endef
# Calls the fake driver itself. The library finds it as another one's libcuda.so.1.
$(B)/unit/test_fake $(B)/unit/test_fake_gpus $(B)/unit/test_fake_ledger: $(patsubst %.c,$(B)/%.o,$(wildcard tests/fake/cuda/*.c))
$(addprefix $(B)/unit/test_,cuda cuda_gpus cuda_refused cuda_nic cuda_kernel fake_faults device_apart device_cuda device_pull device_worker): | $(FAKE_CUDA)
$(foreach r,$(patsubst %/,%,$(wildcard tests/unit/*/)),$(eval $(call UNIT_ROOM,$(r))))
$(B)/unit/%: $(B)/tests/abi/%.o $(B)/libunit.a $(TEST_LIBS)
	$(call LINK_TEST,-lcmocka)
$(B)/stress/%: $(B)/tests/stress/%.o $(TEST_LIBS)
	$(call LINK_TEST)
$(B)/fuzz/%: $(B)/tests/fuzz/%.o $$(PARTS_$$*) $(FUZZ_MAIN) $(TEST_LIBS)
	$(call LINK_TEST,$(if $(FUZZ_MAIN),,-fsanitize=fuzzer))
$(B)/kvpull_sequences: $(B)/tests/fuzz/sequence/main.o $(PARTS_fuzz_sequence) $(TEST_LIBS)
	$(call LINK_TEST)
# The library's clock is the fuzzer's, so that a seed is the same run again.
$(B)/fuzz/fuzz_api $(B)/kvpull_api_fuzz: ALL_LDFLAGS += -Wl,--wrap=clock_gettime,--wrap=nanosleep
$(B)/fuzz/fuzz_api: $(B)/tests/fuzz/fuzz_api.o $(API_FUZZ_OBJ) $(FUZZ_MAIN) $(TEST_LIBS)
	$(call LINK_TEST,$(if $(FUZZ_MAIN),,-fsanitize=fuzzer))
$(B)/kvpull_api_fuzz: $(B)/tests/fuzz/main_api.o $(API_FUZZ_OBJ) $(TEST_LIBS)
	$(call LINK_TEST)
$(B)/kvpull_sim: $(SIM_OBJ) $(B)/libunit.a $(TEST_LIBS)
	$(call LINK_TEST)
# A caller of the fabric's: it speaks verbs by itself.
$(B)/fabric_stranger: $(B)/tests/fabric/stranger.o $(TEST_LIBS)
	$(call LINK_TEST,-lrdmacm -libverbs)
$(B)/fabric_pool: $(B)/tests/fabric/pool.o $(TEST_LIBS)
	$(call LINK_TEST)
# Found by LD_LIBRARY_PATH, in the place of NVIDIA's and of rdma-core's.
$(FAKE_RDMA): $(patsubst %.c,$(B)/%.o,$(wildcard tests/fake/rdma/*.c))
$(FAKE_CUDA): $(patsubst %.c,$(B)/%.o,$(wildcard tests/fake/cuda/*.c))
$(FAKE_RDMA) $(FAKE_CUDA):
	@mkdir -p $(@D)
	$(call SAY,LD,$@)
	$(Q)$(CC) -shared -Wl,-soname,$(@F) -o $@ $^ $(ALL_LDFLAGS)
$(B)/gpu_probe: $(patsubst %.c,$(B)/%.o,$(wildcard tests/gpu/*.c))
	$(call SAY,LD,$@)
	$(Q)$(CC) -o $@ $^ $(ALL_LDFLAGS) -ldl
$(B)/kvpull_bench: $(BENCH_OBJ) $(B)/tools/kvpull_doctor_calibrate.o $(TEST_LIBS)
	$(call LINK_TEST)

# The scenarios see the library through the ABI alone.
$(B)/kvpull_scenarios: $(SCENARIO_OBJ) $(B)/tools/ib_pull_engine.o $(B)/tools/ib_pull_blocks.o | $(FAKE_CUDA) $(FAKE_RDMA) $(B)/libkvpull.so $(B)/kvpull_top
	$(call SAY,LD,$@)
	$(Q)$(CC) -o $@ $^ $(ALL_LDFLAGS) $(RPATH) -ljansson -lpthread -ldl -lm

# ---- tests ----

unit: $(UNIT) ## unit tests, seconds
	$(Q)tests/run-unit.sh $(UNIT)

check: deps ## every test that needs no special machine, minutes; STAGES="unit doctor"
	$(Q)+MAKE="$(MAKE)" tests/check.sh $(STAGES)

demo: deps ## two engines on this machine: serve, pull, compare
	$(Q)+$(SUBMAKE) all
	$(Q)tools/demo.sh $(B)

compat: all ## ib_pull of the previous commit and ours read from each other
	$(Q)CC="$(CC)" tests/compat.sh $(B)

sim: $(SIM) ## simulation: SEEDS=n many seeds and BIG worlds, SEED=n one seed, of the pool with POOL=1, STEPS=n
	$(Q)tests/run-programs.sh "$(B)/kvpull_sim $(if $(POOL),--pool) $(if $(SEED),--seed $(SEED),--seeds $(SEEDS)) $(if $(STEPS),--steps $(STEPS))" \
		$(if $(SEED),,"$(B)/kvpull_sim --controls" "$(B)/kvpull_sim $(BIG)" "$(B)/kvpull_sim $(BIG_POOL)")

# Of --memory device, those that are quick and unlike each other; MODE=--full has
# them all, at quick counts: the fake driver is slow.
SCENARIOS_DEVICE := F1b,F1d,F1i,F3e,F6b,F8d
# Those again by RDMA, of a fake NIC into the fake GPU; MODE=--full has these groups.
SCENARIOS_FABRIC := F1,F2,F3,F4,F6,F8,K1
scenarios: $(SCENARIOS) lib ## end to end over the ABI; MODE=--quick or --full
	$(Q)tests/run-programs.sh "$(B)/kvpull_scenarios $(MODE)" \
		"$(B)/kvpull_scenarios --quick --memory device $(if $(filter --quick,$(MODE)),--only $(SCENARIOS_DEVICE))" \
		"$(B)/kvpull_scenarios --quick --memory device --route fake --only $(if $(filter --quick,$(MODE)),$(SCENARIOS_DEVICE),$(SCENARIOS_FABRIC))"

scenario-programs: $(SCENARIOS)

stress: $(STRESS) $(SCENARIOS) lib ## real processes, kill -9; MODE=--quick or --full
	$(Q)tests/run-programs.sh $(STRESS) $(if $(SCENARIOS),"$(SCENARIOS) $(MODE)")
stress-programs: $(STRESS)
	$(Q)tests/run-programs.sh $(STRESS)

asan: ## unit, simulation, stress under address and undefined sanitizers
	$(Q)+$(SUBMAKE) VARIANT=asan unit
	$(Q)+$(SUBMAKE) VARIANT=asan SEEDS=50 sim
	$(Q)+$(SUBMAKE) VARIANT=asan MODE=--quick stress

tsan: ## unit, stress under the thread sanitizer
	$(Q)+$(SUBMAKE) VARIANT=tsan unit
	$(Q)+$(SUBMAKE) VARIANT=tsan MODE=--quick stress

fuzz: ## fuzz each target for SECONDS=n, with clang
	$(Q)+$(SUBMAKE) VARIANT=fuzz CC=$(CLANG) fuzz-run SECONDS=$(SECONDS)
fuzz-run: $(FUZZ)
	$(Q)tests/run-fuzz.sh $(SECONDS) $(B) $(FUZZ)

fuzz-replay: ## run the fuzz corpus once, with gcc
	$(Q)+$(SUBMAKE) VARIANT=asan fuzz-replay-run
fuzz-replay-run: $(FUZZ)
	$(Q)tests/fuzz/seeds.sh build/fuzz/seeds
	$(Q)mkdir -p $(patsubst fuzz_%,build/fuzz/seeds/%,$(notdir $(FUZZ)))
	$(Q)tests/run-programs.sh $(foreach p,$(FUZZ),"$(p) build/fuzz/seeds/$(patsubst fuzz_%,%,$(notdir $(p))) $(wildcard tests/fuzz/corpus/$(notdir $(p)) tests/fuzz/corpus/$(patsubst fuzz_%,%,$(notdir $(p))))")

sequences: ## sequences of faults against real workers, SECONDS=n; SEED=n SEQUENCES=n
	$(Q)+$(SUBMAKE) VARIANT=asan sequences-run
sequences-run: $(B)/kvpull_sequences
	$(Q)tests/run-programs.sh "$(B)/kvpull_sequences --seed $(or $(SEED),0x$(shell git rev-parse --short=7 HEAD)) --sequences $(SEQUENCES) --seconds $(SECONDS)"

api-fuzz: ## calls of the ABI in any order, against an oracle: SECONDS=n, SEED=n
	$(Q)+$(SUBMAKE) VARIANT=asan api-fuzz-run SECONDS=$(SECONDS)
api-fuzz-run: $(B)/kvpull_api_fuzz
	$(Q)tests/run-programs.sh "$< --seed $(or $(SEED),1) --seconds $(SECONDS)" \
		"$< --seed $(or $(SEED),1) --seconds $$(($(SECONDS) / 4)) --threads"

# The emulator is several times as slow, and takes memory for each page that is
# mapped, touched or not: 128 GiB are more than any test means to use.
AARCH64 = CC="$(CCACHE) aarch64-linux-gnu-gcc" B=build/aarch64 WERROR=1 \
	TEST_RUN="prlimit --as=137438953472 qemu-aarch64" TEST_LIMIT=$$((280 * $$(tests/patience.sh))) \
	TEST_LACKS=tests/unit/lacks.qemu-user TEST_EMULATED=1
# Whose code depends on the CPU's vectors.
CPU_TESTS := test_base64 test_step_ids test_copy_routines test_pool_keys

aarch64: ## cross-built without a warning; unit tests and 25 seeds under qemu-user
	$(Q)tests/deps.sh aarch64
	$(Q)+$(SUBMAKE) $(AARCH64) programs
	$(Q)+$(SUBMAKE) $(AARCH64) SEEDS=25 unit sim
	$(Q)+$(SUBMAKE) $(addprefix $(B)/unit/,$(CPU_TESTS))
	$(Q)tests/cpus.sh $(B) $(CPU_TESTS)

mutants: ## each weakened ordering, each broken promise is caught; HALF=0..1
	$(Q)tests/mutants.sh $(if $(HALF),--half $(HALF))

draw-mutants: ## N mutants drawn from SEED over all rooms, or ROOM="hold shm"; those that survive
	@mkdir -p build
	$(Q)tests/mutants/draw.py $(or $(SEED),1) $(or $(N),300) $(ROOM) >build/drawn.txt
	$(Q)tests/mutants.sh --table build/drawn.txt

coverage: ## branches that no unit test and no simulated run takes; ROOM="hold shm", SEEDS=60
	$(Q)tests/coverage.sh $(ROOM)

bench: $(B)/kvpull_bench $(BENCHES) ## one node, JSON into build/bench/; MODE=--quick
	$(Q)tests/bench/run.sh $(B)/kvpull_bench build/bench $(MODE)

bench-disk: $(B)/kvpull_bench ## a pool's file of slots beside fio; FOLDER=/var/tmp, 4 GiB
	$(Q)tests/deps.sh bench
	$(Q)tests/bench/disk.py $(B)/kvpull_bench 5 4096 $(or $(FOLDER),/var/tmp)

check-fabric: ## guests with soft RDMA, faults between them; SMOKE=1, ONLY=name*
	$(Q)tests/deps.sh fabric
	$(Q)+$(SUBMAKE) all scenario-programs $(B)/fabric_stranger $(B)/fabric_pool
	$(Q)tests/fabric/run.sh $(if $(SMOKE),--smoke) $(B) $(ONLY)

check-engine: lib $(FAKE_CUDA) ## real vLLM engines on this machine; SMOKE=1: the short set
	$(Q)PYTHON=$(PYTHON) tests/engine/check.sh $(B) $(if $(filter 1,$(SMOKE)),--smoke) $(ENGINE_ARGS)

signatures: ## what the package touches in vLLM, in the wheels of all its versions; WRITE=1: the table anew
	$(Q)PYTHON=$(PYTHON) tests/engine/signatures.sh $(if $(filter 1,$(WRITE)),--write)

check-engine-fabric: lib ## real vLLM engines in two guests, RDMA between them; ONLY=name*
	$(Q)tests/deps.sh fabric
	$(Q)+PYTHON=$(PYTHON) tests/engine/fabric.sh $(B) $(ONLY)

bench-engine: lib $(B)/ib_pull ## connectors on real vLLM engines, JSON into build/bench/; ONLY=name
	$(Q)PYTHON=$(PYTHON) tests/engine/bench.sh $(B) build/bench $(ONLY)

check-gpu: lib $(B)/gpu_probe $(FAKE_CUDA) ## the probe of a GPU, against a fake driver
	$(Q)tests/gpu/pack.sh $(B) build/gpu
	$(Q)tests/gpu/check.sh $(B) build/gpu

gpu-pack: lib $(B)/gpu_probe ## .gpu/, which a machine with a GPU is given: .gpu/card.sh there
	$(Q)PYTHON=$(PYTHON) tests/gpu/pack.sh $(B) .gpu --cffi

gpu-ptx: ## the kernels' PTX from their source, where nvcc is
	$(Q)cuda/ptx.sh write

fabric-uml: ## build user-mode Linux for the fabric's guests, which are faster then
	$(Q)tests/deps.sh fabric-uml
	$(Q)tests/fabric/uml.sh build/fabric
bench-fabric: ## pulls beside perftest in one guest, JSON into build/bench/
	$(Q)tests/deps.sh fabric
	$(Q)+$(SUBMAKE) all scenario-programs
	$(Q)tests/fabric/bench.sh $(B) build/bench

# ---- checks of the text and of the binary ----

# Words of a shell: the scripts eval them.
headers lint: export FLAGS = $(BASE_CFLAGS)
headers lint: export STRICT_FLAGS = $(WARN)
rooms lint: export B := $(B)

headers: ## each header compiles alone
	$(Q)CC="$(CC)" tests/lint/headers.sh

layers: lib tools ## includes and calls go one way; rooms, arrows, circles of each place
	$(Q)$(PYTHON) tests/lint/floors.py $(B)
	$(Q)tests/lint/layers.sh

rooms: lib ## no circles of files in a room; what is pure stays so
	$(Q)tests/lint/rooms.sh $(B)

banned: ## words that we do not use
	$(Q)tests/lint/banned.sh

symbols: lib ## the library exports what kvpull.map says
	$(Q)tests/lint/symbols.sh $(B)/libkvpull.so plugin/kvpull.map

probes: lib ## kvpull(7) and the scripts of bpftrace name the probes that there are
	$(Q)CC="$(CC)" tests/lint/probes.sh $(B)/libkvpull.so

check-probes: all ## the scripts of bpftrace on engines that run
	$(Q)tests/deps.sh probes
	$(Q)tests/bpftrace.sh $(B)

lint: lib ## formatters, analyzers, spelling, sizes
	$(Q)tests/lint/options.sh
	$(Q)tests/lint/lint.sh

format: ## rewrite the C files in our style
	$(Q)tests/lint/files.sh c h | xargs clang-format -i

pages: $(B)/libkvpull.a tools ## write the library's tables and headers into the man pages
	$(Q)CC="$(CC)" tests/pages.sh write $(B)

abi: lib ## compare the ABI with the committed baseline
	$(Q)tests/abi/compare.sh compare $(B)/libkvpull.so

abi-bless: lib ## renew the baseline; say why in CHANGELOG.md
	$(Q)tests/abi/compare.sh bless $(B)/libkvpull.so

# ---- the rest ----

deps: ## install what the build needs; WITH="lint clang" their tools too
	$(Q)tests/deps.sh $(WITH)

docs: ## the documentation as a site with a search, into build/docs/site; no dead link
	$(Q)tests/deps.sh docs
	$(Q)tools/docs.py build/docs

install: all ## library, header, pkg-config file, tools, man pages; STRIP=0: not stripped
	$(Q)tools/install.sh install "$(DESTDIR)" "$(PREFIX)" "$(LIBDIR)" $(B)$(if $(STRIPPED),/stripped) $(VERSION) $(TOOLS)

uninstall: ## remove what install put there
	$(Q)tools/install.sh uninstall "$(DESTDIR)" "$(PREFIX)" "$(LIBDIR)" $(B) $(VERSION) $(TOOLS)

dist: ## the sources as a tar, into build/dist
	$(Q)tools/package.sh dist $(VERSION)

wheel: ## kvpull_vllm as one wheel that needs no compiler, and its sdist; ARCH=aarch64
	$(Q)tests/deps.sh wheel $(ARCH)
	$(Q)tools/package.sh wheel $(VERSION) $(ARCH)

deb: ## Debian's packages
	$(Q)tests/deps.sh deb
	$(Q)tools/package.sh deb $(VERSION)

sbom: ## what is in the packages, as SPDX
	$(Q)tools/package.sh sbom $(VERSION)

check-packages: ## wheel, sdist, deb: built twice, installed in bare roots, used, removed
	$(Q)tests/deps.sh packages aarch64
	$(Q)tests/package/check.sh $(VERSION)

check-newcomer: ## README's two commands, whole, on bare Debian 12 and 13, in chroots and containers; SUITE=bookworm
	$(Q)tests/deps.sh packages
	$(Q)tests/package/newcomer.sh $(VERSION) $(SUITE)

release-check: ## what is missing before this commit can be released
	$(Q)tools/release.sh check $(VERSION)

release: ## check, build all packages, notes from CHANGELOG.md, sums, signed if gpg has a key, the tag; pushes nothing
	$(Q)tests/deps.sh wheel deb aarch64
	$(Q)tools/release.sh release $(VERSION)

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | sort | expand -t 16

clean: ## remove build/ and .gpu/
	rm -rf build .gpu

.PHONY: all check-gpu gpu-pack gpu-ptx programs fuzz-programs unit-programs lib tools stripped unit check demo sim scenarios scenario-programs \
	stress stress-programs asan tsan fuzz fuzz-run fuzz-replay fuzz-replay-run mutants draw-mutants coverage bench bench-disk \
	bench-engine check-engine check-engine-fabric signatures check-fabric bench-fabric fabric-uml headers layers rooms banned \
	symbols probes check-probes compat lint format abi abi-bless deps pages sequences sequences-run api-fuzz api-fuzz-run \
	docs install uninstall help clean always aarch64 dist wheel deb sbom check-packages check-newcomer release-check release

-include $(shell find $(B) -name '*.d' 2>/dev/null)
