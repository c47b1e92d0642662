"""The recorded teller: reads the journal of a real run as a trace, and what was measured beside it.

It tells what the shadow teller tells, in the same words, so that a rule reads both.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gradlint import facts
from gradlint.trace import (
    NO,
    YES,
    Aliased,
    Assigned,
    AttributeSet,
    Backward,
    Built,
    Called,
    Cleared,
    Clipped,
    Constructed,
    Cut,
    Discarded,
    Edge,
    Event,
    Exhausted,
    Frame,
    Froze,
    GradAssigned,
    GradMode,
    Known,
    Made,
    Mode,
    Module,
    Mutated,
    Node,
    Optimizer,
    Rebound,
    Restored,
    Returned,
    Saved,
    Scaler,
    SchedulerStepped,
    Site,
    Span,
    Stepped,
    Storage,
    Stored,
    Tensor,
    Trace,
    members,
)

_MOST_CUTS = 8

NO_CUDA = "no cuda"
"""How a process ended that was to run on a device that is not there."""

PLACES = 16
"""A finding's flags are numbered from its own number times this: its place first, then those of its reasons."""

_NAMES = {
    "__rsub__": "sub",
    "rsub": "sub",
    "subtract": "sub",
    "__radd__": "add",
    "__rmul__": "mul",
    "multiply": "mul",
    "__rdiv__": "div",
    "__rtruediv__": "div",
    "__truediv__": "div",
    "true_divide": "div",
    "divide": "div",
    "__pow__": "pow",
    "__rpow__": "pow",
    "__ipow__": "pow_",
    "__matmul__": "matmul",
    "__rmatmul__": "matmul",
    "__iadd__": "add_",
    "__isub__": "sub_",
    "__imul__": "mul_",
    "__itruediv__": "div_",
    "__idiv__": "div_",
    "negative": "neg",
    "absolute": "abs",
    "concat": "cat",
    "concatenate": "cat",
}
_QUANTIZING = frozenset({"round", "floor", "ceil", "trunc", "sign", "bucketize"})
# The records that may tell what made the nodes before them.
_MAY_FOLLOW_NODES = frozenset({"tensor", "op", "returned", "backward", "site", "call", "grads"})
# An operation that only looks at what its operand is like cuts nothing.
_LIKE = frozenset({"empty_strided", "new_empty_strided"})


class RecordedSite(Site):
    """A place in a file of the program, as the running interpreter named it."""

    __slots__ = ("_span", "columns", "file", "key")
    known = True

    def __init__(self, file: SourceFile, key: tuple[int, int | None, int, int | None]) -> None:
        self.file = file
        self.key = key
        """Line, column, end line, end column; columns are byte offsets from 0, None before Python 3.11."""
        self._span: Span | None = None

    @property
    def span(self) -> Span:
        if self._span is None:
            self._span = self.file.span(self.key)
        return self._span

    def __repr__(self) -> str:
        return f"{self.file.path}:{self.key[0]}:{self.key[1]}"


class Nowhere(Site):
    """Something happened where none of the program's own code was on the stack."""

    __slots__ = ()

    @property
    def span(self) -> Span:
        raise ValueError("it has no place")


class SourceFile:
    """One file of the program: its lines, its statements, and the sites met in it."""

    def __init__(self, path: str, shown: str) -> None:
        self.path = path
        self.shown = shown
        self.sites: dict[tuple[int, int | None, int, int | None], RecordedSite] = {}
        self._lines: list[bytes] | None = None
        self._statements: list[ast.stmt] | None = None

    @property
    def lines(self) -> list[bytes]:
        if self._lines is None:
            try:
                self._lines = Path(self.path).read_bytes().splitlines()
            except OSError:
                self._lines = []
        return self._lines

    def site(self, line: int, column: int | None, end_line: int, end_column: int | None) -> RecordedSite:
        key = line, column, end_line, end_column
        site = self.sites.get(key)
        if site is None:
            site = self.sites[key] = RecordedSite(self, key)
        return site

    def span(self, key: tuple[int, int | None, int, int | None]) -> Span:
        line, column, end_line, end_column = key
        if column is None or end_column is None:
            text = self.text(line)
            start = len(text) - len(text.lstrip())
            return Span(self.shown, line, start + 1, line, len(text) + 1)
        return Span(
            self.shown, line, self.characters(line, column) + 1, end_line, self.characters(end_line, end_column) + 1
        )

    def text(self, line: int) -> str:
        return self.lines[line - 1].decode("utf-8", "replace") if 0 < line <= len(self.lines) else ""

    def characters(self, line: int, column: int) -> int:
        if not 0 < line <= len(self.lines):
            return column
        return len(self.lines[line - 1][:column].decode("utf-8", "replace"))

    @property
    def statements(self) -> list[ast.stmt]:
        if self._statements is None:
            try:
                tree = ast.parse(b"\n".join(self.lines))
            except (SyntaxError, ValueError):
                self._statements = []
            else:
                self._statements = [n for n in ast.walk(tree) if isinstance(n, ast.stmt)]
        return self._statements

    def under_condition(self, site: RecordedSite) -> bool:
        """Whether a condition inside the function around it decides what happens at the place."""
        line, column, _, _ = site.key
        at = line, column or 0
        around = [s for s in self.statements if (s.lineno, 0) <= at < (s.end_lineno or 0, s.end_col_offset or 0)]
        start = max((s.lineno for s in around if isinstance(s, (ast.FunctionDef, ast.AsyncFunctionDef))), default=0)
        tests = [s.test for s in around if isinstance(s, ast.If) and s.lineno > start]
        if any("__name__" not in ast.dump(test) for test in tests):
            return True
        innermost = self.statement(site)
        parts = getattr(innermost, "items", [] if hasattr(innermost, "body") else [innermost])
        for node in (n for part in parts for n in ast.walk(part)):
            if isinstance(node, ast.IfExp) and (node.lineno, node.col_offset) <= at:
                return True
            if isinstance(node, ast.Call) and "set_grad_enabled" in ast.dump(node.func):
                return not all(isinstance(argument, ast.Constant) for argument in node.args)
        return False

    def statement(self, site: RecordedSite) -> ast.stmt | None:
        """The innermost statement around a site."""
        line, column, _, _ = site.key
        best: ast.stmt | None = None
        for node in self.statements:
            start = node.lineno, node.col_offset
            end = node.end_lineno or node.lineno, node.end_col_offset or 0
            inside = start <= (line, column if column is not None else start[1]) and (line, column or 0) < end
            if inside and (best is None or start >= (best.lineno, best.col_offset)):
                best = node
        return best


