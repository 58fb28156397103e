"""The communication hook: DistributedDataParallel over Gloo, whose gradients QCCL averages, beside the same training without the hook.

usage: torch_hook_test.py   (exits 77, skipped, without PyTorch; PYTHONPATH names the package)
"""
import copy
import sys
import tempfile
import unittest

try:
    import torch
except ImportError:
    print("skipped: PyTorch is not installed")
    sys.exit(77)
import torch.distributed
import torch.multiprocessing

import qccl
import qccl.torch
from qccl import _comm

RANKS = 2


def enter(rank, body, folder, arguments):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=RANKS)
    torch.save(body(rank, *arguments), f"{folder}/{rank}")
    torch.distributed.destroy_process_group()


def on_ranks(body, *arguments):
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.start_processes(enter, (body, folder, arguments), RANKS, start_method="fork")
        return [torch.load(f"{folder}/{rank}", weights_only=False) for rank in range(RANKS)]


def model():
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(40, 96), torch.nn.ReLU(), torch.nn.Linear(96, 96), torch.nn.ReLU(), torch.nn.Linear(96, 4))
    return torch.nn.parallel.DistributedDataParallel(layers, bucket_cap_mb=0.02)


class Training:
    """A model, its data and its optimizer. hook: the options of the hook; None: DDP averages by itself."""

    def __init__(self, rank, hook):
        self.ddp, self.data = model(), torch.Generator().manual_seed(rank)
        self.hook = None if hook is None else qccl.torch.register(self.ddp, **hook)
        self.optimizer = torch.optim.SGD(self.ddp.parameters(), 0.1)

    def steps(self, count):
        loss = None
        for _ in range(count):
            x = torch.randn(16, 40, generator=self.data)
            self.optimizer.zero_grad()
            loss = (self.ddp(x) - x[:, :4] * x[:, 4:8]).square().mean()
            loss.backward()
            self.optimizer.step()
        return loss.item()

    def weights(self):
        return torch.cat([parameter.detach().view(-1) for parameter in self.ddp.parameters()])


def plainly(rank, steps):
    training = Training(rank, None)
    training.steps(steps)
    return training.weights()


def lossless_body(rank):
    training = Training(rank, {})
    training.steps(20)
    training.hook.close()
    return training.weights(), plainly(rank, 20)


def codecs_body(rank):
    training = Training(rank, {"codec": "int4", "layers": {"2.*": "int8", "4.weight": "none"}, "layer_min_size": 1000, "warm_up_steps": 3})
    first = training.steps(3), training.weights(), plainly(rank, 3)
    training.steps(5)
    training.hook.close()
    return training.hook.codecs(), first, training.weights(), training.hook.steps


def owed(saved):
    """The residual of a saved state of float32."""
    return saved[64:].view(torch.float32)


def feedback_body(rank):
    """Gradients that the codec rounds to nothing come through, sooner or later."""
    totals = []
    for error_feedback in (True, False):
        layer = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64, bias=False))
        with qccl.torch.register(layer, codec="int2", error_feedback=error_feedback):
            total = torch.zeros(64, 64)
            for _ in range(60):
                layer.zero_grad()
                x = torch.linspace(0.01, 1, 64)
                (layer(x[None]) * x * x).sum().backward()
                total += layer.module.weight.grad
            totals.append(total / 60)
    x = torch.linspace(0.01, 1, 64)
    return totals, torch.outer(x * x, x)


def any_codec_body(rank):
    """What is lost comes with the next step, also with noise, and where a guard makes calls lossless."""
    x, errors = torch.linspace(0.01, 1, 64), []
    exact = torch.outer(x * x, x)
    for codec in ("int2:round=stochastic", "terngrad:clip=1.5", "topk:ratio=0.05", "dgc:ratio=0.05,momentum=0", "int2:guard=nmse:1e-6"):
        layer = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64, bias=False))
        with qccl.torch.register(layer, codec=codec, error_feedback=True) as hook:
            total = torch.zeros(64, 64)
            for _ in range(60):
                layer.zero_grad()
                (layer(x[None]) * x * x).sum().backward()
                total += layer.module.weight.grad
            left = owed(hook.state_dict()["states"]["weight"]).view(64, 64)
            torch.distributed.all_reduce(left)
        errors.append((total + left / 2 - 60 * exact).abs().max().item())
    return errors


