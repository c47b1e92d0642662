"""What Python itself does: builtins, the methods of its containers, the standard library and NumPy."""

from __future__ import annotations

import builtins
import contextlib
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from gradlint.shadow import torch
from gradlint.shadow.values import (
    Bound,
    Builtin,
    Class,
    Dict,
    Distribution,
    External,
    Function,
    GradScaler,
    List,
    Loader,
    ModuleObject,
    Number,
    Object,
    OptimizerObject,
    Partial,
    PythonException,
    PythonIterator,
    Scheduler,
    Set,
    Super,
    Symbol,
    Turn,
    Value,
    tensors_in,
)
from gradlint.trace import NO, YES, Assigned, Exhausted, Module, Optimizer, Site, Stored, Tensor

if TYPE_CHECKING:
    import libcst as cst

    from gradlint.shadow.chunks import ShadowSite
    from gradlint.shadow.interpreter import Interpreter

BUILTINS = frozenset(dir(builtins))
_MOST_ITEMS = 64
_QUESTION = re.compile(r"(^|\.)(is_\w+|has_\w+|get_rank|get_world_size|get_local_rank|device_count|available)$")
_nowhere = Site()


# -- iteration


def iterate(run: Interpreter, value: Value, node: cst.CSTNode, turns: int) -> Iterator[Value]:
    """The items of `value`; of an unknown, `turns` of them, each a new unknown."""
    if isinstance(value, _Lazy):
        yield from value.wrap(iterate(run, value.inner, node, turns))
    elif isinstance(value, PythonIterator):
        yield from _read(run, value, node)
    elif isinstance(value, dict):
        yield from list(value)
        if not value and getattr(value, "open", True):
            yield from _unknown_items(run, value, turns)
    elif isinstance(value, List):
        at = 0
        while at < len(value) and at < _MOST_ITEMS:
            yield value[at]
            at += 1
        if not value and value.open:
            yield from _unknown_items(run, value, turns)
    elif isinstance(value, (tuple, list, range, str)):
        yield from value[:_MOST_ITEMS]
    elif isinstance(value, ModuleObject):
        if value.layer in ("ModuleDict", "ParameterDict"):
            yield from value.keys
        else:
            yield from list(value.children)
        if value.opaque and not value.children:
            yield from _unknown_items(run, value, turns)
    elif isinstance(value, Tensor):
        for i in range(turns):
            row = torch.unbound(run, run.site(node), value, i)
            if isinstance(row, Tensor):
                row.multi_view = True
            yield row
    elif isinstance(value, Loader):
        yield from _batches(run, value, node, turns)
    elif isinstance(value, Object):
        method = run.method(value, "__iter__")
        if method is not None:
            inner = run.call(method, [], {}, node)
            if inner is not value:
                yield from iterate(run, inner, node, turns)
                return
        method = run.method(value, "__getitem__")
        for i in range(turns):
            yield run.call(method, [i], {}, node) if method is not None else _fresh(run, value, i)
    elif isinstance(value, Class) and value.derives("enum.Enum"):
        yield from (v for n, v in value.names.items() if not n.startswith("_"))
    else:
        yield from _unknown_items(run, value, turns)


def _unknown_items(run: Interpreter, value: Value, turns: int) -> Iterator[Value]:
    for i in range(turns):
        yield _fresh(run, value, i)


def _fresh(run: Interpreter, value: Value, turn: int) -> Symbol:
    if isinstance(value, Number):
        return Number("item", value.cuts)
    item = Symbol("item")
    item.iterated = True
    return item


def _read(run: Interpreter, value: PythonIterator, node: cst.CSTNode) -> Iterator[Value]:
    site = run.site(node)
    if value.what == "iter()":
        # Who writes `iter(xs)` means to share it between readers.
        while value.items:
            yield value.items.pop(0)
        return
    if value.used is not None and not value.lists:
        # Only iterators of tensors are told: other programs read theirs twice for reasons of their own.
        of_tensors = value.whole is not None or any(True for item in value.items for _ in tensors_in(item))
        if of_tensors and (value.items or value.open):
            run.tell(Exhausted(site=site, frame=run.frame, what=value.what, made=value.made, first=value.used))
        return
    yield from list(value.items)
    value.used = site


def _batches(run: Interpreter, loader: Loader, node: cst.CSTNode, turns: int) -> Iterator[Value]:
    dataset = loader.dataset
    site = run.site(node)
    for i in range(turns):
        if isinstance(dataset, tuple):
            yield List([run.make(site, NO, "batch") for _ in dataset])
        elif isinstance(dataset, Object) and "collate_fn" not in loader.options:
            method = run.method(dataset, "__getitem__")
            sample = run.call(method, [Symbol("index")], {}, node) if method is not None else _fresh(run, loader, i)
            yield _collated(run, site, sample)
        else:
            yield _fresh(run, loader, i)


def _collated(run: Interpreter, site: ShadowSite, sample: Value) -> Value:
    """A batch of samples: tensors are stacked, numbers become tensors."""
    if isinstance(sample, (Tensor, int, float, Number)):
        return run.make(site, NO, "batch")
    if isinstance(sample, (tuple, List)):
        return List(_collated(run, site, item) for item in sample)
    if isinstance(sample, dict):
        return Dict({key: _collated(run, site, item) for key, item in sample.items()})
    return sample


# -- subscripts


