"""What calls into torch do to shadow values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from gradlint import facts
from gradlint.facts import Op
from gradlint.program import File
from gradlint.shadow import python
from gradlint.shadow.autograd import joined
from gradlint.shadow.chunks import ShadowSite
from gradlint.shadow.values import (
    Bound,
    Builtin,
    Class,
    Dict,
    Distribution,
    External,
    GradContext,
    GradScaler,
    List,
    Loader,
    ModuleObject,
    Number,
    Object,
    OptimizerObject,
    PythonException,
    PythonIterator,
    Scheduler,
    Symbol,
    TensorMethod,
    Value,
    tensors_in,
)
from gradlint.trace import (
    MAYBE,
    NO,
    YES,
    Aliased,
    Assigned,
    AttributeSet,
    Built,
    Cleared,
    Clipped,
    Constructed,
    Escaped,
    Froze,
    GradAssigned,
    Known,
    Mode,
    Module,
    Mutated,
    Node,
    Optimizer,
    Restored,
    Scaler,
    SchedulerStepped,
    Stepped,
    Stored,
    Tensor,
)

if TYPE_CHECKING:
    import libcst as cst

    from gradlint.shadow.interpreter import Interpreter

Arguments = list[Value]
Keywords = dict[str, Value]
Handler = Callable[["Interpreter", ShadowSite, Arguments, Keywords], Value]

# One name for each thing that torch (or habit) gives several.
_ALIASES = {
    "torch.autograd.no_grad": "torch.no_grad",
    "torch.autograd.grad_mode.no_grad": "torch.no_grad",
    "torch.autograd.grad_mode.inference_mode": "torch.inference_mode",
    "torch.autograd.grad_mode.set_grad_enabled": "torch.set_grad_enabled",
    "torch.nn.parameter.Parameter": "torch.nn.Parameter",
    "torch.cuda.amp.GradScaler": "torch.amp.GradScaler",
    "torch.GradScaler": "torch.amp.GradScaler",
    "torch.cuda.amp.grad_scaler.GradScaler": "torch.amp.GradScaler",
    "torch.autograd.function.Function": "torch.autograd.Function",
    "torch.nn.utils.clip_grad_norm": "torch.nn.utils.clip_grad_norm_",
    "torch.nn.utils.clip_grad.clip_grad_norm_": "torch.nn.utils.clip_grad_norm_",
    "torch.nn.parallel.DataParallel": "torch.nn.DataParallel",
    "torch.nn.modules.module.Module": "torch.nn.Module",
    "torch.utils.data.dataloader.DataLoader": "torch.utils.data.DataLoader",
}
_CONVERSIONS = frozenset(
    [
        "to",
        "cuda",
        "cpu",
        "float",
        "double",
        "half",
        "bfloat16",
        "type",
        "type_as",
        "contiguous",
        "pin_memory",
        "xpu",
        "mps",
        "int",
        "long",
        "short",
        "bool",
    ]
)
_OPTIMIZER_NAME = re.compile(r"(?i)(^|[._])(\w*optim\w*|opt|opt_\w+|\w+_opt|opt[a-z]?|optims?)$")
_SCHEDULER_NAME = re.compile(r"(?i)sched")
_MODEL_FACTORY = re.compile(r"(create_model|from_pretrained|torch\.hub\.load|torchvision\.models\.\w+)$")
_WRAPPER_NAME = re.compile(
    r"(?i)accel|engine|fabric|manager|trainer|strategy|model|booster|runner|wrapper|optim|^self$"
)
_SCALER_NAME = re.compile(r"(?i)scaler")
# Methods that nothing but a tensor has: a call tells what the receiver is.
_ONLY_TENSORS_HAVE = frozenset(
    [
        "unsqueeze",
        "masked_fill",
        "masked_fill_",
        "masked_scatter",
        "index_add",
        "index_copy",
        "index_fill",
        "index_select",
        "scatter_add",
        "scatter_add_",
        "clamp_min",
        "clamp_max",
        "permute",
        "log_softmax",
        "addcmul",
        "addcdiv",
        "logsumexp",
        "repeat_interleave",
        "unsqueeze_",
        "add_",
        "mul_",
        "sub_",
        "div_",
        "clamp_",
        "copy_",
        "zero_",
        "softmax",
        "contiguous",
        "masked_select",
        "expand_as",
        "view_as",
        "type_as",
        "bmm",
        "matmul_",
        "narrow",
        "requires_grad_",
        "data_ptr",
        "new_zeros",
        "new_ones",
        "new_tensor",
    ]
)
_OPTIMIZER_CLASS = re.compile(
    r"\.(Fused|Paged|CPU|DeepSpeedCPU)?(Adam\w*|SGD\w*|Lion\w*|Adafactor|RMSprop|Adagrad|Lamb|LAMB|Ranger\w*)$"
)
_QUANTIZING = frozenset({"round", "floor", "ceil", "trunc", "sign", "bucketize"})
_RETURNS_ITSELF = frozenset(
    [
        "train",
        "eval",
        "to",
        "cuda",
        "cpu",
        "half",
        "float",
        "double",
        "bfloat16",
        "type",
        "requires_grad_",
        "apply",
        "share_memory",
        "xpu",
        "to_empty",
        "gradient_checkpointing_enable",
        "compile",
    ]
)


def canonical(dotted: str) -> str:
    if dotted.startswith("torch.nn.modules.") and dotted.count(".") >= 4:
        dotted = "torch.nn." + dotted.rpartition(".")[2]
    if dotted.startswith("torch.optim.") and dotted.count(".") == 3 and "lr_scheduler" not in dotted:
        dotted = "torch.optim." + dotted.rpartition(".")[2]
    return _ALIASES.get(dotted, dotted)


@cache
def member(dotted: str, name: str) -> str:
    """The dotted name of the attribute `name` of something that is not among the linted files."""
    return canonical(f"{dotted}.{name}")


# -- operations on tensors


def bind_operands(fact: Op | None, values: Arguments, keywords: Keywords) -> dict[str, Value]:
    names = fact.operands if fact is not None else ()
    bound: dict[str, Value] = {}
    for i, value in enumerate(values):
        if i < len(names):
            name = names[i]
            if name == "tensors" and not isinstance(value, (list, tuple, PythonIterator)):
                bound.setdefault(name, List()).append(value)
            else:
                bound[name] = List(value.items) if isinstance(value, PythonIterator) else value
        elif fact is not None and fact.variadic and names:
            last = names[-1]
            held = bound.get(last)
            bound[last] = List([held, value]) if not isinstance(held, List) else List([*held, value])
        else:
            bound[f"operand{i}"] = value
    return {**bound, **keywords}


def form_of(name: str, values: Arguments, keywords: Keywords) -> str:
    """Which form of the call this is, in the words of the facts table."""
    second = values[1] if len(values) > 1 else None
    if name in ("max", "min", "median", "nanmedian"):
        if "dim" in keywords or isinstance(second, (int, Symbol)):
            return "dim"
        return "other" if isinstance(second, Tensor) else ""
    if name in ("clamp", "clip", "clamp_", "clip_"):
        bounds = [*values[1:], *keywords.values()]
        return "tensor" if any(isinstance(v, Tensor) for v in bounds) else ""
    if name in ("pow", "pow_", "__pow__"):
        if isinstance(second, (int, float)):
            return "square" if second == 2 else "number"
        return "exponent" if not isinstance(values[0], Tensor) else ""
    if len(values) > 1 and not isinstance(second, (Tensor, list, tuple)) and not keywords:
        return "number"
    if name == "where" and len(values) == 1:
        return "condition"
    return ""


def apply_fact(
    run: Interpreter, site: ShadowSite, name: str, fact: Op | None, values: Arguments, keywords: Keywords
) -> Value:
    """Apply an operation that the facts table describes."""
    bound = bind_operands(fact, values, keywords)
    keeps = None
    inplace = keywords.get("inplace", False)
    if fact is not None and fact.inplace_argument:
        if "inplace" in fact.operands:
            at = fact.operands.index("inplace")
            inplace = values[at] if at < len(values) else inplace
        if inplace is True and isinstance(values[0] if values else None, Tensor):
            return run.mutate(site, values[0], name + "_", fact, bound)
    if fact is not None and fact.maybe_view and fact.view_of and getattr(values[0], "grad_of", None) is None:
        # Whether it shares memory is open (a gradient's does): as if it did not, so that nothing is claimed about it.
        import dataclasses

        fact = dataclasses.replace(fact, view_of=None)
    result = run.operation(site, name, fact, bound, keeps=keeps)
    if name in _QUANTIZING and isinstance(result, Tensor):
        result.note = "quantized"
    elif isinstance(result, Tensor) and not result.note:
        for value in values:
            if isinstance(value, Tensor) and value.note == "quantized":
                result.note = "quantized"
    note_value(result, values)
    out = keywords.get("out")
    if isinstance(out, Tensor):
        run.mutate(site, out, name, None, {"self": out})
        return out
    return result


def note_value(result: Value, values: Arguments) -> None:
    """Log-probabilities stay such through sums and views."""
    first, *others = values or [None]
    scored = isinstance(first, Tensor) and first.note == "log_prob"
    if scored and isinstance(result, Tensor) and not any(isinstance(v, Tensor) for v in others):
        result.note = "log_prob"


def apply_method(
    run: Interpreter, site: ShadowSite, tensor: Tensor, name: str, arguments: Arguments, keywords: Keywords
) -> Value:
    values = [tensor, *arguments]
    fact = facts.method(name, form_of(name, values, keywords))
    if fact is None:
        return unknown_result(run, site, name, values)
    if "self" in fact.mutates:
        return run.mutate(site, tensor, name, fact, bind_operands(fact, values, keywords))
    return apply_fact(run, site, name, fact, values, keywords)


def unknown_result(run: Interpreter, site: ShadowSite, name: str, values: Sequence[Value]) -> Tensor:
    tensors = [t for v in values for t in run.flat(v)]
    result = Tensor(requires_grad=MAYBE, site=site)
    edges = tuple(run.edge(t) for t in tensors if t.requires_grad is not NO)
    result.grad_fn = Node(name, site, edges, opaque=True)
    result.cuts = ()
    return result


def binary(run: Interpreter, site: ShadowSite, name: str, left: Value, right: Value) -> Value:
    left, right = (run.as_tensor(v) if type(v) is Symbol and v.may_be_tensor() else v for v in (left, right))
    if isinstance(left, Tensor):
        values = [left, right]
        fact = facts.method(name, form_of(name, values, {}))
        if name in ("eq", "ne", "lt", "le", "gt", "ge") and right is None:
            return name == "ne"
        return apply_fact(run, site, name, fact, values, {})
    if name in ("lt", "le", "gt", "ge", "eq", "ne", "bitwise_and", "bitwise_or"):
        return apply_fact(run, site, name, facts.method(name), [right, left], {})
    if name in ("add", "mul"):
        return apply_fact(run, site, name, facts.method(name, "number"), [right, left], {})
    if name == "sub":
        return apply_fact(run, site, name, facts.method("__rsub__", "other"), [right, left], {})
    if name == "pow":
        return apply_fact(run, site, name, facts.function("torch.pow", "exponent"), [left, right], {})
    if name == "div":
        # A reciprocal, which nobody can reach, times the number.
        return apply_fact(run, site, name, facts.method("__rtruediv__"), [right], {})
    return apply_fact(run, site, name, facts.method(name), [right, left], {})


def in_place(run: Interpreter, site: ShadowSite, tensor: Tensor, name: str, bound: dict[str, Value]) -> Tensor:
    """`tensor op= other`."""
    values = [bound["self"], bound["other"]]
    inplace_name = name + "_"
    fact = facts.method(inplace_name, form_of(name, values, {}))
    if name == "matmul":
        result = apply_method(run, site, tensor, name, values[1:], {})
        return result if isinstance(result, Tensor) else tensor
    return run.mutate(site, tensor, inplace_name, fact, bound)


def indexed(run: Interpreter, site: ShadowSite, tensor: Tensor, key: Value) -> Value:
    form = ""
    keys = key if isinstance(key, tuple) else (key,)
    basic = all(isinstance(k, (int, slice, type(None), type(...))) and not isinstance(k, bool) for k in keys)
    if not basic:
        for k in keys:
            if isinstance(k, Tensor):
                form = "tensor"
            elif isinstance(k, list):
                form = "list"
    fact = facts.method("__getitem__", form)
    if not basic and form == "":
        # An unknown index: whether the result is a view is open.
        fact = facts.method("__getitem__", "tensor")
    result = apply_fact(run, site, "__getitem__", fact, [tensor, *(k for k in keys if isinstance(k, Tensor))], {})
    if isinstance(result, Tensor):
        result.note = tensor.note
        if not result.name and tensor.name:
            result.name = tensor.name
    return result


def unbound(run: Interpreter, site: ShadowSite, tensor: Tensor, at: int) -> Value:
    """One row of a tensor that Python iterates over, which torch does by `unbind`."""
    row = indexed(run, site, tensor, at)
    if isinstance(row, Tensor):
        row.multi_view = True
    return row


def set_index(run: Interpreter, site: ShadowSite, tensor: Tensor, value: Value) -> None:
    fact = facts.method("__setitem__", "value" if isinstance(value, Tensor) else "")
    run.mutate(site, tensor, "__setitem__", fact, {"self": tensor, "value": value})


# -- attributes of tensors

_SHAPES = frozenset(
    [
        "shape",
        "dtype",
        "device",
        "ndim",
        "itemsize",
        "nbytes",
        "layout",
        "names",
        "is_cuda",
        "is_sparse",
        "is_quantized",
    ]
)
_VIEWS = frozenset(["T", "mT", "H", "mH", "real", "imag"])


def tensor_attribute(run: Interpreter, tensor: Tensor, name: str, node: cst.CSTNode) -> Value:
    if name == "data":
        return run.detached(run.site(node), tensor, "data")
    if name == "grad":
        found = run.gradients.get(tensor)
        if found is None:
            found = run.gradients[tensor] = Tensor(
                requires_grad=NO, name=f"{tensor.name}.grad" if tensor.name else "grad", grad_of=tensor
            )
        return found
    if name == "requires_grad":
        if tensor.requires_grad is MAYBE:
            return run.remember(("requires_grad", tensor), lambda: Symbol("requires_grad"))
        return tensor.requires_grad is YES
    if name == "is_leaf":
        return tensor.is_leaf if tensor.requires_grad is not MAYBE else Symbol("is_leaf")
    if name in _SHAPES:
        return run.remember((name, tensor), lambda: Symbol(name))
    if name == "grad_fn":
        return None if tensor.requires_grad is NO else Symbol("grad_fn")
    if name in _VIEWS:
        return apply_fact(run, run.site(node), name, facts.method(name), [tensor], {})
    if (tensor, name) in run.tensor_attributes:
        return run.tensor_attributes[tensor, name]
    if facts.method(name) is not None or name in _METHODS:
        return TensorMethod(tensor, name)
    return run.tensor_attributes.setdefault((tensor, name), Symbol(name))


# -- methods of tensors


def _backward(run: Interpreter, site: ShadowSite, tensor: Tensor, arguments: Arguments, keywords: Keywords) -> Value:
    backward(run, site, tensor, keywords, arguments[1:])
    return None


def backward(run: Interpreter, site: ShadowSite, root: Tensor, keywords: Keywords, flags: Sequence[Value] = ()) -> None:
    retain = keywords.get("retain_graph", flags[0] if flags else None)
    create = keywords.get("create_graph", flags[1] if len(flags) > 1 else False)
    if not root.certain or root.requires_grad is MAYBE:
        # Nobody calls backward on what has no graph: the call itself tells that it has one.
        root.certain = True
        root.requires_grad = YES
        for follow in _only_way(root):
            follow.requires_grad = YES
    scaler = run.pure.get(("scaled", root))
    if keywords.keys() - _BACKWARD_KEYWORDS or keywords.get("inputs") is not None:
        retain = Symbol("retain_graph")
    wanted = tuple(run.flat(keywords["inputs"])) if keywords.get("inputs") is not None else None
    event = run.backward(
        site, root, known(retain), known(create), scaled=scaler is not None, scaler=scaler, wanted=wanted
    )
    for leaf in _leaf_holders(event):
        run.gradients.setdefault(
            leaf, Tensor(requires_grad=NO, name=f"{leaf.name}.grad" if leaf.name else "grad", grad_of=leaf)
        )


_BACKWARD_KEYWORDS = {"gradient", "retain_graph", "create_graph", "inputs", "loss"}


def _only_way(root: Tensor) -> Iterator[Tensor]:
    """The tensors that must carry the graph, since nothing else on the way can."""
    node = root.grad_fn
    while node is not None:
        open_edges = [e for e in node.inputs if e.grad_fn is not None and e.requires_grad is not NO]
        if len(open_edges) != 1 or any(e.requires_grad is YES for e in node.inputs):
            return
        yield open_edges[0].tensor
        node = open_edges[0].grad_fn


def _leaf_holders(event: Any) -> Iterator[Tensor]:
    from gradlint.trace import leaves

    if event.wanted is None:
        yield from leaves(event.edge.grad_fn)


def known(value: Value) -> Known:
    if isinstance(value, Symbol):
        return Known.of(value.truth)
    return Known.of(bool(value) if value is not None else False)


def _detach(run: Interpreter, site: ShadowSite, tensor: Tensor, arguments: Arguments, keywords: Keywords) -> Value:
    return run.detached(site, tensor, "detach")


def _detach_(run: Interpreter, site: ShadowSite, tensor: Tensor, arguments: Arguments, keywords: Keywords) -> Value:
    if tensor.requires_grad is not NO:
        event = run.cut(site, run.edge(tensor), tensor, "detach_")
        tensor.cuts = (event,)
    tensor.requires_grad, tensor.grad_fn = NO, None
    return tensor


def _requires_grad_(
    run: Interpreter, site: ShadowSite, tensor: Tensor, arguments: Arguments, keywords: Keywords
) -> Value:
    value = arguments[0] if arguments else keywords.get("requires_grad", True)
    set_requires_grad(run, site, tensor, value)
    return tensor


def set_requires_grad(run: Interpreter, site: ShadowSite, tensor: Tensor, value: Value) -> None:
    enabled = known(value) if isinstance(value, (bool, Symbol, int)) else MAYBE
    run.tell(Froze(site=site, frame=run.frame, tensor=tensor, enabled=enabled))
    if tensor.grad_fn is None:
        tensor.requires_grad = enabled


def _clone(run: Interpreter, site: ShadowSite, tensor: Tensor, arguments: Arguments, keywords: Keywords) -> Value:
    result = run.operation(site, "clone", facts.method("clone"), {"self": tensor})
    if isinstance(result, Tensor):
        result.grad_of = tensor.grad_of
        result.note = tensor.note
        run.pure["clone", result] = tensor
    return result


def _new(run: Interpreter, site: ShadowSite, tensor: Tensor, arguments: Arguments, keywords: Keywords) -> Value:
    return run.make(site, known(keywords.get("requires_grad", False)))


def _python_number(how: str) -> Callable[..., Value]:
    def leave(run: Interpreter, site: ShadowSite, tensor: Tensor, arguments: Arguments, keywords: Keywords) -> Value:
        return number_of(run, site, tensor, how)

    return leave


def number_of(run: Interpreter, site: ShadowSite, tensor: Tensor, how: str) -> Number:
    cuts = tensor.cuts
    if tensor.requires_grad is not NO:
        event = run.cut(site, run.edge(tensor), None, how)
        if tensor.requires_grad is YES:
            cuts = (event,)
    return Number(tensor.name, cuts, tensor)


def _size(run: Interpreter, site: ShadowSite, tensor: Tensor, arguments: Arguments, keywords: Keywords) -> Value:
    shape = run.remember(("shape", tensor), lambda: Symbol("shape"))
    if arguments and isinstance(arguments[0], int):
        return run.item(shape, arguments[0], site.node)
    return shape


def _same(run: Interpreter, site: ShadowSite, tensor: Tensor, arguments: Arguments, keywords: Keywords) -> Value:
    return tensor


def _hook(run: Interpreter, site: ShadowSite, tensor: Tensor, arguments: Arguments, keywords: Keywords) -> Value:
    run.tell(Escaped(site=site, frame=run.frame, callee="hook", values=(tensor,)))
    return Symbol("hook")


_METHODS: dict[str, Callable[..., Value]] = {
    "backward": _backward,
    "detach": _detach,
    "detach_": _detach_,
    "requires_grad_": _requires_grad_,
    "clone": _clone,
    "item": _python_number("item"),
    "tolist": _python_number("tolist"),
    "numpy": _python_number("numpy"),
    "__float__": _python_number("float"),
    "size": _size,
    "retain_grad": lambda run, site, tensor, a, k: None,
    "register_hook": _hook,
    "register_post_accumulate_grad_hook": _hook,
    "new_zeros": _new,
    "new_ones": _new,
    "new_full": _new,
    "new_empty": _new,
    "new_tensor": _new,
    "share_memory_": _same,
    "record_stream": lambda run, site, tensor, a, k: None,
}


def call_method(
    run: Interpreter, method: TensorMethod, arguments: Arguments, keywords: Keywords, node: cst.CSTNode
) -> Value:
    tensor, name = method.tensor, method.name
    site = run.site(node)
    special = _METHODS.get(name)
    if special is not None:
        result = special(run, site, tensor, arguments, keywords)
        if name in ("detach", "clone"):
            run.dropped = (node, name, tensor)  # type: ignore[assignment]
        return result
    fact = facts.method(name)
    if fact is not None and fact.returns == "python":
        if fact.detaches:
            return number_of(run, site, tensor, name)
        return run.remember((name, tensor, *(a for a in arguments if isinstance(a, int))), lambda: Symbol(name))
    result = apply_method(run, site, tensor, name, arguments, keywords)
    if fact is not None and "self" not in fact.mutates:
        run.dropped = (node, name, tensor)  # type: ignore[assignment]
    if name in _CONVERSIONS and isinstance(result, Tensor):
        result.name = result.name or tensor.name
        result.note = tensor.note or "converted"
        result.history = (tensor,)
        if tensor.requires_grad is NO and result.requires_grad is NO:
            result.data_of, result.grad_of = None, tensor.grad_of
    return result


# -- setting attributes


def set_attribute(run: Interpreter, owner: Value, name: str, value: Value, node: cst.CSTNode) -> None:
    site = run.site(node)
    if isinstance(owner, Symbol) and owner.tensor is not None:
        owner = owner.tensor
    if isinstance(owner, Tensor):
        set_tensor_attribute(run, site, owner, name, value)
    elif isinstance(owner, ModuleObject):
        if type(value) is Symbol:
            value.call_it(name)
        set_module_attribute(run, site, owner, name, value)
    elif isinstance(owner, (Object, OptimizerObject)):
        if type(value) is Symbol:
            value.call_it(name)
        store(run, site, value, "attribute", name, grows=False)
        replaced = owner.attributes.get(name)
        owner.attributes[name] = value
        if isinstance(value, (Tensor, ModuleObject)) or isinstance(replaced, ModuleObject):
            run.tell(
                Assigned(
                    site=site,
                    frame=run.frame,
                    owner=owner,
                    attribute=name,
                    value=value,
                    replaced=replaced if replaced is not value else None,
                )
            )
    elif isinstance(owner, Class):
        owner.names[name] = value
    elif isinstance(owner, Symbol):
        if name == "grad" and value is None:
            run.tell(Cleared(site=site, frame=run.frame, tensors=None))
        elif name == "requires_grad":
            run.tell(Escaped(site=site, frame=run.frame, callee="requires_grad", values=(owner,)))
            if isinstance(owner.called, External) and _MODEL_FACTORY.search(owner.called.dotted):
                module = Module(kind=owner.name, name=owner.name, opaque=True)
                run.tell(AttributeSet(site=site, frame=run.frame, owner=module, attribute=name, value=value))
        owner.attributes[name] = value
    elif isinstance(owner, Bound):
        owner.function.attributes[name] = value
    elif hasattr(owner, "attributes"):
        owner.attributes[name] = value
    elif isinstance(owner, File):
        run.file(owner).names[name] = value


def store(run: Interpreter, site: ShadowSite, value: Value, where: str, name: str, grows: bool) -> None:
    if not run.turns:
        return
    if isinstance(value, Tensor) and value.grad_of is not None:
        run.tell(Stored(site=site, frame=run.frame, tensor=value, where=where, grows=grows, name=name))
    for tensor in run.live(value):
        run.tell(Stored(site=site, frame=run.frame, tensor=tensor, where=where, grows=grows, name=name))


def name_again(run: Interpreter, site: ShadowSite, name: str, value: Tensor) -> None:
    """`name = value`, told where it keeps a gradient or lets go of a leaf that is trained."""
    if value.grad_of is not None:
        store(run, site, value, "name", name, grows=False)
    old = run.scope.names.get(name)
    if isinstance(old, Tensor) and old is not value and old.grad_fn is None and old.requires_grad is YES:
        run.tell(Assigned(site=site, frame=run.frame, owner=None, attribute=name, value=value, replaced=old))


def set_tensor_attribute(run: Interpreter, site: ShadowSite, tensor: Tensor, name: str, value: Value) -> None:
    if name == "data":
        event = Mutated(
            site=site,
            frame=run.frame,
            tensor=tensor,
            storage=tensor.storage,
            op="data =",
            tracked=False,
            grad_enabled=run.grad_enabled,
            version=tensor.storage.version,
            value=run.as_tensor(value) if isinstance(value, (Tensor, Symbol)) else None,
        )
        run.tell(event)
        tensor.storage.mutations.append(event)
    elif name == "grad":
        if value is None:
            clear(run, site, [tensor], True)
        else:
            run.tell(GradAssigned(site=site, frame=run.frame, tensor=tensor))
            if isinstance(value, Tensor):
                run.gradients[tensor] = value
    elif name == "requires_grad":
        set_requires_grad(run, site, tensor, value)
    else:
        run.tell(AttributeSet(site=site, frame=run.frame, owner=tensor, attribute=name, value=value))
        run.tensor_attributes[tensor, name] = value


def set_module_attribute(run: Interpreter, site: ShadowSite, owner: ModuleObject, name: str, value: Value) -> None:
    if name == "training":
        owner.training = known(value)
        return
    if name == "requires_grad" and isinstance(value, bool):
        run.tell(AttributeSet(site=site, frame=run.frame, owner=owner, attribute=name, value=value))
        return
    store(run, site, value, "attribute", name, grows=False)
    replaced = owner.attributes.get(name)
    owner.attributes[name] = value
    register(owner, name, value)
    run.tell(
        Assigned(
            site=site,
            frame=run.frame,
            owner=owner,
            attribute=name,
            value=value,
            replaced=replaced if replaced is not value else None,
        )
    )


def register(owner: ModuleObject, name: str, value: Value) -> None:
    """Give what a module now holds its dotted name."""
    if isinstance(value, Tensor) and value.is_parameter:
        value.name = name
        value.owner = value.owner or owner
    elif isinstance(value, ModuleObject):
        value.name = value.name or name
        for inner, tensor in value.named_tensors():
            tensor.name = f"{name}.{inner}"


# -- new objects


def new_object(run: Interpreter, cls: Class, node: cst.CSTNode) -> Value:
    site = run.site(node)
    bases = [entry.dotted for entry in cls.externals()]
    layer = next((b[9:] for b in bases if b.startswith("torch.nn.") and b.count(".") == 2), None)
    if layer == "Parameter":
        return Symbol(cls.name)
    if layer is not None:
        module = ModuleObject(cls, cls.name, site, "" if layer == "Module" else layer)
        module.opaque = cls.is_open()
        run.trace.modules.append(module)
        run.tell(Constructed(site=site, frame=run.frame, module=module))
        return module
    if any(b.startswith("torch.optim.") for b in bases):
        return OptimizerObject(cls, cls.name, site)
    if any(b.endswith(("Exception", "Error", "Interrupt", "Warning")) for b in bases):
        return PythonException(cls)
    if "torch.autograd.Function" in bases:
        return Symbol(cls.name)
    if any(b.rpartition(".")[2] in ("NamedTuple", "BaseModel") for b in bases):
        cls.names.setdefault("@dataclass", run.fields(cls.node))
    if any(b.endswith("TestCase") for b in bases):
        return Object(cls)
    if cls.is_open() and any(_defines(cls, name) for name in ("forward", "training_step", "configure_optimizers")):
        module = ModuleObject(cls, cls.name, site)
        module.opaque = True
        run.trace.modules.append(module)
        run.tell(Constructed(site=site, frame=run.frame, module=module))
        return module
    return Object(cls)


def _defines(cls: Class, name: str) -> bool:
    try:
        cls.lookup(name)
    except KeyError:
        return False
    return True


def initialize(run: Interpreter, made: Value, arguments: Arguments, keywords: Keywords, node: cst.CSTNode) -> None:
    """The `__init__` of an external base."""
    site = run.site(node)
    if isinstance(made, ModuleObject):
        if made.layer:
            fill_layer(run, site, made, arguments, keywords)
    elif isinstance(made, OptimizerObject):
        fill_optimizer(run, site, made, arguments, keywords)
    elif isinstance(made, Object):
        # What an external base was made from is what its methods compute with.
        made.attributes["@made from"] = (*arguments, *keywords.values())


def new_layer(run: Interpreter, site: ShadowSite, layer: str, arguments: Arguments, keywords: Keywords) -> ModuleObject:
    if layer not in facts.containers():
        for value in (*arguments, *keywords.values()):
            if type(value) is Symbol:
                value.plain = True
    module = ModuleObject(External(f"torch.nn.{layer}"), layer, site, layer)
    fill_layer(run, site, module, arguments, keywords)
    module.sealed = True
    run.trace.modules.append(module)
    run.tell(Constructed(site=site, frame=run.frame, module=module))
    return module


def fill_layer(
    run: Interpreter, site: ShadowSite, module: ModuleObject, arguments: Arguments, keywords: Keywords
) -> None:
    layer = module.layer
    if layer in ("Sequential", "ModuleList", "ParameterList", "ModuleDict", "ParameterDict"):
        fill_container(run, site, module, arguments)
        return
    module.options = dict(keywords)
    if layer in ("DataParallel", "DistributedDataParallel"):
        inner = arguments[0] if arguments else keywords.get("module")
        module.attributes["module"] = inner
        return
    fact = facts.layer(layer)
    if fact is None:
        module.opaque = layer != "Module"
        return
    inplace = keywords.get("inplace")
    if inplace is None and fact.inplace_argument:
        at = {"ReLU": 0, "ReLU6": 0, "SELU": 0, "SiLU": 0, "Mish": 0, "Hardswish": 0, "Hardsigmoid": 0}.get(layer, 1)
        inplace = arguments[at] if at < len(arguments) else False
    module.options["inplace"] = inplace
    if layer.startswith("Dropout"):
        module.options["p"] = arguments[0] if arguments else keywords.get("p", 0.5)
    no_bias = keywords.get("bias", True) is False or keywords.get("affine", True) is False
    no_bias = no_bias or (layer == "Linear" and len(arguments) > 2 and arguments[2] is False)
    for name in fact.parameters:
        last = name.rpartition(".")[2]
        absent = (no_bias and "bias" in last) or keywords.get("affine", True) is False
        if absent or keywords.get("elementwise_affine", True) is False:
            module.attributes[name] = None
            continue
        tensor = run.make(site, YES, name, parameter=True)
        tensor.owner = module
        module.attributes[name] = tensor
    for name in fact.buffers:
        module.attributes[name] = run.make(site, NO, name)
        module.buffers.add(name)
    if layer == "Embedding" and isinstance(keywords.get("_weight"), Tensor):
        module.attributes["weight"] = keywords["_weight"]


def fill_container(run: Interpreter, site: ShadowSite, module: ModuleObject, arguments: Arguments) -> None:
    if module.layer == "Sequential" and not (
        len(arguments) == 1 and isinstance(arguments[0], (dict, PythonIterator, list))
    ):
        items = arguments
    elif arguments:
        value = arguments[0]
        if isinstance(value, dict):
            for key, item in value.items():
                append(module, item, str(key))
            module.opaque = getattr(value, "open", True)
            return
        items = list(run.iterate(value, site.node, turns=2))
        if isinstance(value, Symbol):
            module.opaque = True
    else:
        items = []
    for item in items:
        if isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str):
            append(module, item[1], item[0])
        else:
            append(module, item)


def append(module: ModuleObject, item: Value, key: str = "") -> None:
    key = key or str(len(module.children))
    if isinstance(item, Tensor) and module.layer.startswith("Parameter"):
        item.is_parameter = True
    module.children.append(item)
    if module.keys or not key.isdigit():
        module.keys.append(key)
    if isinstance(item, ModuleObject):
        # Names grow outwards as containers are put into modules.
        for inner, tensor in item.named_tensors():
            tensor.name = f"{key}.{inner}"
    elif isinstance(item, Tensor):
        item.name = key
        item.owner = item.owner or module


def parameter_list(run: Interpreter, value: Value, node: cst.CSTNode) -> tuple[list[Tensor], bool]:
    """The parameters that an optimizer or a clip call is given, and whether those are all."""
    if isinstance(value, Tensor):
        return [value], True
    if isinstance(value, ModuleObject):
        return list(value.tensors()), not value.unknown_members()
    if isinstance(value, Symbol):
        if value.tensor is not None:
            return [value.tensor], False
        return [], False
    found: list[Tensor] = []
    complete = not run.is_open(value)
    for item in run.iterate(value, node, turns=2):
        if isinstance(item, dict):
            inner, whole = parameter_list(run, item.get("params"), node)
            found += inner
            complete = complete and whole
        elif isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str):
            found += [item[1]] if isinstance(item[1], Tensor) else []
        elif isinstance(item, Tensor):
            found.append(item)
            complete = complete and item.certain
        else:
            complete = False
    return found, complete


def fill_optimizer(
    run: Interpreter, site: ShadowSite, optimizer: OptimizerObject, arguments: Arguments, keywords: Keywords
) -> None:
    value = arguments[0] if arguments else keywords.get("params")
    if isinstance(value, PythonIterator):
        value = List(run.iterate(value, site.node, turns=2), value.open)
    if value is None:
        optimizer.complete = False
    else:
        optimizer.parameters, optimizer.complete = parameter_list(run, value, site.node)
    groups = List()
    named = isinstance(value, (list, tuple)) and bool(value) and isinstance(value[0], dict)
    if isinstance(value, (list, tuple)) and named:
        for group in value:
            params = group.get("params") if isinstance(group, dict) else None
            held, whole = (
                parameter_list(run, params, site.node)
                if not isinstance(params, PythonIterator)
                else (list(params.items), True)
            )
            groups.append(
                Dict({**group, "params": List(held, not whole)} if isinstance(group, dict) else {}, open=True)
            )
    else:
        groups.append(Dict({"params": List(optimizer.parameters, not optimizer.complete)}, open=True))
    optimizer.attributes["param_groups"] = groups
    optimizer.attributes["state"] = Dict(open=True)
    optimizer.attributes["defaults"] = Dict(open=True)
    run.tell(
        Built(
            site=site,
            frame=run.frame,
            optimizer=optimizer,
            parameters=tuple(run.edge(t) for t in optimizer.parameters),
            groups=tuple(tuple(group["params"]) for group in groups) if named and optimizer.complete else (),
        )
    )


@cache
def is_optimizer_class(dotted: str) -> bool:
    """Whether a class of another library is named like an optimizer that keeps torch's interface."""
    return _OPTIMIZER_CLASS.search(dotted) is not None


