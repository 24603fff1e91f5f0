# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# The fabric as shell functions: guests with rxe devices, a switch between
# them, jobs in them, faults. Sourced by run.sh and by scenarios.
#
#   fabric_open GUESTS RAILS   boot; a tool that is missing fails
#   fabric_close               end all that was started
#   fabric_start GUEST CODE    run shell code in a guest; its name is in $job
#   fabric_wait JOB SECONDS    its exit status; 124 in time-out, 137 if the
#                              guest has died
#   fabric_run GUEST SECONDS CODE   both
#   fabric_output JOB          path of what it has printed
#   fabric_signal JOB NAME     a signal to it and its children
#   fabric_switch WORD...      a command of the switch (switch.c lists them)
#   fabric_kill, fabric_pause, fabric_continue, fabric_boot GUEST
#   fabric_last_words N        what each guest and each job after N said last
#
# Set before: FABRIC_KIND (uml, qemu or auto), FABRIC_UML (a kernel),
# FABRIC_OUT (folder for outputs), FABRIC_BUILD (what scenarios run),
# FABRIC_SEED, FABRIC_MTU, FABRIC_MEMORY_MIB, FABRIC_PIN (a processor a guest),
# FABRIC_TMPDIR (where the memory of user-mode Linux lies as a file).
# Everything is a child of this shell, and is ended when it ends, even by
# SIGKILL. Times are host times; each wait has an end.

FABRIC_TREE=$(cd "$(dirname "$0")/../.." && pwd)
FABRIC_CACHE=$FABRIC_TREE/build/fabric
FABRIC_BUILD=${FABRIC_BUILD:-$FABRIC_TREE/build/release}
FABRIC_KIND=${FABRIC_KIND:-auto}
fabric_asked=$FABRIC_KIND
FABRIC_OUT=${FABRIC_OUT:-$FABRIC_CACHE/out}
FABRIC_SEED=${FABRIC_SEED:-1}
FABRIC_MTU=${FABRIC_MTU:-4200}
FABRIC_MEMORY_MIB=${FABRIC_MEMORY_MIB:-1024}
fabric_switch_pid=

# setpriv: no guest outlives the runner, however that ends.
fabric_child="setpriv --pdeathsig KILL setsid"

# Programs of a guest must die with it. User-mode Linux runs them as processes
# of this machine, which do not see the runner's death. The guard kills the
# guest's whole group when the runner or the guest has ended.
fabric_guard() { # process, the first of its group
	# shellcheck disable=SC2016 # for the shell that it starts
	setsid sh -c 'while kill -0 "$1" && kill -0 "$2"; do sleep 0.5; done
		kill -KILL "-$2"' guard $$ "$1" </dev/null >/dev/null 2>&1 &
}

fabric_now_ms() {
	date +%s%3N
}

fabric_lacks() {
	echo "fabric: $*: make deps WITH=fabric"
	return 1
}

fabric_choose() {
	[ -n "${FABRIC_UML:-}" ] || [ ! -x "$FABRIC_CACHE/linux.uml" ] ||
		FABRIC_UML=$FABRIC_CACHE/linux.uml
	[ "$FABRIC_KIND" != auto ] || if [ -n "${FABRIC_UML:-}" ]; then
		FABRIC_KIND=uml
	else
		FABRIC_KIND=qemu
	fi
	for fabric_tool in setpriv setsid taskset rdma ip; do
		command -v $fabric_tool >/dev/null ||
			{ fabric_lacks "$fabric_tool is not installed"; return; }
	done
	case $FABRIC_KIND in
	uml)
		[ -x "${FABRIC_UML:-}" ] ||
			fabric_lacks "FABRIC_UML names no kernel that runs"
		;;
	qemu) "$FABRIC_TREE/tests/fabric/kernel.sh" "$FABRIC_CACHE/kernel" ;;
	*)
		echo "fabric: no kind '$FABRIC_KIND': uml, qemu or auto" >&2
		return 2
		;;
	esac
}

fabric_is_newer() { # file, than file
	[ -n "$(find "$1" -newer "$2" 2>/dev/null)" ]
}

fabric_build_switch() {
	fabric_sources="$FABRIC_TREE/tests/fabric/switch.c $FABRIC_TREE/tests/fabric/switch_fault.c"
	for fabric_source in $fabric_sources "$FABRIC_TREE/tests/fabric/switch.h"; do
		fabric_is_newer "$FABRIC_CACHE/fabric_switch" "$fabric_source" &&
			continue
		mkdir -p "$FABRIC_CACHE"
		# shellcheck disable=SC2086 # two files
		${CC:-cc} -std=c11 -D_GNU_SOURCE -O2 -g -I"$FABRIC_TREE" \
			-I"$FABRIC_TREE/include" $fabric_sources \
			-o "$FABRIC_CACHE/fabric_switch"
		return
	done
}

