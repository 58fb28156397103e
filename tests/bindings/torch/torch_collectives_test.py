"""The collectives of the backend "qccl" of torch.distributed, beside the same calls over gloo, for 1, 2 and 4 ranks.

usage: torch_collectives_test.py   (exits 77, skipped, without PyTorch; PYTHONPATH names the package)
"""
import unittest

import rank_jobs

if __name__ == "__main__":
    rank_jobs.skip_without_torch()

import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTEGERS = (torch.int8, torch.uint8, torch.int32, torch.int64)
# Beside gloo's types: what QCCL has, too.
MORE_TYPES = (torch.bool, torch.int16, torch.complex64, torch.complex128)
NUMBERS = (ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX)
BITS = (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)


def numbers(rank, count, dtype, seed=0):
    """Small whole numbers, whose sums and products every type holds."""
    generator = torch.Generator().manual_seed(100 * seed + rank)
    return torch.randint(0, 3, (count,), generator=generator).to(dtype)


def beside_gloo(call, *inputs):
    """Makes a call over both backends on copies of the inputs. Returns both lists of tensors."""
    results = []
    for group in (dist.group.WORLD, beside_gloo.gloo):
        copies = [[each.clone() for each in tensor] if isinstance(tensor, list) else tensor.clone() for tensor in inputs]
        call(group, *copies)
        results.append([each for tensor in copies for each in (tensor if isinstance(tensor, list) else [tensor])])
    return results


def compare(what, call, *inputs):
    own, gloos = beside_gloo(call, *inputs)
    for one, other in zip(own, gloos):
        assert torch.equal(one, other), f"{what}: {one} over qccl, {other} over gloo"


def with_gloo(body):
    def ranks_body(rank, size):
        beside_gloo.gloo = dist.new_group(backend="gloo")
        body(rank, size)
    ranks_body.__name__ = ranks_body.__qualname__ = body.__name__  # pickled by this name
    return ranks_body


@with_gloo
def reductions(rank, size):
    for dtype in FLOATS + INTEGERS:
        for op in NUMBERS + (BITS if dtype in INTEGERS else ()):
            x = numbers(rank, 37, dtype)
            what = f"{op} of {dtype}"
            compare(f"all_reduce {what}", lambda group, x: dist.all_reduce(x, op, group=group), x)
            parts = [numbers(rank, 5, dtype, seed) for seed in range(size)]
            compare(f"reduce_scatter {what}", lambda group, out, parts: dist.reduce_scatter(out, parts, op, group=group), parts[0], parts)
            whole = torch.cat(parts)
            compare(f"reduce_scatter_tensor {what}", lambda group, out, x: dist.reduce_scatter_tensor(out, x, op, group=group), parts[0], whole)
            for root in range(size):
                own, gloos = beside_gloo(lambda group, x: dist.reduce(x, root, op, group=group), x)
                assert rank != root or torch.equal(own[0], gloos[0]), f"reduce {what}"
    for dtype in (torch.float32, torch.float64):
        compare(f"average of {dtype}", lambda group, x: dist.all_reduce(x, ReduceOp.AVG, group=group), numbers(rank, 40, dtype) * 4)


@with_gloo
def moves(rank, size):
    for dtype in FLOATS + INTEGERS:
        x = numbers(rank, 6, dtype)
        many = [numbers(rank, 6, dtype, seed) for seed in range(size)]
        compare("all_gather", lambda group, out, x: dist.all_gather(out, x, group=group), many, x)
        compare("all_gather_into_tensor", lambda group, out, x: dist.all_gather_into_tensor(out, x, group=group), torch.cat(many), x)
        compare("all_to_all", lambda group, out, parts: dist.all_to_all(out, parts, group=group), [torch.zeros_like(x) for _ in many], many)
        compare("all_to_all_single", lambda group, out, x: dist.all_to_all_single(out, x, group=group), torch.zeros_like(torch.cat(many)),
                torch.cat(many))
        for root in range(size):
            compare("broadcast", lambda group, x: dist.broadcast(x, root, group=group), x)
            compare("gather", lambda group, x, out: dist.gather(x, out if rank == root else None, root, group=group), x, many)
            compare("scatter", lambda group, x, parts: dist.scatter(x, parts if rank == root else None, root, group=group), x, many)


