"""The layers as a picture: boxes in ranks from the input down to the loss, and where gradients came back between them.

The layout is the usual layered one: ranks by longest path, long edges cut into pieces by places that they keep free,
an order in each rank by barycentres, positions by least squares.  A long chain is broken into columns like the lines
of a page.
"""

from __future__ import annotations

import bisect
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape as escaped

from gradlint.gradients import GradientReport, GradientStop
from gradlint.report.gradients import Row, clean, count, line_of, number, title, tree, view
from gradlint.trace import Span

BOXES = 22
"""So many boxes are read in one look; a larger model is folded until it has no more."""
WIDE, WIDEST, HIGH = 204, 232, 46
"""All boxes of a picture are of one width, as wide as the longest name asks for within these."""
PILL, LOW = 124, 28
ACROSS, DOWN = 26, 38
"""The free space between the boxes of a rank, and between ranks."""
BESIDE = 4
"""More boxes are not set beside each other."""
LANE, APART = 9, 8
"""How far ways that run side by side are from each other, and from boxes."""
LETTER, SMALL, BOLD = 7.5, 6.6, 7.6
"""How wide a letter of a name is, one of the smaller texts, and one of their values."""
MARGIN = 24
STAGE = (980.0, 640.0)
"""The room that a picture has on a page; columns are chosen for it."""
SWEEPS = 12

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Box:
    """What is drawn as one node."""

    key: str
    kind: str
    """'layer', 'stop', 'unread', 'input' or 'loss'."""
    look: str
    """The state that it is painted in."""
    name: str
    detail: str
    value: str
    text: str
    """All of it in words, for those who do not see the picture."""
    layers: tuple[str, ...] = ()
    """The dotted names of the layers inside."""
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class Placed:
    box: Box
    x: float
    y: float
    """The upper left corner."""
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Way:
    """An edge and its corners, from the bottom of a box to the top of another."""

    source: str
    target: str
    look: str
    """'flows', 'zero', 'nonfinite', 'none', 'cut', or 'quiet' where no gradient is missed."""
    points: tuple[Point, ...]
    turned: bool = False
    """It leads back up to where a loop begins, so the arrow is at its other end."""


@dataclass(frozen=True, slots=True)
class Picture:
    width: float
    height: float
    boxes: tuple[Placed, ...]
    ways: tuple[Way, ...]


def draw(report: GradientReport, sources: Mapping[str, str]) -> Picture:
    """The picture of a report."""
    return _layout(*_graph(report, sources, view(tree(report), BOXES)))


Edges = dict[tuple[str, str], str]
"""From key to key, and the look of the way."""
_CARRIES = ("flows", "zero", "nonfinite")
_MISSED = ("none", "never")


def _graph(report: GradientReport, sources: Mapping[str, str], rows: Sequence[Row]) -> tuple[list[Box], Edges]:
    boxes = [_layer(f"r{place}", row) for place, row in enumerate(rows)]
    home = {name: box.key for box in boxes for name in box.layers}
    ways: dict[tuple[str, str], bool] = {}
    for flow in report.flows:
        source = home.get(flow.source, f"-{flow.source}") if flow.source else "input"
        target = home.get(flow.target, f"-{flow.target}") if flow.target else "loss"
        if source != target:
            ways[source, target] = ways.get((source, target), False) or flow.gradient
    order = {"input": -1, **{box.key: place for place, box in enumerate(boxes)}, "loss": len(boxes)}
    ways = _without_plain(ways, order)
    # Where only some of a box's gradients are odd, others went the same way.
    odd = {box.key for box, row in zip(boxes, rows, strict=True) if not row.parts[0].uniform and box.look in _CARRIES}
    edges = _painted(ways, {box.key: "flows" if box.key in odd else box.look for box in boxes})
    unread = _unread(report, boxes, edges)
    stops = _stops(report, boxes, edges, sources)
    boxes += unread
    boxes += stops
    edges = _reduced(edges, boxes)
    used = {end for edge in edges for end in edge}
    losses = [step.loss for step in report.steps if step.loss is not None]
    if "input" in used:
        boxes.insert(0, Box("input", "input", "end", "input", "", "", "what the program feeds in"))
    if "loss" in used:
        value = number(losses[0]) if losses else ""
        boxes.append(Box("loss", "loss", "end", "loss", "", value, f"the loss {value}".strip()))
    return boxes, edges