class RecordedModule(Module):
    """A module of the program, with the members that the run saw."""

    def __init__(self, kind: str, *, of_torch: bool) -> None:
        super().__init__(kind=kind)
        self.of_torch = of_torch
        self.parameters: dict[str, Tensor] = {}
        self.children: dict[str, RecordedModule] = {}
        self.calls = 0

    def tensors(self) -> Iterator[Tensor]:
        seen: set[int] = set()
        for _, module in self.modules():
            for tensor in module.parameters.values() if isinstance(module, RecordedModule) else ():
                if id(tensor) not in seen:
                    seen.add(id(tensor))
                    yield tensor

    def modules(self) -> Iterator[tuple[str, Module]]:
        seen: set[int] = set()
        todo: list[tuple[str, RecordedModule]] = [("", self)]
        while todo:
            name, module = todo.pop(0)
            if id(module) in seen:
                continue
            seen.add(id(module))
            yield name, module
            todo = [(f"{name}.{n}" if name else n, m) for n, m in module.children.items()] + todo


@dataclass(eq=False, slots=True)
class Measured:
    """What an optimizer's parameters had for gradients right before a step (or after a backward without one)."""

    index: int
    optimizer: Optimizer | None
    gradients: list[tuple[Tensor, bool, float | None]]
    """Parameter, requires_grad, norm of its gradient (None: `grad is None`; NaN and infinity as they are)."""


@dataclass(eq=False, slots=True)
class Compared:
    """A parameter's gradient at one step, beside that of an earlier run at the same step."""

    step: int
    tensor: Tensor
    before: float | None
    """Its norm in the earlier run, None for `grad is None`."""
    now: float | None
    difference: float
    """The norm of the difference, relative to the larger of the two."""


@dataclass(eq=False, slots=True)
class Failure:
    """An exception that torch raised in a call of the program, or in backward."""

    index: int
    site: Site
    kind: str
    message: str
    backward: Backward | None = None
    op: str = ""


@dataclass(eq=False)
class Recording:
    """One process of a run: its trace, and what was measured."""

    trace: Trace
    rank: str = ""
    process: int = 0
    python: str = ""
    torch: str = ""
    device: str = "cpu"
    """Where the parameters of the outermost module were at last."""
    ended: str = ""
    """'steps', 'end', 'exit', 'raised', 'interrupted'; '' where the process was cut off."""
    error: tuple[str, str] | None = None
    """The exception that ended the program, as its type and message."""
    error_line: tuple[str, int] | None = None
    """The innermost line of the program that it passed."""
    notes: list[str] = field(default_factory=list)
    reached: set[int] = field(default_factory=set)
    """The flags whose statements ran."""
    measured: list[Measured] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    losses: list[tuple[Backward, float | None]] = field(default_factory=list)
    changed: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Per write that no version counter saw, by `id`: how many values it changed, and of how many."""
    compared: list[Compared] = field(default_factory=list)
    neutralised: int = 0
    """How often the fault was left out that this run was to leave out."""
    memory: list[tuple[Stepped, int | None]] = field(default_factory=list)
    outermost: list[RecordedModule] = field(default_factory=list)
    by_hand: int = 0
    """How often weights were changed in place between two backwards, by no optimizer."""
    distributed: list[tuple[RecordedModule, bool]] = field(default_factory=list)
    """Each DistributedDataParallel, and whether it looks for unused parameters."""
    shapes: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Shapes of parameters, by `id`."""
    layer_of: dict[int, RecordedModule] = field(default_factory=dict)
    """The innermost module whose forward was running when a node was made, by the node's `id`."""
    names: dict[int, str] = field(default_factory=dict)
    """Dotted names of parameters under the outermost module, by `id`."""
    away: list[Cut] = field(default_factory=list)
    """Cuts whose values left torch and did not come back as they were: what Python made of them is not known."""
    hidden: set[int] = field(default_factory=set)
    """Nodes by `id` of which hooks (checkpointing, offloading) keep what they saved, so that it cannot be seen."""
    files: set[str] = field(default_factory=set)
    """The files that ran instrumented, by absolute path."""
    sites: dict[str, set[RecordedSite]] = field(default_factory=dict)
    """Every place at which something was observed, by absolute path."""

    @property
    def steps(self) -> int:
        """Steps of optimizers; where there was none, those that the program took by hand."""
        return len(self.trace.told(Stepped)) or self.by_hand


def read(lines: Iterable[str], shown: Callable[[str], str] = lambda path: path) -> Recording:
    """The recording that a journal holds.  `shown`: how a path is to be shown.  A last line cut short is ignored."""
    reader = _Reader(shown)
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:
            break
        reader.record(record)
    return reader.finished()


