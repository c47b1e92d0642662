"""The gradient report of a confirmed run: where gradients came, where they did not, and where they stop."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from gradlint.trace import Span


class Gradient(enum.Enum):
    """What the `.grad` of a parameter was when it should have been used."""

    FINITE = "finite"
    ZERO = "zero"
    """There, and exactly zero in every step that was looked at."""
    NONFINITE = "non-finite"
    """It held an infinity or a NaN."""
    NONE = "none"
    """`grad is None` after backward."""
    FROZEN = "frozen"
    """The parameter does not require grad, so none is expected."""


@dataclass(frozen=True, slots=True)
class ParameterGradient:
    """One parameter at the first optimizer step (at the first backward's end where no optimizer stepped)."""

    name: str
    """Its dotted name under the outermost module."""
    shape: tuple[int, ...]
    gradient: Gradient
    norm: float | None
    """The 2-norm of the gradient; None where there is none."""
    optimizer: str | None
    """The optimizer that holds it ('Adam', 'Adam 2'); None where none does."""
    shared: bool = False
    """Another layer holds the same parameter (tied weights)."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One module of the outermost module's tree, in the order of registration."""

    name: str
    """Dotted; '' for the outermost module itself."""
    kind: str
    """The class's name."""
    calls: int
    """How often its forward ran in the steps that were looked at."""
    span: Span | None
    """Where the program constructed it."""
    parameters: tuple[ParameterGradient, ...]
    """Its own parameters, without those of its children."""


@dataclass(frozen=True, slots=True)
class Flow:
    """A tensor went from one layer to another; the ends are '' for the program around the outermost module's layers."""

    source: str
    target: str
    gradient: bool
    """Whether a gradient went back the same way."""


@dataclass(frozen=True, slots=True)
class GradientStop:
    """A place where values left the graph on their way to a loss."""

    span: Span
    how: str
    """'detach', 'no_grad', 'item', ..."""
    module: str
    """The dotted name of the layer whose forward was running, '' outside."""
    behind: tuple[str, ...]
    """The parameters behind it that got no gradient on any way."""


@dataclass(frozen=True, slots=True)
class UnreadOutput:
    """A tensor with a graph that a module returned and no backpropagated loss read."""

    module: str
    place: str
    """Its place in the result: '0', 'logits', '' for the whole."""
    span: Span | None


@dataclass(frozen=True, slots=True)
class StaleGradient:
    """Gradients that an optimizer had already used and that were still there when the next backward added to them."""

    optimizer: str
    span: Span
    """The backward that added to them."""
    parameters: int
    of: int
    norm: float | None


@dataclass(frozen=True, slots=True)
class Step:
    """One optimizer step."""

    number: int
    optimizer: str
    span: Span | None
    nodes: int
    """Operations in the graph that its backward walked."""
    memory: int | None
    """Bytes in use after it: device memory where there is a device, else of the process; None where not measured."""
    norm: float | None
    """The 2-norm of all gradients that it used."""
    loss: float | None = None


@dataclass(frozen=True, slots=True)
class GradientReport:
    """What one run of a program told of its gradients."""

    command: str
    device: str
    torch: str
    layers: tuple[Layer, ...]
    flows: tuple[Flow, ...]
    stops: tuple[GradientStop, ...]
    unread: tuple[UnreadOutput, ...]
    stale: tuple[StaleGradient, ...]
    steps: tuple[Step, ...]
    notes: tuple[str, ...] = ()
    """What the reader should know of the run ('torch.compile was switched off')."""

    def parameters(self) -> tuple[ParameterGradient, ...]:
        """Every parameter once, in the order of registration."""
        return tuple(p for layer in self.layers for p in layer.parameters if not p.shared)