fabric_switch() {
	"$FABRIC_CACHE/fabric_switch" "$fabric_sockets/switch" "$@"
}

fabric_open() { # guests, rails
	FABRIC_GUESTS=$1
	FABRIC_RAILS=$2
	fabric_jobs=0
	fabric_choose || return
	fabric_build_switch || return
	fabric_boot_all && return
	[ "$FABRIC_KIND:$fabric_asked" = uml:auto ] && fabric_lacks_xstate || return 1
	echo "fabric: going on with qemu"
	fabric_close
	FABRIC_KIND=qemu
	fabric_choose && fabric_boot_all
}

fabric_boot_all() {
	# Socket paths are short: not in the tree.
	fabric_sockets=$(mktemp -d /tmp/fabric.XXXXXX) || return
	rm -rf "$FABRIC_OUT"
	mkdir -p "$FABRIC_OUT"
	$fabric_child "$FABRIC_CACHE/fabric_switch" "$fabric_sockets/switch" \
		"$FABRIC_SEED" >"$FABRIC_OUT/switch.log" 2>&1 </dev/null &
	fabric_switch_pid=$!
	fabric_until 5 test -S "$fabric_sockets/switch" || return
	fabric_guest=1
	while [ "$fabric_guest" -le "$FABRIC_GUESTS" ]; do
		fabric_begin "$fabric_guest" || return
		fabric_guest=$((fabric_guest + 1))
	done
	fabric_guest=1
	while [ "$fabric_guest" -le "$FABRIC_GUESTS" ]; do
		fabric_ready "$fabric_guest" || return
		fabric_guest=$((fabric_guest + 1))
	done
}

fabric_until() { # seconds, command that is to become true
	fabric_end=$(($(fabric_now_ms) + $1 * 1000))
	shift
	until "$@"; do
		[ "$(fabric_now_ms)" -lt "$fabric_end" ] || return 124
		sleep 0.05
	done
}

fabric_pid() { # guest
	eval "echo \"\${fabric_pid_$1:-}\""
}

fabric_alive() { # guest
	fabric_alive_pid=$(fabric_pid "$1")
	[ -n "$fabric_alive_pid" ] && kill -0 "$fabric_alive_pid" 2>/dev/null
}

# Boot a guest, again if it was killed.
fabric_boot() { # guest
	fabric_begin "$1" && fabric_ready "$1"
}

fabric_begin() { # guest
	fabric_share=$FABRIC_OUT/guest$1
	mkdir -p "$fabric_share"
	rm -f "$fabric_share/ready"
	fabric_control=$fabric_sockets/control$1
	rm -f "$fabric_control.in" "$fabric_control.out"
	mkfifo "$fabric_control.in" "$fabric_control.out"
	fabric_words="FABRIC_KIND=$FABRIC_KIND FABRIC_GUEST=$1"
	fabric_words="$fabric_words FABRIC_GUESTS=$FABRIC_GUESTS"
	fabric_words="$fabric_words FABRIC_RAILS=$FABRIC_RAILS"
	fabric_words="$fabric_words FABRIC_MTU=$FABRIC_MTU"
	fabric_words="$fabric_words FABRIC_TREE=$FABRIC_TREE"
	fabric_words="$fabric_words FABRIC_BUILD=$FABRIC_BUILD"
	fabric_words="$fabric_words FABRIC_SHARE=$fabric_share"
	"fabric_begin_$FABRIC_KIND" "$1" || return
	fabric_began_ms=$(fabric_now_ms)
	eval "fabric_pid_$1=$fabric_started"
	fabric_guard "$fabric_started"
}

# The processors of a guest. It has one: its kernel and its programs are
# processes of ours that wake one another at each system call, which takes 15 us
# on one processor, and 40 across two that fall asleep in between.
fabric_processors() { # guest
	if [ -z "${FABRIC_PIN:-}" ]; then
		awk '/^Cpus_allowed_list/ { print $2 }' /proc/self/status
		return
	fi
	awk -v guest="$1" '/^Cpus_allowed_list/ {
		count = split($2, ranges, ",")
		for (i = 1; i <= count; i++) {
			if (split(ranges[i], ends, "-") == 1)
				ends[2] = ends[1]
			for (cpu = ends[1] + 0; cpu <= ends[2] + 0; cpu++)
				cpus[n++] = cpu
		}
		print cpus[(guest - 1) % n]
	}' /proc/self/status
}

