import ast
from collections.abc import Iterator

from gradlint.edits import Code, sure
from gradlint.rule import Claim, Finding, Fix, Reason
from gradlint.trace import YES, Backward, Edge, Made, Trace, leaves


def check(trace: Trace) -> Iterator[Claim]:
    if not trace.told(Backward):
        return
    for made in trace.told(Made):
        if made.op != "mul" or len(made.inputs) != 2:
            continue
        for score, weight in (made.inputs, made.inputs[::-1]):
            if score.tensor.note != "log_prob" or weight.tensor.note == "log_prob":
                continue
            if score.requires_grad is not YES or weight.requires_grad is not YES:
                continue
            policy, value = _owners(score), _owners(weight)
            # Layers of its own: a weight made from the policy alone (an entropy) is meant to carry its graph.
            if policy - value and value - policy:
                source = weight.tensor.site
                yield Claim(
                    made.site,
                    f"`{weight.tensor.name or 'the weight of the log-probability'}` requires grad: "
                    "the policy's loss trains the network that it comes from",
                    (Reason(source, "it depends on that network here"),) if source is not None else (),
                    "detach the weight: `advantage.detach()`",
                )


def _owners(edge: Edge) -> set[int]:
    return {id(leaf) for leaf in leaves(edge.grad_fn) if leaf.is_parameter and leaf.requires_grad is YES}


def fix(finding: Finding, code: Code) -> Fix | None:
    product = sure(code.expression(finding.span), ast.BinOp)
    for weight in (product.left, product.right):
        source = code.source(weight)
        if finding.message.startswith(f"`{source}`") or any(code.stands_at(weight, b.span) for b in finding.because):
            return code.fix(f"Detach `{source}`", code.append(weight, ".detach()"))
    return None
