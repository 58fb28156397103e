"""What `ip` and `tc` are asked for: network namespaces, a bridge, veths of limited rate, and their removal. Of the
processes in a namespace it can only say which there are, and end them.

All names of a testbed hold its tag: the pid of its maker, and a letter where that makes several. The maker holds a lock for
as long as it lives; a testbed whose lock is free is left over from a maker that was killed, and is removed before the next is made.
"""
import contextlib
import fcntl
import os
import pathlib
import re
import shutil
import signal
import string
import subprocess
import tempfile
import time

LOCKS = pathlib.Path("/run/qccl-testbed")
NAMESPACES = pathlib.Path("/run/netns")
LINKS = pathlib.Path("/sys/class/net")
TAG = r"\d+[a-z]?"
NAME = re.compile(rf"(?:qb({TAG})|qv({TAG})h\d+|qccl-({TAG})-h\d+)$")
MOST_HOSTS = 250  # one subnet: 1 to 250, and the bridge
BRIDGE_NUMBER = 254
SUBNETS = 1 << 14  # 10.64.0.0/24 to 10.127.255.0/24
SYSTEM_PATH = "/usr/sbin:/sbin:/usr/bin:/bin"
PATIENCE = 5  # seconds, for killed processes to go


class Unavailable(Exception):
    """This machine, or this user, cannot have a testbed."""


class Failed(Exception):
    """A command that makes a testbed failed."""


def check_possible(path=None):
    """Raises Unavailable with one sentence where a testbed cannot be had."""
    if os.geteuid() != 0:
        raise Unavailable("hosts are network namespaces, which only root can make")
    for tool, package in (("ip", "iproute2"), ("tc", "iproute2"), ("unshare", "util-linux"), ("hostname", "hostname")):
        if shutil.which(tool, path=path or f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}") is None:
            raise Unavailable(f"{tool} is not installed (package {package})")


def call(*words):
    words = [str(word) for word in words]
    environment = {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}"}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment, timeout=60)
    if done.returncode == 0:
        return done.stdout
    said = " ".join(done.stderr.split()) or f"exit status {done.returncode}"
    # A container's root may be refused, and a kernel may lack what is asked for.
    kind = Unavailable if re.search("Operation not permitted|not supported|Unknown device type|Read-only", said) else Failed
    raise kind(f"{' '.join(words)}: {said}")


def bridge_name(tag):
    return f"qb{tag}"


def veth_name(tag, host):
    return f"qv{tag}h{host}"


def namespace_name(tag, host):
    return f"qccl-{tag}-h{host}"


def address(subnet, number):
    return f"10.{64 + (subnet >> 8)}.{subnet & 255}.{number}"


def address6(subnet, number):
    return f"fd77:{subnet:x}::{number:x}"


