"""The testbed: hosts are told apart, their links keep their rate, count, and can be cut; and nothing is left over, however a
run ends.

usage: hosts_test.py
"""
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
import unittest.mock

import testbed
from testbed import links
from testbed.suite import SKIPPED, run_tests

FOLDER = pathlib.Path(testbed.__file__).resolve().parent
HOSTS = FOLDER / "hosts"
PYTHON = "/usr/bin/python3"
LONG = 600  # seconds: longer than any test lasts

SEND = """import socket, sys
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=60)
block = bytes(1 << 16)
for _ in range(int(sys.argv[3])):
    connection.sendall(block)
"""
RECEIVE = """import socket, sys
connection, _ = socket.create_server(("", int(sys.argv[1]))).accept()
while connection.recv(1 << 20): pass
"""


def hosts(*words, **options):
    return subprocess.run([HOSTS, *map(str, words)], capture_output=True, text=True, timeout=120, **options)


def wait_until(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def left_of(pid):
    """What stands in the system in the name of a process that made a testbed."""
    found = [*links.LINKS.iterdir(), *links.LOCKS.iterdir(), *pathlib.Path(tempfile.gettempdir()).glob("qccl-testbed-*")]
    found += links.NAMESPACES.iterdir() if links.NAMESPACES.is_dir() else []
    return [path.name for path in found if re.search(rf"(?<!\d){pid}(?!\d)", path.name)]


@contextlib.contextmanager
def stream(source, target, blocks=1 << 20, port=7000):
    """Bytes on their way from one host to another, 64 KiB a block."""
    receiver = target.start([PYTHON, "-c", RECEIVE, port])
    sender = None
    try:
        wait_until(lambda: f":{port:X} " in target.run(["cat", "/proc/net/tcp"]).stdout)
        sender = source.start([PYTHON, "-c", SEND, target.address, port, blocks])
        yield sender, receiver
    finally:
        for process in filter(None, (sender, receiver)):
            process.kill()
            process.wait()


def speed(of, seconds=1.0):
    """Bytes a second by a counter."""
    begin, first = time.monotonic(), of()
    time.sleep(seconds)
    return (of() - first) / (time.monotonic() - begin)


class Hosts(unittest.TestCase):
    """Three hosts at 400 Mbit/s."""
    RATE = 400e6 / 8

    @classmethod
    def setUpClass(cls):
        cls.bed = cls.enterClassContext(testbed.Testbed(3, rate="400mbit", ipv6=True))

    def test_they_are_told_apart(self):
        self.assertEqual([host.run(["hostname"]).stdout for host in self.bed.hosts], ["h0\n", "h1\n", "h2\n"])
        self.assertNotIn(os.uname().nodename, ("h0", "h1", "h2"))
        spaces = {host.run(["readlink", "/proc/self/ns/net"]).stdout for host in self.bed.hosts}
        self.assertEqual(len(spaces | {os.readlink("/proc/self/ns/net") + "\n"}), 4)

    def check_rate(self, measure, tries=5):
        """No measurement is above the links' rate. Other programs may slow the hosts down, but not in every try."""
        measured = []
        while len(measured) < tries and max(measured, default=0) < 0.9 * self.RATE:
            measured.append(measure())
            self.assertLess(measured[-1], 1.1 * self.RATE)
        self.assertGreater(max(measured), 0.9 * self.RATE, measured)

    def speeds_in_a_ring(self):
        with tempfile.TemporaryDirectory() as folder:
            addresses = [host.address for host in self.bed.hosts]
            with testbed.Job(self.bed, [PYTHON, FOLDER / "tcp_ring.py", *addresses], output=folder) as job:
                self.assertEqual(job.wait(60), 0)
            found = [json.loads((pathlib.Path(folder) / f"{rank}.out").read_text()) for rank in range(3)]
        return [each["received_bytes"] / each["seconds"] for each in found]

    def test_links_keep_their_rate(self):
        def slowest():
            speeds = self.speeds_in_a_ring()
            self.assertLess(max(speeds), 1.1 * self.RATE)
            return min(speeds)

        self.check_rate(slowest)

    def test_the_receiving_side_is_limited_too(self):
        one, two, target = self.bed.hosts
        with stream(one, target), stream(two, target, port=7001):
            for source in (one, two):
                wait_until(lambda: speed(lambda: source.counters().sent, 0.2) > 0.1 * self.RATE)
            self.check_rate(lambda: speed(lambda: target.counters().received))

    def test_the_sending_side_is_limited_too(self):
        source, one, two = self.bed.hosts
        with stream(source, one), stream(source, two, port=7001):
            for target in (one, two):
                wait_until(lambda: speed(lambda: target.counters().received, 0.2) > 0.1 * self.RATE)
            self.check_rate(lambda: speed(lambda: source.counters().sent))

    def test_counters_count(self):
        source, other, target = self.bed.hosts
        before = self.bed.counters()
        blocks = 160
        with stream(source, target, blocks) as (sender, receiver):
            self.assertEqual((sender.wait(30), receiver.wait(30)), (0, 0))
        sent, by_other, received = (
            (now.sent - then.sent, now.received - then.received) for now, then in zip(self.bed.counters(), before))
        for count in (sent[0], received[1]):
            self.assertGreaterEqual(count, blocks << 16)
            self.assertLess(count, 1.1 * (blocks << 16))
        self.assertLess(max(sent[1], received[0], *by_other), 0.1 * (blocks << 16))

    def test_a_cut_link_carries_nothing_until_it_is_restored(self):
        source, _, target = self.bed.hosts
        received = lambda: target.counters().received
        with stream(source, target) as processes:
            wait_until(lambda: speed(received, 0.2) > 0.5 * self.RATE)
            source.cut()
            time.sleep(0.1)
            self.assertLess(speed(received), 1e4)
            source.restore()
            wait_until(lambda: speed(received, 0.2) > 0.5 * self.RATE)
            self.assertEqual([process.poll() for process in processes], [None, None])

    def test_addresses_of_both_kinds(self):
        connect = "import socket, sys; socket.create_connection((sys.argv[1], 7002), timeout=5)"
        serve = "import socket, sys; socket.create_server((sys.argv[1], 7002), family=int(sys.argv[2])).accept()"
        for name, family in (("address", 2), ("address6", 10)):
            address = getattr(self.bed.hosts[1], name)
            server = self.bed.hosts[1].start([PYTHON, "-c", serve, address, family])
            self.addCleanup(server.kill)
            wait_until(lambda: self.bed.hosts[0].run([PYTHON, "-c", connect, address]).returncode == 0)
            self.assertEqual(server.wait(10), 0)

    def test_the_agent_of_launchers(self):
        agent = self.bed.agent()
        for words in (("h1", "hostname"), ("-x", self.bed.hosts[1].address, "hostname;", "true"),
                      (self.bed.hosts[1].address, 'A="hostname"; $A')):
            done = subprocess.run([agent, *words], capture_output=True, text=True, timeout=20)
            self.assertEqual((done.returncode, done.stdout), (0, "h1\n"), done.stderr)
        self.assertEqual(subprocess.run([agent, "10.0.0.1", "true"], capture_output=True, timeout=20).returncode, 255)

    def test_a_rank_is_killed(self):
        with testbed.Job(self.bed, ["sleep", LONG], ranks=2) as job:
            job.kill(3)
            wait_until(lambda: job.statuses()[3] is not None)
            self.assertEqual(job.statuses(), [None] * 3 + [128 + 9] + [None] * 2)
            self.assertEqual(job.wait(0.1), testbed.TIMED_OUT)
        self.assertNotIn(None, job.statuses())

    def test_what_takes_longer_is_killed(self):
        with self.assertRaises(subprocess.TimeoutExpired):
            self.bed.hosts[0].run(["sleep", LONG], timeout=0.2)
        wait_until(lambda: not self.bed.hosts[0].processes())


class Command(unittest.TestCase):
    """tests/support/testbed/hosts."""

    def test_ranks_find_their_variables(self):
        words = "$(hostname) $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR $MASTER_PORT $QCCL_PORT $MORE"
        done = hosts("--hosts", 2, "--ranks", 2, "--port", 4000, "--env", "MORE=a=b c", "--prefix", "--", "sh", "-c", f"echo {words}")
        self.assertEqual(done.returncode, 0, done.stderr)
        address = re.search(r"10\.\d+\.\d+\.1", done.stdout)[0]
        self.assertEqual(sorted(done.stdout.splitlines()), [
            f"[h{rank // 2} {rank}] h{rank // 2} {rank} 4 {rank % 2} 2 {address} 4000 4001 a=b c" for rank in range(4)])

    def test_once_on_each_or_on_one(self):
        self.assertEqual(sorted(hosts("--no-env", "--", "sh", "-c", "echo $(hostname)$RANK").stdout.split()), ["h0", "h1"])
        for name in ("h1", 1):
            done = hosts("--hosts", 3, "--ranks", 2, "--on", name, "--", "sh", "-c", "echo $(hostname)$RANK")
            self.assertEqual(sorted(done.stdout.split()), ["h12", "h13"])

    def test_the_worst_status_counts(self):
        for script, status in (("exit $RANK", 2), ("exit $((3 - RANK))", 3), ("kill -9 $$", 137), ("true", 0)):
            self.assertEqual(hosts("--hosts", 3, "--", "sh", "-c", script).returncode, status)
        self.assertEqual(hosts("--timeout", 0.3, "--", "sleep", LONG).returncode, 124)

    def test_counters_and_no_limit(self):
        done = hosts("--counters", "--rate", "none", "--", "true")
        self.assertEqual(len(re.findall(r"(?m)^h\d sent \d+ received \d+ bytes$", done.stderr)), 2)

    def test_misuse(self):
        for words, because in (((), "no command"), (("--",), "no command"), (("--hosts", 0, "--", "true"), "--hosts"),
                               (("--env", "X", "--", "true"), "KEY=VALUE"), (("--on", "h2", "--", "true"), "h0 to h1"),
                               (("--hosts", 251, "--", "true"), "250")):
            done = hosts(*words)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(because, done.stderr)


class Cleaning(unittest.TestCase):
    @contextlib.contextmanager
    def running(self):
        """A run whose ranks run, and have children that ignore what asks them to end."""
        script = "(trap '' TERM INT HUP; sleep 600) & trap '' TERM; echo up; wait"
        process = subprocess.Popen([HOSTS, "--ranks", "2", "--", "sh", "-c", script], stdout=subprocess.PIPE, text=True)
        try:
            for _ in range(4):
                self.assertEqual(process.stdout.readline(), "up\n")
            inside = [pid for name in left_of(process.pid) if name.startswith("qccl-") for pid in links.processes_in(name)]
            self.assertGreaterEqual(len(inside), 8)
            yield process, inside
        finally:
            process.terminate()
            process.wait(30)
            process.stdout.close()
            links.remove(str(process.pid))  # where a test has failed

    def check_nothing_is_left(self, pid, inside=()):
        self.assertEqual(left_of(pid), [])
        # What has ended has no namespaces, also before its parent has looked.
        self.assertEqual([pid for pid in inside if os.path.exists(f"/proc/{pid}/ns/net")], [])

    def check_nothing_of_this_process_is_left(self):
        self.assertEqual([name for name in left_of(os.getpid()) if not name.startswith(f"q{os.getpid()}")], [])

    def test_after_signals(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.running() as (process, inside):
                process.send_signal(number)
                self.assertEqual(process.wait(30), 128 + number)
                self.check_nothing_is_left(process.pid, inside)

    def test_after_impatience(self):
        with self.running() as (process, inside):
            while process.poll() is None:
                process.send_signal(signal.SIGINT)
                time.sleep(0.003)
            self.check_nothing_is_left(process.pid, inside)

    def test_while_it_is_made(self):
        for delay in (0.05, 0.1, 0.15, 0.2, 0.25):
            with subprocess.Popen([HOSTS, "--hosts", "20", "--", "sleep", str(LONG)], stderr=subprocess.DEVNULL) as process:
                wait_until(lambda: left_of(process.pid))
                time.sleep(delay)
                process.terminate()
                self.assertEqual(process.wait(30), 128 + signal.SIGTERM)
                self.check_nothing_is_left(process.pid)

    def test_a_host_is_made_whole(self):
        made, make_host = [], links.make_host

        def make_disturbed(*words):
            signal.raise_signal(signal.SIGTERM)
            make_host(*words)
            made.append(words)
        with unittest.mock.patch.object(links, "make_host", make_disturbed), self.assertRaises(SystemExit):
            testbed.Testbed(2).__enter__()
        self.assertEqual(len(made), 1)
        self.check_nothing_of_this_process_is_left()

    def test_after_a_failure_half_way(self):
        with subprocess.Popen([HOSTS, "--rate", "fast", "--", "true"], stderr=subprocess.PIPE, text=True) as process:
            self.assertIn('tbf rate fast', process.communicate(timeout=30)[1])
            self.assertEqual(process.returncode, 1)
            self.check_nothing_is_left(process.pid)
        with subprocess.Popen([HOSTS, "--", "/nowhere/program"], stderr=subprocess.PIPE, text=True) as process:
            process.communicate(timeout=30)
            self.assertEqual(process.returncode, 127)
            self.check_nothing_is_left(process.pid)

    def test_the_next_run_sweeps_what_was_killed_and_nothing_else(self):
        with self.running() as (lives, _), self.running() as (victim, inside):
            victim.kill()
            victim.wait()
            there, addresses = left_of(victim.pid), left_of(lives.pid)
            self.assertGreaterEqual(len(there), 7)  # a bridge; two veths and namespaces; lock and folder
            self.assertEqual(hosts("--", "true").returncode, 0)
            self.check_nothing_is_left(victim.pid, inside)
            self.assertEqual(left_of(lives.pid), addresses)
            self.assertIsNone(lives.poll())
            lives.terminate()
            lives.wait(30)
            self.check_nothing_is_left(lives.pid)

    def test_two_in_one_process(self):
        with testbed.Testbed(1) as one, testbed.Testbed(1) as other:
            self.assertNotEqual(one.hosts[0].address, other.hosts[0].address)
            self.assertNotEqual(one.hosts[0].namespace, other.hosts[0].namespace)
        self.check_nothing_of_this_process_is_left()


class Impossible(unittest.TestCase):
    def test_not_root(self):
        if shutil.which("setpriv") is None:
            self.skipTest("setpriv is not installed")
        with tempfile.TemporaryDirectory() as folder:  # where nobody else may read the tree
            shutil.copytree(FOLDER, pathlib.Path(folder) / "testbed")
            os.chmod(folder, 0o755)
            done = subprocess.run(["setpriv", "--reuid", "65534", "--clear-groups", pathlib.Path(folder) / "testbed" / "hosts", "--", "true"],
                                  capture_output=True, text=True, timeout=30)
        self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (SKIPPED, "", 1), done.stderr)
        self.assertIn("only root", done.stderr)

    def test_no_tools(self):
        with self.assertRaisesRegex(testbed.Unavailable, "ip is not installed"):
            testbed.check_possible(path="/nowhere")

    def test_no_rights(self):
        with self.assertRaises(testbed.Unavailable):
            links.call("sh", "-c", "echo 'RTNETLINK answers: Operation not permitted' >&2; exit 2")


if __name__ == "__main__":
    run_tests()
