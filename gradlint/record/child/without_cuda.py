"""Lets a program that asks for CUDA run on a machine that has none: what it asks for is made on the CPU.

The program is told that there is one device.  Its own choices that hang on the device are kept where they can be:
`float16` under autocast, which the CPU hardly knows, becomes `bfloat16`.
"""

from __future__ import annotations

import functools
import importlib
import types
import weakref
from collections.abc import Callable
from typing import Any

import torch
import torch.utils._device
from torch.overrides import TorchFunctionMode

NOTE = "--device cpu: what the program asks of CUDA ran on the CPU in place of CUDA, half precision as bfloat16"

_CPU = torch.device("cpu")
_NOTHING = (
    "synchronize set_device empty_cache manual_seed manual_seed_all seed seed_all init _lazy_init ipc_collect "
    "reset_peak_memory_stats reset_max_memory_allocated reset_max_memory_cached reset_accumulated_memory_stats "
    "set_per_process_memory_fraction set_rng_state set_rng_state_all set_stream set_sync_debug_mode"
)
_ZERO = (
    "memory_allocated max_memory_allocated memory_reserved max_memory_reserved memory_cached max_memory_cached "
    "current_device initial_seed utilization temperature power_draw"
)


def install() -> None:
    """From here on `cuda` means the CPU.  Called once, right after torch was imported."""
    _functions()
    _tensors()
    _data()
    _modules()
    _precision()
    _processes()
    _Mode().__enter__()  # type: ignore[no-untyped-call]


def plain(device: Any) -> Any:
    """The device, or the CPU in place of CUDA."""
    if isinstance(device, str) and device.partition(":")[0] == "cuda":
        return "cpu"
    if isinstance(device, torch.device) and device.type == "cuda":
        return _CPU
    if type(device) is int:
        return _CPU
    return device


class _Mode(TorchFunctionMode):
    """Makes on the CPU what shall be made on CUDA."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        wanted = kwargs.get("device") if kwargs else None
        device = plain(wanted)
        if device is wanted:
            return func(*args, **(kwargs or {}))
        result = func(*args, **{**kwargs, "device": device})
        if isinstance(result, torch.Tensor) and result.requires_grad and result.is_leaf:
            _there.add(result)
        return result


class _Leaves:
    """The leaves that are where the program wanted them."""

    def __init__(self) -> None:
        self.known: dict[int, weakref.ref[torch.Tensor]] = {}

    def add(self, tensor: torch.Tensor) -> None:
        self.known[id(tensor)] = weakref.ref(tensor)

    def __contains__(self, tensor: torch.Tensor) -> bool:
        known = self.known.get(id(tensor))
        return known is not None and known() is tensor


_there = _Leaves()


def _moved(tensor: torch.Tensor) -> torch.Tensor:
    """What a move to CUDA gives.  Of a leaf that was elsewhere it is a copy, and that is no leaf."""
    if not (tensor.requires_grad and tensor.is_leaf) or tensor in _there:
        return tensor
    if torch.is_grad_enabled():
        return tensor.clone()
    # This is how a module moves its parameters, which stay what they are.
    _there.add(tensor)
    return tensor


def _tensors() -> None:
    tensor: Any = torch.Tensor
    to = tensor.to
    kind = tensor.type

    @functools.wraps(to)
    def moved(self: torch.Tensor, *arguments: Any, **keywords: Any) -> Any:
        named = keywords.get("device", arguments[0] if arguments else None)
        if not isinstance(named, (str, torch.device, int)) or plain(named) is named:
            return to(self, *arguments, **keywords)
        if "device" in keywords:
            keywords = {**keywords, "device": _CPU}
        else:
            arguments = (_CPU, *arguments[1:])
        result = to(self, *arguments, **keywords)
        return _moved(self) if result is self else result

    @functools.wraps(kind)
    def typed(self: torch.Tensor, dtype: Any = None, *arguments: Any, **keywords: Any) -> Any:
        name = dtype.replace("torch.cuda.", "torch.") if isinstance(dtype, str) else dtype
        return kind(self, name, *arguments, **keywords) if dtype is not None else kind(self)

    tensor.to = moved
    tensor.type = typed
    tensor.cuda = lambda self, *_, **__: _moved(self)
    tensor.pin_memory = lambda self, *_, **__: self
    tensor.record_stream = _giving(lambda: None)


def _data() -> None:
    load: Any = torch.load
    loader: Any = torch.utils.data.DataLoader
    init = loader.__init__
    default: Any = torch.set_default_tensor_type

    @functools.wraps(load)
    def load_here(f: Any, map_location: Any = None, *arguments: Any, **keywords: Any) -> Any:
        # What was saved on CUDA is read here, too.
        where = "cpu" if map_location is None else plain(map_location)
        return load(f, where, *arguments, **keywords)

    @functools.wraps(init)
    def without_pinning(self: Any, *arguments: Any, **keywords: Any) -> None:
        keywords.pop("pin_memory", None)
        keywords.pop("pin_memory_device", None)
        init(self, *arguments, **keywords)

    def default_type(t: Any) -> None:
        default(t.replace("torch.cuda.", "torch.") if isinstance(t, str) else t)

    torch.load = load_here
    loader.__init__ = without_pinning
    torch.set_default_tensor_type = default_type


def _nothing(*arguments: Any, **keywords: Any) -> None:
    """Takes whatever it is given."""


def _functions() -> None:
    cuda: Any = torch.cuda
    properties = types.SimpleNamespace(
        name="CPU in place of CUDA",
        major=8,
        minor=0,
        total_memory=16 << 30,
        multi_processor_count=1,
        warp_size=32,
        max_threads_per_multi_processor=2048,
        gcnArchName="",
    )
    state = torch.zeros(16, dtype=torch.uint8)
    given: dict[str, Callable[..., Any]] = {
        **dict.fromkeys(_NOTHING.split(), lambda: None),
        **dict.fromkeys(_ZERO.split(), lambda: 0),
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "get_device_name": lambda: properties.name,
        "get_device_capability": lambda: (8, 0),
        "get_device_properties": lambda: properties,
        "get_arch_list": list,
        "is_bf16_supported": lambda: True,
        "mem_get_info": lambda: (8 << 30, 16 << 30),
        "memory_stats": dict,
        "memory_summary": str,
        "get_rng_state": state.clone,
        "get_rng_state_all": lambda: [state.clone()],
        "current_stream": _Stream,
        "default_stream": _Stream,
        "can_device_access_peer": lambda: False,
    }
    for name, value in given.items():
        if hasattr(cuda, name):
            setattr(cuda, name, _giving(value))
    for name, kind in (("Stream", _Stream), ("stream", _Stream), ("device", _Stream), ("device_of", _Stream)):
        setattr(cuda, name, type(name, (kind,), {}))
    cuda.Event = type("Event", (_Event,), {})
    for name in ("Float", "Double", "Half", "BFloat16", "Long", "Int", "Short", "Byte", "Char", "Bool"):
        setattr(cuda, f"{name}Tensor", getattr(torch, f"{name}Tensor"))
    if hasattr(cuda, "nvtx"):
        for name in ("range_push", "range_pop", "mark", "range_start", "range_end"):
            setattr(cuda.nvtx, name, _giving(lambda: None))


def _giving(value: Callable[[], Any]) -> Callable[..., Any]:
    """A function of its own for each name: torch's compiler wants to tell them apart."""

    def give(*arguments: Any, **keywords: Any) -> Any:
        return value()

    return give


