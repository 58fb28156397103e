"""QCCL_TRACE and QCCL_RECORD_CALLS from outside: what the files of whole jobs, killed jobs and odd paths hold.

usage: trace_files_test.py QCCL_PERF QCCL_INFO LIBRARY
       trace_files_test.py LIBRARY SCENE          (a rank of a job that does what the scene says)
"""
import collections
import ctypes
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import launchers
import tool

LIBRARY = sys.argv[-1] if len(sys.argv) == 4 else sys.argv[1]
FLOAT32, SUM = 7, 0
PATIENCE = 60  # seconds
EMULATED, UCX = (pathlib.Path(LIBRARY).with_name(name) for name in ("libqccl_emulated.so", "libqccl_ucx.so"))


class Rank:
    """Of a job of three, started by hand; `comm` is its communicator."""

    def __init__(self):
        self.load()
        self.rank = int(os.environ["RANK"])
        self.comm = ctypes.c_void_p()
        self.do(self.qccl.qcclCommInitEnv(ctypes.byref(self.comm), None))

    def load(self):
        self.qccl = ctypes.CDLL(LIBRARY)
        pointer, number = ctypes.c_void_p, ctypes.c_int
        self.qccl.qcclCommInitEnv.argtypes = [ctypes.POINTER(pointer), pointer]
        self.qccl.qcclCommSplit.argtypes = [pointer, number, number, ctypes.POINTER(pointer), pointer]
        self.qccl.qcclCommShrink.argtypes = [pointer, pointer, number, ctypes.POINTER(pointer), pointer, number]
        self.qccl.qcclAllReduce.argtypes = [pointer, pointer, ctypes.c_size_t, ctypes.c_int32, ctypes.c_int32, pointer, pointer]
        self.qccl.qcclCommInitAll.argtypes = [ctypes.POINTER(pointer), number, pointer]
        for function in ("qcclCommDestroy", "qcclStreamSynchronize", "qcclStreamDestroy"):
            getattr(self.qccl, function).argtypes = [pointer]
        self.qccl.qcclStreamCreate.argtypes = [ctypes.POINTER(pointer)]
        self.qccl.qcclGetLastError.argtypes = [pointer]
        self.qccl.qcclGetLastError.restype = ctypes.c_char_p

    def do(self, result):
        if result != 0:
            sys.exit(self.qccl.qcclGetLastError(None).decode())

    def reduce(self, count, comm=None, stream=None):
        values = (ctypes.c_float * count)()
        self.do(self.qccl.qcclAllReduce(values, values, count, FLOAT32, SUM, comm or self.comm, stream))
        return values

    def families(self):
        """Split, shrunk, and on a stream."""
        self.reduce(10)
        child, rest, stream = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        self.do(self.qccl.qcclCommSplit(self.comm, self.rank % 2, 0, ctypes.byref(child), None))
        self.reduce(20, child)
        self.do(self.qccl.qcclStreamCreate(ctypes.byref(stream)))
        kept = [self.reduce(1000, self.comm, stream) for _ in range(3)]
        self.do(self.qccl.qcclStreamSynchronize(stream))
        assert kept
        self.do(self.qccl.qcclStreamDestroy(stream))
        self.do(self.qccl.qcclCommDestroy(child))
        if self.rank < 2:
            self.do(self.qccl.qcclCommShrink(self.comm, (ctypes.c_int * 1)(2), 1, ctypes.byref(rest), None, 0))
            self.reduce(30, rest)
            self.do(self.qccl.qcclCommDestroy(rest))
        self.do(self.qccl.qcclCommDestroy(self.comm))

    def dies(self):
        """By a signal, in a call for which rank 1 does not come."""
        for _ in range(100):
            self.reduce(50000)
        print("ready", flush=True)
        sys.stdin.readline()
        if self.rank != 1:
            self.reduce(7)
        sys.stdin.read()


class Alone(Rank):
    """Two ranks of one thread, which waits for a call that it would have to make itself."""

    def __init__(self):
        self.load()
        self.comms = (ctypes.c_void_p * 2)()
        self.do(self.qccl.qcclCommInitAll(self.comms, 2, None))

    def deadlock(self):
        self.reduce(10, ctypes.c_void_p(self.comms[0]))


