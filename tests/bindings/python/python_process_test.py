"""The Python package in processes: how ranks meet, signals, forks, ends, and which library is loaded.

usage: python_process_test.py LIBRARY CC...   (libqccl.so.0 or what it points to, and a compiler of C)
"""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

import launchers

LIBRARY, CC = sys.argv[1], sys.argv[2:]
PATIENCE = 60


def environment(**more):
    return launchers.environment(**{"PYTHONPATH": os.environ.get("PYTHONPATH", ""), "QCCL_LIBRARY": LIBRARY, **more})


def script(text):
    return [sys.executable, "-c", textwrap.dedent(text)]


def run(text, **more):
    return subprocess.run(script(text), env=environment(**more), capture_output=True, text=True, timeout=PATIENCE, check=False)


def by_hand(ranks, **more):
    """The variables of each rank of a job that is started by hand."""
    port = launchers.free_port()
    return [environment(RANK=rank, WORLD_SIZE=ranks, MASTER_ADDR="localhost", QCCL_PORT=port, **more) for rank in range(ranks)]


class Processes(unittest.TestCase):
    def job(self, text, ranks=2, **more):
        return launchers.start_by_hand([script(text)] * ranks, by_hand(ranks, **more), PATIENCE)

    def test_ranks_that_the_environment_numbers(self):
        for status, out, err in self.job("""
                import numpy, qccl
                with qccl.init(name="job", timeout=50) as comm:
                    x = comm.all_reduce(numpy.ones(3), "sum", codec="none")
                    print(comm, x[0])"""):
            self.assertEqual((status, err), (0, ""))
            self.assertRegex(out, r"^<qccl.Comm: rank [01] of 2 on host> 2.0\n$")

    def test_launchers(self):
        for name in ("hydra", "Open MPI"):
            with self.subTest(name):
                command = launchers.LAUNCHERS[name]
                done = subprocess.run([*map(str, command), *script("import numpy, qccl; print(qccl.init().all_reduce(numpy.ones(1)))")],
                                      env=environment(), capture_output=True, text=True, timeout=PATIENCE, check=False)
                # Lines of ranks may run into one another.
                self.assertEqual((done.returncode, done.stdout.count("[4.]")), (0, launchers.RANKS), done.stdout + done.stderr)

    def test_an_id_that_the_program_brings(self):
        done = run("""
            import multiprocessing, numpy, qccl
            def rank(number, id):
                with qccl.init(rank=number, size=3, id=id) as comm:
                    assert comm.all_reduce(numpy.ones(2))[1] == 3
            if __name__ == "__main__":
                context = multiprocessing.get_context("fork")
                id = qccl.unique_id()
                others = [context.Process(target=rank, args=(number, id)) for number in (1, 2)]
                for other in others: other.start()
                rank(0, id)
                for other in others: other.join()
                print([other.exitcode for other in others])""")
        self.assertEqual((done.returncode, done.stdout), (0, "[0, 0]\n"), done.stderr)

    def test_an_all_gather_of_the_program(self):
        done = run("""
            import threading, numpy, qccl
            ranks, parts, barrier = 3, [None] * 3, threading.Barrier(3)
            def gather_of(rank):
                def gather(mine):
                    parts[rank] = mine
                    barrier.wait()
                    all_parts = list(parts)
                    barrier.wait()
                    return all_parts
                return gather
            def run(rank):
                with qccl.init(rank=rank, size=ranks, allgather=gather_of(rank)) as comm:
                    assert comm.rank == rank and comm.all_reduce(numpy.ones(2))[1] == 3
                    print("done\\n", end="")
            threads = [threading.Thread(target=run, args=(rank,)) for rank in range(ranks)]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
            def wrong(mine): raise LookupError("no such peer")
            try: qccl.init(rank=0, size=2, allgather=wrong)
            except LookupError as error: print(error, "|", type(error.__cause__).__name__)
            try: qccl.init(rank=0, size=2, allgather=lambda mine: [mine])
            except qccl.InvalidArgument as error: print(error)""")
        lines = done.stdout.splitlines()
        self.assertEqual((done.returncode, lines[:3]), (0, ["done"] * 3), done.stderr)
        self.assertEqual(lines[3], "no such peer | SystemFailure")
        self.assertRegex(lines[4], r"allgather: it returned 1 parts of \[\d+\] bytes, and 2 parts of \d+ bytes are expected")

    def test_ranks_join_and_leave_a_running_job(self):
        done = run("""
            import threading, numpy, qccl
            id = qccl.unique_id()
            def join():
                with qccl.init(id=id, rank=2, size=3) as comm:
                    comm.all_reduce(numpy.ones(1))
            newcomer = threading.Thread(target=join)
            newcomer.start()
            def body(comm):
                grown = comm.grow(3, id if comm.rank == 0 else None)
                total = float(grown.all_reduce(numpy.ones(1))[0])
                grown.close()
                if comm.rank == 0:
                    left = comm.shrink([1])
                    numbers = total, left.size, left.rank
                    left.close()
                    return numbers
            print(qccl.run_threads(2, body)[0])
            newcomer.join()""")
        self.assertEqual((done.returncode, done.stdout), (0, "(3.0, 1, 0)\n"), done.stderr)

    def test_wrong_arguments_of_creation(self):
        done = run("""
            import qccl
            for wrong in (dict(rank=0), dict(id=b"short", rank=0, size=1), dict(id=qccl.unique_id()), dict(codec="int9"),
                          dict(id=qccl.unique_id(), allgather=list, rank=0, size=1), dict(device=5), dict(timeout=float("nan"), id=qccl.unique_id(), rank=0, size=1)):
                try: qccl.init(**wrong)
                except qccl.InvalidArgument as error: print(error)
            try: qccl.init_all(2, ["host"])
            except qccl.InvalidArgument as error: print(error)
            try: qccl.init(sizes=3)
            except TypeError as error: print(error)""", RANK="0", WORLD_SIZE="1", MASTER_ADDR="localhost", QCCL_PORT=str(launchers.free_port()))
        for line, pattern in zip(done.stdout.splitlines(), ("they belong to an id", "the 128 bytes that qccl.unique_id returns, not bytes of 5",
                                                            "pass both", "int9", "by one of the two", "a text is expected, not 5", "timeout",
                                                            "a name for each of the 2 ranks", "sizes"), strict=True):
            self.assertIn(pattern, line)


