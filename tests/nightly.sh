#!/bin/sh
# What is too long for every commit. Builds into build-night-*, prints each part's summary, and ends
# with 1 if any part failed.
#
#   tests/nightly.sh [PART...]   parts: full pip torch kills faults sequences programs sanitizers valgrind fuzz tidy processors; none: all
#   QTEST_RUNS=10000000     inputs for each fuzzer, and for the chunks of each codec
#   QTEST_KILLS=1000        runs in which a rank is killed on one host; a fifth of that between
#                                hosts, where links are cut in a twentieth
#   QTEST_SEQUENCES=100000  sequences of calls in which one rank disagrees with the others
#   QTEST_PROGRAMS=100000   random programs of valid calls; a tenth as many break a rule
#   QTEST_SEED=1            of those sequences and programs
#   QTEST_TORCH=python3     a Python with PyTorch, scikit-learn and ninja; without PyTorch its part is skipped
#   QTEST_TORCH_TESTS=      test/distributed of PyTorch's sources; without it, only the tests in PyTorch's wheel are run
#   QTEST_EVERY=5           sanitizers and valgrind run one in so many of the long tables' cases;
#                                valgrind, which is slower still, one in five of those
set -u
cd "$(dirname "$0")/.." || exit 1
PATH=/usr/bin:/bin:$PATH
export PATH
runs=${QTEST_RUNS:-10000000}
kills=${QTEST_KILLS:-1000}
sequences=${QTEST_SEQUENCES:-100000}
programs=${QTEST_PROGRAMS:-100000}
seed=${QTEST_SEED:-1}
every=${QTEST_EVERY:-5}
torch=${QTEST_TORCH:-python3}
failed=
# Without precompiled headers each file has to include what it needs.
full_options='-Dwerror=true -Ddebug=true -Db_pch=false'

# name, options of meson setup...
set_up() {
    folder=build-night-$1
    shift
    [ -f "$folder/build.ninja" ] || meson setup "$folder" "$@" >/dev/null || return 1
    ninja -C "$folder" --quiet
}

part() {
    echo "== $*"
    "$@" || failed="$failed $*"
}

# Every case of the kernels in machine code, where it could be made.
machine_code() {
    for name in golden_chunks gpu_topk kernels; do
        program=build-night-full/tests/amdgpu/machine_code_${name}_test
        [ ! -x "$program" ] || QTEST_FULL=1 QTEST_EVERY=1 "$program" || return 1
    done
}

full() {
    set_up full $full_options && machine_code &&
        QTEST_FULL=1 QTEST_REPLAYS=10000 meson test -C build-night-full --print-errorlogs --timeout-multiplier 100 \
            engine engine_hosts accuracy fused_bits budget_choice golden_collectives zero_copy oversize tiers far_results places_env device_cases device_graph calibrate verify_large wire_decoder documents options kernels emulated_kernels perf_device
}

# The package as pip installs it. Its test compiles the library itself.
pip() {
    status=0
    /usr/bin/python3 tests/packaging/pip_test.py || status=$?
    [ "$status" -eq 0 ] || [ "$status" -eq 77 ] # skipped
}

# This project's tests of PyTorch, and PyTorch's own tests of its backends.
torch() {
    "$torch" -c 'import torch' 2>/dev/null || {
        echo "skipped: $torch has no PyTorch; QTEST_TORCH names a Python that has it"
        return 0
    }
    folder=$(dirname "$(command -v "$torch")")
    PATH=$folder:$PATH set_up torch -Dunity=on -Dunity_size=20 &&
        meson test -C build-night-torch --print-errorlogs --timeout-multiplier 5 --suite bindings &&
        meson test -C build-night-torch --no-rebuild --print-errorlogs --timeout-multiplier 5 training_table || return 1
    QCCL_LIBRARY=$PWD/build-night-torch/lib/libqccl.so.0 CPATH=$PWD/include:$PWD/build-night-torch/include \
        PATH=$folder:$PATH PYTHONPATH=$PWD/tests/support:$PWD/build-night-torch/bindings/python \
        "$torch" tests/bindings/torch/torch_suite.py ${QTEST_TORCH_TESTS:+--sources "$QTEST_TORCH_TESTS"} \
        distributed ${QTEST_TORCH_TESTS:+gloo objects}
}

kills() {
    set_up full $full_options && build-night-full/tests/survivors --runs "$kills" &&
        build-night-full/tests/shrink_kill --runs "$kills" && build-night-full/tests/shrink_kill --runs "$((kills / 4))" --hosts 2
}

