"""Times torch.distributed's sum of fp32 over all ranks by Gloo. Started as a rank of a job; rank 0 prints JSON:
{"library", "rows": [{"bytes", "times_us", "wrong"}]}, a time being the slowest rank's.

usage: allreduce_gloo.py DIR/rank%r.npy BYTES:ITERATIONS...
"""
import datetime
import json
import mmap
import sys
import time

import torch
import torch.distributed as distributed

SAMPLES = 512  # elements of a result that are checked
PATIENCE = datetime.timedelta(minutes=5)


def vector(pattern, rank):
    """The values of a .npy file, whatever type the file names: the caller has written the file."""
    with open(pattern.replace("%r", str(rank)), "rb") as file:
        memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    return torch.frombuffer(memory, dtype=torch.float32, offset=10 + int.from_bytes(memory[8:10], "little"))


def count_wrong(result, vectors):
    places = torch.arange(SAMPLES) * 2654435761 % len(result)
    values = torch.stack([each[places].double() for each in vectors])
    bound = 1e-6 * len(vectors) * values.abs().sum(0)
    wrong = torch.logical_not((result[places].double() - values.sum(0)).abs() <= bound).sum()
    distributed.all_reduce(wrong)
    return int(wrong)


def measure(size, iterations, vectors):
    values = vectors[distributed.get_rank()][:size // 4]
    times = []
    for _ in range(1 + iterations):
        result = values.clone()
        distributed.barrier()
        begin = time.perf_counter()
        distributed.all_reduce(result)
        times.append(1e6 * (time.perf_counter() - begin))
    slowest = torch.tensor(times[1:], dtype=torch.float64)  # the first warms up
    distributed.all_reduce(slowest, distributed.ReduceOp.MAX)
    return {"bytes": size, "wrong": count_wrong(result, vectors), "times_us": slowest.tolist()}


def main():
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", timeout=PATIENCE)
    vectors = [vector(sys.argv[1], rank) for rank in range(distributed.get_world_size())]
    rows = [measure(*map(int, word.split(":")), vectors) for word in sys.argv[2:]]
    if distributed.get_rank() == 0:
        print(json.dumps({"library": f"Gloo of torch {torch.__version__}", "rows": rows}))
    distributed.destroy_process_group()


main()
