"""What a stage of a pipeline costs, and what it did: for pipeline.py, which is about these numbers.

`Wait` gives a stage a cost, and `MeteredStage` is PyTorch's PipelineStage with a `Meter`. To train
a pipeline you need none of them: take PipelineStage.
"""

import time
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage

Context = torch.autograd.function.FunctionCtx
Tensors = Tensor | tuple[Tensor, ...]


class Wait(torch.autograd.Function):
    """The identity, which takes `seconds` in the forward pass, and twice that in the backward pass.

    The backward pass computes two products for each of the forward pass: the gradients of the
    inputs and those of the weights.
    """

    @staticmethod
    def forward(ctx: Context, x: Tensor, seconds: float) -> Tensor:
        """Return the same tensor, later."""
        ctx.seconds = seconds
        time.sleep(seconds)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor, None]:
        """Return the same gradient, later still."""
        time.sleep(2 * ctx.seconds)
        return gradient, None


class Kept:
    """A tensor that autograd keeps; its bytes count until autograd drops this object."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


class Meter:
    """Seconds of computing, micro-batches in flight, and bytes of activations of one stage."""

    def __init__(self, module: nn.Module) -> None:
        # Weights are kept for the backward pass too, but they are there anyway.
        self._weights = {weight.untyped_storage().data_ptr() for weight in module.parameters()}
        self._held: Counter[int] = Counter()  # address of a tensor -> how often it is kept
        self._in_flight = self._bytes = 0
        self.reset()

    def reset(self) -> None:
        """Begin to count anew."""
        self.busy = 0.0  # seconds in forward and backward passes of this stage
        self.most_in_flight = self._in_flight  # micro-batches after forward, before backward
        self.most_bytes = self._bytes  # of activations that autograd keeps

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Count the time of a block as computing."""
        start = _now()
        yield
        self.busy += _now() - start

    def passed(self, *, forward: bool) -> None:
        """Count a micro-batch that has made its forward pass, or else its backward pass."""
        self._in_flight += 1 if forward else -1
        self.most_in_flight = max(self.most_in_flight, self._in_flight)

    def keep(self, tensor: Tensor) -> Tensor | Kept:
        """Count a tensor that autograd keeps, once however often it does (a hook of autograd)."""
        if tensor.untyped_storage().data_ptr() in self._weights:
            return tensor
        address = tensor.data_ptr()
        if not self._held[address]:
            self._bytes += tensor.nbytes
            self.most_bytes = max(self.most_bytes, self._bytes)
        self._held[address] += 1
        kept = Kept(tensor)
        weakref.finalize(kept, self._drop, address, tensor.nbytes)
        return kept

    def _drop(self, address: int, size: int) -> None:
        self._held[address] -= 1
        if not self._held[address]:
            self._bytes -= size


def _now() -> float:
    """Return the time in seconds, once a GPU has done what it was given."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


class MeteredStage(PipelineStage):
    """A stage that counts what it does. It has a meter before its first step."""

    meter: Meter

    def forward_one_chunk(self, *args: object, **kwargs: object) -> Tensors:
        """Make the forward pass of a micro-batch."""
        hooks = torch.autograd.graph.saved_tensors_hooks(
            self.meter.keep, lambda kept: kept.tensor if isinstance(kept, Kept) else kept
        )
        with self.meter.computing(), hooks:
            output = super().forward_one_chunk(*args, **kwargs)
        self.meter.passed(forward=True)
        return output

    def backward_one_chunk(self, *args: object, **kwargs: object) -> None:
        """Make the backward pass of a micro-batch."""
        with self.meter.computing():
            super().backward_one_chunk(*args, **kwargs)
        self.meter.passed(forward=False)
