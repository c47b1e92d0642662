"""The trace of one training run, as autograd sees it.

A trace is told in order: operations and what they kept for backward, mutations, cuts, backward calls,
optimizer steps, cleared gradients.  A teller writes it (`gradlint.shadow` without running anything, a
recorder from a real step) and a rule reads it; neither knows the other.  Standard library only.

One trace is one path through the program.  Where a condition cannot be known, a teller tells several traces.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar, cast


class Known(enum.Enum):
    """What is known of a fact.  Unknown stays unknown: `MAYBE` is never read as `NO`."""

    YES = "yes"
    NO = "no"
    MAYBE = "maybe"

    @staticmethod
    def of(fact: bool | None) -> Known:
        return Known.MAYBE if fact is None else Known.YES if fact else Known.NO


YES, NO, MAYBE = Known.YES, Known.NO, Known.MAYBE


class Span(NamedTuple):
    """A stretch of a source file; lines and columns count from 1, columns in characters, the end exclusive."""

    path: str
    line: int
    column: int
    end_line: int
    end_column: int


class Site:
    """Where in the source something happens.  Tellers subclass it; equal sites are the same place."""

    __slots__ = ()
    known = False
    """Whether it has a place at all: what unknown code does has none."""

    @property
    def span(self) -> Span:
        raise NotImplementedError


@dataclass(eq=False, repr=False, slots=True)
class Storage:
    """The memory behind one tensor and all views of it; `version` is torch's `_version`."""

    version: int = 0
    # A write through `.data` or a detached alias made before 1.5's rules changes values and no version.
    mutations: list[Mutated] = field(default_factory=list)


@dataclass(eq=False, repr=False, slots=True)
class Tensor:
    """One tensor object.  In-place operations change its `grad_fn`, as in torch."""

    requires_grad: Known = MAYBE
    grad_fn: Node | None = None
    storage: Storage = field(default_factory=Storage)
    site: Site | None = None
    """Where it was made."""
    name: str = ""
    """The name it was first bound to; for a parameter its dotted name, '' where it has none."""
    is_parameter: bool = False
    """Made by `nn.Parameter` or registered by a layer."""
    certain: bool = True
    """False where it may not be a tensor at all: an unknown value that was only used like one."""
    base: Tensor | None = None
    """The tensor this one is a view of."""
    multi_view: bool = False
    """One of several outputs of a view operation (`chunk`, `unbind`): torch refuses to change it in place."""
    data_of: Tensor | None = None
    """The tensor whose `.data` this is: writes to it bypass the version counter."""
    cuts: tuple[Cut, ...] = ()
    """For a tensor without gradient: the cuts its value came through."""
    grad_of: Tensor | None = None
    """The tensor whose `.grad` this is."""
    owner: Module | None = None
    """The module that registered this parameter or buffer."""
    note: str = ""
    """What produced it, where a rule must tell: 'log_prob', 'quantised', ..."""
    history: tuple[Tensor, ...] = ()
    """For a tensor without gradient: the tensors its value was computed from."""

    @property
    def is_leaf(self) -> bool:
        return self.grad_fn is None


class Edge(NamedTuple):
    """An operand as an operation saw it: the tensor, its `grad_fn` and storage version at that moment."""

    tensor: Tensor
    grad_fn: Node | None
    version: int
    requires_grad: Known


class Saved(NamedTuple):
    """A storage that an operation kept for backward, at the version it had then."""

    storage: Storage
    version: int
    role: str
    """Which operand, or 'result'."""
    certain: bool
    """False where the gradient that needs it may not be asked for."""


@dataclass(eq=False, repr=False, slots=True)
class Node:
    """One operation in the graph that backward walks (torch's `grad_fn`)."""

    op: str
    site: Site
    inputs: tuple[Edge, ...] = ()
    saved: tuple[Saved, ...] = ()
    module: Module | None = None
    """The layer whose call this is, where the operation is a layer as a whole."""
    freed: Backward | None = None
    """The backward call that freed its buffers."""
    opaque: bool = False
    """A call into unknown code: what it kept, and what it passed on, is unknown."""
    index: int = -1
    """The trace's length when it was made."""
    constants: tuple[Cut, ...] = ()
    """The cuts behind its operands that are plain numbers."""

    @property
    def keeps(self) -> bool:
        """Whether backward through it a second time surely fails."""
        return self.opaque or any(saved.certain for saved in self.saved)


