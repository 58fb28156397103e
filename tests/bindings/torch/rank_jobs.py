"""Runs a function on ranks that are processes, for the tests of the backend "qccl" of torch.distributed.

Ranks are forked from a server that has imported torch, or are programs of their own, which end as programs do. They meet through a
file. A test gets what the function returned on each rank, the exception that it raised, how the process ended, and whether it closed
its group when it ended.
"""
import datetime
import importlib
import multiprocessing.util
import os
import pathlib
import pickle
import subprocess
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
    """What became of a rank: value, or error (the text of the exception, its class first) and its traceback, or neither. end: what a
    call of the group says after everything that is done at the end of the process."""

    def __init__(self, status, value=None, error=None, trace="", end=None):
        self.status, self.value, self.error, self.trace, self.end = status, value, error, trace, end

    def __repr__(self):
        return f"<status {self.status}, value {self.value!r}, error {self.error!r}>\n{self.trace}"


def become_rank(function, rank, size, folder, backend, arguments):
    import torch
    import torch.distributed
    importlib.import_module("qccl.torch")  # registers the backend
    multiprocessing.util.Finalize(None, tell_end, (pathlib.Path(folder) / f"{rank}.end",), exitpriority=0)  # behind those of the backend
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


def tell_end(path):
    import torch
    if torch.distributed.is_initialized():
        try:
            torch.distributed.group.WORLD._get_backend(torch.device("cpu")).barrier()
            path.write_text("the group is open")
        except RuntimeError as error:
            path.write_text(str(error))


class Group:
    """How the ranks make and end their group, if not in the usual way. meeting: the address of the store."""

    def __init__(self, timeout=GROUP_TIMEOUT, codec=None, is_destroyed=True, meeting=None):
        self.timeout, self.codec, self.is_destroyed, self.meeting = timeout, codec, is_destroyed, meeting

    def pg_options(self):
        import qccl.torch
        return qccl.torch.Options(codec=self.codec) if self.codec else None


class Program:
    """A rank that is a program of its own, with the methods of a process of multiprocessing."""

    def __init__(self, function, *arguments):
        module = pathlib.Path(sys.modules[function.__module__].__file__)
        self.words = [sys.executable, "-c", "import rank_jobs; rank_jobs.become_program()", module.parent, module.stem, function.__name__]
        self.arguments = pickle.dumps(arguments)

    def start(self):
        places = os.pathsep.join([str(pathlib.Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
        self.process = subprocess.Popen(self.words, stdin=subprocess.PIPE, env={**os.environ, "PYTHONPATH": places})
        self.process.stdin.write(self.arguments)
        self.process.stdin.close()

    def join(self, timeout=None):
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            pass

    def is_alive(self):
        return self.process.poll() is None

    def kill(self):
        self.process.kill()

    @property
    def exitcode(self):
        return self.process.returncode


def become_program():
    folder, module, function = sys.argv[1:]
    sys.path.insert(0, folder)
    become_rank(getattr(importlib.import_module(module), function), *pickle.load(sys.stdin.buffer))


def run(function, size, *arguments, backend="qccl", are_programs=False):
    """Returns the Outcome of each rank. function: of a module, called with the rank, the size and the arguments."""
    with tempfile.TemporaryDirectory() as folder:
        make = Program if are_programs else lambda *words: CONTEXT.Process(target=become_rank, args=words)
        ranks = [make(function, rank, size, folder, backend, arguments) for rank in range(size)]
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
            end = path.with_suffix(".end")
            outcomes.append(Outcome(rank.exitcode, **(pickle.loads(path.read_bytes()) if path.exists() else {}),
                                    end=end.read_text() if end.exists() else None))
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
