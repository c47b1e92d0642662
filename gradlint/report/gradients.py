"""The gradient report for a terminal, and what both ways of telling it share: the tree of layers, folded to be read."""

from __future__ import annotations

import enum
import itertools
import math
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gradlint.gradients import (
    Gradient,
    GradientReport,
    GradientStop,
    Layer,
    ParameterGradient,
    StaleGradient,
    Step,
    UnreadOutput,
)
from gradlint.trace import Span

ROWS = 36
"""So many lines of layers are read in one look; a larger model is folded until it has no more."""
ALIKE = 8
"""A longer run of siblings that share one trouble is one row, which still says so."""
NAMES = 8
"""A list of names that explains something is cut after so many."""
STEPS = 9
MEASURED = 2
"""At more steps than this, the last norm is shown beside the first."""
WIDTH = 100
BAR = 16
VALUE = 23

Piece = tuple[str, str]
"""Some text and its style."""


class State(enum.Enum):
    """What gradients came to a layer or several, from the worst to none expected."""

    NONFINITE = "non-finite"
    NONE = "none"
    NEVER = "never ran"
    ZERO = "exactly zero"
    FLOWS = "flows"
    FROZEN = "frozen"
    PLAIN = "no parameters"

    @property
    def bad(self) -> bool:
        return self in (State.NONFINITE, State.NONE, State.NEVER, State.ZERO)


_STATES = {
    Gradient.FINITE: State.FLOWS,
    Gradient.ZERO: State.ZERO,
    Gradient.NONFINITE: State.NONFINITE,
    Gradient.NONE: State.NONE,
    Gradient.FROZEN: State.FROZEN,
}
# Their owners read the weights of these and never call them.
_UNCALLED = ("ParameterList", "ParameterDict", "NonDynamicallyQuantizableLinear")
_STYLES = {
    State.NONFINITE: "magenta bold",
    State.NONE: "red bold",
    State.NEVER: "bright_black bold",
    State.ZERO: "yellow bold",
    State.FLOWS: "green",
    State.FROZEN: "blue",
    State.PLAIN: "",
}
_QUIET = "bright_black"


def states(layer: Layer) -> list[State]:
    """The state of each of the layer's own parameters."""
    told = [_STATES[parameter.gradient] for parameter in layer.parameters]
    if layer.calls or layer.kind in _UNCALLED or not set(told) <= {State.NONE, State.FROZEN}:
        return told
    return [State.NEVER if state is State.NONE else state for state in told]


@dataclass(eq=False, slots=True)
class Part:
    """A node of the tree of layers: a layer with parameters of its own has no parts, a container has nothing else."""

    name: str
    kind: str
    layer: Layer
    parts: list[Part] = field(default_factory=list)
    tally: Counter[State] = field(default_factory=Counter)
    """How many parameters inside are in which state."""
    orphans: int = 0
    """How many of them should learn and are in no optimizer."""
    calls: int = 0
    """How often it ran; of a container that is never called itself, how often what is in it ran."""
    square: float = 0.0
    last: float = 0.0
    """As `square`, at the last step that was measured."""
    measured: int = 0
    """At how many steps it was measured."""
    shape: int = 0
    """Equal for parts that are built alike."""
    pattern: int = 0
    """Equal for parts that are built alike and got alike."""

    @property
    def state(self) -> State:
        """The worst inside."""
        return next((state for state in State if self.tally[state]), State.PLAIN)

    @property
    def learning(self) -> int:
        """How many parameters inside should get a gradient."""
        return sum(self.tally.values()) - self.tally[State.FROZEN]

    @property
    def bad(self) -> bool:
        return self.state.bad or self.orphans > 0

    @property
    def uniform(self) -> bool:
        """Whether the same can be said of all parameters inside."""
        return self.tally[self.state] == self.learning and self.orphans in (0, self.learning)

    @property
    def norm(self) -> float | None:
        """The 2-norm of all gradients inside that are numbers."""
        return math.sqrt(self.square) if self.tally[State.FLOWS] or self.tally[State.ZERO] else None

    def walk(self) -> Iterator[Part]:
        """This part and all inside, in the order of registration."""
        todo = [self]
        while todo:
            part = todo.pop()
            yield part
            todo.extend(reversed(part.parts))