def checkpoint_body(rank):
    whole = Training(rank, {"codec": "int4", "error_feedback": True})
    whole.steps(6)
    saved = copy.deepcopy((whole.ddp.state_dict(), whole.hook.state_dict(), whole.data.get_state()))
    whole.steps(6)
    restored = Training(rank, {"codec": "int4", "error_feedback": True})
    restored.ddp.load_state_dict(saved[0])
    restored.hook.load_state_dict(saved[1])
    restored.data.set_state(saved[2])
    restored.steps(6)
    errors = []
    for change in ({"version": 9}, {"codecs": {**saved[1]["codecs"], "0.weight": "int8"}},
                   {"states": {**saved[1]["states"], "2.weight": torch.zeros(3, dtype=torch.uint8)}}):
        before = restored.hook.state_dict()["states"]
        try:
            restored.hook.load_state_dict({**saved[1], **change})
        except qccl.Error as error:
            after = restored.hook.state_dict()["states"]
            errors.append(str(error) if all(torch.equal(before[name], after[name]) for name in before) else "the states have changed")
    whole.hook.close()
    restored.hook.close()
    return whole.weights(), restored.weights(), errors, restored.hook.steps


def types_body(rank):
    results = {}
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        torch.manual_seed(1)
        layer = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64, bias=False, dtype=dtype))
        with qccl.torch.register(layer, codec="int8", error_feedback=True):
            layer(torch.full((1, 64), rank + 1.0, dtype=dtype)).sum().backward()
        results[dtype] = layer.module.weight.grad.double()
    return results


def lossless_calls_body(rank):
    """Calls that a codec leaves lossless have no errors, and auto has those of the codec that it takes."""
    weights, names = [], []
    for codec in ("none", "int4:min=1M", "auto:nmse=1e-2", "auto:nmse=1e-2,min=0"):
        training = Training(rank, {"codec": codec, "error_feedback": True})
        training.steps(4)
        names.append(sorted(name for name, saved in training.hook.state_dict()["states"].items() if owed(saved).any()))
        weights.append(training.weights())
        training.hook.close()
    return weights, names


def wrong_body(rank):
    errors = []
    for wrong in ({"layers": {"head.*": "int8"}}, {"codec": "int9"}):
        try:
            qccl.torch.register(model(), **wrong)
        except qccl.InvalidArgument as error:
            errors.append(str(error))
    ddp = model()
    hook = qccl.torch.register(ddp)
    torch.distributed.barrier()  # one rank may have joined while the other still waits for it
    if rank == 1:
        hook.comm.abort()
        return errors
    try:
        ddp(torch.ones(1, 40)).sum().backward()
    except Exception as error:
        errors.append(str(error))
    return errors


class WithCodes(torch.nn.Module):
    """A layer whose weights are frozen numbers of 8 bits, as quantized models have them, and one that learns."""

    def __init__(self):
        super().__init__()
        self.codes = torch.nn.Parameter(torch.ones(64, 64, dtype=torch.uint8), requires_grad=False)
        self.learning = torch.nn.Linear(64, 64, bias=False)

    def forward(self, x):
        return self.learning(x @ self.codes.float())


def frozen_body(rank):
    ddp = torch.nn.parallel.DistributedDataParallel(WithCodes())
    with qccl.torch.register(ddp, codec="int8", error_feedback=True) as hook:
        ddp(torch.full((1, 64), rank + 1.0)).sum().backward()
        return hook.codecs(), ddp.module.learning.weight.grad


