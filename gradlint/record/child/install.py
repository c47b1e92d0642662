"""Puts the observers into torch, right after the program has imported it."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.modules import module as module_hooks
from torch.optim import lr_scheduler
from torch.optim import optimizer as optimizer_hooks

from . import compat
from .neutralise import Gradients, Neutraliser
from .observe import Mode, Observer, parameters_of, tensors_in


def install(observer: Observer) -> None:
    """Observe everything from here on.  Called once."""
    for name in compat.missing():
        observer.journal.add("note", f"torch {torch.__version__} has no {name}: some things cannot be observed")
    observer.journal.add("torch", str(torch.__version__), observer.plan.get("device") != "cpu" and _has_cuda())
    compat.count_hooks()
    observer.places.owner_of = observer.owner
    _seed(observer)
    _backward(observer)
    _optimizers(observer)
    _scaler(observer)
    _modules(observer)
    _functions(observer)
    _compile(observer)
    _preserved(observer)
    if observer.plan.get("keep") or observer.plan.get("compare"):
        observer.gradients = Gradients(observer.plan.get("keep"), observer.plan.get("compare"))
    if observer.plan.get("neutralise"):
        observer.neutral = Neutraliser(**observer.plan["neutralise"])
        observer.neutral.start()
    observer.function_mode = Mode(observer)
    observer.function_mode.__enter__()  # type: ignore[no-untyped-call]


def _has_cuda() -> bool:
    # Torch warns where it finds a driver that it cannot use.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.cuda.is_available()


def _preserved(observer: Observer) -> None:
    """Sharding moves storages about and says itself that the versions of the tensors stay what they were."""
    preserve: Any = getattr(torch.autograd.grad_mode, "_unsafe_preserve_version_counter", None)
    if preserve is None:
        return

    def entering(original: Callable[..., Any]) -> Callable[..., Any]:
        def enter(self: Any) -> Any:
            observer.quiet += 1
            return original(self)

        return enter

    def leaving(original: Callable[..., Any]) -> Callable[..., Any]:
        def leave(self: Any, *arguments: Any) -> Any:
            observer.quiet -= 1
            return original(self, *arguments)

        return leave

    _wrapped(preserve, "__enter__", entering)
    _wrapped(preserve, "__exit__", leaving)


def _compile(observer: Observer) -> None:
    """The run is made with TORCHDYNAMO_DISABLE=1: compiled code shows none of its operations."""
    said: list[bool] = []

    def around(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            if not said and os.environ.get("TORCHDYNAMO_DISABLE") == "1":
                said.append(True)
                observer.journal.add("note", "torch.compile was switched off: the model ran as it is written")
            return original(*arguments, **keywords)

        return call

    _wrapped(torch, "compile", around)


def _seed(observer: Observer) -> None:
    seed = observer.plan.get("seed")
    if seed is not None:
        torch.manual_seed(int(seed))
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            numpy.random.seed(int(seed) % 2**32)


def _wrapped(owner: Any, name: str, around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    original = getattr(owner, name, None)
    if original is not None:
        setattr(owner, name, functools.wraps(original)(around(original)))


def _backward(observer: Observer) -> None:
    def around(roots: str, *, gives: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """`gives`: the gradients of `inputs` are returned, and not left in the leaves."""

        def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
            signature = inspect.signature(original)

            def call(*arguments: Any, **keywords: Any) -> Any:
                bound = signature.bind(*arguments, **keywords)
                given = bound.arguments
                for name in (roots, "inputs"):
                    # An iterator can be read only once.
                    if hasattr(given.get(name), "__next__"):
                        given[name] = list(given[name])
                create = bool(given.get("create_graph"))
                retain = given.get("retain_graph")
                inputs = _listed(given["inputs"]) if given.get("inputs") is not None else None
                return observer.run_backward(
                    lambda: original(*bound.args, **bound.kwargs),
                    _listed(given[roots]),
                    create if retain is None else bool(retain),
                    create,
                    None if gives else inputs,
                    inputs if gives else None,
                )

            return call

        return wrap

    _wrapped(torch.autograd, "backward", around("tensors", gives=False))
    _wrapped(torch.autograd, "grad", around("outputs", gives=True))


def _listed(tensors: Any) -> list[Any]:
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def _optimizers(observer: Observer) -> None:
    optimizer = torch.optim.Optimizer

    def add_group(original: Callable[..., Any]) -> Callable[..., Any]:
        def add_param_group(self: Any, param_group: Any) -> Any:
            if isinstance(param_group, dict) and not isinstance(param_group.get("params"), (torch.Tensor, list)):
                # An iterator can be read only once.
                parameters = param_group.get("params")
                if parameters is not None and not isinstance(parameters, set):
                    param_group = {**param_group, "params": list(parameters)}
            observer.built(self, param_group)
            return original(self, param_group)

        return add_param_group

    def zero_grad(original: Callable[..., Any]) -> Callable[..., Any]:
        def clear(self: Any, *arguments: Any, **keywords: Any) -> Any:
            parameters = _parameters(self)
            observer.clearing += 1
            observer.suspend()
            try:
                return original(self, *arguments, **keywords)
            finally:
                observer.clearing -= 1
                if not observer.stepping:
                    observer.resume()
                if not observer.clearing:
                    observer.cleared(parameters, self if isinstance(self, optimizer) else None)

        return clear

    _wrapped(optimizer, "add_param_group", add_group)
    _wrapped(optimizer, "zero_grad", zero_grad)
    _wrapped(torch.nn.Module, "zero_grad", zero_grad)
    optimizer_hooks.register_optimizer_step_pre_hook(observer.before_step)
    optimizer_hooks.register_optimizer_step_post_hook(observer.after_step)

    def stepped(original: Callable[..., Any]) -> Callable[..., Any]:
        def step(self: Any, *arguments: Any, **keywords: Any) -> Any:
            if not observer.scheduler_begins and hasattr(self, "optimizer"):
                observer.scheduled(self)
            return original(self, *arguments, **keywords)

        return step

    def beginning(original: Callable[..., Any]) -> Callable[..., Any]:
        def begin(self: Any, *arguments: Any, **keywords: Any) -> Any:
            observer.scheduler_begins += 1
            try:
                return original(self, *arguments, **keywords)
            finally:
                observer.scheduler_begins -= 1

        return begin

    # A scheduler's constructor steps it once: that is no step of the program.
    _wrapped(lr_scheduler.LRScheduler, "_initial_step", beginning)
    _wrapped(lr_scheduler.LRScheduler, "step", stepped)
    _wrapped(lr_scheduler.ReduceLROnPlateau, "step", stepped)


def _parameters(owner: Any) -> list[torch.Tensor]:
    if isinstance(owner, torch.nn.Module):
        return list(owner.parameters())
    return parameters_of(owner)


def _scaler(observer: Observer) -> None:
    scaler = getattr(torch.amp, "GradScaler", None)
    if scaler is None:
        return

    def told(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def around(original: Callable[..., Any]) -> Callable[..., Any]:
            def call(self: Any, *arguments: Any, **keywords: Any) -> Any:
                if not self.is_enabled() or observer.scaling:
                    return original(self, *arguments, **keywords)
                optimizer = arguments[0] if arguments and isinstance(arguments[0], torch.optim.Optimizer) else None
                observer.scaler(self, name, optimizer or keywords.get("optimizer"))
                if name != "step":
                    observer.quiet += 1
                    try:
                        return original(self, *arguments, **keywords)
                    finally:
                        observer.quiet -= 1
                steps = sum(observer.steps.values())
                observer.scaling.append(observer.thing(self))
                try:
                    return original(self, *arguments, **keywords)
                finally:
                    observer.scaling.pop()
                    if sum(observer.steps.values()) == steps:
                        observer.skipped += 1

            return call

        return around

    for name in ("unscale_", "step", "update"):
        _wrapped(scaler, name, told(name))

    def scaling(original: Callable[..., Any]) -> Callable[..., Any]:
        def scale(self: Any, outputs: Any) -> Any:
            result = original(self, outputs)
            observer.scales(outputs, result)
            return result

        return scale

    _wrapped(scaler, "scale", scaling)


def _modules(observer: Observer) -> None:
    module = torch.nn.Module

    def constructing(original: Callable[..., Any]) -> Callable[..., Any]:
        def init(self: Any, *arguments: Any, **keywords: Any) -> None:
            original(self, *arguments, **keywords)
            observer.constructed(self)

        return init

    def setting(original: Callable[..., Any]) -> Callable[..., Any]:
        def set_attribute(self: Any, name: str, value: Any) -> None:
            replaced = None
            if _matters(value) or name == "requires_grad":
                replaced = _held(self, name)
            original(self, name, value)
            if _matters(value) or _matters(replaced) or name == "requires_grad":
                observer.attribute(self, name, value, replaced if replaced is not value else None)

        return set_attribute

    def registering(what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def around(original: Callable[..., Any]) -> Callable[..., Any]:
            def register(self: Any, name: str, value: Any, *arguments: Any, **keywords: Any) -> Any:
                result = original(self, name, value, *arguments, **keywords)
                observer.registered(self, name, value, what)
                return result

            return register

        return around

    def training(original: Callable[..., Any]) -> Callable[..., Any]:
        def train(self: Any, mode: bool = True) -> Any:
            if observer.quiet_modes:
                return original(self, mode)
            observer.quiet_modes += 1
            try:
                return original(self, mode)
            finally:
                observer.quiet_modes -= 1
                observer.mode(self, mode)

        return train

    def outermost(tell: Callable[[Any, Any], None], *, given: bool) -> Callable[..., Callable[..., Any]]:
        def around(original: Callable[..., Any]) -> Callable[..., Any]:
            def call(self: Any, *arguments: Any, **keywords: Any) -> Any:
                nested = observer.quiet_states
                observer.quiet_states += 1
                observer.quiet += 1
                try:
                    result = original(self, *arguments, **keywords)
                finally:
                    observer.quiet_states -= 1
                    observer.quiet -= 1
                if not nested:
                    what = arguments[0] if given and arguments else keywords.get("state_dict") if given else result
                    if isinstance(what, dict):
                        tell(self, what)
                return result

            return call

        return around

    _wrapped(module, "__init__", constructing)
    _wrapped(module, "__setattr__", setting)
    _wrapped(module, "register_parameter", registering("parameter"))
    _wrapped(module, "register_buffer", registering("buffer"))
    _wrapped(module, "add_module", registering("module"))
    _wrapped(module, "train", training)
    _wrapped(module, "state_dict", outermost(observer.state_dict, given=False))
    _wrapped(module, "load_state_dict", outermost(observer.load_state_dict, given=True))

    module_hooks.register_module_forward_pre_hook(observer.called)
    module_hooks.register_module_forward_hook(observer.returned, always_call=True)


def _matters(value: Any) -> bool:
    return isinstance(value, (torch.Tensor, torch.nn.Module, list, tuple, dict))


def _held(module: Any, name: str) -> Any:
    for place in ("_parameters", "_modules", "_buffers"):
        held = module.__dict__.get(place)
        if held is not None and name in held:
            return held[name]
    return module.__dict__.get(name)


def _functions(observer: Observer) -> None:
    def clipping(by: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def around(original: Callable[..., Any]) -> Callable[..., Any]:
            def clip(parameters: Any, *arguments: Any, **keywords: Any) -> Any:
                spent = not isinstance(parameters, (torch.Tensor, list, tuple, set))
                listed = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
                observer.clipped(listed, by)
                observer.clearing += 1
                try:
                    return original(listed if spent else parameters, *arguments, **keywords)
                finally:
                    observer.clearing -= 1

            return clip

        return around

    for name in ("clip_grad_norm_", "clip_grad_value_"):
        _wrapped(torch.nn.utils.clip_grad, name, clipping(name))
        setattr(torch.nn.utils, name, getattr(torch.nn.utils.clip_grad, name))

    # A function of Python's or of C, as torch's versions have it: bound to the class of the call either way.
    applied: Any = inspect.getattr_static(torch.autograd.Function, "apply")

    def custom(cls: Any, *arguments: Any, **keywords: Any) -> Any:
        if observer.off or observer.backward_depth or observer.stepping or threading.get_ident() != observer.thread:
            return applied.__get__(None, cls)(*arguments, **keywords)
        known: list[Any] = []
        try:
            with compat.no_torch_function():
                known = [observer.state(t) for t in tensors_in(arguments) if compat.is_observable(t)]
        except Exception as error:  # noqa: BLE001 - the program must not see it
            observer.fault("apply", error)
        observer.journal.add("custom", cls.__name__)
        result = applied.__get__(None, cls)(*arguments, **keywords)
        observer.custom(cls.__name__, known, result)
        return result

    torch.autograd.Function.apply = classmethod(custom)  # type: ignore[assignment,method-assign]

    variables: Any = type(torch.autograd.Variable)

    def variable(cls: Any, *arguments: Any, **keywords: Any) -> Any:
        made = type.__call__(cls, *arguments, **keywords)
        observer.variable(arguments[0] if arguments else keywords.get("data"), made)
        return made

    variables.__call__ = variable

    def copying(original: Callable[..., Any]) -> Callable[..., Any]:
        def deepcopy(self: Any, memo: Any) -> Any:
            copy = original(self, memo)
            if copy is not self:
                observer.copied(self, copy)
            return copy

        return deepcopy

    _wrapped(torch.nn.Parameter, "__deepcopy__", copying)

    new = torch.nn.Parameter.__new__

    def made(cls: Any, data: Any = None, requires_grad: bool = True) -> Any:
        parameter = new(cls, data, requires_grad)
        if cls is torch.nn.Parameter:
            observer.made_parameter(parameter)
        return parameter

    torch.nn.Parameter.__new__ = made  # type: ignore[method-assign]


@contextlib.contextmanager
def unobserved(observer: Observer) -> Iterator[None]:
    """The program runs as if it were not observed, as far as can be: for comparison."""
    mode, observer.function_mode = observer.function_mode, None
    compat.pop_mode()
    observer.off = True
    try:
        yield
    finally:
        observer.off = False
        compat.push_mode(mode)
        observer.function_mode = mode
