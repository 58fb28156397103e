"""Trains a small network on scikit-learn's handwritten digits, alone or on the ranks of torchrun, whose gradients QCCL averages.

    python train_digits.py
    torchrun --nproc-per-node=2 train_digits.py --codec int4 --error-feedback
    torchrun --nproc-per-node=2 train_digits.py --codec gloo     # DistributedDataParallel as it is, for comparison

The mini-batches are the same for every number of ranks, and each rank takes its share of them. So losses and accuracies of
different numbers of ranks and codecs can be compared.
"""
import argparse
import hashlib
import json
import os
import sys
import time

import torch
import torch.distributed
from torch.nn.functional import cross_entropy

try:
    from sklearn.datasets import load_digits
except ImportError:
    sys.exit("train_digits.py: the digits are scikit-learn's: pip install scikit-learn")

TRAINED = 1000  # of the 1797 digits; accuracy is that on the others


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--codec", default="none", help="of the gradients: int4, fp16, ...; none: lossless; gloo: without QCCL (none)")
    parser.add_argument("--error-feedback", action="store_true", help="add what the codec has lost of a gradient to the next one")
    parser.add_argument("--steps", type=int, default=300, metavar="N", help="mini-batches (300)")
    parser.add_argument("--batch", type=int, default=32, metavar="N", help="digits of a mini-batch, of all ranks together (32)")
    parser.add_argument("--width", type=int, default=256, metavar="N", help="of the hidden layer, which has 1024 x N weights (256)")
    parser.add_argument("--rate", type=float, default=0.5, metavar="X", help="learning rate at first; it decays to 0 (0.5)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the first weights and the mini-batches (0)")
    parser.add_argument("--json", metavar="FILE", help="rank 0 writes the results to this file, too")
    return parser.parse_args()


def digits():
    """(images to train with, their digits, images to test with, their digits)"""
    data = load_digits()
    order = torch.randperm(len(data.target), generator=torch.Generator().manual_seed(0))
    images, numbers = torch.from_numpy(data.images).float()[order, None] / 16, torch.from_numpy(data.target)[order]
    return images[:TRAINED], numbers[:TRAINED], images[TRAINED:], numbers[TRAINED:]


def network(width):
    nn = torch.nn
    return nn.Sequential(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                         nn.Linear(1024, width), nn.ReLU(), nn.Linear(width, 10))


def train(model, images, numbers, chosen, rank, ranks):
    optimizer, chance = torch.optim.SGD(model.parameters(), chosen.rate), torch.Generator().manual_seed(chosen.seed)
    decay = torch.optim.lr_scheduler.LinearLR(optimizer, 1, 0, chosen.steps)
    for _ in range(chosen.steps):
        batch = torch.randperm(len(numbers), generator=chance)[:chosen.batch][rank::ranks]
        optimizer.zero_grad()
        loss = cross_entropy(model(images[batch]), numbers[batch])
        loss.backward()
        optimizer.step()
        decay.step()


def run(chosen, rank, ranks):
    """The results, the same on every rank but for the bytes that it has sent."""
    torch.manual_seed(chosen.seed)
    model, hook = network(chosen.width), None
    images, numbers, test_images, test_numbers = digits()
    trained = model
    if ranks > 1:
        trained = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
        if chosen.codec != "gloo":
            import qccl.torch
            hook = qccl.torch.register(trained, codec=chosen.codec, error_feedback=chosen.error_feedback)
        torch.distributed.barrier()
    begin = time.perf_counter()
    train(trained, images, numbers, chosen, rank, ranks)
    seconds = time.perf_counter() - begin
    values = sum(parameter.numel() for parameter in model.parameters())
    # What a rank sends to average lossless fp32 along a ring, as Gloo does.
    sent_bytes = hook.comm.stats()["wire_bytes"] if hook else 4 * values * 2 * (ranks - 1) // ranks * chosen.steps
    if hook:
        hook.close()
    with torch.no_grad():
        outputs = model(test_images)
    weights = hashlib.sha256(torch.cat([parameter.detach().view(-1) for parameter in model.parameters()]).numpy()).hexdigest()
    return {"codec": chosen.codec, "error_feedback": chosen.error_feedback, "ranks": ranks, "seed": chosen.seed, "steps": chosen.steps,
            "parameters": values, "accuracy": (outputs.argmax(1) == test_numbers).double().mean().item(),
            "loss": cross_entropy(outputs, test_numbers).item(), "seconds": seconds, "steps_per_second": chosen.steps / seconds,
            "sent_bytes": sent_bytes, "weights": weights}


def main():
    chosen = arguments()
    rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if chosen.batch % ranks:
        sys.exit(f"train_digits.py: {chosen.batch} digits of a mini-batch cannot be shared equally by {ranks} ranks")
    if ranks > 1:
        torch.distributed.init_process_group("gloo")
    results = run(chosen, rank, ranks)
    of_all = [results["weights"]] * ranks
    if ranks > 1:
        torch.distributed.all_gather_object(of_all, results["weights"])
        torch.distributed.destroy_process_group()
        # Gloo's threads stay, and let go of a call's tensors a moment after the call. If Python ends before that, the process is
        # aborted.
        time.sleep(0.2)
    if len(set(of_all)) > 1:
        sys.exit("train_digits.py: the ranks have ended with different weights")
    if rank == 0:
        print("{ranks} ranks, {codec}: accuracy {accuracy:.2%}, loss {loss:.4f}, {seconds:.2f} s, {steps_per_second:.1f} steps/s, "
              "{sent_bytes} bytes sent by rank 0".format(**results))
        if chosen.json:
            with open(chosen.json, "w") as file:
                json.dump(results, file)


if __name__ == "__main__":
    main()