@dataclass(frozen=True, slots=True)
class Row:
    """What is shown as one: a part, or a run of siblings that are alike."""

    parts: tuple[Part, ...]
    like: str = ""
    """The sibling that shows what it looks like inside."""

    @property
    def label(self) -> str:
        first = self.parts[0]
        name = first.name or first.kind
        # One word above the number is enough to see that both ends are of one list.
        return name if len(self.parts) == 1 else f"{name} ... {'.'.join(self.parts[-1].name.split('.')[-2:])}"

    @property
    def kind(self) -> str:
        first = self.parts[0]
        return first.kind if len(self.parts) == 1 else f"{len(self.parts)} x {first.kind}"

    @property
    def state(self) -> State:
        return self.parts[0].state

    @property
    def bad(self) -> bool:
        return self.parts[0].bad

    @property
    def calls(self) -> int:
        return max(part.calls for part in self.parts)

    @property
    def norms(self) -> tuple[float, float] | None:
        """The smallest and the largest norm of the parts."""
        norms = [part.norm for part in self.parts if part.norm is not None]
        return (min(norms), max(norms)) if norms else None

    def walk(self) -> Iterator[Part]:
        """All parts inside."""
        for part in self.parts:
            yield from part.walk()

    @property
    def closed(self) -> bool:
        """Whether there is more to see inside."""
        return len(self.parts) == 1 and bool(self.parts[0].parts)

    def remarks(self) -> list[tuple[State, str]]:
        """What is wrong here, in words; nothing for a healthy row."""
        learning = sum(part.learning for part in self.parts)
        told = []
        for state in State:
            count = sum(part.tally[state] for part in self.parts)
            if count and state.bad:
                told.append((state, f"{state.value}{self._share(count, learning, state)}"))
        orphans = sum(part.orphans for part in self.parts)
        if orphans:
            told.append((State.ZERO, f"in no optimizer{self._share(orphans, learning, None)}"))
        return [*told, (self.state, f"as in {self.like}")] if self.like else told

    def _share(self, count: int, of: int, state: State | None) -> str:
        """' in 1 of 2 (bias)', or nothing where it is all."""
        if count == of:
            return ""
        part = self.parts[0]
        names = [] if part.parts or len(self.parts) > 1 else _short(part.layer, state)
        return f" in {count} of {of}" + (f" ({', '.join(names)})" if 0 < len(names) <= 2 else "")


def _short(layer: Layer, state: State | None) -> list[str]:
    """The own names of the layer's parameters in that state, or in no optimizer."""
    pairs = zip(layer.parameters, states(layer), strict=True)
    wanted = [p for p, own in pairs if (own is state if state else p.optimizer is None and own is not State.FROZEN)]
    return [p.name.removeprefix(f"{layer.name}.") for p in wanted]


def tree(report: GradientReport) -> Part:
    """The layers as a tree.  Its root is no layer: a program may hold several outermost modules."""
    root = Part("", "", Layer("", "", 0, None, ()))
    parts = [root]
    known: dict[str, Part] = {}
    for layer in report.layers:
        above = layer.name
        while above and above not in known:
            above = above.rpartition(".")[0]
        # The outermost module's own name is empty, and so is that of a second one that follows the first.
        owner = known.get(above, root) if layer.name else root
        part = Part(layer.name, layer.kind, layer)
        owner.parts.append(part)
        known[layer.name] = part
        parts.append(part)
    for part in list(parts):
        if part.parts and part.layer.parameters:
            own = Part(part.name, part.kind, part.layer)
            part.parts.insert(0, own)
            parts.append(own)
    stepped = any(parameter.optimizer for parameter in report.parameters())
    shapes: dict[tuple[object, ...], int] = {}
    patterns: dict[tuple[object, ...], int] = {}
    # Whoever is inside comes later in the list than what it is in.
    for part in reversed(parts):
        _sum_up(part, stepped)
        shape = (part.kind, *((_last(inner.name), inner.shape) for inner in part.parts))
        part.shape = shapes.setdefault(shape, len(shapes))
        got = tuple(sorted((state.name, many) for state, many in part.tally.items()))
        pattern = (part.shape, got, part.orphans, *(inner.pattern for inner in part.parts))
        part.pattern = patterns.setdefault(pattern, len(patterns))
    return root


