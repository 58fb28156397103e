#!/bin/sh
# Installs what is missing (with apt, as root), builds QCCL into build/, and runs it.
#
#   ./quickstart.sh [OPTIONS]   the demonstration: real gradients summed over 4 processes;
#                               OPTIONS are those of `qccl-perf demo`, such as --input 'DIR/rank%r.npy',
#                               with paths as seen from where it is called
#   ./quickstart.sh build       only builds; the tools are then in build/perf/
#   ./quickstart.sh test [-D...]  builds and runs all tests; options are those of `meson setup`. Where
#                               there is no GPU, kernels are compiled for one GPU of each vendor
#   ./quickstart.sh --user [build | OPTIONS]   as above without root and packages: needs compilers for C and
#                               C++, make and Python; downloads Meson, Ninja and libraries that are not found
set -eu
caller=$(pwd)
CDPATH='' cd -- "$(dirname -- "$0")"
root=$(pwd)

# Debian's own Python and Meson, also where another Python comes first. Without root the caller's PATH says which compiler is meant.
[ "${1-}" = --user ] || PATH=/usr/bin:/bin:$PATH
export PATH

needed_to_build="g++ meson ninja-build pkg-config libhwy-dev libsodium-dev libhwloc-dev libcli11-dev nlohmann-json3-dev libpugixml-dev"
needed_to_test="libcmocka-dev python3-numpy openmpi-bin libopenmpi-dev mpich libmpich-dev clang-14 clang-format-14
    clang-tidy-14 libclang-rt-14-dev valgrind libc6-dbg libboost-context-dev abigail-tools binutils groff-base
    iproute2 libucx-dev codespell shellcheck pyflakes3 g++-aarch64-linux-gnu qemu-user gfortran cmake python3-cffi"
# Compilers for GPUs, and what makes the site of the documents: few need them, and not every system has them.
useful_to_test="clang-22 lld-22 llvm-22 libamdhip64-dev rocm-device-libs doxygen python3-sphinx python3-breathe python3-myst-parser furo"

stop() {
    echo "quickstart.sh: $*" >&2
    exit 1
}

# What was not understood is said before anything is installed.
refuse() {
    echo "quickstart.sh: $*; ./quickstart.sh --help says what there is" >&2
    exit 2
}

# $1: the word that they stand behind.
check_options() {
    word=$1
    shift
    for option in "$@"; do
        case $option in
        -D?*=*) ;;
        *) refuse "after $word options of Meson are expected, as -Dnvidia_targets=90, but \"$option\" is there" ;;
        esac
    done
}

check_words() {
    [ $# -gt 0 ] || return 0
    case $1 in
    build | -h | --help) [ $# -eq 1 ] || refuse "nothing is expected after $1, but \"$2\" is there" ;;
    test) check_options "$@" ;;
    --user)
        shift
        case ${1-} in
        test | --user | -h | --help) refuse "after --user build and options of the demonstration are possible, but \"$1\" is there" ;;
        esac
        check_words "$@"
        ;;
    -*) ;; # the demonstration's; it knows its options
    *) refuse "the first argument is \"$1\"; possible are build, test and options, which begin with -" ;;
    esac
}

# Prints those of its arguments that are not installed.
missing() {
    for package in "$@"; do
        case $(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true) in
        "install ok installed") ;;
        *) printf '%s ' "$package" ;;
        esac
    done
}

apt_install() {
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" >&2
}

# Installs its arguments as far as they are missing, or says how.
install_packages() {
    command -v dpkg-query >/dev/null || return 0 # no Debian: Meson will say what it misses
    wanted=$(missing "$@")
    [ -n "$wanted" ] || return 0
    # shellcheck disable=SC2086 # a list of words
    if [ "$(id -u)" -ne 0 ]; then
        stop "some packages are missing; install them with
    sudo apt-get install --no-install-recommends $wanted"
    fi
    apt-get update >&2 || echo "quickstart.sh: apt-get update failed; trying with the lists that are there" >&2
    # shellcheck disable=SC2086
    apt_install $wanted
}

# A tool that cannot be had skips its tests, which say so.
install_test_packages() {
    # One run of apt-get takes half of the time of three, but installs nothing if one package cannot be had.
    # shellcheck disable=SC2086
    { [ "$(id -u)" -eq 0 ] && install_packages $needed_to_build $needed_to_test $useful_to_test; } || {
        install_packages $needed_to_build
        install_packages $needed_to_test || install_one_by_one $needed_to_test
        install_one_by_one $useful_to_test
    }
}

# Installs those of its arguments that there are, and says which are left out.
install_one_by_one() {
    command -v dpkg-query >/dev/null && [ -n "$(missing "$@")" ] || return 0
    [ "$(id -u)" -ne 0 ] || apt-get update >&2 || true
    for package in $(missing "$@"); do
        { [ "$(id -u)" -eq 0 ] && apt_install "$package"; } ||
            echo "quickstart.sh: without $package, which is not installed; its tests are left out" >&2
    done
}

# $1: whether tests are built too. A folder that has been set up with tests keeps them. The others
# are options for Meson.
build() {
    with_tests=$1
    shift
    if [ ! -f build/build.ninja ]; then
        # One file for each target compiles faster, but a change of one source then compiles the whole target.
        meson setup build -Dunity=on -Dunity_size=20 -Dtests="$with_tests" "$@"
    elif [ "$with_tests" = true ]; then
        # Also looks again for what has been installed since.
        meson setup --reconfigure build -Dtests=true "$@" >build/reconfigure.log || {
            cat build/reconfigure.log >&2
            exit 1
        }
    fi
    ninja -C build
}

