"""What torch does, as data. Reads `ops.toml` and `layers.toml`, which `gradlint.facts.probe` measured.

Nothing here imports torch. A table is parsed when it is first asked for, so that a lookup costs what it needs
and no more; `ops()` and `layers()` parse everything.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["Layer", "Op", "containers", "function", "layer", "layers", "method", "ops", "torch_version"]

Keeps = Mapping[str, tuple[str, ...]]
"""Operand whose gradient is wanted -> what backward then keeps: names of operands, "result" (of a tuple
"result0", "result1", ... counted flat), or "internal", which no user code can reach."""


@dataclass(frozen=True, slots=True)
class Op:
    """One op, in one form of call. Measured; see `gradlint.facts.probe` for how.

    A second form of the same op (`max(dim)` beside `max`) has its own table only where something differs.
    """

    space: str
    """"method" (of Tensor), "torch" (torch.* and torch.linalg, .special, .fft) or "functional"."""
    name: str
    form: str = ""
    """"" for the plain call; "number", "dim", "other", ... as in `max(dim)`."""
    operands: tuple[str, ...] = ()
    """Parameter names in positional order, not tensors alone. A list of tensors is called "tensors"."""
    variadic: bool = False
    """The last of `operands` takes all remaining arguments (or one list of them)."""
    returns: str = "tensor"
    """"tensor", "tuple", "python", "numpy" or "none"."""
    arity: int | None = None
    """How many results a "tuple" has, where that is fixed."""
    keeps: Keeps = field(default_factory=dict)
    """What each gradient keeps. An operand that is no key gets no gradient from this op."""
    mutates: tuple[str, ...] = ()
    """Operands whose version counter moves."""
    mutates_silently: tuple[str, ...] = ()
    """Operands whose values change, their version counter not (batch_norm's running statistics)."""
    view_of: str | None = None
    """The operand whose storage the result shares."""
    maybe_view: bool = False
    """It shares it only sometimes: for some strides, or where nothing had to be converted."""
    multi_view: bool = False
    """One of several views made at once, which torch forbids to change in place."""
    differentiable: bool = True
    """False: a tensor operand may require grad, but no result ever does."""
    differentiable_results: tuple[bool, ...] = ()
    """For a tuple of which only some results carry a gradient: which."""
    detaches: bool = False
    """The value survives, the graph is cut (detach, item, numpy, tolist, .data)."""
    copies_out_of_graph: bool = False
    """The value is copied, the graph is cut (torch.tensor of a tensor)."""
    factory: bool = False
    """Makes a tensor of no tensor."""
    like: bool = False
    """Makes a tensor that takes dtype or shape from its operand, but no value (zeros_like)."""
    zero_gradient: bool = False
    """It has a grad_fn, but the gradient is zero everywhere (round, sign)."""
    inplace_argument: bool = False
    keeps_inplace: Keeps = field(default_factory=dict)
    """`keeps` under inplace=True."""
    out_argument: bool = False
    """It takes out=, which refuses operands that require grad."""
    refuses: tuple[str, ...] = ()
    """Operands for which torch raises if they require grad (as the operand is a non-leaf)."""
    measured: bool = True
    """False: the probe's machine cannot run it (cuda); the facts are those of the nearest op that it can."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One class of torch.nn, called once with default arguments, in training and in eval mode. Measured."""

    name: str
    form: str = ""
    parameters: tuple[str, ...] = ()
    """Names of parameters, dotted where nested."""
    buffers: tuple[str, ...] = ()
    call: tuple[str, ...] = ()
    """Names of forward's parameters in positional order."""
    returns: str = "tensor"
    arity: int | None = None
    nested: tuple[int, ...] = ()
    """For a tuple of which some results are tuples: their lengths, 0 for a tensor. (0, 2) for LSTM."""
    keeps: Keeps = field(default_factory=dict)
    """Per input and per parameter, in training mode. What is no key gets no gradient."""
    keeps_eval: Keeps = field(default_factory=dict)
    """The same in eval mode (equal to `keeps` unless the table says otherwise)."""
    no_gradient: tuple[str, ...] = ()
    """Inputs that take no gradient: class indices, targets."""
    refuses: tuple[str, ...] = ()
    """Inputs for which torch raises if they require grad."""
    differentiable_results: tuple[bool, ...] = ()
    view_of: str | None = None
    """The input whose storage the result shares in training mode."""
    view_of_eval: str | None = None
    """The same in eval mode."""
    mutates: tuple[str, ...] = ()
    """Inputs and buffers whose version counter moves, in training mode."""
    mutates_eval: tuple[str, ...] = ()
    mutates_silently: tuple[str, ...] = ()
    """Buffers whose values change, in training mode, though their version counter does not."""
    mutates_silently_eval: tuple[str, ...] = ()
    loss: bool = False
    inplace_argument: bool = False
    keeps_inplace: Keeps = field(default_factory=dict)
    measured: bool = True
    """False: not run (SyncBatchNorm, Lazy*); the facts are those of the layer it stands for."""


_HEADER = re.compile(r'^\[(\w+)\.("?)([^"\]]+)\2\]$', re.MULTILINE)
_NAME = re.compile(r"([^(]+)(?:\((.*)\))?")
_SPACES = {
    "torch.nn.functional.": "functional",
    "torch.Tensor.": "method",
    "torch.functional.": "torch",
    "torch.": "torch",
}


@cache
def _text(file: str) -> str:
    return (Path(__file__).parent / file).read_text(encoding="utf-8")


@cache
def _index(file: str) -> dict[tuple[str, str], tuple[int, int]]:
    """Where the body of each table lies in its file."""
    text = _text(file)
    found = list(_HEADER.finditer(text))
    ends = [m.start() for m in found[1:]] + [text.find("\n[containers]")]
    return {(m[1], m[3]): (m.end(), end if end >= 0 else len(text)) for m, end in zip(found, ends, strict=True)}


def _frozen(value: object) -> object:
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, dict):
        return {key: tuple(names) for key, names in value.items()}
    return value


