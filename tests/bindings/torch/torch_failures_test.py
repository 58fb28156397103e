"""What the backend "qccl" of torch.distributed does when something goes wrong, and how its groups end.

usage: torch_failures_test.py   (exits 77, skipped, without PyTorch; PYTHONPATH names the package)
"""
import copy
import datetime
import os
import re
import signal
import threading
import time
import unittest

import rank_jobs

if __name__ == "__main__":
    rank_jobs.skip_without_torch()

import torch
import torch.distributed as dist

import qccl.torch

CASE = unittest.TestCase()
SOON = 20.0  # seconds in which an error comes that no timeout brings, on a machine that has other work


def seconds(number):
    return datetime.timedelta(seconds=number)


class Fails:
    """The block raises DistBackendError with these words, before long."""

    def __init__(self, words, limit=SOON):
        self.checks, self.limit = CASE.assertRaisesRegex(dist.DistBackendError, words), limit

    def __enter__(self):
        self.begin = time.monotonic()
        self.checks.__enter__()

    def __exit__(self, *error):
        result = self.checks.__exit__(*error)
        CASE.assertLess(time.monotonic() - self.begin, self.limit)
        return result


def late_rank(rank, size):
    dist.barrier()
    if rank == 0:
        time.sleep(3)
        return
    begin = time.monotonic()
    with Fails("qccl:all_reduce: Timed out waiting 1000ms: .*rank 0"):
        dist.group.WORLD.allreduce([torch.ones(2)], dist.ReduceOp.SUM, seconds(1)).wait()
    assert time.monotonic() - begin >= 0.9
    with Fails("Timed out waiting"):  # the communicator stays failed
        dist.all_reduce(torch.ones(2))


def different_sparse_sizes(rank, size):
    """All ranks refuse the call, and the group goes on."""
    for sizes, words in ((((10,), (20,)), r"sizes \[20\], that of rank 0 has \[10\]"), (((4, 3), (4, 5)), r"sizes \[4, 5\], that of rank 0"),
                         (((4, 2), (4,)), "other dimensions than that of rank 0")):
        shape = sizes[rank == 2]
        x = torch.sparse_coo_tensor(torch.full((1, 1), shape[0] - 1), torch.ones(1, *shape[1:]), shape)
        with CASE.assertRaisesRegex(RuntimeError, f"all_reduce: the sparse tensor of rank 2 has (the )?{words}"):
            dist.all_reduce(x)
    y = torch.ones(2)
    dist.all_reduce(y)
    assert y.tolist() == [float(size)] * 2


def different_calls(rank, size):
    with Fails("disagree"):
        dist.all_reduce(torch.ones(2 + rank))
    work = dist.all_reduce(torch.ones(2), async_op=True)
    with Fails("disagree"):
        work.wait()
    assert not work.get_future().done() or isinstance(work.exception(), RuntimeError)


def killed_in_a_call(rank, size):
    dist.all_reduce(torch.ones(2))
    if rank == 1:
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)
    work = dist.all_reduce(torch.ones(2), async_op=True)
    with Fails("rank 1 .*(died|ended)"):
        work.wait()
    with Fails("rank 1 .*(died|ended)"):
        dist.barrier()


def killed_before_a_message(rank, size, has_link):
    x = torch.ones(2)
    if has_link and rank < 2:
        (dist.send if rank == 1 else dist.recv)(x, 1 - rank)
    dist.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 0:
        with Fails("rank 1"):
            dist.recv(x, 1)
        with Fails("rank 1"):
            dist.send(torch.ones(1 << 20), 1)
        dist.send(x, 2)  # the others go on
    if rank == 2:
        assert dist.recv(x) == 0


def goes_on_without(rank, size):
    """The ranks that are left go on in a smaller group: torch.distributed.shrink_group."""
    dist.all_reduce(torch.ones(2))
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with Fails("rank 1 .*(died|ended)"):
        dist.barrier()
    shrunk = dist.shrink_group([1])
    assert (dist.get_world_size(), dist.get_rank()) == (size - 1, rank - (rank > 1))
    x = torch.tensor([float(rank)])
    dist.all_reduce(x)
    assert x.item() == sum(range(size)) - 1, x
    if dist.get_rank() < 2:
        other = 1 - dist.get_rank()
        work = dist.isend(torch.tensor([10.0 + rank]), other)
        dist.recv(x, other)
        work.wait()
        assert x.item() == 10.0 + (2 if rank == 0 else 0)
    dist.barrier(group=shrunk)