def new_optimizer(
    run: Interpreter, site: ShadowSite, dotted: str, arguments: Arguments, keywords: Keywords
) -> OptimizerObject:
    made = OptimizerObject(External(dotted), dotted.rpartition(".")[2], site)
    fill_optimizer(run, site, made, arguments, keywords)
    return made


# -- methods of modules and optimizers


def _bound_builtin(table: dict[str, Callable[..., Value]], name: str, owner: Value) -> Builtin:
    method = table[name]
    return Builtin(name, lambda run, site, a, k: method(run, owner, site, a, k))


def external_method(run: Interpreter, owner: Value, name: str, node: cst.CSTNode, via_super: bool = False) -> Value:
    if isinstance(owner, ModuleObject):
        if name == "training":
            return True if owner.training is YES else False if owner.training is NO else Symbol("training")
        if name == "__init__":
            return Builtin(name, lambda run, site, a, k: initialize(run, owner, a, k, node))
        if name == "forward" and owner.layer:
            return Builtin(name, lambda run, site, a, k: call_layer(run, owner, a, k, site.node))
        if name == "__call__":
            return Builtin(name, lambda run, site, a, k: run.call_module(owner, a, k, site.node))
        if name in ("_modules", "_parameters", "_buffers"):
            wanted = ModuleObject if name == "_modules" else Tensor
            held = {n: v for n, v in owner.members() if isinstance(v, wanted)} if name != "_buffers" else {}
            return Dict(held, open=True)
        if name in _MODULE_METHODS:
            return _bound_builtin(_MODULE_METHODS, name, owner)
        if owner.layer in ("Sequential", "ModuleList", "ParameterList", "ModuleDict", "ParameterDict"):
            if name in _CONTAINER_METHODS:
                return _bound_builtin(_CONTAINER_METHODS, name, owner)
            if owner.keys and name in owner.keys:
                return owner.children[owner.keys.index(name)]
        if owner.layer in ("DataParallel", "DistributedDataParallel") and not via_super:
            return Symbol(name)
    elif isinstance(owner, OptimizerObject):
        if name == "__init__":
            return Builtin(name, lambda run, site, a, k: fill_optimizer(run, site, owner, a, k))
        method = _OPTIMIZER_METHODS.get(name)
        if method is not None:
            return Builtin(name, lambda run, site, a, k: method(run, owner, site, a, k))
    elif name in ("__init__", "__post_init__", "__init_subclass__", "__enter__", "__exit__"):
        return Builtin(name, lambda run, site, a, k: None)
    if via_super:
        return Builtin(name, lambda run, site, a, k: unknown_call(run, Symbol(name), [owner, *a], k, site.node))
    symbol = Symbol(name)
    symbol.owner = owner
    attributes = getattr(owner, "attributes", None)
    if attributes is not None:
        attributes[name] = symbol
    return symbol


