#!/bin/sh
# Builds QCCL on a machine with a GPU, tests it there and measures it, in at most 8 minutes. Ends with
# 1 if a part has failed, and with 77 where there is no GPU or a part was skipped or not run; what
# was measured is kept in any case.
#
#   tests/gpu.sh [PART...]    parts: build codecs tests collectives sanitizer; none: all
#   tests/gpu.sh --pack [DIR] on Debian 12: downloads what a machine may lack into DIR (12 MiB), which
#                             can be carried there
#
# QTEST_DEVICE=emulated:0 tries all of it without a GPU. DIR is relative to the current folder, all
# other paths to the repository.
#
#   QCCL_PREFIX=gpu-packages  the folder that --pack has filled; without it the one of that name in
#                             the repository, where there is one
#   QTEST_DEVICE=cuda:0       the GPU; without it the first that is found
#   QTEST_BUILD=build-gpu     the build folder
#   QTEST_RESULTS=perf/results  where NAME.csv and NAME.md go, after the GPU's name
#   QTEST_VALUES=1000000000   values that the kernels are tested with
#   QTEST_SECONDS=480         what is not done by then is not run, in the order of the parts
#   QTEST_ROOT=               the folder in whose dev and usr a GPU's driver is looked for
set -u
caller=$(pwd)
CDPATH='' cd -- "$(dirname -- "$0")/.." || exit 1
build=${QTEST_BUILD:-build-gpu}
results=${QTEST_RESULTS:-perf/results}
values=${QTEST_VALUES:-1000000000}
device=${QTEST_DEVICE-}
prefix=${QCCL_PREFIX-}
unset QCCL_PREFIX QTEST_VALUES # they are not settings of the library
packed=gpu-packages
allowed=${QTEST_SECONDS:-480}
root=${QTEST_ROOT-}
began=$(date +%s)
failed='' skipped='' unrun=''
# A stream that waits for another rank holds up all streams in its queue of the GPU. By default the
# driver gives a process 8 queues, which ranks that are threads share.
export CUDA_DEVICE_MAX_CONNECTIONS=32

elapsed() { echo $(($(date +%s) - began)); }
say() { echo "[$(elapsed) s] $*"; }
refuse() {
    echo "gpu.sh: $*" >&2
    exit 2
}

# name, seconds, command...: a part that may take so long, and longer where there is more time. The
# seconds of all parts sum to less than 480, so none of them hangs at the cost of those behind it.
within() {
    name=$1 seconds=$2
    shift 2
    [ "$allowed" -le 480 ] || seconds=$((seconds * allowed / 480))
    left=$((allowed - $(elapsed)))
    [ "$left" -gt 2 ] || {
        unrun="$unrun, $name"
        return 0
    }
    is_cut=
    [ "$seconds" -le "$left" ] || seconds=$left is_cut=yes
    say "$name"
    status=0
    timeout --kill-after=3 "$seconds" "$@" || status=$?
    case $status in
    0) ;;
    77) skipped="$skipped, ${name%% *}" ;;
    124 | 137)
        if [ -n "$is_cut" ]; then
            unrun="$unrun, $name (stopped when the time was up)"
        else
            failed="$failed, $name after $seconds s"
        fi
        ;;
    *) failed="$failed, $name with $status" ;;
    esac
}

