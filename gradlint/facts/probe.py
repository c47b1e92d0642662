"""Ask torch what each operation and each layer does to autograd, and write down the answers.

``python -m gradlint.facts.probe`` runs every op of the recipes below on tiny tensors, once per operand
that may require grad, and looks: what was packed for backward (`saved_tensors_hooks`), whose storage it
was, whose version counter moved, whose storage the result shares, whether a grad_fn came out.
Nothing in `ops.toml` and `layers.toml` is written by hand; only the recipes are.

A recipe line reads ``name: arguments | form: arguments``. The arguments are a Python call's, over the small
tensors that `_Sample` names; the first form is the plain one. ``foo_`` and every namespace that has a ``foo``
share its line, unless a line says ``method.foo``, ``torch.foo`` or ``functional.foo``.
"""

# torch tells much of this only through private names and values of any type.
# A probe asks one question after another and takes any refusal for an answer.
# ruff: noqa: ANN401, BLE001

from __future__ import annotations

import inspect
import re
import sys
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from gradlint.facts.recipes import ALIKE, DTYPES, LAYERS, MOVES, NAMES, RECIPES, SKIP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Fact = dict[str, Any]
Tables = dict[tuple[str, str], Fact]  # (namespace, name with form) -> facts
HEADER = "# Written by python -m gradlint.facts.probe; do not edit.\n"


class _Sample(dict[str, Any]):
    """The names a recipe may use. A name is a fresh tensor; the same seed gives the same tensors."""

    def __init__(self, seed: int) -> None:
        super().__init__(torch=torch, r=self.rand, k=self.ints, nn=torch.nn, sg=self.signs)
        self._rng = torch.Generator().manual_seed(seed)

    def rand(self, *shape: int) -> Tensor:
        return torch.rand(*shape, generator=self._rng) * 0.8 + 0.1

    def ints(self, high: int, *shape: int) -> Tensor:
        return torch.randint(0, high, shape, generator=self._rng)

    def signs(self, *shape: int) -> Tensor:
        return self.ints(2, *shape).float() * 2 - 1

    def __missing__(self, key: str) -> Any:
        kind = key.rstrip("0123456789")
        if kind == "m":
            return self.rand(4, 4)
        if kind == "v":
            return self.rand(4)
        if kind == "b":
            return self.rand(2, 4, 4)
        if kind == "s":
            return self.rand(1)[0]
        if kind == "spd":
            a = self.rand(4, 4)
            return a @ a.T + torch.eye(4)
        if kind == "cm":
            return torch.complex(self.rand(4, 4), self.rand(4, 4))
        if kind == "im":
            return self.ints(4, 4, 4)
        if kind == "iv":
            return torch.randperm(4, generator=self._rng)
        if kind == "mask":
            return torch.eye(4).bool()
        raise KeyError(key)


@contextmanager
def _quietly() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_num_threads(threads)


def _build(recipe: str, seed: int) -> tuple[list[Any], dict[str, Any]]:
    def take(*args: Any, **kwargs: Any) -> tuple[list[Any], dict[str, Any]]:
        return list(args), kwargs

    sample = _Sample(seed)
    sample["_"] = take
    return cast("tuple[list[Any], dict[str, Any]]", eval(f"_({recipe})", {}, sample))  # noqa: S307


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, tuple | list):
        return [t for item in value for t in _tensors(item)]
    return []


def _storage(tensor: Tensor) -> int:
    try:
        storage = tensor.untyped_storage()
        return storage.data_ptr() or storage._cdata
    except (NotImplementedError, RuntimeError):  # sparse and mkldnn tensors have none
        return -id(tensor)