fabric_begin_uml() { # guest
	cp /proc/cpuinfo "$fabric_share/cpuinfo"
	fabric_nics=
	fabric_rail=0
	while [ "$fabric_rail" -lt "$FABRIC_RAILS" ]; do
		fabric_socket=$fabric_sockets/$1.$fabric_rail
		fabric_switch port "$1" "$fabric_rail" stream "$fabric_socket" \
			>/dev/null || return
		fabric_nics="$fabric_nics vec$fabric_rail:transport=bess,dst=$fabric_socket,mtu=$FABRIC_MTU,mac=$(printf '02:66:00:00:%02x:%02x' "$fabric_rail" "$1")"
		fabric_rail=$((fabric_rail + 1))
	done
	# shellcheck disable=SC2086 # words
	TMPDIR=${FABRIC_TMPDIR:-/tmp} $fabric_child taskset -c "$(fabric_processors "$1")" \
		"$FABRIC_UML" umid="guest$1" \
		uml_dir="$fabric_sockets" mem="${FABRIC_MEMORY_MIB}M" \
		rootfstype=hostfs rootflags=/ ro \
		init="$FABRIC_TREE/tests/fabric/guest.sh" \
		con=null con0=null,fd:1 con1=fd:5,fd:6 ssl=null quiet panic=-1 \
		$fabric_nics $fabric_words </dev/null \
		>"$fabric_share/console" 2>&1 5<>"$fabric_control.in" 6>/dev/null &
	fabric_started=$!
}

fabric_begin_qemu() { # guest
	fabric_nics=
	fabric_rail=0
	while [ "$fabric_rail" -lt "$FABRIC_RAILS" ]; do
		fabric_socket=$fabric_sockets/$1.$fabric_rail
		rm -f "$fabric_socket.guest"
		fabric_switch port "$1" "$fabric_rail" datagram "$fabric_socket" \
			"$fabric_socket.guest" >/dev/null || return
		fabric_nics="$fabric_nics
			-netdev dgram,id=rail$fabric_rail,local.type=unix,local.path=$fabric_socket.guest,remote.type=unix,remote.path=$fabric_socket
			-device virtio-net-pci,netdev=rail$fabric_rail,romfile=,mac=$(printf '02:66:00:00:%02x:%02x' "$fabric_rail" "$1")"
		fabric_rail=$((fabric_rail + 1))
	done
	# Nehalem: newer models make the guest use what TCG is slow at. Without
	# notests a guest hung in the kernel's tests of its ciphers, 1 boot of 30.
	# shellcheck disable=SC2086 # words
	$fabric_child qemu-system-x86_64 -nodefaults -no-reboot -display none \
		-accel tcg,thread=multi -cpu Nehalem-v1 -machine pc -smp 2 \
		-m "$FABRIC_MEMORY_MIB" \
		-kernel "$FABRIC_CACHE/kernel/vmlinuz" \
		-initrd "$FABRIC_CACHE/kernel/initrd.gz" \
		-append "console=ttyS0 panic=-1 cryptomgr.notests mitigations=off nowatchdog $fabric_words" \
		-chardev "file,id=console,path=$fabric_share/console" \
		-serial chardev:console \
		-chardev "pipe,id=control,path=$fabric_control" \
		-serial chardev:control \
		-fsdev local,id=root,path=/,security_model=none,readonly=on,multidevs=remap \
		-device virtio-9p-pci,fsdev=root,mount_tag=root \
		-fsdev "local,id=share,path=$fabric_share,security_model=none" \
		-device virtio-9p-pci,fsdev=share,mount_tag=share \
		-device virtio-rng-pci \
		$fabric_nics </dev/null >"$fabric_share/qemu" 2>&1 &
	fabric_started=$!
}

# The FP buffer of user-mode Linux has a fixed size. Where the CPU's xstate is
# larger, as with AMX, its first program cannot run, nor can any later one.
fabric_lacks_xstate() {
	grep -qF 'ptrace set fp regs failed' "$FABRIC_OUT"/guest*/console 2>/dev/null
}