def left_early(rank, size):
    """A rank that ends its group is no silent hang for those that still want messages of it."""
    x = torch.ones(2)
    (dist.send if rank == 1 else dist.recv)(x, 1 - rank)
    if rank == 1:
        dist.isend(torch.full((2,), 7.0), 0).wait()  # sent, and still to be received
    dist.barrier()
    if rank == 0:
        with Fails("rank 1 has left"):
            dist.recv(torch.ones(3), 1, tag=4)
        dist.recv(x, 1)
        assert x.tolist() == [7.0, 7.0]
        with Fails("rank 1 has left"):
            dist.send(x, 1)


def missing_in_monitored_barrier(rank, size):
    qccl.torch.monitored_barrier()
    if rank == 2:
        return
    if rank == 0:
        words = "Rank 2 failed to pass monitoredBarrier in 300 ms"
    else:
        words = f"Rank {rank} successfully reached monitoredBarrier.*Rank 2 failed"
    with CASE.assertRaisesRegex(RuntimeError, words):
        qccl.torch.monitored_barrier(timeout=seconds(0.3 if rank == 0 else 20), wait_all_ranks=True)


def aborted(rank, size):
    dist.all_reduce(torch.ones(2))
    if rank == 1:
        time.sleep(1.0)
    if rank == 0:
        work = dist.all_reduce(torch.ones(2), async_op=True)
        message = dist.irecv(torch.ones(2), 1)
        threading.Timer(0.3, dist.distributed_c10d._abort_process_group).start()
        with Fails("abort"):
            work.wait()
        with Fails("shut down"):
            message.wait()
    else:
        with Fails("rank 0.*abort"):
            dist.all_reduce(torch.ones(2))


def aborted_in_its_shutdown(rank, size):
    """A shutdown that waits for another rank, for as long as the group's timeout, ends when a watchdog aborts."""
    store = dist.distributed_c10d._get_default_store()
    dist.all_reduce(torch.ones(2))
    if rank == 1:
        return store.wait(["over"])
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    work = dist.all_reduce(torch.ones(2), async_op=True)
    shutdown = threading.Thread(target=backend.shutdown)
    shutdown.start()
    shutdown.join(0.5)
    assert shutdown.is_alive()
    begin = time.monotonic()
    backend.abort()
    shutdown.join(SOON)
    assert not shutdown.is_alive() and time.monotonic() - begin < SOON
    with Fails("abort"):
        work.wait()
    store.set("over", "")


def interrupted_creation(rank, size, interrupted):
    """Ctrl-C while a group is made: rank 0 waits for other ranks, and others wait for rank 0's id."""
    store = dist.distributed_c10d._get_default_store()
    if rank != interrupted:
        return store.wait(["over"])
    begin = time.monotonic()
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    with CASE.assertRaises(KeyboardInterrupt):
        dist.new_group()
    assert 0.4 < time.monotonic() - begin < SOON
    store.set("over", "")


def used_after_its_end(rank, size):
    group = dist.new_group()
    dist.barrier(group=group)
    backend = group._get_backend(torch.device("cpu"))
    message = dist.irecv(torch.ones(2), 1 - rank, group=group)
    dist.destroy_process_group(group)
    with Fails("shut down"):
        message.wait()
    for call in (lambda: backend.allreduce([torch.ones(1)]), backend.barrier, lambda: backend.send([torch.ones(1)], 1 - rank, 0),
                 lambda: backend.recv([torch.ones(1)], 1 - rank, 0)):
        with Fails("has been shut down"):
            call()
    backend.shutdown()


