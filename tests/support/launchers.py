"""What the tests of ranks that others start share: the launchers, and jobs that are started by hand. It names no test program."""
import contextlib
import os
import random
import shutil
import socket
import subprocess
import tempfile
import time
import unittest

RANKS = 4
LAUNCHERS = {
    "hydra": ["mpiexec.hydra", "-n", RANKS],
    "Open MPI": ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", RANKS],
    "Slurm": ["srun", "-n", RANKS],
    "torchrun": ["torchrun", "--no-python", "--nproc-per-node", RANKS, "--master-port", "{port}"],
}
VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_", "PMI_", "PMIX_", "OMPI_", "SLURM_", "QCCL_")
PATIENCE = 120  # seconds
FIXED_PORTS = (12000, 32000)  # below Linux' ephemeral ones


def free_port():
    """One whose follower is free as well. The kernel gives these numbers to nobody who asks for any, so that they stay free."""
    while True:
        port = random.randrange(*FIXED_PORTS)
        with contextlib.suppress(OSError), socket.socket() as one, socket.socket() as next_one:
            one.bind(("", port))
            next_one.bind(("", port + 1))
            return port


def environment(**more):
    """Without what a launcher of this very test may have set, and what somebody has measured."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(VARIABLES)}
    return {**clean, "QCCL_CALIBRATION": "off", **{name: str(value) for name, value in more.items()}}


# For ranks that count as on several hosts: interfaces come and go beside a test, and what is over one that goes is lost.
HERE_ALONE = {"QCCL_UCX_DEVICES": "lo", "QCCL_SOCKET_IFNAME": "lo"}


def launch(name, *command):
    """What became of RANKS ranks under the launcher; skips the test where it is not here."""
    launcher = LAUNCHERS[name]
    if shutil.which(launcher[0]) is None:
        raise unittest.SkipTest(f"{name}: no {launcher[0]}")
    words = [str(word).format(port=free_port()) for word in launcher] + [str(word) for word in command]
    return subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=PATIENCE, check=False)


def start_by_hand(commands, environments, patience=90, ends_with_first_failure=False):
    """(exit status, standard output, standard error) of a process for each. Those that still run after `patience` are killed, and,
    where that is asked for, those that would wait for one that has failed."""
    with contextlib.ExitStack() as files:
        outs, errs = ([files.enter_context(tempfile.TemporaryFile("w+")) for _ in commands] for _ in range(2))
        started = [subprocess.Popen(command, env=one, stdout=out, stderr=err, text=True)
                   for command, one, out, err in zip(commands, environments, outs, errs, strict=True)]
        end = time.monotonic() + patience
        while any(process.poll() is None for process in started) and time.monotonic() < end:
            if ends_with_first_failure and any(process.poll() for process in started):
                break
            time.sleep(0.01)
        for process in started:
            process.kill()
            process.wait()
        for file in outs + errs:
            file.seek(0)
        return [(process.returncode, out.read(), err.read()) for process, out, err in zip(started, outs, errs)]
