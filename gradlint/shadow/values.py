"""The values that the shadow teller computes with.

What the source fixes is a plain Python value (None, bool, int, float, str, tuple, slice).  A tensor is a
`trace.Tensor`.  Everything else is one of these; an unknown is a `Symbol`, the same each time it is looked at.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gradlint.trace import MAYBE, Cut, Exhausted, Known, Module, Node, Optimizer, Site, Storage, Tensor

if TYPE_CHECKING:
    import libcst as cst

    from gradlint.shadow.chunks import Chunk

Value = Any


_PLAIN_NAME = re.compile(
    r"(?i)size|dim|num|^n_|_n$|^n$|rate|^lr|device|name|mode|type|kind|^p$|epoch|batch|width|height|channel|ratio|drop|alpha"
    r"|beta|gamma|eps|len|use_|is_|has_|return_|path|dir$|seed|bias|step|config|cfg|args|opt$|hidden|feature|depth|stride"
    r"|kernel|pad|scale|temperature|weight$|lambda|max|min|index|idx|shape|dtype|class|vocab|length|heads|groups|_in$|_out$"
)


_CONFIG_NAME = re.compile(r"(?i)(args|opts?|cfg|config|hparams?|flags|params|hyp|settings)$")


class Symbol:
    """An unknown value.  What is decided about it on a path holds for the rest of the path."""

    # Thousands are made on a path, and little is ever known of most: what is open stays with the class.
    absent: bool | None = None
    """Whether it is None."""
    cuts: tuple[Cut, ...] = ()
    equal: Value = ...
    """The constant that it equals; `...` where that is open."""
    graphless = False
    """It was computed while grad mode was off."""
    iterated = False
    """It is an element of an unknown iterable (a batch of a loader)."""
    owner: Value = None
    """The unknown whose attribute it is; `name` ends with the attribute's name."""
    plain = False
    """It was used as a number, a size or a text."""
    site: Site | None = None
    """The call that returned it."""
    tensor: Tensor | None = None
    """The tensor it is, once something used it as one."""
    truth: bool | None = None
    unequal: frozenset[Value] = frozenset()

    def __init__(self, name: str = "", called: Value = None, arguments: tuple[Value, ...] = ()) -> None:
        self.name = name
        self.called = called
        """The unknown callable that returned it."""
        self.arguments = arguments
        self.attributes: dict[str, Value] = {}
        self.items: dict[Value, Value] = {}

    def may_be_module(self) -> bool:
        """Whether an unknown that a module holds may be a layer with parameters."""
        if self.plain or self.truth is False or self.absent or self.equal is not ... or self.tensor is not None:
            return False
        return not _PLAIN_NAME.search(self.name.rpartition(".")[2])

    def may_be_tensor(self) -> bool:
        """Whether an unknown that meets a tensor in an expression may be one too, not a number of the configuration."""
        if self.tensor is not None or self.called is not None:
            return self.called != "operator" or any(isinstance(a, Symbol) and a.may_be_tensor() for a in self.arguments)
        owner = self.owner.name if isinstance(self.owner, Symbol) else ""
        return not (self.plain or _PLAIN_NAME.search(self.name.rpartition(".")[2]) or _CONFIG_NAME.search(owner))

    def call_it(self, name: str) -> None:
        """Take the name of the variable that it is bound to, unless it has a better one."""
        if not self.name or self.name.endswith("()"):
            self.name = name

    def __repr__(self) -> str:
        return f"<{self.name or 'unknown'}>"


class Number(Symbol):
    """A Python number of unknown value that came out of a tensor (`item()`, `float(x)`)."""

    def __init__(self, name: str, cuts: tuple[Cut, ...], source: Tensor | None = None) -> None:
        super().__init__(name)
        self.cuts = cuts
        self.source = source


class Turn(int):
    """The number of a turn of a loop whose length is not known: it counts, but what is asked of it is open."""

    __slots__ = ()


class List(list[Value]):
    """A Python list; `open` where it may hold more than is known."""

    __slots__ = ("bounded", "made", "open")

    def __init__(self, items: Any = (), open: bool = False) -> None:
        super().__init__(items)
        self.open = open
        self.bounded = False
        """A deque with `maxlen`: it drops what it held."""
        self.made: Site | None = None

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


class Dict(dict[Value, Value]):
    """A Python dict; `open` where it may hold more than is known; `default` for a defaultdict's factory."""

    __slots__ = ("alias", "default", "open", "template")

    def __init__(self, items: Any = (), open: bool = False, default: Value = None) -> None:
        super().__init__(items)
        self.open = open
        self.default = default
        self.alias: Any = None
        """The `Aliased` event, where this is a `state_dict()`."""

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


class Set(Dict):
    """A Python set: the keys count."""

    __slots__ = ()


@dataclass(eq=False, repr=False, slots=True)
class External:
    """Something imported that is not among the linted files, by its dotted name."""

    dotted: str


@dataclass(eq=False, repr=False, slots=True)
class Pending:
    """What a name of a file will be, once these top-level statements have run: they wait until it is read."""

    scope: Scope
    name: str
    chunks: Sequence[Chunk]


