#!/bin/bash
# conda-build runs this in the source tree. MESON_ARGS, which conda-forge's compilers set, has the machine and the folders.
set -eux

# shellcheck disable=SC2086 # a list of words
meson setup build ${MESON_ARGS:-} --prefix="$PREFIX" -Dlibdir=lib -Dbuildtype=release -Ddefault_library=shared -Dtests=false \
    -Ducx=enabled -Dmpi=disabled -Dcuda=disabled -Dhip=disabled -Demulated=disabled \
    -Dpython=disabled -Dfortran=disabled -Ddocs=disabled
ninja -C build -j "${CPU_COUNT:-2}"
meson install -C build --no-rebuild