def _sum_up(part: Part, stepped: bool) -> None:
    layer = part.layer
    if not part.parts:
        for parameter, state in zip(layer.parameters, states(layer), strict=True):
            part.tally[state] += 1
            part.orphans += stepped and parameter.optimizer is None and state is not State.FROZEN
            if parameter.norm is not None and math.isfinite(parameter.norm):
                part.square += parameter.norm**2
            latest = parameter.norms[-1] if parameter.norms else None
            if latest is not None and math.isfinite(latest):
                part.last += latest**2
            part.measured = max(part.measured, len(parameter.norms))
    for inner in part.parts:
        part.tally.update(inner.tally)
        part.orphans += inner.orphans
        part.square += inner.square
        part.last += inner.last
        part.measured = max(part.measured, inner.measured)
    part.calls = layer.calls or max((inner.calls for inner in part.parts), default=0)


def view(root: Part, most: int) -> list[Row]:
    """The parts to show, in order: everything that is wrong, and as much of the rest as fits into `most` rows."""
    rows = _inside(root)
    while wrong := {row for row in rows if row.closed and row.bad and not row.parts[0].uniform}:
        rows = _opened(rows, wrong)
    leaves = sum(1 for part in root.walk() if part.tally and not part.parts)
    if leaves <= most:
        return [Row((part,)) for part in root.walk() if part.tally and not part.parts]
    # All containers of a depth are opened, or none: two that look alike are not shown in two ways.
    while healthy := {row for row in rows if row.closed and not row.bad}:
        wider = _opened(rows, healthy)
        if len(wider) > most:
            break
        rows = wider
    return rows


def _opened(rows: list[Row], which: set[Row]) -> list[Row]:
    return [inner for row in rows for inner in (_inside(row.parts[0]) if row in which else [row])]


def _inside(part: Part) -> list[Row]:
    """The parts of a part; siblings that are alike are one row."""
    runs: list[list[Part]] = []
    for inner in part.parts:
        if not inner.tally:
            continue
        if runs and _alike(runs[-1][-1], inner):
            runs[-1].append(inner)
        else:
            runs.append([inner])
    rows = []
    for run in runs:
        if not run[0].bad or (run[0].uniform and len(run) > ALIKE):
            rows.append(Row(tuple(run)))
        elif run[0].uniform or len(run) < 3:
            rows += [Row((one,)) for one in run]
        else:
            # The same line of code does the same in each of a stack of blocks: one of them shows it.
            rows += [Row((run[0],)), Row(tuple(run[1:]), run[0].name)]
    return rows


def _alike(one: Part, other: Part) -> bool:
    (above, _, first), (beside, _, second) = one.name.rpartition("."), other.name.rpartition(".")
    if above != beside or not first.isdecimal() or not second.isdecimal() or one.shape != other.shape:
        return False
    return one.pattern == other.pattern if one.bad else not other.bad and one.state is other.state


def _last(name: str) -> str:
    return name.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class Entry:
    """Something that the reader should look at: where it is, and the layers or parameters it is about."""

    text: str
    span: Span | None = None
    names: tuple[str, ...] = ()
    inside: str = ""
    """The layer that the text names already."""


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    state: State
    entries: tuple[Entry, ...]