@dataclass(eq=False, repr=False, slots=True)
class Scope:
    """The names of a module, a function call, or a class body."""

    names: dict[str, Value]
    parent: Scope | None = None
    chunk: Chunk | None = None
    declared_global: set[str] = field(default_factory=set)
    nonlocal_names: set[str] = field(default_factory=set)
    is_class: bool = False
    is_comprehension: bool = False
    file: Any = None
    stars: dict[str, None] = field(default_factory=dict)
    """What all names were imported from that is not among the linted files."""
    elsewhere: dict[str, str] = field(default_factory=dict)
    """The dotted names of what names have been found to mean that nothing binds, '' where that is not known."""
    has_run: bool = False
    """All top-level statements of its file have run."""


@dataclass(eq=False, repr=False, slots=True)
class Function:
    node: cst.FunctionDef | cst.Lambda
    chunk: Chunk
    scope: Scope
    name: str
    cls: Class | None = None
    defaults: dict[str, Value] = field(default_factory=dict)
    grad: bool | None = None
    """The grad mode that its decorators switch to."""
    wrapper: str = ""
    """'static', 'class', 'property', 'context' or ''."""
    attributes: dict[str, Value] = field(default_factory=dict)
    deferred: bool = False
    """Its node has no body: that is in the chunk, to be parsed when it is first called."""

    @property
    def whole(self) -> cst.FunctionDef | cst.Lambda:
        """The function with its body."""
        return (self.chunk.function if self.deferred else None) or self.node


@dataclass(eq=False, repr=False, slots=True)
class Bound:
    """A function bound to its first argument."""

    function: Function
    owner: Value


@dataclass(eq=False, repr=False, slots=True)
class Builtin:
    """A method or function that the teller itself knows, with what it is a method of."""

    name: str
    call: Callable[..., Value]


@dataclass(eq=False, repr=False, slots=True)
class TensorMethod:
    tensor: Tensor
    name: str


@dataclass(eq=False, repr=False, slots=True)
class Class:
    name: str
    node: cst.ClassDef
    chunk: Chunk
    scope: Scope
    bases: list[Value]
    names: dict[str, Value] = field(default_factory=dict)
    _line: Sequence[Value] = ()

    def line(self) -> Sequence[Value]:
        """Its method resolution order: classes, and what is external among the bases."""
        if not self._line:
            order: list[Value] = [self]
            for base in self.bases:
                for value in base.line() if isinstance(base, Class) else [base]:
                    if value in order:
                        order.remove(value)
                    order.append(value)
            self._line = order
        return self._line

    def lookup(self, name: str, after: Class | None = None) -> Value:
        """The attribute `name` of the class or its bases (`after` one of them); raises KeyError."""
        passed = after is None
        for entry in self._line or self.line():
            if passed and type(entry) is Class and name in entry.names:
                return entry.names[name]
            passed = passed or entry is after
        raise KeyError(name)

    def externals(self) -> list[External]:
        return [entry for entry in self.line() if isinstance(entry, External)]

    def is_open(self) -> bool:
        """Whether a base is not known, so that any attribute may exist."""
        return any(not isinstance(entry, Class) and not _is_known_base(entry) for entry in self.line())

    def derives(self, *dotted: str) -> bool:
        return any(entry.dotted in dotted for entry in self.externals())


def _is_known_base(entry: Value) -> bool:
    return isinstance(entry, External) and entry.dotted.startswith(("torch.", "builtins.", "abc.", "typing.", "enum."))


class Object:
    """An instance of a class of the program."""

    __slots__ = ("attributes", "cls")

    def __init__(self, cls: Value) -> None:
        self.cls = cls
        self.attributes: dict[str, Value] = {}