@with_gloo
def uneven_parts(rank, size):
    """Parts of rank r for rank s have r + 2 * s elements, some of them none."""
    counts = [rank + 2 * other for other in range(size)]
    received = [other + 2 * rank for other in range(size)]
    x = numbers(rank, sum(counts) * 3, torch.float32).view(-1, 3)
    compare("all_to_all_single", lambda group, out, x: dist.all_to_all_single(out, x, received, counts, group=group),
            torch.zeros(sum(received), 3), x)
    # Some ranks name their equal splits, and others leave them out.
    names = [[1] * size] * 2 if rank % 2 == 0 else []
    compare("all_to_all_single", lambda group, out, x: dist.all_to_all_single(out, x, *names, group=group), torch.zeros(size),
            numbers(rank, size, torch.float32))
    own, gloos = [torch.zeros(count, 3) for count in received], torch.zeros(sum(received), 3)  # gloo has no uneven lists
    dist.all_to_all(own, list(x.split(counts)))
    dist.all_to_all_single(gloos, x, received, counts, group=beside_gloo.gloo)
    assert torch.equal(torch.cat(own), gloos), (own, gloos)
    parts = [numbers(rank, count, torch.int64) for count in range(size)]
    compare("reduce_scatter", lambda group, out, parts: dist.reduce_scatter(out, parts, group=group), torch.zeros_like(parts[rank]), parts)


def more_types(rank, size):
    for dtype in MORE_TYPES:
        expected = [torch.tensor([other % 2, 1, other]).to(dtype) for other in range(size)]
        x = expected[rank].clone()
        out = [torch.zeros_like(x) for _ in range(size)]
        dist.all_gather(out, x)
        assert all(map(torch.equal, out, expected)), (dtype, out)
        dist.broadcast(x, size - 1)
        assert torch.equal(x, expected[-1]), dtype
        x = expected[rank].clone()
        dist.all_reduce(x)
        assert torch.equal(x, sum(expected).to(dtype) if dtype != torch.bool else torch.stack(expected).any(0)), (dtype, x)
    # What QCCL has no type for travels as bytes.
    x = torch.full((3,), rank, dtype=torch.complex32)
    out = [torch.zeros_like(x) for _ in range(size)]
    dist.all_gather(out, x)
    assert [each[0].real.item() for each in out] == list(range(size))
    for dtype, op in ((torch.float32, ReduceOp.BAND), (torch.bool, ReduceOp.AVG), (torch.complex32, ReduceOp.SUM)):
        with unittest.TestCase().assertRaisesRegex(RuntimeError, "[Cc]annot (use|reduce)"):
            dist.group.WORLD.allreduce(torch.zeros(2, dtype=dtype), op).wait()
    factor = 2.0 + rank
    x = torch.tensor([1.0, 3.0])
    dist.all_reduce(x, dist._make_nccl_premul_sum(factor))
    total = sum(2.0 + other for other in range(size))
    assert torch.equal(x, torch.tensor([total, 3 * total])), x


