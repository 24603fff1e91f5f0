# SPDX-License-Identifier: Apache-2.0
# kvpull: one non-recursive Makefile. `make help` lists the targets.

VERSION := 0.1.0
SONAME := libkvpull.so.1
PREFIX ?= /usr/local
DESTDIR ?=
CC ?= gcc
CLANG ?= clang
VARIANT ?= release
B := build/$(VARIANT)
V ?= 0
Q := $(if $(filter 1,$(V)),,@)
WERROR ?= 0

WARN := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion \
	-Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition \
	-Wpointer-arith -Wcast-qual -Wcast-align -Wwrite-strings -Wundef -Wvla \
	-Wformat=2 -Wimplicit-fallthrough -Wdouble-promotion
WARN_GCC := -Wlogical-op -Wduplicated-cond -Wduplicated-branches \
	-Wjump-misses-init -Wnull-dereference
ISCLANG := $(findstring clang,$(shell $(CC) --version 2>/dev/null))
OPT_release := -O2 -D_FORTIFY_SOURCE=2
OPT_debug := -O1 -DKVPULL_DEBUG
OPT_asan := -O1 -DKVPULL_DEBUG -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
OPT_tsan := -O1 -DKVPULL_DEBUG -fsanitize=thread -fno-builtin -fno-omit-frame-pointer
OPT_fuzz := -O1 -DKVPULL_DEBUG -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
OUR_CFLAGS := -std=c11 -D_GNU_SOURCE -g -fPIC -fvisibility=hidden \
	-fstack-protector-strong -fno-common -pthread -Iinclude -I. \
	-DKVPULL_VERSION='"$(VERSION)"' \
	$(OPT_$(VARIANT)) $(WARN) $(if $(ISCLANG),,$(WARN_GCC)) \
	$(if $(filter 1,$(WERROR)),-Werror) $(MUTANT)
LIBS := -ljansson -lsodium -lpthread
ALL_CFLAGS = $(OUR_CFLAGS) $(CFLAGS)
ALL_LDFLAGS = $(filter -fsanitize=%,$(OPT_$(VARIANT))) -pthread $(LDFLAGS)

LIB_SRC := $(wildcard shm/*.c verbs/*.c plugin/*.c)
LIB_OBJ := $(LIB_SRC:%.c=$(B)/%.o)
TOOL_SRC := $(wildcard tools/*.c)
TOOLS := $(TOOL_SRC:tools/%.c=$(B)/%)
UNIT_SRC := $(wildcard tests/unit/test_*.c)
UNIT := $(UNIT_SRC:tests/unit/%.c=$(B)/unit/%)
SIM_SRC := $(wildcard tests/sim/*.c)
STRESS_SRC := $(wildcard tests/stress/*.c)
STRESS := $(STRESS_SRC:tests/stress/%.c=$(B)/stress/%)
FUZZ_SRC := $(wildcard tests/fuzz/fuzz_*.c)

.DEFAULT_GOAL := all
.PHONY: all lib tools unit check demo sim deps clean help

all: lib tools ## the library and the tools
lib: $(B)/libkvpull.so
tools: $(TOOLS)

$(B)/%.o: %.c
	@mkdir -p $(@D)
	$(if $(filter 0,$(V)),@echo "  CC   $<")
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -c $< -o $@

$(B)/libkvpull.a: $(LIB_OBJ)
	@rm -f $@
	$(Q)ar rcs $@ $^

$(B)/$(SONAME): $(LIB_OBJ) plugin/kvpull.map
	$(if $(filter 0,$(V)),@echo "  LD   $@")
	$(Q)$(CC) -shared -o $@ $(LIB_OBJ) $(ALL_LDFLAGS) \
		-Wl,--version-script=plugin/kvpull.map,-soname,$(SONAME),-z,defs,-z,relro,-z,now $(LIBS)

$(B)/libkvpull.so: $(B)/$(SONAME)
	$(Q)ln -sf $(SONAME) $@

# Tools dlopen the library as an engine does.
$(B)/%: $(B)/tools/%.o $(B)/libkvpull.so
	$(if $(filter 0,$(V)),@echo "  LD   $@")
	$(Q)$(CC) -o $@ $< $(ALL_LDFLAGS) $(LIBS) -ldl -lm

$(B)/unit/%: $(B)/tests/unit/%.o $(B)/libkvpull.a
	@mkdir -p $(@D)
	$(if $(filter 0,$(V)),@echo "  LD   $@")
	$(Q)$(CC) -o $@ $^ $(ALL_LDFLAGS) -lcmocka $(LIBS) -ldl

$(B)/stress/%: $(B)/tests/stress/%.o $(B)/libkvpull.a
	@mkdir -p $(@D)
	$(if $(filter 0,$(V)),@echo "  LD   $@")
	$(Q)$(CC) -o $@ $^ $(ALL_LDFLAGS) $(LIBS) -ldl

$(B)/kvpull_sim: $(SIM_SRC:%.c=$(B)/%.o) $(B)/libkvpull.a
	$(if $(filter 0,$(V)),@echo "  LD   $@")
	$(Q)$(CC) -o $@ $^ $(ALL_LDFLAGS) $(LIBS)

unit: $(UNIT) ## unit tests, seconds
	$(Q)tests/run-unit.sh $(UNIT)

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | sort | expand -t 16

clean: ## remove build/
	rm -rf build

-include $(shell find build -name '*.d' 2>/dev/null)