def _parameters(run: Interpreter, owner: ModuleObject, site: ShadowSite, a: Arguments, k: Keywords) -> Value:
    return PythonIterator(list(owner.tensors()), "parameters()", site, open=owner.unknown_members(), whole=owner)


def _named_parameters(run: Interpreter, owner: ModuleObject, site: ShadowSite, a: Arguments, k: Keywords) -> Value:
    return PythonIterator(
        list(owner.named_tensors()), "named_parameters()", site, open=owner.unknown_members(), whole=owner
    )


def _buffers(run: Interpreter, owner: ModuleObject, site: ShadowSite, a: Arguments, k: Keywords) -> Value:
    found = [m.attributes[n] for _, m in owner.modules() for n in sorted(m.buffers) if n in m.attributes]
    return PythonIterator(found, "buffers()", site, open=owner.unknown_members())


def _modules(run: Interpreter, owner: ModuleObject, site: ShadowSite, a: Arguments, k: Keywords) -> Value:
    return PythonIterator([m for _, m in owner.modules()], "modules()", site, open=owner.unknown_members())


def _named_modules(run: Interpreter, owner: ModuleObject, site: ShadowSite, a: Arguments, k: Keywords) -> Value:
    return PythonIterator(list(owner.modules()), "named_modules()", site, open=owner.unknown_members())


