"""What is found does not depend on how a run is done: jobs, cache, order, hash seed, or what is looked at first."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from programs import Writer

from gradlint import cache, isolate
from gradlint.cache import Cache
from gradlint.lint import Linter, lint
from gradlint.outcome import Outcome, merged
from gradlint.rule import Finding
from gradlint.rules import rules
from gradlint.shadow import worth
from gradlint.sources import Source
from gradlint.trace import Span

ROOT = Path(__file__).parent.parent
RULES = rules()
FILES = [
    *sorted((ROOT / "fixtures" / "projects").rglob("*.py")),
    *sorted((ROOT / "fixtures" / "wild").rglob("*.py"))[::9],
]
SOURCES = [Source(str(path), path.read_text(encoding="utf-8")) for path in FILES]
PATHS = [source.path for source in SOURCES]


@pytest.fixture(scope="module")
def found() -> list[Finding]:
    findings = lint(SOURCES, RULES)
    assert len(findings) > 20
    return findings


def test_order(found: list[Finding]) -> None:
    linter = Linter(SOURCES, RULES)
    outcomes = {path: linter.file(path) for path in reversed(PATHS)}
    assert merged(outcomes[path] for path in PATHS) == found
    assert lint(list(reversed(SOURCES)), RULES) == found


@pytest.mark.parametrize("jobs", [1, 3])
def test_jobs(found: list[Finding], jobs: int) -> None:
    outcomes = dict(isolate.lint(SOURCES, RULES, PATHS, jobs))
    assert merged(outcomes[path] for path in PATHS) == found


def test_a_forgotten_tree_is_parsed_again(found: list[Finding], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradlint.lint._MOST_PARSED", 0)
    assert lint(SOURCES, RULES) == found


def check(folder: Path, *options: str, seed: int = 0, home: Path | None = None) -> str:
    environment = os.environ | {"PYTHONHASHSEED": str(seed), "XDG_CACHE_HOME": str(home or folder / "home")}
    command = [
        sys.executable,
        "-m",
        "gradlint",
        "check",
        "--isolated",
        "--output-format",
        "json",
        *options,
        str(folder),
    ]
    run = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert run.returncode in (0, 1), run.stderr
    return run.stdout


def test_seeds_and_the_cache(tmp_path: Path) -> None:
    folder = ROOT / "fixtures" / "projects" / "segmentation"
    cold = check(folder, home=tmp_path)
    assert len(json.loads(cold)) == 6
    for options, seed in (((), 0), ((), 1), (("--no-cache",), 1), (("--no-cache", "--jobs", "2"), 2)):
        assert check(folder, *options, seed=seed, home=tmp_path) == cold


def texts() -> Iterator[tuple[str, str]]:
    yield from ((source.path, source.text) for source in SOURCES)
    yield from ((f"generated {seed}", Writer(seed).program()) for seed in range(40))


def test_what_is_left_out_has_no_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries that their words leave out would find nothing."""
    sources = [Source(path, text) for path, text in texts()]
    with_words = [lint([source], RULES) for source in sources]
    monkeypatch.setattr(worth, "in_function", lambda *_: True)
    monkeypatch.setattr(worth, "in_module", lambda chunk: "forward" in chunk.methods)
    monkeypatch.setattr(worth, "in_program", lambda *_: True)
    assert [lint([source], RULES) for source in sources] == with_words


# -- the cache

FINDING = Finding("dropped-result", "GL105", "error", Span("a.py", 1, 1, 1, 2), "it is lost")
ASKED = {("a.py", "b", 0): "b.py", ("a.py", "c", 0): ""}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(cache, "folder", lambda: tmp_path)
    return tmp_path


def opened(*names: str, **texts: str) -> Cache:
    return Cache([Source(f"{name}.py", text) for name, text in ({"a": "1", "b": "2"} | texts).items()], names)


def filled() -> None:
    kept = opened()
    kept.put("a.py", Outcome((FINDING,), ASKED, ("f",)))
    kept.save()


@pytest.mark.usefixtures("home")
def test_it_knows_what_it_was_told() -> None:
    filled()
    kept = opened()
    assert kept.get("a.py") == Outcome((FINDING,), {}, ("f",))
    assert kept.read("a.py") == {"a.py", "b.py"}
    assert kept.asked() == {"a.py": {("b", 0): "b.py", ("c", 0): ""}, "b.py": {}}
    assert opened().get("b.py") is None


@pytest.mark.usefixtures("home")
def test_what_changes_is_a_miss() -> None:
    filled()
    assert opened(a="2").get("a.py") is None
    assert opened(b="3").get("a.py") is None
    assert opened(c="3").get("a.py") is None, "the import means another file now"
    assert opened(d="3").get("a.py") is not None
    assert opened("another-rule").get("a.py") is None


@pytest.mark.usefixtures("home")
def test_another_build_is_a_miss(monkeypatch: pytest.MonkeyPatch) -> None:
    filled()
    monkeypatch.setattr("gradlint.__version__", "0.0")
    assert opened().get("a.py") is None


