"""A source file cut into its top-level statements, each parsed by libcst when it is first needed.

The cut comes from `ast`, which costs a tenth of a libcst parse; it says only where statements begin and end and
which words they use.  Meaning comes from libcst alone.
"""

from __future__ import annotations

import ast
import re
import warnings
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from gradlint.shadow.splice import Lines, lines_in, spliced, unchanged
from gradlint.trace import Site, Span

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Chunk:
    """One top-level statement (or several that share a line), or the body of a method of a class."""

    __slots__ = (
        "__dict__",
        "alive",
        "before",
        "binds",
        "counts",
        "gaps",
        "imports",
        "inner",
        "kind",
        "line",
        "methods",
        "outline",
        "path",
        "text",
    )

    def __init__(self, path: str, line: int, text: str, kind: str, binds: tuple[str, ...] = ()) -> None:
        self.path = path
        self.line = line
        """The line of the file at which the chunk begins."""
        self.text = text
        self.outline = text
        """What is parsed: of a 'class', all but the bodies of its methods."""
        self.kind = kind
        """'def', 'class', 'method', 'import', 'names' (it only gives names a value) or 'statement'."""
        self.binds = binds
        """The names that running it binds."""
        self.imports: list[tuple[int, str, str, str]] = []
        """What it imports: dots, module, name ('*' for all names, '' for the module itself), and what that binds."""
        self.inner: list[Chunk | None] = []
        """The body of each method of a 'class', in order; None where it stands in the outline."""
        self.gaps: list[tuple[int, int]] = []
        """Where the outline leaves lines out: after which of its lines, and how many."""
        self.methods: dict[str, str] = {}
        """The text of each method of a 'class'."""
        self.counts: dict[str, int] = {}
        """How often the text names each attribute that was asked about, other than to set it."""
        self.before: Chunk | None = None
        """What stood here before the last edit, as far as it was parsed."""
        self.alive = True
        """It is a part of what its file is now."""

    @property
    def defines(self) -> str:
        """The name that a 'def' or 'class' binds, '' for other chunks."""
        return self.binds[0] if self.kind in ("def", "class") else ""

    @cached_property
    def module(self) -> cst.Module:
        # libcst takes a form feed at the start of a line for indentation.
        text = re.sub(r"^\f+", "", self.outline, flags=re.MULTILINE) if "\f" in self.outline else self.outline
        before, self.before = self.before, None
        try:
            if before is not None:
                found = spliced(before.module, before.outline, text, before.lines, self.lines)
                if found is not None:
                    return found
            return cst.parse_module(text)
        except cst.ParserSyntaxError:
            # Python reads it and libcst does not (`(x): int = 1`): what it says stays unknown.
            return cst.parse_module("")

    @cached_property
    def lines(self) -> Sequence[Lines]:
        """Where the statements of the outline are."""
        return lines_in(_parsed(self.outline, self.path))

    def forget(self) -> None:
        """Let go of what was parsed of it; what stands where stays known."""
        # What is made when it is first asked for, and nothing else, is in here.
        vars(self).clear()
        self.before = None
        for chunk in self.inner:
            if chunk is not None:
                chunk.forget()

    def follow(self, old: Chunk) -> None:
        """Stand in the place of `old`, which has another text."""
        self.before = old if "module" in vars(old) else old.before
        old.before = None

    @cached_property
    def body(self) -> Sequence[cst.CSTNode]:
        return self.module.body

    @cached_property
    def function(self) -> cst.FunctionDef | None:
        """The function that a 'method' holds, None where libcst cannot read it."""
        return next((s for line in self.body for s in _block(line) if isinstance(s, cst.FunctionDef)), None)

    @cached_property
    def deferred(self) -> dict[int, Chunk]:
        """Where the bodies of a class's methods are, by the `id` of the method in the outline."""
        cls = next((s for s in self.body if isinstance(s, cst.ClassDef)), None) if self.inner else None
        methods = [s for s in _block(cls) if isinstance(s, cst.FunctionDef)] if cls is not None else []
        return {id(node): chunk for node, chunk in zip(methods, self.inner, strict=False) if chunk is not None}

    @cached_property
    def sites(self) -> dict[int, ShadowSite]:
        return {}

    @cached_property
    def constants(self) -> dict[int, object]:
        """The values of its literals, by the `id` of the node."""
        return {}

    @cached_property
    def generators(self) -> dict[int, bool]:
        """Whether each of its functions is a generator, by the `id` of the node."""
        return {}

    def yields(self, function: cst.FunctionDef) -> bool:
        """Whether a function is a generator."""
        known = self.generators.get(id(function))
        if known is None:
            known = self.generators[id(function)] = "yield" in self.outline and _yields(function)
        return known

    def mentions(self, attribute: str) -> int:
        """How often the text names `attribute` other than to set it."""
        known = self.counts.get(attribute)
        if known is None:
            known = self.counts[attribute] = _mentions(self.text, attribute)
        return known

    def line_of(self, line: int) -> int:
        """The line of the file for a line of the outline."""
        return self.line - 1 + line + sum(left_out for after, left_out in self.gaps if line > after)

    @property
    def last(self) -> int:
        """The line of the file at which the chunk ends."""
        return self.line + self.text.count("\n") - 1

    def shift(self, lines: int) -> None:
        """Stand so many lines further down."""
        self.line += lines
        for one in self.inner:
            if one is not None:
                one.line += lines

    def goes_on_as(self, new: Chunk) -> bool:
        """Take over what differs in `new`, where that is nothing but bodies of methods; else False."""
        if self.outline != new.outline or [one is None for one in self.inner] != [one is None for one in new.inner]:
            return False
        if any(_mentions(new.text, attribute) != count for attribute, count in self.counts.items()):
            return False
        for at, (old, one) in enumerate(zip(self.inner, new.inner, strict=True)):
            if old is not None and one is not None:
                if old.text == one.text:
                    old.line = one.line
                else:
                    old.alive = False
                    one.follow(old)
                    self.inner[at] = one
        self.line, self.text, self.methods = new.line, new.text, new.methods
        self.imports, self.gaps = new.imports, new.gaps
        vars(self).pop("deferred", None)
        return True

    def replaced(self, new: Chunk) -> Chunk:
        """What stands here from now on: `new`, with what it can keep of this chunk, or this chunk itself."""
        if self.kind == "class" and self.goes_on_as(new):
            return self
        if self.kind == "class":
            new.take_methods(self)
        else:
            new.follow(self)
        self.end()
        return new

    def take_methods(self, old: Chunk) -> None:
        """Keep the methods of `old`, a class of another outline, whose text is the same."""
        same = {one.text: one for one in old.inner if one is not None}
        for at, new in enumerate(self.inner):
            kept = same.pop(new.text, None) if new is not None else None
            if kept is not None and new is not None:
                kept.line = new.line
                self.inner[at] = kept
        old.inner = list(same.values())

    def end(self) -> None:
        """Be no part of the file any more."""
        self.alive = False
        for one in self.inner:
            if one is not None:
                one.alive = False

    @cached_property
    def positions(self) -> dict[cst.CSTNode, object]:
        # Only files with a finding come here: this costs twice the parse.
        wrapper = MetadataWrapper(self.module, unsafe_skip_copy=True)
        return dict(wrapper.resolve(PositionProvider))

    def site(self, node: cst.CSTNode) -> ShadowSite:
        found = self.sites.get(id(node))
        if found is None:
            found = self.sites[id(node)] = ShadowSite(self, node)
        return found


