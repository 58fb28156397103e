"""The same program as a job on several hosts, however it is started: by hand, by a unique id, as Slurm's srun does, by either
mpirun; over IPv6, with interfaces that lead nowhere, and with strangers at every port.

usage: launch_hosts_test.py FAR_SURVIVOR LIBRARY
"""
import contextlib
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import sys
import threading
import unittest

import testbed
from launchers import environment
from testbed import links
from testbed.suite import run_tests

PROGRAM, LIBRARY = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
PYTHON = "/usr/bin/python3"
HOSTS, RANKS, CALLS = 2, 2, 14
SIZE = HOSTS * RANKS
LAYOUT = struct.Struct("<Qiiiid512s")  # workload.hpp's Report
PATIENCE = 60  # seconds
NAMES = pathlib.Path("/etc/netns")  # where `ip netns exec` finds a namespace's own /etc/hosts

BY_ID = """import ctypes, sys
qccl = ctypes.CDLL(sys.argv[1])
qccl.qcclGetLastError.restype = ctypes.c_char_p
rank, size, path = int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
class Id(ctypes.Structure): _fields_ = [("internal", ctypes.c_char * 128)]
unique, comm = Id(), ctypes.c_void_p()
if rank == 0:
    assert qccl.qcclGetUniqueId(ctypes.byref(unique)) == 0, qccl.qcclGetLastError(None)
    open(path, "wb").write(bytes(unique))
else:
    open(path, "rb").readinto(unique)  # a pipe: waits
assert qccl.qcclCommInitRank(ctypes.byref(comm), size, ctypes.byref(unique), rank) == 0, qccl.qcclGetLastError(None)
assert qccl.qcclBarrier(comm, None) == 0 and qccl.qcclCommDestroy(comm) == 0
"""


def slurm(bed, rank):
    """What srun 22 sets on two nodes, that anybody might look at."""
    nodes = f"h[0-{HOSTS - 1}]"
    tasks = f"{RANKS}(x{HOSTS})"
    host = rank // RANKS
    return environment(
        SLURM_JOB_ID=os.getpid(), SLURM_JOBID=os.getpid(), SLURM_STEP_ID=0, SLURM_STEPID=0, SLURM_JOB_NAME="far_survivor",
        SLURM_JOB_NODELIST=nodes, SLURM_NODELIST=nodes, SLURM_STEP_NODELIST=nodes, SLURM_NNODES=HOSTS, SLURM_JOB_NUM_NODES=HOSTS,
        SLURM_STEP_NUM_NODES=HOSTS, SLURM_NTASKS=SIZE, SLURM_NPROCS=SIZE, SLURM_STEP_NUM_TASKS=SIZE, SLURM_TASKS_PER_NODE=tasks,
        SLURM_STEP_TASKS_PER_NODE=tasks, SLURM_NTASKS_PER_NODE=RANKS, SLURM_PROCID=rank, SLURM_LOCALID=rank % RANKS,
        SLURM_NODEID=host, SLURMD_NODENAME=f"h{host}", SLURM_GTIDS=",".join(str(host * RANKS + i) for i in range(RANKS)),
        SLURM_LAUNCH_NODE_IPADDR=bed.address, SLURM_SRUN_COMM_HOST=bed.address, SLURM_SRUN_COMM_PORT=40123,
        SLURM_STEP_LAUNCHER_PORT=40123, SLURM_DISTRIBUTION="block", SLURM_CPUS_ON_NODE=RANKS, SLURM_SUBMIT_HOST="login")


