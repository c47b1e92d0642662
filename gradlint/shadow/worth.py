"""Whether an entry can show anything that a rule speaks about: asked of its words, before anything is parsed.

These words decide what is told on its own.  What they leave out is told all the same when something calls it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache

from gradlint import facts
from gradlint.program import File, Program
from gradlint.shadow.chunks import Chunk

# Gradients and graphs: what a rule can say of a function that is called with unknown arguments.
_GRADIENTS = r"backward|requires?_grad|zero_grad|set_grad_enabled|clip_grad|autograd|unscale_"
# What says something only where gradients are computed or used too.
_VALUES = r"detach|\.data\b|state_dict\(\)"
_TRAINS = re.compile(r"backward|autograd|\.step\(")
# An iterator that has a name can be read twice.
_ITERATORS = (
    r"=\s*(?:zip|map|filter|iter|reversed|enumerate)\(|=\s*[\w.]+\.(?:named_)?(?:parameters|modules|children|buffers)\("
    r"|=\s*\([^\n=]*\bfor\b"
)
_WORTH = re.compile(_GRADIENTS)
_WORTH_IN_TRAINING = re.compile(_VALUES)
_BARE_CALL = re.compile(r"^[ \t]*[\w.\[\]'\"]+(?:\(.*\))?\.(\w+)\(.*\)[ \t]*(?:#.*)?$", re.MULTILINE)
_GRAD_ATTRIBUTE = r"\.(?:r\w*gra\w*|trainable|needs?_grad)\s*=[^=]"
_WORTH_IN_FORWARD = re.compile(
    rf"{_GRADIENTS}|{_ITERATORS}|{_GRAD_ATTRIBUTE}|\.data\b"
    # Changes in place: a method or function of that name, `x += y`, `x[i] = y`, `out=`.
    r"|[a-z0-9]_\(|[-+*/@%&|^]=|^[ \t]*[A-Za-z_][\w.]*\[[^\n]*\]\s*=[^=]|\bout="
    # Layers that are made, and loops over parameters.
    r"|\bnn\.[A-Z]\w*\(|\w\([^\n]*\)\(|parameters\(",
    re.MULTILINE,
)
# A list, tuple or dict that may hold layers: not a row of constants, nor of `dict(...)`.
_CALL = r"(?:\n|[^\n]*(?:\w\(|\bfor\b))"
_FILLED_AT_ONCE = (
    rf"[\[{{(](?!\s*dict\(){_CALL}|(?:list|dict|tuple|sorted|reversed|deque|OrderedDict)\((?!\s*\)){_CALL}"
)
_PLAIN = (
    rf"\s*(?::[^=\n]*)?=\s*(?:\[\s*\]|\{{\s*\}}|(?:list|dict|OrderedDict|deque)\(\)|defaultdict\(|{_FILLED_AT_ONCE})"
)
_PLAIN_LOCAL = re.compile(rf"^[ \t]+(\w+){_PLAIN}", re.MULTILINE)
_PLAIN_ATTRIBUTE = re.compile(rf"self\.(\w+){_PLAIN}")
_HELD = re.compile(r"self\.\w+[^=\n]*=\s*(?:list\(|tuple\()?(\w+)\)?[ \t]*(?:#.*)?$", re.MULTILINE)
_ROW = r"(?!\s*(?:dict\(|[{\"'\d\[\]]))"
_FILLED = re.compile(
    rf"self\.(\w+)(?:\.(?:append|extend|insert|add|update|setdefault)\({_ROW}|\[[^\n]*\]\s*=(?!=){_ROW}"
    rf"|\s*\+=(?:\s*\[)?{_ROW})"
)
_WORTH_IN_CONSTRUCTOR = re.compile(
    rf"{_ITERATORS}|{_GRAD_ATTRIBUTE}|inplace\s*=\s*(?!False\b)\w|requires?_grad|\.data\b"
    # A weight that is changed where it is made, not through `nn.init`.
    r"|(?<!data)(?<!init)\.[a-z]\w*[a-z0-9]_\(|^[ \t]*self\.[\w.]*\[[^\n]*\]\s*[-+*/]?=[^=]|self\.[\w.]+ [-*/@]="
    # A layer that is not given to `self` at once, and a plain container of such.
    rf"|^[ \t]+(?!self\b)\w+\s*=\s*nn\.[A-Z]\w*\(|self\.\w+[^=\n]*=\s*(?:{_FILLED_AT_ONCE})",
    re.MULTILINE,
)
_ATTRIBUTE = re.compile(r"self\.(\w+)(?:\s*:[^=\n]+)?\s*=[^=]")
_USE = re.compile(r"\b[^\W\d]\w*\b(?!\s*=[^=])")
_WORTH_IN_PROGRAM = re.compile(
    rf"{_GRADIENTS}|{_VALUES}|{_ITERATORS}|[a-z0-9]_\(|Parameter|\bnn\.|\boptim\b|inplace|parameters\(|checkpoint\("
    rf"|{_GRAD_ATTRIBUTE}"
)


def in_function(text: str, around: str) -> bool:
    """Whether a function in the class or file `around` may have a finding when its arguments are unknown."""
    if _WORTH.search(text) or _drops(text):
        return True
    return _WORTH_IN_TRAINING.search(text) is not None and _TRAINS.search(around) is not None


@lru_cache(4096)
def _drops(text: str) -> bool:
    """Whether the result of a pure operation may be dropped."""
    for match in _BARE_CALL.finditer(text):
        fact = facts.method(match[1]) or facts.function("torch." + match[1])
        if fact is not None and fact.returns == "tensor" and not fact.mutates:
            return True
    return False


def in_module(chunk: Chunk) -> bool:
    """Whether a module may have a finding when its `forward` is told with unknown arguments."""
    forward = chunk.methods.get("forward")
    if forward is None:
        return False
    running = "".join(_reached(chunk, "forward"))
    if _WORTH_IN_FORWARD.search(running) or _drops(running):
        return True
    building = "".join(_reached(chunk, "__init__"))
    if _WORTH_IN_CONSTRUCTOR.search(building) or _made_of_parameter(building):
        return True
    if not {*_PLAIN_LOCAL.findall(building)}.isdisjoint(_HELD.findall(building)):
        return True
    if not {*_PLAIN_ATTRIBUTE.findall(building)}.isdisjoint(_FILLED.findall(building)):
        return True
    return _unused_twin(chunk.text)


def _reached(chunk: Chunk, first: str) -> Iterator[str]:
    """The texts of a class's methods that `first` may call, its own included, but not the constructor's."""
    seen = {first, "__init__"}
    todo = [first] if first in chunk.methods else []
    while todo:
        text = chunk.methods[todo.pop()]
        yield text
        called = {word for word in words(text) if word in chunk.methods} - seen
        seen |= called
        todo += sorted(called)


def _made_of_parameter(text: str) -> bool:
    """Whether something is done with a Parameter where it is made, so that an operation's result is kept."""
    for match in re.finditer(r"(?:(self\.\w+[^=\n]*=\s*(?:torch\.)?(?:nn\.)?)|\b)Parameter\(", text):
        depth, at = 1, match.end()
        while depth and at < len(text):
            depth += {"(": 1, ")": -1}.get(text[at], 0)
            at += 1
        follows = text[at:].lstrip(" \t")[:1]
        if (match[1] is None and ":" not in follows and "," not in follows) or follows in (
            ".",
            "*",
            "/",
            "+",
            "-",
            "@",
        ):
            return True
    return False


