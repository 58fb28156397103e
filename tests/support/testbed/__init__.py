"""Several hosts on one machine, for tests and measurements: each has an address, a host name and a link of limited rate
of its own. Needs root, iproute2 and util-linux; `tests/support/testbed/hosts` is the same from the command line.

    with Testbed(4, rate="1gbit") as bed, Job(bed, ["program"], ranks=2) as job:
        bed.hosts[2].cut()
        status = job.wait(timeout=60)
"""
from .bed import Counters, Host, Testbed, run_command
from .job import TIMED_OUT, Job
from .links import MOST_HOSTS, Failed, Unavailable, check_possible

__all__ = ["Counters", "Failed", "Host", "Job", "MOST_HOSTS", "TIMED_OUT", "Testbed", "Unavailable", "check_possible", "run_command"]