def _mentions(text: str, attribute: str) -> int:
    return len(re.findall(rf"\b{re.escape(attribute)}\b(?!\s*=[^=])", text))


def _yields(function: cst.FunctionDef) -> bool:
    todo: list[cst.CSTNode] = [function.body]
    while todo:
        node = todo.pop()
        if isinstance(node, cst.Yield):
            return True
        if not isinstance(node, (cst.FunctionDef, cst.Lambda, cst.ClassDef)):
            todo.extend(node.children)
    return False


def _block(node: cst.CSTNode | None) -> Sequence[cst.CSTNode]:
    """The statements of a compound statement."""
    return node.body.body if isinstance(node, (cst.ClassDef, cst.If)) else ()


class ShadowSite(Site):
    """A libcst node as a place in the source; its span is computed when it is first asked for."""

    __slots__ = ("chunk", "node")
    known = True

    def __init__(self, chunk: Chunk, node: cst.CSTNode) -> None:
        self.chunk = chunk
        self.node = node

    @property
    def span(self) -> Span:
        place = self.chunk.positions[self.node]
        start, end = place.start, place.end  # type: ignore[attr-defined]
        line_of = self.chunk.line_of
        return Span(self.chunk.path, line_of(start.line), start.column + 1, line_of(end.line), end.column + 1)


class TooDeep(ValueError):
    """Brackets nest deeper than the parsers can take; `line` says where."""

    def __init__(self, line: int) -> None:
        super().__init__(f"more than {_DEEPEST_NESTING} nested brackets")
        self.line = line


class Before(NamedTuple):
    """An earlier text of a file, and its chunks."""

    text: str
    chunks: Sequence[Chunk]