@pytest.mark.parametrize("damage", [b"", b"\xff\xfe", b"{}\n", b"\0" * 100, b"half"])
def test_damage_is_a_miss(home: Path, damage: bytes) -> None:
    filled()
    (file,) = home.iterdir()
    content = file.read_bytes()
    for broken in (
        damage,
        damage + content[20:],
        content[: len(content) // 2] + damage,
        content.replace(b"lost", b"kept"),
        b"".join(content.splitlines(keepends=True)[::2]),
    ):
        file.write_bytes(broken)
        assert opened().get("a.py") is None
    filled()
    assert opened().get("a.py") is not None


@pytest.mark.usefixtures("home")
def test_runs_at_once_keep_what_both_found() -> None:
    one, other = opened(), opened()
    one.put("a.py", Outcome((FINDING,), ASKED))
    other.put("b.py", Outcome((), {}))
    one.save()
    other.save()
    assert None not in (opened().get("a.py"), opened().get("b.py"))


@pytest.mark.usefixtures("home")
def test_a_run_over_a_part_leaves_the_rest() -> None:
    """To a file that is linted alone its imports mean nothing; what is known of it among others stays."""
    whole = {("a.py", "b", 0): "b.py"}
    kept = opened()
    kept.put("a.py", Outcome((), whole))
    kept.put("b.py", Outcome((), {("b.py", "a", 0): "a.py", **whole}))
    kept.save()
    alone = Cache([Source("a.py", "1")], ())
    assert alone.get("a.py") is None
    alone.put("a.py", Outcome((FINDING,), {("a.py", "b", 0): ""}))
    alone.save()
    assert opened().get("a.py") is None
    assert opened().get("b.py") is not None
    assert Cache([Source("a.py", "1")], ()).get("a.py") == Outcome((FINDING,), {})


@pytest.mark.usefixtures("home")
def test_what_one_file_asks_of_another_is_kept_once(home: Path) -> None:
    sizes = []
    for count in (1, 100):
        names = [f"user{number}" for number in range(count)]
        kept = opened(*names, **dict.fromkeys(names, "from a import b"))
        questions = {("a.py", f"some.module.number{number}", 0): "" for number in range(1000)}
        for name in names:
            kept.put(f"{name}.py", Outcome((), {(f"{name}.py", "a", 0): "a.py", **questions}))
        kept.save()
        sizes.append(sum(file.stat().st_size for file in home.iterdir()))
        cache.clean()
    assert sizes[1] < 2 * sizes[0]


@pytest.mark.usefixtures("home")
def test_failures_are_not_kept() -> None:
    kept = opened()
    kept.put("a.py", Outcome((Finding("internal-error", "GL004", "error", FINDING.span, "no"),), {}))
    kept.save()
    assert opened().get("a.py") is None


def test_it_stays_small(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "LARGEST", 1000)
    for number in range(10):
        kept = opened(f"rule-{number}")
        kept.put("a.py", Outcome((FINDING,), ASKED))
        kept.save()
    assert 0 < sum(file.stat().st_size for file in home.iterdir()) <= 1000


def test_what_was_used_lately_stays(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled()
    (used,) = home.iterdir()
    os.utime(used, (0, 0))
    assert opened().get("a.py") is not None
    (home / "older").write_bytes(bytes(1000))
    os.utime(home / "older", (1, 1))
    monkeypatch.setattr(cache, "LARGEST", used.stat().st_size + 200)
    kept = opened("another-rule")
    kept.put("b.py", Outcome((), {}))
    kept.save()
    assert used.exists()
    assert not (home / "older").exists()


def test_it_lives_without_a_place(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "file").touch()
    monkeypatch.setattr(cache, "folder", lambda: home / "file" / "inside")
    filled()
    assert opened().get("a.py") is None


def test_clean(home: Path) -> None:
    filled()
    cache.clean()
    assert not home.exists()
    cache.clean()


# -- interrupts


def test_an_interrupt_keeps_what_was_found(tmp_path: Path) -> None:
    bug = "import torch\nx = torch.ones(3)\nx.abs()\n"
    (tmp_path / "a.py").write_text(bug)
    (tmp_path / "b.py").write_text(bug)
    code = (
        "import os, sys\n"
        "from gradlint import cli, isolate\n"
        "real = isolate.lint\n"
        "def lint(*given):\n"
        "    for told in real(*given):\n"
        "        yield told\n"
        f"        os.kill(os.getpid(), {int(signal.SIGINT)})\n"
        "isolate.lint = lint\n"
        f"sys.argv = ['gradlint', 'check', '--no-cache', '--output-format', 'concise', {str(tmp_path)!r}]\n"
        "cli.main()\n"
    )
    run = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 130
    assert "a.py:3:1: GL105" in run.stdout
    assert "1 file checked" in run.stdout
    assert "interrupted: 1 file was not linted" in run.stderr
    assert "Traceback" not in run.stderr