def sections(report: GradientReport) -> list[Section]:
    """What is to be said beyond the single layers; what did not happen is left out."""
    stops = _by_place(stop for stop in report.stops if stop.behind)
    harmless = _by_place(stop for stop in report.stops if not stop.behind)
    parameters = report.parameters()
    stepped = any(parameter.optimizer for parameter in parameters)
    expected = [parameter for parameter in parameters if parameter.gradient is not Gradient.FROZEN]
    told = [
        Section("Where the gradient stops", State.NONE, tuple(_stop(stop) for stop in stops)),
        Section(
            "Gradients that are not finite",
            State.NONFINITE,
            _counted("parameter", " with an infinity or a NaN", _named(parameters, Gradient.NONFINITE)),
        ),
        Section("Outputs that no loss reads", State.NONE, tuple(_unread(report, output) for output in report.unread)),
        Section(
            "Layers whose forward never ran",
            State.NEVER,
            _counted("layer", " with parameters", [x.name for x in report.layers if State.NEVER in states(x)]),
        ),
        Section(
            "Gradients that are exactly zero",
            State.ZERO,
            _counted("parameter", ", in every step that was looked at", _named(parameters, Gradient.ZERO)),
        ),
        Section(
            "Parameters in no optimizer",
            State.ZERO,
            _counted("parameter", " that no step changes", [p.name for p in expected if stepped and not p.optimizer]),
        ),
        Section("Stale gradients", State.ZERO, tuple(_stale(stale) for stale in report.stale)),
        Section("Growth", State.ZERO, tuple(Entry(text) for text in _growth(report))),
        Section("Cut, and nothing behind it had to learn", State.FROZEN, tuple(_stop(s) for s in harmless)),
    ]
    return [section for section in told if section.entries]


def _named(parameters: Iterable[ParameterGradient], gradient: Gradient) -> list[str]:
    return [parameter.name for parameter in parameters if parameter.gradient is gradient]


def _counted(noun: str, text: str, names: list[str]) -> tuple[Entry, ...]:
    return (Entry(f"{count(len(names), noun)}{text}", None, tuple(names)),) if names else ()


def _by_place(stops: Iterable[GradientStop]) -> list[list[GradientStop]]:
    """The stops that one line made, such as one in the block that a model repeats."""
    places: dict[tuple[Span, str], list[GradientStop]] = {}
    for stop in stops:
        places.setdefault((stop.span, stop.how), []).append(stop)
    return list(places.values())


def _stop(stops: list[GradientStop]) -> Entry:
    names = tuple(dict.fromkeys(name for stop in stops for name in stop.behind))
    behind = f"; {count(len(names), 'parameter')} behind it without a gradient" if names else ""
    modules = list(dict.fromkeys(stop.module for stop in stops if stop.module))
    more = f" and {len(modules) - 1} more" if len(modules) > 1 else ""
    inside = f" in {modules[0]}{more}" if modules else ""
    return Entry(f"{stops[0].how}{inside}{behind}", stops[0].span, names)


def _unread(report: GradientReport, output: UnreadOutput) -> Entry:
    which = f"output {output.place}" if output.place else "the output"
    return Entry(f"{which} of {title(report, output.module)}", output.span, (), output.module)


def _stale(stale: StaleGradient) -> Entry:
    norm = f", together of norm {number(stale.norm)}" if stale.norm is not None else ""
    which = f"{stale.parameters} of {count(stale.of, 'parameter')}"
    return Entry(f"a backward added to gradients that {stale.optimizer} had already used: {which}{norm}", stale.span)


def by_optimizer(report: GradientReport) -> dict[str, list[Step]]:
    """The steps of each optimizer."""
    told: dict[str, list[Step]] = {}
    for step in report.steps:
        told.setdefault(step.optimizer, []).append(step)
    return told


def _growth(report: GradientReport) -> Iterator[str]:
    for optimizer, steps in by_optimizer(report).items():
        nodes = [step.nodes for step in steps]
        if len(nodes) > 2 and all(one < other for one, other in itertools.pairwise(nodes)):
            yield (
                f"the graph of {optimizer} grew with every step, from {nodes[0]} to {nodes[-1]} operations: "
                "each backward walks through older steps"
            )
    # The first steps allocate what the rest uses again.
    memory = [step.memory for step in report.steps if step.memory is not None][2:]
    grew = len(memory) > 3 and memory[-1] > 1.02 * memory[0]
    if grew and all(one < other for one, other in itertools.pairwise(memory)):
        yield f"memory grew with every step, from {size(memory[0])} to {size(memory[-1])}"


def title(report: GradientReport, name: str) -> str:
    """How to call a layer: its name, or its class where it is the outermost module."""
    return name or next((layer.kind for layer in report.layers if not layer.name), "the program")


def count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def number(value: float | None) -> str:
    """A number with three digits; '' where there is none."""
    return "" if value is None else f"{value:.3g}"