def _layer(key: str, row: Row) -> Box:
    remarks = row.remarks()
    value = ""
    if row.norms:
        low, high = map(number, row.norms)
        value = low if low == high else f"{low} \u2013 {high}"
    told = "; ".join(text for _, text in remarks) or (f"gradient norm {value}" if value else row.state.value)
    shown = value or row.state.value
    look = row.state.name.lower()
    if row.state.bad:
        shown = remarks[0][1].partition(" (")[0].replace("exactly zero in", "zero in")
    elif row.bad:
        look, shown = "orphan", remarks[0][1].partition(" (")[0]
    names = tuple(dict.fromkeys(part.name for part in row.walk()))
    name = row.label
    if len(row.parts) > 1 and len(name) * LETTER > WIDEST - 36:
        name = f"{row.parts[0].name} ... {row.parts[-1].name.rpartition('.')[2]}"
    return Box(key, "layer", look, name, row.kind, shown, f"{row.label}, {row.kind}: {told}", names)


def _stops(report: GradientReport, boxes: Sequence[Box], edges: Edges, sources: Mapping[str, str]) -> list[Box]:
    """The places where the gradient stops, each set into the ways that it cuts."""
    home = {name: box.key for box in boxes for name in box.layers}
    owner = {p.name: home[layer.name] for layer in report.layers for p in layer.parameters if layer.name in home}
    told: dict[tuple[Span, frozenset[tuple[str, str]]], Box] = {}
    explained = {owner[name] for stop in report.stops for name in stop.behind if name in owner}
    # Layers that no optimizer holds are not told of as behind a stop, but may stand between it and those that are.
    between = {box.key for box in boxes if box.look in _MISSED} - explained
    cuts = []
    for stop in report.stops:
        dead = {owner[name] for name in stop.behind if name in owner}
        todo = sorted(dead)
        while todo:
            key = todo.pop()
            further = [b for (a, b), look in edges.items() if a == key and b in between - dead and look not in _CARRIES]
            dead.update(further)
            todo += further
        # Ways on which values leave what is behind the stop.
        cut = [way for way, look in edges.items() if look not in _CARRIES and way[0] in dead and way[1] not in dead]
        cuts.append((stop, dead, cut))
    cuts = [*(one for one in cuts if one[2]), *(one for one in cuts if not one[2] and one[0].behind)]
    for stop, dead, cut in cuts:
        span, drawn = stop.span, {span for span, _ in told}
        if (span, frozenset(cut)) in told or (not cut and span in drawn):
            continue
        names = {name for other in report.stops if other.span == span for name in other.behind}
        box = told[span, frozenset(cut)] = _stop(f"s{len(told)}", report, stop, len(names), sources)
        for way in cut:
            edges.pop(way, None)
            edges[way[0], box.key] = edges[box.key, way[1]] = "cut"
        if not cut:
            # Nothing is known of where its values went on to, so it ends the ways of those behind it.
            onward = {source for source, _ in edges}
            edges.update({(key, box.key): "cut" for key in sorted(dead - onward)})
            after = home.get(stop.module)
            if after and after not in dead:
                edges[box.key, after] = "cut"
    return list(told.values())


def _stop(key: str, report: GradientReport, stop: GradientStop, behind: int, sources: Mapping[str, str]) -> Box:
    place = f"{stop.span.path.replace(chr(92), '/').rpartition('/')[2]}:{stop.span.line}"
    inside = f" in {title(report, stop.module)}" if stop.module else ""
    text = f"the gradient stops here: {stop.how}{inside} at {stop.span.path}:{stop.span.line}"
    detail = line_of(sources, stop.span) or f"{count(behind, 'parameter')} behind it"
    return Box(key, "stop", "cut", stop.how, detail, place, text, (), stop.span)