def sure_graph(root: Edge) -> Iterator[Node]:
    """The nodes that a backward from `root` surely visits, root first.

    Where no operand of a node surely requires grad, but something must, the only candidate does.
    """
    seen: set[int] = set()
    todo = [root.grad_fn] if root.grad_fn is not None else []
    while todo:
        node = todo.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        sure = [e for e in node.inputs if e.requires_grad is YES]
        if not sure:
            open_edges = [e for e in node.inputs if e.requires_grad is MAYBE and e.grad_fn is not None]
            sure = open_edges if len(open_edges) == 1 else []
        todo.extend(e.grad_fn for e in sure if e.grad_fn is not None)


def graph(root: Tensor | Node | None) -> Iterator[Node]:
    """Every node that a backward from `root` visits, each once, root first."""
    first = root.grad_fn if isinstance(root, Tensor) else root
    seen: set[int] = set()
    todo = [first] if first is not None else []
    while todo:
        node = todo.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        todo.extend(e.grad_fn for e in node.inputs if e.grad_fn is not None and e.requires_grad is not NO)


def leaves(root: Tensor | Node | None) -> Iterator[Tensor]:
    """Every leaf that a backward from `root` gives a gradient (or may give one), each once."""
    seen: set[int] = set()
    if isinstance(root, Tensor) and root.grad_fn is None and root.requires_grad is not NO:
        yield root
    for node in graph(root):
        for edge in node.inputs:
            if edge.grad_fn is None and edge.requires_grad is not NO and id(edge.tensor) not in seen:
                seen.add(id(edge.tensor))
                yield edge.tensor


@dataclass(eq=False, repr=False)
class Module:
    """An `nn.Module` of the program or of torch."""

    kind: str
    """The class's name."""
    site: Site | None = None
    """Where it was constructed."""
    name: str = ""
    """Its dotted name under the outermost module that holds it, '' where it has none."""
    training: Known = YES
    opaque: bool = False
    """Its class is not known: parameters and buffers may be missing here."""

    def tensors(self) -> Iterator[Tensor]:
        """Its parameters, those of its children included, each once."""
        return iter(())

    def modules(self) -> Iterator[tuple[str, Module]]:
        """Itself and all modules inside it, with their names."""
        yield "", self

    def mentions(self, attribute: str) -> int:  # noqa: ARG002 - a teller with the source at hand overrides this
        """How often the source of its class names `attribute` other than to set it, as far as there is a source."""
        return 0


@dataclass(eq=False, repr=False)
class Optimizer:
    """A torch optimizer."""

    kind: str
    site: Site
    parameters: list[Tensor] = field(default_factory=list)
    complete: bool = True
    """False where it holds parameters that are not known."""
    name: str = ""
    assumed: bool = False
    """Only its use (`optimizer.step()`) says that it is one."""


@dataclass(eq=False, repr=False, slots=True)
class Frame:
    """A call in progress: the function's name, where it was called, and the loop turns around the present point."""

    function: str
    call: Site | None = None
    caller: Frame | None = None
    owner: Module | None = None
    """The module whose method this is."""

    def stack(self) -> Iterator[Frame]:
        frame: Frame | None = self
        while frame is not None:
            yield frame
            frame = frame.caller


@dataclass(eq=False, repr=False, slots=True, kw_only=True)
class Event:
    site: Site
    frame: Frame
    turns: tuple[tuple[Site, int], ...] = ()
    """The loops around it, outermost first, each with the number of the turn."""
    index: int = -1
    """Its place in the trace."""
    assumed: bool = False
    """Nothing in the source says that it happens: the teller supposed it (a loss that reads all outputs)."""


@dataclass(eq=False, repr=False, slots=True, kw_only=True)
class Made(Event):
    """An operation made a tensor (or changed one in place; then `Mutated` stands beside it)."""

    op: str
    inputs: tuple[Edge, ...]
    output: Tensor
    node: Node | None


@dataclass(eq=False, repr=False, slots=True, kw_only=True)
class Mutated(Event):
    """A storage was written.  `tracked` says that the version counter saw it."""

    tensor: Tensor
    storage: Storage
    op: str
    tracked: bool
    grad_enabled: bool
    version: int
    """The storage's version after the write."""
    by: Optimizer | Module | None = None
    """The optimizer whose step, or the layer with `inplace=True`, this write is."""
    leaf: bool = False
    """It was a leaf that requires grad, or a view of one, when written."""
    value: Tensor | None = None
    """What was written, where one tensor was."""
    multi_view: bool = False
    """It was one of several outputs of a view operation, which torch refuses to change in place."""
    named: bool = False
    """The changed tensor was given a name by the statement that changed it: its author knows."""


