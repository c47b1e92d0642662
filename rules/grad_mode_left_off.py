import ast
from collections.abc import Iterator

from gradlint.edits import Code, sure
from gradlint.rule import Claim, Finding, Fix, Reason
from gradlint.trace import NO, YES, Backward, Cut, GradMode, Trace, graph, leaves


def check(trace: Trace) -> Iterator[Claim]:
    switches = [s for s in trace.told(GradMode) if not s.scoped]
    if all(s.enabled for s in switches):
        return
    optimized = trace.optimized() or set()
    reached = {id(leaf) for b in trace.told(Backward) for leaf in leaves(b.edge.grad_fn)}
    for backward in trace.told(Backward):
        for cut in _cuts(backward):
            switch = cut.switch
            if switch is None or switch.scoped:
                continue
            if backward.edge.requires_grad is not NO:
                behind = {
                    id(leaf) for leaf in (*leaves(cut.source.grad_fn), cut.source.tensor) if leaf.requires_grad is YES
                }
                ended = any(s.enabled and switch.index < s.index < backward.index for s in switches)
                if ended or not behind & optimized - reached:
                    continue
            yield Claim(
                switch.site,
                "grad mode is switched off here and never on again: everything computed later has no graph",
                (
                    Reason(cut.site, "computed without a graph"),
                    Reason(
                        backward.site,
                        "backward raises here" if backward.edge.requires_grad is NO else "never reached from here",
                    ),
                ),
                "use it as a context: `with torch.no_grad():`",
            )
            break


def _cuts(backward: Backward) -> Iterator[Cut]:
    yield from backward.root.cuts
    for node in graph(backward.edge.grad_fn):
        for edge in node.inputs:
            if edge.requires_grad is NO:
                yield from edge.tensor.cuts


def fix(finding: Finding, code: Code) -> Fix | None:
    switch = sure(code.statement(finding.span), ast.Expr)
    block = code.block(switch)
    rest = block[block.index(switch) + 1 :]
    if code.parent(switch) is not code.function(switch) or not rest or code.parent(switch) is code.tree:
        return None
    return code.fix("Use it as a context", code.no_grad(rest), code.delete(switch))