fabric_ready() { # guest
	# Long: under TCG, on a busy host, four at once.
	fabric_until 75 fabric_ready_or_dead "$1"
	if [ ! -e "$FABRIC_OUT/guest$1/ready" ]; then
		if [ "$FABRIC_KIND" = uml ] && fabric_lacks_xstate; then
			echo "fabric: guest $1 cannot boot: $FABRIC_UML was built for a smaller FP buffer than this CPU's xstate (ptrace set fp regs failed): make fabric-uml builds one that boots"
			return 1
		fi
		echo "fabric: guest $1 did not come up: once more"
		fabric_last_words "$fabric_jobs"
		fabric_kill "$1"
		fabric_begin "$1" || return
		fabric_until 75 fabric_ready_or_dead "$1"
	fi
	[ -e "$FABRIC_OUT/guest$1/ready" ] || return
	echo "fabric: guest $1 ($FABRIC_KIND) ready in $((($(fabric_now_ms) - fabric_began_ms) / 100))00 ms"
}

fabric_ready_or_dead() {
	[ -e "$FABRIC_OUT/guest$1/ready" ] || ! fabric_alive "$1"
}

fabric_folder() { # job
	echo "$FABRIC_OUT/guest${1%%.*}/${1#*.}"
}

fabric_output() { # job
	echo "$(fabric_folder "$1")/output"
}

fabric_say() { # guest, words of the control line
	fabric_to=$1
	shift
	# Open for reading too: a dead guest must not block us.
	echo "$*" 1<>"$fabric_sockets/control$fabric_to.in"
}

fabric_start() { # guest, shell code
	fabric_jobs=$((fabric_jobs + 1))
	job=$1.$fabric_jobs
	mkdir "$(fabric_folder "$job")" || return
	printf '. %s/tests/fabric/helpers.sh\n%s\n' "$FABRIC_TREE" "$2" \
		>"$(fabric_folder "$job")/command"
	fabric_say "$1" run "$fabric_jobs"
}

fabric_done() { # job
	[ -e "$(fabric_folder "$1")/status" ] || ! fabric_alive "${1%%.*}"
}

fabric_wait() { # job, seconds
	if ! fabric_until "$2" fabric_done "$1"; then
		echo "fabric: job $1 is not done in $2 s"
		return 124
	fi
	[ -e "$(fabric_folder "$1")/status" ] || return 137
	return "$(cat "$(fabric_folder "$1")/status")"
}

fabric_run() { # guest, seconds, shell code
	fabric_start "$1" "$3" && fabric_wait "$job" "$2"
}

fabric_signal() { # job, name of a signal
	fabric_say "${1%%.*}" signal "${1#*.}" "$2"
}

fabric_pause() { # guest
	kill -STOP "$(fabric_pid "$1")"
}

fabric_continue() { # guest
	kill -CONT "$(fabric_pid "$1")"
}

# Each guest is a session: user-mode Linux has a process for each of its own.
fabric_kill() { # guest
	fabric_kill_pid=$(fabric_pid "$1")
	[ -n "$fabric_kill_pid" ] || return 0
	kill -KILL "$fabric_kill_pid" 2>/dev/null
	kill -KILL "-$fabric_kill_pid" 2>/dev/null
	wait "$fabric_kill_pid" 2>/dev/null
	eval "fabric_pid_$1="
}

fabric_last_words() { # number of a job: those after it
	# A kernel that stalls says so first and its stack after it.
	for fabric_file in "$FABRIC_OUT"/guest*/console "$FABRIC_OUT"/guest*/qemu; do
		fabric_last_lines "$fabric_file" 60
	done
	fabric_number=$1
	while [ "$fabric_number" -lt "$fabric_jobs" ]; do
		fabric_number=$((fabric_number + 1))
		for fabric_file in "$FABRIC_OUT"/guest*/"$fabric_number"; do
			tail -n +2 "$fabric_file/command"
			fabric_last_lines "$fabric_file/output" 12
		done
	done
	echo "--- switch"
	timeout 2 "$FABRIC_CACHE/fabric_switch" "$fabric_sockets/switch" stats
}

fabric_last_lines() { # file, lines
	[ -s "$1" ] || return 0
	echo "--- ${1#"$FABRIC_OUT"/}"
	tail -n "$2" "$1"
}

fabric_close() {
	for fabric_guest in 1 2 3 4; do
		fabric_kill $fabric_guest
	done
	if [ -n "$fabric_switch_pid" ]; then
		fabric_switch stats >"$FABRIC_OUT/switch.stats" 2>/dev/null
		kill "$fabric_switch_pid" 2>/dev/null
		wait "$fabric_switch_pid" 2>/dev/null
	fi
	fabric_switch_pid=
	[ -z "${fabric_sockets:-}" ] || rm -rf "$fabric_sockets"
	fabric_sockets=
}