@dataclass(eq=False, repr=False, slots=True, kw_only=True)
class Cut(Event):
    """A value left the graph: `source` required grad, `result` does not."""

    source: Edge
    result: Tensor | None
    how: str
    """'detach', 'data', 'item', 'numpy', 'tensor', 'argmax', 'no_grad', ..."""
    switch: GradMode | None = None
    """What had switched grad mode off, for 'no_grad'."""


@dataclass(eq=False, repr=False, slots=True, kw_only=True)
class Backward(Event):
    """`loss.backward()` or `torch.autograd.grad(loss, ...)`."""

    root: Tensor
    edge: Edge
    retain: Known
    create: Known
    wanted: tuple[Tensor, ...] | None = None
    """The inputs of `torch.autograd.grad`; None: gradients go to all leaves' `.grad`."""
    scaled: bool = False
    """The loss went through `GradScaler.scale`."""
    scaler: object = None


@dataclass(eq=False, repr=False, slots=True, kw_only=True)
class Stepped(Event):
    optimizer: Optimizer
    scaler: object = None
    """The GradScaler that called it."""
    closure: bool = False


@dataclass(eq=False, repr=False, slots=True, kw_only=True)
class Cleared(Event):
    """Gradients were cleared.  `tensors` None: which ones is not known."""

    tensors: tuple[Tensor, ...] | None
    optimizer: Optimizer | None = None
    in_place: bool = False
    """The gradients were zeroed in place; they are the same tensors afterwards."""


@dataclass(eq=False, repr=False, slots=True, kw_only=True)
class GradAssigned(Event):
    """`p.grad = value`."""

    tensor: Tensor


@dataclass(eq=False, repr=False, slots=True, kw_only=True)
class Built(Event):
    """An optimizer was built, or got a parameter group."""

    optimizer: Optimizer
    parameters: tuple[Edge, ...] = ()
    """What it was given, as it was then."""
    groups: tuple[tuple[Tensor, ...], ...] = ()
    """The parameter groups that the program named, where each is fully known."""


@dataclass(eq=False, repr=False, slots=True, kw_only=True)
class Called(Event):
    """A module was called; the events of its forward stand between this and `Returned`."""

    module: Module
    arguments: tuple[Tensor, ...]


@dataclass(eq=False, repr=False, slots=True, kw_only=True)
class Returned(Event):
    """A module's forward returned."""

    module: Module
    called: Called
    outputs: tuple[tuple[str, Tensor], ...]
    """The tensors of the result, each with its place in it ('0', 'logits', '' for the result itself)."""
    place: Site | None = None
    """The return statement."""


@dataclass(eq=False, repr=False, slots=True, kw_only=True)
class Constructed(Event):
    """A module was constructed; `frame` tells whether inside a forward."""

    module: Module


@dataclass(eq=False, repr=False, slots=True, kw_only=True)
class Assigned(Event):
    """`owner.name = value`; `value` is a Module, a Tensor, or a plain container of them.

    `owner` None: a variable that held a trained leaf.
    """

    owner: object
    attribute: str
    value: object
    replaced: object = None


@dataclass(eq=False, repr=False, slots=True, kw_only=True)
class Discarded(Event):
    """The result of a pure tensor operation was dropped."""

    op: str
    in_place: str = ""
    """The name of the form that would have changed the tensor, '' where there is none."""
    operand: Tensor | None
    operand_name: str
    certain: bool


@dataclass(eq=False, repr=False, slots=True, kw_only=True)
class Rebound(Event):
    """The variable of a loop over tensors was given a new value that the loop body never reads."""

    variable: str
    tensor: Tensor


@dataclass(eq=False, repr=False, slots=True, kw_only=True)
class Clipped(Event):
    """Gradients were clipped.  `tensors` None: of which tensors is not known."""

    tensors: tuple[Tensor, ...] | None
    exhausted: Exhausted | None = None


@dataclass(eq=False, repr=False, slots=True, kw_only=True)
class Exhausted(Event):
    """An iterator that had already been read to its end was read again.  `first` is where it was used up."""

    what: str
    made: Site
    first: Site