def start(scene, ranks=3, **settings):
    port = launchers.free_port()
    return [subprocess.Popen([sys.executable, __file__, LIBRARY, scene], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True,
                             env=launchers.environment(RANK=rank, WORLD_SIZE=ranks, MASTER_ADDR="127.0.0.1", MASTER_PORT=port, **settings))
            for rank in range(ranks)]


def finish(ranks):
    """Their messages."""
    said = [rank.communicate(timeout=PATIENCE)[1] for rank in ranks]
    assert all(rank.returncode == 0 for rank in ranks), said
    return said


def events_of(path):
    with open(path) as file:
        return json.load(file)


class Calls:
    """The calls of one thread of a trace, each a pair: its B event and the X events in it."""

    def __init__(self, events, test):
        self.by_thread, opened, self.open = collections.defaultdict(list), {}, {}
        ends = collections.defaultdict(int)
        for event in (event for event in events if event["ph"] in "BEX"):
            thread = (event["pid"], event["tid"])
            begin = round(event["ts"] * 1000)  # ns
            test.assertGreaterEqual(begin, ends[thread], "events of a thread overlap")
            ends[thread] = begin + round(event.get("dur", 0) * 1000)
            if event["ph"] == "B":
                test.assertNotIn(thread, opened)
                opened[thread] = (event, [])
            elif event["ph"] == "E":
                self.by_thread[thread].append(opened.pop(thread))
            elif thread in opened:  # else it is a GPU's stream
                opened[thread][1].append(event)
        self.open = opened

    def all(self):
        return [call for calls in self.by_thread.values() for call in calls]


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def perf(self, *words, **settings):
        path = self.folder / "rows.json"
        path.unlink(missing_ok=True)
        env = {"QCCL_TRACE": str(self.folder / "t-%r.json"), "QCCL_RECORD_CALLS": str(self.folder / "c-%r"), **settings}
        done = tool.run([PERF, *words, "--json", path], env=env)
        return json.loads(path.read_text())["rows"], done

    def info(self, *words, **more):
        return tool.run([INFO, *words], **more)


