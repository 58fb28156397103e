"""What ranks write to their log (QCCL_DEBUG): at info how they have met and each choice of the planner once, at trace each call, at warn
nothing.

usage: log_env_test.py RESULTS
"""
import re
import sys
import unittest

from launchers import HERE_ALONE, environment, free_port, start_by_hand

RESULTS = sys.argv[1]
CALLS = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "gather", "scatter", "all_to_all", "scan", "exscan",
         "all_gather_v", "reduce_scatter_v", "gather_v", "scatter_v", "all_to_all_v")
BY_RING = (*CALLS[:5], "all_gather_v", "reduce_scatter_v")
TIME = r"[0-9.e+]+ (ns|us|ms|s)"


def count_of(call):
    """0 where not all ranks know all counts."""
    return {"all_gather_v": 500, "reduce_scatter_v": 500, "gather_v": 0, "scatter_v": 0, "all_to_all_v": 0}.get(call, 1000)


def logs(level, *words, hosts=1, fails=False, **settings):
    """The log of each of two ranks that make a call of each collective for each word, as lists of lines without the time and the place."""
    port = free_port()
    ended = start_by_hand([[RESULTS, "1000", *words]] * 2, [
        environment(RANK=rank, WORLD_SIZE=2, MASTER_ADDR="localhost", QCCL_PORT=port, QCCL_DEBUG=level, QCCL_HOSTID=f"h{rank % hosts}",
                    **HERE_ALONE, **settings) for rank in range(2)])
    assert fails or [status for status, _, _ in ended] == [0, 0], ended
    return [[line.partition(f":{rank} qccl ")[2] for line in said.splitlines() if " qccl " in line] for rank, (_, _, said) in enumerate(ended)]


def those_with(lines, start):
    return [line for line in lines if line.startswith(start)]


class Log(unittest.TestCase):
    def assert_one(self, lines, pattern):
        self.assertEqual(len([line for line in lines if re.fullmatch(pattern, line)]), 1, f"{pattern}\n" + "\n".join(lines))

    def test_warn_says_nothing(self):
        self.assertEqual(logs("warn", "@none", "ring@int8"), [[], []])

    def test_info_tells_of_the_wire_up(self):
        first, second = logs("info", "@none")
        for rank, lines in enumerate((first, second)):
            self.assert_one(lines, rf"info: rank {rank} of 2 has met the others after {TIME} \(launcher's variables, rendezvous at \S+:\d+\)")
            self.assert_one(lines, rf"info: rank {rank} of 2 over shm, kernels \w+")
            self.assert_one(lines, rf"info: created in {TIME}: (\w[^:,]* {TIME}(, )?){{3}}")
        self.assert_one(first, r"info: no calibration: .*")
        self.assert_one(first, r"info: 1 host: \S+ has ranks 0-1")
        self.assert_one(first, rf"info: 2 ranks on this host share \S+ MiB of memory each: outbox 16 MiB, inbox 0 B, .*; shared after {TIME}")
        self.assert_one(first, rf"info: topology of this host: hwloc [0-9.]+, in {TIME}")
        self.assertEqual(len(second), 3, second)

    def test_info_tells_of_the_wire_up_between_hosts(self):
        first, second = logs("info", "@none", hosts=2)
        self.assert_one(first, r"info: 2 hosts: h0 has rank 0, h1 has rank 1")
        for rank, lines in enumerate((first, second)):
            self.assert_one(lines, r"info: 1 rank on this host has \S+ MiB of memory: outbox 16 MiB, inbox 16 MiB, .*")
            self.assert_one(lines, rf"info: network ucx [0-9.]+: tcp/lo opened in {TIME}; keepalive connections to rank {1 - rank};"
                                   rf" all ranks connected after another {TIME}")
            self.assert_one(lines, rf"info: rank {rank} of 2 over ucx, kernels \w+")

    def test_info_tells_each_choice_once(self):
        first, second = logs("info", "@none", "ring@int8", "@none", "ring@int8")
        plans = those_with(first, "info: plan for ")
        for call in CALLS:
            count = rf", count {count_of(call)}" if count_of(call) else ""
            cut = "eager slots" if count else r"1 segment in 1 lane"  # not all ranks know whether all parts fit an eager slot
            about = rf"info: plan for {call}{count}, type float(, op \w+)?(, root 1)?, [0-9.]+ (KiB|B), codec "
            self.assert_one(plans, about + rf"none: \S+, {cut}, predicted {TIME}; .+")
            if call in BY_RING:
                self.assert_one(plans, about + rf"int8: ring, .+, predicted {TIME}; it was asked for")
        self.assertEqual(len(plans), len(CALLS) + len(BY_RING), plans)
        self.assertEqual(those_with(second, "info: plan for "), [])
        self.assertEqual(those_with(first + second, "trace: "), [])

    def test_a_choice_names_the_settings_that_made_it(self):
        first, _ = logs("info", "@none", hosts=2, QCCL_ALGO="ring@collective=all_reduce", QCCL_SEGMENT="1K")
        self.assert_one(first, rf"info: plan for all_reduce, .*: ring, .*, predicted {TIME}; it was asked for; algorithm ring by item 1 of QCCL_ALGO.*")

    def test_trace_tells_each_call(self):
        for rank, lines in enumerate(logs("trace", "@none", "ring@int8", "@none")):
            told = those_with(lines, "trace: ")
            calls = [(call, codec) for codec in ("none", "int8", "none") for call in (BY_RING if codec == "int8" else CALLS)]
            for number, (call, codec) in enumerate(calls, 1):
                self.assert_one(told, rf"trace: call {number} begins: {call}")
                self.assert_one(told, rf"trace: call {number}: {call}, count {count_of(call)}, type float, op \w+, codec {codec}, algorithm \S+, tag 0,"
                                      r" [0-9.]+ us: success")
            self.assertEqual(len(told), 2 * len(calls), told)
            self.assertEqual(len(those_with(lines, "info: plan for ")), (len(CALLS) + len(BY_RING)) * (rank == 0))

    def test_trace_tells_of_a_failure(self):
        first, second = logs("trace", "@none", fails=True, QCCL_INJECT="rank=1,call=2,revoke")
        self.assert_one(second, r"trace: call 1: all_reduce, .* us: success")
        self.assert_one(second, r"trace: call 2: reduce_scatter, .* us: a rank revoked the communicator")
        self.assert_one(first, r"trace: call [12]: .* us: a rank revoked the communicator")  # perhaps while it still ends the first call


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
