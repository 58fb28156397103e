#!/bin/sh
# Builds the documents: OUTPUT/html, the site, and OUTPUT/man3, the manual pages of the C API.
#
#   docs/build.sh OUTPUT
#
# Needs Debian's doxygen, python3-sphinx, python3-breathe and python3-myst-parser; with furo or python3-sphinx-rtd-theme the site
# looks better. It reads the tree alone and needs no build. A warning is an error.
set -eu
[ $# -eq 1 ] || {
    echo "usage: docs/build.sh OUTPUT" >&2
    exit 2
}
QCCL_SOURCE=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
mkdir -p "$1"
output=$(CDPATH='' cd -- "$1" && pwd)
work=$output/work
docs=$QCCL_SOURCE/docs
python=${PYTHON:-/usr/bin/python3} # Debian's, which has Debian's Sphinx
QCCL_VERSION=$(sed -n "s/^ *version: '\(.*\)',$/\1/p" "$QCCL_SOURCE/meson.build" | head -n 1)
export QCCL_SOURCE QCCL_VERSION PYTHONDONTWRITEBYTECODE=1

rm -rf "$work" "$output/html" "$output/man3"
mkdir -p "$work/site" "$work/complete" "$work/man" "$work/package" "$output/man3"

# $1: the folder. $2: the sections of Doxygen that are enabled.
run_doxygen() {
    QCCL_OUTPUT=$1 QCCL_SECTIONS=$2 doxygen "$docs/Doxyfile"
    sed -i '/<includes /d' "$1"/xml/struct*.xml # headers have no page here
}

# The Python package as it is installed, with what the build makes of the header.
make_package() {
    folder=$work/package/qccl
    mkdir -p "$folder/torch"
    cp "$QCCL_SOURCE"/bindings/python/qccl/*.py "$folder"
    cp "$QCCL_SOURCE"/bindings/python/qccl/torch/*.py "$folder/torch"
    IFS=. read -r major minor patch <<END
$QCCL_VERSION
END
    sed "s/@major@/$major/; s/@minor@/$minor/; s/@patch@/$patch/" "$QCCL_SOURCE/include/qccl/version.h.in" >"$work/version.h"
    generators=$QCCL_SOURCE/bindings/generate
    "$python" "$generators/ctypes_table.py" "$QCCL_SOURCE/include/qccl/qccl.h" "$work/version.h" "$folder/_declarations.py"
    "$python" "$generators/library_folders.py" "$folder/_folders.py" / /lib / /lib
}

# -n: a name that leads nowhere is a warning, too.
run_sphinx() {
    "$python" -m sphinx -q -W --keep-going -n -c "$docs" "$@"
}

run_doxygen "$work/site" ""
run_doxygen "$work/complete" complete
make_package
QCCL_XML=$work/site/xml QCCL_PACKAGE=$work/package run_sphinx -b html -d "$work/doctrees" "$docs" "$output/html"

"$python" "$docs/man_sources.py" "$work/complete/xml" "$work/man"
QCCL_XML=$work/complete/xml QCCL_PAGES=$work/man/pages.json run_sphinx -b man -d "$work/man_doctrees" "$work/man" "$output/man3"
"$python" - "$work/man/links.json" "$output/man3" <<'END'
import json, pathlib, sys
for name, page in json.loads(pathlib.Path(sys.argv[1]).read_text()).items():
    pathlib.Path(sys.argv[2], name + ".3").write_text(f".so man3/{page}.3\n")
END
rm -rf "$work"
echo "$output/html/index.html"