class ModuleObject(Module):
    """An `nn.Module`: of a class of the program, or a layer or container of torch."""

    def __init__(self, cls: Value, kind: str, site: Site | None, layer: str = "") -> None:
        super().__init__(kind=kind, site=site)
        self.cls = cls
        self.layer = layer
        """The torch class that it is or derives from: 'Linear', 'Sequential', '' for plain `nn.Module`."""
        self.attributes: dict[str, Value] = {}
        self.children: list[Value] = []
        """What a container holds, in order."""
        self.keys: list[str] = []
        self.buffers: set[str] = set()
        self.options: dict[str, Value] = {}
        self.sealed = False
        """Its `__init__` has ended."""

    def members(self) -> Iterator[tuple[str, Value]]:
        """Registered parameters, buffers and children with their names."""
        keys = self.keys or [str(i) for i in range(len(self.children))]
        yield from zip(keys, self.children, strict=False)
        for name, value in self.attributes.items():
            if isinstance(value, (ModuleObject, Symbol)) or (isinstance(value, Tensor) and value.is_parameter):
                yield name, value

    def named_tensors(self, prefix: str = "", seen: set[int] | None = None) -> Iterator[tuple[str, Tensor]]:
        seen = set() if seen is None else seen
        if id(self) in seen:
            return
        seen.add(id(self))
        for name, value in self.members():
            if isinstance(value, Tensor):
                if id(value) not in seen:
                    seen.add(id(value))
                    yield prefix + name, value
            elif isinstance(value, ModuleObject):
                yield from value.named_tensors(f"{prefix}{name}.", seen)

    def tensors(self) -> Iterator[Tensor]:
        return (tensor for _, tensor in self.named_tensors())

    def modules(self, prefix: str = "", seen: set[int] | None = None) -> Iterator[tuple[str, ModuleObject]]:
        seen = set() if seen is None else seen
        if id(self) in seen:
            return
        seen.add(id(self))
        yield prefix, self
        for name, value in self.members():
            if isinstance(value, ModuleObject):
                yield from value.modules(f"{prefix}.{name}" if prefix else name, seen)

    def mentions(self, attribute: str) -> int:
        classes = (
            [entry for entry in self.cls.line() if isinstance(entry, Class)] if isinstance(self.cls, Class) else []
        )
        return sum(cls.chunk.mentions(attribute) for cls in classes)

    def unknown_members(self) -> bool:
        """Whether some module below it may hold parameters that are not known."""
        for _, module in self.modules():
            if module.opaque:
                return True
            for _, value in module.members():
                if isinstance(value, Symbol) and value.may_be_module():
                    return True
        return False


class OptimizerObject(Optimizer):
    def __init__(self, cls: Value, kind: str, site: Site) -> None:
        super().__init__(kind=kind, site=site)
        self.cls = cls
        self.attributes: dict[str, Value] = {}


@dataclass(eq=False, repr=False, slots=True)
class Scheduler:
    optimizer: Optimizer | None
    attributes: dict[str, Value] = field(default_factory=dict)


@dataclass(eq=False, repr=False, slots=True)
class GradScaler:
    site: Site
    enabled: Value = True
    attributes: dict[str, Value] = field(default_factory=dict)


@dataclass(eq=False, repr=False, slots=True)
class Loader:
    """A DataLoader: what one batch looks like is computed when it is iterated."""

    dataset: Value
    options: dict[str, Value]


@dataclass(eq=False, repr=False, slots=True)
class PythonIterator:
    """A Python iterator: it can be read to its end once."""

    items: list[Value]
    what: str
    made: Site
    open: bool = False
    used: Site | None = None
    """Where it was read to its end."""
    whole: Value = None
    """The module whose parameters it yields."""
    lists: bool = False
    exhausted: Exhausted | None = None


@dataclass(eq=False, repr=False, slots=True)
class GradContext:
    """`torch.no_grad()`, `enable_grad()`, `set_grad_enabled(x)`, `inference_mode()`."""

    enabled: bool | None
    before: bool | None = None
    """Set where making it already switched the mode (`set_grad_enabled`)."""
    switch_before: Any = None
    """What had switched the mode until then."""


@dataclass(eq=False, repr=False, slots=True)
class Managed:
    """A call of a generator that is a context manager: it runs around the block of its `with`."""

    function: Function
    arguments: list[Value]
    keywords: dict[str, Value]
    open_arguments: bool


@dataclass(eq=False, repr=False, slots=True)
class Super:
    owner: Value
    after: Class


@dataclass(eq=False, repr=False, slots=True)
class PythonException:
    cls: Value
    arguments: tuple[Value, ...] = ()


@dataclass(eq=False, repr=False, slots=True)
class Distribution:
    """A `torch.distributions` object: its parameters are what its log-probabilities depend on."""

    kind: str
    parameters: list[Tensor]


@dataclass(eq=False, repr=False, slots=True)
class Partial:
    function: Value
    arguments: tuple[Value, ...]
    keywords: dict[str, Value]


def tensors_in(value: Value, depth: int = 4) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a nested value, each with its place in it."""
    if isinstance(value, Tensor):
        yield "", value
    elif depth and isinstance(value, (tuple, list)):
        for i, item in enumerate(value):
            for place, tensor in tensors_in(item, depth - 1):
                yield f"{i}.{place}".rstrip("."), tensor
    elif depth and isinstance(value, dict):
        for key, item in value.items():
            for place, tensor in tensors_in(item, depth - 1):
                yield f"{key}.{place}".rstrip("."), tensor
    elif depth and isinstance(value, Object):
        for key, item in value.attributes.items():
            for place, tensor in tensors_in(item, depth - 1):
                yield f"{key}.{place}".rstrip("."), tensor


__all__ = [
    "MAYBE",
    "Bound",
    "Builtin",
    "Class",
    "Dict",
    "Distribution",
    "External",
    "Function",
    "GradContext",
    "GradScaler",
    "Known",
    "List",
    "Loader",
    "ModuleObject",
    "Node",
    "Number",
    "Object",
    "OptimizerObject",
    "Partial",
    "PythonException",
    "PythonIterator",
    "Scheduler",
    "Scope",
    "Set",
    "Storage",
    "Super",
    "Symbol",
    "TensorMethod",
    "Turn",
    "Value",
    "tensors_in",
]  # fmt: skip
