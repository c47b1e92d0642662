from collections.abc import Iterator

from gradlint.rule import Claim, Reason
from gradlint.trace import YES, Backward, Built, Cut, Returned, Stepped, Trace, graph, leaves

on_every_path = True


def check(trace: Trace) -> Iterator[Claim]:
    optimized = trace.optimized()
    backwards = [b for b in trace.told(Backward) if not b.assumed]
    if optimized is None or not trace.whole_program or not backwards or not trace.told(Stepped):
        return
    visited = {id(node) for b in backwards for node in graph(b.edge.grad_fn)}
    reached = {id(leaf) for b in backwards for leaf in leaves(b.edge.grad_fn)}
    # What is read and then cut from the graph is another rule's.
    read = {id(cut.source.grad_fn) for cut in trace.told(Cut)}
    built = trace.told(Built)[0]
    for returned in trace.told(Returned):
        if returned.place is None or len(returned.outputs) < 2:
            continue
        if not any(id(t.grad_fn) in visited for _, t in returned.outputs):
            continue
        for place, tensor in returned.outputs:
            if tensor.requires_grad is not YES or id(tensor.grad_fn) in visited | read:
                continue
            lost = [leaf for leaf in leaves(tensor) if id(leaf) in optimized and id(leaf) not in reached]
            if lost:
                names = ", ".join(f"`{p.name}`" for p in lost[:2])
                yield Claim(
                    returned.place,
                    f"no loss reads the output `{place}`, so {names} never learn",
                    (Reason(returned.site, "called here"), Reason(built.site, "the optimizer holds them")),
                    "add a loss on this output, or remove it with its layers",
                )