class Signals(unittest.TestCase):
    def interrupted(self, text, environments=None):
        """The output of a program whose rank 0 gets Ctrl-C a moment after it has printed "waits", and the time until it ended."""
        environments = environments or [environment()]
        started = [subprocess.Popen(script(text), env=one, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for one in environments]
        self.assertEqual(started[0].stdout.readline(), "waits\n", started[0].poll())
        time.sleep(0.3)
        begin = time.monotonic()
        started[0].send_signal(signal.SIGINT)
        ended = [process.communicate(timeout=PATIENCE) for process in started]
        self.assertLess(time.monotonic() - begin, 20)
        return ended

    def test_in_a_call(self):
        (out, err), (other_out, _) = self.interrupted("""
            import numpy, os, qccl, time
            comm = qccl.init()
            try:
                if comm.rank == 0:
                    print("waits", flush=True)
                    comm.all_reduce(numpy.ones(3))
                while not comm.async_error(): time.sleep(0.01)
                comm.barrier()
            except BaseException as error: print(type(error).__name__, comm.async_error())""", by_hand(2))
        self.assertTrue(out.startswith("KeyboardInterrupt"), (out, err))
        self.assertIn("rank 0 revoked", other_out)

    def test_in_a_group_on_a_stream_and_in_the_end(self):
        for wait in ("""
                with qccl.group(): comm.all_reduce(x)""", """
                with qccl.Stream() as stream:
                    comm.all_reduce(x, stream=stream)
                    try: stream.synchronize()
                    except KeyboardInterrupt:
                        comm.abort()
                        raise""", """
                comm.send(x[:1], 1); comm.all_gather(x[:1])"""):
            text = textwrap.dedent("""
                import numpy, qccl, time
                comm, x = qccl.init(), numpy.ones(100000)
                if comm.rank: time.sleep(1.5); raise SystemExit
                print("waits", flush=True)
                try: """) + textwrap.indent(textwrap.dedent(wait), "    ") + "\nexcept KeyboardInterrupt: print('interrupted')\n"
            with self.subTest(wait):
                (out, err), _ = self.interrupted(text, by_hand(2))
                self.assertEqual(out, "interrupted\n", err)

    def test_in_an_operation_of_the_program(self):
        (out, err), _ = self.interrupted("""
            import numpy, qccl, time
            comm = qccl.init()
            def slow(accumulator, more):
                accumulator += more
                if comm.rank == 0: print("waits", flush=True); time.sleep(5)
            try: comm.all_reduce(numpy.ones(3), qccl.RedOp(slow), algorithm="oneshot")
            except BaseException as error: print(type(error).__name__)""", by_hand(2))
        self.assertEqual((out, err.count("KeyboardInterrupt")), ("KeyboardInterrupt\n", 0), err)

    def test_in_the_creation(self):
        (out, err), = self.interrupted("""
            import qccl
            id = qccl.unique_id()
            print("waits", flush=True)
            try: qccl.init(id=id, rank=0, size=2)
            except KeyboardInterrupt: print("interrupted")""")
        self.assertEqual(out, "interrupted\n", err)


class Ends(unittest.TestCase):
    def test_an_exception_ends_the_other_ranks(self):
        for form in ("with qccl.init() as comm:", "comm = qccl.init()\nif True:"):
            ended = launchers.start_by_hand([script(f"import numpy, qccl\n{form}\n" + textwrap.indent(textwrap.dedent("""
                try:
                    comm.barrier()
                    if comm.rank == 1: raise LookupError("by the program")
                    comm.all_reduce(numpy.ones(1))
                except qccl.Revoked as error: print(error)"""), "    "))] * 2, by_hand(2), PATIENCE)
            self.assertIn("rank 1", ended[0][1], ended)
            self.assertIn("LookupError: by the program", ended[1][2])

    def test_communicators_that_stay_open(self):
        done = run("""
            import numpy, qccl
            kept = qccl.init_all(1)[0]
            for _ in range(3): qccl.init_all(1)[0].all_reduce(numpy.ones(2))
            stream = qccl.Stream()
            kept.all_reduce(numpy.ones(100000), stream=stream)""")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_workers_of_multiprocessing_close_what_they_leave(self):
        """A worker that ends well waits until its peers have come to its calls. One that fails tells them."""
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "worker.py").write_text(textwrap.dedent("""
                import numpy, qccl
                def work(id, fails):
                    comm = qccl.init(rank=1, size=2, id=id)
                    comm.barrier()
                    comm.broadcast(numpy.ones(3), root=1)  # returns before rank 0 has come
                    if fails: raise LookupError("by the program")"""))
            for method in ("fork", "forkserver", "spawn"):
                done = run(f"""
                    import multiprocessing, numpy, qccl, time, worker
                    context = multiprocessing.get_context({method!r})
                    for fails in (False, True):
                        id = qccl.unique_id()
                        child = context.Process(target=worker.work, args=(id, fails))
                        child.start()
                        comm = qccl.init(rank=0, size=2, id=id)
                        try:
                            comm.barrier()
                            child.join(0.3)
                            print(child.is_alive(), comm.broadcast(numpy.zeros(3), root=1)[0])
                            if fails: comm.barrier()
                        except qccl.Error as error: print(type(error).__name__)
                        child.join()
                        comm.abort()
                        print(child.exitcode)""", PYTHONPATH=f"{folder}:{os.environ.get('PYTHONPATH', '')}")
                with self.subTest(method):
                    self.assertEqual(done.returncode, 0, done.stderr)
                    told = "PeerLost" if sys.version_info >= (3, 13) else "Revoked"
                    self.assertRegex(done.stdout, rf"^True 1\.0\n0\n(True 1\.0\n)?{told}\n1\n$", done.stderr)
                    self.assertEqual(done.stderr.count("LookupError: by the program"), 1)

    def test_a_closed_communicator(self):
        done = run("""
            import numpy, qccl
            comm, = qccl.init_all(1)
            call = comm.prepare("all_reduce", numpy.ones(1))
            comm.close()
            comm.close()
            for use in (lambda: comm.barrier(), lambda: comm.split(0), lambda: comm.stats(), lambda: call.start(), comm.finalize, comm.revoke,
                        lambda: comm.explain("all_reduce")):
                try: use()
                except qccl.InvalidUsage as error: print(error)
            print(comm)""")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(done.stdout.splitlines()), 8)
        self.assertEqual(done.stdout.count("the communicator has been closed"), 6)
        self.assertTrue(done.stdout.endswith("<qccl.Comm: closed>\n"))

    def test_forked_workers(self):
        done = run("""
            import multiprocessing, numpy, qccl
            comm, stream = qccl.init_all(1)[0], qccl.Stream()
            def work():
                for use in (lambda: comm.all_reduce(numpy.ones(1)), lambda: stream.synchronize()):
                    try: use()
                    except qccl.InvalidUsage as error: print(error, flush=True)
                mine, = qccl.init_all(1)
                print(mine.all_reduce(numpy.ones(1))[0], flush=True)
                comm.close()  # the parent's goes on
            worker = multiprocessing.get_context("fork").Process(target=work)
            worker.start()
            worker.join()
            print(worker.exitcode, comm.all_reduce(numpy.ones(1))[0])""")
        lines = done.stdout.splitlines()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(lines[2:], ["1.0", "0 1.0"], done.stdout + done.stderr)
        for line in lines[:2]:
            self.assertIn("fork", line)

    def test_other_threads_run_while_a_rank_waits(self):
        done = run("""
            import numpy, qccl, threading, time
            first, second = qccl.init_all(2)
            waiting = threading.Thread(target=lambda: first.all_reduce(numpy.ones(1)))
            waiting.start()
            time.sleep(0.2)
            print("runs")
            try: first.barrier()
            except qccl.InvalidUsage as error: print(error)
            second.all_reduce(numpy.ones(1))
            waiting.join()""")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, "^runs\n.*thread")