def size(value: float | None) -> str:
    """Bytes, for people."""
    if value is None:
        return ""
    for unit in ("B", "KB", "MB"):
        if value < 1000:
            return f"{value:.3g} {unit}"
        value /= 1024
    return f"{value:.3g} GB"


def totals(report: GradientReport) -> list[tuple[State, int]]:
    """How many parameters are in which state, the worst first."""
    tally = Counter(
        state
        for layer in report.layers
        for parameter, state in zip(layer.parameters, states(layer), strict=True)
        if not parameter.shared
    )
    return [(state, tally[state]) for state in State if tally[state]]


def scale(norms: Iterable[float]) -> tuple[int, int] | None:
    """The powers of ten between which all of these lie; None where there is nothing to compare."""
    exponents = [math.log10(norm) for norm in norms if 0 < norm < math.inf]
    if not exponents:
        return None
    high = max(math.ceil(max(exponents)), math.floor(max(exponents)) + 1)
    # Below twelve decades everything is as good as zero.
    return max(min(math.floor(min(exponents)), high - 2), high - 12), high


def share(norm: float, ends: tuple[int, int]) -> float:
    """How far along the scale a norm is, from 0 to 1."""
    low, high = ends
    return min(max((math.log10(norm) - low) / (high - low), 0.0), 1.0) if 0 < norm < math.inf else 0.0


def render(report: GradientReport, sources: Mapping[str, str] | None = None) -> str:
    """The report as plain text."""
    return "".join(text for text, _ in pieces(report, sources))


def pieces(report: GradientReport, sources: Mapping[str, str] | None = None) -> Iterator[Piece]:
    """The report as styled text; newlines are in the pieces.  With `sources` it shows the lines that it names."""
    yield "Gradient report", "bold"
    yield f" of {clean(report.command)}\n", ""
    told = [f"{count(number, 'parameter')} {_CLAUSES[state]}" for state, number in totals(report)]
    ran = f"torch {report.torch} on {report.device}, {count(len(report.steps), 'step')}"
    yield "\n".join(textwrap.wrap(clean(f"{ran}: {', '.join(told) or 'no parameters'}"), WIDTH)) + "\n\n", _QUIET
    rows = view(tree(report), ROWS)
    if rows:
        yield from _table(rows)
    for section in sections(report):
        yield f"{section.title}\n", _STYLES[section.state] if section.state.bad else "bold"
        for entry in section.entries:
            yield from _entry(entry, sources or {})
        yield "\n", ""
    if report.steps:
        yield from _steps(report)
    for note in report.notes:
        lines = textwrap.wrap(clean(note), WIDTH - 6) or [""]
        yield "note: ", "bold"
        yield "\n      ".join(lines) + "\n", ""


_CLAUSES = {
    State.NONFINITE: "not finite",
    State.NONE: "without a gradient",
    State.NEVER: "in layers that never ran",
    State.ZERO: "exactly zero",
    State.FLOWS: "with a gradient",
    State.FROZEN: "frozen",
}


def _table(rows: Sequence[Row]) -> Iterator[Piece]:
    ends = scale(norm for row in rows for norm in row.norms or ())
    # Names and classes share what the other columns leave.
    free = WIDTH - BAR - VALUE - 13
    widest = min(max(len(row.kind) for row in rows), max(free - max(len(row.label) for row in rows), 18))
    kinds = [_short_of(clean(row.kind), widest) for row in rows]
    labels = [_short_of(clean(row.label), free - max(map(len, kinds))) for row in rows]
    calls = [str(row.calls) for row in rows]
    wide = [max(map(len, [head, *cells])) for head, cells in (("layer", labels), ("class", kinds), ("calls", calls))]
    axis = ""
    if ends:
        low, high = f"1e{ends[0]:+03}", f"1e{ends[1]:+03}"
        axis = f"{low}{'.' * (BAR - len(low) - len(high))}{high}"
    head = f"{'layer':<{wide[0]}}  {'class':<{wide[1]}}  {'calls':>{wide[2]}}  {axis:<{BAR}}  gradient norm"
    yield f"{head.rstrip()}\n", _QUIET
    for row, label, kind, number_of_calls in zip(rows, labels, kinds, calls, strict=True):
        style = _STYLES[row.state]
        yield f"{label:<{wide[0]}}  ", style if row.bad else ""
        yield f"{kind:<{wide[1]}}  {number_of_calls:>{wide[2]}}  ", _QUIET
        yield f"{_bar(row, ends):<{BAR}}  ", _STYLES[State.FLOWS]
        remarks = row.remarks()
        values = _values(row)
        told = "; ".join([values] * bool(values) + [text for _, text in remarks]) or row.state.value
        indent = " " * (sum(wide) + BAR + 8)
        # A long remark goes on below, in its own column.
        lines = textwrap.wrap(clean(told), max(WIDTH - len(indent), VALUE), break_on_hyphens=False)
        yield f"\n{indent}".join(lines) + "\n", style if row.bad else ""
    yield "\n", ""