class Launched(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.bed = cls.enterClassContext(testbed.Testbed(HOSTS, ipv6=True))

    def setUp(self):
        self.path = self.bed.folder / "reports"
        self.path.write_bytes(bytes(LAYOUT.size * SIZE))
        self.words = [PROGRAM, self.path, CALLS]

    def check(self, said=""):
        reports = list(LAYOUT.iter_unpack(self.path.read_bytes()))
        self.assertEqual([(calls, result, wrong) for calls, _, result, _, wrong, _, _ in reports], [(CALLS, 0, 0)] * SIZE,
                         [sentence.split(b"\0")[0] for *_, sentence in reports] + [said])

    def run_by_hand(self, **env):
        with testbed.Job(self.bed, self.words, RANKS, env={name: str(value) for name, value in env.items()}) as job:
            self.assertEqual(job.wait(PATIENCE), 0)
        self.check()

    def launch(self, words, **env):
        if shutil.which(words[0]) is None:
            self.skipTest(f"no {words[0]}")
        done = subprocess.run([str(word) for word in [*words, *self.words]], env=environment(**env), capture_output=True, text=True,
                              timeout=PATIENCE, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.check(done.stderr)

    def test_by_hand(self):
        self.run_by_hand()

    def test_by_hand_over_ipv6(self):
        self.run_by_hand(MASTER_ADDR=self.bed.hosts[0].address6)
        # There is nothing else.
        for host in self.bed.hosts:
            where = (f"{host.address}/24", "dev", "eth0")
            links.call("ip", "-n", host.namespace, "addr", "del", *where)
            self.addCleanup(links.call, "ip", "-n", host.namespace, "addr", "add", *where)
        self.run_by_hand(MASTER_ADDR=self.bed.hosts[0].address6)

    def test_by_a_unique_id(self):
        for name in ("eth0", "eth"):
            pipe = self.bed.folder / f"id-{name}"
            os.mkfifo(pipe)
            # One reader to one writing: the second rank's, on the other host.
            ranks = [host.start([PYTHON, "-c", BY_ID, LIBRARY, rank, HOSTS, pipe], {"QCCL_SOCKET_IFNAME": name},
                                stderr=subprocess.PIPE, text=True) for rank, host in enumerate(self.bed.hosts)]
            said = [rank.communicate(timeout=PATIENCE)[1] for rank in ranks]
            self.assertEqual([rank.returncode for rank in ranks], [0] * HOSTS, said)

    def test_as_srun_starts_them(self):
        if not NAMES.is_dir():
            NAMES.mkdir()
            self.addCleanup(NAMES.rmdir)
        for host in self.bed.hosts:
            folder = NAMES / host.namespace
            folder.mkdir()
            self.addCleanup(shutil.rmtree, folder)
            (folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(f"{one.address} {one.name}\n" for one in self.bed.hosts))
        ranks = [subprocess.Popen(self.bed.hosts[rank // RANKS].command(self.words), env=slurm(self.bed, rank),
                                  stderr=subprocess.PIPE, text=True) for rank in range(SIZE)]
        said = [rank.communicate(timeout=PATIENCE)[1] for rank in ranks]
        self.check(said)

    def test_by_open_mpi(self):
        hosts = ",".join(f"{host.address}:{RANKS}" for host in self.bed.hosts)
        self.launch(["mpirun.openmpi", "--allow-run-as-root", "--host", hosts, "--mca", "plm_rsh_agent", self.bed.agent(),
                     "--mca", "plm_rsh_no_tree_spawn", 1, "--mca", "oob_tcp_if_include", self.bed.subnet,
                     "-x", "MASTER_ADDR"], MASTER_ADDR=self.bed.hosts[0].address)

    def test_by_mpich(self):
        hosts = ",".join(host.address for host in self.bed.hosts)
        self.launch(["mpiexec.hydra", "-launcher", "ssh", "-launcher-exec", self.bed.agent(), "-iface", self.bed.bridge,
                     "-hosts", hosts, "-ppn", RANKS, "-n", SIZE])

    def test_beside_interfaces_that_lead_nowhere(self):
        """As bridges for containers do, with the same address on every host; they come first."""
        for host in self.bed.hosts:
            ip = ("ip", "-n", host.namespace)
            links.call(*ip, "link", "add", "docker0", "type", "veth", "peer", "name", "inside0")
            self.addCleanup(links.call, *ip, "link", "del", "docker0")
            for name in ("docker0", "inside0"):
                links.call(*ip, "link", "set", name, "up")
            links.call(*ip, "addr", "add", "10.1.0.1/16", "dev", "docker0")
        for name in ("docker0,eth0", "eth0,docker0"):
            self.run_by_hand(QCCL_SOCKET_IFNAME=name, QCCL_UCX_DEVICES="eth0")

    def test_strangers_at_every_port(self):
        """While the ranks meet and call: garbage, silence and haste at all that listens on the first host."""
        host = self.bed.hosts[0]
        is_over = threading.Event()

        def ports():
            said = host.run(["ss", "-Htln"]).stdout.splitlines()
            return {int(line.split()[3].rsplit(":", 1)[1]) for line in said}

        def pester():
            guests = []
            while not is_over.is_set():
                for port in ports():
                    for words in (b"", b"GET / HTTP/1.1\r\n\r\n", os.urandom(64), os.urandom(4096)):
                        with contextlib.suppress(OSError):
                            guest = socket.create_connection((host.address, port), timeout=1)
                            guests.append(guest)
                            guest.sendall(words)
                while len(guests) > 1000:
                    guests.pop(0).close()
            for guest in guests:
                guest.close()
            self.knocks = len(guests)

        stranger = threading.Thread(target=pester)
        stranger.start()
        try:
            for _ in range(3):
                self.run_by_hand()
        finally:
            is_over.set()
            stranger.join()
        self.assertGreater(self.knocks, 20)


if __name__ == "__main__":
    run_tests()
