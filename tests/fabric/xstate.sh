#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A user-mode Linux that cannot boot on this CPU is said with its cause, and qemu
# is taken instead, unless user-mode Linux was asked for. The kernel here is a
# script that says what such a kernel says; qemu's guest is a sleep.
# shellcheck disable=SC2016,SC2034 # for the scripts, and for fabric.sh
work=$(mktemp -d) || exit 1
FABRIC_OUT=$work/out
# shellcheck source=tests/fabric/fabric.sh
. "$(dirname "$0")/fabric.sh"
trap 'fabric_close; rm -rf "$work"' EXIT
FABRIC_CACHE=$work
FABRIC_UML=$work/linux
printf '%s\n' '#!/bin/sh' 'echo run >>"$0.runs"' \
	'echo "userspace - ptrace set fp regs failed, errno = 14"' >"$FABRIC_UML"
chmod +x "$FABRIC_UML"
passed=0
failed=0

claim() { # name, command
	claim_name=$1
	shift
	if "$@" >"$work/claimed" 2>&1; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		echo "FAILED $claim_name"
		cat "$work/claimed" "$work/said" | sed 's/^/\t/'
	fi
}

# In the place of the runner's: neither asks for tools or a kernel of qemu's.
fabric_choose() {
	[ "$FABRIC_KIND" != auto ] || FABRIC_KIND=uml
}

fabric_begin_qemu() { # guest
	: >"$fabric_share/ready"
	$fabric_child sleep 60 &
	fabric_started=$!
}

opens() { # kind
	FABRIC_KIND=$1
	fabric_asked=$1
	rm -f "$FABRIC_UML.runs"
	fabric_open 2 1 >"$work/said" 2>&1
}

says() { # line
	grep -qF "$1" "$work/said"
}

boots_once() { # each of two guests, unless the second is ended before it begins
	[ "$(wc -l <"$FABRIC_UML.runs")" -le 2 ]
}

claim guests_of_qemu_are_taken opens auto
claim the_cause_is_said says 'guest 1 cannot boot: '"$FABRIC_UML"' was built for a smaller FP buffer'
claim the_next_step_is_said says 'going on with qemu'
claim qemu_is_the_kind [ "$FABRIC_KIND" = qemu ]
claim guests_are_ready says 'guest 2 (qemu) ready'
claim no_guest_boots_once_more boots_once
fabric_close
not() { ! "$@"; }
claim user_mode_linux_that_was_asked_for_fails not opens uml
claim its_cause_is_said says 'cannot boot: '
claim qemu_was_not_asked_for not says qemu
fabric_close
# Any other death is tried once more.
printf '%s\n' '#!/bin/sh' 'echo run >>"$0.runs"' >"$FABRIC_UML"
claim another_death_fails not opens auto
claim another_death_is_tried_once_more says 'guest 1 did not come up: once more'

mkdir -p "$work/source/arch/x86/um"
source_is() { # line
	echo "$1" >"$work/source/arch/x86/um/user-offsets.c"
	"$FABRIC_TREE/tests/fabric/uml_xstate.sh" "$work/source"
}
claim fp_buffer_is_raised source_is '	DEFINE_LONGS(HOST_FP_SIZE, 2696);'
claim fp_buffer_is_large grep -q '	DEFINE_LONGS(HOST_FP_SIZE, 12288);' "$work/source/arch/x86/um/user-offsets.c"
claim another_source_is_refused not source_is '	DEFINE(HOST_FP_SIZE, sizeof(struct _xstate));'
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