def _unread(report: GradientReport, boxes: Sequence[Box], edges: Edges) -> list[Box]:
    """The outputs that no loss reads, each at the layer that it seems to come from."""
    told: list[Box] = []
    taken: set[str] = set()
    for place, output in enumerate(report.unread):
        name = f"output {output.place}" if output.place else "output"
        text = f"{name} of {title(report, output.module)}: no loss reads it"
        box = Box(f"u{place}", "unread", "none", name, "", "unread", text, (), output.span)
        told.append(box)
        prefix = f"{output.module}." if output.module else ""
        onward = {source for source, target in edges if target != "loss" or edges[source, target] in _CARRIES}
        ends = [
            other
            for other in boxes
            if other.key not in taken
            and (output.module in other.layers or any(layer.startswith(prefix) for layer in other.layers))
            and (
                (other.look == "none" and other.key not in onward)
                or edges.get((other.key, "loss")) in ("none", "quiet")
            )
        ]
        # Programs often call an output like the layer that makes it.
        ends.sort(key=lambda other: all(layer.rpartition(".")[2] != output.place for layer in other.layers))
        end = ends[0] if ends else next((other for other in boxes if output.module in other.layers), None)
        if end:
            taken.add(end.key)
            edges.pop((end.key, "loss"), None)
            edges[end.key, box.key] = "none"
    return told


def _without_plain(ways: dict[tuple[str, str], bool], order: Mapping[str, int]) -> dict[tuple[str, str], bool]:
    """The ways between boxes alone: layers without parameters are passed through.

    One that serves at several places, such as a ReLU for a whole network, does not say which of its inputs became
    which of its outputs; then only ways that go on in the order of registration are believed.
    """
    after: dict[str, list[str]] = {}
    before: Counter[str] = Counter()
    for source, target in ways:
        after.setdefault(source, []).append(target)
        before[target] += 1
    told: dict[tuple[str, str], bool] = {}
    for start in [key for key in after if key in order]:
        todo = [(target, ways[start, target], False) for target in after[start]]
        seen = set(todo)
        while todo:
            place, gradient, vague = todo.pop()
            if place in order:
                if place != start and (not vague or order[start] < order[place]):
                    told[start, place] = told.get((start, place), False) or gradient
                continue
            vague = vague or (before[place] > 1 and len(after.get(place, ())) > 1)
            for target in after.get(place, ()):
                step = (target, gradient and ways[place, target], vague)
                if step not in seen:
                    seen.add(step)
                    todo.append(step)
    return told


def _painted(ways: Mapping[tuple[str, str], bool], looks: Mapping[str, str]) -> Edges:
    """How each way looks.  No gradient is expected on the way of data; red is what leads from or to a layer without."""
    missed = {key for key, look in looks.items() if look in _MISSED}
    todo = list(missed)
    after: dict[str, list[str]] = {}
    for (source, target), gradient in ways.items():
        if not gradient:
            after.setdefault(source, []).append(target)
    downstream = set(missed)
    while todo:
        for target in after.get(todo.pop(), ()):
            if target not in downstream:
                downstream.add(target)
                todo.append(target)
    edges: Edges = {}
    for (source, target), gradient in ways.items():
        look = looks.get(source, "")
        if gradient:
            edges[source, target] = look if look in _CARRIES else "flows"
        else:
            red = source in downstream or (target in missed and source != "input")
            edges[source, target] = "none" if red else "quiet"
    return edges


def _reduced(edges: Edges, boxes: Sequence[Box]) -> Edges:
    """Without the ways that longer ones tell as well: a residual stream joins everything with everything after it.

    A way on which gradients came is told by a longer one on which they came all along, one that is red by a longer
    one that ends in red, and any other by any.
    """
    order = _downward(["input", *(box.key for box in boxes), "loss"], edges)
    place = {key: nth for nth, key in enumerate(order)}
    down = {way: look for way, look in edges.items() if place[way[0]] < place[way[1]]}
    everywhere = _reach(order, place, down)
    carried = _reach(order, place, [way for way, look in down.items() if look in _CARRIES])
    after: dict[str, list[str]] = {key: [] for key in order}
    before: dict[str, list[str]] = {key: [] for key in order}
    for source, target in down:
        after[source].append(target)
        before[target].append(source)
    kept = dict(edges)
    for (source, target), look in down.items():
        if look == "none":
            told = any(everywhere[source] >> place[o] & 1 for o in before[target] if down[o, target] == "none")
        elif look in _CARRIES:
            told = any(carried[o] >> place[target] & 1 for o in after[source] if down[source, o] in _CARRIES)
        else:
            told = any(everywhere[o] >> place[target] & 1 for o in after[source])
        if told:
            del kept[source, target]
    return kept