class Traces(Case):
    def check_calls(self, ranks, rows, algorithm, codec):
        """Bytes and steps are those of the plan, and each message has two ends."""
        out, into = collections.Counter(), collections.Counter()
        for rank in range(ranks):
            events = events_of(self.folder / f"t-{rank}.json")
            self.assertFalse(Calls(events, self).open)
            placed = ["--codec", codec] if codec != "none" else []
            plan = self.info("schedule", "all_reduce", "--algo", algorithm, "--ranks", ranks, "--rank", rank, *placed).stdout
            peers = {"send": re.findall(r": send .* -> (\d+)", plan), "recv": re.findall(r": recv .* <- (\d+)", plan)}
            checked = 0
            for begin, steps in Calls(events, self).all():
                sent = [step for step in steps if step["name"] == "send"]
                self.assertEqual(sum(step["args"]["bytes"] for step in sent), begin["args"]["wire_bytes"])
                for step in steps:
                    if "bind_id" in step:
                        (out if step.get("flow_out") else into)[step["bind_id"]] += 1
                if (begin["args"]["algorithm"], begin["args"]["codec"]) != (algorithm, codec) or sent[0]["args"]["to"] == "all":
                    continue
                checked += 1
                row = next(row for row in rows if row["bytes"] == begin["args"]["bytes"])
                self.assertEqual(begin["args"]["count"], row["count"])
                for name, key in (("send", "to"), ("recv", "from")):
                    done = sorted((s["args"]["segment"], s["args"]["step"], str(s["args"][key])) for s in steps if s["name"] == name)
                    segments = {segment for segment, _, _ in done}
                    self.assertEqual([peer for _, _, peer in done], peers[name] * len(segments))
                work = "+".join(step["name"] for step in steps)
                for verb in ["encode", "decode"] if codec != "none" else ["reduce"]:
                    self.assertIn(verb, work)
            self.assertGreater(checked, 5)
        self.assertEqual(set(out), set(into))

    def test_bytes_and_steps_are_the_plan_s(self):
        for ranks, algorithm, codec in ((2, "ring", "int8"), (3, "ring", "none"), (4, "halving", "int4"), (3, "direct", "none")):
            rows, _ = self.perf("all_reduce", "--ranks", ranks, "--algo", algorithm, "--codec", codec, "-b", "256K", "-e", "4M",
                                "-f", "16", "-n", "5", "-w", "1")
            self.check_calls(ranks, rows, algorithm, codec)
            for rank in range(ranks):
                own = [row["wire_bytes"] for row in rows]
                self.assertTrue(own)
                (self.folder / f"t-{rank}.json").unlink()

    def test_small_calls_over_lines_and_threads(self):
        self.perf("all_reduce", "--threads", "3", "--codec", "int8", "-b", "4", "-e", "1K", "-f", "16", "-n", "5", "-w", "1")
        events = [events_of(self.folder / f"t-{rank}.json") for rank in range(3)]
        for rank, each in enumerate(events):
            head = each[0]["args"]
            self.assertEqual((each[0]["name"], head["rank"], head["ranks"]), ("qccl_trace", rank, 3))
            small = [steps for _, steps in Calls(each, self).all() if any(step["args"].get("to") == "all" for step in steps)]
            self.assertGreater(len(small), 5)
            for steps in small:
                self.assertEqual(len([step for step in steps if step["name"] == "send"]), 1)
                self.assertEqual(sorted(step["args"]["from"] for step in steps if step["name"] == "recv"),
                                 [peer for peer in range(3) if peer != rank])
        self.assertEqual(len({each[0]["args"]["session"] for each in events}), 1)

    @unittest.skipUnless(UCX.exists(), "no network between nodes")
    def test_between_nodes(self):
        """Where messages take a while, and some ranks forward others'."""
        settings = {"QCCL_TRACE": self.folder / "t-%r.json", "QCCL_RECORD_CALLS": self.folder / "c-%r", **launchers.HERE_ALONE}
        port = launchers.free_port()
        words = [PERF, "all_reduce", "--codec", "int8", "-b", "4", "-e", "1M", "-f", "64", "-n", "3", "-w", "1"]
        ended = launchers.start_by_hand([words] * 4, [
            launchers.environment(RANK=rank, WORLD_SIZE=4, MASTER_ADDR="127.0.0.1", MASTER_PORT=port, QCCL_HOSTID=f"node{rank // 2}", **settings)
            for rank in range(4)])
        self.assertEqual([status for status, _, _ in ended], [0] * 4, ended)
        out, into = set(), set()
        for rank in range(4):
            calls = Calls(events_of(self.folder / f"t-{rank}.json"), self)
            self.assertFalse(calls.open)
            for begin, steps in calls.all():
                self.assertEqual(sum(step["args"]["bytes"] for step in steps if step["name"] == "send"), begin["args"]["wire_bytes"])
                out.update(step["bind_id"] for step in steps if step.get("flow_out"))
                into.update(step["bind_id"] for step in steps if step.get("flow_in"))
            self.assertIn(" nodes=0*2,1*2 ", (self.folder / f"c-{rank}").read_text())
        self.assertEqual(out, into)

    @unittest.skipUnless(EMULATED.exists(), "no emulated GPUs")
    def test_gpus(self):
        self.perf("all_reduce", "--ranks", "2", "--device", "emulated:0", "--codec", "int8", "-b", "4K", "-e", "256K", "-f", "64",
                  "-n", "3", "-w", "1")
        for rank in range(2):
            events = events_of(self.folder / f"t-{rank}.json")
            calls = Calls(events, self)
            self.assertFalse(calls.open)
            names = [event.get("name", "") for event in events]
            self.assertTrue(any(name.startswith("launch ") for name in names))
            streams = [e["tid"] for e in events if e.get("name") == "thread_name" and e["args"]["name"].startswith("GPU stream")]
            self.assertTrue(streams)
            self.assertTrue(any(e["tid"] in streams and "encode" in e["name"] for e in events if e["ph"] == "X"))
            self.assertIn("in a stream: all_reduce", names)

    def test_families_share_their_rank_s_files(self):
        finish(start("families", QCCL_TRACE=self.folder / "t-%r.json", QCCL_RECORD_CALLS=self.folder / "c-%r"))
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), [f"{kind}{r}{end}" for kind, end in (("c-", ""), ("t-", ".json"))
                                                                               for r in range(3)])
        for rank in range(3):
            events = events_of(self.folder / f"t-{rank}.json")
            threads = [event["args"]["name"] for event in events if event.get("name") == "thread_name"]
            self.assertIn("communicator 1: rank {} of 3".format(rank), threads)
            self.assertTrue(any("split of 1" in thread for thread in threads), threads)
            self.assertEqual(any("shrink of 1" in thread for thread in threads), rank < 2)
            queued = [event for event in events if event.get("name") == "in a stream: all_reduce"]
            self.assertEqual([event["ph"] for event in queued], ["b", "e"] * 3)
            self.assertFalse(Calls(events, self).open)
            rows = (self.folder / f"c-{rank}").read_text().splitlines()
            comms = [row.split() for row in rows if row.startswith("comm ")]
            origins = [(row[3], row[4]) for row in comms]
            expected = [("parent=0", "origin=init"), ("parent=1", "origin=split"), ("parent=1", "origin=shrink")]
            self.assertEqual(origins, expected[:3 if rank < 2 else 2])
            self.assertEqual(len([row for row in rows if row.startswith("end ")]), len(comms))
            on_stream = [row.split() for row in rows if row.startswith("call ") and row.split()[7] != "0"]
            self.assertEqual(len(on_stream), 3)
        said = self.info("calls", *sorted(self.folder.glob("c-*"))).stdout
        self.assertIn("comm_split", said)
        self.assertIn("(shrink, 2 ranks)", said)
        self.assertNotIn("missing", said)

    @staticmethod
    def events_so_far(path):
        """Of a file that is being written: a reader may come between two pages of one piece."""
        try:
            return events_of(path)
        except (FileNotFoundError, json.JSONDecodeError):
            return []

    def test_a_killed_job_leaves_what_it_did(self):
        ranks = start("dies", QCCL_TRACE=self.folder / "t-%r.json", QCCL_RECORD_CALLS=self.folder / "c-%r", QCCL_DEBUG_FILE="/dev/null")
        for rank in ranks:
            self.assertEqual(rank.stdout.readline(), "ready\n")
        for rank in ranks:
            rank.stdin.write("go\n")
            rank.stdin.flush()
        # The call that rank 0 is in has no end, and shows as soon as it is written.
        path, limit = self.folder / "t-0.json", time.monotonic() + PATIENCE
        while [begin["args"]["count"] for begin, _ in Calls(self.events_so_far(path), self).open.values()] != [7]:
            self.assertLess(time.monotonic(), limit)
            time.sleep(0.02)
        # The other ranks write in their own time.
        records = [self.folder / f"c-{rank}" for rank in range(3)]
        while not all(record.exists() and "call " in record.read_text() for record in records):
            self.assertLess(time.monotonic(), limit)
            time.sleep(0.02)
        for rank in ranks:
            rank.kill()
        for rank in ranks:
            rank.communicate()
            self.assertEqual(rank.returncode, -signal.SIGKILL)
        self.assertEqual(len(Calls(events_of(path), self).all()), 100)
        self.assertEqual(len(Calls(events_of(path), self).open), 1)
        said = self.info("calls", *records).stdout
        self.assertRegex(said, r"rank 0 of 3 .*: 100 calls in .*; the job was killed or goes on")
        self.assertNotIn("missing", said)

    def test_a_rank_killed_as_it_creates_its_file_leaves_the_others_readable(self):
        self.perf(*Files.QUICK, QCCL_TRACE="", QCCL_RECORD_CALLS=str(self.folder / "c"))
        (self.folder / "c-1").write_text("")
        done = self.info("calls", self.folder / "c-0", self.folder / "c-1")
        self.assertIn("Files of 1 of 2 ranks are missing.", done.stdout)
        self.assertIn("c-1: empty and left out", done.stderr)
        done = self.info("calls", self.folder / "c-1", expect=None)
        self.assertIn("no file holds a record of calls", done.stderr)