def ends_in_a_callback(rank, size):
    """A callback runs on the group's own thread, or inside a call, and ends the group. Another one raises."""
    for is_message in (False, True):
        group, ended = dist.new_group(), threading.Event()
        x, other = torch.ones(2), 1 - rank

        def end_group(done):
            dist.destroy_process_group(group)
            ended.set()

        if is_message:
            sent = dist.isend(torch.full((2,), 3.0), other, group=group)
            work = dist.irecv(x, other, group=group)
            sent.wait()
        else:
            dist.barrier(group=group)
            work = dist.all_reduce(x, group=group, async_op=True)
        work.get_future().add_done_callback(end_group)
        work.wait()
        assert x.tolist() == [3.0 if is_message else 2.0] * 2 and ended.wait(SOON)
    with CASE.assertRaisesRegex(RuntimeError, "ZeroDivisionError"):
        dist.all_reduce(x, async_op=True).get_future().then(lambda done: 1 // 0).wait()
    dist.all_reduce(x)


def in_a_forked_child(rank, size):
    dist.barrier()
    child = os.fork()
    if child == 0:
        try:
            with Fails("forked"):
                dist.all_reduce(torch.ones(2))
            with Fails("forked"):
                dist.isend(torch.ones(2), 1 - rank)
            dist.destroy_process_group()
            os._exit(0)
        except BaseException as error:
            print(repr(error), flush=True)
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert status == 0
    dist.all_reduce(torch.ones(2))  # the parent goes on


def ends_without_destroy(rank, size):
    """With a call and messages under way: rank 1 does not make its part of them."""
    dist.all_reduce(torch.ones(2))
    if rank == 0:
        ends_without_destroy.kept = [dist.all_reduce(torch.ones(2), async_op=True), dist.irecv(torch.ones(2), 1),
                                     dist.isend(torch.ones(1 << 20), 1)]
        future = ends_without_destroy.kept[0].get_future()
        ends_without_destroy.kept.append(future.then(lambda done: done.value()))


def wrong_arguments(rank, size):
    one, pg = torch.ones(2), dist.group.WORLD
    for call, words in ((lambda: pg.broadcast(one, root=size), "invalid root rank"), (lambda: pg.allgather([[one]], [one]), "invalid output tensor list"),
                        (lambda: dist.all_gather_into_tensor(torch.ones(3), one), "size must be equal to world_size times"),
                        (lambda: dist.reduce_scatter_tensor(torch.ones(3), one), "size must be equal to world_size times"),
                        (lambda: dist.all_to_all_single(one, one, [1], [2]), "splits not equal to group size"),
                        (lambda: pg._end_coalescing(torch.device("cpu")), "no calls")):
        with CASE.assertRaisesRegex(RuntimeError, words):
            call()
    with CASE.assertRaisesRegex(RuntimeError, "unsupported device type meta: .* on the CPU"):
        pg._get_backend(torch.device("cpu")).allreduce([torch.ones(2, device="meta")])
    with CASE.assertRaisesRegex(TypeError, "qccl.torch.Options"):
        dist.new_group(pg_options=dist.ProcessGroupGloo._Options())
    with CASE.assertRaisesRegex(TypeError, "no argument 'codek'"):
        qccl.torch.Options(codek="int4")
    options = qccl.torch.Options(codec="bf16", algorithm="ring", name="mine", reproducible=True)
    copied = copy.copy(options)
    assert (copied.codec, copied.algorithm, copied.name, copied.reproducible) == ("bf16", "ring", "mine", True)
    dist.new_group(pg_options=options)
    assert options.group_name == copied.group_name  # the group has a copy
    with CASE.assertRaisesRegex(dist.DistBackendError, "int77"):
        dist.new_group(pg_options=qccl.torch.Options(codec="int77"))
    dist.all_reduce(one)
    assert one.tolist() == [float(size)] * 2


def encoded(rank, size):
    """A group's codec encodes the floats of its reductions, with the same bytes on all ranks, and leaves other calls exact."""
    values = torch.randn(1 << 16, generator=torch.Generator().manual_seed(rank))
    exact = sum(torch.randn(1 << 16, generator=torch.Generator().manual_seed(other)).double() for other in range(size))
    x, whole = values.clone(), values.to(torch.float64)
    dist.all_reduce(x)
    error = ((x - exact).square().sum() / exact.square().sum()).item()
    assert 1e-4 < error < 0.1, error
    every = [torch.empty_like(x) for _ in range(size)]
    dist.all_gather(every, x)
    assert all(torch.equal(each, x) for each in every)
    assert torch.equal(every[rank], x)
    numbers = torch.arange(1000) + rank
    dist.all_reduce(numbers)
    assert torch.equal(numbers, torch.arange(1000) * size + size * (size - 1) // 2)
    plain = dist.new_group()
    dist.all_reduce(whole, group=plain)
    assert torch.allclose(whole, exact, rtol=1e-12)


def trains(rank, size):
    """DistributedDataParallel ends with the weights of one process that sees all data."""
    def train(model, data):
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for batch in data:
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()

    def make():
        torch.manual_seed(3)
        return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2)).double()

    batches = torch.randn(5, 4 * size, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    alone, together = make(), make()
    train(alone, batches)
    train(torch.nn.parallel.DistributedDataParallel(together), batches[:, 4 * rank:4 * (rank + 1)])
    for one, other in zip(alone.parameters(), together.parameters()):
        assert torch.allclose(one, other, rtol=1e-10, atol=1e-12)


class Failures(unittest.TestCase):
    def check(self, body, size, *arguments):
        return rank_jobs.values(self, body, size, *arguments)

    def check_survivors(self, body, size, killed, *arguments):
        outcomes = rank_jobs.run(body, size, *arguments, rank_jobs.Group(is_destroyed=False))
        for rank, outcome in enumerate(outcomes):
            self.assertEqual((outcome.status, outcome.error), (-signal.SIGKILL if rank == killed else 0, None), f"rank {rank}: {outcome}")

    def test_a_rank_is_late(self):
        self.check(late_rank, 2)

    def test_ranks_disagree(self):
        self.check(different_calls, 2)

    def test_sparse_sizes_differ(self):
        self.check(different_sparse_sizes, 3)

    def test_a_rank_dies_in_a_call(self):
        self.check_survivors(killed_in_a_call, 3, 1)

    def test_a_rank_dies_before_its_message(self):
        for has_link in (False, True):
            self.check_survivors(killed_before_a_message, 3, 1, has_link)

    def test_a_group_shrinks(self):
        self.check_survivors(goes_on_without, 4, 1)

    def test_a_rank_leaves(self):
        self.check(left_early, 2)

    def test_monitored_barrier(self):
        self.check(missing_in_monitored_barrier, 3)

    def test_abort(self):
        self.check(aborted, 3, rank_jobs.Group(is_destroyed=False))

    def test_abort_in_a_shutdown(self):
        self.check(aborted_in_its_shutdown, 2, rank_jobs.Group(is_destroyed=False))

    def test_interrupted_creation(self):
        for rank in range(2):
            self.check(interrupted_creation, 2, rank, rank_jobs.Group(is_destroyed=False))

    def test_use_after_the_end(self):
        self.check(used_after_its_end, 2)

    def test_end_in_a_callback(self):
        self.check(ends_in_a_callback, 2)

    def test_fork(self):
        self.check(in_a_forked_child, 2)

    def test_end_of_the_process(self):
        """Of programs, which end with the interpreter, and of processes of multiprocessing, which end with os._exit."""
        for are_programs in (True, False):
            begin = time.monotonic()
            outcomes = rank_jobs.run(ends_without_destroy, 2, rank_jobs.Group(is_destroyed=False), are_programs=are_programs)
            for outcome in outcomes:
                self.assertEqual((outcome.status, outcome.error), (0, None), outcome)
                self.assertRegex(outcome.end or "", "has been shut down")
            self.assertLess(time.monotonic() - begin, 60)

    def test_old_pytorch(self):
        check = qccl.torch._backend.check_pytorch
        for version in ("2.13.0", "2.13.0+cpu", "2.14.0a0+git123", "3.0"):
            check(version)
        for version in ("1.13.1", "2.4.1+cu121", "2.12.9"):
            with self.assertRaisesRegex(RuntimeError, f"needs PyTorch 2.13 or later, and this is {re.escape(version)}"):
                check(version)

    def test_wrong_arguments(self):
        self.check(wrong_arguments, 2)

    def test_codec(self):
        self.check(encoded, 4, rank_jobs.Group(codec="int4"))

    def test_training(self):
        self.check(trains, 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
