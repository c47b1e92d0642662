"""The gradient report of a confirmed run: where gradients came, where they did not, and where they stop."""

from __future__ import annotations

import enum
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gradlint.record.read import Measured, RecordedModule, Recording
from gradlint.trace import (
    NO,
    YES,
    Backward,
    Cleared,
    Cut,
    Edge,
    Node,
    Optimizer,
    Returned,
    Site,
    Span,
    Stepped,
    Tensor,
    graph,
    leaves,
)

# These hold layers and have no forward of their own.
# Accelerate gives out such copies of what a model returned under autocast.
_COPIES = frozenset({"to", "float", "half", "bfloat16", "double", "type", "to_copy", "clone", "contiguous", "alias"})
_CONTAINERS = frozenset({"ModuleList", "ModuleDict", "ParameterList", "ParameterDict"})


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
    norms: tuple[float | None, ...] = ()
    """The norm at each step that was measured, the first included."""
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


def report(recording: Recording, command: str) -> GradientReport:
    """What a recorded run tells of its gradients."""
    return _Builder(recording).report(command)


class _Builder:
    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.trace = recording.trace
        self.backwards = [b for b in self.trace.told(Backward) if b.wanted is None]
        self.visited = {id(node) for b in self.trace.told(Backward) for node in graph(b.edge.grad_fn)}
        self.reached = {id(leaf) for b in self.trace.told(Backward) for leaf in leaves(b.edge.grad_fn)}
        self.labels = _labels(self.trace.optimizers())
        self.holder = {id(p): o for o in self.trace.optimizers() for p in o.parameters}
        self.layer_names = self.named_layers()

    def report(self, command: str) -> GradientReport:
        recording = self.recording
        return GradientReport(
            command=command,
            device=recording.device,
            torch=recording.torch,
            layers=tuple(self.layers()),
            flows=tuple(self.flows()),
            stops=tuple(self.stops()),
            unread=tuple(self.unread()),
            stale=tuple(self.stale()),
            steps=tuple(self.steps()),
            notes=(*recording.notes, *self.notes()),
        )

    def notes(self) -> Iterator[str]:
        if self.recording.by_hand and not self.trace.told(Stepped):
            yield f"weights were changed by hand between backwards {self.recording.by_hand} times, by no optimizer"
        for failure in self.recording.failures:
            if failure.backward is not None:
                yield "backward raised, so the gradients are those that had been computed by then"

        for module, looks in self.recording.distributed:
            yield from self.distributed(module, looks)

    def distributed(self, module: RecordedModule, looks: bool) -> Iterator[str]:
        """What DistributedDataParallel waits for in vain, said before it says so itself."""
        own = {id(t): t for t in module.tensors() if t.requires_grad is YES}
        rank = f"rank {self.recording.rank}: " if self.recording.rank else ""
        without = [own.keys() - {id(leaf) for leaf in leaves(b.edge.grad_fn)} for b in self.backwards]
        if not without:
            return
        never = set.intersection(*map(set, without))
        sometimes = set.union(*map(set, without)) - never
        for keys, when, advice in (
            (
                never,
                "in any step",
                "find_unused_parameters=True would only hide it: use them, or take them out of the model",
            ),
            (sometimes, "in some steps only", "find_unused_parameters=True is what this needs"),
        ):
            if keys:
                names = [self.name(own[key]) for key in own if key in keys]
                more = f" and {len(names) - 2} more" if len(names) > 2 else ""
                raises = "" if looks else "DistributedDataParallel raises in the forward after; "
                yield f"{rank}{', '.join(names[:2])}{more} got no gradient {when}: {raises}{advice}"
        if looks and not never and not sometimes:
            yield f"{rank}find_unused_parameters is set, but every parameter got a gradient: it only costs time"

    def named_layers(self) -> dict[int, str]:
        """The dotted name of every module, prefixed by the class of its root where there are several roots."""
        roots = self.roots()
        kinds = Counter(root.kind for root in roots)
        seen: Counter[str] = Counter()
        found: dict[int, str] = {}
        for root in roots:
            seen[root.kind] += 1
            prefix = ""
            if len(roots) > 1:
                prefix = root.kind if kinds[root.kind] == 1 else f"{root.kind} {seen[root.kind]}"
            for name, module in root.modules():
                found.setdefault(id(module), ".".join(part for part in (prefix, name) if part))
        return found

    def roots(self) -> list[RecordedModule]:
        """The outermost modules that the program called and that are no part of one another."""
        outermost = self.recording.outermost
        inside = {id(m) for root in outermost for name, m in root.modules() if name}
        found = [root for root in outermost if id(root) not in inside]
        found = [root for root in found if any(True for _ in root.tensors())]
        # A program may call `forward` itself, which nobody can see: what an optimizer holds is shown all the same.
        seen = {id(tensor) for root in found for tensor in root.tensors()}
        recorded = [module for module in self.trace.modules if isinstance(module, RecordedModule)]
        inner = {id(child) for module in recorded for child in module.children.values()}
        for module in recorded:
            if id(module) not in inner and any(id(t) in self.holder and id(t) not in seen for t in module.tensors()):
                found.append(module)
        return found

    def layers(self) -> Iterator[Layer]:
        states = self.states()
        told: set[int] = set()
        for root in self.roots():
            for _, module in root.modules():
                if not isinstance(module, RecordedModule):
                    continue
                name = self.layer_names[id(module)]
                parameters = []
                for last, tensor in module.parameters.items():
                    gradient, norm, norms = states.get(id(tensor), (Gradient.NONE, None, ()))
                    if tensor.requires_grad is NO and gradient is Gradient.NONE:
                        # One that is frozen now and then has gradients, too.
                        gradient, norm = Gradient.FROZEN, None
                    optimizer = self.holder.get(id(tensor))
                    parameters.append(
                        ParameterGradient(
                            name=f"{name}.{last}" if name else last,
                            shape=self.recording.shapes.get(id(tensor), ()),
                            gradient=gradient,
                            norm=norm,
                            optimizer=self.labels[id(optimizer)] if optimizer is not None else None,
                            norms=norms,
                            shared=id(tensor) in told,
                        )
                    )
                    told.add(id(tensor))
                calls = module.calls
                if module.kind in _CONTAINERS and not calls:
                    calls = max((child.calls for child in module.children.values()), default=0)
                site = module.site
                yield Layer(name, module.kind, calls, _span(site), tuple(parameters))

    def states(self) -> dict[int, tuple[Gradient, float | None, tuple[float | None, ...]]]:
        """Per parameter what its gradient was in all steps together, its first norm, and all of them."""
        seen: dict[int, list[float | None]] = {}
        for measured in self.recording.measured:
            for tensor, _, norm in measured.gradients:
                seen.setdefault(id(tensor), []).append(norm)
        found: dict[int, tuple[Gradient, float | None, tuple[float | None, ...]]] = {}
        holders = Counter(id(p) for o in self.trace.optimizers() for p in {id(p): p for p in o.parameters}.values())
        for key, norms in seen.items():
            there = [n for n in norms if n is not None]
            # What one optimizer leaves alone has its turn with another one.
            series = tuple(there if there and holders[key] > 1 else norms)
            if not there:
                found[key] = Gradient.NONE, None, series
            elif any(not math.isfinite(n) for n in there):
                found[key] = Gradient.NONFINITE, next(n for n in there if not math.isfinite(n)), series
            elif all(n == 0 for n in there):
                found[key] = Gradient.ZERO, 0.0, series
            else:
                found[key] = Gradient.FINITE, there[0], series
        return found

    def flows(self) -> Iterator[Flow]:
        """Where tensors went from layer to layer, each way once."""
        found: dict[tuple[str, str], bool] = {}

        def flow(source: str, target: str, gradient: bool) -> None:
            if source != target:
                found[source, target] = found.get((source, target), False) or gradient

        for node in self.nodes():
            target = self.layer(node)
            if target is None:
                continue
            for edge in node.inputs:
                for source, uncut in self.sources(edge):
                    flow(source, target, uncut and id(node) in self.visited)
        for backward in self.backwards:
            for source, uncut in self.sources(backward.edge):
                flow(source, "", uncut)
        for (source, target), gradient in found.items():
            yield Flow(source, target, gradient)

    def nodes(self) -> Iterator[Node]:
        seen: set[int] = set()
        for returned in self.trace.told(Returned):
            for _, tensor in returned.outputs:
                for node in graph(tensor.grad_fn):
                    if id(node) not in seen:
                        seen.add(id(node))
                        yield node
        for backward in self.backwards:
            for node in graph(backward.edge.grad_fn):
                if id(node) not in seen:
                    seen.add(id(node))
                    yield node

    def layer(self, node: Node) -> str | None:
        """The layer whose operation a node is; None for what lies between layers."""
        module = self.recording.layer_of.get(id(node))
        if module is None or not (module.of_torch or module.parameters):
            return None
        return self.layer_names.get(id(module))

    def sources(self, edge: Edge) -> set[tuple[str, bool]]:
        """The layers that an operand comes from, each with whether a gradient can go back there."""
        if edge.grad_fn is not None:
            return self.behind(edge.grad_fn)
        if edge.requires_grad is not NO or edge.tensor.is_parameter:
            return set()
        cut = {(name, False) for c in edge.tensor.cuts for name, _ in self.behind(c.source.grad_fn)}
        return cut or {("", False)}

    def behind(self, node: Node | None) -> set[tuple[str, bool]]:
        found: set[tuple[str, bool]] = set()
        seen: set[int] = set()
        todo = [node] if node is not None else []
        while todo:
            at = todo.pop()
            if id(at) in seen:
                continue
            seen.add(id(at))
            layer = self.layer(at)
            if layer is not None:
                found.add((layer, True))
                continue
            for edge in at.inputs:
                if edge.grad_fn is not None:
                    todo.append(edge.grad_fn)
                elif edge.requires_grad is NO:
                    found |= {(name, False) for c in edge.tensor.cuts for name in self.names_behind(c)}
        return found

    def names_behind(self, cut: Cut) -> set[str]:
        """The layers right behind a cut; those behind a further cut are not looked for."""
        return {self.layer(node) or "" for node in _first(cut.source.grad_fn, self.layer)}

    def stops(self) -> Iterator[GradientStop]:
        """The cuts behind which trained parameters got no gradient at all, on whatever way."""
        found: dict[Site, tuple[Cut, dict[str, None]]] = {}
        explained: set[int] = set()
        # What left torch as a number cannot be followed to a loss: it explains what nothing else does.
        for cuts in (self.passed(), [c for c in self.trace.told(Cut) if c.result is None]):
            told = set(explained)
            for cut in cuts:
                if not cut.site.known or cut.source.requires_grad is not YES:
                    continue
                behind = [cut.source.tensor] if cut.source.grad_fn is None else list(leaves(cut.source.grad_fn))
                for leaf in behind:
                    if id(leaf) in self.holder and id(leaf) not in self.reached and id(leaf) not in told:
                        explained.add(id(leaf))
                        names = found.setdefault(cut.site, (cut, {}))[1]
                        names[self.name(leaf)] = None
        for site, (cut, names) in found.items():
            owner = next((frame.owner for frame in cut.frame.stack() if frame.owner is not None), None)
            module = self.layer_names.get(id(owner), "") if owner is not None else ""
            yield GradientStop(site.span, cut.how, module, tuple(names))

    def passed(self) -> list[Cut]:
        """The cuts that a value went through on its way to a loss."""
        found: dict[int, Cut] = {}
        for backward in self.backwards:
            found.update((id(cut), cut) for cut in backward.root.cuts)
            for node in graph(backward.edge.grad_fn):
                found.update((id(cut), cut) for cut in node.constants)
                for edge in node.inputs:
                    if edge.requires_grad is NO:
                        found.update((id(cut), cut) for cut in edge.tensor.cuts)
        return list(found.values())

    def unread(self) -> Iterator[UnreadOutput]:
        roots = {id(root) for root in self.roots()}
        unread: dict[tuple[int, str], Returned] = {}
        read: set[tuple[int, str]] = set()
        for returned in self.trace.told(Returned) if self.backwards else ():
            for place, tensor in returned.outputs if id(returned.module) in roots else ():
                if self.is_read(tensor.grad_fn):
                    read.add((id(returned.module), place))
                elif tensor.grad_fn is not None and tensor.requires_grad is YES:
                    unread.setdefault((id(returned.module), place), returned)
        for (module, place), returned in unread.items():
            if (module, place) not in read:
                span = _span(returned.place or returned.called.site)
                yield UnreadOutput(self.layer_names.get(module, ""), place, span)

    def is_read(self, node: Node | None) -> bool:
        """Whether a backward went through the node, or through that of which it is only a copy."""
        while node is not None and id(node) not in self.visited:
            sources = [edge.grad_fn for edge in node.inputs if edge.grad_fn is not None]
            node = sources[0] if node.op in _COPIES and len(sources) == 1 else None
        return node is not None

    def stale(self) -> Iterator[StaleGradient]:
        """What a step used that a step before had used already, and that a backward had only added to."""
        used: dict[int, Stepped] = {}
        added: dict[int, tuple[Stepped, Backward]] = {}
        said: list[tuple[Optimizer, Site]] = []
        for event in self.trace.events:
            if isinstance(event, Cleared):
                for tensor in event.tensors or ():
                    used.pop(id(tensor), None)
                    added.pop(id(tensor), None)
                if event.tensors is None:
                    used.clear()
                    added.clear()
            elif isinstance(event, Backward) and event.wanted is None:
                for leaf in leaves(event.edge.grad_fn):
                    if id(leaf) in used:
                        added[id(leaf)] = used[id(leaf)], event
            elif isinstance(event, Stepped):
                own = [added[id(p)] for p in event.optimizer.parameters if id(p) in added]
                if own and own[0][1].site.known and (event.optimizer, own[0][1].site) not in said:
                    step, backward = own[0]
                    said.append((event.optimizer, backward.site))
                    measured = self.measured_before(step)
                    yield StaleGradient(
                        self.labels[id(event.optimizer)],
                        backward.site.span,
                        len(own),
                        len(event.optimizer.parameters),
                        _total(measured) if measured is not None else None,
                    )
                for parameter in event.optimizer.parameters:
                    used[id(parameter)] = event
                    added.pop(id(parameter), None)

    def measured_before(self, step: Stepped) -> Measured | None:
        """What was measured for this step; None where this step was not measured."""
        earlier = [s.index for s in self.trace.told(Stepped) if s.optimizer is step.optimizer and s.index < step.index]
        after = max(earlier, default=-1)
        found = [m for m in self.recording.measured if m.optimizer is step.optimizer and after < m.index <= step.index]
        return found[-1] if found else None

    def steps(self) -> Iterator[Step]:
        memory = {id(step): used for step, used in self.recording.memory}
        losses = {id(backward): loss for backward, loss in self.recording.losses}
        sizes = {id(b): sum(1 for _ in graph(b.edge.grad_fn)) for b in self.backwards}
        for number, step in enumerate(self.trace.told(Stepped), 1):
            before = [b for b in self.backwards if b.index < step.index]
            measured = self.measured_before(step)
            yield Step(
                number=number,
                optimizer=self.labels[id(step.optimizer)],
                span=_span(step.site),
                nodes=sizes[id(before[-1])] if before else 0,
                memory=memory.get(id(step)),
                norm=_total(measured) if measured is not None else None,
                loss=losses.get(id(before[-1])) if before else None,
            )

    def name(self, tensor: Tensor) -> str:
        return self.recording.names.get(id(tensor)) or tensor.name or "a parameter"


def _first(node: Node | None, layer: Callable[[Node], str | None]) -> Iterator[Node]:
    """The nodes nearest to `node` that belong to a layer."""
    seen: set[int] = set()
    todo = [node] if node is not None else []
    while todo:
        at = todo.pop()
        if id(at) in seen:
            continue
        seen.add(id(at))
        if layer(at) is not None:
            yield at
        else:
            todo.extend(e.grad_fn for e in at.inputs if e.grad_fn is not None)


def _labels(optimizers: list[Optimizer]) -> dict[int, str]:
    kinds = Counter(o.kind for o in optimizers)
    seen: Counter[str] = Counter()
    found = {}
    for optimizer in optimizers:
        seen[optimizer.kind] += 1
        found[id(optimizer)] = (
            optimizer.kind if kinds[optimizer.kind] == 1 else f"{optimizer.kind} {seen[optimizer.kind]}"
        )
    return found


def _total(measured: Measured) -> float | None:
    norms = [n for _, _, n in measured.gradients if n is not None]
    return math.sqrt(sum(n * n for n in norms)) if norms else None


def _span(site: Site | None) -> Span | None:
    return site.span if site is not None and site.known else None