def overflow_body(rank):
    """A scaled loss overflows, and its step is left out. Whether the next one's gradients and the residuals are finite."""
    training = Training(rank, {"codec": "int8", "error_feedback": True})
    for scale in (float("inf"), 1):
        training.optimizer.zero_grad()
        (training.ddp(torch.ones(4, 40)).sum() * scale).backward()
    states = training.hook.state_dict()["states"].values()
    return (all(bool(parameter.grad.isfinite().all()) for parameter in training.ddp.parameters()),
            len(states) > 0 and all(bool(owed(each).isfinite().all()) for each in states))


def refusal(call, *arguments, **options):
    """The text of the error that the call raises."""
    try:
        call(*arguments, **options)
    except qccl.Error as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was raised"


def second_hook_body(rank):
    ddp = model()
    hook = qccl.torch.register(ddp)
    before = len(_comm.OPEN)
    error = refusal(qccl.torch.register, ddp)
    left = len(_comm.OPEN) - before
    hook.close()
    return error, left


def different_settings_body(rank):
    errors = [refusal(qccl.torch.register, model(), **options) for options in (
        {"codec": ("int8", "int4")[rank]}, {"codec": "int8", "layers": {"2.*": ("int8", "none")[rank]}},
        {"codec": "int8", "error_feedback": rank == 1}, {"warm_up_steps": 3 * rank})]
    with qccl.torch.register(model(), codec="int8", layers={("0.*", "0.?*")[rank]: "int8"}) as hook:
        return errors, hook.codecs()["0.weight"]  # what the settings come to is the same


def closed_body(rank):
    ddp = model()
    with qccl.torch.register(ddp):
        ddp(torch.ones(1, 40)).sum().backward()
    return refusal(lambda: ddp(torch.ones(1, 40)).sum().backward())


def alone(module):
    """As a DistributedDataParallel, without other ranks."""
    ddp = torch.nn.parallel.DistributedDataParallel.__new__(torch.nn.parallel.DistributedDataParallel)
    torch.nn.Module.__init__(ddp)
    ddp.module = module
    return ddp