@contextlib.contextmanager
def making():
    """One testbed is made at a time, so that tags, subnets and leftovers are seen as they are."""
    LOCKS.mkdir(exist_ok=True)
    with open(LOCKS / "making", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def take_tag():
    """(tag, the file whose lock says that it is in use); only while making()."""
    for letter in ("", *string.ascii_lowercase):
        tag = f"{os.getpid()}{letter}"
        file = open(LOCKS / tag, "w")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return tag, file
        except BlockingIOError:
            file.close()
    raise Failed("one process makes up to 27 testbeds at a time")


def take_subnet(tag):
    """A number that no address of this machine belongs to; only while making()."""
    taken = call("ip", "-4", "-o", "addr")
    first = int(re.match(r"\d+", tag)[0])
    for attempt in range(SUBNETS):
        subnet = (first + attempt) % SUBNETS
        if f" {address(subnet, '')}" not in taken:
            return subnet
    raise Failed("no subnet is free")


def make_folder(tag):
    return pathlib.Path(tempfile.mkdtemp(prefix=f"qccl-testbed-{tag}-"))


def folders_of(tag):
    found = pathlib.Path(tempfile.gettempdir()).glob(f"qccl-testbed-{tag}-*")
    return [path for path in found if path.lstat().st_uid == os.geteuid() and not path.is_symlink()]


def limit(device, rate, burst, namespace=None):
    if rate is not None:
        inside = ["-n", namespace] if namespace else []
        call("tc", *inside, "qdisc", "add", "dev", device, "root", "tbf", "rate", rate, "burst", burst, "latency", "50ms")


def make_bridge(tag, subnet, ipv6):
    bridge = bridge_name(tag)
    call("ip", "link", "add", bridge, "type", "bridge")
    call("ip", "addr", "add", address(subnet, BRIDGE_NUMBER) + "/24", "dev", bridge)
    if ipv6:
        call("ip", "addr", "add", address6(subnet, BRIDGE_NUMBER) + "/64", "dev", bridge, "nodad")
    call("ip", "link", "set", bridge, "up")


def make_host(tag, subnet, host, rate, burst, ipv6):
    """A namespace with eth0, which sends and receives at `rate` at most."""
    namespace, veth = namespace_name(tag, host), veth_name(tag, host)
    call("ip", "netns", "add", namespace)
    call("ip", "link", "add", veth, "type", "veth", "peer", "name", "eth0", "netns", namespace)
    call("ip", "link", "set", veth, "master", bridge_name(tag), "up")
    call("ip", "-n", namespace, "addr", "add", address(subnet, host + 1) + "/24", "dev", "eth0")
    if ipv6:
        call("ip", "-n", namespace, "addr", "add", address6(subnet, host + 1) + "/64", "dev", "eth0", "nodad")
    call("ip", "-n", namespace, "link", "set", "eth0", "up")
    call("ip", "-n", namespace, "link", "set", "lo", "up")
    limit("eth0", rate, burst, namespace)
    limit(veth, rate, burst)


def names_of(tag):
    """(links, namespaces) that are there."""
    belongs = lambda name: (match := NAME.match(name)) and tag in match.groups()
    links = sorted(filter(belongs, os.listdir(LINKS)))
    namespaces = sorted(filter(belongs, os.listdir(NAMESPACES))) if NAMESPACES.is_dir() else []
    return links, namespaces


def processes_in(namespace):
    """The pids of all processes in a namespace, also of those that others started."""
    try:
        wanted = os.stat(NAMESPACES / namespace).st_ino
    except FileNotFoundError:
        return []
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # it has ended
            if os.stat(f"/proc/{entry}/ns/net").st_ino == wanted:
                found.append(int(entry))
    return found


def end_processes(namespaces):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        running = [pid for namespace in namespaces for pid in processes_in(namespace)]
        if not running:
            return
        for pid in running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def remove(tag):
    """Whatever there is of a testbed. Gives what could not be removed, a sentence each."""
    links, namespaces = names_of(tag)
    end_processes(namespaces)
    for folder in folders_of(tag):
        shutil.rmtree(folder, ignore_errors=True)
    said = []
    # Veths first: with their namespace they would go too, but later.
    for command, names in ((("link",), links[::-1]), (("netns",), namespaces)):
        for name in names:
            try:
                call("ip", *command, "del", name)
            except (Failed, Unavailable) as failure:
                said.append(str(failure))
    return said if any(names_of(tag)) else []


def sweep():
    """Removes what killed makers have left; only while making()."""
    names = os.listdir(LINKS) + (os.listdir(NAMESPACES) if NAMESPACES.is_dir() else [])
    tags = {tag for name in names if (match := NAME.match(name)) for tag in match.groups() if tag}
    tags |= {path.name for path in LOCKS.iterdir() if re.fullmatch(TAG, path.name)}
    for tag in sorted(tags):
        with open(LOCKS / tag, "w") as file:
            with contextlib.suppress(BlockingIOError):  # its maker lives
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove(tag)
                (LOCKS / tag).unlink(missing_ok=True)
