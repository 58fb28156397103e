#!/bin/sh
# What is too long for every commit. Builds into build-night-*, prints each part's summary, and ends
# with 1 if any part failed.
#
#   tests/nightly.sh [PART...]   parts: full kills sanitizers valgrind fuzz; none: all of them
#   QCCL_NIGHT_RUNS=10000000     inputs for each fuzzer
#   QCCL_NIGHT_KILLS=1000        runs in which a rank is killed
set -u
cd "$(dirname "$0")/.."
PATH=/usr/bin:/bin:$PATH
export PATH
runs=${QCCL_NIGHT_RUNS:-10000000}
kills=${QCCL_NIGHT_KILLS:-1000}
failed=

# name, options of meson setup...
set_up() {
    folder=build-night-$1
    shift
    [ -f "$folder/build.ninja" ] || meson setup "$folder" "$@" >/dev/null || return 1
    ninja -C "$folder" >/dev/null
}

part() {
    echo "== $*"
    "$@" || failed="$failed $*"
}

full() {
    set_up full -Dwerror=true &&
        QCCL_TEST_FULL=1 meson test -C build-night-full --print-errorlogs --timeout-multiplier 100 engine
}

kills() {
    set_up full -Dwerror=true && build-night-full/tests/survivors --runs "$kills"
}

# $1: Meson's name of it. With clang: g++ 12 takes the better part of an hour for the kernels.
sanitizer() {
    CC=clang-14 CXX=clang++-14 set_up "$1" -Db_sanitize="$1" -Dbuildtype=debugoptimized -Db_lundef=false &&
        QTEST_PATIENCE=20 meson test -C "build-night-$1" --suite unit --print-errorlogs --timeout-multiplier 20
}

sanitizers() {
    part sanitizer address,undefined
    part sanitizer thread
}

valgrind_suite() {
    set_up full -Dwerror=true &&
        QTEST_PATIENCE=50 QCCL_TIER=sse4 meson test -C build-night-full --suite unit --print-errorlogs \
            --timeout-multiplier 50 --wrap 'valgrind --error-exitcode=9 --quiet --child-silent-after-fork=yes'
}

fuzz() {
    CC=clang-14 CXX=clang++-14 set_up fuzz -Dfuzz=true -Db_sanitize=address,undefined -Db_lundef=false -Dperf=false ||
        return 1
    folder=build-night-fuzz/tests/fuzz
    "$folder/chunk_fuzz" -runs="$runs" -max_len=1536 -verbosity=0 &&
        "$folder/spec_fuzz" -runs="$runs" -max_len=128 -dict=tests/fuzz/spec.dict -verbosity=0 &&
        "$folder/schedule_fuzz" -runs="$runs" -max_len=4096 -dict=tests/fuzz/schedule.dict -verbosity=0 &&
        "$folder/unique_id_fuzz" -runs="$runs" -max_len=128 -verbosity=0 &&
        "$folder/frame_fuzz" -runs="$runs" -max_len=1200 -verbosity=0 &&
        "$folder/assembly_fuzz" -runs="$runs" -max_len=128 -verbosity=0 &&
        "$folder/npy_fuzz" -runs="$runs" -max_len=256 -dict=tests/fuzz/npy.dict -verbosity=0 &&
        "$folder/inject_fuzz" -runs="$runs" -max_len=128 -dict=tests/fuzz/inject.dict -verbosity=0 &&
        "$folder/settings_fuzz" -runs="$runs" -max_len=256 -dict=tests/fuzz/settings.dict -verbosity=0
}

case ${1-} in
-h | --help)
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
esac
[ $# -gt 0 ] || set -- full kills sanitizers valgrind fuzz
for name in "$@"; do
    case $name in
    full | kills | fuzz) part "$name" ;;
    sanitizers) sanitizers ;;
    valgrind) part valgrind_suite ;;
    *)
        echo "nightly.sh: no part $name; parts: full kills sanitizers valgrind fuzz" >&2
        exit 2
        ;;
    esac
done
[ -z "$failed" ] && echo "all parts passed" && exit 0
echo "failed:$failed"
exit 1