faults() {
    set_up full $full_options &&
        PYTHONPATH=tests/support /usr/bin/python3 tests/hosts/faults_test.py build-night-full/tests/far_survivor build-night-full/tests/far_creator \
            --kills $((kills / 5)) --cuts $((kills / 20)) --endings $((kills / 20)) --late 90
}

sequences() {
    set_up full $full_options &&
        build-night-full/tests/disagreements --sequences "$sequences" --seed "$seed" --jobs 8
}

programs() {
    set_up full $full_options &&
        build-night-full/tests/random_programs --programs "$programs" --broken $((programs / 10)) --seed "$seed" --jobs 8
}

# $1: a name without a comma, which linkers take for two arguments; $2: Meson's name of it. With clang and little optimized: g++ 12,
# and clang at its usual level, take the better part of an hour for the kernels.
# The first finding ends a program, also a rank that its parent has forked. A rank may start threads though its parent had some.
sanitizer() {
    CC=clang-14 CXX=clang++-14 set_up "$1" -Db_sanitize="$2" -Dbuildtype=debugoptimized -Doptimization=1 -Db_lundef=false -Dunity=on -Dunity_size=20 &&
        QTEST_PATIENCE=20 QTEST_EVERY="$every" \
            ASAN_OPTIONS=detect_stack_use_after_return=1:allocator_may_return_null=1 \
            UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
            TSAN_OPTIONS=halt_on_error=1:allocator_may_return_null=1:die_after_fork=0 \
            meson test -C "build-night-$1" --suite unit --no-suite tree --print-errorlogs --timeout-multiplier 20
}

sanitizers() {
    part sanitizer address address,undefined
    part sanitizer thread thread
}

# Leaks are the address sanitizer's to find: a forked rank that ends by _exit seems to lose what lies
# on its stack.
valgrind_suite() {
    set_up full $full_options &&
        QTEST_PATIENCE=50 QTEST_EVERY=$((every * 5)) meson test -C build-night-full --suite unit --no-suite tree --no-suite bare \
            --print-errorlogs --timeout-multiplier 50 \
            --wrap 'valgrind --quiet --error-exitcode=9 --fair-sched=yes --leak-check=no'
}

fuzz() {
    CC=clang-14 CXX=clang++-14 set_up fuzz -Dfuzz=true -Dtests=false -Dperf=false \
        -Db_sanitize=address,undefined -Doptimization=1 -Db_lundef=false &&
        meson test -C build-night-fuzz --suite fuzz --print-errorlogs --timeout-multiplier 1000 \
            --test-args="-runs=$runs -verbosity=0" || return 1
    codecs=$(build-night-fuzz/tests/fuzz/chunk_fuzz --codecs) && [ -n "$codecs" ] || return 1
    for codec in $codecs; do
        build-night-fuzz/tests/fuzz/chunk_fuzz --codec="$codec" -max_len=1536 -runs="$runs" -verbosity=0 \
            -artifact_prefix=build-night-fuzz/ || return 1
    done
}

# Every file; a commit's test has those of a few rooms.
tidy() {
    set_up full $full_options && /usr/bin/python3 tests/tree/tidy_test.py . build-night-full
}

# All cases on processors that are not at hand. Needs their compilers (Debian: g++-aarch64-linux-gnu, g++-powerpc64le-linux-gnu).
processors() {
    for machine in aarch64 ppc64le; do
        QTEST_FULL=1 /usr/bin/python3 tests/tree/cross_test.py "$machine" . "build-night-processors/$machine" \
            "$(pkg-config --variable=includedir libhwy)" || return 1
    done
}

case ${1-} in
-h | --help)
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
esac
[ $# -gt 0 ] || set -- full pip torch kills faults sequences programs sanitizers valgrind fuzz tidy processors
for name in "$@"; do
    case $name in
    full | pip | torch | kills | faults | sequences | programs | fuzz | tidy | processors) part "$name" ;;
    sanitizers) sanitizers ;;
    valgrind) part valgrind_suite ;;
    *)
        echo "nightly.sh: no part $name; parts: full pip torch kills faults sequences programs sanitizers valgrind fuzz tidy processors" >&2
        exit 2
        ;;
    esac
done
[ -z "$failed" ] && echo "all parts passed" && exit 0
echo "failed:$failed"
exit 1