def _children(run: Interpreter, owner: ModuleObject, site: ShadowSite, a: Arguments, k: Keywords) -> Value:
    found = [v for _, v in owner.members() if isinstance(v, ModuleObject)]
    return PythonIterator(found, "children()", site, open=owner.unknown_members())


def _named_children(run: Interpreter, owner: ModuleObject, site: ShadowSite, a: Arguments, k: Keywords) -> Value:
    found = [(n, v) for n, v in owner.members() if isinstance(v, ModuleObject)]
    return PythonIterator(found, "named_children()", site, open=owner.unknown_members())


def set_mode(run: Interpreter, owner: ModuleObject, site: ShadowSite, training: Known) -> None:
    for _, module in owner.modules():
        module.training = training
    run.tell(Mode(site=site, frame=run.frame, module=owner, training=training))


def _train(run: Interpreter, owner: ModuleObject, site: ShadowSite, a: Arguments, k: Keywords) -> Value:
    value = a[0] if a else k.get("mode", True)
    override_mode(run, owner, site, known(value))
    return owner


def override_mode(run: Interpreter, owner: ModuleObject, site: ShadowSite, training: Known) -> None:
    set_mode(run, owner, site, training)
    for _, module in owner.modules():
        # A module that overrides train() keeps parts of itself in eval mode.
        custom = run.method(module, "train")
        if custom is not None and module is not owner and id(custom.function.node) not in run.running:
            run.call(custom, [training is not NO], {}, site.node)


