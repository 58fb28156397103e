"""Messages of the backend "qccl" of torch.distributed: tags, any order of posting, any source, credit, refusals and timeouts.

usage: torch_messages_test.py   (exits 77, skipped, without PyTorch; PYTHONPATH names the package)
"""
import datetime
import random
import socket
import time
import unittest

import rank_jobs

if __name__ == "__main__":
    rank_jobs.skip_without_torch()

import torch
import torch.distributed as dist

BIG = 1 << 20  # floats, 4 MiB: such a message waits for its receiver
CASE = unittest.TestCase()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def both_send_first(rank, size):
    for count in (0, 1, 50, 5000, 16384, BIG):
        sent = [dist.isend(torch.full((count,), float(rank)), other) for other in range(size) if other != rank]
        for other in range(size):
            if other != rank:
                x = torch.zeros(count)
                assert dist.recv(x, other) == other
                assert (x == other).all(), (count, other)
        for work in sent:
            work.wait()


def tags_out_of_order(rank, size):
    """The receiver asks for messages in another order than the sender sends them. Both orders are chosen by the seed."""
    count, neighbour, before = 40, (rank + 1) % size, (rank - 1) % size
    lengths = [random.Random(i).choice((0, 3, 60, 3000, 20000, 300000)) for i in range(count)]
    order = list(range(count))
    random.Random(rank).shuffle(order)
    sent = [dist.isend(torch.full((length,), 100.0 * rank + tag), neighbour, tag=tag) for tag, length in enumerate(lengths)]
    tensors = {tag: torch.zeros(lengths[tag]) for tag in order}
    for work in [dist.irecv(tensors[tag], before, tag=tag) for tag in order]:
        work.wait()
    for tag, x in tensors.items():
        assert (x == 100.0 * before + tag).all(), (tag, x)
    for work in sent:
        work.wait()


def same_tag_keeps_order(rank, size):
    """More messages than the receiver grants credit for, before it receives the first one."""
    count, length = 300, 4000
    if rank == 0:
        for work in [dist.isend(torch.full((length + i % 3,), float(i)), 1, tag=7) for i in range(count)]:
            work.wait()
        small = [dist.isend(torch.tensor([float(i)]), 1, tag=8) for i in range(20000)]
        dist.send(torch.tensor([-1.0]), 1, tag=9)
        for work in small:
            work.wait()
    elif rank == 1:
        time.sleep(0.3)
        for i in range(count):
            x = torch.zeros(length + i % 3)
            dist.recv(x, 0, tag=7)
            assert (x == i).all(), (i, x)
        x = torch.zeros(1)
        dist.recv(x, 0, tag=9)
        for i in range(20000):
            dist.recv(x, 0, tag=8)
            assert x.item() == i, (i, x)


def beside_collectives(rank, size):
    """A receive that waits holds up no collective, and a collective that waits no message."""
    x, y = torch.zeros(BIG), torch.ones(4)
    other = 1 - rank
    work = dist.irecv(x, other)
    dist.all_reduce(y)
    if rank == 0:
        pending = dist.all_reduce(y, async_op=True)
        dist.send(torch.full((BIG,), 5.0), other)
        work.wait()
        pending.wait()
    else:
        work.wait()
        dist.send(torch.full((BIG,), 6.0), other)
        dist.all_reduce(y)
    assert (x == 5.0 + other).all() and y.tolist() == [4.0] * 4


def any_source(rank, size):
    for count in (1, 30000):
        if rank == 0:
            seen = set()
            for _ in range(2 * (size - 1)):
                x = torch.zeros(count)
                source = dist.recv(x)
                assert (x == source).all(), (source, x)
                seen.add(source)
            assert seen == set(range(1, size))
        else:
            time.sleep(0.02 * (size - rank))
            for _ in range(2):
                dist.send(torch.full((count,), float(rank)), 0)
        dist.barrier()  # no rank sends messages of the next size meanwhile
    # A receive from any rank takes only messages of its tag.
    if rank == 0:
        x, y = torch.zeros(2), torch.zeros(2)
        work = dist.group.WORLD.recv_anysource([x], 5)
        dist.recv(y, 1, tag=4)
        work.wait()
        assert (work._source_rank(), x[0].item(), y[0].item()) == (1, 5.0, 4.0)
    elif rank == 1:
        dist.send(torch.full((2,), 4.0), 0, tag=4)
        dist.send(torch.full((2,), 5.0), 0, tag=5)


