"""Who sums: MPI libraries, Gloo and QCCL, each started on the hosts of a testbed as its users start it. Knows how to start
them and to read what they print; the comparison is somebody else's.

A contender has `labels`, the rows that it gives, and `measure(labels, plan)`, which starts it for these of them with a plan of
(size, iterations) and gives {(label, size): Sample}; `calls(iterations)` says how many sums so many iterations are.
"""
import collections
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

from testbed import TIMED_OUT, Job

HERE = pathlib.Path(__file__).resolve().parent
Label = collections.namedtuple("Label", "library codec algorithm", defaults=("none", None))
Sample = collections.namedtuple("Sample", "time_us algorithm nmse sustained_us", defaults=(None, None, None))

ENDED = (128 + signal.SIGTERM, 128 + signal.SIGKILL)  # a rank that was asked to


class Missing(Exception):
    """A contender that cannot be had here, or that failed: why."""


def middle(values):
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "no word about it"


def run_launcher(bed, words, env, patience):
    """What a launcher prints that runs on this machine and starts ranks on the hosts."""
    with subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          stdin=subprocess.DEVNULL, env={**os.environ, **env}, start_new_session=True) as process:
        try:
            said, errors = process.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            raise Missing(f"not done after {patience:.0f} s") from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            bed.end_processes()
    if process.returncode != 0:
        raise Missing(f"exit status {process.returncode}: {last_line(errors or said)}")
    return said


def run_job(bed, words, ranks, env, patience):
    """What rank 0 prints."""
    with tempfile.TemporaryDirectory(dir=bed.folder) as folder:
        with Job(bed, words, ranks, env=env, output=folder) as job:
            status = job.wait(patience)
            statuses = job.statuses()
        bed.end_processes()
        # Who failed, rather than who waited for it until the end.
        failed = [rank for rank, code in enumerate(statuses) if code not in (0, *ENDED)]
        if failed:
            text = (pathlib.Path(folder) / f"{failed[0]}.err").read_text(errors="replace")
            raise Missing(f"rank {failed[0]}, exit status {statuses[failed[0]]}: {last_line(text)}")
        if status != 0:
            raise Missing(f"not done after {patience:.0f} s" if status == TIMED_OUT else f"exit status {status}")
        return (pathlib.Path(folder) / "0.out").read_text()


def samples_of(said, label):
    """Of what our programs around the peers print."""
    try:
        rows = json.loads(said[said.index('{"library"'):].splitlines()[0])["rows"]
    except (ValueError, KeyError):
        raise Missing(f"printed no result: {last_line(said)}") from None
    for row in rows:
        if row["wrong"]:
            raise Missing(f"{row['wrong']} wrong sums of {row['bytes']} bytes")
    return {(label, row["bytes"]): Sample(middle(row["times_us"]), sustained_us=row.get("sustained_us")) for row in rows}


def words_of(plan):
    return [f"{size}:{iterations}" for size, iterations in plan]


class Mpi:
    """What both MPIs share: a program that is compiled with their own compiler."""

    def __init__(self, name, compiler, launcher, bed, ranks, pattern, patience):
        self.labels = [Label(name)]
        self.bed, self.ranks, self.pattern, self.patience = bed, ranks, pattern, patience
        for tool in (compiler, launcher):
            if shutil.which(tool) is None:
                raise Missing(f"{tool} is not installed")
        self.program = bed.folder / f"allreduce_{compiler}"
        if not self.program.exists():
            done = subprocess.run([compiler, "-O2", HERE / "allreduce_mpi.c", "-o", self.program, "-lm"], capture_output=True,
                                  text=True, check=False)
            if done.returncode != 0:
                raise Missing(f"{compiler}: {last_line(done.stderr)}")

    def measure(self, labels, plan):
        words, env = self.launch()
        said = run_launcher(self.bed, [*words, self.program, self.pattern, *words_of(plan)], env, self.patience)
        return samples_of(said, labels[0])

    def launch(self):
        """(words that start a program on all hosts, environment)."""
        raise NotImplementedError

    @staticmethod
    def calls(iterations):
        return iterations


def openmpi_words(bed, ranks, pml):
    """What starts a program with Open MPI on all hosts."""
    hosts = ",".join(f"{host.address}:{ranks}" for host in bed.hosts)
    words = ["mpirun.openmpi", "--allow-run-as-root", "--host", hosts, "--mca", "plm_rsh_agent", bed.agent(),
             "--mca", "plm_rsh_no_tree_spawn", "1", "--mca", "oob_tcp_if_include", bed.subnet,
             "--mca", "mpi_yield_when_idle", "1", "--mca", "pml", pml]
    if pml == "ob1":
        local = ["vader"] if ranks > 1 else []
        return [*words, "--mca", "btl", ",".join(["self", *local, "tcp"]), "--mca", "btl_tcp_if_include", bed.subnet]
    # Shared memory is left out: UCX takes hosts for one by their boot id, which they share here.
    return [*words, "--mca", "pml_ucx_tls", "any", "--mca", "pml_ucx_devices", "any", "-x", "UCX_TLS=tcp,self", "-x", "UCX_NET_DEVICES=eth0"]


