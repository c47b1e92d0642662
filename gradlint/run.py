"""One run of the linter: paths in, a report out."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pathspec import GitIgnoreSpec

from gradlint import config, selection, sources, suppress
from gradlint.cache import Cache
from gradlint.config import Config
from gradlint.faults import INTERNAL
from gradlint.outcome import Outcome, merged
from gradlint.report import Report
from gradlint.rule import Finding
from gradlint.rules import rules
from gradlint.selection import Catalog
from gradlint.sources import Source

STDIN = "-"


@dataclass(frozen=True, slots=True)
class Request:
    """What the user asked for on top of the configuration."""

    paths: Sequence[str] = (".",)
    select: Sequence[str] = ()
    extend_select: Sequence[str] = ()
    ignore: Sequence[str] = ()
    isolated: bool = False
    force_exclude: bool = False
    stdin: bytes | None = None
    """The content of the one file named `-`."""
    stdin_filename: str = STDIN
    jobs: int = 0
    """How many processes lint; 0: as many as pay."""
    cache: bool = False
    """Read and write the cache."""


Progress = Callable[[int, int], None]


def check(*paths: str | os.PathLike[str]) -> list[Finding]:
    """Lint files and folders as `gradlint check` does, the project's configuration included.

    Raises PathMissing for a path that is not there and ConfigError for a configuration that means nothing;
    both are ValueErrors.
    """
    from gradlint import fixes

    report = lint(Request([os.fspath(path) for path in paths] or ["."]))
    return fixes.offered(report.findings, report.sources)


def lint(request: Request, progress: Progress | None = None) -> Report:
    """The report on what `request` names.  Raises PathMissing, ConfigError, Unknown.

    `progress` is called with the number of files that are done and of all; what it raises stops the run, as an
    interrupt does, and the report is of what was found so far.
    """
    return Run.of(request).report(progress)


@dataclass(frozen=True)
class Run:
    """The files of one run, and what is known of them."""

    request: Request
    wanted: Wanted
    sources: Mapping[str, Source]
    faults: Sequence[Finding]
    """What is wrong with files that could not be read."""
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    """What came of the files that have been linted."""
    cache: Cache | None = None
    read: dict[str, frozenset[str]] = field(default_factory=dict)
    """The files that an outcome depends on; of those from the cache, the cache knows."""

    @staticmethod
    def of(request: Request) -> Run:
        """The run that `request` asks for.  Raises PathMissing, ConfigError, Unknown."""
        wanted = wanted_by(request)
        found, faults = _sources(request, wanted.settings)
        asked = (name for rule in rules() if (name := rule.name) in wanted.names)
        cache = Cache(found, asked) if request.cache and found else None
        return Run(request, wanted, {source.path: source for source in found}, faults, cache=cache)

    def changed(self, sources: Iterable[Source]) -> Run:
        """The same run with other texts in place of those at the paths of `sources`; this one stays as it is."""
        new = {source.path: source for source in sources}
        if self.cache is not None:
            for path in self.outcomes.keys() - self.read.keys():
                self.read[path] = self.cache.read(path)
        kept = {p: outcome for p, outcome in self.outcomes.items() if p not in new and not self.read[p] & new.keys()}
        # The cache is for what is on disk.
        return replace(self, cache=None, sources={**self.sources, **new}, outcomes=kept, read=dict(self.read))

    def report(self, progress: Progress | None = None) -> Report:
        """The report on all files; those of which nothing is known yet are linted."""
        found = [*self.sources.values()]
        self._lint(progress)
        findings = [*self.faults, *merged(self.outcomes[path] for path in self.sources if path in self.outcomes)]
        warnings: list[str] = []
        allowed = {}
        told = {finding.span.path for finding in findings}
        for source in found:
            # Without a finding there is nothing to allow; but a comment of ours that means nothing is always said.
            if source.path in told or "gradlint" in source.text:
                allowed[source.path] = suppress.read(source, self.wanted.catalog.meant)
                warnings += allowed[source.path].warnings
        kept = [finding for finding in findings if self.wanted.tells(finding, allowed.get(finding.span.path))]
        if not found and not findings and not self.request.force_exclude:
            warnings.append("no Python files found under the given paths")
        order = {path: number for number, path in enumerate(self.sources)}
        kept.sort(key=lambda f: (order.get(f.span.path, -1), f.span.path.split(os.sep), f.span, f.code, f.message))
        checked = len(found) + len({finding.span.path for finding in findings} - self.sources.keys())
        unlinted = len(found) - len(self.outcomes)
        cut = [f"{path}: `{entry}`" for path, outcome in self.outcomes.items() for entry in outcome.cut]
        return Report(kept, self.sources, checked - unlinted, warnings, unlinted, cut)

    def _lint(self, progress: Progress | None) -> None:
        """Learn what comes of each file, from the cache where it knows; of fewer files where the user stops the run."""
        found = [*self.sources.values()]
        asked = [rule for rule in rules() if rule.name in self.wanted.names]
        cache = self.cache
        for path in [source.path for source in found if source.path not in self.outcomes]:
            if cache is not None and (known := cache.get(path)) is not None:
                self.outcomes[path] = known
        todo = [source.path for source in found if source.path not in self.outcomes]
        if not todo:
            return
        from gradlint import isolate

        with (
            contextlib.closing(isolate.lint(found, asked, todo, self.request.jobs)) as told,
            contextlib.suppress(KeyboardInterrupt),
        ):
            for path, outcome in told:
                if cache is not None:
                    cache.put(path, outcome)
                self._keep(path, outcome)
                if progress is not None:
                    progress(len(self.outcomes), len(found))
        if cache is not None:
            cache.save()

    def _keep(self, path: str, outcome: Outcome) -> None:
        self.read[path] = frozenset(outcome.asked.values())
        # What was asked is much, and from here on only where it led to counts.
        self.outcomes[path] = replace(outcome, asked={})


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which findings a run tells."""

    settings: Config
    catalog: Catalog
    names: frozenset[str]
    """The rules that are asked."""
    per_file: list[tuple[GitIgnoreSpec, frozenset[str]]]

    def tells(self, finding: Finding, allowed: suppress.Allowed | None) -> bool:
        """Whether neither the selection nor a file's settings nor a comment of its file (`allowed`) refuses it."""
        # That gradlint failed is no one's to hide.
        return finding.name == INTERNAL.name or (
            finding.name in self.names
            and finding.name not in _refused(self.per_file, self.settings, finding.span.path)
            and not (allowed is not None and finding in allowed)
        )