def item(run: Interpreter, owner: Value, key: Value, node: cst.CSTNode) -> Value:
    if isinstance(key, Symbol) and key.equal is not ... and not isinstance(key, Number):
        key = key.equal
    if isinstance(owner, Tensor):
        return torch.indexed(run, run.site(node), owner, key)
    if isinstance(owner, (tuple, list, str)):
        return _element(run, owner, key)
    if isinstance(owner, dict):
        return _value(run, owner, key)
    if isinstance(owner, ModuleObject):
        return _child(run, owner, key, node)
    if isinstance(owner, Number):
        return Number(owner.name, owner.cuts, owner.source)
    if isinstance(owner, Symbol):
        if owner.tensor is not None:
            return torch.indexed(run, run.site(node), owner.tensor, key)
        if owner.cuts:
            return Number(owner.name, owner.cuts)
        try:
            found = owner.items.get(key)
        except TypeError:
            return Symbol()
        if found is None:
            found = owner.items[key] = Symbol()
            found.iterated, found.graphless = owner.iterated, owner.graphless
            if owner.called is not None:
                found.called, found.arguments = owner.called, owner.arguments
            elif owner.name and isinstance(key, str):
                found.name = key
        return found
    if isinstance(owner, Object):
        method = run.method(owner, "__getitem__")
        if method is not None:
            return run.call(method, [key], {}, node)
        values = list(owner.attributes.values())
        if (
            isinstance(key, int)
            and -len(values) <= key < len(values)
            and isinstance(owner.cls, Class)
            and "@dataclass" in owner.cls.names
        ):
            return values[key]
    if isinstance(owner, (PythonIterator,)) and isinstance(key, int):
        return owner.items[key] if -len(owner.items) <= key < len(owner.items) else Symbol()
    return Symbol()


def _element(run: Interpreter, owner: Any, key: Value) -> Value:
    if isinstance(key, slice):
        try:
            part = owner[key]
        except (TypeError, ValueError):
            return List(owner, True) if isinstance(owner, List) else owner
        return List(part, owner.open) if isinstance(owner, List) else part
    if isinstance(key, bool) or not isinstance(key, int):
        # Which one is not known: the first stands for all, if there is one kind.
        return owner[0] if len(owner) else Symbol()
    if -len(owner) <= key < len(owner):
        return owner[key]
    # What lies past the known items is like them, but no tensor of them.
    return (
        owner[-1] if len(owner) and getattr(owner, "open", False) and isinstance(owner[-1], ModuleObject) else Symbol()
    )


def _value(run: Interpreter, owner: dict[Value, Value], key: Value) -> Value:
    try:
        if key in owner:
            return owner[key]
    except TypeError:
        return Symbol()
    default = getattr(owner, "default", None)
    if default is not None:
        made = run.call(default, [], {}, run.program.empty.module)
        owner[key] = made
        return made
    if isinstance(key, Symbol) and owner and not isinstance(key, Number):
        return next(iter(owner.values()))
    if getattr(owner, "open", True):
        made = Symbol(key if isinstance(key, str) else "")
        owner[key] = made
        return made
    return Symbol()