def _values(row: Row) -> str:
    """The norm or the range of norms, where there is one besides what the remarks say."""
    if row.norms is None or not any(part.tally[State.FLOWS] for part in row.parts):
        return ""
    low, high = (number(norm) for norm in row.norms)
    first = low if low == high else f"{low} ... {high}"
    # Two steps are a look, more are a course.
    if len(row.parts) > 1 or row.parts[0].measured <= MEASURED:
        return first
    return f"{first} -> {number(math.sqrt(row.parts[0].last))}"


def _bar(row: Row, ends: tuple[int, int] | None) -> str:
    """Solid as far as all of the row's parts reach, dashed as far as the largest does."""
    if ends is None or row.norms is None:
        return ""
    low, high = (math.ceil(share(norm, ends) * BAR) for norm in row.norms)
    return "=" * low + "-" * (high - low)


def _entry(entry: Entry, sources: Mapping[str, str]) -> Iterator[Piece]:
    place = f"{entry.span.path}:{entry.span.line}: " if entry.span else ""
    names = ""
    if entry.names:
        more = f" and {len(entry.names) - NAMES} more" if len(entry.names) > NAMES else ""
        names = f": {', '.join(entry.names[:NAMES])}{more}"
    told = textwrap.wrap(clean(f"{place}{entry.text}{names}"), WIDTH - 2, break_on_hyphens=False)
    for indent, line in zip(itertools.chain(["  "], itertools.repeat("      ")), _hung(told), strict=False):
        yield f"{indent}{line}\n", ""
    source = line_of(sources, entry.span) if entry.span else ""
    if source:
        yield f"      | {clean(_short_of(source, WIDTH - 8))}\n", _QUIET


def _hung(lines: list[str]) -> Iterator[str]:
    """The lines, all but the first wrapped once more for a deeper indent."""
    if lines:
        yield lines[0]
        yield from textwrap.wrap(" ".join(lines[1:]), WIDTH - 6, break_on_hyphens=False)


def line_of(sources: Mapping[str, str], span: Span) -> str:
    """The source line where `span` begins, without its indent."""
    lines = sources.get(span.path, "").split("\n")
    return lines[span.line - 1].strip() if 0 < span.line <= len(lines) else ""


def _steps(report: GradientReport) -> Iterator[Piece]:
    steps = report.steps
    cells = [(str(s.number), s.optimizer, number(s.loss), number(s.norm), str(s.nodes), size(s.memory)) for s in steps]
    if len(cells) > STEPS:
        cells = [*cells[: STEPS // 2], ("...", "", "", "", "", ""), *cells[-(STEPS // 2) :]]
    heads = ("step", "optimizer", "loss", "gradient norm", "operations", "memory")
    wide = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    for line in (heads, *cells):
        first, second, *rest = line
        texts = [f"{first:>{wide[0]}}", f"{clean(second):<{wide[1]}}"]
        texts += [f"{text:>{width}}" for text, width in zip(rest, wide[2:], strict=True)]
        yield "  ".join(texts).rstrip() + "\n", _QUIET if line is heads else ""
    yield "\n", ""


def _short_of(text: str, most: int) -> str:
    """The text, with dots in its middle where it is too long: the ends of a layer's name say most."""
    if len(text) <= most:
        return text
    left = (most - 3) // 2
    return f"{text[:left]}...{text[left + 3 - most :]}"


def clean(text: str) -> str:
    """The text without what would make a terminal or a page do more than show it."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)
