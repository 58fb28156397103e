"""qccl-info attach from outside: jobs of which ranks do not come, mean something else, are stopped or killed.

usage: attach_test.py QCCL_INFO LIBRARY
       attach_test.py LIBRARY          (a rank of such a job: does what it is told on standard input)
"""
import contextlib
import ctypes
import os
import pathlib
import pwd
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import launchers
import tool

LIBRARY = sys.argv.pop()
RANKS = 3
FLOAT32, SUM = 7, 0
PATIENCE = 30  # seconds
TIMEOUT = "5s"  # of calls that some ranks do not make; on a loaded machine ranks take a second or two to meet


def load():
    qccl = ctypes.CDLL(LIBRARY)
    qccl.qcclCommInitEnv.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p]
    qccl.qcclCommInitAll.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, ctypes.c_void_p]
    qccl.qcclAllReduce.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int32, ctypes.c_int32,
                                   ctypes.c_void_p, ctypes.c_void_p]
    qccl.qcclRecv.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int32, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
    qccl.qcclSend.argtypes = qccl.qcclRecv.argtypes
    qccl.qcclCommDestroy.argtypes = qccl.qcclCommRevoke.argtypes = [ctypes.c_void_p]
    qccl.qcclGetLastError.argtypes = [ctypes.c_void_p]
    qccl.qcclGetLastError.restype = ctypes.c_char_p
    return qccl


class Rank:
    """Of one job, and of a family of two threads if it is told so."""

    def __init__(self):
        self.qccl, self.comm, self.family = load(), ctypes.c_void_p(), (ctypes.c_void_p * 2)()

    def said(self, result, comm=None):
        return self.qccl.qcclGetLastError(comm).decode() if result else "fine"

    def reduce(self, count, comm=None):
        comm = comm or self.comm
        values = (ctypes.c_float * count)()
        return self.said(self.qccl.qcclAllReduce(values, values, count, FLOAT32, SUM, comm, None), comm)

    def receive(self, source):
        values = (ctypes.c_float * 4)()
        return self.said(self.qccl.qcclRecv(values, 4, FLOAT32, source, self.comm, None), self.comm)

    def send(self, dest):
        values = (ctypes.c_float * 4)()
        return self.said(self.qccl.qcclSend(values, 4, FLOAT32, dest, self.comm, None), self.comm)

    def found(self):
        return self.said(self.qccl.qcclCommInitAll(self.family, 2, None))

    def call_in_family(self):
        """A thread makes the first call; the other does not."""
        threading.Thread(target=self.reduce, args=(10, ctypes.c_void_p(self.family[0])), daemon=True).start()
        return "fine"

    def forget(self):
        """Closes what it does not know, as programs do."""
        for entry in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                if "qccl_record" in os.readlink(f"/proc/self/fd/{entry}"):
                    os.close(int(entry))
        return "fine"

    def leave(self):
        return self.said(self.qccl.qcclCommDestroy(self.comm))

    def move(self):
        os.chdir("/")
        return "fine"

    def revoke(self):
        return self.said(self.qccl.qcclCommRevoke(self.comm), self.comm)

    def obey(self):
        print(self.said(self.qccl.qcclCommInitEnv(ctypes.byref(self.comm), None)), flush=True)
        for line in sys.stdin:
            verb, *words = line.split()
            print(getattr(self, verb)(*map(int, words)), flush=True)
        os._exit(0)  # whatever its threads wait for


