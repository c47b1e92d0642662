from collections.abc import Iterator

from gradlint.edits import Code
from gradlint.rule import Claim, Finding, Fix, Reason
from gradlint.trace import NO, YES, Backward, Built, Cut, Made, Stepped, Trace, graph, leaves

on_every_path = True
neutralise = "uncut"


def check(trace: Trace) -> Iterator[Claim]:
    optimized = trace.optimized()
    backwards = [b for b in trace.told(Backward) if not b.assumed]
    if not trace.whole_program or optimized is None or not backwards or not trace.told(Stepped):
        return
    if any(b.edge.requires_grad is NO for b in backwards):
        return
    reached: set[int] = set()
    passed: dict[int, Cut] = {}
    for backward in backwards:
        reached.update(id(leaf) for leaf in leaves(backward.edge.grad_fn))
        for node in graph(backward.edge.grad_fn):
            passed.update((id(cut), cut) for cut in node.constants)
            for edge in node.inputs:
                if edge.requires_grad is NO:
                    passed.update((id(cut), cut) for cut in edge.tensor.cuts)
    held = {id(p): (p, b) for b in trace.told(Built) for p in b.optimizer.parameters if p.requires_grad is YES}
    if trace.cut_short:
        # The turn of an optimizer that has not stepped yet may still come.
        stepped = {id(step.optimizer) for step in trace.told(Stepped)}
        held = {key: (p, b) for key, (p, b) in held.items() if id(b.optimizer) in stepped}
    used = {id(e.tensor) for made in trace.told(Made) for e in made.inputs if id(e.tensor) in held}
    silent = {key for key in held if key not in reached and key in used}
    for cut in passed.values():
        if cut.how in ("sample", "checkpoint"):
            continue
        if cut.switch is not None and not cut.switch.scoped:
            continue
        behind = {id(leaf) for leaf in leaves(cut.source.grad_fn)} | {id(cut.source.tensor)}
        lost = [held[key] for key in held if key in behind & silent]
        if not lost:
            continue
        names = [p.name for p, _ in lost if p.name]
        some = f"`{names[0]}`" + (f" and {len(lost) - 1} more" if len(lost) > 1 else "") if names else "parameters"
        site = cut.switch.site if cut.switch is not None else cut.site
        verb = "gets" if len(lost) == 1 else "get"
        yield Claim(
            site,
            f"{some} {verb} no gradient: every way to the loss is cut here by `{cut.how}`",
            (
                Reason(lost[0][1].site, f"this optimizer was given {some}"),
                Reason(cut.site, "the value leaves the graph here"),
            ),
            "remove the cut, or leave these parameters out of the optimizer if they are meant to stay fixed",
            about=lost[0][1].site,
        )


def fix(finding: Finding, code: Code) -> Fix | None:
    return code.fix("Keep the graph", code.uncut(finding.span))
