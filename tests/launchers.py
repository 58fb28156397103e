"""What the tests of ranks that others start share: the launchers, and jobs that are started by hand. Knows no programs."""
import contextlib
import os
import shutil
import socket
import subprocess
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


def free_port():
    """One whose follower is free as well, also of connections that have ended lately."""
    while True:
        with contextlib.suppress(OSError), socket.socket() as one, socket.socket() as next_one:
            one.bind(("", 0))
            port = one.getsockname()[1]
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


def start_by_hand(commands, environments, patience=PATIENCE):
    """(exit status, standard output, standard error) of a process for each."""
    started = [subprocess.Popen(command, env=one, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
               for command, one in zip(commands, environments, strict=True)]
    ended = []
    for process in started:
        said = process.communicate(timeout=patience)
        ended.append((process.returncode, *said))
    return ended
