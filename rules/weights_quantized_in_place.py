from collections.abc import Iterator

from gradlint.rule import Claim, Reason
from gradlint.trace import Mutated, Trace


def check(trace: Trace) -> Iterator[Claim]:
    for write in trace.told(Mutated):
        value = write.value
        if (
            (write.tracked and write.op != "copy_")
            or not write.tensor.certain
            or value is None
            or value.note != "quantized"
        ):
            continue
        weight = write.tensor.data_of or write.tensor
        if not weight.is_parameter or not any(f.function == "forward" for f in write.frame.stack()):
            continue
        rounded = [Reason(value.site, "rounded here")] if value.site is not None else []
        yield Claim(
            write.site,
            f"forward overwrites `{weight.name or 'the weight'}` with its rounded copy",
            (*rounded, Reason(write.site, "the full-precision weight is lost here")),
            "keep the weight and use a rounded copy: `w + (quantize(w) - w).detach()`",
        )