def _may_require_grad(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


# --- one run -----------------------------------------------------------------------------------------


class _Run:
    """One call with one tensor (the `grad`-th of those that could) requiring grad, and what was seen."""

    def __init__(
        self,
        call: Callable[..., Any],
        recipe: str,
        names: list[str],
        grad: int | None,
        seed: int = 0,
        change: Callable[[Tensor, int], Tensor] = lambda tensor, _: tensor,
        keywords: dict[str, Any] | None = None,
    ) -> None:
        args, kwargs = _build(recipe, seed)
        kwargs |= keywords or {}
        self.operands: list[tuple[str, Tensor]] = []
        self.leaf: Tensor | None = None
        self.of: str | None = None
        self.candidates: list[str] = []
        self.place = -1 if grad is None else grad
        place = 0

        def ready(name: str, value: Any) -> Any:
            nonlocal place
            if isinstance(value, list | tuple):
                return type(value)(ready(name, item) for item in value)
            if not isinstance(value, Tensor):
                return value
            tensor = change(value, place).detach().clone()
            place += 1
            if _may_require_grad(tensor):
                if len(self.candidates) == grad:
                    self.leaf, self.of = tensor.requires_grad_(), name
                    tensor = tensor.clone()  # a non-leaf: changing it in place is legal
                self.candidates.append(name)
            self.operands.append((name, tensor))
            return tensor

        args = [ready(names[min(i, len(names) - 1)] if names else "input", a) for i, a in enumerate(args)]
        kwargs = {name: ready(name, a) for name, a in kwargs.items()}
        self.before = [(tensor._version, tensor.detach().clone()) for _, tensor in self.operands]
        self.packed: list[tuple[Tensor, int]] = []
        torch.manual_seed(seed)
        with torch.autograd.graph.saved_tensors_hooks(self._pack, lambda packed: packed):
            self.out: Any = call(*args, **kwargs)
        self.outs = _tensors(self.out)

    def _pack(self, tensor: Tensor) -> Tensor:
        self.packed.append((tensor, tensor._version))
        return tensor

    @property
    def connected(self) -> bool:
        """A gradient flows from a result (or from a mutated operand) to the leaf."""
        reached = [
            *self.outs,
            *(t for (_, t), (v, _) in zip(self.operands, self.before, strict=True) if t._version != v),
        ]
        return self.leaf is not None and any(t.grad_fn is not None and _reaches(t, self.leaf) for t in reached)

    @property
    def mutated(self) -> list[str]:
        pairs = zip(self.operands, self.before, strict=True)
        return _unique(name for (name, tensor), (version, _) in pairs if tensor._version != version)

    @property
    def mutated_silently(self) -> list[str]:
        pairs = zip(self.operands, self.before, strict=True)
        return _unique(
            name
            for (name, tensor), (version, values) in pairs
            if tensor._version == version and tensor.shape == values.shape and not _same(tensor, values)
        )

    @property
    def shared(self) -> list[str]:
        """Operands whose storage a result shares, in-place operands aside."""
        results = {_storage(t) for t in self.outs}
        mutated = self.mutated
        return _unique(n for n, t in self.operands if n not in mutated and _storage(t) in results)

    @property
    def kept(self) -> list[str]:
        """Names of what was packed for backward: operands, results, or "internal"."""
        names: list[str] = []
        single = isinstance(self.out, Tensor)
        for tensor, version in self.packed:
            storage = _storage(tensor)
            owner = [(n, t) for n, t in self.operands if _storage(t) == storage]
            result = [i for i, t in enumerate(self.outs) if _storage(t) == storage]
            if owner and (owner[0][0] not in self.mutated or version != owner[0][1]._version):
                names.extend(n for n, _ in owner)
            elif result or owner:
                names.extend(["result" if single or not result else f"result{result[0]}"])
            else:
                names.append("internal")
        if not names and self.keeps_a_number():
            names.append("internal")
        order = {name: i for i, (name, _) in enumerate(self.operands)}
        return sorted(set(names), key=lambda n: (order.get(n, 99), n))

    def keeps_a_number(self) -> bool:
        """Whether something was kept that the hooks are not shown: the 2 of `x * 2`, which backward frees too."""
        for node in _nodes(self.outs):
            for name in dir(node):
                if name.startswith("_saved_") and isinstance(getattr(node, name, None), Tensor):
                    return True
        return False

    def gradient_is_zero(self) -> bool:
        reached = [t for t in self.outs if t.grad_fn is not None] or [
            t for _, t in self.operands if t.grad_fn is not None
        ]
        if self.leaf is None or not reached:
            return False
        noise = torch.Generator().manual_seed(7)
        try:
            real = [torch.view_as_real(t.resolve_conj()) if t.is_complex() else t for t in reached]
            loss = sum(((t * torch.rand(t.shape, generator=noise)).sum() for t in real), torch.zeros(()))
            loss.backward()  # type: ignore[no-untyped-call]
        except (RuntimeError, NotImplementedError):
            return False
        return self.leaf.grad is not None and not bool(self.leaf.grad.to_dense().ne(0).any())


def _unique(names: Iterator[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _same(a: Tensor, b: Tensor) -> bool:
    try:
        return a.shape == b.shape and a.dtype == b.dtype and torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)
    except (RuntimeError, NotImplementedError):
        return True


def _reaches(tensor: Tensor, leaf: Tensor) -> bool:
    return any(getattr(node, "variable", None) is leaf for node in _nodes([tensor]))


def _nodes(tensors: list[Tensor]) -> Iterator[Any]:
    todo, seen = [tensor.grad_fn for tensor in tensors], set()
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        todo.extend(following for following, _ in node.next_functions)


def _try(*args: Any, **kwargs: Any) -> _Run | None:
    try:
        return _Run(*args, **kwargs)
    except Exception:  # a guess that torch refuses, however it says so
        return None


# --- variants: when does a result share storage? -------------------------------------------------------


def _strided(tensor: Tensor, _: int) -> Tensor:
    return tensor.mT.contiguous().mT if tensor.dim() > 1 else tensor


def _channels_last(tensor: Tensor, _: int) -> Tensor:
    return tensor.contiguous(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor


def _as(dtype: torch.dtype, *, everywhere: bool = False) -> Callable[[Tensor, int], Tensor]:
    def change(tensor: Tensor, place: int) -> Tensor:
        return tensor.to(dtype) if (place == 0 or everywhere) and tensor.is_floating_point() else tensor

    return change


# --- names ---------------------------------------------------------------------------------------------

_ATEN = {"torch.linalg": "linalg_", "torch.special": "special_", "torch.fft": "fft_"}


def _fits(kind: str, value: Any) -> bool:
    if kind.startswith("Optional["):
        return value is None or _fits(kind[9:-1], value)
    if kind == "Tensor":
        return isinstance(value, Tensor)
    if kind in {"List[Tensor]", "List[Optional[Tensor]]"}:
        return isinstance(value, list | tuple) and all(v is None or isinstance(v, Tensor) for v in value)
    if kind == "number":
        return isinstance(value, int | float | complex) and not isinstance(value, bool)
    if kind == "float":
        return isinstance(value, float | int)
    if kind in {"int", "SymInt"}:
        return isinstance(value, int | torch.dtype | torch.layout | torch.memory_format)
    if kind in {"List[int]", "List[SymInt]"}:
        return isinstance(value, int) or (isinstance(value, list | tuple) and all(isinstance(v, int) for v in value))
    if kind == "bool":
        return isinstance(value, bool)
    if kind == "str":
        return isinstance(value, str)
    return True


class _Signature:
    """Parameter names in positional order, as torch itself declares them."""

    def __init__(self, space: str, name: str, fn: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
        self.names: list[str] = []
        self.variadic = False
        self.fixed: int | None = None  # how many results, if torch says so
        self.kinds: list[str] = []
        key = f"{space}.{name}"
        if key in NAMES:
            self.names = NAMES[key].replace("*", "").split()
            self.variadic = "*" in NAMES[key]
            return
        signature = self._python(space, name, fn)
        if signature is not None:
            for p in signature.parameters.values():
                if p.kind is p.VAR_POSITIONAL:
                    self.variadic = True
                    many = "tensors" if any(isinstance(a, Tensor) for a in args[len(self.names) :]) else p.name
                    self.names.append(many)
                elif p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
                    self.names.append(p.name)
            return
        schema = self._schema(name, space, args, kwargs)
        if schema is None:
            return
        parameters = [a for a in schema.arguments if not a.kwarg_only]
        if space == "method":  # x.where(condition, other): self comes first
            parameters.sort(key=lambda a: a.name != "self")
        self.names = [a.name for a in parameters]
        self.kinds = [str(a.type) for a in parameters]
        if space != "method":
            self.names = ["input" if n == "self" else n for n in self.names]
        if self.kinds.count("List[Tensor]") == 1:
            self.names = ["tensors" if k == "List[Tensor]" else n for n, k in zip(self.names, self.kinds, strict=True)]
        if len(schema.returns) > 1:
            self.fixed = len(schema.returns)

    @staticmethod
    def _python(space: str, name: str, fn: Any) -> inspect.Signature | None:
        for candidate in (getattr(F, f"_{name}", None) if space == "functional" else None, fn):
            if candidate is None or isinstance(candidate, type(torch.add) | type(F.conv2d)):
                continue
            try:
                signature = inspect.signature(candidate)
            except (ValueError, TypeError):
                continue
            kinds = [p.kind for p in signature.parameters.values()]
            if kinds[:1] != [inspect.Parameter.VAR_POSITIONAL] or inspect.Parameter.VAR_KEYWORD not in kinds:
                return signature
        return None

    @staticmethod
    def _schema(name: str, space: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        module, _, last = name.rpartition(".")
        aten = _ATEN.get(f"torch.{module}", "") + last
        schemas = torch._C._jit_get_schemas_for_operator(f"aten::{aten}")
        for schema in schemas:
            parameters = [a for a in schema.arguments if not a.is_out]
            if len(parameters) != len(schema.arguments):
                continue
            positional = [a for a in parameters if not a.kwarg_only]
            if space == "method":
                positional.sort(key=lambda a: a.name != "self")
            given = positional[: len(args)]
            known = {a.name for a in parameters}
            missing = [a for a in positional[len(args) :] if not a.has_default_value() and a.name not in kwargs]
            spread = len(args) > len(positional) and positional and str(positional[-1].type).startswith("List")
            if missing or not set(kwargs) <= known or (len(args) > len(positional) and not spread):
                continue
            if any("Dimname" in str(a.type) for a in parameters):
                continue
            if all(_fits(str(a.type), v) for a, v in zip(given, args, strict=False)) or spread:
                return schema
        return None


# --- ops -----------------------------------------------------------------------------------------------

_PROFILES = ("m", "v", "b", "spd", "cm", "im", "mask")
_GENERIC = [
    ("", "X"),
    ("other", "X, X2"),
    ("number", "X, 2.0"),
    ("dim", "X, 1"),
    ("shape", "X, (2, 8)"),
    ("three", "X, X2, X3"),
    ("list", "[X, X2]"),
    ("nothing", ""),
]


def _recipes(space: str, name: str) -> list[tuple[str, list[str]]]:
    """(form, alternative argument lists); generic guesses if no line names the op."""
    bare = name.removesuffix("_") if not name.startswith("__") else name
    for key in (f"{space}.{name}", f"{space}.{bare}", name, bare):
        if key in RECIPES:
            return [(form, [text]) for form, text in RECIPES[key]]
    return [(form, [re.sub(r"\bX", p, text) for p in _PROFILES] if "X" in text else [text]) for form, text in _GENERIC]


def _explicit(space: str, name: str) -> bool:
    bare = name.removesuffix("_") if not name.startswith("__") else name
    return any(key in RECIPES for key in (f"{space}.{name}", f"{space}.{bare}", name, bare))


def _facts(space: str, name: str, fn: Callable[..., Any], recipe: str) -> tuple[Fact, _Signature] | None:
    args, kwargs = _build(recipe, 0)
    plain = _try(fn, recipe, [], None)
    signature = _Signature(space, name, fn, args, kwargs)
    if plain is None:
        return None
    names = signature.names or (["self"] if space == "method" else ["input"])
    if space == "method" and names[0] != "self":
        names = ["self", *names]
    plain = _Run(fn, recipe, names, None)
    if _storage_of_result_is_static(plain):
        return None
    fact: Fact = {}
    if plain.operands or signature.names:
        fact["operands"] = names
    if signature.variadic:
        fact["variadic"] = True
    fact |= _returns(plain, signature)
    runs, refuses = _runs(fn, recipe, names, plain.candidates)
    fact |= _autograd(plain, runs, refuses)
    if refuses:
        fact["refuses"] = refuses
    mutates = _unique(n for run in [plain, *runs] for n in run.mutated)
    if mutates:
        fact["mutates"] = mutates
    silent = [n for n in plain.mutated_silently if n not in mutates]
    if silent:
        fact["mutates_silently"] = silent
    fact |= _views(fn, recipe, names, name, plain, runs)
    fact |= _cuts(fn, recipe, names, name, plain, runs)
    asked = [run.place for run in runs if run.connected]
    if asked and all(_zero(fn, recipe, names, place) for place in asked):
        fact["zero_gradient"] = True
    if "inplace" in names or "inplace" in kwargs:
        fact["inplace_argument"] = True
        inplace, _ = _runs(fn, recipe, names, plain.candidates, {"inplace": True})
        kept = _keeps(inplace)
        if inplace:
            fact["keeps_inplace"] = kept
    if space == "torch" and _takes_out(fn, recipe, plain):
        fact["out_argument"] = True
    return fact, signature


def _storage_of_result_is_static(run: _Run) -> bool:
    return isinstance(run.out, type) or inspect.ismodule(run.out)


def _runs(
    fn: Callable[..., Any], recipe: str, names: list[str], candidates: list[str], keywords: Fact | None = None
) -> tuple[list[_Run], list[str]]:
    runs, refuses = [], []
    for place, candidate in enumerate(candidates):
        run = _try(fn, recipe, names, place, keywords=keywords)
        if run is None:
            refuses.append(candidate)
        else:
            runs.append(run)
    return runs, _unique(iter(refuses))


def _zero(fn: Callable[..., Any], recipe: str, names: list[str], place: int) -> bool:
    for seed in (0, 1):
        run = _try(fn, recipe, names, place, seed=seed)
        if run is None or not run.gradient_is_zero():
            return False
    return True


def _returns(run: _Run, signature: _Signature) -> Fact:
    out = run.out
    if isinstance(out, Tensor):
        return {"returns": "tensor"}
    if isinstance(out, tuple | list) and out and isinstance(out[0], Tensor | tuple | list) and _tensors(out):
        fact: Fact = {"returns": "tuple"}
        listed = any(isinstance(t, list | tuple) for t in _build_args(run)) or isinstance(out, list)
        if signature.fixed is not None:
            fact["arity"] = signature.fixed
        elif not signature.kinds and not listed and not signature.variadic:
            fact["arity"] = len(out)
        return fact
    if out is None:
        return {"returns": "none"}
    if type(out).__module__ == "numpy":
        return {"returns": "numpy"}
    return {"returns": "python"}


def _build_args(run: _Run) -> list[Any]:
    counts: dict[str, int] = {}
    for name, _ in run.operands:
        counts[name] = counts.get(name, 0) + 1
    return [[]] if any(c > 1 for c in counts.values()) else []


def _keeps(runs: list[_Run]) -> Fact:
    keeps: dict[str, list[str]] = {}
    for run in runs:
        if run.connected and run.of is not None:
            known = keeps.setdefault(run.of, [])
            known.extend(n for n in run.kept if n not in known)
    return keeps


def _autograd(plain: _Run, runs: list[_Run], refuses: list[str]) -> Fact:
    fact: Fact = {}
    keeps = _keeps(runs)
    if keeps:
        fact["keeps"] = keeps
    if plain.operands and plain.outs and not keeps and not refuses:
        fact["differentiable"] = False
    if keeps and not isinstance(plain.out, Tensor) and plain.outs:
        mix = [any(run.outs[i].requires_grad for run in runs if run.connected) for i in range(len(plain.outs))]
        if not all(mix):
            fact["differentiable_results"] = mix
    return fact


def _views(fn: Callable[..., Any], recipe: str, names: list[str], name: str, plain: _Run, runs: list[_Run]) -> Fact:
    if not plain.outs or any(plain.outs[0] is t for n, t in plain.operands if n in plain.mutated):
        return {}
    changes: list[Callable[[Tensor, int], Tensor]] = [_strided, _channels_last, _as(torch.float64)]
    changes.append(_as(torch.float64, everywhere=True))
    if name in DTYPES:
        changes += [_as(getattr(torch, d)) for d in DTYPES.values() if d]
    variants = [run for change in changes if (run := _try(fn, recipe, names, None, change=change)) is not None]
    shared = [run.shared for run in [plain, *runs, *variants]]
    owners = _unique(n for s in shared for n in s)
    if not owners:
        return {}
    fact: Fact = {"view_of": owners[0]}
    if name in MOVES or not all(owners[0] in s for s in shared):
        fact["maybe_view"] = True
    for run in runs:
        if not isinstance(run.out, Tensor) and run.outs and run.outs[0].requires_grad and len(run.outs) > 1:
            try:
                run.outs[0].mul_(2)
            except RuntimeError as error:
                if "multiple views" in str(error):
                    fact["multi_view"] = True
    return fact


def _cuts(fn: Callable[..., Any], recipe: str, names: list[str], name: str, plain: _Run, runs: list[_Run]) -> Fact:
    if not plain.operands:
        return {"factory": True} if plain.outs else {}
    self = plain.operands[0][1]
    values = plain.before[0][1]
    if not _may_require_grad(self):
        return {}
    if runs and runs[0].of == plain.operands[0][0] and not runs[0].operands[0][1].requires_grad:
        return {"detaches": True}
    if runs and any(run.connected for run in runs):
        return {}
    if not isinstance(plain.out, Tensor):
        if plain.outs or plain.out is None:
            return {}
        survives = _flat_numbers(plain.out) == _flat_numbers(values.tolist())
        shares = getattr(plain.out, "__array_interface__", {"data": [0]})["data"][0] == self.data_ptr()
        return {"detaches": survives} | ({"view_of": plain.operands[0][0]} if shares else {}) if survives else {}
    if _same(plain.out, values) and plain.out.dtype == values.dtype:
        if plain.shared:
            return {"detaches": True}
        return {} if plain.mutated else {"copies_out_of_graph": True}
    if any(_same(plain.out, copied) for _, copied in plain.before[1:]):
        return {"copies_out_of_graph": True}
    again = _try(fn, recipe, names, None, seed=1)
    if again is None or plain.mutated or plain.out.dtype != self.dtype or not isinstance(again.out, Tensor):
        return {}
    torch.manual_seed(0)
    independent = _Run(
        fn, recipe, names, None, change=lambda t, p: t**3 * 5 - 1 if p == 0 and _may_require_grad(t) else t
    )
    if "empty" in name or _same(plain.out, independent.out):
        return {"like": True}
    return {}


def _flat_numbers(value: Any) -> list[float]:
    if isinstance(value, bool):
        return []
    if isinstance(value, int | float):
        return [float(value)]
    if isinstance(value, list | tuple):
        return [n for item in value for n in _flat_numbers(item)]
    if type(value).__module__ == "numpy":
        return _flat_numbers(value.tolist())
    return []


def _takes_out(fn: Callable[..., Any], recipe: str, plain: _Run) -> bool:
    if not plain.outs:
        return False
    room = [torch.empty(0, dtype=t.dtype) for t in plain.outs]
    out = room[0] if isinstance(plain.out, Tensor) else tuple(room)
    run = _try(fn, recipe, ["input"], None, keywords={"out": out})
    return run is not None and bool(run.outs)


def _callable(space: str, name: str) -> Callable[..., Any] | None:
    if space == "method":
        attribute = inspect.getattr_static(torch.Tensor, name, None)
        if attribute is None:
            return None
        if name == "__iter__":
            return tuple
        if inspect.isdatadescriptor(attribute):
            return lambda self: getattr(self, name)
        return cast("Callable[..., Any]", getattr(torch.Tensor, name))
    holder: Any = F if space == "functional" else torch
    for part in name.split("."):
        holder = getattr(holder, part, None)
    return holder if callable(holder) and not inspect.isclass(holder) else None


def op_names() -> list[tuple[str, str]]:
    """Every op that is asked: Tensor's methods and some operators, torch.*, its submodules, functional."""
    names = [("method", n) for n in dir(torch.Tensor) if not n.startswith("_")]
    names += [("method", n) for n in RECIPES if n.startswith("__") and hasattr(torch.Tensor, n)]
    names += [("torch", n) for n in dir(torch) if not n.startswith("_")]
    for module in (torch.linalg, torch.special, torch.fft):
        short = module.__name__.removeprefix("torch.")
        names += [("torch", f"{short}.{n}") for n in dir(module) if not n.startswith("_")]
    names += [("functional", n) for n in dir(F) if not n.startswith("_")]
    return [(s, n) for s, n in sorted(set(names)) if not re.fullmatch(SKIP, n) and _callable(s, n)]


@_quietly()
def measure_op(space: str, name: str) -> Tables:
    """Measure one op: its plain form, and each other form whose facts differ."""
    fn = _callable(space, name)
    if fn is None:
        raise KeyError(name)
    tables: Tables = {}
    plain: Fact | None = None
    explicit = _explicit(space, name)
    for form, alternatives in _recipes(space, name):
        found = next((f for text in alternatives if (f := _attempt(space, name, fn, text))), None)
        if found is None:
            continue
        fact, signature = found
        if plain is None:
            plain = fact
            tables[space, name] = fact
        elif form and _substance(fact) != _substance(plain) and (explicit or _form_is_meant(form, signature)):
            tables[space, f"{name}({form})"] = fact
    return tables


def _attempt(space: str, name: str, fn: Callable[..., Any], text: str) -> tuple[Fact, _Signature] | None:
    try:
        return _facts(space, name, fn, text)
    except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
        return None


def _substance(fact: Fact) -> Fact:
    return {k: v for k, v in fact.items() if k != "operands"}


def _form_is_meant(form: str, signature: _Signature) -> bool:
    """Tell whether a guess that worked means what it says. x.logit(1) is no dim."""
    second = signature.names[1] if len(signature.names) > 1 else ""
    kind = signature.kinds[1] if len(signature.kinds) > 1 else ""
    if form == "dim":
        return second.startswith("dim")
    if form == "number":
        return kind == "number"
    return form == "other" and kind == "Tensor"


@_quietly()
def measure_ops() -> Tables:
    """Everything ops.toml holds."""
    tables: Tables = {}
    for space, name in op_names():
        tables |= measure_op(space, name)
    return tables | _alike(tables)


def _alike(tables: Tables) -> Tables:
    pairs = {(space, name): (space, like) for (space, name), like in ALIKE.items() if (space, like) in tables}
    return {place: tables[like] | {"measured": False} for place, like in pairs.items()}


# --- layers ----------------------------------------------------------------------------------------------


class _LayerCall:
    """Calls a layer whose parameters are operands too, so that `_Run` can ask for one gradient at a time."""

    def __init__(self, name: str, arguments: str, *, training: bool, inplace: bool) -> None:
        torch.manual_seed(0)
        args, kwargs = _build(arguments, 0)
        if inplace:
            kwargs["inplace"] = True
        self.layer: torch.nn.Module = getattr(torch.nn, name)(*args, **kwargs).train(training)
        self.parameters = dict(self.layer.named_parameters())
        self.buffers = dict(self.layer.named_buffers())

    def run(self, inputs: str, names: list[str], gradient: str | int) -> _Run:
        for name, parameter in self.parameters.items():
            parameter.requires_grad_(name == gradient)
        held = [*self.parameters.items(), *self.buffers.items()]
        versions = [(t._version, t.detach().clone()) for _, t in held]
        run = _Run(self.layer, inputs, names, gradient if isinstance(gradient, int) else None)
        run.operands += held
        run.before += versions
        if isinstance(gradient, str):
            run.leaf, run.of = self.parameters[gradient], gradient
        return run


@_quietly()
def measure_layer(name: str, arguments: str, inputs: str) -> Fact:
    """Measure one torch.nn class, in training and in eval mode."""
    name = name.split("(", maxsplit=1)[0]
    cls = getattr(torch.nn, name)
    forward = [p for p in inspect.signature(cls.forward).parameters.values() if p.name != "self"]
    names = [p.name for p in forward]
    fact: Fact = {}
    seen: dict[str, Fact] = {}
    for mode in ("training", "eval", "inplace"):
        inplace = mode == "inplace"
        if inplace and "inplace" not in inspect.signature(cls.__init__).parameters:
            continue
        call = _LayerCall(name, arguments, training=mode != "eval", inplace=inplace)
        plain = call.run(inputs, names, -1)
        runs: list[_Run] = []
        none: list[str] = []
        refuses: list[str] = []
        for gradient in [*range(len(plain.candidates)), *call.parameters]:
            call = _LayerCall(name, arguments, training=mode != "eval", inplace=inplace)
            try:
                run = call.run(inputs, names, gradient)
            except RuntimeError:  # "is not differentiable with respect to argument 'target'"
                refuses.append(plain.candidates[gradient] if isinstance(gradient, int) else gradient)
                continue
            if run.connected:
                runs.append(run)
            elif run.of:
                none.append(run.of)
        none += [n for n, t in plain.operands if n in names and not _may_require_grad(t)]
        seen[mode] = {
            "keeps": _keeps(runs),
            "view_of": _unique(n for run in [plain, *runs] for n in run.shared)[:1],
            "no_gradient": _unique(iter(none)),
            "refuses": refuses,
            "mutates": plain.mutated,
            "silent": plain.mutated_silently,
            "plain": plain,
            "call": call,
        }
    training, evaluated = seen["training"], seen["eval"]
    plain, call = training["plain"], training["call"]
    fact["parameters"] = list(call.parameters)
    if call.buffers:
        fact["buffers"] = list(call.buffers)
    fact["call"] = names
    fact |= _layer_returns(plain.out)
    if name.endswith(("Loss", "Loss2d")):
        fact["loss"] = True
    fact["keeps"] = training["keeps"]
    if evaluated["keeps"] != training["keeps"]:
        fact["keeps_eval"] = evaluated["keeps"]
    if training["no_gradient"]:
        fact["no_gradient"] = training["no_gradient"]
    if training["refuses"]:
        fact["refuses"] = training["refuses"]
    if not isinstance(plain.out, Tensor) and not all(t.requires_grad for t in call.run(inputs, names, 0).outs):
        fact["differentiable_results"] = [t.requires_grad for t in call.run(inputs, names, 0).outs]
    for measured, suffix in ((training, ""), (evaluated, "_eval")):
        if measured["view_of"]:
            fact[f"view_of{suffix}"] = measured["view_of"][0]
        if measured["mutates"]:
            fact[f"mutates{suffix}"] = measured["mutates"]
        if measured["silent"]:
            fact[f"mutates_silently{suffix}"] = measured["silent"]
    if "inplace" in seen:
        fact["inplace_argument"] = True
        fact["keeps_inplace"] = seen["inplace"]["keeps"]
    return fact


def _layer_returns(out: Any) -> Fact:
    if isinstance(out, Tensor):
        return {"returns": "tensor"}
    nested = [len(item) if isinstance(item, tuple | list) else 0 for item in out]
    fact: Fact = {"returns": "tuple", "arity": len(out)}
    if any(nested):
        fact["nested"] = nested
    return fact


@_quietly()
def measure_layers() -> Tables:
    """Everything layers.toml holds, its list of containers aside."""
    found: Tables = {}
    for name, (arguments, inputs) in LAYERS.items():
        if hasattr(torch.nn, name.split("(", maxsplit=1)[0]):
            found["layer", name] = measure_layer(name, arguments, inputs)
    return found | _alike(found)


def containers() -> list[str]:
    """torch.nn's containers: not probed, but a teller must know their names."""
    module = torch.nn.modules.container
    return sorted(n for n in module.__all__ if inspect.isclass(getattr(module, n, None)))


# --- writing ---------------------------------------------------------------------------------------------


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else f'"{name}"'


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    if not isinstance(value, dict):
        raise TypeError(value)
    return "{" + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + "}"


def render(tables: Tables, top: Fact) -> str:
    """TOML: one table per op or layer, sorted, one field a line."""
    lines = [HEADER, *(f"{key} = {_value(value)}\n" for key, value in top.items())]
    for (space, name), fact in sorted(tables.items()):
        lines.append(f"\n[{space}.{_key(name)}]\n")
        lines.extend(f"{key} = {_value(value)}\n" for key, value in fact.items())
    return "".join(lines)


def read(path: Path) -> Tables:
    """Read back what `render` wrote."""
    text = path.read_text(encoding="utf-8")
    return {
        (space, name): dict(table)
        for space, named in tomllib.loads(text).items()
        if isinstance(named, dict) and space != "containers"
        for name, table in named.items()
    }


def main() -> None:
    """Measure, and write both tables next to this file."""
    here = Path(__file__).parent
    version = torch.__version__.split("+")[0]
    ops, layers = measure_ops(), measure_layers()
    (here / "ops.toml").write_text(render(ops, {"torch_version": version}), encoding="utf-8")
    table = f"\n[containers]\nnames = {_value(containers())}\n"
    text = render(layers, {"torch_version": version}) + table
    (here / "layers.toml").write_text(text, encoding="utf-8")
    unprobed = sorted(f"{s}.{n}" for s, n in op_names() if (s, n) not in ops)
    print(f"torch {version}: {len(ops)} op tables, {len(layers)} layers; no recipe worked for {len(unprobed)}:")
    print(" ".join(unprobed), file=sys.stderr)


if __name__ == "__main__":
    main()
