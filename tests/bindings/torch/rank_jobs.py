"""Runs a function on ranks that are processes, for the tests of the backend "qccl" of torch.distributed.

Ranks are forked from a server that has imported torch. They meet through a file. A test gets what the function returned on each
rank, the exception that it raised, or how the process ended.
"""
import datetime
import importlib
import multiprocessing
import os
import pathlib
import pickle
import sys
import tempfile
import time
import traceback
import warnings

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["torch", "torch.distributed", "qccl.torch"])
PATIENCE = 100.0
GROUP_TIMEOUT = datetime.timedelta(seconds=60)


class Outcome:
    """What became of a rank: value, or error (the text of the exception, its class first) and its traceback, or neither."""

    def __init__(self, status, value=None, error=None, trace=""):
        self.status, self.value, self.error, self.trace = status, value, error, trace

    def __repr__(self):
        return f"<status {self.status}, value {self.value!r}, error {self.error!r}>\n{self.trace}"


def become_rank(function, rank, size, folder, backend, arguments):
    import torch
    import torch.distributed
    importlib.import_module("qccl.torch")  # registers the backend
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # torch warns of calls that it will drop, which the tests make nevertheless
    options = arguments[-1] if arguments and isinstance(arguments[-1], Group) else Group()
    outcome = {}
    try:
        torch.distributed.init_process_group(backend, init_method=options.meeting or f"file://{folder}/meeting", rank=rank, world_size=size,
                                             timeout=options.timeout, pg_options=options.pg_options())
        outcome["value"] = function(rank, size, *[each for each in arguments if not isinstance(each, Group)])
        if options.is_destroyed:
            torch.distributed.destroy_process_group()
    except Exception as error:
        outcome = {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()}
    part = pathlib.Path(folder) / f"{rank}.part"
    part.write_bytes(pickle.dumps(outcome))
    part.rename(part.with_suffix(".outcome"))
    sys.exit(0)


class Group:
    """How the ranks make and end their group, if not in the usual way. meeting: the address of the store."""

    def __init__(self, timeout=GROUP_TIMEOUT, codec=None, is_destroyed=True, meeting=None):
        self.timeout, self.codec, self.is_destroyed, self.meeting = timeout, codec, is_destroyed, meeting

    def pg_options(self):
        import qccl.torch
        return qccl.torch.Options(codec=self.codec) if self.codec else None


def run(function, size, *arguments, backend="qccl"):
    """Returns the Outcome of each rank. function: of a module, called with the rank, the size and the arguments."""
    with tempfile.TemporaryDirectory() as folder:
        ranks = [CONTEXT.Process(target=become_rank, args=(function, rank, size, folder, backend, arguments)) for rank in range(size)]
        for rank in ranks:
            rank.start()
        deadline = time.monotonic() + PATIENCE
        for rank in ranks:
            rank.join(max(0.0, deadline - time.monotonic()))
        outcomes = []
        for number, rank in enumerate(ranks):
            if rank.is_alive():
                rank.kill()
                rank.join()
                outcomes.append(Outcome("hangs"))
                continue
            path = pathlib.Path(folder) / f"{number}.outcome"
            outcomes.append(Outcome(rank.exitcode, **(pickle.loads(path.read_bytes()) if path.exists() else {})))
        return outcomes


def values(case, function, size, *arguments, **options):
    """As run, where every rank has to come to an end without an error. Returns the values."""
    outcomes = run(function, size, *arguments, **options)
    for rank, outcome in enumerate(outcomes):
        case.assertEqual((outcome.status, outcome.error), (0, None), f"rank {rank} of {function.__name__}: {outcome}")
    return [outcome.value for outcome in outcomes]


def skip_without_torch():
    """Ends the process with 77, which Meson counts as skipped, if there is no PyTorch."""
    try:
        import torch
    except ImportError:
        print("skipped: PyTorch is not installed")
        sys.exit(77)
    if not torch.distributed.is_available():
        print("skipped: PyTorch has no torch.distributed")
        sys.exit(77)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import qccl.torch
    qccl.torch.build()
