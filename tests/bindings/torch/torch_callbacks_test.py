"""Callbacks of the futures of calls over the backend "qccl" of torch.distributed, which make calls and wait for them, as torch's
communication hooks do.

usage: torch_callbacks_test.py   (exits 77, skipped, without PyTorch; PYTHONPATH names the package)
"""
import threading
import unittest

import rank_jobs

if __name__ == "__main__":
    rank_jobs.skip_without_torch()

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook


def calls_in_callbacks(rank, size):
    """A callback makes the next call, and waits for it and for its callback, several calls deep. Another call is queued behind."""
    def call(depth):
        def go_on(done):
            total = done.value()[0].item()
            return total + (call(depth - 1).wait() if depth else 0)
        return dist.all_reduce(torch.ones(1), async_op=True).get_future().then(go_on)

    assert call(4).wait() == 5 * size
    # A call of another kind, which returns when it is done.
    first = dist.all_reduce(torch.ones(1), async_op=True).get_future()

    def gather(done):
        everything = [torch.zeros(1) for _ in range(size)]
        dist.all_gather(everything, torch.full((1,), float(rank)))
        return [each.item() for each in everything]
    assert first.then(gather).wait() == list(range(size))


def waits_for_a_later_call(rank, size):
    """A callback waits for a call that the program has made, and for what the callback of that call does."""
    later, is_done = [], threading.Event()

    def wait_for_later(done):
        assert is_done.wait(20)
        return later[0].wait()[0][-1].item()
    tensors = [torch.ones(100000) for _ in range(2)]
    work = dist.all_reduce(tensors[0], async_op=True)
    result = work.get_future().then(wait_for_later)
    later.append(dist.all_reduce(tensors[1], async_op=True).get_future())
    later[0].add_done_callback(lambda done: is_done.set())
    assert result.wait() == size


def messages_in_callbacks(rank, size):
    """A callback of a receive waits for the next message of the same rank, and answers it."""
    other = 1 - rank
    x, y, z = torch.zeros(1), torch.zeros(1), torch.zeros(1 << 18)

    def go_on(done):
        sent = dist.isend(torch.full((1,), 2.0), other, tag=2)
        dist.recv(y, other, tag=2)
        sent.wait()
        long = dist.isend(torch.full((1 << 18,), 3.0), other, tag=3)
        dist.recv(z, other, tag=3)
        long.wait()
        dist.barrier()
        return y.item() + z[-1].item()

    future = dist.irecv(x, other, tag=1).get_future().then(go_on)
    dist.isend(torch.full((1,), 1.0), other, tag=1).wait()
    assert future.wait() == 5.0 and x.item() == 1.0


def power_sgd(rank, size):
    """torch's PowerSGD hook gives the gradients that it gives over gloo."""
    gradients = []
    for group in (dist.group.WORLD, dist.new_group(backend="gloo")):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 8))
        ddp = torch.nn.parallel.DistributedDataParallel(model, process_group=group)
        state = powerSGD_hook.PowerSGDState(group, matrix_approximation_rank=2, start_powerSGD_iter=2, min_compression_rate=1)
        ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        data = torch.randn(5, 16, 64, generator=torch.Generator().manual_seed(rank))
        for batch in data:
            model.zero_grad()
            ddp(batch).square().mean().backward()
        gradients.append([each.grad.clone() for each in model.parameters()])
        assert state.total_numel_after_compression < state.total_numel_before_compression  # the hook has compressed
    for own, gloos in zip(*gradients):
        assert torch.isfinite(own).all() and torch.allclose(own, gloos, rtol=1e-4, atol=1e-6), (own, gloos)


class Callbacks(unittest.TestCase):
    def check(self, body, size):
        rank_jobs.values(self, body, size)

    def test_calls_in_callbacks(self):
        for size in (1, 2, 4):
            with self.subTest(ranks=size):
                self.check(calls_in_callbacks, size)

    def test_wait_for_a_later_call(self):
        self.check(waits_for_a_later_call, 2)

    def test_messages_in_callbacks(self):
        self.check(messages_in_callbacks, 2)

    def test_power_sgd(self):
        self.check(power_sgd, 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
