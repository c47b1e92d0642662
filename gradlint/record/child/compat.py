"""The private parts of torch that the observers read, in one place, each with a check that it is there."""

from __future__ import annotations

from typing import Any

import torch
import torch.overrides

_modes: Any = torch.overrides
no_torch_function = torch._C.DisableTorchFunction


def missing() -> list[str]:
    """What this torch lacks of what is read here; the observers do without it, and the journal says so."""
    found: list[str] = []
    leaf = torch.ones(2, requires_grad=True)
    result = (leaf * leaf).exp()
    function: Any = result.grad_fn
    checks = {
        "Node._sequence_nr": function._sequence_nr,
        "Node.next_functions": lambda: function.next_functions[0][0],
        "Node._saved_*": lambda: dict(saved_tensors(function)).get("result"),
        "AccumulateGrad.variable": lambda: function.next_functions[0][0].next_functions[0][0].variable,
        "Tensor._version": lambda: leaf._version,
        "Tensor._base": lambda: leaf.view(2)._base,
        "UntypedStorage._cdata": lambda: leaf.untyped_storage()._cdata,
        "UntypedStorage._weak_ref": lambda: leaf.untyped_storage()._weak_ref(),
    }
    for name, check in checks.items():
        try:
            if check() is None:
                found.append(name)
        except Exception:  # noqa: BLE001 - whatever a future torch raises, the part is not there
            found.append(name)
    return found


def current_mode() -> Any:
    """The innermost function mode of this thread."""
    return _modes._get_current_function_mode()


def pop_mode() -> None:
    """Take the innermost function mode away."""
    _modes._pop_mode()


def push_mode(mode: Any) -> None:
    """Make a function mode the innermost one."""
    _modes._push_mode(mode)


def is_tracing() -> bool:
    """Whether `torch.jit.trace` is running a module to write down what it does."""
    state = getattr(torch._C, "_get_tracing_state", None)
    return state is not None and state() is not None


def transforms_active() -> bool:
    """Whether functorch is at work: its tensors have no storage and no version of their own."""
    active = getattr(torch._C, "_are_functorch_transforms_active", None)
    return bool(active()) if active is not None else False


def grad_fn(tensor: torch.Tensor) -> Any:
    """The node that made it; a view whose base was changed in a way that torch forbids has none to be asked for."""
    try:
        return tensor.grad_fn if tensor.requires_grad else None
    except RuntimeError:
        return None


def is_leaf(tensor: torch.Tensor) -> bool:
    """Whether it is a leaf; such a view does not say."""
    try:
        return tensor.is_leaf
    except RuntimeError:
        return False


def shape(tensor: torch.Tensor) -> list[int]:
    """Its sizes; those of a lazy layer's parameter are not known before it is filled."""
    try:
        return list(tensor.shape)
    except RuntimeError:
        return []


def is_observable(tensor: torch.Tensor) -> bool:
    """Whether the tensor has a storage and a version counter that may be read."""
    return not (tensor.is_inference() or tensor.layout is not torch.strided or tensor.is_meta)


class StorageNumbers:
    """Numbers storages.  A weak reference is held to each, so that no other storage gets its address meanwhile."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[int, Any]] = {}
        self.count = 0

    def number(self, tensor: torch.Tensor) -> int:
        """The number of the tensor's storage, 0 where it has none."""
        try:
            storage = tensor.untyped_storage()
            address = storage._cdata
            known = self.known.get(address)
            if known is not None:
                return known[0]
            weak = storage._weak_ref()
        except Exception:  # noqa: BLE001 - tensors of other libraries raise what they like
            return 0
        self.count += 1
        self.known[address] = self.count, weak
        return self.count

    def forget_dead(self) -> None:
        """Let go of the storages that are gone; their addresses may be given out again."""
        expired: Any = torch.UntypedStorage._expired
        free: Any = torch.UntypedStorage._free_weak_ref
        for address, (_, weak) in list(self.known.items()):
            if expired(weak):
                del self.known[address]
                free(weak)


_SAVED_NAMES: dict[type, tuple[str, ...]] = {}


def saved_tensors(function: Any) -> list[tuple[str, Any]]:
    """What a node kept for backward: names, and tensors that share the kept storage (None where it is hidden).

    No unpack hook is called and no version is checked.
    """
    kind = type(function)
    names = _SAVED_NAMES.get(kind)
    if names is None:
        names = _SAVED_NAMES[kind] = tuple(n for n in dir(function) if n.startswith("_raw_saved_"))
    found: list[tuple[str, Any]] = []
    for name in names:
        role = name[len("_raw_saved_") :]
        try:
            raw = getattr(function, name)
            raws = raw if isinstance(raw, (tuple, list)) else (raw,)
            found += [
                (role, data) for at, one in enumerate(raws) if (data := _read(function, role, at, one)) is not None
            ]
        except Exception:  # noqa: BLE001 - freed, or an optional operand that was not given
            continue
    return [(role, data if isinstance(data, torch.Tensor) else None) for role, data in found]


_HIDDEN = object()
_HAS_DATA = "data" in dir(torch._C._autograd.SavedTensor)
_hooks = 0


def count_hooks() -> None:
    """Know when tensors are packed by hooks, on a torch whose `SavedTensor` does not tell."""
    if _HAS_DATA:
        return
    hooks: Any = torch.autograd.graph.saved_tensors_hooks
    for name, by in (("__enter__", 1), ("__exit__", -1)):
        setattr(hooks, name, _counting(getattr(hooks, name), by))


def _counting(original: Any, by: int) -> Any:
    def count(self: Any, *arguments: Any) -> Any:
        global _hooks  # noqa: PLW0603 - hooks are a state of the thread, and so is their number
        _hooks += by
        return original(self, *arguments)

    return count


def _read(function: Any, role: str, at: int, saved: Any) -> Any:
    """A tensor that shares the kept storage; `_HIDDEN` where a hook has packed it, None where there is none."""
    if _HAS_DATA:
        return _HIDDEN if saved.unpack_hook is not None else saved.data
    if _hooks:
        return _HIDDEN
    # Right after the operation nothing has changed what was kept, so that unpacking it raises nothing.
    kept = getattr(function, "_saved_" + role)
    if isinstance(kept, (tuple, list)):
        return kept[at]
    return kept if isinstance(kept, torch.Tensor) else None


def is_accumulate(function: Any) -> bool:
    return type(function).__name__ == "AccumulateGrad"
