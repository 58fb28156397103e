"""The kernels on processors that are not at hand: compiled for one and run under qemu, against the
scalar reference and the same golden chunks. QTEST_FULL=1 takes all cases. Exits 77 (skip) with a
word where a tool is missing."""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys

from kept_files import write_if_new

SKIP = 77

# What runs: a processor's qemu options, and the tier that it must turn out to have.
MACHINES = {
    'aarch64': {
        'compiler': 'aarch64-linux-gnu-g++',
        'qemu': 'qemu-aarch64',
        'native': True,
        'runs': [(['-cpu', 'cortex-a57'], 'neon')]
                + [(['-cpu', f'max,sve-default-vector-length={size}'], 'sve') for size in (16, 32, 64, 256)],
    },
    'ppc64le': {
        'compiler': 'powerpc64le-linux-gnu-g++',
        'qemu': 'qemu-ppc64le',
        'native': False,
        'runs': [([], 'generic')],
    },
}

# Folders and what is compiled of them. All of it, so that no list must agree with another, and as one file: that takes half
# the time. So two files of one of these folders may not keep a name to themselves both. The night's build, without
# precompiled headers, finds a file that lacks an include which its neighbour has.
TOGETHER = {'lib/base': '*.cpp', 'lib/codec': '*.cpp', 'kernels/codec': '*.cpp'}
KERNELS = ['kernels/cpu/cpu_tiers.cpp', 'kernels/cpu/cpu_generic.cpp', 'tests/kernels/tested_tiers.cpp', 'tests/kit/qtest.cpp']
PROGRAMS = ['kernels_test', 'golden_chunks_test']
FLAGS = '-std=c++20 -ffp-contract=off -Wall -Wextra -Wconversion -Wshadow -Werror'
# Every how many cases at a commit (of kernels_test: of its pair sample): qemu is some twenty times slower than the processor.
FULL = 'QTEST_FULL' in os.environ
EVERY = dict.fromkeys(PROGRAMS, '1') if FULL else {'kernels_test': '5', 'golden_chunks_test': '3'}


def missing(tools):
    return [tool for tool in tools if shutil.which(tool) is None]


def optimization_of(source, machine):
    """Compiling takes longer than what more optimizations save under qemu. The night runs the vectors' code as optimized as users
    have it."""
    if source.endswith('cpu_native.cpp'):
        return '-O2' if FULL else '-O1'
    if source.endswith('cpu_generic.cpp'):
        # A processor that has vectors links this tier and does not run it.
        return ('-O0' if machine['native'] else '-O1') + ' -fno-tree-vectorize'
    return '-O1'


def write_ninja(build, root, highway, machine):
    """Objects are kept between runs: only what changed is compiled again."""
    (build / 'include').mkdir(parents=True, exist_ok=True)
    link = build / 'include' / 'hwy'
    if not link.is_symlink():
        link.symlink_to(pathlib.Path(highway) / 'hwy')
    sources = KERNELS + (['kernels/cpu/cpu_native.cpp'] if machine['native'] else [])
    flags = (f'{FLAGS} -I{root}/tests/tree/cross -I{root}/lib -I{root} -I{root}/tests -isystem include '
             f'-DQCCL_TEST_DATA=\\"{root}/tests/data\\"'
             + (' -DQCCL_NATIVE_KERNELS' if machine['native'] else ''))
    lines = [f'rule compile\n  description = $in\n  command = {machine["compiler"]} {flags} $extra -MD -MF $out.d -c $in -o $out\n'
             f'  depfile = $out.d\n  deps = gcc\n',
             f'rule link\n  description = $out\n  command = {machine["compiler"]} -static -pthread $in -o $out\n']

    def add_object(path, source):
        name = source.replace('/', '_') + '.o'
        extra = optimization_of(source, machine)
        lines.append(f'build {name}: compile {path}\n  extra = {extra}\n')
        return name

    def add_folder(folder, pattern):
        together = build / f'{folder.replace("/", "_")}.cpp'
        write_if_new(together, ''.join(f'#include "{path}"\n' for path in sorted((root / folder).glob(pattern))))
        return add_object(together, together.name)

    objects = ' '.join([add_folder(*row) for row in TOGETHER.items()] + [add_object(root / source, source) for source in sources])
    for program in PROGRAMS:
        source = f'tests/kernels/{program}.cpp'
        lines.append(f'build {program}: link {add_object(root / source, source)} {objects}\n')
    write_if_new(build / 'build.ninja', '\n'.join(lines))


def run(command, **environment):
    print('+', *command, flush=True)
    done = subprocess.run(command, env=os.environ | environment, check=False)
    if done.returncode != 0:
        sys.exit(f'cross: exit code {done.returncode}')


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('machine', choices=MACHINES)
    parser.add_argument('root')
    parser.add_argument('build')
    parser.add_argument('highway', help='where the folder hwy lies')
    arguments = parser.parse_args()
    machine = MACHINES[arguments.machine]
    if lacking := missing([machine['compiler'], machine['qemu'], 'ninja']):
        print('cross: skipped, not installed:', *lacking)
        sys.exit(SKIP)

    build = pathlib.Path(arguments.build).resolve()
    write_ninja(build, pathlib.Path(arguments.root).resolve(), arguments.highway, machine)
    run(['ninja', '-C', str(build), '-j2'])
    for number, (options, tier) in enumerate(machine['runs'], 1):
        # At a commit the golden chunks are computed on one processor alone: qemu takes longer for larger vectors, on which
        # the other program finds the reference's bytes.
        programs = PROGRAMS if FULL or number == min(2, len(machine['runs'])) else PROGRAMS[:1]
        for program in programs:
            run([machine['qemu'], *options, str(build / program)], QTEST_TIER=tier, QTEST_EVERY=EVERY[program])


main()
