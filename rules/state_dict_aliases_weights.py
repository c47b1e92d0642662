from collections.abc import Iterator

from gradlint.edits import Code
from gradlint.rule import Claim, Finding, Fix, Reason
from gradlint.trace import Aliased, Mutated, Restored, Trace


def check(trace: Trace) -> Iterator[Claim]:
    for restored in trace.told(Restored):
        alias = restored.alias
        own = {id(storage) for storage in alias.storages}
        if {id(t.storage) for t in restored.module.tensors()} != own:
            continue
        # The one that is restored may be any of those that the loop took.
        taken = [a for a in trace.told(Aliased) if a.site is alias.site and a.module is alias.module]
        stepped = {m.turns for m in trace.told(Mutated) if m.turns and id(m.storage) in own}
        first = taken[0] if len(taken) < len(stepped) else alias
        for write in trace.events[first.index : restored.index]:
            if isinstance(write, Mutated) and id(write.storage) in own:
                yield Claim(
                    alias.site,
                    "this state_dict shares memory with the weights, so it is no backup",
                    (
                        Reason(write.site, "the weights are overwritten here, and the backup with them"),
                        Reason(restored.site, "what is restored here is what the weights already are"),
                    ),
                    "keep `copy.deepcopy(model.state_dict())`",
                )
                break


def fix(finding: Finding, code: Code) -> Fix | None:
    copy, imported = code.module("copy")
    call = code.call(finding.span)
    return code.fix("Keep a copy", code.surround(call, f"{copy}.deepcopy(", ")"), imported)