def _table(file: str, space: str, full: str) -> dict[str, Any] | None:
    place = _index(file).get((space, full))
    if place is None:
        return None
    return {key: _frozen(value) for key, value in tomllib.loads(_text(file)[place[0] : place[1]]).items()}


def _parts(full: str) -> tuple[str, str]:
    match = _NAME.fullmatch(full)
    return (match[1], match[2] or "") if match else (full, "")


@cache
def _op(space: str, full: str) -> Op | None:
    table = _table("ops.toml", space, full)
    if table is None:
        return None
    name, form = _parts(full)
    return Op(space=space, name=name, form=form, **table)


@cache
def _layer(full: str) -> Layer | None:
    table = _table("layers.toml", "layer", full)
    if table is None:
        return None
    name, form = _parts(full)
    table.setdefault("keeps_eval", table.get("keeps", {}))
    return Layer(name=name, form=form, **table)


def method(name: str, form: str = "") -> Op | None:
    """Look up a torch.Tensor method, operator (`mul`, `__getitem__`) or property (`T`).

    Of a form that has no table of its own: the plain form's.
    """
    return (_op("method", f"{name}({form})") if form else None) or _op("method", name)


def function(dotted_name: str, form: str = "") -> Op | None:
    """Look up a function by its full name: "torch.cat", "torch.nn.functional.relu"."""
    for prefix, space in _SPACES.items():
        if dotted_name.startswith(prefix):
            name = dotted_name[len(prefix) :]
            return (_op(space, f"{name}({form})") if form else None) or _op(space, name)
    return None


def layer(name: str, form: str = "") -> Layer | None:
    """Look up a torch.nn class by its bare name: "Linear"."""
    return (_layer(f"{name}({form})") if form else None) or _layer(name)


@cache
def ops() -> tuple[Op, ...]:
    """Read all ops, in all forms."""
    return tuple(_every_op())


def _every_op() -> Iterator[Op]:
    for space, full in _index("ops.toml"):
        op = _op(space, full)
        if op is not None:
            yield op


@cache
def layers() -> tuple[Layer, ...]:
    """Read all layers."""
    found = (_layer(full) for _, full in _index("layers.toml"))
    return tuple(one for one in found if one is not None)


@cache
def containers() -> tuple[str, ...]:
    """Name torch.nn's containers, which are not measured."""
    text = _text("layers.toml")
    names: list[str] = tomllib.loads(text[text.index("\n[containers]") :])["containers"]["names"]
    return tuple(names)


@cache
def torch_version() -> str:
    """Say which torch was measured."""
    version: str = tomllib.loads(_text("ops.toml").split("\n[", maxsplit=1)[0])["torch_version"]
    return version