def wanted_by(request: Request) -> Wanted:
    """What `request` and the project's configuration want to be told.  Raises ConfigError, Unknown."""
    paths = request.paths if request.stdin is None else [request.stdin_filename]
    settings = config.default() if request.isolated else config.load(paths)
    catalog = selection.catalog()
    return Wanted(settings, catalog, _selected(catalog, settings, request), _per_file(catalog, settings))


def _selected(catalog: Catalog, settings: Config, request: Request) -> frozenset[str]:
    """Which rules to ask.  The command line's `select` replaces the file's, all else is joined."""
    try:
        in_file = catalog.selected(settings.select, settings.extend_select, settings.ignore)
    except selection.Unknown as error:
        raise _in_file(settings, error) from None
    if not (request.select or request.extend_select or request.ignore):
        return in_file
    return catalog.selected(
        request.select or settings.select,
        (*request.extend_select, *(() if request.select else settings.extend_select)),
        (*request.ignore, *(() if request.select else settings.ignore)),
    )


def _per_file(catalog: Catalog, settings: Config) -> list[tuple[GitIgnoreSpec, frozenset[str]]]:
    try:
        ignores = selection.per_file(catalog, settings.per_file_ignores)
    except selection.Unknown as error:
        raise _in_file(settings, error) from None
    return [(GitIgnoreSpec.from_lines([pattern]), names) for pattern, names in ignores.items()]


def _in_file(settings: Config, error: selection.Unknown) -> config.ConfigError:
    if settings.file is None:
        raise error
    return config.ConfigError(f"{config.where(settings.file, error.selector)}: {error} in [tool.gradlint]")


def _refused(per_file: Iterable[tuple[GitIgnoreSpec, frozenset[str]]], settings: Config, path: str) -> frozenset[str]:
    relative = os.path.relpath(path, settings.root).replace(os.sep, "/")
    return frozenset[str]().union(*(names for spec, names in per_file if spec.match_file(relative)))


def _sources(request: Request, settings: Config) -> tuple[list[Source], list[Finding]]:
    readings: Iterable[Source | Finding | None]
    findings: list[Finding] = []
    if request.stdin is not None:
        readings = [sources.decode(request.stdin_filename, request.stdin)]
    else:
        files, findings = sources.find(request.paths, settings.excludes(force=request.force_exclude))
        readings = map(sources.read, files)
    found: list[Source] = []
    for reading in readings:
        if isinstance(reading, Source):
            found.append(reading)
        elif reading is not None:
            findings.append(reading)
    return found, findings