def layouts(rank, size):
    """Tensors that are not dense, empty ones, and lists whose tensors share memory."""
    total = size * (size + 1) // 2
    square = torch.arange(6.0).view(2, 3) * (rank + 1)
    for x in (square.clone().t(), torch.stack([square, square], -1)[..., 1], square[:, 1:]):
        expected = x.clone() / (rank + 1) * total
        dist.all_reduce(x)
        assert torch.equal(x, expected), x
    channels_last = torch.arange(16.0).view(1, 2, 2, 4).contiguous(memory_format=torch.channels_last) + rank
    out = [torch.empty(1, 2, 2, 4) for _ in range(size)]
    dist.all_gather(out, channels_last)
    assert all(torch.equal(each, torch.arange(16.0).view(1, 2, 2, 4) + other) for other, each in enumerate(out))
    columns = torch.zeros(4, size)
    dist.all_gather(list(columns.unbind(1)), torch.full((4,), float(rank)))
    assert torch.equal(columns, torch.arange(float(size)).expand(4, size)), columns
    same = torch.zeros(2)
    dist.all_gather([same] * size, torch.full((2,), float(rank)))
    assert torch.equal(same, torch.full((2,), size - 1.0)), same
    unaligned = torch.frombuffer(bytearray(13), dtype=torch.uint8)[1:9].view(torch.uint8)
    dist.all_gather([torch.empty(8, dtype=torch.uint8)] + [unaligned] * (size - 1), torch.full((8,), rank, dtype=torch.uint8))
    conjugate = torch.tensor([1 + 2j * (rank + 1)]).conj()
    gathered = [torch.zeros(1, dtype=torch.complex64) for _ in range(size)]
    dist.group.WORLD.allgather([gathered], [conjugate]).wait()
    assert torch.equal(gathered[-1], torch.tensor([1 - 2j * size])), gathered
    empty = torch.zeros(0)
    dist.all_reduce(empty)
    dist.broadcast(empty, 0)
    dist.all_gather([torch.zeros(0) for _ in range(size)], empty)
    dist.all_to_all_single(torch.zeros(0, 3), torch.zeros(0, 3))


def several_tensors(rank, size):
    """Calls on lists of tensors, which torch's own functions pass."""
    total = size * (size + 1) // 2
    pg, one, two = dist.group.WORLD, torch.full((3,), rank + 1.0), torch.full((3,), 10.0 * (rank + 1))
    pg.allreduce([one, two]).wait()
    assert one.tolist() == two.tolist() == [11.0 * total] * 3
    tensors = [torch.full((count,), rank + 1.0) for count in (1, 5, 0, 40000)]
    pg.allreduce_coalesced(tensors).wait()
    assert all((each == total).all() for each in tensors)
    shared = torch.full((3,), rank + 1.0)
    pg.allreduce_coalesced([shared, shared]).wait()
    assert shared.tolist() == [float(total)] * 3
    inputs = [torch.full((2,), float(rank)), torch.full((1, 3), 10.0 + rank)]
    outputs = [torch.zeros(2 * size), torch.zeros(size, 3)]
    pg.allgather_into_tensor_coalesced(outputs, inputs).wait()
    assert outputs[0].view(size, 2)[:, 1].tolist() == list(range(size)) and outputs[1][:, 2].tolist() == [10.0 + r for r in range(size)]
    pg.reduce_scatter_tensor_coalesced(inputs, [torch.ones(2 * size), torch.ones(size, 3)]).wait()
    assert inputs[0].tolist() == [size] * 2 and inputs[1].tolist() == [[size] * 3]
    lists = [[torch.zeros(2), torch.zeros(4)] for _ in range(size)]
    dist.all_gather_coalesced(lists, [torch.full((2,), float(rank)), torch.full((4,), -float(rank))])
    assert [each[1][3].item() for each in lists] == [-float(other) for other in range(size)]
    outputs = [[torch.zeros(1) for _ in range(2 * size)] for _ in range(2)]
    pg.allgather(outputs, [torch.tensor([2.0 * rank]), torch.tensor([2.0 * rank + 1])]).wait()
    assert [each.item() for each in outputs[1]] == list(range(2 * size))


def sparse_sums(rank, size):
    indices = torch.tensor([[0, rank + 1, 0], [1, 2, 1]])
    x = torch.sparse_coo_tensor(indices, torch.ones(3, 2), (size + 1, 3, 2))
    dist.all_reduce(x)
    expected = torch.zeros(size + 1, 3, 2)
    expected[0, 1] = 2.0 * size
    expected[1:, 2] = 1.0
    assert torch.equal(x.to_dense(), expected), x
    nothing = torch.sparse_coo_tensor(torch.zeros(1, 0), torch.zeros(0), (4,))
    dist.all_reduce(nothing)
    assert nothing._nnz() == 0


