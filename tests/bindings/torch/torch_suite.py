"""Runs torch's own tests of its backends on the backend "qccl": those of gloo, with gloo's name replaced in copies of the sources.

usage: torch_suite.py [--sources FOLDER] [--backend qccl|gloo] [--ranks N] [-k WORDS] [--list] [SUITE...]

A SUITE is one of
  distributed   torch/testing/_internal/distributed/distributed_test.py, which is in torch's wheel: collectives, messages, groups, DDP
  gloo          test_c10d_gloo.py and test_c10d_common.py of FOLDER, the folder test/distributed of torch's sources
  objects       test_c10d_object_collectives.py of FOLDER
With --backend gloo the same cases run as they are, which shows what passes on this machine at all. -k runs the cases whose names
have one of the words. Cases of GPUs skip themselves without one. Exit status: 0 if no case failed.

Not part of a commit's tests: it takes most of an hour on two cores, and FOLDER is not in this tree.
"""
import argparse
import collections
import importlib
import os
import pathlib
import re
import shutil
import sys
import tempfile
import time
import unittest

# Cases that cannot apply, and why. The names are those of methods.
LEFT_OUT = {
    "test_round_robin": "torch has dropped round-robin groups",
    "test_round_robin_create_destroy": "torch has dropped round-robin groups",
    **dict.fromkeys(("test_allgather_work_wait_cpu", "test_allreduce_work_wait_cpu", "test_broadcast_work_wait_cpu",
                     "test_consecutive_comm_work_wait_cpu", "test_nested_comm_tensor_wrapping", "test_scatter_work_wait_cpu"),
                    "torch has dropped CommTensor, on which the case works"),
    "test_init_process_group_for_all_backends": "it starts all backends that torch names, also those that this torch does not have",
    "test_ddp_logging_data_cpu": "torch gives all backends that it does not have itself the name custom",
    "test_default_store_timeout_gloo": "its thread's store fails with gloo, too",
}

# What a copy begins with: the backend, under the names that the tests ask for.
PROLOGUE = '''
import datetime as _datetime
import torch.distributed as _dist
import torch.testing._internal.common_distributed as _common
import qccl.torch as _qccl
for _feature in ("ddp", "subgroup", "plugin", "gpu", "cuda"):
    _common.DistTestCases.backend_feature[_feature].add("qccl")
_dist.monitored_barrier = _qccl.monitored_barrier
_qccl.ProcessGroupQccl.create_device = staticmethod(lambda **_: None)

class _GlooOptions:
    _timeout = 1800.0
    _devices = ()
    _threads = 2

class QcclInPlaceOfGloo:
    _Options = _GlooOptions

    def __new__(cls, store, rank, size, options=None, timeout=None):
        own = _qccl.Options()
        limit = timeout or (options or _GlooOptions)._timeout
        own._timeout = limit if isinstance(limit, _datetime.timedelta) else _datetime.timedelta(seconds=limit)
        return _qccl.ProcessGroupQccl(store, rank, size, own)

'''
REPLACED = [(re.compile(r'(["\'])gloo\1'), '"qccl"'), (re.compile(r"\bdist\.Backend\.GLOO\b"), "dist.Backend.QCCL"),
            (re.compile(r"\bc10d\.ProcessGroupGloo\b"), "QcclInPlaceOfGloo"), (re.compile(r"\bdist\.ProcessGroupGloo\b"), "QcclInPlaceOfGloo"),
            # What torch's MPI can on the CPU, and gloo could not for long.
            (re.compile(r'\bBACKEND != "mpi"'), 'BACKEND not in ("mpi", "qccl")')]


def copy_of(source, backend):
    text = source.read_text()
    if backend == "gloo":
        return text
    for pattern, replacement in REPLACED:
        text = pattern.sub(replacement, text)
    return PROLOGUE + text


# The classes of the wheel's tests are bases; torch's sources join them in the same way.
DISTRIBUTED = '''
from distributed_cases import DistributedTest, TestDistBackend

class TestDistributed(TestDistBackend, DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._spawn_processes()
'''