def _reach(order: Sequence[str], place: Mapping[str, int], ways: Iterable[tuple[str, str]]) -> dict[str, int]:
    """For each key the places of all that its ways lead to, as bits."""
    after: dict[str, list[str]] = {key: [] for key in order}
    for source, target in ways:
        after[source].append(target)
    reach: dict[str, int] = {}
    for key in reversed(order):
        bits = 0
        for target in after[key]:
            bits |= 1 << place[target] | reach[target]
        reach[key] = bits
    return reach


def _downward(keys: Sequence[str], edges: Iterable[tuple[str, str]]) -> list[str]:
    """The keys in an order that all ways follow but those that close a loop."""
    after: dict[str, list[str]] = {key: [] for key in keys}
    for source, target in edges:
        after[source].append(target)
    done: list[str] = []
    seen: set[str] = set()
    for start in keys:
        if start in seen:
            continue
        seen.add(start)
        stack = [(start, iter(after[start]))]
        while stack:
            key, targets = stack[-1]
            for target in targets:
                if target not in seen:
                    seen.add(target)
                    stack.append((target, iter(after[target])))
                    break
            else:
                done.append(key)
                stack.pop()
    return done[::-1]


@dataclass(eq=False, slots=True)
class _Place:
    """A box, or a place that a long way keeps free."""

    rank: int
    width: float
    height: float
    up: list[_Place] = field(default_factory=list)
    down: list[_Place] = field(default_factory=list)
    order: float = 0.0
    x: float = 0.0
    """Its middle."""
    y: float = 0.0
    """Its top."""
    roof: float = 0.0
    floor: float = 0.0
    """Where its rank begins and ends."""


_Ranks = list[list[_Place]]