def _eval(run: Interpreter, owner: ModuleObject, site: ShadowSite, a: Arguments, k: Keywords) -> Value:
    set_mode(run, owner, site, NO)
    return owner


def _itself(run: Interpreter, owner: ModuleObject, site: ShadowSite, a: Arguments, k: Keywords) -> Value:
    return owner


def _zero_grad(run: Interpreter, owner: ModuleObject, site: ShadowSite, a: Arguments, k: Keywords) -> Value:
    tensors = list(owner.tensors())
    # Nobody clears the gradients of a module that has no parameters: what it wraps is not known.
    known = bool(tensors) and not owner.unknown_members()
    clear(run, site, tensors if known else None, k.get("set_to_none", a[0] if a else True))
    return None


def _module_requires_grad(run: Interpreter, owner: ModuleObject, site: ShadowSite, a: Arguments, k: Keywords) -> Value:
    value = a[0] if a else k.get("requires_grad", True)
    for tensor in owner.tensors():
        set_requires_grad(run, site, tensor, value)
    if owner.unknown_members():
        run.tell(Escaped(site=site, frame=run.frame, callee="requires_grad_", values=(owner,)))
    return owner


def _state_dict(run: Interpreter, owner: ModuleObject, site: ShadowSite, a: Arguments, k: Keywords) -> Value:
    found = Dict(open=owner.unknown_members())
    for name, tensor in owner.named_tensors():
        alias = Tensor(requires_grad=NO, site=site, name=name, storage=tensor.storage)
        found[name] = alias
    event = Aliased(site=site, frame=run.frame, module=owner, storages=tuple(t.storage for t in owner.tensors()))
    run.tell(event)
    found.alias = event
    return found


def _load_state_dict(run: Interpreter, owner: ModuleObject, site: ShadowSite, a: Arguments, k: Keywords) -> Value:
    value = a[0] if a else k.get("state_dict")
    alias = getattr(value, "alias", None)
    if alias is not None:
        run.tell(Restored(site=site, frame=run.frame, module=owner, alias=alias))
    before, run.grad_enabled = run.grad_enabled, False
    for tensor in owner.tensors():
        run.mutate(site, tensor, "copy_", None, {"self": tensor})
    run.grad_enabled = before
    return Symbol("load_state_dict")


def _register_buffer(run: Interpreter, owner: ModuleObject, site: ShadowSite, a: Arguments, k: Keywords) -> Value:
    name = a[0] if a else k.get("name")
    value = a[1] if len(a) > 1 else k.get("tensor")
    if isinstance(name, str):
        owner.attributes[name] = value
        owner.buffers.add(name)
        if isinstance(value, Tensor):
            value.name, value.owner = name, owner
    return None


def _register_parameter(run: Interpreter, owner: ModuleObject, site: ShadowSite, a: Arguments, k: Keywords) -> Value:
    name = a[0] if a else k.get("name")
    value = a[1] if len(a) > 1 else k.get("param", k.get("module"))
    if owner.layer in ("Sequential", "ModuleList", "ModuleDict") and isinstance(value, ModuleObject):
        append(owner, value, name if isinstance(name, str) else f"?{len(owner.children)}")
        return None
    # A name that is not known still registers.
    set_module_attribute(run, site, owner, name if isinstance(name, str) else f"?{len(owner.attributes)}", value)
    return None


def _apply(run: Interpreter, owner: ModuleObject, site: ShadowSite, a: Arguments, k: Keywords) -> Value:
    if a:
        for _, module in list(owner.modules())[:12]:
            run.call(a[0], [module], {}, site.node)
    return owner


def _hook_module(run: Interpreter, owner: ModuleObject, site: ShadowSite, a: Arguments, k: Keywords) -> Value:
    owner.opaque = True
    run.tell(Escaped(site=site, frame=run.frame, callee="hook", values=(owner,)))
    return Symbol("hook")


_MODULE_METHODS: dict[str, Callable[..., Value]] = {
    "parameters": _parameters,
    "named_parameters": _named_parameters,
    "buffers": _buffers,
    "modules": _modules,
    "named_modules": _named_modules,
    "children": _children,
    "named_children": _named_children,
    "train": _train,
    "eval": _eval,
    "zero_grad": _zero_grad,
    "requires_grad_": _module_requires_grad,
    "state_dict": _state_dict,
    "load_state_dict": _load_state_dict,
    "register_buffer": _register_buffer,
    "register_parameter": _register_parameter,
    "add_module": _register_parameter,
    "register_module": _register_parameter,
    "apply": _apply,
    "register_forward_hook": _hook_module,
    "register_forward_pre_hook": _hook_module,
    "register_full_backward_hook": _hook_module,
    **dict.fromkeys(
        [
            "to",
            "cuda",
            "cpu",
            "half",
            "float",
            "double",
            "bfloat16",
            "type",
            "share_memory",
            "xpu",
            "to_empty",
            "compile",
        ],
        _itself,
    ),
}


def _container_append(run: Interpreter, owner: ModuleObject, site: ShadowSite, a: Arguments, k: Keywords) -> Value:
    if a:
        append(owner, a[-1])
    return owner


def _container_extend(run: Interpreter, owner: ModuleObject, site: ShadowSite, a: Arguments, k: Keywords) -> Value:
    for item in run.iterate(a[0], site.node, turns=2) if a else ():
        append(owner, item)
    return owner


def _container_items(run: Interpreter, owner: ModuleObject, site: ShadowSite, a: Arguments, k: Keywords) -> Value:
    keys = owner.keys or [str(i) for i in range(len(owner.children))]
    return List(zip(keys, owner.children, strict=False), owner.opaque)


def _container_keys(run: Interpreter, owner: ModuleObject, site: ShadowSite, a: Arguments, k: Keywords) -> Value:
    return List(owner.keys, owner.opaque)


def _container_values(run: Interpreter, owner: ModuleObject, site: ShadowSite, a: Arguments, k: Keywords) -> Value:
    return List(owner.children, owner.opaque)


_CONTAINER_METHODS: dict[str, Callable[..., Value]] = {
    "append": _container_append,
    "insert": _container_append,
    "extend": _container_extend,
    "items": _container_items,
    "keys": _container_keys,
    "values": _container_values,
}


def _optimizer_step(run: Interpreter, owner: OptimizerObject, site: ShadowSite, a: Arguments, k: Keywords) -> Value:
    closure = a[0] if a else k.get("closure")
    result: Value = None
    if closure is not None:
        result = run.call(closure, [], {}, site.node)
        if owner.kind == "LBFGS":
            # It evaluates the closure several times for one step.
            result = run.call(closure, [], {}, site.node)
    step(run, site, owner, closure=closure is not None)
    return result


def step(
    run: Interpreter, site: ShadowSite, optimizer: Optimizer, scaler: object = None, closure: bool = False
) -> None:
    run.tell(Stepped(site=site, frame=run.frame, optimizer=optimizer, scaler=scaler, closure=closure))
    run.stepped(site, optimizer)


def _optimizer_zero_grad(
    run: Interpreter, owner: OptimizerObject, site: ShadowSite, a: Arguments, k: Keywords
) -> Value:
    clear(run, site, grouped(run, owner, site), k.get("set_to_none", a[0] if a else True), owner)
    return None


def grouped(run: Interpreter, owner: OptimizerObject, site: ShadowSite) -> list[Tensor] | None:
    """The parameters in an optimizer's `param_groups`, which may be another's; None where not all are known."""
    groups = owner.attributes.get("param_groups")
    if not isinstance(groups, list):
        return None
    found, complete = parameter_list(run, groups, site.node)
    return found if complete else None


def clear(
    run: Interpreter,
    site: ShadowSite,
    tensors: Sequence[Tensor] | None,
    set_to_none: Value,
    optimizer: Optimizer | None = None,
) -> None:
    """`zero_grad()`: by default the next backward makes new gradient tensors."""
    in_place = set_to_none is False
    run.tell(
        Cleared(
            site=site,
            frame=run.frame,
            tensors=tuple(tensors) if tensors is not None else None,
            optimizer=optimizer,
            in_place=in_place,
        )
    )
    if not in_place and tensors is None:
        run.gradients.clear()
    elif not in_place:
        for tensor in tensors or ():
            run.gradients.pop(tensor, None)


def _add_param_group(run: Interpreter, owner: OptimizerObject, site: ShadowSite, a: Arguments, k: Keywords) -> Value:
    group = a[0] if a else k.get("param_group")
    params = group.get("params") if isinstance(group, dict) else None
    held, whole = parameter_list(run, params, site.node) if params is not None else ([], False)
    owner.parameters = [*owner.parameters, *held]
    owner.complete = owner.complete and whole
    groups = owner.attributes.get("param_groups")
    if isinstance(groups, list):
        groups.append(Dict({"params": List(held, not whole)}, open=True))
    run.tell(
        Built(
            site=site,
            frame=run.frame,
            optimizer=owner,
            parameters=tuple(run.edge(t) for t in owner.parameters),
        )
    )
    return None


