"""Trains a small network whose parameters, gradients and optimizer states are sharded over the ranks (FSDP2: fully_shard), on CPUs.

    torchrun --nproc-per-node=2 fsdp2.py                                # torch.distributed over Gloo
    torchrun --nproc-per-node=2 fsdp2.py --backend qccl                 # over QCCL, lossless
    torchrun --nproc-per-node=2 fsdp2.py --backend qccl --codec int8    # reduce-scatters of gradients are encoded

Rank 0 prints the loss of the first step and the mean of the last ten. The mini-batches are the same for every number of ranks.
"""
import argparse
import os
import time

import torch
import torch.distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=("gloo", "qccl"), default="gloo", help="of torch.distributed (gloo)")
    parser.add_argument("--codec", help="of the gradients, with --backend qccl; without it they are lossless")
    parser.add_argument("--steps", type=int, default=100, metavar="N", help="mini-batches (100)")
    parser.add_argument("--batch", type=int, default=64, metavar="N", help="samples of a mini-batch, of all ranks together (64)")
    parser.add_argument("--width", type=int, default=512, metavar="N", help="of the hidden layers (512)")
    chosen = parser.parse_args()
    if chosen.codec and chosen.backend != "qccl":
        parser.error("--codec: only --backend qccl encodes")
    return chosen


def start(chosen):
    options = None
    if chosen.backend == "qccl":
        import qccl.torch
        options = qccl.torch.Options(codec=chosen.codec) if chosen.codec else None
    torch.distributed.init_process_group(chosen.backend, pg_options=options)


def sharded_network(width, ranks):
    torch.manual_seed(0)  # all ranks begin with the same weights, and each keeps its shard of them
    nn = torch.nn
    blocks = [nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(3)]
    model = nn.Sequential(nn.Linear(32, width), nn.ReLU(), *blocks, nn.Linear(width, 1))
    mesh = init_device_mesh("cpu", (ranks,))
    for block in blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def train(model, chosen, rank, ranks):
    """The loss of each step, over the mini-batches of all ranks."""
    optimizer, chance, losses = torch.optim.AdamW(model.parameters(), 1e-3), torch.Generator().manual_seed(1), []
    for _ in range(chosen.steps):
        x = torch.randn(chosen.batch, 32, generator=chance)[rank::ranks]
        y = (x[:, :4] * x[:, 4:8]).sum(1, keepdim=True)
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    mine = torch.stack(losses)
    of_all = [torch.empty_like(mine) for _ in range(ranks)]
    torch.distributed.all_gather(of_all, mine)  # no reduction, so that no codec has a part in it
    return torch.stack(of_all).mean(0)


def main():
    chosen = arguments()
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if chosen.batch % ranks:
        raise SystemExit(f"fsdp2.py: {ranks} ranks cannot share {chosen.batch} samples equally")
    start(chosen)
    model = sharded_network(chosen.width, ranks)
    losses = train(model, chosen, rank, ranks)
    mine = sum(parameter.to_local().numel() for parameter in model.parameters())
    total = sum(parameter.numel() for parameter in model.parameters())
    if rank == 0:
        print(f"{chosen.backend}, {chosen.codec or 'lossless'}: loss {losses[0]:.4f} at first, {losses[-10:].mean():.4f} in the last steps; "
              f"rank 0 of {ranks} holds {mine} of {total} parameters")
    torch.distributed.destroy_process_group()
    # Gloo's threads stay, and let go of a call's tensors a moment after the call. If Python ends before that, the process is aborted.
    time.sleep(0.2)


if __name__ == "__main__":
    main()