def _child(run: Interpreter, owner: ModuleObject, key: Value, node: cst.CSTNode) -> Value:
    children = owner.children
    if isinstance(key, str):
        if key in owner.keys:
            return children[owner.keys.index(key)]
    elif isinstance(key, slice):
        part = ModuleObject(owner.cls, owner.kind, owner.site, owner.layer)
        try:
            part.children = children[key]
        except TypeError:
            part.children = list(children)
        part.opaque = owner.opaque
        return part
    elif isinstance(key, int) and -len(children) <= key < len(children):
        return children[key]
    elif isinstance(key, Symbol) and children:
        return children[0]
    if owner.layer not in ("Sequential", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict"):
        method = run.method(owner, "__getitem__")
        if method is not None:
            return run.call(method, [key], {}, node)
    return children[-1] if children else Symbol()


def set_item(run: Interpreter, owner: Value, key: Value, value: Value, node: cst.CSTNode) -> None:
    site = run.site(node)
    if isinstance(owner, Symbol) and owner.tensor is not None:
        owner = owner.tensor
    if isinstance(owner, Tensor):
        torch.set_index(run, site, owner, value)
    elif isinstance(owner, List):
        torch.store(run, site, value, "item", "", grows=False)
        if isinstance(key, int) and -len(owner) <= key < len(owner):
            owner[key] = value
        elif not isinstance(key, slice):
            owner.append(value)
            owner.open = True
    elif isinstance(owner, dict):
        torch.store(run, site, value, "item", key if isinstance(key, str) else "", grows=False)
        try:
            owner[key] = value
        except TypeError:
            if isinstance(owner, Dict):
                owner.open = True
    elif isinstance(owner, ModuleObject):
        if isinstance(key, int) and -len(owner.children) <= key < len(owner.children):
            replaced = owner.children[key]
            owner.children[key] = value
            if isinstance(value, ModuleObject):
                for inner, tensor in value.named_tensors():
                    tensor.name = f"{owner.name}.{key}.{inner}" if owner.name else f"{key}.{inner}"
            run.tell(
                Assigned(
                    site=site,
                    frame=run.frame,
                    owner=owner,
                    attribute=str(key),
                    value=value,
                    replaced=replaced,
                )
            )
        elif isinstance(key, str) and key in owner.keys:
            owner.children[owner.keys.index(key)] = value
        else:
            torch.append(owner, value, key if isinstance(key, str) else "")
    elif isinstance(owner, Object):
        method = run.method(owner, "__setitem__")
        if method is not None:
            run.call(method, [key, value], {}, node)
    elif isinstance(owner, Symbol):
        torch.store(run, site, value, "item", "", grows=False)
        # An array that such numbers are written into holds them from then on.
        owner.cuts = run.cuts_of((owner, value))
        with contextlib.suppress(TypeError):
            owner.items[key] = value


# -- attributes of what Python knows


def attribute(run: Interpreter, owner: Value, name: str, node: cst.CSTNode) -> Value:
    if isinstance(owner, GradScaler):
        return owner.attributes.get(name) or torch.scaler_method(run, owner, name)
    if isinstance(owner, Scheduler):
        if name == "optimizer":
            return owner.optimizer
        return owner.attributes.get(name) or torch.scheduler_method(run, owner, name)
    if isinstance(owner, Distribution):
        return torch.distribution_method(run, owner, name)
    if isinstance(owner, Loader):
        if name == "dataset":
            return owner.dataset
        return owner.options.setdefault("." + name, Symbol(name))
    if isinstance(owner, PythonIterator):
        return Builtin(name, lambda run, site, a, k: Symbol(name))
    method: Any = None
    if isinstance(owner, List):
        method = _LIST.get(name)
    elif isinstance(owner, dict):
        method = _DICT.get(name)
    elif isinstance(owner, str):
        return Builtin(name, lambda run, site, a, k: _text(owner, name, a, k))
    elif isinstance(owner, PythonException) and name == "args":
        return owner.arguments
    elif isinstance(owner, Partial) and name == "func":
        return owner.function
    if method is not None:
        return Builtin(name, lambda run, site, a, k: method(run, owner, site, a, k))
    symbol = Symbol(name)
    if isinstance(owner, (Optimizer, Module)):
        symbol.owner = owner
    return symbol


def _text(owner: str, name: str, a: list[Value], k: dict[str, Value]) -> Value:
    method = getattr(owner, name, None)
    if method is None or name in (
        "format",
        "format_map",
        "join",
        "center",
        "ljust",
        "rjust",
        "zfill",
        "expandtabs",
    ):
        return Symbol("text")
    try:
        result = method(*(tuple(x) if isinstance(x, List) else x for x in a), **k)
    except Exception:  # noqa: BLE001 - whatever str's own method says of these arguments, the result is unknown
        return Symbol("text")
    return List(result) if isinstance(result, list) else result


def _append(run: Interpreter, owner: List, site: ShadowSite, a: list[Value], k: dict[str, Value]) -> Value:
    if a:
        for tensor in run.live(a[-1]) if run.turns and not owner.bounded else ():
            run.tell(
                Stored(
                    site=site,
                    frame=run.frame,
                    tensor=tensor,
                    where="append",
                    grows=True,
                    name="",
                    container=owner,
                )
            )
        if len(owner) < 256:
            owner.append(a[-1])
        else:
            owner.open = True
    return None


def _extend(run: Interpreter, owner: List, site: ShadowSite, a: list[Value], k: dict[str, Value]) -> Value:
    if a:
        owner.extend(iterate(run, a[0], site.node, 2))
        owner.open = owner.open or run.is_open(a[0])
    return None


def _insert(run: Interpreter, owner: List, site: ShadowSite, a: list[Value], k: dict[str, Value]) -> Value:
    if len(a) == 2:
        owner.insert(a[0] if isinstance(a[0], int) else 0, a[1])
    return None


def _pop(run: Interpreter, owner: List, site: ShadowSite, a: list[Value], k: dict[str, Value]) -> Value:
    if not owner:
        return Symbol()
    at = a[0] if a and isinstance(a[0], int) and -len(owner) <= a[0] < len(owner) else -1
    return owner.pop(at)


def _clear(run: Interpreter, owner: Any, site: ShadowSite, a: list[Value], k: dict[str, Value]) -> Value:
    owner.clear()
    owner.open = False
    return None


def _popleft(run: Interpreter, owner: List, site: ShadowSite, a: list[Value], k: dict[str, Value]) -> Value:
    return owner.pop(0) if owner else Symbol()


_LIST: dict[str, Callable[..., Value]] = {
    "append": _append,
    "extend": _extend,
    "insert": _insert,
    "pop": _pop,
    "popleft": _popleft,
    "appendleft": _append,
    "clear": _clear,
    "copy": lambda run, owner, site, a, k: List(owner, owner.open),
    "reverse": lambda run, owner, site, a, k: owner.reverse(),
    "sort": lambda run, owner, site, a, k: None,
    "index": lambda run, owner, site, a, k: Symbol("index"),
    "count": lambda run, owner, site, a, k: Symbol("count"),
}


def _get(run: Interpreter, owner: dict[Value, Value], site: ShadowSite, a: list[Value], k: dict[str, Value]) -> Value:
    key = a[0] if a else None
    default = a[1] if len(a) > 1 else k.get("default")
    try:
        if key in owner:
            return owner[key]
    except TypeError:
        return Symbol()
    if getattr(owner, "open", True) or isinstance(key, Symbol):
        symbol = Symbol(key if isinstance(key, str) else "")
        with contextlib.suppress(TypeError):
            owner[key] = symbol
        return symbol
    return default


def _setdefault(
    run: Interpreter, owner: dict[Value, Value], site: ShadowSite, a: list[Value], k: dict[str, Value]
) -> Value:
    return owner.setdefault(a[0], a[1] if len(a) > 1 else None) if a else None


def _dict_pop(
    run: Interpreter, owner: dict[Value, Value], site: ShadowSite, a: list[Value], k: dict[str, Value]
) -> Value:
    if not a:
        return Symbol()
    try:
        if a[0] in owner:
            return owner.pop(a[0])
    except TypeError:
        return Symbol()
    return a[1] if len(a) > 1 and not getattr(owner, "open", True) else Symbol()


def _update(run: Interpreter, owner: Dict, site: ShadowSite, a: list[Value], k: dict[str, Value]) -> Value:
    if a and isinstance(a[0], dict):
        owner.update(a[0])
        owner.open = owner.open or getattr(a[0], "open", True)
    elif a:
        owner.open = True
    owner.update(k)
    return None


def _add(run: Interpreter, owner: Dict, site: ShadowSite, a: list[Value], k: dict[str, Value]) -> Value:
    if a:
        owner[a[0]] = True
    return None


_DICT: dict[str, Callable[..., Value]] = {
    "get": _get,
    "setdefault": _setdefault,
    "pop": _dict_pop,
    "update": _update,
    "add": _add,
    "clear": _clear,
    "items": lambda run, owner, site, a, k: List(owner.items(), owner.open),
    "keys": lambda run, owner, site, a, k: List(owner, owner.open),
    "values": lambda run, owner, site, a, k: List(owner.values(), owner.open),
    "copy": lambda run, owner, site, a, k: _copied(owner),
}


def _copied(owner: Dict) -> Dict:
    made = Dict(owner, owner.open, owner.default)
    made.alias = owner.alias
    return made


# -- builtin functions


def call_builtin(run: Interpreter, name: str, a: list[Value], k: dict[str, Value], node: cst.CSTNode) -> Value:
    site = run.site(node)
    handler = _BUILTIN_CALLS.get(name)
    if handler is not None:
        return handler(run, site, a, k)
    if name.endswith(("Error", "Exception", "Warning", "Interrupt", "Exit", "Iteration")):
        return PythonException(External("builtins." + name), tuple(a))
    cuts = run.cuts_of(a)
    return Number(name, cuts) if cuts else Symbol(name)


def builtin_exception(dotted: str) -> type[BaseException] | None:
    kind = getattr(builtins, dotted.removeprefix("builtins."), None)
    return kind if isinstance(kind, type) and issubclass(kind, BaseException) else None


def _number(how: str) -> Callable[..., Value]:
    kind: Any = {"float": float, "int": int}[how]

    def convert(run: Interpreter, site: ShadowSite, a: list[Value], k: dict[str, Value]) -> Value:
        value = a[0] if a else 0
        if isinstance(value, Tensor):
            return torch.number_of(run, site, value, how)
        if isinstance(value, Symbol) and value.tensor is not None and not isinstance(value, Number):
            return torch.number_of(run, site, value.tensor, how)
        if isinstance(value, (int, float, str)):
            try:
                return kind(value)
            except (ValueError, OverflowError):
                return Symbol(how)
        if isinstance(value, Number):
            return value
        return run.remember((how, value), lambda: Symbol(how)) if isinstance(value, Symbol) else Symbol(how)

    return convert


def _bool(run: Interpreter, site: ShadowSite, a: list[Value], k: dict[str, Value]) -> Value:
    known = run.known_truth(a[0]) if a else False
    return known if known is not None else a[0] if isinstance(a[0], Symbol) else Symbol("bool")


def _str(run: Interpreter, site: ShadowSite, a: list[Value], k: dict[str, Value]) -> Value:
    text = text_of(a[0]) if a else ""
    return text if text is not None else Symbol("text")


def text_of(value: Value) -> str | None:
    """`str(value)` of a constant; None where that is not known, or too long to matter."""
    if isinstance(value, (str, float, bool)):
        return str(value)
    return str(int(value)) if isinstance(value, int) and value.bit_length() < 256 else None


def _len(run: Interpreter, site: ShadowSite, a: list[Value], k: dict[str, Value]) -> Value:
    value = a[0] if a else None
    if isinstance(value, (tuple, str, range)):
        return len(value)
    if isinstance(value, (List, Dict)):
        return len(value) if not value.open else run.remember(("len", value), lambda: Symbol("len"))
    if isinstance(value, ModuleObject) and not value.opaque and value.layer:
        return len(value.children)
    if isinstance(value, Object):
        method = run.method(value, "__len__")
        if method is not None:
            return run.call(method, [], {}, site.node)
    return run.remember(("len", value), lambda: Symbol("len"))


def _range(run: Interpreter, site: ShadowSite, a: list[Value], k: dict[str, Value]) -> Value:
    if a and all(isinstance(v, int) for v in a):
        try:
            return range(*a)
        except (ValueError, TypeError):
            return Symbol("range")
    start = a[0] if len(a) > 1 else 0
    # Of unknown length: its first items are known.
    return List([Turn(start), Turn(start + 1)], open=True) if isinstance(start, int) else List(open=True)


def _enumerate(run: Interpreter, site: ShadowSite, a: list[Value], k: dict[str, Value]) -> Value:
    start = a[1] if len(a) > 1 else k.get("start", 0)
    inner = a[0] if a else ()
    count = Turn if run.is_open(inner) else int

    # Lazily: what the loop body changes must be seen by the next turn.
    def number(items: Iterator[Value]) -> Iterator[Value]:
        for i, x in enumerate(items):
            yield (count(start + i) if isinstance(start, int) else Symbol("index")), x

    return _Lazy(inner, number)


class _Lazy(PythonIterator):
    """An iterator over another iterable that is read as the loop goes."""

    def __init__(self, inner: Value, wrap: Callable[[Iterator[Value]], Iterable[Value]]) -> None:
        super().__init__([], "enumerate", _nowhere, open=getattr(inner, "open", not isinstance(inner, (tuple, range))))
        self.inner = inner
        self.wrap = wrap


def _zip(run: Interpreter, site: ShadowSite, a: list[Value], k: dict[str, Value]) -> Value:
    if not a:
        return List()
    lengths = [len(v) if isinstance(v, (tuple, list, range)) and not getattr(v, "open", False) else None for v in a]
    known = [n for n in lengths if n is not None]
    turns = min(known) if known else 2
    columns = [list(iterate(run, v, site.node, turns)) for v in a]
    unknown = any(run.is_open(v) for v in a) and not known
    return PythonIterator(list(zip(*columns, strict=False)), "zip", site, open=unknown)


def _list(run: Interpreter, site: ShadowSite, a: list[Value], k: dict[str, Value]) -> Value:
    if not a:
        return List()
    if isinstance(a[0], Symbol) and not isinstance(a[0], Number) and a[0].tensor is None:
        return a[0]
    return List(iterate(run, a[0], site.node, 2), run.is_open(a[0]))


def _tuple(run: Interpreter, site: ShadowSite, a: list[Value], k: dict[str, Value]) -> Value:
    if not a:
        return ()
    if isinstance(a[0], Symbol) and a[0].tensor is None:
        return a[0]
    items = List(iterate(run, a[0], site.node, 2), run.is_open(a[0]))
    return items if items.open else tuple(items)


def _dict(run: Interpreter, site: ShadowSite, a: list[Value], k: dict[str, Value]) -> Value:
    made = Dict(k)
    if a:
        if isinstance(a[0], dict):
            made = Dict({**a[0], **k}, getattr(a[0], "open", True))
        else:
            made.open = run.is_open(a[0])
            for pair in iterate(run, a[0], site.node, 2):
                if isinstance(pair, tuple) and len(pair) == 2:
                    try:
                        made[pair[0]] = pair[1]
                    except TypeError:
                        made.open = True
                else:
                    made.open = True
    return made


def _set(run: Interpreter, site: ShadowSite, a: list[Value], k: dict[str, Value]) -> Value:
    made = Set()
    if a:
        made.open = run.is_open(a[0])
        for value in iterate(run, a[0], site.node, 2):
            try:
                made[value] = True
            except TypeError:
                made.open = True
    return made


def _sum(run: Interpreter, site: ShadowSite, a: list[Value], k: dict[str, Value]) -> Value:
    start = a[1] if len(a) > 1 else k.get("start", 0)
    total: Value = start
    import operator

    for value in iterate(run, a[0] if a else (), site.node, 2):
        total = run.binary(site.node, "add", operator.add, total, value)
    if not isinstance(total, (Tensor, Number)) and a and run.is_open(a[0]) and not isinstance(total, Symbol):
        return Symbol("sum")
    return total


def _extreme(name: str) -> Callable[..., Value]:
    def pick(run: Interpreter, site: ShadowSite, a: list[Value], k: dict[str, Value]) -> Value:
        items = a if len(a) > 1 else list(iterate(run, a[0], site.node, 2)) if a else []
        if (
            items
            and all(isinstance(v, (int, float)) for v in items)
            and not k
            and not (len(a) == 1 and run.is_open(a[0]))
        ):
            return getattr(builtins, name)(items)
        tensor = next((v for v in items if isinstance(v, Tensor)), None)
        if tensor is not None:
            return tensor
        cuts = run.cuts_of(items)
        return Number(name, cuts) if cuts else Symbol(name)

    return pick


def _arithmetic(name: str) -> Callable[..., Value]:
    def compute(run: Interpreter, site: ShadowSite, a: list[Value], k: dict[str, Value]) -> Value:
        value = a[0] if a else 0
        if isinstance(value, Tensor):
            return torch.apply_method(run, site, value, name, a[1:], k)
        if all(isinstance(v, (int, float)) for v in a) and a and all(abs(v) < 1e6 for v in a[1:]):
            if name == "pow" and len(a) > 1 and abs(a[1]) > 64:
                return Symbol(name)
            try:
                return getattr(builtins, name)(*a)
            except (TypeError, ValueError, OverflowError):
                return Symbol(name)
        cuts = run.cuts_of(a)
        return Number(name, cuts) if cuts else Symbol(name)

    return compute


def _isinstance(run: Interpreter, site: ShadowSite, a: list[Value], k: dict[str, Value]) -> Value:
    if len(a) < 2:
        return Symbol("isinstance")
    value, kinds = a[0], a[1]
    wanted = list(kinds) if isinstance(kinds, (tuple, list)) else [kinds]
    verdicts = [instance_of(run, value, kind) for kind in wanted]
    if True in verdicts:
        return True
    if all(v is False for v in verdicts):
        return False
    return run.remember(
        ("isinstance", value, tuple(id(w) if not isinstance(w, External) else w.dotted for w in wanted)),
        lambda: Symbol("isinstance"),
    )


_PYTHON_KINDS: dict[str, Any] = {
    "int": int, "float": float, "str": str, "bool": bool, "list": list, "tuple": tuple, "dict": dict, "set": Set,
    "bytes": bytes,
}  # fmt: skip


def instance_of(run: Interpreter, value: Value, kind: Value) -> bool | None:
    """Whether `value` is an instance of `kind`; None where that is open."""
    if isinstance(value, Symbol) and not isinstance(value, Number):
        if value.tensor is None or not value.tensor.certain:
            return None
        value = value.tensor
    dotted = kind.dotted if isinstance(kind, External) else ""
    if isinstance(value, Tensor):
        if not value.certain:
            return None
        if dotted in ("torch.Tensor", "torch.autograd.Variable"):
            return True
        if dotted == "torch.nn.Parameter":
            return value.is_parameter
        return False
    if isinstance(value, ModuleObject):
        if kind is value.cls:
            return True
        line = value.cls.line() if isinstance(value.cls, Class) else [value.cls]
        for entry in line:
            if entry is kind or (isinstance(entry, External) and dotted and entry.dotted == dotted):
                return True
        if dotted == "torch.nn.Module":
            return True
        if dotted.startswith("torch.nn.modules.conv._ConvNd") or dotted.rpartition(".")[2].startswith("_"):
            return None
        return None if value.opaque and not isinstance(kind, Class) else False
    if isinstance(value, (Object, OptimizerObject)):
        if isinstance(value.cls, Class):
            if kind in value.cls.line():
                return True
            if any(e.dotted == dotted for e in value.cls.externals() if dotted):
                return True
            return None if value.cls.is_open() else False
        return None
    if isinstance(value, Number):
        return None
    python_kind = _PYTHON_KINDS.get(dotted.removeprefix("builtins."))
    if python_kind is not None:
        if isinstance(value, bool) and python_kind is int:
            return True
        return isinstance(value, python_kind)
    if isinstance(value, (int, float, str, tuple, list, dict, bool, type(None))):
        return False if dotted.startswith(("torch.", "numpy.")) or isinstance(kind, Class) else None
    return None


def _getattr(run: Interpreter, site: ShadowSite, a: list[Value], k: dict[str, Value]) -> Value:
    if len(a) >= 2 and isinstance(a[1], str):
        owner, name = a[0], a[1]
        if len(a) > 2 and has_attribute(run, owner, name) is False:
            return a[2]
        return run.attribute(owner, name, site.node)
    if a and isinstance(a[0], ModuleObject):
        # Any member may be meant.
        a[0].opaque = True
        for _, value in a[0].members():
            if isinstance(value, ModuleObject):
                return value
    return Symbol("getattr")


def has_attribute(run: Interpreter, owner: Value, name: str) -> bool | None:
    if isinstance(owner, (Object, ModuleObject, OptimizerObject)):
        found = owner.attributes.get(name)
        if found is not None and not (isinstance(found, Symbol) and found.owner is owner):
            return True
        if isinstance(owner.cls, Class):
            try:
                owner.cls.lookup(name)
            except KeyError:
                if isinstance(owner, ModuleObject) and name in torch._MODULE_METHODS:
                    return True
                return None if owner.cls.is_open() or getattr(owner, "opaque", False) else False
            return True
        return None
    if isinstance(owner, Symbol):
        return None
    if isinstance(owner, Tensor):
        return None
    return None


def _hasattr(run: Interpreter, site: ShadowSite, a: list[Value], k: dict[str, Value]) -> Value:
    if len(a) == 2 and isinstance(a[1], str):
        known = has_attribute(run, a[0], a[1])
        if known is not None:
            return known
        return run.remember(("hasattr", a[0], a[1]), lambda: Symbol("hasattr"))
    return Symbol("hasattr")


def _setattr(run: Interpreter, site: ShadowSite, a: list[Value], k: dict[str, Value]) -> Value:
    if len(a) == 3:
        if isinstance(a[1], str):
            run.set_attribute(a[0], a[1], a[2], site.node)
            if isinstance(a[0], ModuleObject) and a[0].keys and a[1] in a[0].keys:
                a[0].children[a[0].keys.index(a[1])] = a[2]
                a[0].attributes.pop(a[1], None)
            elif isinstance(a[0], ModuleObject) and a[1].isdigit() and int(a[1]) < len(a[0].children):
                a[0].children[int(a[1])] = a[2]
                a[0].attributes.pop(a[1], None)
        elif isinstance(a[0], ModuleObject):
            a[0].opaque = True
            if isinstance(a[2], (ModuleObject, Tensor)):
                run.set_attribute(a[0], f"?{len(a[0].attributes)}", a[2], site.node)
    return None


def _super(run: Interpreter, site: ShadowSite, a: list[Value], k: dict[str, Value]) -> Value:
    scope = run.scope
    while scope is not None and "@class" not in scope.names and scope.parent is not None:
        if scope.names and next(iter(scope.names)) in ("self", "cls"):
            break
        scope = scope.parent
    if len(a) == 2 and isinstance(a[0], Class):
        return Super(a[1], a[0])
    first = next(iter(scope.names.values()), None) if scope is not None else None
    cls = run.method_class(first)
    return Super(first, cls) if cls is not None else Symbol("super")


def _reversed(run: Interpreter, site: ShadowSite, a: list[Value], k: dict[str, Value]) -> Value:
    items = list(iterate(run, a[0], site.node, 2)) if a else []
    return List(reversed(items), run.is_open(a[0]) if a else False)


def _sorted(run: Interpreter, site: ShadowSite, a: list[Value], k: dict[str, Value]) -> Value:
    items = list(iterate(run, a[0], site.node, 2)) if a else []
    if not k and (all(isinstance(v, (int, float)) for v in items) or all(isinstance(v, str) for v in items)):
        items.sort()
    return List(items, run.is_open(a[0]) if a else False)


def _map(run: Interpreter, site: ShadowSite, a: list[Value], k: dict[str, Value]) -> Value:
    if len(a) < 2:
        return Symbol("map")
    columns = [list(iterate(run, v, site.node, 2)) for v in a[1:]]
    items = [run.call(a[0], list(row), {}, site.node) for row in zip(*columns, strict=False)]
    return PythonIterator(items, "map", site, open=any(run.is_open(v) for v in a[1:]))


def _filter(run: Interpreter, site: ShadowSite, a: list[Value], k: dict[str, Value]) -> Value:
    if len(a) < 2:
        return Symbol("filter")
    kept = []
    unknown = run.is_open(a[1])
    for value in iterate(run, a[1], site.node, 2):
        verdict = run.known_truth(run.call(a[0], [value], {}, site.node) if a[0] is not None else value)
        unknown = unknown or verdict is None
        if verdict is not False:
            kept.append(value)
    return PythonIterator(kept, "filter()", site, open=unknown)


def _any(run: Interpreter, site: ShadowSite, a: list[Value], k: dict[str, Value]) -> Value:
    if not a or isinstance(a[0], Symbol):
        return Symbol("any")
    verdicts = [run.known_truth(v) for v in iterate(run, a[0], site.node, 2)]
    if True in verdicts:
        return True
    return False if all(v is False for v in verdicts) and not run.is_open(a[0]) else Symbol("any")


def _all(run: Interpreter, site: ShadowSite, a: list[Value], k: dict[str, Value]) -> Value:
    if not a or isinstance(a[0], Symbol):
        return Symbol("all")
    verdicts = [run.known_truth(v) for v in iterate(run, a[0], site.node, 2)]
    if False in verdicts:
        return False
    return True if all(v is True for v in verdicts) and not run.is_open(a[0]) else Symbol("all")


def _iter(run: Interpreter, site: ShadowSite, a: list[Value], k: dict[str, Value]) -> Value:
    if a and isinstance(a[0], (List, tuple, range)):
        return PythonIterator(list(iterate(run, a[0], site.node, 2)), "iter()", site, open=run.is_open(a[0]))
    return a[0] if a else Symbol("iter")


def _next(run: Interpreter, site: ShadowSite, a: list[Value], k: dict[str, Value]) -> Value:
    if not a:
        return Symbol("next")
    value = a[0]
    if isinstance(value, PythonIterator) and not isinstance(value, _Lazy):
        if not value.items:
            return a[1] if len(a) > 1 and not value.open else Symbol("next")
        # Of an iterator that may hold more, the last item known stands for the rest.
        return value.items[0] if value.open and len(value.items) == 1 else value.items.pop(0)
    if isinstance(value, Object):
        method = run.method(value, "__next__")
        if method is not None:
            return run.call(method, [], {}, site.node)
    for first in iterate(run, value, site.node, 1):
        return first
    return Symbol("next")


def _type(run: Interpreter, site: ShadowSite, a: list[Value], k: dict[str, Value]) -> Value:
    if len(a) == 1:
        cls = getattr(a[0], "cls", None)
        if cls is not None:
            return cls
        if isinstance(a[0], Tensor):
            return External("torch.Tensor")
    return run.remember(("type", a[0] if a else None), lambda: Symbol("type"))


def _nothing(run: Interpreter, site: ShadowSite, a: list[Value], k: dict[str, Value]) -> Value:
    return None


def _partial(run: Interpreter, site: ShadowSite, a: list[Value], k: dict[str, Value]) -> Value:
    return Partial(a[0], tuple(a[1:]), k) if a else Symbol("partial")


_BUILTIN_CALLS: dict[str, Callable[..., Value]] = {
    "float": _number("float"),
    "int": _number("int"),
    "bool": _bool,
    "str": _str,
    "len": _len,
    "range": _range,
    "enumerate": _enumerate,
    "zip": _zip,
    "list": _list,
    "tuple": _tuple,
    "dict": _dict,
    "set": _set,
    "frozenset": _set,
    "sum": _sum,
    "max": _extreme("max"),
    "min": _extreme("min"),
    "abs": _arithmetic("abs"),
    "round": _arithmetic("round"),
    "pow": _arithmetic("pow"),
    "slice": lambda run, site, a, k: slice(*a[:3]) if a else Symbol("slice"),
    "isinstance": _isinstance,
    "issubclass": lambda run, site, a, k: Symbol("issubclass"),
    "getattr": _getattr,
    "hasattr": _hasattr,
    "setattr": _setattr,
    "super": _super,
    "reversed": _reversed,
    "sorted": _sorted,
    "map": _map,
    "filter": _filter,
    "any": _any,
    "all": _all,
    "iter": _iter,
    "next": _next,
    "type": _type,
    "print": _nothing,
    "id": lambda run, site, a, k: run.remember(("id", a[0] if a else None), lambda: Symbol("id")),
    "callable": lambda run, site, a, k: (
        isinstance(a[0], (Function, Bound, Builtin, Partial, ModuleObject)) or Symbol("callable") if a else Symbol()
    ),
    "vars": lambda run, site, a, k: Dict(open=True),
    "locals": lambda run, site, a, k: Dict(open=True),
    "globals": lambda run, site, a, k: Dict(open=True),
    "object": lambda run, site, a, k: Object(External("builtins.object")),
}


# -- libraries


def call_library(run: Interpreter, dotted: str, a: list[Value], k: dict[str, Value], node: cst.CSTNode) -> Value:
    site = run.site(node)
    handler = _LIBRARY.get(dotted)
    if handler is not None:
        return handler(run, site, a, k)
    if dotted in ("math.factorial", "math.comb", "math.perm") and any(
        abs(v) > 256 for v in a if isinstance(v, (int, float))
    ):
        return Symbol(dotted)
    if dotted.startswith("math.") and all(isinstance(v, (int, float)) for v in a):
        import math

        try:
            result = getattr(math, dotted[5:])(*a)
        except Exception:  # noqa: BLE001 - a domain error of the program's is no error of ours
            return Symbol(dotted)
        return result if isinstance(result, (int, float, bool)) else Symbol(dotted)
    if dotted.startswith(("math.", "numpy.")):
        given: list[Value] = []
        for value in (*a, *k.values()):
            if isinstance(value, (list, tuple)):
                given.extend(value)
            else:
                given.append(value)
        cuts = run.cuts_of(given)
        for value in a:
            if isinstance(value, Tensor) and value.requires_grad is YES:
                cuts = (*cuts, run.cut(site, run.edge(value), None, "numpy"))
        return Number(dotted.rpartition(".")[2], cuts) if cuts else Symbol(dotted)
    if dotted.endswith(".GradScaler"):
        return GradScaler(site, k.get("enabled", True))
    if dotted in ("sys.exit", "os._exit"):
        raise run.stop()
    if torch.is_optimizer_class(dotted):
        return torch.new_optimizer(run, site, dotted, a, k)
    if not a and not k and _asks(dotted):
        # The same question without arguments (`dist.is_initialized()`) has the same answer on one path.
        return run.remember(("call", dotted), lambda: Symbol(dotted, called=External(dotted)))
    return torch.unknown_call(run, External(dotted), a, k, node)


@cache
def _asks(dotted: str) -> bool:
    return _QUESTION.search(dotted) is not None


def deep_copy(value: Value, memo: dict[int, Value], tensors: bool = True) -> Value:
    """`copy.deepcopy` of a shadow value: new leaves on new storage."""
    if id(value) in memo:
        return memo[id(value)]
    made: Value = value
    if isinstance(value, Tensor):
        made = Tensor(
            requires_grad=value.requires_grad,
            site=value.site,
            name=value.name,
            is_parameter=value.is_parameter,
            certain=value.certain,
            cuts=value.cuts,
        )
        made.owner = value.owner
        memo[id(value)] = made
    elif isinstance(value, ModuleObject):
        made = ModuleObject(value.cls, value.kind, value.site, value.layer)
        memo[id(value)] = made
        made.name, made.training, made.opaque = value.name, value.training, value.opaque
        made.keys, made.buffers, made.options = list(value.keys), set(value.buffers), dict(value.options)
        made.sealed = value.sealed
        made.children = [deep_copy(v, memo) for v in value.children]
        made.attributes = {n: deep_copy(v, memo) for n, v in value.attributes.items()}
        for tensor in [v for v in made.attributes.values() if isinstance(v, Tensor)]:
            if tensor.owner is value:
                tensor.owner = made
    elif isinstance(value, OptimizerObject):
        made = OptimizerObject(value.cls, value.kind, value.site)
        memo[id(value)] = made
        made.parameters = [deep_copy(t, memo) for t in value.parameters]
        made.complete = value.complete
        made.attributes = {n: deep_copy(v, memo) for n, v in value.attributes.items()}
    elif isinstance(value, Object):
        made = Object(value.cls)
        memo[id(value)] = made
        made.attributes = {n: deep_copy(v, memo) for n, v in value.attributes.items()}
    elif isinstance(value, List):
        made = List(open=value.open)
        memo[id(value)] = made
        made.extend(deep_copy(v, memo) for v in value)
    elif isinstance(value, Dict):
        made = type(value)(open=value.open)
        memo[id(value)] = made
        made.default = value.default
        made.update({n: deep_copy(v, memo) for n, v in value.items()})
    elif isinstance(value, tuple):
        made = tuple(deep_copy(v, memo) for v in value)
    return made


def _deepcopy(run: Interpreter, site: ShadowSite, a: list[Value], k: dict[str, Value]) -> Value:
    if a and isinstance(a[0], Symbol) and not isinstance(a[0], Number) and a[0].tensor is None:
        return Symbol(a[0].name)
    made = deep_copy(a[0], {}) if a else Symbol()
    if isinstance(made, ModuleObject):
        run.trace.modules.extend(m for _, m in made.modules())
    return made


def _copy(run: Interpreter, site: ShadowSite, a: list[Value], k: dict[str, Value]) -> Value:
    value = a[0] if a else None
    if isinstance(value, List):
        return List(value, value.open)
    if isinstance(value, Dict):
        return _copied(value)
    if isinstance(value, Object):
        made = Object(value.cls)
        made.attributes = dict(value.attributes)
        return made
    return value


def _chain(run: Interpreter, site: ShadowSite, a: list[Value], k: dict[str, Value]) -> Value:
    items = [x for value in a for x in iterate(run, value, site.node, 2)]
    return PythonIterator(items, "chain()", site, open=any(run.is_open(v) for v in a))


def _defaultdict(run: Interpreter, site: ShadowSite, a: list[Value], k: dict[str, Value]) -> Value:
    return Dict(default=a[0] if a else None)


def _namedtuple(run: Interpreter, site: ShadowSite, a: list[Value], k: dict[str, Value]) -> Value:
    fields = a[1] if len(a) > 1 else k.get("field_names")
    names = (
        fields.replace(",", " ").split()
        if isinstance(fields, str)
        else [f for f in fields if isinstance(f, str)]
        if isinstance(fields, (list, tuple))
        else []
    )

    def make(run: Interpreter, site: ShadowSite, a: list[Value], k: dict[str, Value]) -> Value:
        made = Object(External("collections.namedtuple"))
        made.attributes.update(zip(names, a, strict=False))
        made.attributes.update(k)
        return made

    return Builtin("namedtuple", make)


def _cycle(run: Interpreter, site: ShadowSite, a: list[Value], k: dict[str, Value]) -> Value:
    return List(iterate(run, a[0], site.node, 2) if a else (), True)


def _progress(run: Interpreter, site: ShadowSite, a: list[Value], k: dict[str, Value]) -> Value:
    return a[0] if a else Symbol("progress")


def _deque(run: Interpreter, site: ShadowSite, a: list[Value], k: dict[str, Value]) -> Value:
    made = List(iterate(run, a[0], site.node, 2)) if a else List()
    made.bounded = "maxlen" in k
    return made


def _namespace(run: Interpreter, site: ShadowSite, a: list[Value], k: dict[str, Value]) -> Value:
    made = Object(External("types.SimpleNamespace"))
    made.attributes.update(k)
    return made


def _sample(run: Interpreter, site: ShadowSite, a: list[Value], k: dict[str, Value]) -> Value:
    value = a[0] if a else Symbol()
    if isinstance(value, (List, tuple)):
        return List(value, True)
    return Symbol("sample")


_LIBRARY: dict[str, Callable[..., Value]] = {
    "copy.deepcopy": _deepcopy,
    "copy.copy": _copy,
    "itertools.chain": _chain,
    "itertools.chain.from_iterable": lambda run, site, a, k: _chain(
        run, site, list(iterate(run, a[0], site.node, 2)) if a else [], k
    ),
    "itertools.cycle": _cycle,
    "itertools.count": lambda run, site, a, k: List([0, 1], True),
    "itertools.islice": _progress,
    "functools.partial": _partial,
    "functools.wraps": lambda run, site, a, k: Builtin("wraps", lambda run, site, a, k: a[0]),
    "functools.lru_cache": lambda run, site, a, k: Builtin("wraps", lambda run, site, a, k: a[0]),
    "collections.OrderedDict": _dict,
    "collections.defaultdict": _defaultdict,
    "collections.deque": _deque,
    "collections.namedtuple": _namedtuple,
    "types.SimpleNamespace": _namespace,
    "tqdm.tqdm": _progress,
    "tqdm.auto.tqdm": _progress,
    "tqdm.notebook.tqdm": _progress,
    "tqdm.trange": _range,
    "tqdm.auto.trange": _range,
    "rich.progress.track": _progress,
    "random.sample": _sample,
    "typing.cast": lambda run, site, a, k: a[1] if len(a) > 1 else Symbol(),
    "contextlib.nullcontext": lambda run, site, a, k: a[0] if a else None,
}