def wheel_sources():
    import torch
    return pathlib.Path(torch.__file__).parent / "testing" / "_internal" / "distributed"


def prepare(folder, suite, options):
    """Writes the copies of a suite and returns the names of the modules that have its cases."""
    if suite == "distributed":
        (folder / "distributed_cases.py").write_text(copy_of(wheel_sources() / "distributed_test.py", options.backend))
        (folder / "run_distributed.py").write_text(DISTRIBUTED)
        return ["run_distributed"]
    files = {"gloo": ["test_c10d_common", "test_c10d_gloo"], "objects": ["test_c10d_common", "test_c10d_object_collectives"]}[suite]
    for name in files:
        (folder / f"{name}.py").write_text(copy_of(options.sources / f"{name}.py", options.backend))
    return files[1:]


def run_rank(environment, target, args, kwargs):
    os.environ.update(environment)
    target(*args, **kwargs)


def start_processes_from_a_server():
    """Ranks are forked from a server that has imported torch, which saves most of a case's time. The server has the environment of
    its own start, so a rank gets that of its case."""
    import torch.multiprocessing
    from torch.testing._internal.common_distributed import MultiProcessTestCase
    context = torch.multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "torch.distributed", "torch.testing._internal.common_distributed", "qccl.torch"])

    def make_process(target, name, args, kwargs):
        return context.Process(target=run_rank, name=name, args=(dict(os.environ), target, args, kwargs))

    MultiProcessTestCase._spawn_processes = lambda case: case._start_processes(make_process)


def cases_of(module, words):
    suite = unittest.defaultTestLoader.loadTestsFromModule(importlib.import_module(module))
    found = []
    for group in suite:
        for case in group:
            name = case.id().rpartition(".")[2]
            # A class's method that is inherited into several modules is a case of the one that names it.
            if type(case).__module__ == module and (not words or any(word in name for word in words)):
                found.append((name, case))
    return found


def run_case(name, case):
    """Returns what became of the case, and a sentence."""
    if name in LEFT_OUT:
        return "left out", LEFT_OUT[name]
    result = unittest.TestResult()
    case.run(result)
    if result.skipped:
        return "skipped", result.skipped[0][1]
    if result.wasSuccessful():
        return "passed", ""
    return "failed", (result.errors + result.failures or [(None, "unexpected success")])[0][1]


def run_suite(folder, suite, options):
    counts, failed = collections.Counter(), []
    for module in prepare(folder, suite, options):
        for name, case in cases_of(module, options.k):
            if options.list:
                print(f"{suite}: {type(case).__name__}.{name}")
                continue
            begin = time.monotonic()
            outcome, sentence = run_case(name, case)
            counts[outcome] += 1
            failed += [name] if outcome == "failed" else []
            print(f"{outcome:8s} {time.monotonic() - begin:6.1f} s  {type(case).__name__}.{name}  {sentence.strip()}", flush=True)
    print(f"{suite}: " + ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())), *failed, sep="\n  ", flush=True)
    return not failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="*", metavar="SUITE", default=["distributed"], help="distributed, gloo, objects")
    parser.add_argument("--sources", type=pathlib.Path, help="the folder test/distributed of torch's sources")
    parser.add_argument("--backend", choices=("qccl", "gloo"), default="qccl")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("-k", action="append", help="only cases with this word in their names")
    parser.add_argument("--list", action="store_true", help="print the cases and run none")
    options = parser.parse_args()
    if options.sources is None and set(options.suites) - {"distributed"}:
        parser.error("--sources is needed for all suites but `distributed`")
    os.environ.update(BACKEND=options.backend, WORLD_SIZE=str(options.ranks), OMP_NUM_THREADS="1")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="qccl_torch_suite_"))
    sys.path.insert(0, str(folder))
    import qccl.torch
    qccl.torch.build()  # before ranks need it
    start_processes_from_a_server()
    try:
        passed = [run_suite(folder, suite, options) for suite in options.suites]
    finally:
        shutil.rmtree(folder)
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
