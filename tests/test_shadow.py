"""What the shadow teller knows of a program is what torch does.

`fixtures/shadow/<topic>.py` are small programs.  A trailing mark on a simple statement says what must be known
of a value once the statement has run; facts are separated by `;`, and a fact without a name speaks of the
name before it:

    # is x: requires_grad; not leaf; version 2; y: not requires_grad; n: 3
    # is x: maybe              shadow cannot know whether it requires grad
    # maybe x: requires_grad   it is so, and shadow does not know it yet: a known gap, counted

Torch must not contradict a mark, and shadow must say it on all paths together.  Beside the marks, every name
that a statement binds is looked at on both sides: whatever shadow is sure of must be so (but for versions, of
which rules compare only two of one tensor, and torch's own code may count more).  A program that reads
`sys.argv` is run under torch with each of its `# argv:` lines.
"""

from __future__ import annotations

import ast
import itertools
import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from programs import FLAGS, LOOKED_AT, Writer
from walk import UNKNOWN, Look, Ran, Seen, bound_names, run, tell

from gradlint.rules import rules
from gradlint.trace import MAYBE, NO, YES, Backward, Known, Trace

FIXTURES = Path(__file__).parent.parent / "fixtures" / "shadow"
TOPICS = {path.stem: path.read_text(encoding="utf-8") for path in sorted(FIXTURES.glob("*.py"))}
MARK = re.compile(r"# (?P<kind>is|maybe) (?P<facts>[^#]+?) *(?=#|$)")
FACT = re.compile(r"(?:(?P<expression>[A-Za-z_][\w.\[\]'\"-]*): )?(?P<fact>.+)")
ARGV = re.compile(r"^# argv:(.*)$", re.MULTILINE)
each_topic = pytest.mark.parametrize("topic", TOPICS)


@dataclass(frozen=True)
class Mark:
    look: Look
    fact: str
    known: bool
    """False for a gap: torch says so and shadow does not know."""

    def __str__(self) -> str:
        return f"line {self.look.line}: {self.look.expression}: {self.fact}"


def marks(source: str) -> list[Mark]:
    found = []
    for number, line in enumerate(source.splitlines(), 1):
        for mark in MARK.finditer(line):
            name = ""
            for part in mark["facts"].split(";"):
                match = FACT.fullmatch(part.strip())
                assert match, f"line {number}: not a fact: {part}"
                name = match["expression"] or name
                assert name, f"line {number}: of what? {part}"
                found.append(Mark(Look(number, name), match["fact"], mark["kind"] == "is"))
    return found


def holds(fact: str, seen: Seen) -> Known:
    """Whether `fact` is so of what one side has seen."""
    if fact == "requires_grad":
        return seen.requires_grad
    if fact == "leaf":
        return seen.leaf
    if fact.startswith("not "):
        return {YES: NO, NO: YES, MAYBE: MAYBE}[holds(fact[4:], seen)]
    if fact.startswith("version "):
        return MAYBE if seen.version is None else Known.of(seen.version == int(fact[8:]))
    wanted = ast.literal_eval(fact)
    return MAYBE if seen.value is UNKNOWN else Known.of(seen.value == wanted and type(seen.value) is type(wanted))


def all_hold(fact: str, sights: Sequence[Seen]) -> Known:
    answers = {holds(fact, seen) for seen in sights}
    return next(iter(answers)) if len(answers) == 1 else MAYBE