class Loading(unittest.TestCase):
    USE = "import qccl\nprint(qccl.version())\nqccl.Codec('int8')"

    def stub(self, folder, text, name="libqccl.so.0"):
        source, library = pathlib.Path(folder) / f"{name}.c", pathlib.Path(folder) / name
        source.write_text(text)
        subprocess.run([*CC, "-shared", "-fPIC", "-o", library, source], check=True)
        return str(library)

    def refused(self, pattern, text=USE, **more):
        done = run(text, **more)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr.splitlines()[-1], f"LibraryError: {pattern}")

    def test_a_path_without_a_library(self):
        self.refused("QCCL_LIBRARY names /no/such/file, which does not exist", QCCL_LIBRARY="/no/such/file")
        self.refused("the QCCL library cannot be loaded: .*QCCL_LIBRARY", QCCL_LIBRARY=__file__)

    def test_an_older_library(self):
        with tempfile.TemporaryDirectory() as folder:
            old = self.stub(folder, "int qcclGetVersion(int *v) { *v = 99; return 0; }")
            self.refused(r".* is QCCL 0.0.99, which is older than this package \(0\.\d+\.\d+\)", QCCL_LIBRARY=old)
            strange = self.stub(folder, "int qcclGetVersion(int *v) { *v = 999999; return 0; }", "libqccl.so.1")
            self.refused(".* is no QCCL library of this release: .*qccl", QCCL_LIBRARY=strange)
            other = self.stub(folder, "int other;", "libqccl.so.2")
            self.refused(".* is no QCCL library of this release: .*qcclGetVersion", QCCL_LIBRARY=other)

    def test_two_libraries(self):
        with tempfile.TemporaryDirectory() as folder:
            second = self.stub(folder, "int second;")
            load = f"import ctypes\nctypes.CDLL({second!r})\n"
            self.refused("QCCL_LIBRARY names .*, but this process has already loaded", load + self.USE)
            self.refused("two QCCL libraries are loaded", f"{load}ctypes.CDLL({LIBRARY!r})\n" + self.USE)

    def test_a_library_that_is_loaded_already(self):
        done = run(f"import ctypes, os\nctypes.CDLL({LIBRARY!r})\nos.environ.pop('QCCL_LIBRARY')\n{self.USE}\nprint(qccl.library_path())")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(os.path.samefile(done.stdout.splitlines()[1], LIBRARY))


    def test_folders_of_the_header(self):
        for folder in ("lib", "lib64", "lib/x86_64-linux-gnu"):
            with tempfile.TemporaryDirectory() as prefix:
                library, headers = pathlib.Path(prefix) / folder / "libqccl.so.0", pathlib.Path(prefix) / "include" / "qccl"
                library.parent.mkdir(parents=True)
                library.touch()
                for names, found in (([], "None"), (["qccl.h"], "None"), (["qccl.h", "version.h"], str(headers.parent.resolve()))):
                    headers.mkdir(parents=True, exist_ok=True)
                    for name in names:
                        (headers / name).touch()
                    done = run("import qccl; print(qccl.include_dir())", QCCL_LIBRARY=str(library))
                    self.assertEqual(done.stdout.strip(), found, done.stderr)


class Benchmark(unittest.TestCase):
    def test_records(self):
        done = run("""
            import qccl, qccl.perf
            rows = qccl.perf.measure("all_reduce", "-b", "1K", "-e", "4K", "-f", "4", "-n", "3", "--codec", "int8:min=0")
            print([(row["bytes"], row["codec"][:4], row["time_us"] > 0) for row in rows if not row["in_place"]])
            try: qccl.perf.measure("all_reduce", "--codec", "int9")
            except qccl.SystemFailure as error: print(error)""")
        lines = done.stdout.splitlines()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(lines[0], "[(1024, 'int8', True), (4096, 'int8', True)]")
        self.assertIn("int9", lines[1])

    def test_the_command(self):
        done = subprocess.run([sys.executable, "-m", "qccl.perf", "--version"], env=environment(), capture_output=True, text=True, check=True)
        self.assertTrue(done.stdout.startswith("qccl-perf "), done.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