def batches_and_objects(rank, size):
    after, before = (rank + 1) % size, (rank - 1) % size
    x = torch.zeros(3, 2).t()  # not dense
    ops = [dist.P2POp(dist.irecv, x, before), dist.P2POp(dist.isend, torch.full((3, 2), float(rank)).t(), after)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    assert (x == before).all(), x
    with dist.distributed_c10d._coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
        dist.irecv(x, before)
        dist.isend(torch.full((2, 3), 10.0 * rank), after)
        y = torch.ones(2)
        dist.broadcast(y, 0, async_op=True)
    manager.wait()
    assert (x == 10.0 * before).all(), x
    if rank == 0:
        dist.send_object_list([{"a": 1}, "b"], 1)
    elif rank == 1:
        box = [None, None]
        dist.recv_object_list(box, 0)
        assert box == [{"a": 1}, "b"]


def refusals(rank, size):
    other = 1 - rank
    pg = dist.group.WORLD
    for call, words in ((lambda: pg.send([torch.zeros(1)], rank, 0), "cannot send to itself"), (lambda: pg.recv([torch.zeros(1)], size, 0), "invalid rank"),
                        (lambda: pg.send([torch.zeros(1)], other, -1), "nonnegative"), (lambda: pg.send([torch.zeros(1)] * 2, other, 0), "single-element")):
        with CASE.assertRaisesRegex(RuntimeError, words):
            call()
    # Sizes that differ: the receiver hears of it, and with a long message the sender, too. The link goes on.
    for sent, received in ((3, 2), (3, 300), (10000, 2), (BIG, 5)):
        if rank == 0:
            work = dist.isend(torch.zeros(sent), 1)
            if sent == BIG:
                with CASE.assertRaisesRegex(dist.DistBackendError, f"has {4 * sent} bytes, but the receive has a tensor of {4 * received}"):
                    work.wait()
            else:
                work.wait()
        else:
            with CASE.assertRaisesRegex(dist.DistBackendError, f"rank 0 has {4 * sent} bytes, but the receive has a tensor of {4 * received}"):
                dist.recv(torch.zeros(received), 0)
    x = torch.full((BIG,), float(rank))
    work = dist.isend(x, other)
    y = torch.zeros(BIG)
    dist.recv(y, other)
    work.wait()
    assert (y == other).all()


def timeouts(rank, size):
    """A wait ends, the receive is taken back, and the message goes to the next receive."""
    x, other = torch.zeros(2), 1 - rank
    begin = time.monotonic()
    work = dist.irecv(x, other)
    with CASE.assertRaisesRegex(dist.DistBackendError, "Timed out waiting 200ms"):
        work.wait(datetime.timedelta(seconds=0.2))
    assert time.monotonic() - begin < 5 and work.is_completed() and not work.is_success()
    dist.barrier()
    sent = dist.isend(torch.full((2,), 1.0 + rank), other)
    y = torch.zeros(2)
    dist.recv(y, other)
    sent.wait()
    assert y.tolist() == [1.0 + other] * 2 and x.tolist() == [0.0] * 2
    # The group's timeout limits waits that name none.
    dist.group.WORLD.set_timeout(datetime.timedelta(seconds=0.3))
    with CASE.assertRaisesRegex(dist.DistBackendError, "Timed out waiting 300ms"):
        dist.recv(x, other)


def while_a_group_is_made(rank, size):
    """The store's connection is busy: a rank waits in it for the other one, which waits for a message."""
    x = torch.full((BIG,), 3.0)
    if rank == 1:
        work = dist.isend(x, 0)
    else:
        x.zero_()
        time.sleep(0.2)
        dist.recv(x, 1)
    group = dist.new_group()
    if rank == 1:
        work.wait()
    assert (x == 3.0).all()
    dist.barrier(group=group)


class Messages(unittest.TestCase):
    def check(self, body, *sizes):
        for size in sizes:
            with self.subTest(ranks=size):
                rank_jobs.values(self, body, size)

    def test_both_send_first(self):
        self.check(both_send_first, 2, 4)

    def test_tags_out_of_order(self):
        self.check(tags_out_of_order, 2, 4)

    def test_same_tag_keeps_order(self):
        self.check(same_tag_keeps_order, 2)

    def test_beside_collectives(self):
        self.check(beside_collectives, 2)

    def test_any_source(self):
        self.check(any_source, 2, 4)

    def test_batches_and_objects(self):
        self.check(batches_and_objects, 2, 4)

    def test_refusals(self):
        self.check(refusals, 2)

    def test_while_a_group_is_made(self):
        rank_jobs.values(self, while_a_group_is_made, 2, rank_jobs.Group(meeting=f"tcp://127.0.0.1:{free_port()}"))

    def test_timeouts(self):
        self.check(timeouts, 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