_OPTIMIZER_METHODS: dict[str, Callable[..., Value]] = {
    "step": _optimizer_step,
    "zero_grad": _optimizer_zero_grad,
    "add_param_group": _add_param_group,
    "state_dict": lambda run, owner, site, a, k: Dict(open=True),
    "load_state_dict": lambda run, owner, site, a, k: None,
    "train": lambda run, owner, site, a, k: None,
    "eval": lambda run, owner, site, a, k: None,
}


# -- calling layers


def call_layer(
    run: Interpreter, module: ModuleObject, arguments: Arguments, keywords: Keywords, node: cst.CSTNode
) -> Value:
    site = run.site(node)
    layer = module.layer
    if layer == "Sequential":
        value: Value = arguments[0] if arguments else Symbol("input")
        for child in module.children:
            value = run.call(child, [value], {}, node)
        return value
    if layer in ("DataParallel", "DistributedDataParallel"):
        return run.call(module.attributes.get("module"), arguments, keywords, node)
    if layer == "Identity" and arguments:
        return arguments[0]
    fact = facts.layer(layer)
    own = [v for v in module.attributes.values() if isinstance(v, Tensor) and v.is_parameter]
    if fact is None:
        result = unknown_result(run, site, layer or module.kind, [*arguments, *keywords.values(), *module.tensors()])
        run.pure["module", result] = module
        return result
    training = module.training is not NO
    bound: dict[str, Value] = {}
    for i, value in enumerate(arguments):
        bound[fact.call[i] if i < len(fact.call) else f"operand{i}"] = value
    bound.update(keywords)
    first = arguments[0] if arguments else None
    if isinstance(first, Symbol):
        first = run.as_tensor(first)
        if first is not None:
            bound[fact.call[0]] = first
    if module.options.get("inplace") is True and isinstance(first, Tensor):
        rate = module.options.get("p", 0.5)
        if not layer.startswith("Dropout") or (training and isinstance(rate, float) and rate > 0):
            op = Op(
                space="layer",
                name=layer,
                operands=fact.call,
                keeps=fact.keeps,
                keeps_inplace=fact.keeps_inplace,
            )
            return run.mutate(site, first, f"{layer}(inplace=True)", op, bound, by=module)
        return first
    differentiable = {n: v for n, v in bound.items() if n not in fact.no_gradient}
    op = Op(
        space="layer",
        name=layer,
        operands=fact.call,
        returns=fact.returns,
        arity=sum(n or 1 for n in fact.nested) if fact.nested else fact.arity,
        view_of=fact.view_of if training else fact.view_of_eval,
        differentiable_results=fact.differentiable_results,
    )
    result = run.operation(
        site,
        layer,
        op,
        differentiable,
        module=module,
        extra=own,
        keeps=dict(fact.keeps if training else fact.keeps_eval),
    )
    if fact.nested and isinstance(result, tuple):
        flat = list(result)
        return tuple(flat.pop(0) if n == 0 else tuple(flat.pop(0) for _ in range(n)) for n in fact.nested)
    return result


def outputs(result: Value) -> Iterator[tuple[str, Tensor]]:
    yield from tensors_in(result)


def custom_function(run: Interpreter, site: ShadowSite, cls: Class, arguments: Arguments) -> Value:
    """`Function.apply`: its forward runs without grad, its backward is the author's."""
    try:
        forward = cls.lookup("forward")
        run.choices.new_told.add(id(forward.node))
        run.choices.new_told.add(id(cls.lookup("backward").node))
    except (KeyError, AttributeError):
        pass
    tensors = [t for v in arguments for t in run.flat(v)]
    edges = tuple(run.edge(t) for t in tensors)
    gradient = joined(e.requires_grad for e in edges) if run.grad_enabled else NO
    result = Tensor(requires_grad=gradient, site=site)
    if gradient is not NO:
        result.grad_fn = Node(cls.name, site, edges, opaque=True)
    return result


# -- unknown code


def unknown_call(
    run: Interpreter, function: Value, arguments: Arguments, keywords: Keywords, node: cst.CSTNode
) -> Value:
    site = run.site(node)
    if isinstance(function, Symbol) and function.owner is not None:
        name = function.name.rpartition(".")[2]
        handled = symbol_method(run, function.owner, name, arguments, keywords, site)
        if handled is not ...:
            return handled
    values = (*arguments, *keywords.values()) if keywords else tuple(arguments)
    name = function.name if isinstance(function, Symbol) else getattr(function, "dotted", "")
    passed: list[Value] = []
    tracked = cut = False
    for value in values:
        if type(value) is Symbol:
            passed.append(value)
            cut = cut or bool(value.cuts)
        elif not isinstance(value, _INERT):
            if isinstance(value, _PASSED):
                passed.append(value)
            cut = cut or not isinstance(value, Tensor)
            tracked = True
    if (
        isinstance(function, Symbol)
        and function.owner is not None
        and isinstance(function.owner, (Module, Object, Symbol))
    ):
        passed.append(function.owner)
    if passed:
        run.tell(Escaped(site=site, frame=run.frame, callee=name, values=tuple(passed)))
    if tracked:
        for value in values:
            if isinstance(value, (List, Dict)):
                value.open = True
            elif isinstance(value, PythonIterator):
                value.used = value.used or None
    if cut:
        cuts = run.cuts_of([v for v in values if not isinstance(v, Tensor)])
        tensors = [t for v in values for t in (run.flat(v) if not isinstance(v, Symbol) else ())]
        if cuts and not any(t.requires_grad is not NO for t in tensors):
            return Number(name, cuts)
    called = function
    if isinstance(function, Symbol) and function.owner is not None and facts.method(name.rpartition(".")[2]):
        # A tensor's method may be an object's too; by itself it is no model whose graph could be freed.
        called = External(f"torch.Tensor.{name.rpartition('.')[2]}")
    symbol = Symbol("", called=called, arguments=values)
    symbol.site = site
    symbol.graphless = not run.grad_enabled
    if name:
        symbol.name = name.rpartition(".")[2] + "()"
    return symbol


_PASSED = (Tensor, Module, Optimizer, Symbol, List, Dict, Object, PythonIterator)
_INERT = (str, int, float, type(None), External)
"""What unknown code can do nothing to, and carries nothing."""


def stand_in(run: Interpreter, symbol: Symbol, site: ShadowSite) -> Optimizer:
    found = run.stand_ins.get(symbol)
    if found is None:
        found = Optimizer(kind="optimizer", site=site, complete=False, name=symbol.name, assumed=True)
        run.stand_ins[symbol] = found
    return found


def symbol_method(
    run: Interpreter, owner: Value, name: str, arguments: Arguments, keywords: Keywords, site: ShadowSite
) -> Value:
    """A method of an unknown object, where its name tells what it does; `...` where it does not."""
    symbol = owner if isinstance(owner, Symbol) else None
    if name in ("backward", "manual_backward"):
        return symbol_backward(run, owner, arguments, keywords, site)
    if symbol is None:
        return ...
    if (
        name not in _TELLING
        and symbol.tensor is None
        and facts.method(name) is None
        and (name not in _SCALING or not _SCALER_NAME.search(symbol.name))
    ):
        return ...
    called = symbol.name
    if name == "zero_grad":
        optimizer = stand_in(run, symbol, site) if _OPTIMIZER_NAME.search(called) else None
        clear(run, site, None, keywords.get("set_to_none", arguments[0] if arguments else True), optimizer)
        return None
    if name == "step":
        if _SCALER_NAME.search(called) and arguments:
            target = arguments[0]
            optimizer = (
                target
                if isinstance(target, Optimizer)
                else stand_in(run, target, site)
                if isinstance(target, Symbol)
                else None
            )
            run.tell(Scaler(site=site, frame=run.frame, scaler=symbol, call="step", optimizer=optimizer))
            if optimizer is not None:
                step(run, site, optimizer, scaler=symbol)
            return Symbol("step()")
        if _SCHEDULER_NAME.search(called):
            return ...
        if _OPTIMIZER_NAME.search(called) and (
            not arguments or arguments[0] is None or not isinstance(arguments[0], (Tensor, Number, int, float))
        ):
            if arguments and not isinstance(arguments[0], Symbol):
                run.call(arguments[0], [], {}, site.node)
            step(run, site, stand_in(run, symbol, site), closure=bool(arguments or keywords))
            return Symbol("step()")
        return ...
    if _SCALER_NAME.search(called) and name in ("scale", "unscale_", "update"):
        if name == "scale" and arguments:
            return scaled(run, site, symbol, arguments[0])
        if name != "scale":
            target = arguments[0] if arguments else None
            optimizer = (
                target
                if isinstance(target, Optimizer)
                else stand_in(run, target, site)
                if isinstance(target, Symbol)
                else None
            )
            run.tell(Scaler(site=site, frame=run.frame, scaler=symbol, call=name, optimizer=optimizer))
            return None
    if name in ("clip_grad_norm_", "clip_grad_value_", "clip_grad_norm"):
        return _clip(run, site, arguments, keywords)
    if name in ("parameters", "named_parameters"):
        held = run.remember(
            ("parameters", symbol),
            lambda: Tensor(
                requires_grad=MAYBE, name=f"{called}.parameter" if called else "parameter", is_parameter=True
            ),
        )
        items: list[Value] = [held] if name == "parameters" else [(Symbol("name"), held)]
        return PythonIterator(items, f"{name}()", site, open=True, whole=symbol)
    if name in _RETURNS_ITSELF and (name != "to" or symbol.tensor is None) and symbol.tensor is None:
        if name in ("train", "eval"):
            value = arguments[0] if arguments else True
            module = run.stand_ins.get((symbol, "module"))  # type: ignore[call-overload]
            if module is None:
                module = Module(kind="module", name=called, opaque=True)
                run.stand_ins[symbol, "module"] = module  # type: ignore[index]
            run.tell(Mode(site=site, frame=run.frame, module=module, training=NO if name == "eval" else known(value)))
            return symbol
        if symbol.called is None and not symbol.iterated:
            return symbol
        if isinstance(symbol.called, External) and _MODEL_FACTORY.search(symbol.called.dotted):
            return symbol
        return ...
    if name == "prepare":
        return tuple(arguments) if len(arguments) > 1 else arguments[0] if arguments else None
    if name in ("detach", "item", "numpy", "tolist", "argmax", "detach_", "requires_grad_"):
        tensor = run.as_tensor(symbol)
        if tensor is not None:
            return call_method(run, TensorMethod(tensor, name), arguments, keywords, site.node)
    if name in _ONLY_TENSORS_HAVE:
        tensor = run.as_tensor(symbol)
        if tensor is not None:
            tensor.certain = True
    if symbol.tensor is not None and (facts.method(name) is not None or name in _METHODS):
        return call_method(run, TensorMethod(symbol.tensor, name), arguments, keywords, site.node)
    if facts.method(name) is not None and name not in ("step", "apply"):
        run.dropped = (site.node, name, _guess(symbol))  # type: ignore[assignment]
        result = Symbol("", called=External(f"torch.Tensor.{name}"), arguments=(symbol, *arguments))
        result.site = site
        result.graphless = symbol.graphless or not run.grad_enabled
        return result
    return ...