class Job:
    """Ranks that have met."""

    def __init__(self, ranks=RANKS, **settings):
        port = launchers.free_port()
        settings = {"QCCL_TIMEOUT": "100s", **settings}  # of who waits for one that has failed
        self.ranks = [subprocess.Popen([sys.executable, __file__, LIBRARY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                       env=launchers.environment(RANK=rank, WORLD_SIZE=ranks, MASTER_ADDR="127.0.0.1",
                                                                 MASTER_PORT=port, QCCL_DEBUG_FILE="/dev/null", **settings))
                      for rank in range(ranks)]
        self.created = [self.answer(rank) for rank in range(ranks)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for rank in self.ranks:
            rank.kill()
            rank.wait()
            rank.stdin.close()
            rank.stdout.close()

    def pid(self, rank):
        return self.ranks[rank].pid

    def tell(self, rank, *words):
        self.ranks[rank].stdin.write(" ".join(map(str, words)) + "\n")
        self.ranks[rank].stdin.flush()

    def answer(self, rank):
        return self.ranks[rank].stdout.readline().strip()

    def all(self, *words):
        for rank in range(len(self.ranks)):
            self.tell(rank, *words)
        return [self.answer(rank) for rank in range(len(self.ranks))]


def attach(place, *words, **more):
    return tool.run([INFO, "attach", place, *words], **more)


def until(shows, place):
    """What attach prints as soon as it shows that."""
    deadline = time.monotonic() + PATIENCE
    while True:
        said = attach(place).stdout
        if shows in said or time.monotonic() > deadline:
            return said


class Attach(unittest.TestCase):
    def test_a_rank_that_does_not_come(self):
        with Job() as job:
            self.assertEqual(job.all("reduce", 100), ["fine"] * RANKS)
            for rank in (0, 1):
                job.tell(rank, "reduce", 100)
            waiting = "ranks 0, 1 wait in call 2 (all_reduce) for rank 2\n"
            for rank in range(RANKS):  # whichever is asked
                said = until(waiting, job.pid(rank))
                self.assertIn(waiting + "rank 2 is in no call since call 1 (all_reduce)\n"
                              "they agree about every call that they have recorded\n", said)
                self.assertRegex(said, r"^communicator [0-9a-f]{16}: 3 ranks\n")
                self.assertRegex(said, rf"(?m)^ +1 +{job.pid(1)} +2  waits for rank [02] to show its values, for \d+\.\d s$")
                self.assertRegex(said, rf"(?m)^ +2 +{job.pid(2)} +1  is in no call since call 1")
            listed = attach(job.pid(0), "--calls", 9).stdout
            self.assertEqual(len(re.findall(r"(?m)^  call 1: all_reduce, count 100, type float, op sum", listed)), RANKS)
            self.assertEqual(len(re.findall(r"(?m)^  call 2: ", listed)), 2)
            job.tell(2, "reduce", 100)  # nobody has been disturbed
            self.assertEqual([job.answer(rank) for rank in range(RANKS)], ["fine"] * RANKS)

    def test_large_messages_name_their_step(self):
        with Job(QCCL_ALGO="ring") as job:
            self.assertEqual(job.all("reduce", 1 << 20), ["fine"] * RANKS)
            for rank in (0, 1):
                job.tell(rank, "reduce", 1 << 20)
            wait = "ranks 0, 1 wait in call 2 (all_reduce) for rank 2"
            self.assertIn(wait, until(wait, job.pid(0)))
            self.assertRegex(attach(job.pid(0)).stdout, r"waits for a chunk of rank 2, step \d+ of \d+, segment 1 of \d+, for")

    def test_a_call_that_is_another(self):
        with Job() as job:
            self.assertEqual(job.all("reduce", 100), ["fine"] * RANKS)
            job.tell(1, "reduce", 100)
            job.tell(2, "reduce", 200)
            differ = "differ: rank 2 calls all_reduce with count 200, rank 1 with count 100, in call 2\n"
            wait = "ranks 1, 2 wait in call 2 (all_reduce) for rank 0\n"
            said = until(wait, job.pid(0))
            self.assertIn(wait, said)
            self.assertIn(differ, said)

    def test_messages_that_nobody_sends(self):
        with Job() as job:
            job.tell(0, "receive", 1)
            waiting = "rank 0 waits to receive from rank 1\nranks 1, 2 are in no call before the first\n"
            self.assertIn(waiting, until(waiting, job.pid(2)))
            job.tell(1, "send", 0)
            self.assertEqual([job.answer(0), job.answer(1)], ["fine"] * 2)
            self.assertIn("ranks 0-2 are in no call", attach(job.pid(0)).stdout)
            job.tell(0, "receive", 1)  # their channel is there now
            job.tell(1, "receive", 0)
            job.tell(2, "reduce", 100)
            waiting = ("ranks 0, 1 wait for each other\nrank 0 waits to receive from rank 1\nrank 1 waits to receive from rank 0\n"
                       "rank 2 waits in call 1 (all_reduce) for rank 0\n")
            said = until(waiting, job.pid(2))
            self.assertIn(waiting, said)
            self.assertRegex(said, rf"(?m)^ +1 +{job.pid(1)} +0  waits to receive from rank 0, for \d+\.\d s$")

    def test_a_rank_that_is_stopped(self):
        with Job() as job:
            job.ranks[2].send_signal(signal.SIGSTOP)
            self.assertIn("rank 2 is in no call before the first, and is stopped\n", until("stopped", job.pid(0)))
            job.ranks[2].send_signal(signal.SIGCONT)
            for rank in range(2):
                job.tell(rank, "reduce", 100)
            until("ranks 0, 1 wait in call 1 (all_reduce) for rank 2", job.pid(0))
            job.ranks[1].send_signal(signal.SIGSTOP)
            stopped = "rank 1 waits in call 1 (all_reduce) for rank 2, and is stopped\n"
            self.assertIn(stopped, until(stopped, job.pid(2)))
            job.ranks[1].send_signal(signal.SIGCONT)

    def test_a_rank_that_is_killed(self):
        with Job(QCCL_PEER_TIMEOUT="60s") as job:
            job.ranks[2].kill()
            job.ranks[2].wait()
            self.assertRegex(attach(job.pid(0)).stdout, rf"(?m)^ +2 +{job.pid(2)} +0  there is no process {job.pid(2)}$")

    def test_several_communicators_and_ranks_of_a_process(self):
        with Job(1) as job:
            self.assertEqual(job.all("found"), ["fine"])
            self.assertEqual(job.all("call_in_family"), ["fine"])
            said = until("rank 0 waits", job.pid(0))
            self.assertEqual(said.count("communicator "), 2)
            self.assertIn(": 1 rank\n", said)
            self.assertIn("rank 0 waits in call 1 (all_reduce) for rank 1\nrank 1 is in no call before the first\n", said)

    @unittest.skipUnless(os.geteuid() == 0, "other processes' memory is read as root")
    def test_files_that_the_program_has_closed(self):
        with Job() as job:
            self.assertEqual(job.all("forget"), ["fine"] * RANKS)
            self.assertIn("ranks 0-2 are in no call before the first", attach(job.pid(1)).stdout)


class Timeout(unittest.TestCase):
    def test_all_say_what_all_did(self):
        with Job(QCCL_TIMEOUT=TIMEOUT) as job:
            self.assertEqual(job.all("reduce", 100), ["fine"] * RANKS)
            for rank in (0, 1):
                job.tell(rank, "reduce", 100)
            for rank in (0, 1):
                self.assertIn("rank 2 did not come to all_reduce, call 2, within 5 s: ranks 0, 1 wait in call 2 (all_reduce) for "
                              "rank 2; rank 2 is in no call since call 1 (all_reduce)", job.answer(rank))
            self.assertIn("ranks 0, 1 have failed in call 2 (all_reduce)", attach(job.pid(2)).stdout)

    def test_ranks_that_all_receive_first(self):
        for has_channels in (False, True):
            with self.subTest(has_channels=has_channels), Job(QCCL_TIMEOUT=TIMEOUT) as job:
                if has_channels:
                    for rank in range(RANKS):  # from one end to the other, since small messages do not wait for their receiver
                        for verb, peer in (("receive", rank - 1), ("send", rank + 1)):
                            if 0 <= peer < RANKS:
                                job.tell(rank, verb, peer)
                    self.assertEqual([job.answer(rank) for rank in (0, 1, 1, 2)], ["fine"] * 4)
                    job.tell(2, "send", 0)
                    job.tell(0, "receive", 2)
                    self.assertEqual([job.answer(2), job.answer(0)], ["fine"] * 2)
                for rank in range(RANKS):
                    job.tell(rank, "receive", (rank + 1) % RANKS)
                for rank in range(RANKS):
                    self.assertRegex(job.answer(rank), r"did not come to .* within 5 s: ranks 0-2 wait for each other; rank 0 waits to "
                                                       r"receive from rank 1; rank 1 waits to receive from rank 2; rank 2 waits to")


class Folder(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory()) if hasattr(self, "enterContext") else self.make_folder()

    def make_folder(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return folder.name

    def names(self):
        return sorted(os.listdir(self.folder))

    def test_files_stay_of_those_who_were_killed_alone(self):
        with Job(QCCL_RECORD=self.folder) as job:
            self.assertEqual(job.all("reduce", 100), ["fine"] * RANKS)
            self.assertEqual(len(self.names()), RANKS)
            for name in self.names():
                self.assertRegex(name, r"^qccl-[0-9a-f]{16}-rank[012]\.record$")
            self.assertIn("ranks 0-2 are in no call since call 1 (all_reduce)", attach(self.folder).stdout)
            job.ranks[2].kill()
            job.ranks[2].wait()
            said = attach(self.folder, "--calls", 1).stdout
            self.assertIn("rank 2 has ended after call 1 (all_reduce)\n", said)
            self.assertEqual(said.count("  call 1: all_reduce"), RANKS)
            for rank in (0, 1):
                job.tell(rank, "leave")
                self.assertEqual(job.answer(rank), "fine")
            self.assertRegex(" ".join(self.names()), r"^qccl-\w+-rank2\.record$")
        self.assertIn("rank 2 has ended", attach(self.folder).stdout)

    def test_files_go_wherever_the_program_has_gone(self):
        with Job(QCCL_RECORD=os.path.relpath(self.folder)) as job:
            self.assertEqual(job.all("move"), ["fine"] * RANKS)
            self.assertEqual(len(self.names()), RANKS)
            self.assertEqual(job.all("leave"), ["fine"] * RANKS)
            self.assertEqual(self.names(), [])

    def test_files_stay_of_communicators_that_failed(self):
        with Job(QCCL_RECORD=self.folder, QCCL_TIMEOUT=TIMEOUT) as job:
            job.tell(0, "reduce", 100)
            self.assertIn("within 5 s", job.answer(0))
            self.assertEqual(job.all("leave"), ["fine"] * RANKS)
            self.assertRegex(" ".join(self.names()), r"^qccl-\w+-rank0\.record$")

    def test_who_fails_a_communicator_between_calls_says_so(self):
        with Job(QCCL_RECORD=self.folder) as job:
            job.tell(0, "revoke")
            self.assertEqual(job.answer(0), "fine")
            self.assertIn("rank 0 has failed before the first call\n", attach(self.folder).stdout)
            self.assertEqual(job.all("leave"), ["fine"] * RANKS)
            self.assertRegex(" ".join(self.names()), r"^qccl-\w+-rank0\.record$")

    def test_damaged_files_hide_no_others(self):
        with Job(QCCL_RECORD=self.folder) as job:
            job.ranks[1].send_signal(signal.SIGKILL)
            job.ranks[1].wait()
            path = pathlib.Path(self.folder) / self.names()[1]
            whole = path.read_bytes()
            for damaged, why in ((whole[:5000], "cut short"), (whole[:100], "too short"), (b"x" * 50000, "no record"), (b"", "")):
                path.write_bytes(damaged)
                done = attach(self.folder)
                self.assertIn(why, done.stderr)
                self.assertIn("ranks 0, 2 are in no call", done.stdout)
            path.unlink()
            os.mkfifo(path)
            self.assertIn("is no file", attach(self.folder).stderr)

    def test_there_may_be_more_than_files_that_are_open(self):
        with Job(QCCL_RECORD=self.folder) as job:
            job.ranks[0].kill()
            job.ranks[0].wait()
            whole = (pathlib.Path(self.folder) / self.names()[0]).read_bytes()
        for session in range(100):
            (pathlib.Path(self.folder) / f"qccl-{session:016x}-rank0.record").write_bytes(
                whole[:24] + session.to_bytes(8, sys.byteorder) + whole[32:])
        usual, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, most))
        try:
            said = attach(self.folder)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (usual, most))
        self.assertEqual(said.stderr, "")
        self.assertGreaterEqual(said.stdout.count("communicator "), 100)

    def test_one_that_cannot_be_used_fails_creation(self):
        file = pathlib.Path(self.folder) / "file"
        file.write_text("")
        for place, why in (("/nowhere/at/all", "No such file"), (file, "Not a directory")):
            with Job(QCCL_RECORD=place) as job:
                for said in job.created:
                    self.assertRegex(said, f"QCCL_RECORD: {place}.*{why}")

    def test_what_is_none(self):
        self.assertIn("no records of calls", attach(self.folder, expect=1).stderr)
        self.assertIn("No such file", attach("/nowhere/at/all", expect=1).stderr)


