"""Observes torch: every call of the program into it, backward, optimizers, modules, gradient scalers.

Nothing here may change what the program does, or raise: whatever fails in an observer becomes a note.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from . import compat
from .journal import Journal
from .neutralise import Gradients, Neutraliser
from .places import Places, Site

_getframe = sys._getframe

SKIP, OPERATION, DATA, GRAD, SET_DATA, SET_GRAD, SET_REQUIRES_GRAD, GRAD_MODE, LEAVES, FREEZE = range(10)

# Asked of a tensor and answered without computing anything; and what is observed by other means.
_QUESTIONS = frozenset(
    """
    size dim ndimension numel nelement stride storage_offset element_size data_ptr get_device is_contiguous
    is_floating_point is_complex is_signed is_pinned is_same_size is_set_to is_inference is_nonzero is_coalesced
    storage untyped_storage storage_type __len__ __hash__ __repr__ __format__ __dir__ __contains__ __iter__
    has_names register_hook register_post_accumulate_grad_hook retain_grad sparse_dim dense_dim names dim_order
    backward grad is_shared share_memory_ __reduce_ex__ __deepcopy__ __setstate__ record_stream
    result_type can_cast promote_types is_tensor get_default_dtype broadcast_shapes manual_seed equal allclose
    _is_view _has_compatible_shallow_copy_type _record_function_enter_new
    """.split()  # noqa: SIM905 - a list of words reads best as words
)
# The calls that a fault which is left out of the run may be.
NEUTRALISED = frozenset({"detach", "detach_", "data", "item", "__float__", "_set_grad_enabled", "tensor", "as_tensor"})
_MOST_NODES = 400_000
# Bytes of the journal: some thousand steps of a small model, some hundred of a large one.
_MOST_WRITTEN = 256 << 20
# Elements of a tensor that is copied to see what a hidden write changes.
_MOST_COMPARED = 1 << 22
# How many times the wanted steps are taken, and for how many seconds, while a place that is asked about has not run.
_PATIENCE = 10
_PATIENCE_SECONDS = 60.0
# How many steps a gradient scaler may skip, and how many backwards may come where there is nothing to step.
_MOST_SKIPPED = 20
_MOST_WITHOUT_STEPS = 50
# How often the same is told between two backwards.
_MOST_REPEATED = 500

# A value that leaves torch: what Python makes of it has no graph.
_LEAVES = frozenset({"item", "tolist", "numpy", "__float__", "__int__", "__bool__", "__index__", "__array__"})


def guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    """An observer whose failure becomes a note."""

    @functools.wraps(function)
    def run(self: Observer, *arguments: Any, **keywords: Any) -> Any:
        try:
            return function(self, *arguments, **keywords)
        except Exception as error:  # noqa: BLE001 - the program must not see it
            self.fault(function.__name__, error)
            return None

    return run


class Observer:
    """Writes the journal of this process.  There is one."""

    def __init__(self, journal: Journal, places: Places, plan: dict[str, Any], finish: Callable[[str], None]) -> None:
        self.journal = journal
        self.places = places
        self.plan = plan
        self.finish = finish
        """Ends the process; called where the run has seen enough."""
        self.off = False
        self.full = False
        """The journal has grown so long that operations are no longer written down."""
        self.thread = threading.get_ident()
        self.kinds: dict[Any, tuple[int, str]] = {}
        self.tensors: dict[int, tuple[weakref.ref[torch.Tensor], int]] = {}
        self.tensor_count = 0
        self.modules: dict[int, tuple[weakref.ref[torch.nn.Module], int]] = {}
        self.objects: dict[int, tuple[Any, int]] = {}
        self.module_count = 0
        self.storages = compat.StorageNumbers()
        self.nodes: dict[tuple[int, str], int] = {}
        self.node_count = 0
        self.kept: set[int] = set()
        """The storages that some node kept, or that belong to a gradient or a parameter."""
        self.values: dict[int, tuple[Any, int]] = {}
        """Numbers and arrays that left torch, with the number of the event in which they did."""
        self.left = 0
        self.faults = 0
        self.forwards: list[tuple[int, tuple[int, int] | None]] = []
        """The modules whose forward is running, each with the place of its call, where that was told."""
        self.stepping = 0
        self.stepping_depth = 0
        self.closures = 0
        self.function_mode: Mode | None = None
        self.neutral: Neutraliser | None = None
        self.gradients: Gradients | None = None
        self.suspended = False
        self.backwards = 0
        self.backward_depth = 0
        self.clearing = 0
        self.scheduler_begins = 0
        self.quiet = 0
        self.scaling: list[int] = []
        self.steps: dict[int, int] = {}
        """Steps per optimizer that has ever stepped, by its number."""
        self.alive: list[weakref.ref[Any]] = []
        self.by_hand = 0
        """Steps without an optimizer: backwards after which a leaf was changed in place."""
        self.changed_by_hand: tuple[int, int] | None = None
        """Where that was, since the last backward."""
        self.leaf_storages: set[int] = set()
        """The storages of leaves whose `.data` the program has asked for."""
        self.scaled: tuple[weakref.ref[torch.Tensor], torch.Tensor] | None = None
        """What a gradient scaler made last, and of what."""
        self.plain_backwards = 0
        """Those that leave gradients in leaves, as `torch.autograd.grad` does not."""
        self.skipped = 0
        self.repeated: dict[tuple[int, int, int], int] = {}
        """How often each place was told since the last backward, for operations with a graph: by the number of the
        site, and where it calls torch."""
        self.untold = False
        """Some operation with a graph was not told."""
        self.called_since: dict[int, int] = {}
        """How often each module was called since the last backward."""
        self.since: dict[int, int] = {}
        """How often each place was told since the last backward, for operations without gradient."""
        self.outermost: dict[int, weakref.ref[torch.nn.Module]] = {}
        """The modules that the program itself calls."""
        self.quiet_modes = 0
        self.quiet_states = 0
        self.asked: set[int] = set()
        """The flags in files that were loaded."""
        self.reached_at: dict[int, int] = {}
        """Per flag, how many steps had been taken when it was first reached."""
        self.aliases: dict[int, weakref.ref[torch.Tensor]] = {}
        """What `.data` gave, by `id`: what is written there is seen by no version counter."""
        self.earlier: torch.Tensor | None = None
        """The values of such an alias before it is written."""
        self.held: list[Any] = []
        """The iterators that were told, so that their addresses stay theirs."""
        self.versions_before: list[tuple[torch.Tensor, int]] = []
        self.waiting_since = 0.0
        """When the wanted steps were taken, and some place had not run."""

    # -- the mode

    def suspend(self) -> None:
        """Take the mode away while code runs that calls torch a thousand times and is told as one event."""
        mode = self.function_mode
        if mode is not None and not self.suspended and compat.current_mode() is mode:
            compat.pop_mode()
            self.suspended = True

    def resume(self) -> None:
        if self.suspended:
            compat.push_mode(self.function_mode)
            self.suspended = False

    # -- processes

    def forked(self) -> None:
        """This process is a fork of the one that was observed until now."""
        self.thread = threading.get_ident()

    # -- numbers

    def fault(self, where: str, error: BaseException) -> None:
        self.faults += 1
        if self.faults <= 20:
            self.journal.add("note", f"observer {where}: {type(error).__name__}: {error}")

    def tensor(self, tensor: torch.Tensor) -> int:
        key = id(tensor)
        known = self.tensors.get(key)
        if known is not None and known[0]() is tensor:
            return known[1]
        self.tensor_count += 1
        number = self.tensor_count
        self.tensors[key] = weakref.ref(tensor), number
        base = tensor._base
        self.journal.add(
            "tensor",
            number,
            self.storages.number(tensor),
            self.tensor(base) if base is not None else 0,
            isinstance(tensor, torch.nn.Parameter),
            compat.shape(tensor),
        )
        return number

    def knows(self, tensor: torch.Tensor) -> bool:
        known = self.tensors.get(id(tensor))
        return known is not None and known[0]() is tensor

    def state(self, tensor: torch.Tensor) -> tuple[int, bool, int, int]:
        """The tensor as it is now: its number, requires_grad, the number of its node, its version."""
        number = self.tensor(tensor)
        function = compat.grad_fn(tensor)
        return number, tensor.requires_grad, self.node(function) if function is not None else 0, tensor._version

    def module(self, module: torch.nn.Module) -> int:
        key = id(module)
        known = self.modules.get(key)
        if known is not None and known[0]() is module:
            return known[1]
        self.module_count += 1
        number = self.module_count
        self.modules[key] = weakref.ref(module), number
        cls = type(module)
        self.journal.add("module", number, cls.__name__, cls.__module__.partition(".")[0] == "torch")
        return number

    def thing(self, value: Any) -> int:
        """The number of an optimizer, a scaler or a scheduler, which is held."""
        known = self.objects.get(id(value))
        if known is None:
            known = self.objects[id(value)] = value, len(self.objects) + 1
        return known[1]

    def owner(self, value: Any) -> int:
        return self.module(value) if isinstance(value, torch.nn.Module) else 0

    # -- the graph

    def node(self, function: Any) -> int:
        """The number of the operation that made a tensor with this `grad_fn`."""
        if compat.is_accumulate(function):
            return 0
        number = self.nodes.get((function._sequence_nr(), function.name()))
        return number if number is not None else self.new_node(function, {})

    def new_node(self, function: Any, versions: dict[int, int]) -> int:
        """Tell an operation: what it depends on, and what it and the nodes inside it kept for backward."""
        self.node_count += 1
        number = self.node_count
        edges: list[tuple[str, int]] = []
        saved: list[tuple[str, int, int]] = []
        inside: set[tuple[int, str]] = set()
        name = function.name()
        first = function._sequence_nr(), name
        self.nodes[first] = number
        inside.add(first)
        todo = [function]
        seen_edges: set[tuple[str, int]] = set()
        while todo:
            at = todo.pop()
            for role, data in compat.saved_tensors(at):
                if data is None:
                    saved.append((role, 0, 0))
                    continue
                storage = self.storages.number(data)
                self.kept.add(storage)
                saved.append((role, storage, versions.get(storage, data._version)))
            for following, _ in at.next_functions:
                if following is None:
                    continue
                if compat.is_accumulate(following):
                    edge = "leaf", self.tensor(following.variable)
                else:
                    key = following._sequence_nr(), following.name()
                    if key in inside:
                        continue
                    known = self.nodes.get(key)
                    if known is None:
                        self.nodes[key] = number
                        inside.add(key)
                        todo.append(following)
                        continue
                    edge = "node", known
                if edge not in seen_edges:
                    seen_edges.add(edge)
                    edges.append(edge)
        self.journal.add("node", number, name, edges, saved)
        return number

    # -- places

    def here(self, skip: object = None) -> Site | None:
        return self.places.here(_getframe(1), skip)

    def at(self, site: Site | None) -> tuple[int, int]:
        return (site.number if site is not None else 0), self.places.call_number()

    # -- operations

    def classify(self, function: Any) -> tuple[int, str]:
        name = getattr(function, "__name__", "")
        if name in ("__get__", "__set__", "__delete__"):
            attribute = getattr(getattr(function, "__self__", None), "__name__", "")
            if name == "__get__":
                kind = {"data": DATA, "grad": GRAD, "T": OPERATION, "mT": OPERATION, "H": OPERATION}.get(
                    attribute, SKIP
                )
                if attribute in ("real", "imag", "mH"):
                    kind = OPERATION
            else:
                kind = {"data": SET_DATA, "grad": SET_GRAD, "requires_grad": SET_REQUIRES_GRAD}.get(attribute, SKIP)
            return kind, attribute
        if name == "_set_grad_enabled":
            return GRAD_MODE, name
        if name == "requires_grad_":
            return FREEZE, name
        if name in _LEAVES:
            return LEAVES, name
        if name in _QUESTIONS or not name or "." in name:
            return SKIP, name
        return OPERATION, name

    def call(self, function: Any, types: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Run a call of the program into torch, and tell it."""
        kind = self.kinds.get(function)
        if kind is None:
            kind = self.kinds[function] = self.classify(function)
        if self.neutral is not None and kind[1] in NEUTRALISED and not self.off and not self.quiet:
            instead = self.neutralised(kind[1], arguments)
            if instead is not NotImplemented:
                return instead
        if (
            kind[0] == SKIP
            or self.off
            or self.full
            or self.stepping
            or self.backward_depth
            or self.clearing
            or self.quiet
        ):
            return function(*arguments, **keywords)
        before: Any = None
        try:
            # A subclass has its own ideas of what an operation is.
            plain = all(t is torch.nn.Parameter or t is torch.Tensor for t in types)
            if plain and not compat.transforms_active():
                before = self.before(kind, arguments, keywords)
        except Exception as error:  # noqa: BLE001 - the program must not see it
            self.fault(f"before {kind[1]}", error)
        if before is None:
            return function(*arguments, **keywords)
        try:
            result = function(*arguments, **keywords)
        except Exception as error:
            self.raised(kind, before, error)
            raise
        try:
            self.after(kind, before, arguments, keywords, result)
        except Exception as error:  # noqa: BLE001 - the program must not see it
            self.fault(f"after {kind[1]}", error)
        return result

    def neutralised(self, name: str, arguments: tuple[Any, ...]) -> Any:
        """What a call gives where its fault is left out of this run."""
        site = self.here()
        if self.neutral is None or site is None or not self.neutral.is_here(site.path, site.position):
            return NotImplemented
        return self.neutral.instead(name, arguments)

    def before(self, kind: tuple[int, str], arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        inputs = tensors_in(arguments)
        if keywords:
            tensors_in(tuple(keywords.values()), inputs)
        if kind[0] == GRAD_MODE:
            return inputs, torch.is_grad_enabled()
        known: list[Any] = []
        nodes = self.node_count
        for tensor in inputs:
            if not compat.is_observable(tensor):
                known.append(None)
            elif tensor.requires_grad or self.knows(tensor):
                known.append(self.state(tensor))
            else:
                known.append(tensor._version)
        if self.untold and nodes != self.node_count:
            # They belong to operations that were not told, not to this one.
            self.journal.add("untold")
        alias = self.aliases.get(id(inputs[0])) if inputs else None
        hidden = alias is not None and alias() is inputs[0] and _writes(kind[1])
        small = hidden and inputs[0].numel() <= _MOST_COMPARED
        self.earlier = inputs[0].detach().clone() if small else None
        return inputs, known

    def after(
        self, kind: tuple[int, str], before: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], result: Any
    ) -> None:
        what, name = kind
        inputs, known = before
        if what == OPERATION:
            self.operation(name, inputs, known, arguments, keywords, result)
        elif what == DATA:
            if isinstance(known[0], tuple) and isinstance(result, torch.Tensor):
                site = self.here()
                storage = self.storages.number(result)
                self.kept.add(storage)
                if known[0][1] and not known[0][2]:
                    self.leaf_storages.add(storage)
                self.journal.add("data", *self.at(site), known[0], self.state(result))
                self.aliases[id(result)] = weakref.ref(result)
        elif what == GRAD:
            there = isinstance(result, torch.Tensor) and isinstance(known[0], tuple)
            if there and (not self.knows(result) or result.requires_grad):
                self.gradient(known[0][0], result)
        elif what == LEAVES:
            if known and isinstance(known[0], tuple):
                self.leaves_torch(name, known[0], result)
        elif what == GRAD_MODE:
            now = torch.is_grad_enabled()
            site = self.here()
            self.journal.add("grad_mode", *self.at(site), now, self.places.via, known)
        elif what in (FREEZE, SET_REQUIRES_GRAD):
            if known[0] is not None:
                site = self.here()
                self.journal.add("froze", *self.at(site), self.state(inputs[0]), self.was(known[0]))
                if self.backwards and not self.was(known[0]) and self.is_weight(inputs[0]):
                    # `w = (w - lr * w.grad).detach().requires_grad_()`: a new leaf in place of the old one.
                    self.changed_by_hand = self.at(site)
        elif what == SET_DATA:
            site = self.here()
            value = inputs[1] if len(inputs) > 1 else None
            # The storage is another one now.
            storage = self.storages.number(inputs[0])
            self.kept.add(storage)
            self.journal.add(
                "set_data",
                *self.at(site),
                self.state(inputs[0]),
                self.state(value) if value is not None else None,
                storage,
            )
        elif what == SET_GRAD:
            site = self.here()
            value = arguments[1] if len(arguments) > 1 else None
            if isinstance(value, torch.Tensor):
                self.journal.add("set_grad", *self.at(site), self.tensor(inputs[0]), self.state(value))
            else:
                self.journal.add("cleared", *self.at(site), [self.tensor(inputs[0])], 0, False)

    @staticmethod
    def was(known: Any) -> bool | None:
        return known[1] if isinstance(known, tuple) else None

    def gradient(self, parameter: int, gradient: torch.Tensor) -> None:
        storage = self.storages.number(gradient)
        self.kept.add(storage)
        self.journal.add("gradient", self.tensor(gradient), parameter, storage)

    def leaves_torch(self, name: str, source: Any, result: Any) -> None:
        site = self.here()
        self.left += 1
        self.journal.add("leaves", *self.at(site), name, source, self.left)
        if name == "tolist" and isinstance(result, list):
            self.values[id(result)] = result, self.left
            for inner in result[:256]:
                self.values[id(inner)] = inner, self.left
        elif isinstance(result, float) or (not isinstance(result, (bool, int, str)) and result is not None):
            self.values[id(result)] = result, self.left
        if len(self.values) > 4096:
            for key in list(self.values)[:2048]:
                del self.values[key]

    def came_back(self, arguments: tuple[Any, ...]) -> list[int]:
        """The events in which the plain values among the arguments left torch."""
        found: list[int] = []
        for value in arguments:
            if isinstance(value, (list, tuple)):
                for inner in value[:64]:
                    known = self.values.get(id(inner))
                    if known is not None and known[0] is inner:
                        found.append(known[1])
            known = self.values.get(id(value))
            if known is not None and known[0] is value:
                found.append(known[1])
        return found

    def operation(
        self,
        name: str,
        inputs: list[torch.Tensor],
        known: list[Any],
        arguments: tuple[Any, ...],
        keywords: dict[str, Any],
        result: Any,
    ) -> None:
        outputs = [t for t in tensors_in((result,)) if compat.is_observable(t)]
        back = self.came_back((*arguments, *keywords.values())) if self.values else []
        graph = any(t.requires_grad for t in outputs)
        related = graph or bool(back) or any(type(k) is tuple for k in known)
        mutated: list[tuple[int, int]] = []
        for at, tensor in enumerate(inputs):
            was = known[at]
            if was is None:
                continue
            version = was[3] if type(was) is tuple else was
            if tensor._version != version:
                if type(was) is tuple or self.storages.number(tensor) in self.kept:
                    related = True
                mutated.append((at, tensor._version))
        frame = _getframe(4)
        direct = self.places.code_of(frame.f_code)
        dropped = direct is not None and self.places.site(direct, frame.f_lasti).dropped
        if not related and not (dropped and inputs):
            return
        site = self.places.here(frame)
        if direct is None and site is not None and self.places.via == name:
            dropped = site.dropped
        if not graph and not mutated and not dropped and site is not None:
            # An evaluation loop says the same thing again and again.
            count = self.since[site.number] = self.since.get(site.number, 0) + 1
            if count > 200:
                return
        if graph and not mutated and site is not None:
            # So does a rollout, of which a later backward may still go through some part.
            where = site.number, id(frame.f_code), frame.f_lasti
            count = self.repeated[where] = self.repeated.get(where, 0) + 1
            if count > _MOST_REPEATED:
                self.untold = True
                return
        via = self.places.via
        if via in ("__init__", "reset_parameters") and not graph:
            return
        states = [k if type(k) is tuple else self.first_state(inputs[i], k) for i, k in enumerate(known)]
        versions: dict[int, int] = {}
        results = []
        for tensor in outputs:
            function = compat.grad_fn(tensor)
            if function is not None and not compat.is_accumulate(function):
                key = function._sequence_nr(), function.name()
                if key not in self.nodes:
                    if not versions:
                        versions = self.versions(inputs, outputs)
                    self.new_node(function, versions)
            results.append(self.state(tensor))
        if mutated and self.backwards and any(self.is_weight(inputs[at]) for at, _ in mutated):
            self.changed_by_hand = self.at(site)
        extra: dict[str, Any] = {}
        if back:
            extra["back"] = back
        if self.earlier is not None and mutated:
            now, self.earlier = self.earlier, None
            extra["changed"] = int((now != inputs[0]).sum()), now.numel()
        if mutated:
            # The base of a changed view has a new node too.
            extra["now"] = [self.state(inputs[at]) for at, _ in mutated]
        self.journal.add(
            "op",
            *self.at(site),
            name,
            via,
            torch.is_grad_enabled(),
            states,
            results,
            mutated,
            dropped,
            extra,
        )

    def is_weight(self, tensor: torch.Tensor) -> bool:
        """Whether it is a leaf that gets gradients, or its data."""
        if tensor.requires_grad:
            return compat.is_leaf(tensor)
        return bool(self.leaf_storages) and self.storages.number(tensor) in self.leaf_storages

    def first_state(self, tensor: torch.Tensor, version: int | None) -> Any:
        if version is None:
            return None
        number = self.tensor(tensor)
        return number, False, 0, version

    def versions(self, inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> dict[int, int]:
        found: dict[int, int] = {}
        for tensor in (*inputs, *outputs):
            if compat.is_observable(tensor):
                found[self.storages.number(tensor)] = tensor._version
        return found

    @guarded
    def raised(self, kind: tuple[int, str], before: Any, error: Exception) -> None:
        _, known = before
        site = self.here()
        states = [k for k in known if type(k) is tuple] if isinstance(known, list) else []
        self.journal.add(
            "raised", *self.at(site), kind[1], states, type(error).__name__, str(error)[:2000], torch.is_grad_enabled()
        )
        self.journal.flush()

    # -- backward

    def run_backward(
        self,
        run: Callable[[], Any],
        roots: list[Any],
        retain: bool | None,
        create: bool,
        wanted: Any,
        grad_of: Any,
    ) -> Any:
        if self.off or threading.get_ident() != self.thread or compat.transforms_active():
            return run()
        self.enter_backward(roots, retain, create, wanted, grad_of)
        self.backward_depth += 1
        try:
            result = run()
        except Exception as error:
            self.backward_raised(error)
            raise
        finally:
            self.backward_depth -= 1
        self.leave_backward(roots, result, grad_of)
        return result

    @guarded
    def enter_backward(self, roots: list[Any], retain: Any, create: bool, wanted: Any, grad_of: Any) -> None:
        with compat.no_torch_function():
            site = self.here()
            if self.neutral is not None and site is not None and self.neutral.is_here(site.path, site.position):
                self.neutral.before_backward([o for weak in self.alive if (o := weak()) is not None])
            if self.stepping_depth and not self.closures:
                # A step that raised never said that it was over.
                self.stepping_depth = self.stepping = 0
                self.resume()
            counts = grad_of is None or not self.plain_backwards
            if self.backward_depth == 0:
                if counts and self.changed_by_hand is not None:
                    self.by_hand += 1
                    self.journal.add("by_hand", *self.changed_by_hand)
                    self.changed_by_hand = None
                self.backwards += 1
                self.plain_backwards += grad_of is None
                self.since.clear()
                self.repeated.clear()
                self.tell_calls()
            states = [self.state(t) for t in roots if isinstance(t, torch.Tensor)]
            names = None
            if grad_of is not None:
                names = [self.tensor(t) for t in tensors_in((grad_of,))]
            elif wanted is not None:
                names = [self.tensor(t) for t in tensors_in((wanted,))]
            loss = None
            if len(roots) == 1 and isinstance(roots[0], torch.Tensor) and roots[0].numel() == 1:
                of = self.scaled
                root = of[1] if of is not None and of[0]() is roots[0] else roots[0]
                loss = float(root.detach())
            self.journal.add(
                "backward",
                *self.at(site),
                states,
                retain,
                create,
                names,
                grad_of is not None,
                self.backward_depth,
                loss,
            )
            if counts:
                self.journal.release()
            self.journal.flush()
            if self.backward_depth == 0 and counts and self.enough():
                self.finish("steps")

    @guarded
    def backward_raised(self, error: Exception) -> None:
        with compat.no_torch_function():
            self.journal.add("backward_raised", type(error).__name__, str(error)[:2000])
            self.gradients_of(self.outermost_parameters(), 0)
        self.journal.flush()

    @guarded
    def leave_backward(self, roots: list[Any], result: Any, grad_of: Any) -> None:
        with compat.no_torch_function():
            if grad_of is None:
                self.journal.add("backward_done")
                if not self.steps and not self.backward_depth and not any(r() is not None for r in self.alive):
                    self.gradients_of(self.outermost_parameters(), 0)
                return
            grads = [t for t in tensors_in((result,)) if isinstance(t, torch.Tensor)]
            states = []
            for gradient in grads:
                self.kept.add(self.storages.number(gradient))
                states.append(self.state(gradient))
            self.journal.add("grads", states)

    def enough(self) -> bool:
        """Whether every optimizer that is alive has stepped often enough."""
        wanted = int(self.plan.get("steps", 2))
        total = sum(self.steps.values())
        if self.skipped >= _MOST_SKIPPED + wanted:
            return True
        waiting = [o for o in (r() for r in self.alive) if o is not None]
        if not self.steps and not self.by_hand and not waiting and self.backwards > _MOST_WITHOUT_STEPS:
            return True
        done = self.progress()
        if self.reached_at and done - max(self.reached_at.values()) < wanted:
            return False
        if self.unreached() and self.patient(done, wanted):
            return False
        if not self.steps:
            # While there is an optimizer that has not stepped, what was changed by hand may have been something else.
            return self.by_hand >= (_MOST_WITHOUT_STEPS * wanted if waiting else wanted)
        stepped = [n for n in self.steps.values() if n > 0]
        resting = [o for o in waiting if not self.steps.get(self.thing(o))]
        if resting and total < 4 * wanted:
            return False
        return min(stepped) >= wanted or total >= 4 * wanted * max(1, len(stepped))

    def progress(self) -> int:
        """How many steps have been taken."""
        by_optimizers = bool(self.steps) or any(r() is not None for r in self.alive)
        return sum(self.steps.values()) if by_optimizers else self.by_hand

    def patient(self, steps: int, wanted: int) -> bool:
        if steps < wanted:
            return True
        self.waiting_since = self.waiting_since or time.monotonic()
        return steps < wanted * _PATIENCE and time.monotonic() - self.waiting_since < _PATIENCE_SECONDS

    def unreached(self) -> bool:
        """Whether a place that somebody asks about, in a file that was loaded, has not run yet."""
        return any(number not in self.reached_at for number in self.asked)

    # -- optimizers

    @guarded
    def built(self, optimizer: Any, group: Any) -> None:
        with compat.no_torch_function():
            site = self.here(skip=optimizer)
            number = self.thing(optimizer)
            if not any(r() is optimizer for r in self.alive):
                self.alive.append(weakref.ref(optimizer))
            parameters = group.get("params") if isinstance(group, dict) else None
            parameters = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters or ())
            states = [self.state(t) for t in parameters if isinstance(t, torch.Tensor)]
            self.journal.add("group", *self.at(site), number, type(optimizer).__name__, states)

    @guarded
    def before_step(self, optimizer: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        if self.off or threading.get_ident() != self.thread:
            return None
        self.stepping_depth += 1
        if self.stepping_depth > 1:
            return None
        step = getattr(inspect.unwrap(type(optimizer).step), "__code__", None)
        own = step is not None and self.places.own_file(step.co_filename)
        # What an optimizer of the program does is part of the program.
        self.stepping = 0 if own else 1
        if not own:
            self.suspend()
        closure = next((a for a in (*arguments[1:2], keywords.get("closure")) if callable(a)), None)
        with compat.no_torch_function():
            if closure is None:
                self.gradients_now(optimizer)
            self.versions_before = [(p, p._version) for p in parameters_of(optimizer) if compat.is_observable(p)]
        if closure is None:
            return None

        @functools.wraps(closure)
        def run(*a: Any, **k: Any) -> Any:
            depth, self.stepping = self.stepping, 0
            self.resume()
            self.closures += 1
            try:
                return closure(*a, **k)
            finally:
                self.closures -= 1
                self.stepping = depth
                if depth:
                    self.suspend()

        if "closure" in keywords:
            return arguments, {**keywords, "closure": run}
        return (arguments[0], run, *arguments[2:]), keywords

    @guarded
    def after_step(self, optimizer: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        if self.off or threading.get_ident() != self.thread:
            return
        self.stepping_depth = max(0, self.stepping_depth - 1)
        if self.stepping_depth:
            return
        self.stepping = 0
        self.resume()
        with compat.no_torch_function():
            closure = any(callable(a) for a in (*arguments[1:2], keywords.get("closure")))
            if closure:
                self.gradients_now(optimizer)
            site = self.here()
            number = self.thing(optimizer)
            changed = [(self.tensor(p), p._version) for p, version in self.versions_before if p._version != version]
            self.steps[number] = self.steps.get(number, 0) + 1
            if self.neutral is not None:
                self.neutral.stepped = True
            self.journal.add(
                "step",
                *self.at(site),
                number,
                type(optimizer).__name__,
                closure,
                self.scaling[-1] if self.scaling else 0,
                [self.tensor(p) for p in parameters_of(optimizer)],
                changed,
                memory(),
            )
            self.storages.forget_dead()
            if len(self.nodes) > _MOST_NODES:
                # The graphs of early steps are gone; where one is not, it is told again as a whole.
                self.nodes = dict(list(self.nodes.items())[-_MOST_NODES // 2 :])
            if self.journal.written > _MOST_WRITTEN and not self.full:
                self.full = True
                self.journal.add("note", "the run is long: operations are no longer written down, gradients still are")
            self.journal.release()
            self.journal.flush()

    def gradients_now(self, optimizer: Any) -> None:
        """What each parameter's gradient is right before the step that uses it."""
        own = parameters_of(optimizer)
        number = self.thing(optimizer)
        step = self.steps.get(number, 0)
        if self.gradients is not None:
            rows = self.gradients.see(number, step, own)
            named = [(self.tensor(own[at]), *numbers) for at, *numbers in rows]
            if named:
                self.journal.add("compared", number, step, named)
        if step % max(1, int(self.plan.get("every", 1))):
            return
        self.gradients_of(own, number)
        held = {id(p) for weak in self.alive if (o := weak()) is not None for p in parameters_of(o)}
        others = [p for p in self.outermost_parameters() if id(p) not in held]
        if others:
            self.gradients_of(others, 0)

    def outermost_parameters(self) -> list[torch.Tensor]:
        """The parameters of the modules that the program itself calls, each once."""
        modules = (weak() for weak in self.outermost.values())
        return list({id(p): p for m in modules if m is not None for p in m.parameters()}.values())

    def gradients_of(self, parameters: list[torch.Tensor], optimizer: int) -> None:
        given = [(p, p.grad) for p in parameters if p.grad is not None]
        norms = {id(p): norm for (p, _), norm in zip(given, norms_of([g for _, g in given]), strict=True)}
        rows: list[Any] = []
        for parameter in parameters:
            if id(parameter) not in norms:
                rows.append((self.tensor(parameter), parameter.requires_grad, None))
            elif (norm := norms[id(parameter)]) is not None:
                rows.append((self.tensor(parameter), parameter.requires_grad, _plain(norm)))
        self.journal.add("gradients", optimizer, rows)

    @guarded
    def cleared(self, parameters: list[torch.Tensor], optimizer: Any) -> None:
        with compat.no_torch_function():
            site = self.here()
            in_place = any(p.grad is not None for p in parameters)
            number = self.thing(optimizer) if optimizer is not None else 0
            self.journal.add("cleared", *self.at(site), [self.tensor(p) for p in parameters], number, in_place)

    @guarded
    def clipped(self, parameters: Any, by: str) -> None:
        with compat.no_torch_function():
            site = self.here()
            self.journal.add("clipped", *self.at(site), [self.tensor(t) for t in parameters], by)

    @guarded
    def scaler(self, scaler: Any, call: str, optimizer: Any) -> None:
        with compat.no_torch_function():
            site = self.here()
            number = self.thing(optimizer) if optimizer is not None else 0
            self.journal.add("scaler", *self.at(site), self.thing(scaler), call, number)

    @guarded
    def scales(self, outputs: Any, result: Any) -> None:
        """The loss is what went into the scaler."""
        with compat.no_torch_function():
            if isinstance(result, torch.Tensor) and isinstance(outputs, torch.Tensor) and result is not outputs:
                self.scaled = weakref.ref(result), outputs.detach()

    @guarded
    def scheduled(self, scheduler: Any) -> None:
        with compat.no_torch_function():
            site = self.here(skip=scheduler)
            optimizer = getattr(scheduler, "optimizer", None)
            self.journal.add("scheduler", *self.at(site), self.thing(optimizer) if optimizer is not None else 0)

    # -- modules

    @guarded
    def constructed(self, module: torch.nn.Module) -> None:
        with compat.no_torch_function():
            site = self.here(skip=module)
            self.journal.add("constructed", *self.at(site), self.module(module))

    @guarded
    def attribute(self, module: torch.nn.Module, name: str, value: Any, replaced: Any) -> None:
        with compat.no_torch_function():
            if name.startswith("_") and not isinstance(value, (torch.Tensor, torch.nn.Module)):
                return
            shown, old = self.shown(value), self.shown(replaced)
            if type(value) in (list, dict) and not value:
                # It may be filled later.
                shown = type(value).__name__, []
            frozen = name == "requires_grad" and isinstance(value, bool) and not hasattr(type(module), name)
            if shown is None and old is None and not frozen:
                return
            site = self.here()
            if shown is None and frozen:
                shown = ("bool", value)
            self.journal.add("attribute", *self.at(site), self.module(module), name, shown, old)

    def shown(self, value: Any, depth: int = 3) -> Any:
        """Modules and tensors by number, plain containers of them opened; None for all else."""
        if isinstance(value, torch.Tensor):
            return ("tensor", *self.state(value)) if compat.is_observable(value) else None
        if isinstance(value, torch.nn.Module):
            return "module", self.module(value)
        if depth and type(value) in (list, tuple) and value:
            items = [self.shown(v, depth - 1) for v in value[:200]]
            return (type(value).__name__, items) if any(i is not None for i in items) else None
        if depth and type(value) is dict and value:
            pairs = [(str(k), self.shown(v, depth - 1)) for k, v in list(value.items())[:200]]
            return ("dict", pairs) if any(v is not None for _, v in pairs) else None
        return None

    @guarded
    def registered(self, module: torch.nn.Module, name: str, value: Any, what: str) -> None:
        with compat.no_torch_function():
            if isinstance(value, torch.Tensor) and compat.is_observable(value):
                known = self.knows(value)
                number = self.tensor(value)
                self.kept.add(self.storages.number(value))
                site = self.here(skip=module)
                self.journal.add("registered", *self.at(site), self.module(module), name, what, number, not known)
            elif isinstance(value, torch.nn.Module):
                self.journal.add("registered", 0, 0, self.module(module), name, "module", self.module(value), False)

    @guarded
    def made_parameter(self, parameter: torch.nn.Parameter) -> None:
        with compat.no_torch_function():
            site = self.here()
            if site is not None and self.places.via in ("", "__new__"):
                self.kept.add(self.storages.number(parameter))
                self.journal.add("made", *self.at(site), self.state(parameter))

    @guarded
    def variable(self, given: Any, made: Any) -> None:
        """`Variable(x)` is `x` outside its graph."""
        with compat.no_torch_function():
            if not self.off and isinstance(given, torch.Tensor) and isinstance(made, torch.Tensor):
                site = self.here()
                self.journal.add("variable", *self.at(site), self.state(given), self.state(made))

    @guarded
    def called(self, module: torch.nn.Module, arguments: tuple[Any, ...]) -> None:
        if self.off or threading.get_ident() != self.thread or self.backward_depth or compat.is_tracing():
            return
        with compat.no_torch_function():
            number = self.module(module)
            count = self.called_since[number] = self.called_since.get(number, 0) + 1
            if count > _MOST_REPEATED:
                self.forwards.append((number, None))
                return
            site = self.here()
            known = [self.tensor(t) for t in tensors_in(arguments)[:32] if compat.is_observable(t)]
            if not self.forwards and number not in self.outermost:
                self.outermost[number] = weakref.ref(module)
                self.tree(module)
                if isinstance(module, torch.nn.parallel.DistributedDataParallel):
                    self.journal.add("ddp", number, module.find_unused_parameters, module.static_graph)
            at = self.at(site)
            self.forwards.append((number, at))
            self.journal.add("called", *at, number, known, module.training)

    @guarded
    def returned(self, module: torch.nn.Module, arguments: tuple[Any, ...], result: Any) -> None:
        if self.off or threading.get_ident() != self.thread or self.backward_depth or compat.is_tracing():
            return
        with compat.no_torch_function():
            number = self.module(module)
            at: tuple[int, int] | None = (0, 0)
            while self.forwards:
                inner, at = self.forwards.pop()
                if inner == number:
                    break
            if at is None:
                return
            outputs: list[Any] = []
            places_in(result, "", outputs, 3)
            states = [(place, self.state(t)) for place, t in outputs[:64] if compat.is_observable(t)]
            self.journal.add("returned", *at, number, states)

    def end(self) -> None:
        """What is written down last."""
        self.tell_calls()
        self.trees()
        self.save()

    @guarded
    def save(self) -> None:
        with compat.no_torch_function():
            if self.gradients is not None:
                self.gradients.save()
            if self.neutral is not None:
                self.journal.add("neutralised", self.neutral.times)

    def tell_calls(self) -> None:
        """The calls of modules that were counted only."""
        for number, count in self.called_since.items():
            if count > _MOST_REPEATED:
                self.journal.add("calls", number, count - _MOST_REPEATED)
        self.called_since.clear()

    @guarded
    def trees(self) -> None:
        """The outermost modules with all that they hold, as they are at the end."""
        with compat.no_torch_function():
            for weak in self.outermost.values():
                module = weak()
                if module is not None:
                    self.tree(module)

    def tree(self, module: torch.nn.Module) -> None:
        named = [
            (name, self.tensor(p), p.requires_grad)
            for name, p in module.named_parameters(remove_duplicate=False)
            if compat.is_observable(p)
        ]
        inner = [(name, self.module(m)) for name, m in module.named_modules(remove_duplicate=False)]
        device = next((p.device.type for p in module.parameters()), "")
        self.journal.add("tree", self.module(module), inner, named, device)
        for one in module.modules():
            for name, value in one.__dict__.items():
                if type(value) in (list, dict) and value and not name.startswith("_"):
                    shown = self.shown(value)
                    if shown is not None:
                        self.journal.add("holds", self.module(one), name, shown)

    @guarded
    def mode(self, module: torch.nn.Module, training: bool) -> None:
        with compat.no_torch_function():
            site = self.here()
            self.journal.add("mode", *self.at(site), self.module(module), bool(training))

    @guarded
    def state_dict(self, module: torch.nn.Module, result: Any) -> None:
        with compat.no_torch_function():
            site = self.here()
            storages = [self.storages.number(t) for t in tensors_in((dict(result),))]
            self.journal.add("state_dict", *self.at(site), self.module(module), storages)

    @guarded
    def load_state_dict(self, module: torch.nn.Module, given: Any) -> None:
        with compat.no_torch_function():
            site = self.here()
            storages = [self.storages.number(t) for t in tensors_in((dict(given),))]
            self.journal.add("load_state_dict", *self.at(site), self.module(module), storages)

    @guarded
    def copied(self, original: torch.Tensor, copy: torch.Tensor) -> None:
        with compat.no_torch_function():
            self.kept.add(self.storages.number(copy))
            self.journal.add("copied", self.tensor(original), self.tensor(copy))

    @guarded
    def custom(self, name: str, known: list[Any], result: Any) -> None:
        """A call of an `autograd.Function` is one operation."""
        with compat.no_torch_function():
            outputs = [t for t in tensors_in((result,)) if compat.is_observable(t)]
            site = self.here()
            via = self.places.via
            for tensor in outputs:
                function = compat.grad_fn(tensor)
                if function is not None and not compat.is_accumulate(function):
                    self.node(function)
            self.journal.add(
                "op",
                *self.at(site),
                name,
                via,
                torch.is_grad_enabled(),
                known,
                [self.state(t) for t in outputs],
                [],
                False,
                {"custom": True},
            )

    # -- flagged statements

    @guarded
    def statement(self, watch: Any, frame: FrameType, when: str, held: Any = None) -> None:
        """A flagged statement is about to run, or has run."""
        with compat.no_torch_function():
            site = self.places.here(frame)
            where = self.at(site)
            self.journal.add("reached", *where, watch.flag, when)
            if watch.flag in self.asked and watch.flag not in self.reached_at:
                self.reached_at[watch.flag] = self.progress()
                self.journal.flush()
            if when == "before":
                for name in watch.names:
                    value = frame.f_locals.get(name)
                    if hasattr(value, "__next__"):
                        is_spent = spent(value)
                        if is_spent is not None:
                            self.held.append(value)
                            self.journal.add("iterator", *where, watch.flag, list(watch.span), id(value), is_spent)
            if not watch.path and held is None:
                return
            value = follow(watch.path, frame) if watch.path else held
            if watch.kind == "append":
                if when == "after":
                    items = list(value)[-64:] if isinstance(value, (list, tuple)) else []
                    self.journal.add(
                        "appended", *where, watch.flag, list(watch.span), id(value), [self.shown(v, 2) for v in items]
                    )
            elif watch.kind == "item":
                if when == "after":
                    self.journal.add("item", *where, watch.flag, self.shown(value), list(watch.span))
            elif watch.kind == "name":
                self.journal.add("named", *where, watch.flag, when, watch.attribute, self.shown(value), spent(value))
            elif watch.kind == "attribute":
                kind = "tensor" if isinstance(value, torch.Tensor) else type(value).__name__
                module = self.module(value) if isinstance(value, torch.nn.Module) else 0
                member = value.__dict__.get(watch.attribute) if hasattr(value, "__dict__") else None
                if isinstance(value, torch.nn.Module):
                    member = getattr(value, watch.attribute, None)
                plain = member if isinstance(member, bool) else None
                number = self.tensor(value) if isinstance(value, torch.Tensor) else module
                self.journal.add(
                    "attribute_of",
                    *where,
                    watch.flag,
                    when,
                    kind,
                    number,
                    watch.attribute,
                    self.shown(member),
                    plain,
                    id(value),
                    list(watch.span),
                )


def _writes(name: str) -> bool:
    return (name.endswith("_") and not name.startswith("__")) or name.startswith(("__i", "__set"))


class Mode(TorchFunctionMode):
    """Sees every call into torch that the program makes on this thread."""

    def __init__(self, observer: Observer) -> None:
        super().__init__()
        self.observer = observer

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.observer.call(func, types, args, kwargs or {})


def follow(path: tuple[str, ...], frame: FrameType) -> Any:
    """What a dotted path means in a frame; None where it means nothing yet."""
    first, *rest = path
    local = frame.f_locals
    value = local[first] if first in local else frame.f_globals.get(first)
    for name in rest:
        if value is None:
            return None
        try:
            if name.startswith("["):
                key = name[2:-1] if name[1] in "'\"" else int(name[1:])
                value = value[key]
            elif isinstance(value, torch.nn.Module) or (isinstance(value, torch.Tensor) and name == "grad"):
                value = getattr(value, name, None)
            else:
                value = value.__dict__.get(name) if hasattr(value, "__dict__") else getattr(value, name, None)
        except Exception:  # noqa: BLE001 - a property or an index that is not there yet
            return None
    return value


def spent(value: Any) -> bool | None:
    """Whether an iterator has been read to its end; None where it does not say."""
    for _ in range(4):
        if hasattr(value, "gi_frame"):
            return value.gi_frame is None
        if type(value).__name__ in ("filter", "map", "chain", "zip", "islice"):
            inner = value.__reduce__()[1]
            inner = inner[-1] if isinstance(inner, tuple) and inner else inner
            value = inner
            continue
        break
    if type(value).__name__ in ("list_iterator", "dict_valueiterator", "tuple_iterator", "dict_itemiterator"):
        return bool(value.__length_hint__() == 0)
    return None


def parameters_of(optimizer: Any) -> list[torch.Tensor]:
    """All parameters that an optimizer holds."""
    return [p for group in optimizer.param_groups for p in group["params"]]


def tensors_in(values: Any, found: list[torch.Tensor] | None = None, depth: int = 3) -> list[torch.Tensor]:
    """The tensors among nested arguments, in order."""
    if found is None:
        found = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif depth and isinstance(value, (tuple, list)):
            if len(value) < 1000:
                tensors_in(value, found, depth - 1)
        elif depth and isinstance(value, dict):
            tensors_in(tuple(value.values()), found, depth - 1)
    return found


def places_in(value: Any, place: str, found: list[tuple[str, torch.Tensor]], depth: int) -> None:
    """The tensors of a result, each with its place in it."""
    if isinstance(value, torch.Tensor):
        found.append((place, value))
    elif depth and isinstance(value, dict):
        for key, inner in value.items():
            places_in(inner, f"{place}.{key}" if place else str(key), found, depth - 1)
    elif depth and isinstance(value, (tuple, list)):
        for at, inner in enumerate(value):
            places_in(inner, f"{place}.{at}" if place else str(at), found, depth - 1)
    elif depth and value is not None and hasattr(value, "__dict__") and not isinstance(value, torch.nn.Module):
        for key, inner in list(vars(value).items())[:32]:
            if isinstance(inner, (torch.Tensor, tuple, list)):
                places_in(inner, f"{place}.{key}" if place else str(key), found, depth - 1)


def norms_of(tensors: list[torch.Tensor]) -> list[float | None]:
    """The 2-norm of each tensor, with one transfer per device; None where it cannot be told."""
    plain = [_local(t) for t in tensors]
    try:
        norms = _quick_norms(plain)
    except Exception:  # noqa: BLE001 - a layout or a subclass with its own ideas
        norms = [0.0] * len(plain)
    # Nothing may be called zero or infinite for want of precision.
    return [norm if norm and norm - norm == 0 else _exact_norm(t) for t, norm in zip(plain, norms, strict=True)]


def _quick_norms(tensors: list[torch.Tensor]) -> list[float]:
    if {(t.dtype, t.layout) for t in tensors} == {(torch.float32, torch.strided)}:
        norms = list(torch._foreach_norm(tensors))
    else:
        # In half precision the sum of squares soon overflows.
        halves = (torch.float16, torch.bfloat16)
        norms = [torch.linalg.vector_norm(t, dtype=torch.float32 if t.dtype in halves else None) for t in tensors]
    if len({(n.device, n.dtype) for n in norms}) == 1:
        return [float(v) for v in torch.stack(norms).tolist()]
    return [float(n) for n in norms]


def _exact_norm(tensor: torch.Tensor) -> float | None:
    try:
        dense = tensor if tensor.layout is torch.strided else tensor.to_dense()
        wide = dense.to(torch.complex128 if dense.is_complex() else torch.float64)
        return float(torch.linalg.vector_norm(wide))
    except Exception:  # noqa: BLE001 - a subclass with its own ideas, a dtype that knows no arithmetic
        return None


def _local(tensor: torch.Tensor) -> torch.Tensor:
    """This process's part of a distributed tensor: to look at all of it would take the other processes."""
    part = getattr(tensor, "_local_tensor", None)
    return part.detach() if isinstance(part, torch.Tensor) else tensor.detach()


def _plain(norm: float) -> float | str:
    """JSON has no infinities."""
    return norm if norm == norm and abs(norm) != float("inf") else str(norm)


def memory() -> int | None:
    """Bytes in use: device memory where there is a device that was used, else of this process."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        try:
            return int(torch.cuda.memory_allocated())
        except Exception:  # noqa: BLE001 - a stand-in for a device has no memory
            return None
    try:
        with open("/proc/self/statm", encoding="ascii") as status:
            return int(status.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None