# Methods whose name says what they do, whatever object has them.
_TELLING = (
    frozenset(["zero_grad", "step", "clip_grad_norm_", "clip_grad_value_", "clip_grad_norm", "prepare"])
    | frozenset(["parameters", "named_parameters", "detach", "item", "numpy", "tolist", "argmax", "detach_"])
    | _RETURNS_ITSELF
    | _ONLY_TENSORS_HAVE
)
_SCALING = frozenset(["scale", "unscale_", "update"])


def _guess(symbol: Symbol) -> Tensor:
    return symbol.tensor or Tensor(requires_grad=MAYBE, name=symbol.name, certain=False)


def symbol_backward(
    run: Interpreter, owner: Value, arguments: Arguments, keywords: Keywords, site: ShadowSite
) -> Value:
    """`loss.backward()`, or `accelerator.backward(loss)`."""
    loss: Value = arguments[0] if arguments else keywords.get("loss")
    flags = arguments[1:]
    weight = isinstance(loss, Tensor) and loss.requires_grad is NO
    name = owner.name.rpartition(".")[2] if isinstance(owner, Symbol) else ""
    if loss is None or "loss" in name.lower() or (weight and not _WRAPPER_NAME.search(name)):
        loss = owner
    tensor = run.as_tensor(loss)
    if tensor is None:
        return ...
    if loss is not owner:
        # A wrapper (Accelerate, DeepSpeed, Fabric, Lightning) scales, and may accumulate and clear by itself.
        run.tell(Escaped(site=site, frame=run.frame, callee="backward", values=(owner,)))
    backward(run, site, tensor, keywords, flags)
    return None


def scaled(run: Interpreter, site: ShadowSite, scaler: object, value: Value) -> Value:
    tensor = run.as_tensor(value)
    if tensor is None or (isinstance(scaler, GradScaler) and scaler.enabled is False):
        return value
    result = run.operation(site, "scale", facts.method("mul", "number"), {"self": tensor})
    if isinstance(result, Tensor):
        result.name = tensor.name
        run.pure["scaled", result] = scaler
    return result


# -- calling torch by name


def call_external(run: Interpreter, dotted: str, arguments: Arguments, keywords: Keywords, node: cst.CSTNode) -> Value:
    site = run.site(node)
    handler = HANDLERS.get(dotted)
    if handler is not None:
        return handler(run, site, arguments, keywords)
    if dotted.startswith("builtins."):
        return python.call_builtin(run, dotted[9:], arguments, keywords, node)
    if not dotted.startswith("torch."):
        return python.call_library(run, dotted, arguments, keywords, node)
    if dotted.startswith("torch.nn.functional."):
        return call_function(run, site, dotted, arguments, keywords, node)
    if dotted.startswith("torch.nn.init."):
        target = arguments[0] if arguments else keywords.get("tensor")
        tensor = run.as_tensor(target)
        if tensor is not None:
            before, run.grad_enabled = run.grad_enabled, False
            run.mutate(site, tensor, dotted.rpartition(".")[2], None, {"self": tensor})
            run.grad_enabled = before
        return target
    if dotted.startswith("torch.nn.") and dotted.count(".") == 2:
        name = dotted[9:]
        if name in facts.containers() or facts.layer(name) is not None or name == "DataParallel":
            return new_layer(run, site, name, arguments, keywords)
        if name == "Module":
            return new_layer(run, site, name, arguments, keywords)
    if dotted == "torch.nn.parallel.DistributedDataParallel":
        return new_layer(run, site, "DistributedDataParallel", arguments, keywords)
    if dotted.startswith("torch.optim.lr_scheduler."):
        optimizer = arguments[0] if arguments else keywords.get("optimizer")
        if isinstance(optimizer, Symbol):
            optimizer = stand_in(run, optimizer, site)
        return Scheduler(optimizer if isinstance(optimizer, Optimizer) else None)
    if dotted.startswith("torch.optim.") and dotted.count(".") == 2 and dotted[12].isupper():
        return new_optimizer(run, site, dotted, arguments, keywords)
    if dotted.startswith("torch.distributions.") and dotted.rpartition(".")[2][0].isupper():
        tensors = [t for v in (*arguments, *keywords.values()) for t in run.flat(v)]
        for value in (*arguments, *keywords.values()):
            if isinstance(value, Distribution):
                tensors += value.parameters
        return Distribution(dotted.rpartition(".")[2], tensors)
    if dotted.startswith("torch.Tensor."):
        name = dotted[13:]
        tensor = run.as_tensor(arguments[0]) if arguments else None
        if tensor is not None:
            return call_method(run, TensorMethod(tensor, name), arguments[1:], keywords, node)
    return call_function(run, site, dotted, arguments, keywords, node)


def call_function(
    run: Interpreter,
    site: ShadowSite,
    dotted: str,
    arguments: Arguments,
    keywords: Keywords,
    node: cst.CSTNode,
) -> Value:
    name = dotted.rpartition(".")[2]
    plain = facts.function(dotted)
    if plain is not None and plain.factory and not any(isinstance(a, Tensor) for a in arguments[:1]):
        return run.make(site, known(keywords.get("requires_grad", False)))
    arguments = [run.as_tensor(a) if type(a) is Symbol and i == 0 else a for i, a in enumerate(arguments)]
    fact = facts.function(dotted, form_of(name, arguments, keywords))
    if fact is None:
        return unknown_call(run, External(dotted), arguments, keywords, node)
    if fact.like:
        made = run.make(site, known(keywords.get("requires_grad", False)))
        return made
    if fact.returns in ("python", "none"):
        return run.remember(
            (dotted, *(a for a in arguments if isinstance(a, (Tensor, int, str)))), lambda: Symbol(name)
        )
    if (
        fact.mutates
        and not fact.inplace_argument
        and isinstance(arguments[0] if arguments else None, Tensor)
        and name.endswith("_")
    ):
        return run.mutate(site, arguments[0], name, fact, bind_operands(fact, arguments, keywords))
    if name == "dropout":
        training = arguments[2] if len(arguments) > 2 else keywords.get("training", True)
        if training is False:
            return arguments[0]
    result = apply_fact(run, site, name, fact, arguments, keywords)
    operand = next((a for a in arguments if isinstance(a, Tensor)), None)
    run.dropped = (node, name, operand)  # type: ignore[assignment]
    return result


def _no_grad(run: Interpreter, site: ShadowSite, a: Arguments, k: Keywords) -> Value:
    if a and type(a[0]).__name__ == "Function":
        a[0].grad = False
        return a[0]
    return GradContext(False)


def _enable_grad(run: Interpreter, site: ShadowSite, a: Arguments, k: Keywords) -> Value:
    if a and type(a[0]).__name__ == "Function":
        a[0].grad = True
        return a[0]
    return GradContext(True)


def _inference_mode(run: Interpreter, site: ShadowSite, a: Arguments, k: Keywords) -> Value:
    mode = a[0] if a else k.get("mode", True)
    return GradContext(False if mode is True else None)


def _set_grad_enabled(run: Interpreter, site: ShadowSite, a: Arguments, k: Keywords) -> Value:
    mode = a[0] if a else k.get("mode", True)
    before, switch = run.grad_enabled, run.grad_switch
    side = mode if isinstance(mode, bool) else run.truth(mode, site.node)
    run.switch_grad(side, site.node, scoped=False)
    return GradContext(side, before, switch)


def _parameter(run: Interpreter, site: ShadowSite, a: Arguments, k: Keywords) -> Value:
    flag = k.get("requires_grad", a[1] if len(a) > 1 else True)
    source = a[0] if a else k.get("data")
    made = run.make(site, known(flag), parameter=True)
    if isinstance(source, Tensor):
        made.storage = source.storage
        made.name = ""
    return made


def _tensor(run: Interpreter, site: ShadowSite, a: Arguments, k: Keywords) -> Value:
    """`torch.tensor(data)` and its kin copy the data out of any graph."""
    source = a[0] if a else k.get("data")
    flag = known(k.get("requires_grad", False))
    made = run.make(site, flag)
    values = source if isinstance(source, (list, tuple)) else [source]
    flat: list[Value] = []
    todo = list(values)
    while todo:
        value = todo.pop()
        if isinstance(value, (list, tuple)):
            todo.extend(value)
        elif isinstance(value, PythonIterator):
            todo.extend(value.items)
        else:
            flat.append(value)
    cuts = list(run.cuts_of(flat))
    trained = [v for v in flat if isinstance(v, Tensor) and v.requires_grad is YES]
    cuts.extend(run.cut(site, run.edge(tensor), made, "tensor") for tensor in trained)
    made.cuts = tuple(cuts[-8:])
    return made


def _as_tensor(run: Interpreter, site: ShadowSite, a: Arguments, k: Keywords) -> Value:
    source = a[0] if a else k.get("data")
    if isinstance(source, Tensor):
        return source
    if isinstance(source, Symbol) and not isinstance(source, Number):
        return run.make(site, MAYBE if source.called is not None else NO)
    return _tensor(run, site, a, k)


