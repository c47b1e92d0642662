"""What a rule's repair is made of: places in a file's text, and small edits of it.

A rule says in `fix(finding, code)` which statements and expressions change and how; `Code` finds them in the text
and knows about indentation, commas, semicolons, comments and parentheses.  All places are exact, in characters of
the original text, so an edit touches nothing but what it names.
"""

from __future__ import annotations

import ast
import bisect
import re
import warnings
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TypeVar

from gradlint.rule import Edit, Finding, Fix
from gradlint.trace import Span

Edits = tuple[Edit, ...]
_Node = TypeVar("_Node", bound=ast.AST)
_Function = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_Loop = (ast.For, ast.AsyncFor, ast.While)
_Simple = (ast.Name, ast.Attribute, ast.Subscript, ast.Call, ast.Constant, ast.List, ast.ListComp, ast.Dict)

# The weaker an operator binds, the smaller the number.
_BINDS: dict[type[ast.operator], int] = {
    ast.BitOr: 1,
    ast.BitXor: 2,
    ast.BitAnd: 3,
    ast.LShift: 4,
    ast.RShift: 4,
    ast.Add: 5,
    ast.Sub: 5,
    ast.Mult: 6,
    ast.MatMult: 6,
    ast.Div: 6,
    ast.FloorDiv: 6,
    ast.Mod: 6,
    ast.Pow: 8,
}
# What these write is not computed from what was there, or there is no form of them that makes a new tensor.
_NO_OUT_OF_PLACE = re.compile(
    r"(copy|fill|zero|set|resize|resize_as|requires_grad|share_memory|uniform|normal|random|exponential|geometric|"
    r"cauchy|log_normal|bernoulli|apply|swapaxes|detach|data)_$"
)
_VIEWS = frozenset(
    {
        "data",
        "T",
        "chunk",
        "detach",
        "diagonal",
        "expand",
        "expand_as",
        "flatten",
        "narrow",
        "permute",
        "ravel",
        "reshape",
        "select",
        "squeeze",
        "swapaxes",
        "t",
        "transpose",
        "unflatten",
        "unfold",
        "unsqueeze",
        "view",
        "view_as",
    }
)


class Refused(ValueError):
    """The text does not have the shape that a repair needs; then there is no fix."""