class Files(Case):
    QUICK = ["all_reduce", "--ranks", "2", "-b", "64K", "-e", "64K", "-n", "3", "-w", "1"]

    def test_each_rank_has_its_file_whatever_the_name(self):
        self.perf(*self.QUICK, QCCL_TRACE=str(self.folder / "t.json"), QCCL_RECORD_CALLS=str(self.folder / "c"))
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["c-0", "c-1", "rows.json", "t-0.json", "t-1.json"])

    def test_what_is_there_stays(self):
        (self.folder / "t-0.json").write_text("mine")
        _, done = self.perf(*self.QUICK)
        self.assertIn("is there already and stays as it is", done.stderr)
        self.assertEqual((self.folder / "t-0.json").read_text(), "mine")
        self.assertGreater(len(events_of(self.folder / "t-0.2.json")), 10)

    def test_what_cannot_be_written_is_told_and_the_job_goes_on(self):
        rows, done = self.perf(*self.QUICK, QCCL_TRACE="/nowhere/at/all")
        self.assertTrue(rows)
        self.assertIn('QCCL_TRACE: cannot create "/nowhere/at/all-0": No such file or directory; the job goes on without this file',
                      done.stderr)
        self.assertGreater(len((self.folder / "c-1").read_text().splitlines()), 4)

    def test_communicators_without_calls_leave_none(self):
        self.info("settings", env={"QCCL_TRACE": str(self.folder / "t"), "QCCL_RECORD_CALLS": str(self.folder / "c")})
        self.assertEqual(list(self.folder.iterdir()), [])