def objects(rank, size):
    everything = [None] * size
    dist.all_gather_object(everything, {"rank": rank, "text": "x" * 1000 * rank})
    assert [each["rank"] for each in everything] == list(range(size)) and len(everything[-1]["text"]) == 1000 * (size - 1)
    box = [{"from": rank}, "second"]
    dist.broadcast_object_list(box, size - 1)
    assert box == [{"from": size - 1}, "second"]
    gathered = [None] * size if rank == 0 else None
    dist.gather_object((rank,), gathered, 0)
    assert rank != 0 or gathered == [(other,) for other in range(size)]
    mine = [None]
    dist.scatter_object_list(mine, [[other] for other in range(size)] if rank == 0 else None, 0)
    assert mine == [[rank]]


def several_at_once(rank, size):
    """Asynchronous calls in order, and their Work objects in any order."""
    tensors = [torch.full((1 + 1000 * (i % 7),), float(rank + i)) for i in range(60)]
    works = [dist.all_reduce(x, async_op=True) for x in tensors]
    for work in reversed(works):
        assert work.wait()
        assert work.is_completed() and work.is_success() and work.exception() is None
    for i, (x, work) in enumerate(zip(tensors, works)):
        assert (x == size * i + size * (size - 1) / 2).all()
        assert work.get_future().value()[0].data_ptr() == work.result()[0].data_ptr() == x.data_ptr()
    future = dist.all_reduce(torch.ones(3), async_op=True).get_future().then(lambda done: done.value()[0] * 2)
    assert future.wait().tolist() == [2.0 * size] * 3
    with dist.distributed_c10d._coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
        roots = [torch.full((2,), float(rank)) for _ in range(size)]
        for root, x in enumerate(roots):
            dist.broadcast(x, root, async_op=True)
    manager.wait()
    assert [x[0].item() for x in roots] == list(range(size))
    with dist.distributed_c10d._coalescing_manager():
        for x in roots:
            dist.all_reduce(x)
    assert [x[1].item() for x in roots] == [size * root for root in range(size)]


def groups(rank, size):
    """Groups of some ranks, in use at the same time, and groups that end before others."""
    evens, odds = dist.new_group(range(0, size, 2)), dist.new_group(range(1, size, 2))
    mine = evens if rank % 2 == 0 else odds
    everybody = dist.new_group()
    first, second = torch.tensor([float(rank)]), torch.tensor([float(rank)])
    works = [dist.all_reduce(first, group=mine, async_op=True), dist.all_reduce(second, group=everybody, async_op=True)]
    for work in reversed(works):
        work.wait()
    assert first.item() == sum(range(rank % 2, size, 2)) and second.item() == sum(range(size))
    dist.destroy_process_group(everybody)
    dist.barrier(group=mine)
    # A group that is split off.
    half = dist.group.WORLD.split_group(list(range(rank % 2, size, 2)), group_name=f"half{rank % 2}")
    x = torch.tensor([1.0])
    half.allreduce([x]).wait()
    assert x.item() == half.size() == len(range(rank % 2, size, 2))


class Collectives(unittest.TestCase):
    def check(self, body):
        for size in (1, 2, 4):
            with self.subTest(ranks=size):
                rank_jobs.values(self, body, size)

    def test_reductions(self):
        self.check(reductions)

    def test_moves(self):
        self.check(moves)

    def test_uneven_parts(self):
        self.check(uneven_parts)

    def test_more_types(self):
        self.check(more_types)

    def test_layouts(self):
        self.check(layouts)

    def test_several_tensors(self):
        self.check(several_tensors)

    def test_sparse_sums(self):
        self.check(sparse_sums)

    def test_objects(self):
        self.check(objects)

    def test_several_at_once(self):
        self.check(several_at_once)

    def test_groups(self):
        for size in (2, 4):
            rank_jobs.values(self, groups, size)


if __name__ == "__main__":
    unittest.main(verbosity=2)