class OpenMpi(Mpi):
    def __init__(self, pml, *where):
        self.pml = pml
        super().__init__(f"Open MPI {pml}", "mpicc.openmpi", "mpirun.openmpi", *where)

    def launch(self):
        return openmpi_words(self.bed, self.ranks, self.pml), {}


class Mpich(Mpi):
    def __init__(self, *where):
        super().__init__("MPICH", "mpicc.mpich", "mpiexec.hydra", *where)

    def launch(self):
        hosts = ",".join(host.address for host in self.bed.hosts)
        words = ["mpiexec.hydra", "-launcher", "ssh", "-launcher-exec", self.bed.agent(), "-iface", self.bed.bridge,
                 "-hosts", hosts, "-ppn", self.ranks, "-n", self.ranks * len(self.bed.hosts)]
        env = {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "eth0"}
        return words, env if self.ranks > 1 else {**env, "MPIR_CVAR_NOLOCAL": "1"}


def python_with_gloo(python=None):
    """Its path; `python`: the one to take, if it has torch."""
    asked = "import torch.distributed as d, sys; sys.exit(not d.is_gloo_available())"
    candidates = [python] if python else [sys.executable, "python3", "/usr/bin/python3"]
    for candidate in filter(shutil.which, candidates):
        done = subprocess.run([candidate, "-c", asked], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return shutil.which(candidate)
    raise Missing(f"no torch.distributed in {', '.join(candidates)}; --python names an interpreter that has it")


class Gloo:
    def __init__(self, python, bed, ranks, pattern, patience):
        self.labels = [Label("Gloo")]
        self.bed, self.ranks, self.pattern, self.patience = bed, ranks, pattern, patience
        self.python = python_with_gloo(python)

    def measure(self, labels, plan):
        words = [self.python, HERE / "allreduce_gloo.py", self.pattern, *words_of(plan)]
        return samples_of(run_job(self.bed, words, self.ranks, {"GLOO_SOCKET_IFNAME": "eth0"}, self.patience), labels[0])

    calls = staticmethod(Mpi.calls)


class Qccl:
    """Several codecs by one algorithm, in turns within one start."""

    def __init__(self, program, codecs, algorithm, settings, bed, ranks, pattern, patience):
        self.labels = [Label("QCCL", codec, algorithm) for codec in codecs]
        self.program, self.settings = pathlib.Path(program).resolve(), settings
        self.bed, self.ranks, self.pattern, self.patience = bed, ranks, pattern, patience
        if not os.access(self.program, os.X_OK):
            raise Missing(f"{program} is not built")

    def measure(self, labels, plan):
        found = {}
        for size, iterations in plan:
            rows = self.rows_(labels, size, iterations)
            found |= {(label, size): Sample(row["time_us"], row["algorithm"], row["nmse"]) for label, row in zip(labels, rows)}
        return found

    def rows_(self, labels, size, iterations):
        path = self.bed.folder / "qccl.json"
        path.unlink(missing_ok=True)
        words = [self.program, "all_reduce", "-b", size, "-e", size, "-n", iterations, "-w", 1, "--input", self.pattern,
                 "--lossless", "0", "--codec", ",".join(label.codec for label in labels), "--algo", labels[0].algorithm or "auto", "--json", path]
        run_job(self.bed, words, self.ranks, self.settings, self.patience)
        try:
            rows = [row for row in json.loads(path.read_text())["rows"] if not row["in_place"]]
        except (OSError, ValueError, KeyError) as reason:
            raise Missing(f"no result: {reason}") from None
        return self.checked_(rows, len(labels))

    def checked_(self, rows, expected):
        if len(rows) != expected:
            raise Missing(f"{len(rows)} rows of {expected}")
        for row in rows:
            if row["ranks"] != len(self.bed.hosts) * self.ranks or row["transport"] in ("shm", "inproc") and len(self.bed.hosts) > 1:
                raise Missing(f"qccl-perf was no rank of the job: it ran {row['ranks']} ranks over {row['transport']}")
            if row["ranks_agree"] is False:
                raise Missing(f"ranks do not agree by {row['algorithm']} with {row['codec']}")
        return rows

    @staticmethod
    def calls(iterations):
        return 2 * iterations  # out of place and in place