def _from_numpy(run: Interpreter, site: ShadowSite, a: Arguments, k: Keywords) -> Value:
    made = run.make(site)
    made.cuts = run.cuts_of(a)
    return made


def _variable(run: Interpreter, site: ShadowSite, a: Arguments, k: Keywords) -> Value:
    value = a[0] if a else Symbol()
    tensor = run.as_tensor(value)
    if tensor is None:
        return value
    if "requires_grad" in k:
        tensor = run.detached(site, tensor, "detach")
        tensor.requires_grad = known(k["requires_grad"])
    return tensor


def _autograd_grad(run: Interpreter, site: ShadowSite, a: Arguments, k: Keywords) -> Value:
    roots = run.flat(a[0] if a else k.get("outputs"))
    inputs = a[1] if len(a) > 1 else k.get("inputs")
    given = (
        list(run.iterate(inputs, site.node, turns=2))
        if isinstance(inputs, (List, tuple, PythonIterator, dict))
        else [inputs]
    )
    wanted = tuple(t for value in given for t in run.flat(value))
    create = known(k.get("create_graph", a[4] if len(a) > 4 else False))
    retain = k.get("retain_graph", a[3] if len(a) > 3 else None)
    retained = create if retain is None else known(retain)
    results = []
    for root in roots:
        root.certain = True
        run.backward(site, root, retained, create, wanted=wanted)
    for tensor in wanted:
        result = Tensor(requires_grad=create, site=site, name="grad", grad_of=None if create is YES else tensor)
        if create is not NO:
            # Second-order gradients depend on what the first graph depends on.
            edges = tuple(run.edge(t) for t in (*roots, tensor) if t.requires_grad is not NO)
            result.grad_fn = Node("grad", site, edges, opaque=True)
            result.note = "create_graph"
        results.append(result)
    if not results:
        return Symbol("grad()")
    return tuple(results)


def _autograd_backward(run: Interpreter, site: ShadowSite, a: Arguments, k: Keywords) -> Value:
    roots = run.flat(a[0] if a else k.get("tensors"))
    if len(roots) == 1:
        backward(run, site, roots[0], k)
    elif roots:
        # One pass over all of them together.
        edges = tuple(run.edge(root) for root in roots)
        joint = Tensor(requires_grad=joined(e.requires_grad for e in edges), site=site)
        joint.grad_fn = Node("backward", site, edges, index=len(run.trace.events))
        backward(run, site, joint, k)
    return None


def _grad_scaler(run: Interpreter, site: ShadowSite, a: Arguments, k: Keywords) -> Value:
    return GradScaler(site, k.get("enabled", True))


def scaler_method(run: Interpreter, owner: GradScaler, name: str) -> Value:
    def call(run: Interpreter, site: ShadowSite, a: Arguments, k: Keywords) -> Value:
        if name == "scale":
            return scaled(run, site, owner, a[0] if a else k.get("outputs"))
        if name in ("unscale_", "step", "update"):
            target = a[0] if a else k.get("optimizer")
            if isinstance(target, Symbol):
                target = stand_in(run, target, site)
            optimizer = target if isinstance(target, Optimizer) else None
            run.tell(Scaler(site=site, frame=run.frame, scaler=owner, call=name, optimizer=optimizer))
            if name == "step" and optimizer is not None:
                user = run.method(optimizer, "step") if isinstance(optimizer, OptimizerObject) else None
                if user is not None:
                    run.call(user, [], {}, site.node)
                step(run, site, optimizer, scaler=owner)
            return None
        return Symbol(name)

    return Builtin(name, call)


def scheduler_method(run: Interpreter, owner: Scheduler, name: str) -> Value:
    def call(run: Interpreter, site: ShadowSite, a: Arguments, k: Keywords) -> Value:
        if name == "step":
            run.tell(SchedulerStepped(site=site, frame=run.frame, optimizer=owner.optimizer))
            return None
        return Symbol(name)

    return Builtin(name, call)


def distribution_method(run: Interpreter, owner: Distribution, name: str) -> Value:
    def call(run: Interpreter, site: ShadowSite, a: Arguments, k: Keywords) -> Value:
        tensors: list[Value] = [*owner.parameters, *a]
        if name in ("sample", "sample_n"):
            made = run.make(site)
            for tensor in owner.parameters:
                if tensor.requires_grad is YES:
                    made.cuts = (*made.cuts, run.cut(site, run.edge(tensor), made, "sample"))[-8:]
            return made
        gradient = joined(t.requires_grad for v in tensors for t in run.flat(v)) if run.grad_enabled else NO
        result = Tensor(requires_grad=gradient, site=site)
        if gradient is not NO:
            edges = tuple(run.edge(t) for v in tensors for t in run.flat(v))
            result.grad_fn = Node(name, site, edges, opaque=True)
        result.note = "log_prob" if name == "log_prob" else ""
        return result

    if name in ("mean", "stddev", "variance", "logits", "probs", "loc", "scale", "mode"):
        return call(run, run.site(run.program.empty.module), [], {})
    return Builtin(name, call)


def _data_loader(run: Interpreter, site: ShadowSite, a: Arguments, k: Keywords) -> Value:
    return Loader(a[0] if a else k.get("dataset"), k)


def _tensor_dataset(run: Interpreter, site: ShadowSite, a: Arguments, k: Keywords) -> Value:
    return tuple(a)


def _clip(run: Interpreter, site: ShadowSite, a: Arguments, k: Keywords) -> Value:
    value = a[0] if a else k.get("parameters")
    count = len(run.trace.events)
    tensors, complete = parameter_list(run, value, site.node)
    from gradlint.trace import Exhausted

    exhausted = next((e for e in run.trace.events[count:] if isinstance(e, Exhausted)), None)
    run.tell(
        Clipped(
            site=site,
            frame=run.frame,
            tensors=tuple(tensors) if complete or tensors else None,
            exhausted=exhausted,
        )
    )
    return Number("norm", ())


def _checkpoint(run: Interpreter, site: ShadowSite, a: Arguments, k: Keywords) -> Value:
    if not a:
        return Symbol("checkpoint()")
    options = {
        "use_reentrant",
        "preserve_rng_state",
        "context_fn",
        "determinism_check",
        "debug",
        "early_stop",
    }
    passed = {name: value for name, value in k.items() if name not in options}
    result = run.call(a[0], a[1:], passed, site.node)
    given = [t for value in (*a[1:], *passed.values()) for t in run.flat(value)]
    if k.get("use_reentrant") is True and all(t.requires_grad is NO for t in given):
        for _, tensor in tensors_in(result):
            if tensor.requires_grad is YES:
                tensor.cuts = (run.cut(site, run.edge(tensor), tensor, "checkpoint"),)
                tensor.requires_grad, tensor.grad_fn = NO, None
    return result


def _compile(run: Interpreter, site: ShadowSite, a: Arguments, k: Keywords) -> Value:
    return a[0] if a else Builtin("compile", lambda run, site, a, k: a[0])


def _functional_call(run: Interpreter, site: ShadowSite, a: Arguments, k: Keywords) -> Value:
    values = [*a[1:], *k.values()]
    tensors = [t for v in values for t in run.flat(v)]
    if a and isinstance(a[0], ModuleObject) and not any(isinstance(v, dict) for v in values):
        tensors += list(a[0].tensors())
    edges = tuple(run.edge(t) for t in tensors)
    gradient = joined(e.requires_grad for e in edges) if run.grad_enabled else NO
    result = Tensor(requires_grad=gradient, site=site)
    if gradient is not NO:
        result.grad_fn = Node("functional_call", site, edges, opaque=True)
    return result


def _false(run: Interpreter, site: ShadowSite, a: Arguments, k: Keywords) -> Value:
    return False


def _is_grad_enabled(run: Interpreter, site: ShadowSite, a: Arguments, k: Keywords) -> Value:
    return run.grad_enabled


def _is_tensor(run: Interpreter, site: ShadowSite, a: Arguments, k: Keywords) -> Value:
    if a and isinstance(a[0], Symbol):
        return run.remember(("is_tensor", a[0]), lambda: Symbol("is_tensor"))
    return bool(a) and isinstance(a[0], Tensor)


HANDLERS: dict[str, Handler] = {
    "torch.no_grad": _no_grad,
    "torch.enable_grad": _enable_grad,
    "torch.inference_mode": _inference_mode,
    "torch.set_grad_enabled": _set_grad_enabled,
    "torch.is_grad_enabled": _is_grad_enabled,
    "torch.nn.Parameter": _parameter,
    "torch.nn.Buffer": lambda run, site, a, k: a[0] if a else Symbol(),
    "torch.tensor": _tensor,
    "torch.Tensor": _tensor,
    "torch.FloatTensor": _tensor,
    "torch.LongTensor": _tensor,
    "torch.cuda.FloatTensor": _tensor,
    "torch.cuda.LongTensor": _tensor,
    "torch.as_tensor": _as_tensor,
    "torch.asarray": _as_tensor,
    "torch.from_numpy": _from_numpy,
    "torch.autograd.Variable": _variable,
    "torch.autograd.grad": _autograd_grad,
    "torch.autograd.backward": _autograd_backward,
    "torch.amp.GradScaler": _grad_scaler,
    "torch.utils.data.DataLoader": _data_loader,
    "torch.utils.data.TensorDataset": _tensor_dataset,
    "torch.nn.utils.clip_grad_norm_": _clip,
    "torch.nn.utils.clip_grad_value_": _clip,
    "torch.utils.checkpoint.checkpoint": _checkpoint,
    "torch.compile": _compile,
    "torch.jit.script": _compile,
    "torch.func.functional_call": _functional_call,
    "torch.nn.utils.stateless.functional_call": _functional_call,
    "torch.jit.is_scripting": _false,
    "torch.jit.is_tracing": _false,
    "torch.compiler.is_compiling": _false,
    "torch.onnx.is_in_onnx_export": _false,
    "torch.is_tensor": _is_tensor,
    "torch.nn.utils.parameters_to_vector": lambda run, site, a, k: unknown_result(run, site, "cat", a),
}