class _Stream:
    """Stands for a stream, and for the context of a stream or a device."""

    cuda_stream = 0
    device = _CPU

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        pass

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def synchronize(self) -> None:
        pass

    wait_stream = wait_event = _nothing

    def query(self) -> bool:
        return True

    def record_event(self, event: Any = None) -> Any:
        return event or _Event()


class _Event:
    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        pass

    record = wait = synchronize = _nothing

    def query(self) -> bool:
        return True

    def elapsed_time(self, _: Any) -> float:
        return 0.0


def _modules() -> None:
    module: Any = torch.nn.Module

    to = module.to

    @functools.wraps(to)
    def moved(self: Any, *arguments: Any, **keywords: Any) -> Any:
        if "device" in keywords:
            keywords["device"] = plain(keywords["device"])
        return to(self, *map(plain, arguments), **keywords)

    module.to = moved
    parallel: Any = torch.nn.parallel
    # Without a device there is nothing to copy a model to.  `torch.nn.parallel.data_parallel` is the function in it.
    importlib.import_module("torch.nn.parallel.data_parallel").__dict__["_get_available_device_type"] = lambda: None
    distributed = parallel.DistributedDataParallel
    init = distributed.__init__

    @functools.wraps(init)
    def on_cpu(self: Any, module: Any, device_ids: Any = None, output_device: Any = None, **keywords: Any) -> None:
        init(self, module, **keywords)

    distributed.__init__ = on_cpu
    context: Any = torch.utils._device.DeviceContext
    enter = context.__init__

    def here(self: Any, device: Any) -> None:
        enter(self, plain(device))

    context.__init__ = here


def _precision() -> None:
    autocast: Any = torch.autocast
    init = autocast.__init__

    @functools.wraps(init)
    def on_cpu(self: Any, device_type: Any, dtype: Any = None, *arguments: Any, **keywords: Any) -> None:
        if plain(device_type) is not device_type:
            device_type, dtype = "cpu", torch.bfloat16 if dtype in (None, torch.float16) else dtype
        init(self, device_type, dtype, *arguments, **keywords)

    autocast.__init__ = on_cpu
    generator: Any = torch.Generator

    class Generators(type):
        def __call__(cls, device: Any = "cpu") -> Any:
            return generator(plain(device))

        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, generator)

    torch.Generator = Generators("Generator", (), {})  # type: ignore[misc,assignment]


def _processes() -> None:
    distributed: Any = torch.distributed
    initialise = getattr(distributed, "init_process_group", None)
    if initialise is None:
        return

    @functools.wraps(initialise)
    def with_gloo(backend: Any = None, *arguments: Any, **keywords: Any) -> Any:
        keywords.pop("device_id", None)
        return initialise("gloo" if backend is None or "nccl" in str(backend) else backend, *arguments, **keywords)

    distributed.init_process_group = with_gloo
