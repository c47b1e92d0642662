import ast
from collections.abc import Iterator

from gradlint.edits import Code, sure
from gradlint.rule import Claim, Finding, Fix, Reason
from gradlint.trace import Backward, GradMode, Site, Stored, Trace, graph

steps = 2


def check(trace: Trace) -> Iterator[Claim]:
    # Who streams under no_grad somewhere knows what a graph costs, and a path past it says little.
    if not trace.whole_program or any(not switch.enabled for switch in trace.told(GradMode)):
        return
    visited = {id(node) for b in trace.told(Backward) for node in graph(b.edge.grad_fn)}
    first: dict[tuple[Site, int], Stored] = {}
    for stored in trace.told(Stored):
        node = stored.tensor.grad_fn
        if stored.where != "attribute" or node is None or id(node) in visited:
            continue
        before = first.setdefault((stored.site, id(stored.frame.owner)), stored)
        if before is stored or not _other_turn(before, stored):
            continue
        if before.tensor is not stored.tensor and any(n is before.tensor.grad_fn for n in graph(node)):
            yield Claim(
                stored.site,
                f"`{stored.name}` carries its graph into the next iteration and nothing cuts it: it grows without end",
                (Reason(node.site, "each turn adds to the graph of the turn before"),),
                "keep it detached: `self.hidden = hidden.detach()`",
            )


def _other_turn(before: Stored, stored: Stored) -> bool:
    """Whether the outermost loop around both has moved on."""
    if not before.turns or not stored.turns:
        return False
    (loop, turn), (same, later) = before.turns[0], stored.turns[0]
    return loop is same and turn != later


# What their call gives back as a state: one tensor, or several.
_ONE, _SEVERAL = frozenset({"GRU", "RNN", "GRUCell", "RNNCell"}), frozenset({"LSTM"})


def fix(finding: Finding, code: Code) -> Fix | None:
    statement = sure(code.statement(finding.span), ast.Assign)
    parts = [part for target in statement.targets for part in ast.walk(target) if isinstance(part, ast.Attribute)]
    layer = code.built_as(statement.value.func) if isinstance(statement.value, ast.Call) else ""
    several = layer in _SEVERAL
    if len(parts) != 1 or not (several or layer in _ONE or isinstance(statement.value, ast.BinOp)):
        return None
    state = code.source(parts[0])
    reads = [
        node for node in ast.walk(statement.value) if isinstance(node, ast.Attribute) and code.source(node) == state
    ]
    if not several and reads and not code.starts_as_none(state, statement):
        return code.fix(f"Detach `{state}`", *(code.append(read, ".detach()") for read in reads))
    later = [node for node in ast.walk(code.function(statement)) if isinstance(node, ast.Attribute)]
    if any(code.source(node) == state and node.lineno > statement.lineno for node in later):
        return None
    cut = f"tuple(part.detach() for part in {state})" if several else f"{state}.detach()"
    return code.fix(f"Detach `{state}`", code.insert_after(statement, f"{state} = {cut}"))
