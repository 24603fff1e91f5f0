#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The probe of a GPU, without one: against the fake driver of tests/fake/cuda, as
# each version of it, and the whole of card.sh from a packed folder. Where CUDA's
# compiler and header are, the PTX is what its source says, and driver.h is
# what cuda.h says. Arguments: the build folder, the packed folder.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=$(cd "$1" && pwd)
packed=$(cd "$2" && pwd)
probe=$build/gpu_probe
ptx=tests/gpu/kernels.ptx
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
. tests/claim.sh
export LD_LIBRARY_PATH="$build/cuda"

# P with 8 MiB, and a command of D.
between() { # command of the probe, its further arguments
	what=$1
	shift
	"$probe" serve "$work/s" 8 "$ptx" &
	serves=$!
	timeout 60 "$probe" "$what" "$work/s" "$ptx" "$@"
	between_status=$?
	wait $serves
	# SHARE ends by the death of P; else P has to give all of it back.
	case $?,$what in
	0,copy | 137,share) return $between_status ;;
	*) echo "P did not end as it should" && return 1 ;;
	esac
}

claim facts_are_said 0 '^\{"name": "driver.version", "value": "13000"\}$' \
	'^\{"name": "driver.batch", "value": "13.0"\}$' -- "$probe" facts
claim older_driver_has_the_older_batch 0 '"driver.batch", "value": "12.8"' -- \
	env FAKE_CUDA_VERSION=12080 "$probe" facts
claim memory_is_shared 0 '"share.map_read", "value": "0 CUDA_SUCCESS"' \
	'"share.store_through_read", "value": "700 CUDA_ERROR_ILLEGAL_ADDRESS"' \
	'"share.call_after_fork", "value": "3 CUDA_ERROR_NOT_INITIALIZED"' \
	'"share.right_after_death_of_p", "value": "yes"' \
	'"share.unmap_busy", "unit": "us"' -- between share
for version in 12000 12080 13000; do
	export FAKE_CUDA_VERSION=$version
	claim "each_way_copies_the_right_blocks of $version" 0 \
		'"copy.kernel_ids.1048576x4", ' '"copy.loop.4096x1024", ' \
		'"copy.kernel.65536x64.slice_16_mib"' -- between copy 1
	[ $version = 12000 ] || check grep -q '"copy.batch.16384x256"' "$work/out"
done
unset FAKE_CUDA_VERSION
# Each call that the driver refuses is named, with its code.
for call in cuInit cuDevicePrimaryCtxRetain cuStreamCreate cuMemAddressReserve cuMemMap cuMemSetAccess; do
	claim "refused_call_is_named: $call" 1 "^probe: .*: 801 CUDA_ERROR_NOT_SUPPORTED\$" -- \
		env FAKE_CUDA_REFUSE="$call 801" "$probe" facts
done
export FAKE_CUDA_LATE_US=300
claim late_streams_change_nothing 0 '"share.unmap_after_death"' -- between share
unset FAKE_CUDA_LATE_US

# Packed, on a machine with a card; on one without a driver; in a gVisor.
packed_is_small() { [ "$(du -sm "$packed" | cut -f 1)" -le 40 ]; }
check packed_is_small
cp -r "$packed" "$work/packed"
# A machine whose libc is older builds it from its source.
printf '#!/bin/sh\nexit 126\n' >"$work/packed/probe"
claim packed_source_is_complete 0 '^step facts: ok' -- \
	env OUT="$work/answers" GPU_REPEATS=1 GPU_STEPS=facts "$work/packed/card.sh" 8
cp "$packed/probe" "$work/packed/probe"
apart='^step share_apart: '
! may 1 'namespaces of its own' -- unshare --pid --ipc --mount --fork --mount-proc true ||
	apart='^step share_apart: ok'
printf '#!/bin/sh\necho no torch >&2\nexit 1\n' >"$work/torchless"
# Stands for a Python with torch; the binding has its library beside it.
cat >"$work/python" <<'END'
#!/bin/sh
[ "$1" != -c ] || exit 0
[ -f "$1" ] && [ "$2 $3 $4" = "--device cuda --json" ] && [ -f "$PYTHONPATH/kvpull_vllm/libkvpull.so.1" ] || exit 1
echo '{"name": "tokens", "value": "9 of 9 answers are one engine'"'"'s"}'
END
chmod +x "$work/torchless" "$work/python"
claim card_runs_the_model_engine 0 '^step engine: ok' '^engine +tokens +9 of 9' -- \
	env OUT="$work/answers" GPU_STEPS=engine GPU_PYTHON="$work/python" "$work/packed/card.sh" 8
commit='[0-9a-f]{12}'
git rev-parse HEAD >"$work/commit" 2>&1 || commit=unknown # the sources of a release
claim card_prints_one_table 0 "^card fake, 1024 MiB, driver 13000, Linux .*, kvpull $commit" \
	'^step facts: ok' '^step share: ok' "$apart" '^step copy: ok' \
	'^step engine: not possible here: no torch$' \
	'^copy +copy\.batch\.1048576x4 +[0-9.]+ GB/s' -- \
	env OUT="$work/answers" GPU_REPEATS=1 GPU_PYTHON="$work/torchless" "$work/packed/card.sh" 8
check grep -q '"copy.loop.65536x64"' "$work/answers/copy.json"
mkdir "$work/bin" "$work/none"
printf '#!/bin/sh\necho 4.4.0\n' >"$work/bin/uname"
chmod +x "$work/bin/uname"
claim gvisor_is_said 77 '^card: this is gVisor' -- \
	env PATH="$work/bin:$PATH" OUT="$work/none" "$work/packed/card.sh"
if may 1 'a machine without a driver' -- env LD_LIBRARY_PATH= sh -c '! ldconfig -p | grep libcuda.so.1'; then
	claim missing_driver_is_said 77 '^card: probe: no driver: ' -- \
		env LD_LIBRARY_PATH= OUT="$work/none" "$work/packed/card.sh"
fi

# CUDA's compiler and headers, where they are.
if command -v nvcc >/dev/null; then
	claim kernels_are_those_of_their_source 0 -- cuda/ptx.sh compare
	claim ptxas_takes_them_without_a_spill 0 -- cuda/ptx.sh assemble
fi
header=$(find /usr/local/cuda*/include /usr/include -maxdepth 1 -name cudaTypedefs.h 2>/dev/null | head -n 1)
if [ -n "$header" ]; then
	# shellcheck disable=SC2086 # "ccache gcc"
	claim declarations_are_those_of_cuda 0 -- ${CC:-gcc} -std=c11 -fsyntax-only -I. \
		-isystem "$(dirname "$header")" -x c tests/gpu/layout.cu
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