class Code:
    """A file's text as statements and expressions at exact places.

    What is asked of a text that does not have it raises Refused, which `gradlint.fixes` takes for "no fix".
    """

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text

    @cached_property
    def tree(self) -> ast.Module:
        """The text as Python's own parser reads it."""
        try:
            # The parser warns of escapes in strings, which is none of our business.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return ast.parse(self.text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise Refused(str(error)) from None

    @property
    def parses(self) -> bool:
        """Whether the text is Python at all."""
        try:
            return bool(self.tree)
        except Refused:
            return False

    @cached_property
    def _parents(self) -> dict[ast.AST, ast.AST]:
        found: dict[ast.AST, ast.AST] = {}
        todo: list[ast.AST] = [self.tree]
        while todo:
            node = todo.pop()
            # Places inside of an f-string are wrong before Python 3.12, and its quotes limit what may stand there.
            if isinstance(node, ast.JoinedStr):
                continue
            for child in ast.iter_child_nodes(node):
                found[child] = node
                todo.append(child)
        return found

    @cached_property
    def _lines(self) -> list[int]:
        """Where each line starts."""
        return [0, *(match.end() for match in re.finditer("\n", self.text))]

    # Places.

    def offset(self, line: int, column: int) -> int:
        """Where the character at a line and column (from 1) is in the text."""
        if not 0 < line <= len(self._lines):
            raise Refused("a line past the end")
        return min(self._lines[line - 1] + column - 1, len(self.text))

    def range(self, node: ast.AST) -> tuple[int, int]:
        """Where a node starts and ends in the text."""
        if not isinstance(node, (ast.expr, ast.stmt, ast.keyword, ast.arg)):
            raise Refused("a node without a place")
        first = node
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and node.decorator_list:
            return self._up(self.range(node.decorator_list[0])[0], "@"), self._end(node)
        return self._start(first), self._end(node)

    def _up(self, at: int, character: str) -> int:
        found = self.text.rfind(character, 0, at)
        if found < 0:
            raise Refused(f"no {character}")
        return found

    def _start(self, node: ast.expr | ast.stmt | ast.keyword | ast.arg) -> int:
        return self._bytes(node.lineno, node.col_offset)

    def _end(self, node: ast.expr | ast.stmt | ast.keyword | ast.arg) -> int:
        if node.end_lineno is None or node.end_col_offset is None:
            raise Refused("a node without an end")
        return self._bytes(node.end_lineno, node.end_col_offset)

    def _bytes(self, line: int, column: int) -> int:
        """The offset of a place as `ast` counts it: in bytes of UTF-8."""
        start = self._lines[line - 1]
        text = self.text[start : start + column]
        if text.isascii():
            return start + column
        end = self._lines[line] if line < len(self._lines) else len(self.text)
        return start + len(self.text[start:end].encode()[:column].decode())

    def span(self, start: int, end: int) -> Span:
        """The span of a stretch of the text."""
        return Span(self.path, *self._place(start), *self._place(end))

    def _place(self, offset: int) -> tuple[int, int]:
        line = bisect.bisect_right(self._lines, offset)
        return line, offset - self._lines[line - 1] + 1

    def source(self, node: ast.AST) -> str:
        """The text of a node."""
        start, end = self.range(node)
        return self.text[start:end]

    # What stands where.

    @cached_property
    def _expressions(self) -> dict[tuple[int, int], ast.expr]:
        found: dict[tuple[int, int], ast.expr] = {}
        for node in self._parents:
            if isinstance(node, ast.expr):
                found.setdefault(self.range(node), node)
        return found

    @cached_property
    def _statements(self) -> list[ast.stmt]:
        return [node for node in self._parents if isinstance(node, ast.stmt)]

    def expression(self, span: Span) -> ast.expr:
        """The expression that stands exactly there."""
        if span.path == self.path:
            at = self.offset(span.line, span.column), self.offset(span.end_line, span.end_column)
            if (node := self._expressions.get(at)) is not None:
                return node
        raise Refused("no expression of this file")

    def call(self, span: Span) -> ast.Call:
        """The call that stands exactly there."""
        return sure(self.expression(span), ast.Call)

    def calls(self, method: str, within: ast.AST) -> list[ast.Call]:
        """The calls of a method in a part of the tree, in the order of the text."""
        found = [
            node
            for node in ast.walk(within)
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == method
            and node in self._parents
        ]
        return sorted(found, key=self.range)

    def stands_at(self, node: ast.AST, span: Span) -> bool:
        """Whether a node stands exactly there."""
        return self.span(*self.range(node)) == span

    def statement(self, where: Span | ast.AST) -> ast.stmt:
        """The innermost statement around a place or a node."""
        if isinstance(where, ast.AST):
            node: ast.AST | None = where
            while node is not None and not isinstance(node, ast.stmt):
                node = self._parents.get(node)
            if node is None:
                raise Refused("no statement")
            return node
        if where.path != self.path:
            raise Refused("another file")
        start, end = self.offset(where.line, where.column), self.offset(where.end_line, where.end_column)
        around = [(s, e, node) for node in self._statements for s, e in [self.range(node)] if s <= start and end <= e]
        if not around:
            raise Refused("no statement there")
        return max(around, key=lambda found: (found[0], -found[1]))[2]

    def parent(self, node: ast.AST) -> ast.AST:
        """What a node is a part of."""
        if node not in self._parents:
            raise Refused("a node without a parent")
        return self._parents[node]

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """What a node is in, the innermost first."""
        while node in self._parents:
            node = self._parents[node]
            yield node

    def function(self, node: ast.AST) -> ast.AST:
        """The function that a node is in; the module outside of all functions."""
        return next((outer for outer in self.around(node) if isinstance(outer, (*_Function, ast.Module))), self.tree)

    def owner(self, node: ast.AST) -> ast.ClassDef | None:
        """The class whose method a node is in."""
        return next((outer for outer in self.around(node) if isinstance(outer, ast.ClassDef)), None)

    def loop(self, node: ast.AST) -> ast.For | ast.AsyncFor | ast.While | None:
        """The innermost loop of the same function around a node."""
        for outer in self.around(node):
            if isinstance(outer, (*_Function, ast.ClassDef)):
                return None
            if isinstance(outer, _Loop) and not (isinstance(node, ast.expr) and node is getattr(outer, "iter", None)):
                return outer
        return None

    def block(self, statement: ast.stmt) -> list[ast.stmt]:
        """The statements among which one stands."""
        parent = self.parent(statement)
        for name in ("body", "orelse", "finalbody"):
            body = getattr(parent, name, None)
            if isinstance(body, list) and any(one is statement for one in body):
                return body
        raise Refused("a statement in no block")

    def with_condition(self, statement: ast.stmt) -> ast.stmt:
        """The outermost `if` that has nothing else in it than the statement; where there is none, the statement."""
        while isinstance(under := self.parent(statement), ast.If) and under.body == [statement] and not under.orelse:
            statement = under
        return statement

    def before(self, statement: ast.stmt, other: ast.stmt) -> bool:
        """Whether one statement stands somewhere before another in the same block."""
        block = self.block(statement)
        return other in block and block.index(statement) < block.index(other)

    def reaches(self, node: ast.expr, place: ast.AST) -> bool:
        """Whether what a dotted name means where it stands, it means at `place` too."""
        root: ast.expr = node
        while isinstance(root, (ast.Attribute, ast.Subscript)):
            root = root.value
        if not isinstance(root, ast.Name):
            return False
        home = self.function(node)
        if home is self.function(place) or home in self.around(place):
            return True
        return root.id in ("self", "cls") and self.owner(node) is not None and self.owner(node) is self.owner(place)

    def starts_as_none(self, source: str, place: ast.AST) -> bool:
        """Whether a name or an attribute, as the text writes it, is None somewhere: a state before the first turn."""
        home = self.function(place)
        if isinstance(home, (ast.FunctionDef, ast.AsyncFunctionDef)):
            arguments, defaults = [*home.args.posonlyargs, *home.args.args], home.args.defaults
            given = [
                *zip(arguments[len(arguments) - len(defaults) :], defaults, strict=True),
                *zip(home.args.kwonlyargs, home.args.kw_defaults, strict=True),
            ]
            if any(argument.arg == source and _is_none(default) for argument, default in given):
                return True
        pairs = (pair for node in self._statements for pair in _assigned(node))
        return any(_is_none(value) and self.source(target) == source for target, value in pairs)

    def built_as(self, callee: ast.expr) -> str:
        """The name of the class that the file builds the called object from, '' where it does not say."""
        source = self.source(callee)
        for node in self._statements:
            for target, value in _assigned(node):
                if isinstance(value, ast.Call) and self.source(target) == source:
                    return self.source(value.func).rpartition(".")[2]
        return ""

    def assigned(self, name: str, place: ast.AST) -> list[ast.stmt]:
        """The statements of the function around `place` that bind `name` by `=`, in their order."""
        home = self.function(place)
        found = [
            node
            for node in self._statements
            if isinstance(node, (ast.Assign, ast.AnnAssign))
            and self.function(node) is home
            and any(
                isinstance(part, ast.Name) and part.id == name
                for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
                for part in ast.walk(target)
            )
        ]
        return sorted(found, key=self.range)

    def at(self, span: Span) -> ast.stmt | ast.expr:
        """The statement that stands exactly there, else the expression; a call alone is the call."""
        statement = self.statement(span)
        if self.stands_at(statement, span) and not isinstance(statement, ast.Expr):
            return statement
        return self.expression(span)

    # Edits.

    def fix(self, message: str, *groups: Edits, safe: bool = False) -> Fix:
        """The repair made of these edits.  `safe`: it cannot change what a correct program does."""
        return Fix(message, tuple(sorted({edit for group in groups for edit in group})), safe)

    def _edit(self, start: int, end: int, text: str) -> Edits:
        return (Edit(self.span(start, end), text),) if start != end or text else ()

    def replace(self, node: ast.AST, text: str) -> Edits:
        """Other text for a node."""
        return self._edit(*self.range(node), text)

    def append(self, node: ast.expr, text: str) -> Edits:
        """`text` behind an expression, in parentheses where it needs them: `.detach()`."""
        end = self.range(node)[1]
        if isinstance(node, _Simple):
            return self._edit(end, end, text)
        if self.grouped(node):
            return self._edit(end + 1, end + 1, text)
        return self.surround(node, "(", ")" + text)

    def grouped(self, node: ast.expr) -> bool:
        """Whether an expression stands in parentheses of its own, right at its ends, that are not those of a call."""
        start, end = self.range(node)
        if self.text[start - 1 : start] != "(" or self.text[end : end + 1] != ")":
            return False
        return re.search(r"(?:^|[=+\-*/%@<>&|^~(\[{,:\n])[ \t]*$", self.text[: start - 1]) is not None

    def surround(self, node: ast.AST, left: str, right: str) -> Edits:
        """`left` before and `right` behind a node."""
        start, end = self.range(node)
        return self._edit(start, start, left) + self._edit(end, end, right)

    def only_value(self, node: ast.Attribute | ast.Call) -> Edits:
        """`x.data` or `x.item()` as `x`."""
        attribute = sure(node.func if isinstance(node, ast.Call) else node, ast.Attribute)
        dot = self._up(self.range(attribute)[1] - len(attribute.attr), ".")
        return self._edit(dot, self.range(node)[1], "")

    def rename(self, attribute: ast.Attribute, name: str) -> Edits:
        """`x.name` for another attribute of `x`."""
        end = self.range(attribute)[1]
        return self._edit(end - len(attribute.attr), end, name)

    def call_inside(self, call: ast.Call, value: ast.expr) -> Edits:
        """`f(value).to(x)` as `f(value.to(x))`."""
        receiver = sure(call.func, ast.Attribute).value
        start, end = self.range(receiver)[1], self.range(call)[1]
        return self._edit(start, end, "") + self.append(value, self.text[start:end].strip())

    def drop_keyword(self, call: ast.Call, name: str) -> Edits:
        """A call without its argument `name=...`, and without the comma that belonged to it."""
        found = next((keyword for keyword in call.keywords if keyword.arg == name), None)
        if found is None:
            raise Refused(f"no argument {name}")
        start, end = self.range(found)
        before = re.search(r",\s*$", self.text[:start])
        if before is not None:
            return self._edit(before.start(), end, "")
        behind = re.compile(r"\s*,[ \t]*").match(self.text, end)
        return self._edit(start, behind.end() if behind is not None else end, "")

    def set_keyword(self, call: ast.Call, name: str, value: str) -> Edits:
        """A call with the argument `name=value`, given or replaced."""
        found = next((keyword for keyword in call.keywords if keyword.arg == name), None)
        if found is not None:
            return self.replace(found.value, value)
        arguments = [*call.args, *call.keywords]
        if any(isinstance(argument, ast.keyword) and argument.arg is None for argument in arguments):
            raise Refused("arguments from a mapping")
        end = self.range(call)[1] - 1
        if not arguments:
            return self._edit(end, end, f"{name}={value}")
        comma = re.search(r",\s*$", self.text[:end])
        at = comma.start() if comma is not None else len(self.text[:end].rstrip())
        return self._edit(at, at, f", {name}={value}")

    # Statements.

    def _indent(self, statement: ast.stmt) -> str | None:
        """The white space before a statement, None where something else stands before it on its line."""
        start = self.range(statement)[0]
        line = self._lines[bisect.bisect_right(self._lines, start) - 1]
        before = self.text[line:start]
        if before.strip(" \t\f"):
            return None
        if line and self.text[:line].endswith("\\\n"):
            raise Refused("a continued line")
        return before

    def _rest(self, statement: ast.stmt) -> tuple[int, str]:
        """Where the line ends that a statement ends on, and what stands there behind it."""
        end = self.range(statement)[1]
        found = self.text.find("\n", end)
        found = len(self.text) if found < 0 else found
        return found, self.text[end:found]

    def _alone(self, statement: ast.stmt) -> bool:
        """Whether a statement has its lines to itself, comments apart."""
        return self._indent(statement) is not None and re.fullmatch(r"\s*(#.*)?", self._rest(statement)[1]) is not None

    def insert_before(self, statement: ast.stmt, text: str) -> Edits:
        """One more simple statement before another."""
        start = self.range(statement)[0]
        if self.text.startswith("elif", start):
            raise Refused("nothing can stand before `elif`")
        indent = self._indent(statement)
        if indent is None:
            return self._edit(start, start, f"{text}; ")
        return self._edit(start, start, f"{text}\n{indent.rpartition(chr(12))[2]}")

    def insert_after(self, statement: ast.stmt, text: str) -> Edits:
        """One more simple statement behind another."""
        if isinstance(statement, (ast.Return, ast.Raise, ast.Continue, ast.Break)):
            raise Refused("nothing runs behind it")
        indent = self._indent(statement)
        end, rest = self._rest(statement)
        if indent is None or not re.fullmatch(r"\s*(#.*)?", rest):
            at = self.range(statement)[1]
            return self._edit(at, at, f"; {text}")
        return self._edit(end, end, f"\n{indent.rpartition(chr(12))[2]}{text}")

    def delete(self, statement: ast.stmt) -> Edits:
        """The text without a statement and the comment behind it.

        Comments above it stay: they may speak of more than this one.
        """
        start, end = self.range(statement)
        if len(self.block(statement)) == 1:
            return self._edit(start, end, "pass")
        if self._alone(statement):
            first, last = self._whole(statement)
            return self._edit(first, last, "")
        behind = re.compile(r"[ \t]*;[ \t]*").match(self.text, end)
        if behind is not None:
            return self._edit(start, behind.end(), "")
        before = re.search(r"[ \t]*;[ \t]*$", self.text[:start])
        if before is None:
            raise Refused("a statement that cannot be taken out")
        return self._edit(before.start(), end, "")

    def _whole(self, statement: ast.stmt) -> tuple[int, int]:
        """The lines of a statement that has them to itself, the last newline included."""
        start = self.range(statement)[0]
        end, _ = self._rest(statement)
        return self._lines[bisect.bisect_right(self._lines, start) - 1], min(end + 1, len(self.text))

    def move(
        self, statements: list[ast.stmt], *, before: ast.stmt | None = None, after: ast.stmt | None = None
    ) -> Edits:
        """Neighbouring statements elsewhere, with the comments behind and right above them."""
        anchor = before or after
        if anchor is None or not all(self._alone(one) for one in [*statements, anchor]):
            raise Refused("statements that share their lines")
        if self.text.startswith("elif", self.range(statements[0])[0]):
            raise Refused("an `elif` cannot stand alone")
        block = self.block(statements[0])
        first, last = self._whole(statements[0])[0], self._whole(statements[-1])[1]
        old, new = self._indent(statements[0]) or "", self._indent(anchor) or ""
        while first and (line := self.text[self.text.rfind("\n", 0, first - 1) + 1 : first]).startswith(f"{old}#"):
            first -= len(line)
        start, end = self._whole(anchor)
        if before is not None and first <= start < last:
            raise Refused("a move into itself")
        lines = self.text[first:last].removesuffix("\n").split("\n")
        inside = self._string_lines(statements)
        number = bisect.bisect_right(self._lines, first)
        if old != new and any(at in inside for at in range(number, number + len(lines))):
            raise Refused("a string over several lines")
        moved = "\n".join(
            new + line.removeprefix(old) if line.strip() and line.startswith(old) else line for line in lines
        )
        kept = f"{old}pass\n" if len(statements) == len(block) else ""
        if before is None and end == last:
            # The end of a block moves out of it, and stays where it is.
            return self._edit(first, last, kept + moved + "\n" * self.text.endswith("\n", first, last))
        gone = self._edit(first, last, kept)
        if before is not None:
            return gone + self._edit(start, start, f"{moved}\n")
        # A text may end without a newline, and then it still does.
        at = self._rest(anchor)[0]
        return gone + self._edit(at, at, f"\n{moved}")

    def _string_lines(self, statements: Iterable[ast.stmt]) -> set[int]:
        """The lines that begin inside of a string."""
        return {
            line
            for statement in statements
            for node in ast.walk(statement)
            if isinstance(node, ast.JoinedStr)
            or (isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)))
            for line in range(node.lineno + 1, (node.end_lineno or node.lineno) + 1)
        }

    def wrap(self, statements: list[ast.stmt], header: str) -> Edits:
        """Neighbouring statements as the body of `header`."""
        if not all(self._alone(one) for one in statements):
            raise Refused("statements that share their lines")
        first, last = self._whole(statements[0])[0], self._whole(statements[-1])[1]
        indent = self._indent(statements[0]) or ""
        start = first + len(indent)
        found = self._edit(start, start, f"{header}\n{indent}{self._unit}")
        inside = self._string_lines(statements)
        for number in range(bisect.bisect_right(self._lines, first) + 1, bisect.bisect_left(self._lines, last) + 1):
            at = self._lines[number - 1]
            if at < last and number not in inside and self.text[at:].split("\n", 1)[0].strip():
                found += self._edit(at, at, self._unit)
        return found

    @cached_property
    def _unit(self) -> str:
        """By what the file indents a block."""
        for node in self._statements:
            body = getattr(node, "body", None)
            if isinstance(body, list) and body:
                outer, inner = self._indent(node), self._indent(body[0])
                if outer is not None and inner is not None and inner.startswith(outer) and inner != outer:
                    return inner.removeprefix(outer)
        return "    "

    # What many repairs share.

    def no_grad(self, statements: list[ast.stmt], changed: Edits = ()) -> Edits:
        """The statements, with what is `changed` in them, under `torch.no_grad()`."""
        torch, imported = self.module("torch")
        return self.wrap(statements, f"with {torch}.no_grad():") + imported + changed

    def uncut(self, span: Span) -> Edits:
        """What leaves the graph there, kept in it: `x.item()` as `x`, `torch.tensor(xs)` as `torch.stack(xs)`."""
        node = self.expression(span)
        if isinstance(node, ast.Attribute) and node.attr == "data":
            return self.only_value(node)
        call = sure(node, ast.Call)
        if isinstance(call.func, ast.Name) and call.func.id == "float" and len(call.args) == 1:
            [value] = call.args
            text = self.source(value)
            return self.replace(call, text if isinstance(value, _Simple) else f"({text})")
        method = sure(call.func, ast.Attribute)
        if method.attr in ("item", "detach") and not call.args and not call.keywords:
            return self.only_value(call)
        of_torch = isinstance(method.value, ast.Name) and method.value.id in self.functional
        if of_torch and method.attr == "tensor" and len(call.args) == 1 and not call.keywords:
            return self.rename(method, "stack")
        raise Refused("a cut that stands for what cannot be differentiated")

    def module(self, dotted: str) -> tuple[str, Edits]:
        """How the file names a module, and what imports it where nothing does."""
        package, _, rest = dotted.rpartition(".")
        for node in self.tree.body:
            for alias in node.names if isinstance(node, (ast.Import, ast.ImportFrom)) else ():
                if isinstance(node, ast.ImportFrom):
                    known = node.level == 0 and node.module == package and alias.name == rest
                else:
                    whole = alias.name == dotted or alias.name.startswith(f"{dotted}.")
                    known = alias.name == dotted if alias.asname else whole and not package
                if known:
                    return alias.asname or dotted.rpartition(".")[2], ()
        if package:
            name, needed = self.module(package)
            return f"{name}.{rest}", needed
        imports = [node for node in self.tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
        future = [node for node in imports if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
        plain = [node for node in imports if node not in future]
        if plain:
            return dotted, self.insert_before(plain[0], f"import {dotted}")
        if future:
            return dotted, self.insert_after(future[-1], f"import {dotted}")
        first = self.tree.body[ast.get_docstring(self.tree) is not None]
        return dotted, self.insert_before(first, f"import {dotted}")

    def out_of_place(self, span: Span, *, views: bool = False) -> Edits:
        """What is changed in place there, as an operation that makes a new tensor under the same name.

        `x += y` as `x = x + y`, `x.add_(y)` as `x = x.add(y)`, `F.relu(x, inplace=True)` as `x = F.relu(x)`.
        `views`: of views too, where torch refuses to change the base through them anyway.
        """
        statement = self.statement(span)
        if isinstance(statement, ast.AugAssign):
            self.may_rebind(statement.target, statement, views=views)
            return self.spelled_out(statement)
        call = self.call(span)
        inplace = any(keyword.arg == "inplace" for keyword in call.keywords)
        if inplace and call.args:
            edits, target = self.drop_keyword(call, "inplace"), call.args[0]
        else:
            edits, target = self._without_underscore(call)
        if isinstance(statement, ast.Expr) and statement.value is call:
            self.may_rebind(target, statement, views=views)
            start = self.range(statement)[0]
            return edits + self._edit(start, start, f"{self.source(target)} = ")
        return edits

    def spelled_out(self, statement: ast.AugAssign) -> Edits:
        """`x += y` as `x = x + y`, whatever `x` is."""
        end = self.range(statement)[1]
        target = self.source(statement.target)
        at = self.range(statement.target)[1]
        operator = re.compile(r"\s*(\*\*|//|<<|>>|[-+*/%@&|^])=[ \t]*").match(self.text, at)
        if operator is None:
            raise Refused("an operator that is not known")
        value = statement.value
        bare = self.range(value) == (operator.end(), end)
        loose = not isinstance(value, _Simple) and not (
            isinstance(value, ast.BinOp) and _BINDS[type(value.op)] > _BINDS[type(statement.op)]
        )
        left = self._edit(at, operator.end(), f" = {target} {operator[1]} " + "(" * (bare and loose))
        return left + (self._edit(end, end, ")") if bare and loose else ())

    def _without_underscore(self, call: ast.Call) -> tuple[Edits, ast.expr]:
        """A chain of in-place methods, or one function, as what makes a new tensor, and the tensor it was for."""
        edits: Edits = ()
        node: ast.expr = call
        while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            try:
                edits += self.rename(node.func, out_of_place(node.func))
            except Refused:
                break
            first, node = node, node.func.value
            if isinstance(node, ast.Name) and first.args and node.id in self.functional:
                return edits, first.args[0]
        if not edits:
            raise Refused("no operation in place")
        return edits, node

    @cached_property
    def functional(self) -> set[str]:
        """The names under which the file knows the modules of torch's functions."""
        found: set[str] = set()
        for dotted in ("torch", "torch.nn.functional"):
            name, needed = self.module(dotted)
            found |= {name} if not needed and "." not in name else set()
        return found

    def may_rebind(self, target: ast.expr, statement: ast.stmt, *, views: bool = False) -> None:
        """Refuses where a new value under the same name would not reach those who wait for the old one to change."""
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
            return
        name = sure(target, ast.Name).id
        home = self.function(statement)
        for outer in self.around(statement):
            if isinstance(outer, (ast.For, ast.AsyncFor)) and name in names(outer.target):
                raise Refused("a loop's variable")
        bound = [one for one in self.assigned(name, statement) if self.range(one) < self.range(statement)]
        arguments = home.args if isinstance(home, (ast.FunctionDef, ast.AsyncFunctionDef)) else None
        if not bound:
            if arguments is None or name not in {
                argument.arg for argument in ast.walk(arguments) if isinstance(argument, ast.arg)
            }:
                raise Refused("a name of somewhere else")
            given_back = (node for node in ast.walk(home) if isinstance(node, ast.Return) and node.value is not None)
            if not any(name in names(node) for node in given_back):
                raise Refused("the caller's tensor is meant to change")
        elif not views and (isinstance(value := getattr(bound[-1], "value", None), ast.Subscript) or _is_view(value)):
            raise Refused("a view, whose base is meant to change")


def out_of_place(method: ast.Attribute) -> str:
    """The name of the method that makes a new tensor for one that changes it in place."""
    name = method.attr
    if not name.endswith("_") or name.startswith("_") or _NO_OUT_OF_PLACE.match(name):
        raise Refused(f"no other form of {name}")
    return name.removesuffix("_")


def _is_view(value: ast.expr | None) -> bool:
    target = value.func if isinstance(value, ast.Call) else value
    return isinstance(target, ast.Attribute) and target.attr in _VIEWS


def sure(node: ast.AST, kind: type[_Node]) -> _Node:
    """The node, as one of this kind."""
    if not isinstance(node, kind):
        raise Refused(f"not a {kind.__name__}")
    return node


def _assigned(node: ast.stmt) -> Iterator[tuple[ast.expr, ast.expr]]:
    """The targets of an assignment, each with its value; those of `a, b = c, d` one by one."""
    for target in node.targets if isinstance(node, ast.Assign) else ():
        value = sure(node, ast.Assign).value
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            yield from zip(target.elts, value.elts, strict=True)
        else:
            yield target, value


def _is_none(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


def binds(node: ast.AST) -> set[str]:
    """The names that something in a node is bound to."""
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}


def target_of(statement: ast.stmt) -> ast.expr:
    """The one target of an assignment."""
    targets = sure(statement, ast.Assign).targets
    if len(targets) != 1:
        raise Refused("several targets")
    return targets[0]


def names(node: ast.AST) -> set[str]:
    """The names that stand in a node."""
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def because(finding: Finding, number: int) -> Span:
    """The place of one link of the chain that explains a finding."""
    if number >= len(finding.because):
        raise Refused("a shorter chain")
    return finding.because[number].span