def _unused_twin(text: str) -> bool:
    """Whether an attribute is only ever set, while there is another of a like name."""
    attributes = set(_ATTRIBUTE.findall(text))
    stems = Counter(stem for name in attributes for stem in _stems(name))
    if not any(count > 1 for count in stems.values()):
        return False
    used = Counter(_USE.findall(text))
    return any(not used[name] and any(stems[stem] > 1 for stem in _stems(name)) for name in attributes)


def _stems(name: str) -> set[tuple[str, str]]:
    stems = {("number", re.sub(r"_?\d+$", "", name))}
    return stems | {("word", name.rpartition("_")[0])} if "_" in name else stems


def in_program(program: Program, file: File) -> bool:
    """Whether what a file runs may have a finding: whether anything that it reaches has a word that says so."""
    seen: set[int | tuple[int, str, str]] = set()
    named: set[tuple[str, str]] = set()
    makes = drops = False
    todo = [(file, chunk, "") for chunk in file.chunks if chunk.kind in ("statement", "names")]
    while todo and not (makes and drops):
        here, chunk, wanted = todo.pop()
        if chunk.kind != "import":
            if id(chunk) in seen:
                continue
            seen.add(id(chunk))
            if _WORTH_IN_PROGRAM.search(chunk.text):
                return True
            # A tensor whose operation's result is dropped must come from somewhere.
            drops = drops or _drops(chunk.text)
            new = {word for word in words(chunk.text) if (here.path, word) not in named}
            named.update((here.path, word) for word in new)
            todo += [(here, one, word) for word in new for one in here.bindings.get(word, ())]
        for dots, base, name, bound in chunk.imports:
            if (chunk.kind == "import" and bound not in (wanted, "*")) or (id(chunk), bound, wanted) in seen:
                continue
            seen.add((id(chunk), bound, wanted))
            makes = makes or (not dots and base.partition(".")[0] == "torch")
            inner = wanted if name == "*" else name
            for dotted in (base, f"{base}.{inner}" if base else inner):
                found = program.find(dotted, here, dots)
                if found is not None:
                    # A name that the file does not bind itself may come from what it imports all names of.
                    every = [one for one in found.chunks if not inner or "*" in one.binds]
                    todo += [(found, one, inner) for one in found.bindings.get(inner, every)]
    return makes and drops


_TEXT = re.compile(
    r"#[^\n]*|(?<![fF\w])[rRbBuU]{0,2}(?:\"{3}(?:[^\\]|\\.)*?\"{3}|'{3}(?:[^\\]|\\.)*?'{3}"
    r"|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*')",
    re.DOTALL,
)
_NAMES_IN_TEXTS = re.compile(r"\b(?:getattr|globals|locals|vars|eval|exec|import_module|__dict__|attrgetter)\b")


@lru_cache(1024)
def words(text: str) -> frozenset[str]:
    """The names that a text may use; those in its strings too where it looks names up by strings."""
    if not _NAMES_IN_TEXTS.search(text):
        text = _TEXT.sub(" ", text)
    return frozenset(re.findall(r"[^\W\d]\w*", text))