def _layout(boxes: Sequence[Box], edges: Edges) -> Picture:
    wide = min(max([WIDE, *(round(len(box.name) * LETTER) + 36 for box in boxes if box.kind == "layer")]), WIDEST)
    used = {end for edge in edges for end in edge}
    joined = [box for box in boxes if box.key in used]
    places, chains = _places(joined, edges, wide)
    ranks: _Ranks = [[] for _ in range(max((place.rank for place in places.values()), default=-1) + 1)]
    for place in itertools.chain(places.values(), *(chain[1:-1] for chain in chains.values())):
        ranks[place.rank].append(place)
    _arrange(ranks)
    columns = _columns(ranks)
    width, height = MARGIN * 2.0, MARGIN * 2.0
    lanes = 0
    left = float(MARGIN)
    ends: list[float] = []
    tops = [len(_over(column)) * LANE for column in columns[:-1]]
    top = MARGIN + max(tops, default=0) + (LANE + APART if tops else 0)
    for column in columns:
        lanes = len(_over(column)) if column is not columns[-1] else 0
        _align(column)
        shift = left - min(place.x - place.width / 2 for rank in column for place in rank)
        below = float(top)
        for rank in column:
            tall = max(place.height for place in rank)
            for place in rank:
                place.x += shift
                if place.width == LANE:
                    # What a way keeps free is as tall as its rank.
                    place.height = tall
                place.y = below + (tall - place.height) / 2
                place.roof, place.floor = below, below + tall
            below += tall + DOWN
        right = max(place.x + place.width / 2 for rank in column for place in rank)
        ends.append(right)
        width = right + MARGIN
        height = max(height, below - DOWN + lanes * LANE + (LANE + APART) * (lanes > 0) + MARGIN)
        left = right + ACROSS * 2 + (lanes + 1) * LANE
    routes = {edge: tuple(_route(chain, columns, ends, float(top))) for edge, chain in chains.items()}
    ways = tuple(
        Way(*edge, edges[edge], points, chains[edge][0] is not places[edge[0]]) for edge, points in routes.items()
    )
    placed = []
    for box in joined:
        place = places[box.key]
        placed.append(Placed(box, place.x - place.width / 2, place.y, place.width, place.height))
    alone = [box for box in boxes if box.key not in used]
    start = height - MARGIN + DOWN if joined else float(MARGIN)
    across = max(int((max(width, STAGE[0] * 0.9) - MARGIN) // (wide + ACROSS)), 1)
    for many, box in enumerate(alone):
        row, beside = divmod(many, across)
        x, y = MARGIN + beside * (wide + ACROSS), start + row * (HIGH + ACROSS)
        placed.append(Placed(box, x, y, *_size(box, wide)))
        width, height = max(width, x + wide + MARGIN), max(height, y + HIGH + MARGIN)
    return Picture(width, height, tuple(placed), ways)


def _places(
    boxes: Sequence[Box], edges: Edges, wide: float
) -> tuple[dict[str, _Place], dict[tuple[str, str], list[_Place]]]:
    """A place for each box and a chain of places for each way, from the upper end to the lower."""
    order = _downward([box.key for box in boxes], edges)
    number_of = {key: number for number, key in enumerate(order)}
    downward = [(a, b) if number_of[a] < number_of[b] else (b, a) for a, b in edges]
    before: dict[str, list[str]] = {key: [] for key in order}
    after: dict[str, list[str]] = {key: [] for key in order}
    for upper, lower in downward:
        before[lower].append(upper)
        after[upper].append(lower)
    rank: dict[str, int] = {}
    held: Counter[int] = Counter()
    for key in order:
        lowest = max((rank[upper] + 1 for upper in before[key]), default=0)
        rank[key] = next(free for free in itertools.count(lowest) if held[free] < BESIDE)
        held[rank[key]] += 1
    for key in reversed(order):
        # What nothing feeds stands just above where it is used.
        if not before[key] and after[key]:
            wanted = max(min(rank[lower] for lower in after[key]) - 1, 0)
            if held[wanted] < BESIDE:
                held.subtract([rank[key]])
                held[wanted] += 1
                rank[key] = wanted
    lowest = min(rank.values(), default=0)
    places = {box.key: _Place(rank[box.key] - lowest, *_size(box, wide)) for box in boxes}
    chains = {}
    for edge, (upper, lower) in zip(edges, downward, strict=True):
        first, last = places[upper], places[lower]
        chain = [first, *(_Place(between, LANE, LOW) for between in range(first.rank + 1, last.rank)), last]
        for one, other in itertools.pairwise(chain):
            one.down.append(other)
            other.up.append(one)
        chains[edge] = chain
    return places, chains


def _size(box: Box, wide: float) -> tuple[float, float]:
    if box.kind in ("layer", "stop"):
        return wide, HIGH
    return min(max(PILL, round((len(box.name) + len(box.value)) * LETTER) + 40), wide), LOW


def _arrange(ranks: _Ranks) -> None:
    """Puts each rank into an order with few crossings, the best of some sweeps of barycentres."""
    for rank in ranks:
        for nth, place in enumerate(rank):
            place.order = nth
    best, fewest = [list(rank) for rank in ranks], _crossings(ranks)
    for sweep in range(SWEEPS):
        if not fewest:
            break
        for rank in ranks if sweep % 2 == 0 else reversed(ranks):
            centre = {}
            for place in rank:
                near = place.up if sweep % 2 == 0 else place.down
                centre[place] = sum(other.order for other in near) / len(near) if near else place.order
            rank.sort(key=centre.__getitem__)
            for nth, place in enumerate(rank):
                place.order = nth
        crossings = _crossings(ranks)
        if crossings < fewest:
            best, fewest = [list(rank) for rank in ranks], crossings
    for rank, wanted in zip(ranks, best, strict=True):
        rank[:] = wanted
        for nth, place in enumerate(rank):
            place.order = nth


def _crossings(ranks: _Ranks) -> int:
    """How many ways cross between neighbouring ranks."""
    total = 0
    for rank in ranks:
        seen: list[float] = []
        for place in rank:
            ends = sorted(other.order for other in place.down)
            total += sum(len(seen) - bisect.bisect_right(seen, end) for end in ends)
            for end in ends:
                bisect.insort(seen, end)
    return total


def _columns(ranks: _Ranks) -> list[_Ranks]:
    """The ranks in as many columns as show the picture largest, broken where few ways pass."""
    if not ranks:
        return []
    best, largest = [ranks], 0.0
    for many in range(1, max(len(ranks) // 4, 1) + 1):
        columns = _broken(ranks, many)
        wide = sum(max(map(_breadth, column)) + ACROSS * 3 for column in columns) + MARGIN
        high = max(sum(max(p.height for p in rank) + DOWN for rank in column) for column in columns) + MARGIN
        shown = min(STAGE[0] / wide, STAGE[1] / high, 1.0)
        # A column more must be worth the jump of the eye.
        if shown > largest * 1.15:
            best, largest = columns, shown
    return best


def _breadth(rank: list[_Place]) -> float:
    return sum(place.width for place in rank) + sum(_gap(*pair) for pair in itertools.pairwise(rank))


def _gap(one: _Place, other: _Place) -> float:
    return ACROSS / 2 if LANE in (one.width, other.width) else ACROSS


def _broken(ranks: _Ranks, many: int) -> list[_Ranks]:
    columns, start = [], 0
    for nth in range(1, many):
        ideal = round(nth * len(ranks) / many)
        near = range(max(start + 1, ideal - 2), min(len(ranks), ideal + 3))
        end = min(near, key=lambda place: (len(_over(ranks[:place])), abs(place - ideal)), default=start)
        if end > start:
            columns.append(ranks[start:end])
            start = end
    return [*columns, ranks[start:]]


def _over(column: _Ranks) -> list[tuple[_Place, _Place]]:
    """The pieces of ways that leave a column at its end, from left to right."""
    return [(place, lower) for place in column[-1] for lower in sorted(place.down, key=lambda other: other.order)]


def _align(column: _Ranks) -> None:
    """Sets the middle of each place as near to its neighbours' as the order and the space allow."""
    for rank in column:
        x = 0.0
        for place in rank:
            place.x = x + place.width / 2
            x += place.width + ACROSS
    inside = {place for rank in column for place in rank}
    for sweep in range(SWEEPS * 2):
        # The last sweep looks one way only, which leaves a chain exactly straight.
        last = sweep == SWEEPS * 2 - 1
        for rank in column if sweep % 2 == 0 else reversed(column):
            wanted, weights = [], []
            for place in rank:
                near = place.up if sweep % 2 == 0 else place.down
                if sweep >= SWEEPS and not last:
                    near = place.up + place.down
                pulls = [(other.x, _pull(place, other)) for other in near if other in inside]
                weight = sum(pull for _, pull in pulls)
                wanted.append(sum(x * pull for x, pull in pulls) / weight if weight else place.x)
                weights.append(weight or 0.1)
            _spread(rank, wanted, weights)


def _pull(one: _Place, other: _Place) -> float:
    """Long ways should be straight before anything else is."""
    return 8.0 if one.width == other.width == LANE else 2.0 if LANE in (one.width, other.width) else 1.0


def _spread(rank: list[_Place], wanted: list[float], weights: list[float]) -> None:
    """Least squares under the condition that nothing overlaps: pools neighbours that want to pass each other."""
    offsets = [0.0]
    for one, other in itertools.pairwise(rank):
        offsets.append(offsets[-1] + (one.width + other.width) / 2 + _gap(one, other))
    pools: list[tuple[float, float, int]] = []
    for want, offset, weight in zip(wanted, offsets, weights, strict=True):
        mean, total, size = want - offset, weight, 1
        while pools and pools[-1][0] > mean:
            left, more, many = pools.pop()
            mean, total, size = (mean * total + left * more) / (total + more), total + more, size + many
        pools.append((mean, total, size))
    bases = [mean for mean, _, size in pools for _ in range(size)]
    for place, base, offset in zip(rank, bases, offsets, strict=True):
        place.x = base + offset


def _route(chain: list[_Place], columns: list[_Ranks], ends: list[float], top: float) -> Iterator[Point]:
    """The corners of a way.  It bends between ranks only, so that it meets no box in them."""
    yield chain[0].x, chain[0].y + chain[0].height
    for one, other in itertools.pairwise(chain):
        if one.floor > one.y + one.height:
            yield one.x, one.floor
        here = next((n for n, column in enumerate(columns[:-1]) if one.rank == column[-1][0].rank), None)
        if here is not None:
            # Down, through the gutter between the columns, and in again at the top; no two ways cross on this.
            pieces = _over(columns[here])
            lane = pieces.index((one, other))
            out = (len(pieces) - lane) * LANE
            below = one.floor + APART + out
            gutter, above = ends[here] + ACROSS + out, top - APART - (lane + 1) * LANE
            yield from [(one.x, below), (gutter, below), (gutter, above), (other.x, above)]
        yield other.x, other.roof
        if other.y > other.roof:
            yield other.x, other.y
        if other is not chain[-1]:
            yield other.x, other.floor


def svg(picture: Picture, label: str, links: Mapping[str, str], badges: Mapping[str, Sequence[tuple[int, str]]]) -> str:
    """The picture as an element of a page: `links` from a box's key to a place on it, `badges` the findings on it."""
    wide, high = round(picture.width), round(picture.height)
    head = f'id="picture" role="group" aria-label="{escape(label)}" width="{wide}" height="{high}"'
    told = [
        f'<svg {head} viewBox="0 0 {wide} {high}"><defs>',
        *(_MARKER.format(look=look) for look in dict.fromkeys(way.look for way in picture.ways)),
        '</defs><g aria-hidden="true">',
        *(
            f'<path class="way {way.look}" d="{_path(way.points)}" '
            f'marker-{"start" if way.turned else "end"}="url(#to-{way.look})"/>'
            for way in picture.ways
        ),
        "</g>",
        *(_box(placed, links.get(placed.box.key), badges.get(placed.box.key, ())) for placed in picture.boxes),
        "</svg>",
    ]
    return "".join(told)


_MARKER = """\
<marker id="to-{look}" class="way {look}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" \
markerUnits="userSpaceOnUse" orient="auto-start-reverse"><path d="M0 .5 8 4 0 7.5z"/></marker>"""


def _path(points: Sequence[Point]) -> str:
    """Straight along an axis, with round corners; between places that are not above each other in a soft bend."""
    told = [f"M{_at(points[0])}"]
    for place, (one, other) in enumerate(itertools.pairwise(points)):
        if one[0] != other[0] and one[1] != other[1]:
            middle = (one[1] + other[1]) / 2
            told.append(f"C{_at((one[0], middle))} {_at((other[0], middle))} {_at(other)}")
            continue
        after = points[place + 2] if place + 2 < len(points) else None
        corner = (
            after and (one[0] == other[0]) != (other[0] == after[0]) and (other[0] == after[0] or other[1] == after[1])
        )
        if after and corner:
            told.append(f"L{_at(_short_of(other, one))}Q{_at(other)} {_at(_short_of(other, after))}")
        else:
            told.append(f"L{_at(other)}")
    return "".join(told)


def _short_of(end: Point, other: Point) -> Point:
    """A little before `end` on the straight from `other`."""
    x, y = other[0] - end[0], other[1] - end[1]
    part = min(7.0, (abs(x) + abs(y)) / 2) / max(abs(x) + abs(y), 1e-9)
    return end[0] + x * part, end[1] + y * part


def _at(point: Point) -> str:
    return f"{_digits(point[0])} {_digits(point[1])}"


def _box(placed: Placed, link: str | None, badges: Sequence[tuple[int, str]]) -> str:
    box, x, y, wide, high = placed.box, placed.x, placed.y, placed.width, placed.height
    said = escape(box.text)
    told = [f'<a class="box {box.kind} {box.look}" id="{box.key}"']
    told.append(f' href="#{link}">' if link else ">")
    told.append(f"<title>{said}</title>")
    ring = f"{_corner(x - 4, y - 4)} {_extent(wide + 8, high + 8)}"
    told.append(f'<rect class="ring" {ring} rx="{13 if high > LOW else high / 2 + 4:g}"/>')
    told.append(f'<rect class="card" {_corner(x, y)} {_extent(wide, high)} rx="{9 if high > LOW else high / 2:g}"/>')
    if high == LOW:
        value = f' <tspan class="value">{escape(box.value)}</tspan>' if box.value else ""
        name = escape(_fitting(box.name, wide - 24 - len(box.value) * LETTER, LETTER))
        told.append(f'<text class="name middle" {_corner(x + wide / 2, y + 18)}>{name}{value}</text>')
    elif box.kind == "stop":
        place = _fitting(box.value, wide * 0.6, BOLD, keep_end=True)
        name = escape(_fitting(box.name, wide - 48 - len(place) * BOLD, LETTER))
        told.append(
            f'<path class="scissors" transform="translate({_digits(x + 17)} {_digits(y + 15)})" d="{SCISSORS}"/>'
        )
        told.append(f'<text class="name" {_corner(x + 30, y + 19)}>{name}</text>')
        told.append(f'<text class="value" {_corner(x + wide - 12, y + 19)}>{escape(place)}</text>')
        detail = escape(_fitting(box.detail, wide - 24, SMALL))
        told.append(f'<text class="source" {_corner(x + 12, y + 36)}>{detail}</text>')
    else:
        name = _fitting(box.name, wide - 32, LETTER, keep_end=True)
        above, dot, own = name.rpartition(".") if " ... " not in name else ("", "", name)
        above = f'<tspan class="above">{escape(above + dot)}</tspan>' if dot else ""
        kind = escape(_fitting(box.detail, wide - 40 - len(box.value) * BOLD, SMALL))
        told.append(f'<rect class="stripe" {_corner(x + 7, y + 9)} {_extent(4, high - 18)} rx="2"/>')
        told.append(f'<text class="name" {_corner(x + 20, y + 19)}>{above}{escape(own)}</text>')
        told.append(f'<text class="kind" {_corner(x + 20, y + 35)}>{kind}</text>')
        told.append(f'<text class="value" {_corner(x + wide - 12, y + 35)}>{escape(box.value)}</text>')
    for beside, (mark, look) in enumerate(badges[: int(wide / 24)]):
        centre = x + wide - 6 - beside * 21
        told.append(f'<g class="badge {look}"><circle cx="{_digits(centre)}" cy="{_digits(y)}" r="9"/>')
        told.append(f'<text class="middle" {_corner(centre, y + 4)}>{mark}</text></g>')
    return "".join([*told, "</a>"])


def escape(text: str) -> str:
    return escaped(clean(text))


def _corner(x: float, y: float) -> str:
    return f'x="{_digits(x)}" y="{_digits(y)}"'


def _extent(width: float, height: float) -> str:
    return f'width="{_digits(width)}" height="{_digits(height)}"'


def _digits(value: float) -> str:
    return f"{round(value, 1):g}"


SCISSORS = "M-4-6a2.4 2.4 0 1 0 .1 0zM-4 1.2a2.4 2.4 0 1 0 .1 0zM-2-2.2 8 5M-2 2.2 8-5"


def _fitting(text: str, room: float, letter: float, *, keep_end: bool = False) -> str:
    """As much of the text as fits; of a layer's name the end says most."""
    most = max(int(room / letter), 2)
    if len(text) <= most:
        return text
    dot = text.find(".", len(text) - most) if keep_end else -1
    if dot >= 0:
        return f"\u2026{text[dot + 1 :]}"
    return f"\u2026{text[1 - most :]}" if keep_end else f"{text[: most - 1]}\u2026"