pack() {
    mkdir -p "$1" && cd "$1" || exit 1
    packages="libhwy-dev libhwy1 libsodium-dev libsodium23 libhwloc-dev libhwloc15 libcli11-dev nlohmann-json3-dev libpugixml-dev libpugixml1v5
        libcmocka-dev libcmocka0 pkgconf-bin libpkgconf3 ninja-build"
    # shellcheck disable=SC2086 # a list of words
    apt-get download $packages || exit 1
    for package in *.deb; do
        dpkg -x "$package" . && rm "$package" || exit 1
    done
    rm -rf usr/share/doc usr/share/man usr/share/bug usr/share/bash-completion usr/lib/*/*.a
    # Wherever the folder is carried.
    sed -i 's#/usr\>#${pcfiledir}/../..#' usr/share/pkgconfig/*.pc
    sed -i 's#/usr\>#${pcfiledir}/../../..#' usr/lib/*/pkgconfig/*.pc
    python3 -m pip download --quiet --no-deps --only-binary=:all: meson || exit 1
    mkdir -p python && (cd python && python3 -m zipfile -e ../meson-*.whl . && rm ../meson-*.whl)
    du -sh .
}

use_prefix() {
    if [ -n "$prefix" ]; then
        prefix=$(cd "$caller" && cd "$prefix" 2>/dev/null && pwd) || refuse "QCCL_PREFIX is no folder"
    elif [ -d "$packed/usr" ]; then
        prefix=$PWD/$packed
    else
        return 0
    fi
    say "packages of $prefix"
    folder=$(echo "$prefix"/usr/lib/*-linux-gnu)
    export PKG_CONFIG_PATH="$folder/pkgconfig:$prefix/usr/share/pkgconfig:${PKG_CONFIG_PATH-}"
    # As headers of the system, which warn of nothing.
    export C_INCLUDE_PATH="$prefix/usr/include" CPLUS_INCLUDE_PATH="$prefix/usr/include"
    export LIBRARY_PATH="$folder:${LIBRARY_PATH-}"
    export LD_LIBRARY_PATH="$folder:${LD_LIBRARY_PATH-}"
    export PATH="$PATH:$prefix/usr/bin" PYTHONPATH="${PYTHONPATH-}:$prefix/python"
    command -v pkg-config >/dev/null || export PKG_CONFIG="$prefix/usr/bin/pkgconf"
}

# Containers often have nvidia-smi where PATH does not lead, or have the driver alone.
find_nvidia_smi() {
    command -v nvidia-smi && return
    for folder in "$root/usr/bin" "$root/usr/local/nvidia/bin" "$root/usr/lib/wsl/lib"; do
        [ -x "$folder/nvidia-smi" ] && echo "$folder/nvidia-smi" && return
    done
}

# $1: fields, of the GPU that is tested; nothing where nvidia-smi is not there or knows them not.
ask_nvidia() {
    [ -n "$nvidia_smi" ] && "$nvidia_smi" --query-gpu="$1" --format=csv,noheader --id="${device#cuda:}" 2>/dev/null
}

find_gpu() {
    nvidia_smi=$(find_nvidia_smi)
    if [ -z "$device" ]; then
        if [ -e "$root/dev/nvidia0" ] || { [ -n "$nvidia_smi" ] && "$nvidia_smi" -L 2>/dev/null | grep -q GPU; }; then
            device=cuda:0
        elif rocminfo 2>/dev/null | grep -q 'Device Type: *GPU'; then
            device=hip:0
        else
            echo "gpu.sh: skipped, neither nvidia-smi, $root/dev/nvidia0 nor rocminfo shows a GPU here"
            exit 77
        fi
    fi
    # As of this moment; the model's name comes from the library.
    case $device in
    cuda:*) ask_nvidia name,driver_version,clocks.sm,clocks.max.sm,utilization.gpu || say "$device: no nvidia-smi says more" ;;
    hip:*) rocminfo | grep -m 2 'Marketing Name' ;;
    esac
}

run_meson() {
    if command -v meson >/dev/null; then meson "$@"; else python3 -m mesonbuild.mesonmain "$@"; fi
}

build_all() {
    case $device in
    cuda:*)
        kinds="-Dcuda=enabled -Dhip=disabled"
        # The kernels for this GPU alone take a third of the time.
        capability=$(ask_nvidia compute_cap | tr -d .)
        nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
        ! "$nvcc" --list-gpu-arch 2>/dev/null | grep -qx "compute_$capability" || kinds="$kinds -Dnvidia_targets=$capability"
        ;;
    hip:*) kinds="-Dcuda=disabled -Dhip=enabled" ;;
    *) kinds="-Dcuda=disabled -Dhip=disabled" ;;
    esac
    vendor=${device%%:*}
    emulated=disabled
    [ "$vendor" = emulated ] && emulated=enabled
    if [ ! -f "$build/build.ninja" ]; then
        # shellcheck disable=SC2086 # a list of words
        mkdir -p "$build" && run_meson setup "$build" $kinds -Demulated=$emulated -Ducx=disabled -Dmpi=disabled >"$build/setup.log" 2>&1 || {
            cat "$build/setup.log"
            [ -n "$prefix" ] || echo "gpu.sh: where packages are missing, $0 --pack fetches them on Debian 12" >&2
            rm -f "$build/build.ninja"
            return 1
        }
    fi
    within build 170 ninja -C "$build" --quiet -j "$(nproc)" "lib/libqccl_$vendor.so" perf/qccl-perf perf/qccl-info tests/real_kernels_test tests/real_gpu_test
}

require_build() {
    [ -x "$build/perf/qccl-perf" ] && [ -x "$build/tests/real_kernels_test" ] && [ -x "$build/tests/real_gpu_test" ] || {
        echo "gpu.sh: $build is not built; run tests/gpu.sh build" >&2
        exit 1
    }
}

test_all() {
    "$build/perf/qccl-info" devices
    within "kernels with $values values" 40 env QTEST_VALUES="$values" "$build/tests/real_kernels_test" "$device"
    within "collectives against the slow twin" 30 "$build/tests/real_gpu_test" "$device"
    within "segments of 4 KiB against the slow twin" 10 env QTEST_EVERY=5 QCCL_SEGMENT=4K QCCL_LANES=4 "$build/tests/real_gpu_test" "$device"
}

# Not every machine lets it in, which is no failure of ours.
sanitize() {
    checker=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
    [ "${device%%:*}" = cuda ] && [ -x "$checker" ] || {
        say "sanitizer: skipped, no compute-sanitizer here"
        return 0
    }
    if timeout 10 "$checker" "$build/perf/qccl-perf" codec --device "$device" -b 64K --codec none 2>&1 | grep -q 'not supported'; then
        say "sanitizer: skipped, compute-sanitizer does not reach this GPU"
        return 0
    fi
    for tool in memcheck racecheck; do
        within "kernels under $tool" 15 env QTEST_SANITIZER=1 QTEST_VALUES=300000 QTEST_EVERY=9 "$checker" --tool "$tool" --error-exitcode 9 \
            "$build/tests/real_kernels_test" "$device"
    done
    within "collectives under memcheck" 15 env QTEST_EVERY=200 "$checker" --tool memcheck --error-exitcode 9 \
        "$build/tests/real_gpu_test" "$device"
}

# name, seconds, options...: rows of JSON that summarize reads.
measure() {
    name=$1 seconds=$2
    shift 2
    within "$name" "$seconds" "$build/perf/qccl-perf" "$@" --device "$device" --json "$build/results/$name.json"
    summarize
}

summarize() {
    python3 perf/report/gpu_results.py "$results" "$build"/results/*.json || failed="$failed, results"
}

measure_codecs() {
    small=
    case $device in emulated:*) small="-b 4K" ;; esac
    # shellcheck disable=SC2086 # words, or nothing
    measure codec_float 40 codec $small
    # shellcheck disable=SC2086
    measure codec_bfloat16 20 codec $small -d bfloat16 --codec none,fp8e4m3,int8,int4,mxfp8e4m3,nvfp4
}

measure_collectives() {
    largest=256M most=64M ranks="2 4 8"
    case $device in emulated:*) largest=64K most=16K ranks=2 ;; esac
    for count in $ranks; do
        for launch in threads ranks; do
            # Eight ranks take 5 s to begin and 15 for their calls.
            measure "large_${launch}_$count" $((count < 8 ? 10 : 25)) all_reduce "--$launch" "$count" -b "$largest" -e "$largest" -n 10 -w 2 -c 0 \
                --codec none,int8,int4
        done
    done
    for launch in threads ranks; do
        measure "sizes_${launch}_2" 10 all_reduce "--$launch" 2 -b 1K -e "$most" -f 4 -n 20 --codec none,int8
    done
}

case ${1-} in
-h | --help)
    sed -n '2,/^set/s/^# \{0,1\}//p' tests/gpu.sh
    exit 0
    ;;
--pack)
    [ $# -le 2 ] || refuse "--pack [DIR]"
    case ${2:-$PWD/$packed} in /*) pack "${2:-$PWD/$packed}" ;; *) pack "$caller/$2" ;; esac
    exit 0
    ;;
esac
# What is wanted most comes first.
[ $# -gt 0 ] || set -- build codecs tests collectives sanitizer
for part in "$@"; do
    case $part in
    build | codecs | tests | collectives | sanitizer) ;;
    *) refuse "no part $part; parts: build codecs tests collectives sanitizer" ;;
    esac
done
case $allowed in *[!0-9]*) refuse "QTEST_SECONDS=$allowed is no number" ;; esac
case $values in *[!0-9]*) refuse "QTEST_VALUES=$values is no number" ;; esac
use_prefix
find_gpu
for part in "$@"; do
    [ "$part" = build ] || require_build
    case $part in
    build)
        build_all || { say "it cannot be built"; exit 1; }
        [ -z "$failed$unrun" ] || break # what was built before is of other sources
        ;;
    tests) test_all ;;
    sanitizer) sanitize ;;
    *) mkdir -p "$build/results" && "measure_$part" ;;
    esac
done
[ -z "$skipped" ] || say "skipped: ${skipped#, }"
[ -z "$unrun" ] || say "not run: ${unrun#, }"
[ -z "$failed" ] || { say "failed: ${failed#, }"; exit 1; }
[ -z "$skipped$unrun" ] || exit 77
say "all parts passed"
