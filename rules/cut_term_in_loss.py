from collections.abc import Iterator

from gradlint.edits import Code
from gradlint.rule import Claim, Finding, Fix, Reason
from gradlint.trace import (
    NO,
    YES,
    Backward,
    Cleared,
    Cut,
    Edge,
    Mutated,
    Node,
    Optimizer,
    Stepped,
    Trace,
    graph,
    leaves,
)

neutralise = "uncut"

_ADDS = frozenset({"add", "add_", "sub", "sub_"})
_SCALES = frozenset(
    {"mul", "mul_", "div", "div_", "neg", "sum", "mean", "scale", "squeeze", "view", "clone", "to", "float"}
)
# A sample is drawn, a mask or a baseline is computed without grad on purpose.
_MEANT = frozenset({"no_grad", "sample", "checkpoint", "size"})


def check(trace: Trace) -> Iterator[Claim]:
    optimized = trace.optimized()
    if optimized is None:
        return
    for backward in trace.told(Backward):
        if backward.assumed or backward.wanted is not None or backward.edge.requires_grad is NO:
            continue
        owners = _stepping(trace, backward)
        own = {id(p) for optimizer in owners for p in optimizer.parameters if p.requires_grad is YES}
        if not own:
            continue
        terms, constants = _terms(backward.edge)
        main = {id(t.grad_fn) for t in terms if t.grad_fn is not None}
        for cut in constants:
            yield from _claim(cut, own, main, backward)
        for write in trace.told(Mutated):
            hidden = not write.tracked and write.index < backward.index and write.tensor.data_of is backward.root
            for cut in write.value.cuts if hidden and write.value is not None else ():
                yield from _claim(cut, own, main, backward, write)
        for term in terms:
            if term.requires_grad is NO:
                for cut in term.tensor.cuts:
                    yield from _claim(cut, own, main, backward)
            elif len(terms) > 1 and not _reaches(term.grad_fn, own):
                for cut in _cuts_inside(term.grad_fn):
                    yield from _claim(cut, own, main, backward)
            else:
                for cut in _fed_to_another(term.grad_fn, own, optimized):
                    yield from _claim(cut, own, main, backward)


def _stepping(trace: Trace, backward: Backward) -> list[Optimizer]:
    """The optimizers whose next step uses this backward's gradients."""
    found: list[Optimizer] = []
    cleared: set[int] = set()
    for event in trace.events[backward.index + 1 :]:
        if isinstance(event, Cleared):
            if event.tensors is None:
                break
            cleared.update(id(t) for t in event.tensors)
        elif isinstance(event, Backward) and event.site is backward.site:
            break
        elif isinstance(event, Stepped):
            uses = any(id(p) not in cleared for p in event.optimizer.parameters)
            found += [event.optimizer] if uses and event.optimizer not in found else []
    return found


def _terms(root: Edge) -> tuple[list[Edge], list[Cut]]:
    """The summands of a loss, and the cuts behind the plain numbers that were added to it."""
    terms: list[Edge] = []
    constants: list[Cut] = []
    todo = [root]
    seen: set[int] = set()
    while todo:
        edge = todo.pop()
        node = edge.grad_fn
        if node is None or id(node) in seen:
            if node is None:
                terms.append(edge)
            continue
        seen.add(id(node))
        if node.op in _ADDS:
            todo.extend(node.inputs)
            constants.extend(node.constants)
        elif node.op in _SCALES and len(node.inputs) == 1:
            todo.extend(node.inputs)
        else:
            terms.append(edge)
    return terms, constants


def _reaches(node: Node | None, own: set[int]) -> bool:
    return any(id(leaf) in own for leaf in leaves(node))


def _cuts_inside(node: Node | None) -> list[Cut]:
    found: dict[int, Cut] = {}
    for inner in graph(node):
        for edge in inner.inputs:
            if edge.requires_grad is NO:
                found.update((id(cut), cut) for cut in edge.tensor.cuts)
    return list(found.values())


def _fed_to_another(node: Node | None, own: set[int], optimized: set[int]) -> Iterator[Cut]:
    """Cuts whose value goes straight into layers that another optimizer trains: D(fake.detach()) for G's loss."""
    reached = {id(leaf) for leaf in leaves(node)}
    for inner in graph(node):
        weights = [e.tensor for e in inner.inputs if e.tensor.is_parameter]
        if not weights or any(id(w) in own or id(w) not in optimized for w in weights):
            continue
        for edge in _feeding(inner):
            for cut in edge.tensor.cuts:
                behind = {id(leaf) for leaf in leaves(cut.source.grad_fn)} & own
                if behind and not behind <= reached:
                    yield cut


def _feeding(node: Node) -> Iterator[Edge]:
    """The inputs without gradient of a layer, seen through `cat` and the like."""
    for edge in node.inputs:
        if edge.requires_grad is NO:
            yield edge
        elif edge.grad_fn is not None and edge.grad_fn.op in ("cat", "stack", "add", "concat"):
            yield from (inner for inner in edge.grad_fn.inputs if inner.requires_grad is NO)


def _claim(
    cut: Cut, own: set[int], main: set[int], backward: Backward, write: Mutated | None = None
) -> Iterator[Claim]:
    if cut.how in _MEANT or cut.source.grad_fn is None or id(cut.source.grad_fn) in main:
        return
    if not _reaches(cut.source.grad_fn, own):
        return
    name = cut.source.tensor.name
    yield Claim(
        cut.site if write is None else write.site,
        f"`{cut.how}` cuts {f'`{name}`' if name else 'this value'} from the graph: its term of the loss is a constant "
        "for the parameters that are stepped next",
        (
            Reason(cut.site, "cut from the graph here"),
            Reason(backward.site, "backpropagated here, where this term trains nothing"),
        ),
        "keep the tensor: no `item()`, `detach()`, `argmax` or `torch.tensor` on the way into the loss",
    )


def fix(finding: Finding, code: Code) -> Fix | None:
    return code.fix("Keep the graph", code.uncut(finding.span))
