"""The gradient report and the judged findings as one page that asks nothing of any network.

Everything that comes from the program goes through `escape`; beyond that the page carries a policy under which the
browser runs our script and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from importlib import resources

from gradlint.gradients import GradientReport, ParameterGradient, Step
from gradlint.report import gradients, picture
from gradlint.report.gradients import Row, State, clean, count, line_of, number, share, size, states
from gradlint.report.picture import Picture
from gradlint.rule import Because, Judgement, Verdict
from gradlint.trace import Span

AROUND = 2
"""So many lines above and below a place are shown with it."""
LONGEST = 240
"""A longer source line is cut around its place."""
STEPS = 60
"""A longer run is shown by so many of its steps, evenly spread."""
POINTS = 120

_ORDER = (Verdict.CONFIRMED, Verdict.UNDECIDED, Verdict.NOT_REACHED, Verdict.REFUTED)
_WORDS = {
    State.NONFINITE: "not finite",
    State.NONE: "none",
    State.NEVER: "never ran",
    State.ZERO: "exactly zero",
    State.FLOWS: "flows",
    State.FROZEN: "frozen",
}


def render(report: GradientReport, judgements: Sequence[Judgement], sources: Mapping[str, str]) -> str:
    """The page."""
    here = resources.files("gradlint.report")
    widths = "".join(f".w{percent}{{width:{percent}%}}" for percent in range(101))
    rows = gradients.view(gradients.tree(report), gradients.ROWS)
    ends = gradients.scale(p.norm for p in report.parameters() if p.norm is not None)
    decades = f":root{{--decades:{ends[1] - ends[0] if ends else 1}}}"
    style = (here / "page.css").read_text(encoding="utf-8") + widths + decades
    script = (here / "page.js").read_text(encoding="utf-8")
    judged = sorted(judgements, key=lambda judgement: _ORDER.index(judgement.verdict))
    drawn = picture.draw(report, sources)
    boxes = [_boxes(report, drawn, judgement) for judgement in judged]
    seen = _observations(report, drawn, sources)
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; base-uri 'none'; form-action 'none'"
    )
    return "".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            f"<title>{_text(report.command)} - gradlint confirm</title>\n<style>{style}</style>\n</head>\n<body>\n",
            *_header(report),
            '<main>\n<div class="stage">\n',
            *_picture(report, drawn, rows, judged, boxes),
            *(_findings(judged, boxes, sources) if judged else _instead_of_findings(seen)),
            "</div>\n",
            *(_wide("seen", "What the run showed", f'<div class="columns">{seen}</div>') if judged and seen else ()),
            *_gradients(report, rows, ends),
            *_steps(report),
            *_notes(report),
            f"</main>\n{_HELP}\n<script>{script}</script>\n</body>\n</html>\n",
        ]
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _text(text: str) -> str:
    """The text for a page, where controls and changes of direction are shown as what they are."""
    return "\n".join(escape(clean(line.expandtabs(4))) for line in text.split("\n"))


_LOGO = """\
<svg viewBox="0 0 24 24" aria-hidden="true" fill="none" stroke="currentColor" stroke-width="2" stroke-linecap="round">\
<g class="flows"><path d="M4 4v16"/><path d="M4 4c8 0 8 5 8 5"/></g><g class="none"><path d="M12 15c0 5 8 5 8 5" \
stroke-dasharray="1 4"/><path d="M9.5 12h5"/></g></svg>"""


def _header(report: GradientReport) -> Iterator[str]:
    ran = f"torch {report.torch} &middot; {_text(report.device)} &middot; {count(len(report.steps), 'step')}"
    yield f'<a class="skip" href="#findings">Skip to the findings</a>\n<header>\n<h1>{_LOGO}gradlint confirm</h1>\n'
    yield f'<p class="run"><code>{_text(report.command)}</code> <span class="soft">{ran}</span></p>\n'
    yield (
        '<div class="tools js"><input id="search" type="search" role="combobox" aria-expanded="false" '
        'aria-controls="hits" aria-autocomplete="list" autocomplete="off" spellcheck="false" '
        'aria-label="Search layers, parameters and findings" placeholder="Search layers, findings  /">'
        '<ul id="hits" role="listbox" aria-label="Found" hidden></ul>'
        '<button id="theme" type="button" aria-label="Switch between light and dark">&#9680;</button>'
        '<button id="keys" type="button" aria-label="Keys">?</button></div>\n</header>\n'
    )


_HELP = """<dialog id="help" aria-labelledby="help-title"><h2 id="help-title">Keys</h2><dl>
<dt><kbd>j</kbd> <kbd>k</kbd></dt><dd>next and previous finding; also the arrows, in the list</dd>
<dt><kbd>/</kbd></dt><dd>search layers, parameters and findings</dd>
<dt><kbd>+</kbd> <kbd>-</kbd> <kbd>0</kbd></dt><dd>zoom in, out, to full size; also Ctrl and the wheel</dd>
<dt><kbd>f</kbd></dt><dd>fit the picture into its frame</dd>
<dt><kbd>t</kbd></dt><dd>light or dark</dd>
<dt><kbd>Esc</kbd></dt><dd>close, and take the marks away</dd>
</dl><form method="dialog"><button>Close</button></form></dialog>"""


def _picture(
    report: GradientReport, drawn: Picture, rows: Sequence[Row], judged: Sequence[Judgement], boxes: Sequence[list[str]]
) -> Iterator[str]:
    yield '<section class="panel picture" aria-labelledby="picture-title"><div class="head">'
    yield '<h2 id="picture-title">Gradient flow</h2><ul class="legend">'
    totals = gradients.totals(report)
    yield f"<li>{count(sum(many for _, many in totals), 'parameter')}:</li>" if totals else ""
    for state, many in totals:
        yield f'<li><i class="{_look(state)}"></i><b>{many}</b> {_WORDS[state]}</li>'
    looks = {placed.box.look for placed in drawn.boxes}
    if "cut" in looks:
        yield (
            '<li><svg class="cut" viewBox="-8 -7 18 14" aria-hidden="true">'
            f'<path class="scissors" d="{picture.SCISSORS}"/></svg>cut here</li>'
        )
    yield '</ul></div><div id="canvas" tabindex="0" role="region" aria-label="Picture of the layers">'
    if drawn.boxes:
        badges: dict[str, list[tuple[int, str]]] = {}
        for place, (judgement, keys) in enumerate(zip(judged, boxes, strict=True)):
            if keys and judgement.verdict in (Verdict.CONFIRMED, Verdict.UNDECIDED):
                badges.setdefault(keys[0], []).append((place + 1, _css(judgement.verdict)))
        row_of = {part.name: place for place, row in reversed(list(enumerate(rows))) for part in row.walk()}
        links = {
            placed.box.key: f"l{row_of[placed.box.layers[0]]}"
            for placed in drawn.boxes
            if placed.box.layers and placed.box.layers[0] in row_of
        }
        yield picture.svg(drawn, "Layers from the input to the loss", links, badges)
    else:
        yield '<p class="empty">No layer with parameters was seen in this run.</p>'
    yield '</div><div class="zoom js">'
    for key, sign, label in _ZOOM if drawn.boxes else ():
        yield f'<button id="{key}" type="button" aria-label="{label}">{sign}</button>'
    yield "</div></section>\n"


_ZOOM = (
    ("out", "&minus;", "Zoom out"),
    ("level", "100%", "Full size"),
    ("in", "+", "Zoom in"),
    ("fit", "Fit", "Fit into the frame"),
)


def _look(state: State) -> str:
    return state.name.lower()


def _css(verdict: Verdict) -> str:
    return verdict.value.replace(" ", "-")


def _boxes(report: GradientReport, drawn: Picture, judgement: Judgement) -> list[str]:
    """The boxes that a finding is about; the first is the one to look at."""
    boxes = [placed.box for placed in drawn.boxes]
    home = {name: box.key for box in boxes for name in box.layers if name}
    spans = [judgement.finding.span, *(because.span for because in judgement.because)]
    found = [box.key for span in spans for box in boxes if box.span and _touch(box.span, span)]
    owner = {p.name: home.get(layer.name, "") for layer in report.layers for p in layer.parameters}
    # The evidence has the numbers of the whole run; what the finding is about stands in its sentences.
    # A layer may have the name of an everyday word, so in a sentence such a name alone says nothing.
    told = re.findall(r"[\w.]*\w", f"{judgement.reason} {judgement.finding.message}")
    words = [word for word in told if word in owner or re.search(r"[\d._]", word)]
    words += [name for stop in report.stops if any(_touch(stop.span, span) for span in spans) for name in stop.behind]
    found += [owner.get(word) or home.get(word, "") for word in words]
    if not any(found):
        found += [home.get(layer.name, "") for layer in report.layers if layer.span and _touch(layer.span, spans[0])]
    return [key for key in dict.fromkeys(found) if key]


def _touch(one: Span, other: Span) -> bool:
    return one.path == other.path and one.line <= other.end_line and other.line <= one.end_line


def _findings(judged: Sequence[Judgement], boxes: Sequence[list[str]], sources: Mapping[str, str]) -> Iterator[str]:
    counts = Counter(judgement.verdict for judgement in judged)
    yield '<section class="panel findings" id="findings" aria-labelledby="findings-title"><div class="head">'
    yield '<h2 id="findings-title">Findings</h2><ul class="tally">'
    for verdict in _ORDER:
        if counts[verdict]:
            yield f'<li class="{_css(verdict)}">{counts[verdict]} {verdict.value}</li>'
    yield '</ul></div><div class="list">\n'
    for place, (judgement, keys) in enumerate(zip(judged, boxes, strict=True)):
        yield from _finding(place, judgement, keys, sources)
    yield "</div></section>\n"


def _instead_of_findings(seen: str) -> Iterator[str]:
    """Where there is nothing to judge, what the run showed is told in that place."""
    yield '<section class="panel findings" id="findings" aria-labelledby="findings-title"><div class="head">'
    yield '<h2 id="findings-title">What the run showed</h2></div><div class="list">'
    yield f'<div class="columns">{seen}</div>' if seen else '<p class="empty">No trouble with gradients was seen.</p>'
    yield '<p class="empty">There were no findings to judge.</p></div></section>\n'


def _wide(key: str, title: str, content: str) -> Iterator[str]:
    yield f'<section class="panel wide" aria-labelledby="{key}"><div class="head"><h2 id="{key}">{title}</h2></div>'
    yield f"{content}</section>\n"


def _finding(place: int, judgement: Judgement, keys: Sequence[str], sources: Mapping[str, str]) -> Iterator[str]:
    finding = judgement.finding
    opened = " open" if place == 0 else ""
    yield f'<details class="finding {_css(judgement.verdict)}" data-boxes="{" ".join(keys)}"{opened}>'
    yield f'<summary><span class="mark">{place + 1}</span><span class="verdict">{judgement.verdict.value}</span>'
    yield f'<span class="rule">{_text(finding.name)} {_text(finding.code)}</span>'
    yield f'<span class="message">{_prose(finding.message)}</span></summary><div class="inside">'
    ranks = f" (rank {', '.join(map(str, judgement.ranks))})" if judgement.ranks else ""
    yield f"<p>{_prose(judgement.reason)}{ranks}</p>"
    yield f'<div><p class="place">{_text(finding.span.path)}:{finding.span.line}:{finding.span.column}</p>'
    yield f"{_excerpt(finding.span, sources)}</div>"
    chain: Sequence[Because] = judgement.because or finding.because
    if chain:
        yield f"<div><h4>{'What ran, in order' if judgement.because else 'Because'}</h4>"
        yield '<ol class="chain">'
        for because in chain:
            source = line_of(sources, because.span)
            yield f"<li>{_prose(because.text)} "
            yield f'<span class="place">{_text(because.span.path)}:{because.span.line}</span>'
            yield f'<code class="source">{_text(source)}</code></li>' if source else "</li>"
        yield "</ol></div>"
    if finding.instead:
        first, _, rest = finding.instead.strip("\n").partition("\n")
        yield f'<div class="instead"><h4>Instead</h4><p>{_prose(first)}</p>'
        yield f"<pre>{_text(_dedented(rest))}</pre></div>" if rest.strip() else "</div>"
    if judgement.evidence:
        yield '<details class="evidence"><summary>Evidence</summary><dl>'
        for key, value in judgement.evidence.items():
            yield f"<dt>{_text(str(key))}</dt><dd>{_text(_plain(value))}</dd>"
        yield "</dl></details>"
    yield "</div></details>\n"


def _prose(text: str) -> str:
    """A sentence, its `names` set as code."""
    return re.sub(r"`([^`\n]+)`", r"<code>\1</code>", _text(text))


def _plain(value: object) -> str:
    """A value of the evidence, for people; all of it is in the JSON report."""
    if isinstance(value, str):
        text = value
    elif isinstance(value, list | tuple) and all(isinstance(inner, str) for inner in value):
        text = ", ".join(value)
    else:
        text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 600 else f"{text[:600]}\u2026"


def _dedented(text: str) -> str:
    lines = text.split("\n")
    indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return "\n".join(line[indent:] for line in lines)


def _excerpt(span: Span, sources: Mapping[str, str]) -> str:
    lines = sources.get(span.path, "").split("\n")
    first, last = max(span.line - AROUND, 1), min(span.line + AROUND, len(lines))
    if span.line > len(lines) or span.path not in sources:
        return ""
    while first < span.line and not lines[first - 1].strip():
        first += 1
    while last > span.line and not lines[last - 1].strip():
        last -= 1
    shown = lines[first - 1 : last]
    indent = min(len(line) - len(line.lstrip()) for line in shown if line.strip()) if any(map(str.strip, shown)) else 0
    told = []
    for nth, line in enumerate(shown, first):
        hot = span.line <= nth <= span.end_line
        start = max(span.column - 1, indent) if nth == span.line else indent
        end = span.end_column - 1 if nth == span.end_line else len(line)
        left = max(indent, start - LONGEST // 3) if len(line) > LONGEST else indent
        right = min(len(line), left + LONGEST)
        start, end = min(max(start, left), right), min(max(end, left), right)
        parts = [line[left:start], line[start:end], line[end:right]] if hot else [line[left:right], "", ""]
        before, marked, after = map(_text, parts)
        code = f"{before}<mark>{marked}</mark>{after}" if marked else before
        told.append(f"<span{' class=hot' * hot}><b>{nth}</b>{code}\n</span>")
    return f'<pre class="code" tabindex="0">{"".join(told)}</pre>'


def _observations(report: GradientReport, drawn: Picture, sources: Mapping[str, str]) -> str:
    home = {name: placed.box.key for placed in drawn.boxes for name in placed.box.layers}
    home.update({p.name: home[layer.name] for layer in report.layers for p in layer.parameters if layer.name in home})
    told = []
    for section in gradients.sections(report):
        told.append(f'<section><h3 class="{_look(section.state)}"><span>{escape(section.title)}</span></h3><ul>')
        for entry in section.entries:
            keys = [p.box.key for p in drawn.boxes if entry.span and p.box.span and _touch(p.box.span, entry.span)]
            keys = list(dict.fromkeys([*keys, *(home[name] for name in (*entry.names, entry.inside) if name in home)]))
            place = f'<span class="place">{_text(entry.span.path)}:{entry.span.line}</span> ' if entry.span else ""
            told.append(f"<li>{place}{_text(entry.text)}")
            if entry.names:
                more = len(entry.names) - gradients.NAMES
                names = ", ".join(map(_text, entry.names[: gradients.NAMES]))
                told.append(f": <code>{names}</code>" + (f" and {more} more" if more > 0 else ""))
            if keys:
                told.append(f' <button type="button" class="show js" data-boxes="{" ".join(keys)}">show</button>')
            source = line_of(sources, entry.span) if entry.span else ""
            told.append(f'<code class="source">{_text(source[:LONGEST])}</code></li>' if source else "</li>")
        told.append("</ul></section>\n")
    return "".join(told)


Ends = tuple[int, int] | None


def _gradients(report: GradientReport, rows: Sequence[Row], ends: Ends) -> Iterator[str]:
    if not rows:
        return
    yield '<section class="panel wide" aria-labelledby="norms"><div class="head"><h2 id="norms">Gradient norms</h2>'
    yield '<p class="soft">at the first step, on a logarithmic scale; open a line for its parameters</p></div>'
    yield '<div class="rows"><div class="axis"><span>layer</span><span>class</span><span>calls</span>'
    yield f'<span class="track">{_ticks(ends)}</span><span>norm</span></div>\n'
    optimizers = {parameter.optimizer for parameter in report.parameters() if parameter.optimizer}
    for place, row in enumerate(rows):
        norms = row.norms or ()
        bars = _bar(max(norms, default=0), ends, "most") * (len(set(norms)) > 1) + _bar(min(norms, default=0), ends)
        look = _look(row.state) if row.state.bad or not row.bad else "orphan"
        yield f'<details class="row" id="l{place}"><summary class="{look}"><span title="{_text(row.label)}">'
        yield f"{_text(row.label)}</span><span>{_text(row.kind)}</span><span>{row.calls}</span>"
        yield f'<span class="track">{bars}</span><span>{_text(_told(row))}</span></summary>'
        yield '<table class="params"><tbody>\n'
        for part in row.walk():
            if not part.parts:
                for parameter, state in zip(part.layer.parameters, states(part.layer), strict=True):
                    yield _parameter(parameter, state, ends, optimizers)
        yield "</tbody></table></details>\n"
    yield "</div></section>\n"


def _told(row: Row) -> str:
    """The norm or what is in its place."""
    told = [text for _, text in row.remarks()]
    if row.norms and any(part.tally[State.FLOWS] for part in row.parts):
        low, high = map(number, row.norms)
        told.insert(0, low if low == high else f"{low} \u2013 {high}")
    return "; ".join(told) or row.state.value


def _parameter(parameter: ParameterGradient, state: State, ends: Ends, optimizers: set[str]) -> str:
    shape = "\u00d7".join(map(str, parameter.shape)) or "scalar"
    more = []
    if parameter.shared:
        more.append("tied")
    if parameter.optimizer and len(optimizers) > 1:
        more.append(parameter.optimizer)
    if optimizers and not parameter.optimizer and state is not State.FROZEN:
        more.append("in no optimizer")
    said = f' data-more="{_text(", ".join(more))}"' if more else ""
    value = number(parameter.norm) if state is State.FLOWS else state.value
    bar = _bar(parameter.norm or 0, ends)
    return (
        f'<tr class="{_look(state)}"><td>{_text(parameter.name)}</td><td{said}>{shape}</td>'
        f'<td class="track">{bar}</td><td>{value}</td></tr>\n'
    )


def _bar(norm: float, ends: Ends, look: str = "") -> str:
    if ends is None or not 0 < norm < math.inf:
        return ""
    return f'<i class="{f"{look} " if look else ""}w{round(share(norm, ends) * 100)}"></i>'


def _ticks(ends: Ends) -> str:
    if ends is None:
        return ""
    low, high = ends
    every = math.ceil((high - low) / 6)
    return "".join(
        f'<span class="tick w{round((power - low) / (high - low) * 100)}"><span>1e{power}</span></span>'
        for power in range(low, high + 1, every)
    )


def _steps(report: GradientReport) -> Iterator[str]:
    if not report.steps:
        return
    yield '<section class="panel wide" aria-labelledby="steps"><div class="head"><h2 id="steps">Steps</h2></div>'
    by_optimizer = gradients.by_optimizer(report)
    for optimizer, steps in by_optimizer.items():
        if len(steps) < 2:
            continue
        yield f'<p class="optimizer">{_text(optimizer)}</p>' if len(by_optimizer) > 1 else ""
        yield '<div class="sparks">'
        yield _spark("loss", [step.loss for step in steps], number)
        yield _spark("gradient norm", [step.norm for step in steps], number)
        yield _spark("operations in the graph", [float(step.nodes) for step in steps], lambda value: f"{value:.0f}")
        yield _spark("memory", [None if step.memory is None else float(step.memory) for step in steps], size)
        yield "</div>"
    shown: Sequence[Step] = report.steps
    if len(shown) > STEPS:
        shown = [shown[round(place * (len(shown) - 1) / (STEPS - 1))] for place in range(STEPS)]
    yield f'<details class="steps"{" open" * (len(shown) <= 8)}><summary>'
    yield "Every step" if len(shown) == len(report.steps) else f"{len(shown)} of {len(report.steps)} steps"
    yield "</summary><table><thead><tr><th>step</th><th>optimizer</th><th>loss</th><th>gradient norm</th>"
    yield "<th>operations</th><th>memory</th><th>where</th></tr></thead><tbody>\n"
    for step in shown:
        where = f"{step.span.path}:{step.span.line}" if step.span else ""
        cells = (step.number, step.optimizer, number(step.loss), number(step.norm), step.nodes, size(step.memory))
        yield f"<tr>{''.join(f'<td>{_text(str(cell))}</td>' for cell in (*cells, where))}</tr>\n"
    yield "</tbody></table></details></section>\n"


def _spark(title: str, values: Sequence[float | None], word: Callable[[float], str]) -> str:
    """A small curve; steps without a number are left out."""
    known = [(place, value) for place, value in enumerate(values) if value is not None and math.isfinite(value)]
    if len(known) < 2:
        return ""
    if len(known) > POINTS:
        known = [known[round(place * (len(known) - 1) / (POINTS - 1))] for place in range(POINTS)]
    low, high = min(value for _, value in known), max(value for _, value in known)
    if word(low) == word(high):
        # What reads as one number is no slope.
        low = high
    points = " ".join(
        f"{place / (len(values) - 1) * 200:.1f},{37 - (value - low) / (high - low) * 34 if high > low else 20:.1f}"
        for place, value in known
    )
    first, last = word(known[0][1]), word(known[-1][1])
    told = f"{first} \u2192 {last}" if first != last else f"{first} throughout" if low == high else first
    return (
        f'<div class="spark"><h3>{title}</h3><svg viewBox="0 0 200 40" preserveAspectRatio="none" role="img" '
        f'aria-label="{title}: {told}"><polyline points="{points}"/></svg><p>{told}</p></div>'
    )


def _notes(report: GradientReport) -> Iterator[str]:
    if report.notes:
        notes = "".join(f"<li>{_text(note)}</li>" for note in report.notes)
        yield from _wide("notes", "Notes", f'<ul class="notes">{notes}</ul>')
