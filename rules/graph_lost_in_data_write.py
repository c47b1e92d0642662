from collections.abc import Iterator

from gradlint.rule import Claim, Reason
from gradlint.trace import YES, Mutated, Trace, graph


def check(trace: Trace) -> Iterator[Claim]:
    for write in trace.told(Mutated):
        value = write.value
        if write.tracked or value is None or value.requires_grad is not YES:
            continue
        source = next((node for node in graph(value) if node.op == "grad"), None)
        if source is not None:
            yield Claim(
                write.site,
                "this value carries the graph of create_graph=True, and a write through `.data` drops it",
                (
                    Reason(source.site, "the gradient was made differentiable here"),
                    Reason(write.site, "no later loss has a path through it"),
                ),
                "compute new parameters (`p - lr * g`) and call the model with `torch.func.functional_call`",
            )