class Refused(unittest.TestCase):
    def test_processes_without_communicators(self):
        self.assertIn("has no communicator", attach(os.getpid(), expect=1).stderr)
        with Job(1, QCCL_RECORD="off") as job:
            self.assertIn("QCCL_RECORD", attach(job.pid(0), expect=1).stderr)

    def test_processes_that_are_none(self):
        with subprocess.Popen(["true"]) as ended:
            while pathlib.Path(f"/proc/{ended.pid}/stat").read_text().split()[2] != "Z":
                time.sleep(0.01)
            self.assertIn("has ended", attach(ended.pid, expect=1).stderr)
        self.assertIn("there is no process", attach(ended.pid, expect=1).stderr)
        self.assertIn("there is no process", attach(2**31 - 1, expect=1).stderr)

    @unittest.skipUnless(os.geteuid() == 0, "another user is needed")
    def test_processes_of_others(self):
        nobody = pwd.getpwnam("nobody").pw_uid
        with Job(1) as job, tempfile.TemporaryDirectory() as folder:
            # A copy, laid out like the build, since folders above the build may be closed to others.
            place = pathlib.Path(folder)
            place.chmod(0o755)
            for file in (pathlib.Path(INFO), *pathlib.Path(LIBRARY).parent.glob("libqccl.so.*")):
                if file.is_file():
                    (place / file.parent.name).mkdir(exist_ok=True)
                    shutil.copy(file, place / file.parent.name)
            tool_here = place / pathlib.Path(INFO).parent.name / pathlib.Path(INFO).name
            done = subprocess.run([tool_here, "attach", str(job.pid(0))], user=nobody, cwd="/", capture_output=True, text=True,
                                  timeout=PATIENCE)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn("only its user and root", done.stderr)


if __name__ == "__main__":
    if len(sys.argv) == 1:
        Rank().obey()
    INFO = sys.argv.pop(1)
    unittest.main(argv=sys.argv[:1], verbosity=1)