@dataclass(eq=False, repr=False, slots=True, kw_only=True)
class Scaler(Event):
    """A call on a GradScaler: 'unscale_', 'step' or 'update'."""

    scaler: object
    call: str
    optimizer: Optimizer | None = None


@dataclass(eq=False, repr=False, slots=True, kw_only=True)
class SchedulerStepped(Event):
    optimizer: Optimizer | None


@dataclass(eq=False, repr=False, slots=True, kw_only=True)
class Mode(Event):
    """`module.train()` or `module.eval()`."""

    module: Module
    training: Known


@dataclass(eq=False, repr=False, slots=True, kw_only=True)
class GradMode(Event):
    """Grad mode was switched.  `scoped`: a with block or decorator will switch it back."""

    enabled: bool
    scoped: bool


@dataclass(eq=False, repr=False, slots=True, kw_only=True)
class Froze(Event):
    """`p.requires_grad = enabled` or `requires_grad_(enabled)` on a leaf."""

    tensor: Tensor
    enabled: Known


@dataclass(eq=False, repr=False, slots=True, kw_only=True)
class AttributeSet(Event):
    """An attribute that torch gives no meaning was set on a tensor or module (`require_grad`, `requires_grad`)."""

    owner: Tensor | Module
    attribute: str
    value: object


@dataclass(eq=False, repr=False, slots=True, kw_only=True)
class Stored(Event):
    """A tensor was put where it outlives the loop turn: a list, an attribute, a running sum."""

    tensor: Tensor
    where: str
    """'append', 'attribute', 'sum', 'item'."""
    grows: bool
    """The place keeps what it held before."""
    name: str = ""
    container: object = None
    """The list that it was appended to, or the new running sum."""


@dataclass(eq=False, repr=False, slots=True, kw_only=True)
class Aliased(Event):
    """`state_dict()` was taken without a copy and is kept; its tensors share storage with the parameters."""

    module: Module
    storages: tuple[Storage, ...]


@dataclass(eq=False, repr=False, slots=True, kw_only=True)
class Restored(Event):
    """`load_state_dict` was given such an alias of the same module's own parameters."""

    module: Module
    alias: Aliased


@dataclass(eq=False, repr=False, slots=True, kw_only=True)
class Escaped(Event):
    """Unknown code was called; it may do anything to what it was given."""

    callee: str
    values: tuple[object, ...]


T = TypeVar("T")


def members(value: object, kind: type[T]) -> Iterator[T]:
    """What is of `kind` in `value`: itself, or the members of plain containers, however deep."""
    if isinstance(value, kind):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from members(item, kind)
    elif isinstance(value, dict):
        for item in value.values():
            yield from members(item, kind)


E = TypeVar("E", bound=Event)


@dataclass(eq=False, repr=False)
class Trace:
    """One path through a program, from an entry to its end."""

    entry: str
    """What was entered: a file's body, a function, a module's forward."""
    events: list[Event] = field(default_factory=list)
    complete: bool = True
    """False where the budget ran out before the end."""
    modules: list[Module] = field(default_factory=list)
    stopped: bool = False
    """The run was ended as its last backward began: what came after it is not known."""
    whole_program: bool = False
    """The entry is a program's body: optimizers, modules and loops are all that there are."""
    _kinds: dict[type, list[Event]] = field(default_factory=dict)

    @property
    def cut_short(self) -> bool:
        """Whether the program went on, or may have, where the trace ends."""
        return self.stopped or not self.complete

    def sites(self) -> set[Site]:
        return {event.site for event in self.events}

    def optimizers(self) -> list[Optimizer]:
        """The optimizers that step or were built, each once."""
        found = {id(e.optimizer): e.optimizer for e in self.events if isinstance(e, (Built, Stepped))}
        return list(found.values())

    def optimized(self) -> set[int] | None:
        """The `id` of every parameter that some optimizer holds; None where that is not fully known."""
        optimizers = self.optimizers()
        if not optimizers or not all(o.complete and not o.assumed for o in optimizers):
            return None
        return {id(p) for o in optimizers for p in o.parameters}

    def told(self, kind: type[E]) -> list[E]:
        """The events of one kind, in order.  The trace must have been told to its end."""
        if not self._kinds and self.events:
            for event in self.events:
                self._kinds.setdefault(type(event), []).append(event)
        return cast("list[E]", self._kinds.get(kind, []))