class Threads(Case):
    def test_the_trace_s_thread_makes_no_calls(self):
        """So that a thread that waits for itself is told."""
        done = subprocess.run([sys.executable, __file__, LIBRARY, "deadlock"], capture_output=True, text=True, timeout=PATIENCE,
                              env=launchers.environment(QCCL_TRACE=self.folder / "t", QCCL_TIMEOUT="20s"), check=False)
        self.assertIn("the only one of the process", done.stderr)


class Tools(Case):
    def test_traces_become_one(self):
        self.perf("all_reduce", "--ranks", "3", "-b", "64K", "-e", "64K", "-n", "3", "-w", "1")
        files = sorted(self.folder.glob("t-*.json"))
        whole = [events_of(file) for file in files]
        said = self.info("trace", *files, "--output", self.folder / "all.json").stdout
        together = events_of(self.folder / "all.json")
        self.assertIn(f"{len(together)} events of 3 ranks", said)
        self.assertEqual(together, [event for each in whole for event in each])
        # As of a killed rank, and of one whose clock is an hour behind on another host.
        text = files[1].read_text()
        files[1].write_text(text[:-30])
        moved = re.sub(r'"epoch_ns":"(\d+)"', lambda match: f'"epoch_ns":"{int(match[1]) - 3600 * 10**9}"', files[2].read_text())
        files[2].write_text(moved.replace('"host":"', '"host":"other-', 1))
        said = self.info("trace", *files, "--output", self.folder / "all.json").stdout
        self.assertIn("t-1.json: the rank was killed or goes on", said)
        self.assertRegex(said, r"the clock of other-\S+ is 3600000\.\d+ ms|the clock of other-\S+ is 3599999\.\d+ ms")
        times = [event["ts"] for event in events_of(self.folder / "all.json") if "ts" in event]
        self.assertLess(max(times) - min(times), 60e6)

    def test_what_is_wrong_is_said(self):
        good, bad = self.folder / "t-0.json", self.folder / "bad"
        self.perf("all_reduce", "--ranks", "1", "-b", "64K", "-e", "64K", "-n", "3", "-w", "1")
        for text, says in (("", "no trace of QCCL_TRACE"), ("{}", "no trace of QCCL_TRACE"), ("[\n{}\n]\n", "no trace of QCCL_TRACE"),
                           (good.read_text().replace('"version":1', '"version":9'), "a trace of version 9; this program reads version 1"),
                           (good.read_text().replace('"ph":"E"', '"ph":E', 1), "is no event of a trace")):
            bad.write_text(text)
            self.assertIn(says, self.info("trace", bad, "--output", self.folder / "x", expect=1).stderr)
        self.assertIn("is one of the traces", self.info("trace", good, "--output", good, expect=1).stderr)
        self.assertIn("No such file", self.info("trace", self.folder / "none", expect=1).stderr)
        self.assertIn("cannot write", self.info("trace", good, "--output", "/nowhere/at/all", expect=1).stderr)
        self.assertIn("No space left", self.info("trace", good, "--output", "/dev/full", expect=1).stderr)
        log = self.folder / "c-0"
        self.assertIn("line 1: '[' stands where qccl-calls is expected", self.info("calls", good, expect=1).stderr)
        bad.write_text("\033[31mred\n")
        self.assertIn("line 1: '?[31mred' stands where", self.info("calls", bad, expect=1).stderr)
        self.assertIn("both hold rank 0 of one communicator", self.info("calls", log, log, expect=1).stderr)
        self.assertIn("No such file", self.info("calls", self.folder / "none", expect=1).stderr)
        self.assertIn("FILE", self.info("calls", expect=2).stderr)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        scene = sys.argv[2]
        getattr((Alone if hasattr(Alone, scene) and not hasattr(Rank, scene) else Rank)(), scene)()
        sys.exit()
    PERF, INFO = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1], verbosity=1)
