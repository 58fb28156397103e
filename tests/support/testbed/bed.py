"""A testbed and its hosts: commands on them, their links, their counters."""
import collections
import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import threading

from . import links

Counters = collections.namedtuple("Counters", "sent received")  # bytes on the host's link since it was made, headers included

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

# What launchers take for ssh: HOST COMMAND..., with options before; the words are the remote shell's to split.
AGENT = """#!/bin/sh
while :; do
    case $1 in
    -*) shift ;;
    *) break ;;
    esac
done
host=$1
shift
case $host in
{cases}
*) echo "no host $host in this testbed" >&2; exit 255 ;;
esac
exec taskset -c "$cores" ip netns exec "$namespace" unshare --uts sh -c 'hostname "$0" && exec sh -c "$1"' "$name" "$*"
"""


def end_by_signals():
    """Makes the signals that end a process end it as an exception, so that its testbeds are removed."""
    def end(number, _frame):
        raise SystemExit(128 + number)
    for number in ENDING_SIGNALS:
        signal.signal(number, end)


def run_command(name, command):
    """Runs `command()`, the body of a program that makes a testbed, and returns its exit status; where there can be no hosts, 77, and
    where they fail, 1, after a word about it."""
    end_by_signals()
    try:
        return command()
    except links.Unavailable as reason:
        print(f"{name}: {reason}", file=sys.stderr)
        return 77
    except links.Failed as reason:
        print(f"{name}: {reason}", file=sys.stderr)
        return 1


@contextlib.contextmanager
def undisturbed():
    """Signals wait until this is over, also for the commands that it runs: hosts are made and removed as a whole."""
    noted = []
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING_SIGNALS)
    # Another thread may take a signal that this one has blocked; Python's handlers then run here.
    handlers = {number: signal.signal(number, lambda number, _: noted.append(number)) for number in ENDING_SIGNALS if is_main}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if noted:
            signal.raise_signal(noted[0])


def share_of(cores, index, count):
    """What one of `count` hosts has of these cores, which one or several share where there are too few."""
    if count >= len(cores):
        return [cores[index % len(cores)]]
    return cores[index * len(cores) // count:(index + 1) * len(cores) // count]


class Host:
    def __init__(self, tag, subnet, index, cores):
        self.index, self.name = index, f"h{index}"
        self.cores = ",".join(map(str, cores))
        self.address, self.address6 = links.address(subnet, index + 1), links.address6(subnet, index + 1)
        self.namespace, self.veth = links.namespace_name(tag, index), links.veth_name(tag, index)

    def command(self, words):
        """The words that run `words` here; the process that they start becomes it."""
        return ["taskset", "-c", self.cores, "ip", "netns", "exec", self.namespace, "unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', self.name,
                *map(str, words)]

    def start(self, words, env=None, **options):
        """subprocess.Popen here, in a process group of its own (Python 3.11)."""
        options.setdefault("stdin", subprocess.DEVNULL)
        environment = {**os.environ, **(env or {})}
        environment["PATH"] = f"{environment.get('PATH', '')}:{links.SYSTEM_PATH}"
        return subprocess.Popen(self.command(words), env=environment, process_group=0, **options)

    def run(self, words, timeout=60, env=None, **options):
        """subprocess.CompletedProcess of a command here; what takes longer is killed."""
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
        with self.start(words, env, **options) as process:
            try:
                said = process.communicate(timeout=timeout)
            except BaseException:
                process.kill()
                raise
        return subprocess.CompletedProcess(words, process.returncode, *said)

    def processes(self):
        return links.processes_in(self.namespace)

    def cut(self):
        links.call("ip", "link", "set", self.veth, "down")

    def restore(self):
        links.call("ip", "link", "set", self.veth, "up")

    def counters(self):
        # What the other end of the veth received is what the host sent.
        read = lambda name: int((links.LINKS / self.veth / "statistics" / name).read_text())
        return Counters(read("rx_bytes"), read("tx_bytes"))


class Testbed:
    """`count` hosts on a bridge, whose links carry `rate` (tc's words; None: no limit) each way.

    Each has cores of its own, as far as there are enough: else the kernel puts two ranks of a host on one core now and on two
    then, and no figure comes twice. `floats`: all run on all cores.
    """

    def __init__(self, count, rate="1gbit", burst="256k", ipv6=False, floats=False):
        if not 1 <= count <= links.MOST_HOSTS:
            raise ValueError(f"1 to {links.MOST_HOSTS} hosts")
        self.rate_, self.burst_, self.ipv6_, self.count_, self.floats_ = rate, burst, ipv6, count, floats
        self.tag_ = self.lock_ = None
        self.folder = None  # for files that go with the testbed
        self.hosts = []

    def __enter__(self):
        links.check_possible()
        try:
            with links.making():
                links.sweep()
                with undisturbed():
                    self.tag_, self.lock_ = links.take_tag()
                self.make_(links.take_subnet(self.tag_))
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *_):
        self.remove()

    def make_(self, subnet):
        # A command that a signal leaves alone would go on making what is being removed.
        with undisturbed():
            self.folder = links.make_folder(self.tag_)
            links.make_bridge(self.tag_, subnet, self.ipv6_)
        for index in range(self.count_):
            with undisturbed():
                links.make_host(self.tag_, subnet, index, self.rate_, self.burst_, self.ipv6_)
        cores = sorted(os.sched_getaffinity(0))
        self.hosts = [Host(self.tag_, subnet, index, cores if self.floats_ else share_of(cores, index, self.count_))
                      for index in range(self.count_)]
        self.bridge = links.bridge_name(self.tag_)
        self.subnet = links.address(subnet, 0) + "/24"
        self.address = links.address(subnet, links.BRIDGE_NUMBER)  # of this machine, as hosts see it

    def remove(self):
        """With every process on the hosts. Does nothing where there is nothing."""
        if self.lock_ is None:
            return
        with undisturbed():
            said = links.remove(self.tag_)
            if not said:
                (links.LOCKS / self.tag_).unlink(missing_ok=True)
            fcntl.flock(self.lock_, fcntl.LOCK_UN)
            self.lock_.close()
            self.lock_, self.hosts = None, []
        for sentence in said:
            print(f"testbed: {sentence}", file=sys.stderr)

    def end_processes(self):
        """All processes on the hosts, also those that others started."""
        links.end_processes([host.namespace for host in self.hosts])

    def counters(self):
        return [host.counters() for host in self.hosts]

    def agent(self):
        """The path of a program that runs HOST COMMAND..., HOST an address or a name, as launchers expect of ssh."""
        path = self.folder / "agent"
        path.write_text(AGENT.format(cases="\n".join(
            f"{host.address} | {host.name}) namespace={host.namespace} name={host.name} cores={host.cores} ;;" for host in self.hosts)))
        path.chmod(0o755)
        return path