class _Reader:
    def __init__(self, shown: Callable[[str], str]) -> None:
        self.shown = shown
        self.trace = Trace(entry="run", whole_program=True)
        self.recording = Recording(self.trace)
        self.files: dict[int, SourceFile] = {}
        self.sites: dict[int, Site] = {0: Nowhere()}
        self.frames: dict[int, Frame] = {0: Frame("module")}
        self.turns: dict[int, list[tuple[int, int]]] = {}
        self.loops: dict[int, RecordedSite] = {}
        self.tensors: dict[int, Tensor] = {}
        self.storages: dict[int, Storage] = {}
        self.nodes: dict[int, Node] = {}
        self.pending: list[Node] = []
        """The nodes whose operation has not been told."""
        self.modules: dict[int, RecordedModule] = {}
        self.objects: dict[int, object] = {}
        self.optimizers: dict[int, Optimizer] = {}
        self.built: dict[int, Built] = {}
        self.switch: GradMode | None = None
        self.switch_before: GradMode | None = None
        self.switches: list[GradMode | None] = []
        """What had switched grad mode off around each context that is open."""
        self.latest_mode: tuple[str, GradMode] | None = None
        self.left: dict[int, Cut] = {}
        self.away: dict[int, Cut] = {}
        """Of those that left torch the ones that did not come back as they were."""
        self.calls: list[tuple[RecordedModule, Called]] = []
        self.backwards: list[Backward] = []
        self.gradients: dict[int, Tensor] = {}
        """Storages of gradients, by number: whose."""
        self.lists: dict[int, list[object]] = {}
        self.holds: dict[tuple[int, str], object] = {}
        self.module_numbers: dict[int, int] = {}
        self.named: dict[tuple[int, str], tuple[Any, ...]] = {}
        self.iterators: dict[tuple[int, int], Site] = {}
        self.primary: dict[int, Site] = {}
        """Per flag the first of its statements that ran."""
        self.aliased: list[tuple[frozenset[int], Aliased]] = []
        self.numbers: dict[int, int] = {}
        self.custom: list[int] = []
        """Where in the trace the calls of an `autograd.Function` in progress began."""
        self.scaled: set[int] = set()
        """Nodes by `id` that a gradient scaler's `scale` made."""

    def finished(self) -> Recording:
        self.recording.away = list(self.away.values())
        self.trace.modules = list(self.modules.values())
        for event in self.trace.events:
            if isinstance(event, Assigned) and isinstance(event.value, (list, dict)):
                filled = self.holds.get((self.module_numbers.get(id(event.owner), 0), event.attribute))
                event.value = filled if filled is not None and not event.value else event.value
        self.trace.complete = self.recording.ended in ("end", "exit", "steps")
        self.trace.stopped = self.recording.ended == "steps"
        self.name_members()
        self.flush_nodes()
        recording = self.recording
        for site in self.sites.values():
            if isinstance(site, RecordedSite):
                recording.sites.setdefault(site.file.path, set()).add(site)
        return recording

    def name_members(self) -> None:
        """Give dotted names to the parameters of modules that were never called as the outermost one."""
        inside = {id(child) for module in self.modules.values() for child in module.children.values()}
        for root in self.modules.values():
            if id(root) in inside:
                continue
            for name, module in root.modules():
                for last, tensor in module.parameters.items() if isinstance(module, RecordedModule) else ():
                    dotted = f"{name}.{last}" if name else last
                    if id(tensor) not in self.recording.names:
                        tensor.name = dotted
                        self.recording.names[id(tensor)] = dotted

    def record(self, record: list[Any]) -> None:
        kind = record[0]
        if kind != "node" and self.pending and kind not in _MAY_FOLLOW_NODES:
            self.flush_nodes()
        getattr(self, "on_" + kind, self.ignore)(*record[1:])

    def ignore(self, *_: Any) -> None:
        """A record of a newer child, or one that only the report reads."""

    # -- the process

    def on_process(self, process: int, rank: str, python: str, world: str) -> None:
        self.recording.process, self.recording.rank, self.recording.python = process, rank if world else "", python

    def on_rank(self, rank: str, world: str) -> None:
        self.recording.rank = rank

    def on_torch(self, version: str, cuda: bool) -> None:
        self.recording.torch = version

    def on_note(self, text: str) -> None:
        if text not in self.recording.notes:
            self.recording.notes.append(text)

    def on_error(self, kind: str, message: str, place: Any) -> None:
        self.recording.error = kind, message
        self.recording.error_line = (place[0], place[1]) if place else None

    def on_end(self, why: str) -> None:
        self.recording.ended = why

    def on_file(self, number: int, path: str) -> None:
        self.files[number] = SourceFile(path, self.shown(path))

    def on_instrumented(self, file: int) -> None:
        self.recording.files.add(self.files[file].path)

    def on_site(
        self, number: int, file: int, line: int | None, column: int | None, end_line: int | None, end_column: int | None
    ) -> None:
        self.sites[number] = self.files[file].site(line or 1, column, end_line or line or 1, end_column)

    def on_loop(self, number: int, file: int, span: list[int], around: list[int]) -> None:
        self.loops[number] = self.files[file].site(*span)

    def on_call(self, number: int, function: str, place: int, caller: int, owner: int) -> None:
        name = "module" if function == "<module>" else function
        self.frames[number] = Frame(
            name,
            self.sites[place] if place else None,
            self.frames.get(caller) if caller else None,
            self.modules.get(owner),
        )

    def on_turn(self, call: int, turns: list[list[int]]) -> None:
        self.turns[call] = [(loop, number) for loop, number in turns]
        self.numbers.setdefault(id(self.frames[call]), call)

    def around(self, site: Site, call: int) -> tuple[tuple[Site, int], ...]:
        """The loops around a place, through the calls that led to it, outermost first."""
        found: list[list[tuple[Site, int]]] = []
        frame: Frame | None = self.frames.get(call)
        place: Site | None = site
        while frame is not None:
            number = self.numbers.get(id(frame))
            inside: list[tuple[Site, int]] = []
            for loop, turn in self.turns.get(number, ()) if number is not None else ():
                at = self.loops[loop]
                if isinstance(place, RecordedSite) and place.file is at.file and at.key[0] <= place.key[0] <= at.key[2]:
                    inside.append((at, turn))
            found.append(inside)
            place, frame = frame.call, frame.caller
        return tuple(turn for inside in reversed(found) for turn in inside)

    def where(self, site: int, call: int) -> dict[str, Any]:
        place = self.sites[site]
        return {"site": place, "frame": self.frames[call], "turns": self.around(place, call)}

    def tell(self, event: Event) -> None:
        event.index = len(self.trace.events)
        self.trace.events.append(event)

    # -- tensors and nodes

    def storage(self, number: int) -> Storage:
        storage = self.storages.get(number)
        if storage is None:
            storage = self.storages[number] = Storage()
        return storage

    def on_tensor(self, number: int, storage: int, base: int, parameter: bool, shape: list[int]) -> None:
        tensor = Tensor(requires_grad=NO, storage=self.storage(storage), is_parameter=parameter)
        tensor.base = self.tensors.get(base) if base else None
        if tensor.base is not None:
            tensor.data_of, tensor.grad_of = tensor.base.data_of, tensor.base.grad_of
        owner = self.gradients.get(storage)
        if owner is not None:
            tensor.grad_of = owner
        self.tensors[number] = tensor
        if parameter:
            self.recording.shapes[id(tensor)] = tuple(shape)

    def at(self, state: list[Any]) -> Edge:
        """The tensor as it was: the edge that an operation saw; the tensor itself is brought up to date."""
        number, requires_grad, node, version = state
        tensor = self.tensors[number]
        function = self.nodes.get(node) if node else None
        tensor.requires_grad = Known.of(requires_grad)
        tensor.grad_fn = function
        tensor.storage.version = version
        return Edge(tensor, function, version, tensor.requires_grad)

    def on_node(self, number: int, name: str, edges: list[Any], saved: list[Any]) -> None:
        node = Node(_snake(name), self.sites[0], index=len(self.trace.events))
        self.nodes[number] = node
        self.pending.append(node)
        node.inputs = tuple(self.edge(kind, target) for kind, target in edges)
        if any(not storage for _, storage, _ in saved):
            self.recording.hidden.add(id(node))
        node.saved = tuple(
            Saved(self.storage(storage) if storage else Storage(), version, role, certain=True)
            for role, storage, version in saved
        )

    def edge(self, kind: str, target: int) -> Edge:
        if kind == "leaf":
            leaf = self.tensors[target]
            leaf.requires_grad = YES
            return Edge(leaf, None, leaf.storage.version, YES)
        node = self.nodes[target]
        return Edge(Tensor(requires_grad=YES, grad_fn=node), node, 0, YES)

    def flush_nodes(self) -> None:
        """Nodes that no operation of the program claims stay as torch named them."""
        self.pending.clear()

    # -- operations

    def on_op(
        self,
        site: int,
        call: int,
        raw_name: str,
        via: str,
        grad_enabled: bool,
        inputs: list[Any],
        outputs: list[Any],
        mutated: list[Any],
        dropped: bool,
        extra: dict[str, Any],
    ) -> None:
        where = self.where(site, call)
        name = _NAMES.get(raw_name, raw_name)
        changed = {inputs[at][0] for at, _ in mutated if inputs[at] is not None}
        if not name.startswith("__") and not name.endswith("_") and any(o[0] in changed for o in outputs):
            # `inplace=True`.
            name += "_"
        edges = [self.at(state) for state in inputs if state is not None]
        cuts_before = {id(e.tensor): e.tensor.cuts for e in edges}
        constants = [self.left[number] for number in extra.get("back", ()) if number in self.left]
        for number in extra.get("back", ()):
            self.away.pop(number, None)
        if via == "__init__" and name.endswith("_") and not self.backwards:
            # How layers fill their own parameters is no event of the program.
            for state in extra.get("now", ()):
                self.at(state)
            self.pending.clear()
            return
        written = [self.mutation(where, name, via, inputs, at, version, grad_enabled) for at, version in mutated]
        for event in written:
            self.tell(event)
            event.storage.mutations.append(event)
            if "changed" in extra:
                self.recording.changed[id(event)] = extra["changed"][0], extra["changed"][1]
        results = [self.at(state) for state in outputs]
        for state in extra.get("now", ()):
            self.at(state)
        self.claim(name, via, where["site"], edges, constants)
        fact = facts.function(f"torch.{name}") or facts.method(name)
        like = name in _LIKE or (fact is not None and (fact.like or fact.factory))
        gradient = any(e.requires_grad is YES for e in edges)
        for result in results:
            tensor = result.tensor
            if tensor.site is None:
                tensor.site = where["site"] if where["site"].known else None
            if name in ("chunk", "split", "unbind", "tensor_split", "hsplit", "vsplit", "dsplit", "split_with_sizes"):
                tensor.multi_view = len(results) > 1
            copied = name == "tensor" and result.grad_fn is None
            if result.requires_grad is YES and not copied:
                tensor.cuts = ()
            elif not like:
                # Of several results, one may be a view of an operand that has no gradient.
                same = [e for e in edges if e.tensor.storage is tensor.storage] if len(results) > 1 else []
                own = same if same and all(e.requires_grad is NO for e in same) else edges
                cut = gradient and own is edges
                self.cut_result(where, name, via, grad_enabled, own, tensor, cuts_before, constants, cut)
            self.note(name, via, tensor, edges)
            self.tell(Made(**where, op=name, inputs=tuple(edges), output=tensor, node=result.grad_fn))
        for event in written:
            base = event.tensor.base
            if event.tensor.requires_grad is NO:
                self.cut_result(
                    where,
                    name,
                    via,
                    grad_enabled,
                    edges,
                    event.tensor,
                    cuts_before,
                    constants,
                    gradient and not grad_enabled,
                )
                if base is not None and base.requires_grad is NO:
                    base.cuts = _joined(base.cuts, event.tensor.cuts)
            if event.tensor.grad_of is not None and name in ("zero_", "fill_"):
                self.tell(Cleared(**where, tensors=(event.tensor.grad_of,), in_place=True))
            if not results:
                self.tell(Made(**where, op=name, inputs=tuple(edges), output=event.tensor, node=event.tensor.grad_fn))
        if extra.get("custom"):
            self.after_custom(where, name, results)
        self.sum(where, name, edges, results)
        if dropped and results and not written:
            self.discarded(where, name, edges, results, fact)

    def claim(self, name: str, via: str, site: Site, edges: list[Edge], constants: list[Cut]) -> None:
        """The nodes that were told right before are this operation's: give them its name, place and operands."""
        for node in self.pending:
            if via == "scale" and name == "mul":
                self.scaled.add(id(node))
            if self.calls:
                self.recording.layer_of[id(node)] = self.calls[-1][0]
            node.op = name
            node.site = site
            node.constants = tuple(constants)[:_MOST_CUTS]
            node.module = self.calls[-1][0] if self.calls and self.calls[-1][0].of_torch and via else None
            by_node = {id(e.grad_fn): e for e in edges if e.grad_fn is not None}
            by_leaf = {id(e.tensor): e for e in edges}
            inputs = []
            for edge in node.inputs:
                if edge.grad_fn is not None:
                    inputs.append(by_node.get(id(edge.grad_fn), edge))
                else:
                    inputs.append(by_leaf.get(id(edge.tensor), edge))
            inputs += [e for e in edges if e.requires_grad is NO]
            node.inputs = tuple(inputs)
        self.pending.clear()

    def mutation(
        self, where: dict[str, Any], name: str, via: str, inputs: list[Any], at: int, version: int, grad_enabled: bool
    ) -> Mutated:
        before = inputs[at]
        tensor = self.tensors[before[0]]
        tracked = tensor.data_of is None
        others = [self.tensors[s[0]] for i, s in enumerate(inputs) if s is not None and s[0] != before[0]]
        by: Module | None = None
        if self.calls and self.calls[-1][0].of_torch and via:
            by = self.calls[-1][0]
        site = where["site"]
        named = False
        outermost = next((m for m, called in self.calls if called.site is site), None)
        if isinstance(site, RecordedSite) and (outermost is None or outermost is by):
            statement = site.file.statement(site)
            named = (
                isinstance(statement, ast.Assign)
                and isinstance(statement.targets[0], ast.Name)
                and (site.key[1] is None or site.key[:2] == (statement.value.lineno, statement.value.col_offset))
            )
        return Mutated(
            **where,
            tensor=tensor,
            storage=tensor.storage,
            op=name,
            tracked=tracked,
            grad_enabled=grad_enabled,
            version=version,
            by=by,
            value=others[0] if len(others) == 1 else None,
            named=named,
        )

    def cut_result(
        self,
        where: dict[str, Any],
        name: str,
        via: str,
        grad_enabled: bool,
        edges: list[Edge],
        tensor: Tensor,
        before: Mapping[int, tuple[Cut, ...]],
        constants: list[Cut],
        gradient: bool,
    ) -> None:
        inherited = [cut for e in edges if e.requires_grad is NO for cut in before[id(e.tensor)]]
        cuts = _joined(tuple(inherited), tuple(constants))
        if gradient:
            how = name if grad_enabled else "no_grad"
            if via in ("sample", "sample_n"):
                how = "sample"
            for edge in edges:
                if edge.requires_grad is YES and edge.tensor is not tensor:
                    cut = self.cut(where, edge, tensor, how)
                    cuts = (*cuts, cut)
        tensor.cuts = cuts[-_MOST_CUTS:]

    def cut(self, where: dict[str, Any], source: Edge, result: Tensor | None, how: str) -> Cut:
        while source.grad_fn is None and source.requires_grad is YES and source.tensor.base is not None:
            # Under no_grad a view of a leaf requires grad too, and has no graph that says of what it is a view.
            base = source.tensor.base
            source = Edge(base, base.grad_fn, base.storage.version, base.requires_grad)
        event = Cut(**where, source=source, result=result, how=how, switch=self.switch if how == "no_grad" else None)
        self.tell(event)
        return event

    def note(self, name: str, via: str, tensor: Tensor, edges: list[Edge]) -> None:
        others = [e.tensor for e in edges]
        if via == "log_prob":
            tensor.note = "log_prob"
        elif name in _QUANTIZING:
            tensor.note = "quantized"
        elif any(t.grad_of is not None or t.note == "gradient" for t in others) and tensor.requires_grad is NO:
            tensor.note = "gradient"
        elif any(t.note == "quantized" for t in others):
            tensor.note = "quantized"
        elif others and others[0].note == "log_prob" and len(others) == 1:
            tensor.note = "log_prob"

    def after_custom(self, where: dict[str, Any], name: str, results: list[Edge]) -> None:
        """A reentrant checkpoint whose result has no graph has cut off the layers inside."""
        if name == "CheckpointFunction" and self.custom:
            inside = self.trace.events[self.custom.pop() :]
            sources = [e.source for e in inside if isinstance(e, Cut) and e.how == "no_grad"]
            for result in results:
                if result.requires_grad is NO and sources:
                    result.tensor.cuts = (self.cut(where, sources[-1], result.tensor, "checkpoint"),)
        elif self.custom:
            self.custom.pop()

    def sum(self, where: dict[str, Any], name: str, edges: list[Edge], results: list[Edge]) -> None:
        """A running sum in a loop keeps every graph that went into it."""
        site = where["site"]
        if name not in ("add", "add_") or not where["turns"] or not isinstance(site, RecordedSite):
            return
        statement = site.file.statement(site)
        if not isinstance(statement, ast.AugAssign) or not results:
            return
        target = statement.target
        label = target.id if isinstance(target, ast.Name) else target.attr if isinstance(target, ast.Attribute) else ""
        place = site.file.site(
            statement.lineno,
            statement.col_offset if site.key[1] is not None else None,
            statement.end_lineno or statement.lineno,
            statement.end_col_offset if site.key[1] is not None else None,
        )
        if site.key[1] is not None and (site.key[0], site.key[1]) != (statement.lineno, statement.col_offset):
            # An addition on the right-hand side.
            return
        added = edges[-1]
        if added.requires_grad is YES and added.grad_fn is not None:
            total = results[0].tensor
            held = Tensor(requires_grad=total.requires_grad, grad_fn=total.grad_fn, storage=total.storage)
            self.tell(
                Stored(
                    **{**where, "site": place},
                    tensor=added.tensor,
                    where="sum",
                    grows=True,
                    name=label,
                    container=held,
                )
            )

    def discarded(
        self, where: dict[str, Any], name: str, edges: list[Edge], results: list[Edge], fact: facts.Op | None
    ) -> None:
        if (
            fact is None
            or fact.mutates
            or name.endswith("_")
            or any(r.tensor is e.tensor for r in results for e in edges)
        ):
            return
        operand = edges[0].tensor if edges else None
        self.tell(
            Discarded(
                **where,
                op=name,
                in_place=f"{name}_" if facts.method(f"{name}_") is not None else "",
                operand=operand,
                operand_name=operand.name if operand is not None else "",
                certain=operand is not None,
            )
        )

    # -- ways out of the graph

    def on_custom(self, name: str) -> None:
        self.custom.append(len(self.trace.events))

    def on_copied(self, original: int, copy: int) -> None:
        first, second = self.tensors[original], self.tensors[copy]
        second.site, second.name, second.is_parameter = first.site, first.name, first.is_parameter

    def on_data(self, site: int, call: int, source: list[Any], result: list[Any]) -> None:
        where = self.where(site, call)
        edge, made = self.at(source), self.at(result)
        tensor = made.tensor
        tensor.data_of = edge.tensor.data_of or edge.tensor
        tensor.grad_of = edge.tensor.grad_of
        tensor.cuts = edge.tensor.cuts
        tensor.site = tensor.site or where["site"]
        if edge.requires_grad is YES:
            tensor.cuts = (self.cut(where, edge, tensor, "data"),)

    def on_variable(self, site: int, call: int, source: list[Any], result: list[Any]) -> None:
        where = self.where(site, call)
        edge, made = self.at(source), self.at(result)
        made.tensor.site = made.tensor.site or where["site"]
        cut = edge.requires_grad is YES and made.tensor is not edge.tensor
        made.tensor.cuts = (self.cut(where, edge, made.tensor, "Variable"),) if cut else edge.tensor.cuts

    def on_leaves(self, site: int, call: int, name: str, source: list[Any], number: int) -> None:
        where = self.where(site, call)
        edge = self.at(source)
        how = {"__float__": "float", "__int__": "int", "__bool__": "bool", "__array__": "numpy"}.get(name, name)
        if edge.requires_grad is YES:
            self.left[number] = self.cut(where, edge, None, how)
        elif edge.tensor.cuts:
            self.left[number] = edge.tensor.cuts[-1]
        if number in self.left and how not in ("bool", "int", "__index__"):
            self.away[number] = self.left[number]

    def on_gradient(self, tensor: int, parameter: int, storage: int) -> None:
        owner = self.tensors[parameter]
        self.tensors[tensor].grad_of = owner
        self.gradients[storage] = owner

    def on_grad_mode(self, site: int, call: int, enabled: bool, via: str, before: bool) -> None:
        where = self.where(site, call)
        if via == "__exit__":
            # A context ends: what it switched, it switched for a while.
            outer = self.switches.pop() if self.switches else None
            self.switch = None if enabled else outer
            self.tell(GradMode(**where, enabled=enabled, scoped=True))
            return
        if via not in ("", "__init__", "__enter__", "decorate_context"):
            # A function of torch's switches for itself.
            if enabled:
                self.switch = None
            return
        if self.latest_mode is not None and via == "__enter__":
            previous, event = self.latest_mode
            if previous == "__init__" and event.frame is where["frame"] and event.enabled == enabled:
                event.scoped = True
                self.latest_mode = None
                self.switches.append(self.switch_before)
                return
        event = GradMode(**where, enabled=enabled, scoped=via in ("__enter__", "decorate_context"))
        self.latest_mode = via, event
        self.tell(event)
        self.switch_before = self.switch
        if via == "__enter__":
            self.switches.append(self.switch)
        self.switch = None if enabled else event

    # -- writes

    def on_set_data(self, site: int, call: int, target: list[Any], value: list[Any] | None, storage: int) -> None:
        where = self.where(site, call)
        tensor = self.tensors[target[0]]
        given = self.at(value).tensor if value is not None else None
        before = tensor.storage
        event = Mutated(
            **where,
            tensor=tensor,
            storage=before,
            op="data =",
            tracked=False,
            grad_enabled=True,
            version=before.version,
            value=given,
        )
        self.tell(event)
        before.mutations.append(event)
        tensor.storage = self.storage(storage)
        self.at(target)

    def on_set_grad(self, site: int, call: int, tensor: int, value: list[Any]) -> None:
        owner = self.tensors[tensor]
        given = self.at(value).tensor
        given.grad_of = given.grad_of or owner
        self.tell(GradAssigned(**self.where(site, call), tensor=owner))

    def on_cleared(self, site: int, call: int, tensors: list[int], optimizer: int, in_place: bool) -> None:
        self.tell(
            Cleared(
                **self.where(site, call),
                tensors=tuple(self.tensors[t] for t in tensors),
                optimizer=self.optimizers.get(optimizer),
                in_place=in_place,
            )
        )

    def on_froze(self, site: int, call: int, state: list[Any], was: bool | None) -> None:
        edge = self.at(state)
        if edge.grad_fn is None:
            self.tell(Froze(**self.where(site, call), tensor=edge.tensor, enabled=edge.requires_grad))

    def on_raised(
        self, site: int, call: int, name: str, inputs: list[Any], kind: str, message: str, grad_enabled: bool
    ) -> None:
        where = self.where(site, call)
        edges = [self.at(s) for s in inputs]
        op = _NAMES.get(name, name)
        self.recording.failures.append(Failure(len(self.trace.events), where["site"], kind, message, op=op))
        refused = "in-place" in message or "inplace" in message or "view" in message
        if edges and refused and (op.endswith("_") or op == "__setitem__") and kind == "RuntimeError":
            target = edges[0].tensor
            root = target.base or target
            event = Mutated(
                **where,
                tensor=target,
                storage=target.storage,
                op=op,
                tracked=True,
                grad_enabled=grad_enabled,
                version=target.storage.version,
                leaf="leaf" in message or (root.grad_fn is None and root.requires_grad is YES),
                multi_view="output of a function that returns multiple views" in message,
                value=edges[1].tensor if len(edges) == 2 else None,
            )
            self.tell(event)

    # -- backward

    def on_backward(
        self,
        site: int,
        call: int,
        roots: list[Any],
        retain: bool,
        create: bool,
        wanted: list[int] | None,
        is_grad: bool,
        depth: int,
        loss: float | None,
    ) -> None:
        where = self.where(site, call)
        edges = [self.at(state) for state in roots]
        self.pending.clear()
        names = tuple(self.tensors[n] for n in wanted) if wanted is not None and is_grad else None
        edge = edges[0] if edges else Edge(Tensor(requires_grad=NO), None, 0, NO)
        if len(edges) > 1:
            node = Node("add", where["site"], tuple(edges), index=len(self.trace.events))
            root = Tensor(requires_grad=YES, grad_fn=node)
            edge = Edge(root, node, 0, YES)
        scaled = edge.grad_fn is not None and id(edge.grad_fn) in self.scaled
        if depth and self.backwards:
            # A recomputed part of the graph: the outer backward goes through it.
            outer = self.backwards[-1].edge.grad_fn
            if outer is not None:
                outer.inputs = (*outer.inputs, *edges)
            return
        event = Backward(
            **where,
            root=edge.tensor,
            edge=edge,
            retain=Known.of(retain),
            create=Known.of(create),
            wanted=names,
            scaled=scaled,
        )
        self.tell(event)
        self.backwards.append(event)
        self.recording.losses.append((event, loss))

    def on_by_hand(self, site: int, call: int) -> None:
        self.recording.by_hand += 1

    def on_backward_raised(self, kind: str, message: str) -> None:
        if self.backwards:
            last = self.backwards[-1]
            # A backward inside another one lets its error through.
            if any(f.backward is last and f.message == message for f in self.recording.failures):
                return
            self.recording.failures.append(Failure(last.index, last.site, kind, message, backward=last))

    def on_grads(self, states: list[Any]) -> None:
        """What `torch.autograd.grad` gave."""
        if not self.backwards:
            return
        last = self.backwards[-1]
        names: tuple[Tensor, ...] = last.wanted or ()
        for node in self.pending:
            node.op, node.site = "grad", last.site
        self.pending.clear()
        for i, state in enumerate(states):
            edge = self.at(state)
            edge.tensor.note = "gradient"
            edge.tensor.site = edge.tensor.site or last.site
            if i < len(names) and len(names) == len(states):
                edge.tensor.grad_of = edge.tensor.grad_of or names[i]

    def on_gradients(self, optimizer: int, rows: list[Any]) -> None:
        gradients = [
            (self.tensors[number], requires_grad, float(norm) if norm is not None else None)
            for number, requires_grad, norm in rows
        ]
        self.recording.measured.append(Measured(len(self.trace.events), self.optimizers.get(optimizer), gradients))

    # -- optimizers

    def on_group(self, site: int, call: int, number: int, kind: str, states: list[Any]) -> None:
        where = self.where(site, call)
        edges = tuple(self.at(s) for s in states)
        optimizer = self.optimizers.get(number)
        if optimizer is None:
            optimizer = self.optimizers[number] = Optimizer(kind, where["site"])
        before = self.built.get(number)
        optimizer.parameters += [e.tensor for e in edges]
        if before is not None and before.site is where["site"] and before.frame is where["frame"]:
            first = before.groups or (tuple(e.tensor for e in before.parameters),)
            before.groups = (*first, tuple(e.tensor for e in edges))
            before.parameters = (*before.parameters, *edges)
            return
        self.built[number] = event = Built(**where, optimizer=optimizer, parameters=edges)
        self.tell(event)

    def on_step(
        self,
        site: int,
        call: int,
        number: int,
        kind: str,
        closure: bool,
        scaler: int,
        parameters: list[int],
        changed: list[Any],
        memory: int | None,
    ) -> None:
        where = self.where(site, call)
        optimizer = self.optimizers.get(number)
        if optimizer is None:
            optimizer = self.optimizers[number] = Optimizer(kind, where["site"])
        optimizer.parameters = [self.tensors[p] for p in parameters]
        event = Stepped(**where, optimizer=optimizer, scaler=self.thing(scaler) if scaler else None, closure=closure)
        self.tell(event)
        for parameter, version in changed:
            tensor = self.tensors[parameter]
            tensor.storage.version = version
            write = Mutated(
                **where,
                tensor=tensor,
                storage=tensor.storage,
                op="step",
                tracked=True,
                grad_enabled=False,
                version=version,
                by=optimizer,
            )
            self.tell(write)
            tensor.storage.mutations.append(write)
        self.recording.memory.append((event, memory))

    def thing(self, number: int) -> object:
        return self.objects.setdefault(number, object())

    def on_clipped(self, site: int, call: int, tensors: list[int], by: str) -> None:
        where = self.where(site, call)
        self.tell(Clipped(**where, tensors=tuple(self.tensors[t] for t in tensors)))

    def on_scaler(self, site: int, call: int, scaler: int, name: str, optimizer: int) -> None:
        self.tell(
            Scaler(
                **self.where(site, call),
                scaler=self.thing(scaler),
                call=name,
                optimizer=self.optimizers.get(optimizer),
            )
        )

    def on_scheduler(self, site: int, call: int, optimizer: int) -> None:
        self.tell(SchedulerStepped(**self.where(site, call), optimizer=self.optimizers.get(optimizer)))

    # -- modules

    def on_module(self, number: int, kind: str, of_torch: bool) -> None:
        module = self.modules[number] = RecordedModule(kind, of_torch=of_torch)
        self.module_numbers[id(module)] = number

    def on_constructed(self, site: int, call: int, number: int) -> None:
        where = self.where(site, call)
        module = self.modules[number]
        module.site = where["site"] if where["site"].known else None
        self.tell(Constructed(**where, module=module))

    def on_made(self, site: int, call: int, state: list[Any]) -> None:
        edge = self.at(state)
        edge.tensor.site = edge.tensor.site or self.sites[site]

    def on_registered(self, site: int, call: int, number: int, name: str, what: str, member: int, new: bool) -> None:
        module = self.modules[number]
        if what == "module":
            module.children[name] = self.modules[member]
            return
        tensor = self.tensors[member]
        if tensor.owner is None:
            tensor.owner = module
        if tensor.site is None and self.sites[site].known:
            tensor.site = self.sites[site]
        tensor.name = tensor.name or name
        if what == "parameter":
            tensor.is_parameter = True
            module.parameters[name] = tensor

    def on_attribute(self, site: int, call: int, number: int, name: str, value: Any, replaced: Any) -> None:
        where = self.where(site, call)
        module = self.modules[number]
        if value is not None and value[0] == "bool":
            self.tell(AttributeSet(**where, owner=module, attribute=name, value=value[1]))
            return
        held, old = self.value(value), self.value(replaced)
        if isinstance(held, RecordedModule):
            module.children[name] = held
        elif isinstance(old, RecordedModule):
            module.children.pop(name, None)
        if isinstance(held, Tensor) and held.is_parameter:
            module.parameters[name] = held
        elif isinstance(old, Tensor) and module.parameters.get(name) is old:
            del module.parameters[name]
        self.stored(where, held, "attribute", name)
        if not module.of_torch:
            self.tell(Assigned(**where, owner=module, attribute=name, value=held, replaced=old))

    def stored(self, where: dict[str, Any], value: object, how: str, name: str) -> None:
        if not where["turns"]:
            return
        for tensor in members(value, Tensor):
            if (tensor.requires_grad is YES and tensor.grad_fn is not None) or tensor.grad_of is not None:
                self.tell(Stored(**where, tensor=tensor, where=how, grows=False, name=name))

    def value(self, shown: Any) -> object:
        if shown is None:
            return None
        kind = shown[0]
        if kind == "tensor":
            return self.at(shown[1:]).tensor
        if kind == "module":
            return self.modules[shown[1]]
        if kind == "list":
            return [self.value(v) for v in shown[1]]
        if kind == "tuple":
            return tuple(self.value(v) for v in shown[1])
        if kind == "dict":
            return {k: self.value(v) for k, v in shown[1]}
        return None

    def on_called(self, site: int, call: int, number: int, arguments: list[int], training: bool) -> None:
        module = self.modules[number]
        module.training = Known.of(training)
        module.calls += 1
        event = Called(**self.where(site, call), module=module, arguments=tuple(self.tensors[a] for a in arguments))
        self.tell(event)
        self.calls.append((module, event))

    def on_calls(self, number: int, more: int) -> None:
        self.modules[number].calls += more

    def on_returning(self, call: int, file: int, span: list[int]) -> None:
        self.last_return = self.files[file].site(*span), self.frames.get(call)

    last_return: tuple[RecordedSite, Frame | None] | None = None

    def on_returned(self, site: int, call: int, number: int, outputs: list[Any]) -> None:
        module = self.modules[number]
        called: Called | None = None
        while self.calls:
            inner, event = self.calls.pop()
            if inner is module:
                called = event
                break
        states = tuple((place, self.at(state).tensor) for place, state in outputs)
        if called is None:
            return
        place = None
        if self.last_return is not None and self.last_return[1] is not None and self.last_return[1].owner is module:
            place = self.last_return[0]
        self.tell(Returned(**self.where(site, call), module=module, called=called, outputs=states, place=place))

    def on_tree(self, number: int, inner: list[Any], parameters: list[Any], device: str = "") -> None:
        root = self.modules[number]
        self.recording.device = device or self.recording.device
        if root not in self.recording.outermost:
            self.recording.outermost.append(root)
        by_name = {}
        for name, member in inner:
            module = self.modules[member]
            module.name = module.name or name
            by_name[name] = module
            # What it no longer holds is gone: sharding takes parameters out of their layers.
            module.parameters, module.children = {}, {}
            if name:
                parent, _, last = name.rpartition(".")
                if parent in by_name:
                    by_name[parent].children[last] = module
        for name, tensor_number, requires_grad in parameters:
            tensor = self.tensors[tensor_number]
            tensor.requires_grad = Known.of(requires_grad)
            tensor.name = name
            tensor.is_parameter = True
            parent, _, last = name.rpartition(".")
            if parent in by_name:
                by_name[parent].parameters[last] = tensor
                tensor.owner = tensor.owner or by_name[parent]
            self.recording.names.setdefault(id(tensor), name)

    def on_holds(self, number: int, name: str, value: Any) -> None:
        """What a plain container of a module has come to hold since it was assigned."""
        self.holds[number, name] = self.value(value)

    def on_compared(self, optimizer: int, step: int, rows: list[Any]) -> None:
        self.recording.compared += [
            Compared(step, self.tensors[number], before, now, difference) for number, before, now, difference in rows
        ]

    def on_neutralised(self, times: int) -> None:
        self.recording.neutralised = times

    def on_ddp(self, number: int, find_unused_parameters: bool, static_graph: bool) -> None:
        self.recording.distributed.append((self.modules[number], find_unused_parameters or static_graph))

    def on_mode(self, site: int, call: int, number: int, training: bool) -> None:
        module = self.modules[number]
        for _, inner in module.modules():
            inner.training = Known.of(training)
        self.tell(Mode(**self.where(site, call), module=module, training=Known.of(training)))

    def on_state_dict(self, site: int, call: int, number: int, storages: list[int]) -> None:
        module = self.modules[number]
        event = Aliased(**self.where(site, call), module=module, storages=tuple(self.storage(s) for s in storages))
        self.tell(event)
        self.aliased.append((frozenset(storages), event))

    def on_load_state_dict(self, site: int, call: int, number: int, storages: list[int]) -> None:
        module = self.modules[number]
        given = frozenset(storages)
        alias = next((a for own, a in reversed(self.aliased) if own == given and a.module is module), None)
        if alias is not None and given:
            self.tell(Restored(**self.where(site, call), module=module, alias=alias))

    # -- flagged statements

    def on_reached(self, site: int, call: int, flag: int, when: str) -> None:
        self.recording.reached.add(flag)
        place = self.sites[site]
        if isinstance(place, RecordedSite) and flag % PLACES == 0 and flag not in self.primary:
            statement = place.file.statement(place)
            if statement is not None:
                self.primary[flag] = place.file.site(
                    statement.lineno, statement.col_offset, statement.end_lineno or 0, statement.end_col_offset
                )

    def on_appended(self, site: int, call: int, flag: int, span: list[int], container: int, items: list[Any]) -> None:
        where = self.where(site, call)
        held = self.lists.setdefault(container, [])
        held[:] = [self.value(item) for item in items]
        place = where["site"]
        if isinstance(place, RecordedSite):
            where["site"] = place.file.site(*span)
        if not where["turns"] or not held:
            return
        for tensor in members(held[-1], Tensor):
            if tensor.requires_grad is YES and tensor.grad_fn is not None:
                self.tell(Stored(**where, tensor=tensor, where="append", grows=True, container=held))

    def on_named(
        self, site: int, call: int, flag: int, when: str, name: str, value: Any, is_spent: bool | None
    ) -> None:
        held = self.value(value)
        if when == "before":
            self.named[flag, name] = (held, call)
            return
        before = self.named.pop((flag, name), (None, 0))[0]
        where = self.where(site, call)
        self.stored(where, held, "name", name)
        if isinstance(before, Tensor) and before is not held and before.grad_fn is None:
            if before.requires_grad is YES:
                self.tell(Assigned(**where, owner=None, attribute=name, value=held, replaced=before))
            place = where["site"]
            statement = place.file.statement(place) if isinstance(place, RecordedSite) else None
            alone = isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)
            if where["turns"] and alone and isinstance(held, Tensor):
                self.tell(Rebound(**where, variable=name, tensor=before))

    def on_item(self, site: int, call: int, flag: int, value: Any, span: list[int]) -> None:
        where = self.where(site, call)
        self.stored(where, self.value(value), "item", "")

    def on_iterator(self, site: int, call: int, flag: int, span: list[int], address: int, is_spent: bool) -> None:
        where = self.where(site, call)
        place = where["site"]
        if isinstance(place, RecordedSite):
            place = place.file.site(*span)
        finding = flag // PLACES
        first = self.iterators.setdefault((finding, address), place)
        if is_spent and first is not place:
            made = self.primary.get(finding * PLACES)
            if made is not None:
                self.tell(Exhausted(**{**where, "site": place}, what="iterator", made=made, first=first))

    def on_attribute_of(
        self,
        site: int,
        call: int,
        flag: int,
        when: str,
        kind: str,
        owner: int,
        attribute: str,
        value: Any,
        plain: bool | None,
        address: int,
        span: list[int],
    ) -> None:
        where = self.where(site, call)
        held = self.value(value)
        if when == "before":
            self.named[flag, attribute] = (held, address)
            return
        before = self.named.pop((flag, attribute), (None, 0))
        if kind == "tensor":
            if plain is not None and attribute not in ("requires_grad", "data", "grad"):
                self.tell(AttributeSet(**where, owner=self.tensors[owner], attribute=attribute, value=plain))
            return
        if owner in self.modules:
            return
        self.stored(where, held, "attribute", attribute)
        old = before[0] if before[1] == address else None
        if isinstance(held, (Tensor, RecordedModule)) or isinstance(old, RecordedModule):
            self.tell(
                Assigned(
                    **where,
                    owner=self.thing(-address),
                    attribute=attribute,
                    value=held,
                    replaced=old if old is not held else None,
                )
            )


def _joined(some: tuple[Cut, ...], more: tuple[Cut, ...]) -> tuple[Cut, ...]:
    return tuple({id(cut): cut for cut in (*some, *more)}.values())[:_MOST_CUTS]


def _snake(name: str) -> str:
    """`NllLossBackward0` as `nll_loss`."""
    bare = name.rpartition("::")[2].rstrip("0123456789").removesuffix("Backward")
    out = []
    for at, char in enumerate(bare):
        if char.isupper() and at and not bare[at - 1].isupper():
            out.append("_")
        out.append(char.lower())
    return "".join(out)
