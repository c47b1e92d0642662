"""How the cost grows with the source: `python -m benchmarks.growth [NAME]...`, from a checkout.

CPU time of the analysis alone, without the start of a process.  The sizes are measured in turns, several times, and
the fastest of each counts.  Files may cost in proportion to their number, give or take 15%; one file of a length n in
proportion to n log n.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from gradlint import isolate
from gradlint.lint import lint
from gradlint.rules import rules
from gradlint.sources import Source

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT / "tests"))

from shapes import GROWING, TORCH  # noqa: E402  # the tests count steps of the same programs

ROUNDS = 3
SIZES = 1, 4, 16
LARGEST = {"branches": 10_000, "classes": 3_000, "lines of a function": 5_000, "nested blocks": 160}
"""How often a shape is repeated in its largest program, where it is not `MOST`."""
MOST = 1_600
TIMEOUT = 300
"""So many seconds the analysis of one size may take."""
LONG = 5.0
"""What takes so many CPU seconds is measured once: next to it the machine's noise is small."""


def copies(count: int) -> list[Source]:
    """Some of the fixtures, so often."""
    files = sorted((ROOT / "fixtures" / "wild").rglob("*.py"))[::4]
    return [
        Source(f"copy{number}/{file.parent.name}/{file.name}", file.read_text(encoding="utf-8"))
        for number in range(count)
        for file in files
    ]


def lines(count: int) -> list[Source]:
    """One file of so many lines."""

    def function(number: int) -> str:
        body = f"    if a.f{number}:\n        x = x.detach()\n    (x * {number}).sum().backward()\n"
        return f"def f{number}(x, a):\n{body}\n\n"

    return [Source("a.py", TORCH + "\n\n" + "".join(map(function, range(count // 6))))]


def shape(name: str) -> Callable[[int], list[Source]]:
    """One file of a shape."""

    def sources(count: int) -> list[Source]:
        return [Source("a.py", GROWING[name](count) + "\ntorch.ones(1).abs()\n")]

    return sources


def subjects() -> Iterator[tuple[str, Callable[[int], list[Source]], list[int]]]:
    """What grows: a name, sources of a size, the sizes."""
    yield "files", copies, [*SIZES]
    yield "lines in one file", lines, [500, 5_000, 50_000]
    for name in GROWING:
        most = LARGEST.get(name, MOST)
        yield name, shape(name), [most * size // SIZES[-1] for size in SIZES]


def seconds(sources: Sequence[Source]) -> float:
    """CPU seconds of the analysis, in a process of its own; infinity where it takes too long or dies."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=_work, args=(theirs, sources), daemon=True)
    process.start()
    theirs.close()
    try:
        return float(ours.recv()) if ours.poll(TIMEOUT) else math.inf
    except EOFError:
        return math.inf
    finally:
        process.kill()
        process.join()
        ours.close()


def _work(pipe: Connection, sources: Sequence[Source]) -> None:
    def work() -> None:
        # The tables of facts are read once, whatever the size.
        lint([Source("a.py", TORCH + "torch.ones(1).abs()\n")], rules())
        began = time.process_time()
        lint(sources, rules())
        pipe.send(time.process_time() - began)

    isolate.with_large_stack(work)


def grow(rounds: int, names: Sequence[str] = ()) -> None:
    """Print how many times the first size's time the others take."""
    print("\nCPU time by size, in times of the smallest, of what it may be at most")
    for name, sources, sizes in subjects():
        if names and name not in names:
            continue
        texts = [sources(size) for size in sizes]
        best = [math.inf] * len(sizes)
        for number in range(rounds):
            for at, text in enumerate(texts):
                if number == 0 or best[at] < LONG:
                    best[at] = min(best[at], seconds(text))
        lengths = [sum(len(source.text) for source in text) for text in texts]
        row = [
            f"{size:>7,}: {spent / best[0]:6.2f} of {_most(lengths[0], length, len(text)):6.2f}"
            for size, length, spent, text in zip(sizes, lengths, best, texts, strict=True)
        ]
        print(f"  {name:34}{''.join(row[1:])}", flush=True)


def _most(first: int, length: int, files: int) -> float:
    """How many times as much a text may cost than the first."""
    return length / first * (1.15 if files > 1 else math.log(length) / math.log(first))


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.add_argument("names", nargs="*", help="what to measure; everything by default")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often each size is measured")
    options = parser.parse_args()
    grow(options.rounds, options.names)


if __name__ == "__main__":
    main()