class Hooks(unittest.TestCase):
    def test_lossless_is_what_ddp_does(self):
        for ours, plain in on_ranks(lossless_body):
            self.assertTrue(torch.equal(ours, plain))

    def test_each_layer_has_its_codec(self):
        results = on_ranks(codecs_body)
        for codecs, (_, warm, plain), _, steps in results:
            self.assertEqual(codecs, {"0.weight": "int4", "0.bias": "none", "2.weight": "int8", "2.bias": "int8", "4.weight": "none",
                                      "4.bias": "none"})
            self.assertTrue(torch.equal(warm, plain))
            self.assertEqual(steps, 8)
        self.assertTrue(torch.equal(results[0][2], results[1][2]))
        self.assertFalse(torch.equal(results[0][2], plain))

    def test_error_feedback(self):
        for (with_feedback, without), exact in on_ranks(feedback_body):
            errors = [((total - exact).square().sum() / exact.square().sum()).item() for total in (with_feedback, without)]
            self.assertLess(errors[0], 1e-3)
            self.assertLess(10 * errors[0], errors[1])

    def test_a_restored_job_repeats_the_unbroken_one(self):
        for whole, restored, errors, steps in on_ranks(checkpoint_body):
            self.assertTrue(torch.equal(whole, restored))
            self.assertEqual(steps, 12)
            for error, pattern in zip(errors, ("its version is 9", "codec of parameter 0.weight is 'int8', and here 'int4'",
                                               "what parameter 2.weight owes cannot be read: "), strict=True):
                self.assertIn(pattern, error)

    def test_other_types(self):
        for results in on_ranks(types_body):
            for dtype, gradient in results.items():
                self.assertLess((gradient - 1.5).abs().max().item(), 0.02, dtype)

    def test_nothing_is_fed_back_where_calls_are_lossless(self):
        for (lossless, small, kept, encoded), names in on_ranks(lossless_calls_body):
            self.assertEqual(names, [[], [], [], ["0.weight", "2.weight"]])
            self.assertTrue(torch.equal(lossless, small))
            self.assertTrue(torch.equal(lossless, kept))
            self.assertFalse(torch.equal(lossless, encoded))

    def test_parameters_without_a_gradient(self):
        for codecs, gradient in on_ranks(frozen_body):
            self.assertEqual(codecs, {"codes": "none", "learning.weight": "int8"})
            self.assertLess((gradient - 96).abs().max().item(), 2)

    def test_a_hook_that_cannot_be_registered_leaves_no_communicator(self):
        for error, left in on_ranks(second_hook_body):
            self.assertEqual(error, "InvalidUsage: ddp: it has a communication hook already, and DDP keeps its hook; make a new "
                                    "DistributedDataParallel")
            self.assertEqual(left, 0)

    def test_a_hook_that_has_been_closed(self):
        for error in on_ranks(closed_body):
            self.assertEqual(error, "InvalidUsage: the hook has been closed, and DDP keeps its hook: make a new DistributedDataParallel")

    def test_ranks_with_different_settings(self):
        for errors, codec in on_ranks(different_settings_body):
            for error, words in zip(errors, ("the codec of parameter 0.weight is 'int8' on rank 0, and 'int4' on rank 1",
                                             "the codec of parameter 2.weight is 'int8' on rank 0, and 'none' on rank 1",
                                             "error_feedback is False on rank 0, and True on rank 1",
                                             "warm_up_steps is 0 on rank 0, and 3 on rank 1"), strict=True):
                self.assertEqual(error, f"Mismatch: register: {words}; pass the same settings on every rank")
            self.assertEqual(codec, "int8")

    def test_arguments(self):
        ddp = alone(torch.nn.Linear(64, 64))
        for options, words in (({"layers": ["0.*"]}, r"layers: a dictionary is expected.*not \['0\.\*'\]"),
                               ({"layers": {"weight": 4}}, r"layers\['weight'\]: 4 is no codec"), ({"codec": 4}, "codec: 4 is no codec; pass a text"),
                               ({"warm_up_steps": "3"}, "warm_up_steps: '3' is no number of steps; pass an int of 0 or more"),
                               ({"layer_min_size": 1.5}, "layer_min_size: 1.5 is no number of values")):
            with self.assertRaisesRegex(qccl.InvalidArgument, words):
                qccl.torch.register(ddp, **options)
        with self.assertRaisesRegex(qccl.InvalidArgument, r"ddp: a Linear is no DistributedDataParallel; pass .*DistributedDataParallel\(model\)"):
            qccl.torch.register(torch.nn.Linear(64, 64))

    def test_error_feedback_of_any_codec(self):
        for errors in on_ranks(any_codec_body):
            for error in errors:
                self.assertLess(error, 1e-3)

    def test_a_step_that_is_not_finite(self):
        for finite, residual in on_ranks(overflow_body):
            self.assertEqual((finite, residual), (True, True))

    def test_parameters_that_are_not_on_the_host(self):
        ddp = alone(torch.nn.Linear(64, 64, device="meta"))
        with self.assertRaisesRegex(qccl.InvalidArgument, "ddp: parameter weight is on meta; the hook averages gradients in memory of the host only"):
            qccl.torch.register(ddp)

    def test_mistakes_and_lost_ranks(self):
        for rank, errors in enumerate(on_ranks(wrong_body)):
            self.assertIn("no parameter has a name like 'head.*'; there are 0.weight", errors[0])
            self.assertIn("int9", errors[1])
            self.assertEqual(len(errors), 3 if rank == 0 else 2)
            if rank == 0:
                self.assertRegex(errors[2], "(Revoked|PeerLost|RemoteError): .*rank 1")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