def contradict(one: object, other: object) -> bool:
    """Whether two values surely differ; what is not known agrees with everything."""
    if one is UNKNOWN or other is UNKNOWN:
        return False
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) != len(other) or any(map(contradict, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() != other.keys() or any(contradict(one[key], other[key]) for key in one)
    if isinstance(one, set) or isinstance(other, set):
        return False
    return one != other


def contradictions(told: Sequence[Seen], real: Sequence[Seen]) -> list[str]:
    """What shadow is sure of, on all its visits, and torch has otherwise."""
    found = []
    for fact in ("requires_grad", "leaf"):
        answer = all_hold(fact, told)
        if answer is not MAYBE and any(holds(fact, seen) is not answer for seen in real):
            found.append(f"{fact} is {answer.value}, torch: {[holds(fact, s).value for s in real]}")
    if len({repr(seen.value) for seen in told}) == 1 and all(contradict(told[0].value, s.value) for s in real):
        found.append(f"the value is {told[0].value!r}, torch: {[s.value for s in real]}")
    return found


def runs(source: str) -> list[Sequence[str]]:
    return [("program", *line.split()) for line in ARGV.findall(source)] or [("program",)]


@each_topic
def test_torch_agrees(topic: str) -> None:
    source = TOPICS[topic]
    looks = {mark.look for mark in marks(source)}
    seen: dict[Look, list[Seen]] = {look: [] for look in looks}
    for argv in runs(source):
        ran = run(source, looks, argv)
        assert ran.error is None, f"line {ran.line}: {ran.error!r}"
        for look, sights in ran.seen.items():
            seen[look] += sights
    for mark in marks(source):
        assert seen[mark.look], f"{mark}: torch never came here; a mark stands on the last line of a statement"
        if mark.fact != "maybe":
            answers = [holds(mark.fact, sight) for sight in seen[mark.look]]
            assert set(answers) == {YES}, f"{mark}: torch says {seen[mark.look]}"


@each_topic
def test_shadow_knows(topic: str, record_property: Callable[[str, object], None]) -> None:
    source = TOPICS[topic]
    paths = tell(source, {mark.look for mark in marks(source)})
    wrong = []
    for mark in marks(source):
        sights = [seen for path in paths for seen in path.seen.get(mark.look, ())]
        answer = all_hold("requires_grad" if mark.fact == "maybe" else mark.fact, sights)
        if not sights:
            wrong.append(f"{mark}: shadow never came here")
        elif mark.fact == "maybe" or not mark.known:
            if not mark.known:
                record_property("maybe", f"{topic} line {mark.look.line}")
            if answer is not MAYBE:
                wrong.append(f"{mark}: no longer unknown: {answer.value}")
        elif answer is not YES:
            wrong.append(f"{mark}: shadow says {answer.value}: {sights}")
    assert not wrong, "\n".join(wrong)


@each_topic
def test_shadow_is_sure_of_nothing_wrong(topic: str) -> None:
    source = TOPICS[topic]
    looks = bound_names(source)
    paths = tell(source, looks)
    ran = [run(source, looks, argv) for argv in runs(source)]
    wrong = []
    for look in looks:
        told = [seen for path in paths for seen in path.seen.get(look, ())]
        real = [seen for one in ran for seen in one.seen.get(look, ())]
        if told and real:
            wrong += [f"line {look.line}: {look.expression}: {text}" for text in contradictions(told, real)]
    assert not wrong, "\n".join(wrong)


def test_marks_are_read() -> None:
    """Every comment that looks like a mark is one."""
    for topic, source in TOPICS.items():
        for number, line in enumerate(source.splitlines(), 1):
            meant = len(re.findall(r"# (?:is|maybe)\b", line))
            assert meant == len(MARK.findall(line)), f"{topic}.py:{number}: not a mark: {line}"
    gaps = [mark for source in TOPICS.values() for mark in marks(source) if not mark.known]
    assert len(gaps) < sum(len(marks(source)) for source in TOPICS.values()) / 10, "too much is not known"


SAYS = {
    "a leaf Variable that requires grad is being used in an in-place operation": ("leaf-mutated",),
    "a view of a leaf Variable that requires grad is being used in an in-place operation": ("leaf-mutated",),
    "has been modified by an inplace operation": ("saved-tensor-mutated", "stepped-before-backward", "backward-twice"),
    "This view is the output of a function that returns multiple views": ("multi-view-mutated",),
    "Trying to backward through the graph a second time": ("backward-twice",),
    "does not require grad and does not have a grad_fn": ("loss-without-graph",),
}
"""Which rules speak where torch raises this."""
SPEAKING = tuple(rule for rule in rules() if any(rule.name in names for names in SAYS.values()))
UNSPOKEN = {
    "its base or another view of its base has been modified inplace": "a use, not a change, of one of several views",
    "A view was created in no_grad mode": "rules say nothing of views made without grad",
}
"""What torch raises and no rule speaks of, and why."""


def claims(trace: Trace) -> list[tuple[str, set[int]]]:
    """What the rules about torch's own errors say of a trace, each with the lines that it names."""
    return [
        (rule.name, {claim.site.span.line, *(reason.site.span.line for reason in claim.because)})
        for rule in SPEAKING
        for claim in rule.check(trace)
    ]


def compare_concrete(source: str, score: Counter[str]) -> list[str]:
    """In what shadow and torch differ about a program without unknowns."""
    last = source.count("\n")
    looks = [Look(last, name) for name in LOOKED_AT]
    ran = run(source, looks)
    path, *more = tell(source, looks)
    said = claims(path.trace)
    wrong = [f"paths|{len(more) + 1}"] if more else []
    if ran.error is not None:
        message = str(ran.error)
        if any(text in message for text in UNSPOKEN):
            score["unspoken"] += 1
            return wrong
        names = next((names for text, names in SAYS.items() if text in message), ())
        score[names[0] if names else "other error"] += 1
        if any(rule in names and ran.line in lines for rule, lines in said):
            return wrong
        if "loss-without-graph" in names and never_had_a_graph(path.trace, ran.line):
            return wrong
        return [*wrong, f"missed {names}|line {ran.line}: {type(ran.error).__name__}: {message[:100]}; said {said}"]
    score["no error"] += 1
    for rule, lines in said:
        # A view made without grad that is changed with grad: torch would refuse it for another reason.
        if not (ran.plain_views and rule in ("leaf-mutated", "multi-view-mutated")):
            wrong.append(f"false {rule}|lines {sorted(lines)}")
    for look in looks:
        (real,) = ran.seen[look]
        told = path.seen.get(look)
        wrong += difference(look, told[0], real, score) if told else [f"not reached|{look.expression}"]
    return wrong


def never_had_a_graph(trace: Trace, line: int) -> bool:
    """Whether backward is called there on what no graph was cut from, of which the rule says nothing."""
    backwards = [b for b in trace.told(Backward) if b.site.span.line == line]
    return any(b.edge.requires_grad is NO and not b.root.cuts for b in backwards)


def difference(look: Look, told: Seen, real: Seen, score: Counter[str]) -> list[str]:
    wrong = []
    for fact in ("requires_grad", "leaf"):
        answer, truth = holds(fact, told), holds(fact, real)
        score["maybe" if answer is MAYBE else "sure"] += 1
        if answer not in (MAYBE, truth):
            wrong.append(f"{fact}|{look.expression}: {answer.value}, torch: {truth.value}")
    if None not in (told.version, real.version) and told.version != real.version:
        wrong.append(f"version|{look.expression}: {told.version}, torch: {real.version}")
    if contradict(told.value, real.value):
        wrong.append(f"value|{look.expression}: {told.value}, torch: {real.value}")
    return wrong


def compare_unknown(source: str, score: Counter[str]) -> list[str]:
    """In what shadow, on each of its paths, and torch, with the flags of that path, differ."""
    last = source.count("\n")
    looks = [Look(last, name) for name in (*LOOKED_AT, *FLAGS)]
    real: dict[tuple[bool, ...], Ran] = {}
    wrong = []
    for path in tell(source, looks):
        flags = [path.seen[look][0].value if path.seen.get(look) else UNKNOWN for look in looks[-len(FLAGS) :]]
        said = claims(path.trace)
        for outcome in itertools.product((True, False), repeat=len(FLAGS)):
            if any(flag not in (UNKNOWN, value) for flag, value in zip(flags, outcome, strict=True)):
                continue
            if outcome not in real:
                argv = [flag for flag, value in zip(FLAGS, outcome, strict=True) if value]
                real[outcome] = run(source, looks, ["program", *argv])
            ran = real[outcome]
            if ran.error is not None:
                score["error"] += 1
                continue
            score["no error"] += 1
            wrong += [f"false {rule}|{outcome} lines {sorted(lines)}" for rule, lines in said if not ran.plain_views]
            for look in looks[: -len(FLAGS)]:
                if path.seen.get(look):
                    found = difference(look, path.seen[look][0], ran.seen[look][0], score)
                    wrong += [f"{text} with {outcome}" for text in found]
    return wrong


PROGRAMS = int(os.environ.get("GRADLINT_PROGRAMS", "400"))
"""How many programs are written in all; a fifth of them asks unknown flags."""
PORTION = 40
portions = range(0, PROGRAMS // 5 * 4, PORTION)


@pytest.mark.parametrize("first", portions)
def test_programs_are_told_as_torch_runs_them(first: int) -> None:
    score: Counter[str] = Counter()
    for seed in range(first, first + PORTION):
        source = Writer(seed, daring=0.25 if seed % 2 else 0.6).program()
        wrong = compare_concrete(source, score)
        assert not wrong, f"seed {seed}\n" + "\n".join(wrong) + f"\n{numbered(source)}"
    assert score["maybe"] < score["sure"] / 50, "too much is not known"


@pytest.mark.parametrize("first", range(0, PROGRAMS // 5, PORTION))
def test_paths_hold_for_every_outcome_of_what_is_unknown(first: int) -> None:
    score: Counter[str] = Counter()
    for seed in range(first, first + PORTION):
        source = Writer(seed, unknown=True).program()
        wrong = compare_unknown(source, score)
        assert not wrong, f"seed {seed}\n" + "\n".join(wrong) + f"\n{numbered(source)}"
    assert score["maybe"] < score["sure"] / 50, "too much is not known"


def numbered(source: str) -> str:
    return "\n".join(f"{number:3} {line}" for number, line in enumerate(source.splitlines(), 1))


def test_programs_raise_what_torch_can() -> None:
    """The generated programs meet every error that a rule speaks of."""
    met: Counter[str] = Counter()
    for seed in range(0, 500, 2):
        error = run(Writer(seed, daring=0.6).program()).error
        met.update(names[0] for text, names in SAYS.items() if text in str(error))
    assert met.keys() == {names[0] for names in SAYS.values()}, met


def test_a_check_that_raises_does_not_end_the_walk_that_passed_it() -> None:
    checks = "".join(
        f"def check{n}(x, most):\n    if x.numel() > most:\n        raise ValueError\n    return x\n\n"
        f"check{n}(torch.ones(2), most)\ncheck{n}(torch.ones(2), most)\n"
        for n in range(12)
    )
    ending = "torch.ones(1, requires_grad=True).sum().backward()\n"
    first, second, *_ = tell(f"import sys\nimport torch\n\nmost = int(sys.argv[1])\n{checks}{ending}")
    assert first.trace.told(Backward)
    assert not second.trace.told(Backward), "the next walk fails a check"
