from collections.abc import Iterator

from gradlint.rule import Claim
from gradlint.trace import Discarded, Trace

# Run for their time, to warm up a device, or for their check of shapes; a dropped result is meant.
_RUN_FOR_THEIR_COST = frozenset(
    [
        "matmul",
        "mm",
        "bmm",
        "add",
        "mul",
        "conv1d",
        "conv2d",
        "conv3d",
        "linear",
        "einsum",
        "sum",
        "mean",
        "item",
        "size",
        "clone",
        "cumsum",
        "sort",
        "expand",
        "broadcast_tensors",
        "view",
        "view_as",
        "numpy",
        "tolist",
        "contiguous",
        "__getitem__",
        "scaled_dot_product_attention",
        "all_reduce",
        "sigmoid",
        "relu",
        "softmax_",
        "dropout",
        "cross_entropy",
        "nonzero",
        "argmax",
        "argsort",
        "max",
        "min",
    ]
)


def check(trace: Trace) -> Iterator[Claim]:
    for drop in trace.told(Discarded):
        if not drop.certain or drop.op in _RUN_FOR_THEIR_COST:
            continue
        name = f": `{drop.operand_name}` stays as it was" if drop.operand_name else ""
        yield Claim(
            drop.site,
            f"the result of `{drop.op}` is dropped{name}",
            (),
            f"assign the result, or use the in-place form `{drop.in_place}`" if drop.in_place else "assign the result",
        )