def chunks(path: str, text: str, before: Before | None = None) -> Sequence[Chunk]:
    """The top-level statements of `text`, in order.  Raises TooDeep, and what `ast.parse` raises.

    Each chunk of `before` whose text is the same stays the same chunk, with all that was parsed of it, so that an edit
    costs what it changed; the others end.
    """
    depth = _deepest_nesting(text)
    if depth is not None:
        raise TooDeep(depth)
    if before is not None and (edited := _edited(path, text, before)) is not None:
        return edited
    tree = _parsed(text, path)
    lines = [line + "\n" for line in text.split("\n")]
    defined = {s.name for s in tree.body if isinstance(s, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))}
    found: list[Chunk] = []
    last_end = 0
    for statement in tree.body:
        start, end = _first_line(statement), statement.end_lineno or statement.lineno
        binds: dict[str, None] = {}
        if start <= last_end and found:
            # Statements that share a line stay together.
            previous = found.pop()
            start, kind = previous.line, "statement"
            binds = dict.fromkeys(previous.binds)
        else:
            kind = _DEFINITIONS.get(type(statement)) or ("names" if _only_binds(statement, defined) else "statement")
        binds.update(dict.fromkeys(_bound(statement)))
        found.append(_chunk(path, start, lines[start - 1 : end], kind, tuple(binds), statement))
        last_end = max(end, last_end)
    return _continued(found, before.chunks) if before is not None else found


_DEFINITIONS: dict[type, str] = {
    ast.FunctionDef: "def",
    ast.AsyncFunctionDef: "def",
    ast.ClassDef: "class",
    ast.Import: "import",
    ast.ImportFrom: "import",
}


def _parsed(text: str, path: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text, path)


def _chunk(path: str, line: int, lines: list[str], kind: str, binds: tuple[str, ...], statement: ast.stmt) -> Chunk:
    chunk = Chunk(path, line, "".join(lines), kind, binds)
    if "import" in chunk.text:
        chunk.imports = list(_imports(statement))
    if isinstance(statement, ast.ClassDef) and kind == "class":
        _defer(chunk, statement, lines, line - _first_line(statement))
    return chunk


def _edited(path: str, text: str, before: Before) -> Sequence[Chunk] | None:
    """The chunks of `before` after an edit inside one definition, None where that is not all that changed."""
    old, new = before.text.split("\n"), text.split("\n")
    above, below = unchanged(old, new)
    longer = len(new) - len(old)
    at = next((i for i, one in enumerate(before.chunks) if one.last >= len(old) - below), None)
    if at is None or (ended := before.chunks[at]).line > above + 1 or not ended.defines:
        return None
    lines = [line + "\n" for line in new[ended.line - 1 : ended.last + longer]]
    try:
        tree = _parsed("".join(lines), path)
    except (SyntaxError, ValueError):
        return None
    statement = tree.body[0] if len(tree.body) == 1 else None
    if (
        not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        or (_DEFINITIONS[type(statement)], statement.name) != (ended.kind, ended.defines)
        or (_first_line(statement), statement.end_lineno) != (1, len(lines))
    ):
        return None
    for one in before.chunks[at + 1 :]:
        one.shift(longer)
    made = _chunk(path, ended.line, lines, ended.kind, ended.binds, statement)
    if ended.text == made.text:
        return before.chunks
    if ended.kind == "def":
        vars(made)["lines"] = lines_in(tree)
    return [*before.chunks[:at], ended.replaced(made), *before.chunks[at + 1 :]]


def _continued(found: list[Chunk], before: Sequence[Chunk]) -> list[Chunk]:
    """`found`, with the chunks of `before` in the place of those that are the same."""
    same: dict[tuple[str, str], list[Chunk]] = {}
    for old in reversed(before):
        same.setdefault((old.kind, old.text), []).append(old)
    kept: list[Chunk | None] = []
    for new in found:
        olds = same.get((new.kind, new.text))
        kept.append(olds.pop() if olds else None)
        if (one := kept[-1]) is not None:
            one.shift(new.line - one.line)
    left = {id(old): old for olds in same.values() for old in olds}
    named = {(old.kind, old.defines): old for old in left.values() if old.defines}
    for at, new in enumerate(found):
        ended = named.pop((new.kind, new.defines), None) if kept[at] is None else None
        if ended is not None:
            del left[id(ended)]
            kept[at] = ended.replaced(new)
    for old in left.values():
        old.end()
    return [old or new for old, new in zip(kept, found, strict=True)]


def _first_line(statement: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(d.lineno for d in decorators)])