# The last line counts what Meson's own record holds.
count_results() {
    python3 - build/meson-logs/testlog.json <<'PYTHON'
import collections, json, sys
with open(sys.argv[1]) as log:
    results = collections.Counter(json.loads(line)["result"] for line in log if line.strip())
passed = results.pop("OK", 0) + results.pop("EXPECTEDFAIL", 0)
skipped = results.pop("SKIP", 0)
print(f"{passed} passed, {sum(results.values())} failed, {skipped} skipped")
PYTHON
}

# ---- Without root

# Puts Meson and Ninja into PATH: the caller's, if they are new enough, or such that pip installs into the build folder.
find_user_tools() {
    for tool in "${CC:-cc}" "${CXX:-c++}" make python3; do
        command -v "${tool%% *}" >/dev/null || stop "there is no ${tool%% *}; a module or a package of this machine may have it"
    done
    oldest=1.0.1
    if command -v ninja >/dev/null && command -v meson >/dev/null &&
        [ "$(printf '%s\n' "$oldest" "$(meson --version)" | sort -V | head -n 1)" = "$oldest" ]; then
        return
    fi
    if [ ! -x build/venv/bin/meson ] || [ ! -x build/venv/bin/ninja ]; then
        { python3 -m venv build/venv && build/venv/bin/python -m pip install --quiet "meson>=$oldest" ninja; } ||
            stop "Meson $oldest and Ninja are not installed, and Python cannot install them into build/venv"
    fi
    PATH=$root/build/venv/bin:$PATH
}

# $1: a .wrap file, $2: a key in it.
from_wrap() {
    sed -n "s/^$2 = //p" "$1"
}

# Prints a line for each library that is not installed and whose source could not be downloaded.
list_missing_libraries() {
    for wrap in subprojects/*.wrap; do
        name=$(sed -n '/^\[provide\]/,$s/ = .*//p' "$wrap")
        archive=subprojects/packagecache/$(from_wrap "$wrap" source_filename)
        [ -d "subprojects/$(from_wrap "$wrap" directory)" ] || [ -f "$archive" ] || pkg-config --exists "$name" 2>/dev/null ||
            echo "    $name: $(from_wrap "$wrap" source_url) as $archive"
    done
}

# Meson builds the libraries that it does not find from their sources (subprojects/*.wrap), into QCCL's own.
configure_for_user() {
    [ ! -f build/build.ninja ] || return 0
    meson setup build -Dunity=on -Dunity_size=20 -Dtests=false -Ddefault_library=shared && return
    lacking=$(list_missing_libraries)
    [ -n "$lacking" ] || exit 1
    stop "these libraries are neither installed nor could they be downloaded:
$lacking
Put the files there, or install the libraries into a folder of yours and name it: PKG_CONFIG_PATH=FOLDER/lib/pkgconfig, or
CMAKE_PREFIX_PATH=FOLDER for those that come with files for CMake. Then call quickstart.sh again."
}

# ---- Tests

# Prints options for a new folder. The kernels of every GPU take minutes to compile, and without a GPU the tests use only those
# of one GPU of each vendor; tests/nightly.sh compiles for all.
targets_to_test() {
    [ -f build/build.ninja ] || [ -e /dev/nvidiactl ] || [ -e /dev/kfd ] ||
        echo -Dnvidia_targets=90 -Damd_targets=gfx942
}

# $@: options that targets_to_test has added, if any. The folder also serves `build` and the demonstration.
warn_of_few_targets() {
    [ $# -eq 0 ] || echo "quickstart.sh: the GPU modules in build/ are for the tests' GPUs only ($*); for all GPUs remove build/" \
        "and run ./quickstart.sh build" >&2
}

# Tests wait for each other's processes half of their time, so two run on a core.
run_tests() {
    status=0
    meson test -C build --no-rebuild --print-errorlogs --num-processes $(($(nproc) * 2)) || status=$?
    count_results
    return $status
}

check_words "$@"
case ${1-} in
build)
    # shellcheck disable=SC2086
    install_packages $needed_to_build
    build false
    ;;
test)
    install_test_packages
    shift
    few=$(targets_to_test)
    # shellcheck disable=SC2086 # a list of words
    build true $few "$@"
    # shellcheck disable=SC2086
    warn_of_few_targets $few
    run_tests
    ;;
--user)
    shift
    find_user_tools
    if [ "${1-}" = build ]; then
        configure_for_user
        build false
        meson=$(command -v meson)
        echo "quickstart.sh: $meson configure build --prefix=FOLDER says where to install, and $meson install -C build installs" >&2
    else
        configure_for_user >&2
        build false >&2
        cd -- "$caller"
        exec "$root/build/perf/qccl-perf" demo "$@"
    fi
    ;;
-h | --help)
    sed -n '2,/^set/s/^# \{0,1\}//p' "$root/quickstart.sh"
    ;;
*)
    # shellcheck disable=SC2086
    install_packages $needed_to_build
    build false >&2
    cd -- "$caller"
    exec "$root/build/perf/qccl-perf" demo "$@"
    ;;
esac
