"""Times a collective of torch.distributed by Gloo on fp32. Started as a rank of a job; rank 0 prints JSON:
{"library", "rows": [{"bytes", "times_us", "sustained_us", "wrong"}]}, a time being the slowest rank's, and the last the mean of the
rank whose mean is longest. Sizes are those of qccl-perf: of the
longer of a rank's two buffers.

usage: collectives_gloo.py COLLECTIVE BYTES:ITERATIONS...
"""
import datetime
import json
import sys
import time

import torch
import torch.distributed as distributed

PATIENCE = datetime.timedelta(minutes=5)


class Vectors:
    """Rank r gives r + 1 everywhere, so that what a rank gets is known."""

    def __init__(self, count):
        self.rank, self.ranks = distributed.get_rank(), distributed.get_world_size()
        self.whole = torch.full((count - count % self.ranks,), float(self.rank + 1))
        self.block = self.whole[:len(self.whole) // self.ranks].clone()
        self.to_whole, self.to_block = torch.zeros_like(self.whole), torch.zeros_like(self.block)

    def blocks(self, vector):
        return list(vector.chunk(self.ranks))


def ring(v):
    send = distributed.P2POp(distributed.isend, v.whole, (v.rank + 1) % v.ranks)
    recv = distributed.P2POp(distributed.irecv, v.to_whole, (v.rank - 1) % v.ranks)
    for request in distributed.batch_isend_irecv([send, recv]):
        request.wait()


def from_1_to_0(v):
    if v.rank == 1:
        distributed.send(v.whole, 0)
    elif v.rank == 0:
        distributed.recv(v.to_whole, 1)


# What a call does, and, by the numbers of the rank and of all ranks, where its result lies and what it is.
CALLS = {
    "all_reduce": (lambda v: (v.to_whole.copy_(v.whole), distributed.all_reduce(v.to_whole)), lambda r, n: ("to_whole", n * (n + 1) / 2)),
    "reduce": (lambda v: (v.to_whole.copy_(v.whole), distributed.reduce(v.to_whole, 0)),
               lambda r, n: ("to_whole", n * (n + 1) / 2) if r == 0 else None),
    "broadcast": (lambda v: distributed.broadcast(v.whole, 0), lambda r, n: ("whole", 1)),
    "reduce_scatter": (lambda v: distributed.reduce_scatter_tensor(v.to_block, v.whole), lambda r, n: ("to_block", n * (n + 1) / 2)),
    "all_gather": (lambda v: distributed.all_gather_into_tensor(v.to_whole, v.block), lambda r, n: ("to_whole", None)),
    "all_to_all": (lambda v: distributed.all_to_all_single(v.to_whole, v.whole), lambda r, n: ("to_whole", None)),
    "gather": (lambda v: distributed.gather(v.block, v.blocks(v.to_whole) if v.rank == 0 else None, 0),
               lambda r, n: ("to_whole", None) if r == 0 else None),
    "scatter": (lambda v: distributed.scatter(v.to_block, v.blocks(v.whole) if v.rank == 0 else None, 0), lambda r, n: ("to_block", 1)),
    "send": (from_1_to_0, lambda r, n: ("to_whole", 2) if r == 0 else None),
    "sendrecv": (ring, lambda r, n: ("to_whole", (r - 1) % n + 1)),
}


def count_wrong(v, place):
    wrong = torch.zeros(1)
    if place:
        name, value = place
        result = getattr(v, name)
        # Without a value: block r is what rank r gives.
        blocks = [(result, value)] if value is not None else zip(v.blocks(result), range(1, v.ranks + 1))
        wrong[0] = sum(int((block != expected).sum()) for block, expected in blocks)
    distributed.all_reduce(wrong)
    return int(wrong)


def measure(collective, size, iterations):
    call, place_of = CALLS[collective]
    vectors, times = Vectors(size // 4), []
    distributed.barrier()
    for _ in range(1 + iterations):  # one behind the other, as in qccl-perf: links let a little pass at once after a pause
        begin = time.perf_counter()
        call(vectors)
        times.append(1e6 * (time.perf_counter() - begin))
    del times[0]  # it warms up
    slowest = torch.tensor([*times, sum(times) / len(times)], dtype=torch.float64)
    distributed.all_reduce(slowest, distributed.ReduceOp.MAX)
    wrong = count_wrong(vectors, place_of(vectors.rank, vectors.ranks))
    *times, sustained = slowest.tolist()
    return {"bytes": size, "wrong": wrong, "times_us": times, "sustained_us": sustained}


def main():
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", timeout=PATIENCE)
    rows = [measure(sys.argv[1], *map(int, word.split(":"))) for word in sys.argv[2:]]
    if distributed.get_rank() == 0:
        print(json.dumps({"library": f"Gloo of torch {torch.__version__}", "rows": rows}))
    distributed.destroy_process_group()


main()