def _defer(chunk: Chunk, cls: ast.ClassDef, lines: list[str], above: int) -> None:
    """Leave the bodies of a class's methods out of its outline.

    `lines` are the class's own; `above` are those that the file has more above it than what was parsed.
    """
    outline: list[str] = []
    begin = _first_line(cls) - 1
    last = copied = 0
    for method in cls.body:
        if not isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef)):
            last = (method.end_lineno or method.lineno) - begin
            continue
        start, end = _first_line(method) - begin, (method.end_lineno or method.lineno) - begin
        body = _first_line(method.body[0]) - begin
        text = "".join(lines[start - 1 : end])
        chunk.methods[method.name] = text
        indent = lines[body - 1][: method.body[0].col_offset]
        if start <= last or not indent.isspace():
            # What shares a line with something else stays where it is.
            chunk.inner.append(None)
        else:
            # A block around it keeps every column, and one line before it keeps the lines.
            inner = Chunk(chunk.path, start + begin + above - 1, text, "method", (method.name,))
            inner.outline = "if 1:\n" + text
            chunk.inner.append(inner)
            # The outline stays the same however long the body is, so that its tree outlives a change of the body.
            outline += [*lines[copied : body - 1], f"{indent}...\n"]
            copied = end
            if end > body:
                chunk.gaps.append((len(outline), end - body))
        last = end
    chunk.outline = "".join([*outline, *lines[copied:]])


def _only_binds(statement: ast.stmt, defined: set[str]) -> bool:
    """Whether a top-level statement does nothing but give names a value, so that it can wait until one is read."""
    if isinstance(statement, (ast.Assign, ast.AnnAssign)):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        # What the file itself defines may do anything when it is called.
        return all(_is_name(target) for target in targets) and not _calls(statement, defined)
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    if isinstance(statement, ast.Try):
        parts = [*statement.body, *statement.orelse, *statement.finalbody]
    elif isinstance(statement, ast.If):
        parts = [*statement.body, *statement.orelse]
    else:
        inert = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Pass, ast.Raise)
        return isinstance(statement, inert)
    return all(_only_binds(part, defined) for part in parts)


def _is_name(target: ast.expr) -> bool:
    if isinstance(target, (ast.Tuple, ast.List)):
        return all(_is_name(element) for element in target.elts)
    return isinstance(target, ast.Name)


def _calls(statement: ast.stmt, defined: set[str]) -> bool:
    """Whether a statement calls something that its own file defines."""
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in defined
        for node in ast.walk(statement)
    )


def _imports(statement: ast.stmt) -> Iterator[tuple[int, str, str, str]]:
    for node in ast.walk(statement):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield node.level, node.module or "", alias.name, alias.asname or alias.name
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield 0, alias.name, "", alias.asname or alias.name.partition(".")[0]


def _bound(node: ast.AST) -> Iterator[str]:
    """The names that a top-level statement binds."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, ast.alias):
        yield "*" if node.name == "*" else node.asname or node.name.partition(".")[0]
    elif isinstance(node, ast.Name):
        if isinstance(node.ctx, ast.Store):
            yield node.id
    elif isinstance(node, ast.ExceptHandler) and node.name is not None:
        yield node.name
    for name in _BINDING.get(type(node), ()):
        parts = getattr(node, name)
        for part in parts if isinstance(parts, list) else [parts] if parts is not None else ():
            yield from _bound(part)


# Where the names are that a statement binds; what binds none is not walked.
_BINDING: dict[type, tuple[str, ...]] = {
    ast.Import: ("names",),
    ast.ImportFrom: ("names",),
    ast.Assign: ("targets",),
    ast.AnnAssign: ("target",),
    ast.AugAssign: ("target",),
    ast.For: ("target", "body", "orelse"),
    ast.While: ("body", "orelse"),
    ast.If: ("body", "orelse"),
    ast.With: ("items", "body"),
    ast.withitem: ("optional_vars",),
    ast.Try: ("body", "handlers", "orelse", "finalbody"),
    ast.ExceptHandler: ("body",),
    ast.Match: ("cases",),
    ast.match_case: ("body",),
    ast.Tuple: ("elts",),
    ast.List: ("elts",),
    ast.Starred: ("value",),
}


# CPython refuses more than 200 nested brackets; libcst dies of a few thousand.
_DEEPEST_NESTING = 200
_BRACKETS = re.compile(r"[(\[{]|[)\]}]")


def _deepest_nesting(text: str) -> int | None:
    """The line at which brackets nest too deeply, None where they do not.  Strings are not told apart."""
    depth = 0
    for bracket in _BRACKETS.finditer(text):
        if bracket[0] in "([{":
            depth += 1
            if depth > _DEEPEST_NESTING * 4:
                return text.count("\n", 0, bracket.start()) + 1
        elif depth:
            depth -= 1
    return None
