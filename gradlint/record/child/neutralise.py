"""Leaves one fault out of a run, so that its gradients can be compared with those of the run that has it.

`plan["neutralise"]` says how and where: `uncut` (what leaves the graph there stays in it), `zero_grad` (gradients
that a step has used are cleared before the backward there), `keep copies` (backward sees what was kept, whatever is
written meanwhile).
"""

from __future__ import annotations

from typing import Any

import torch

_SCALARS = frozenset({"item", "__float__"})


class Neutraliser:
    """The one fault that this run leaves out."""

    def __init__(self, how: str, path: str, span: tuple[int, int, int, int]) -> None:
        self.how = how
        self.path = path
        self.span = span
        self.times = 0
        """How often it was left out."""
        self.stepped = False
        """An optimizer has stepped since the last backward at the place."""

    def start(self) -> None:
        """What holds for the whole run."""
        if self.how == "keep copies":
            torch.autograd.graph.saved_tensors_hooks(torch.clone, _itself).__enter__()
            self.times = 1

    def is_here(self, path: str, position: tuple[int | None, ...]) -> bool:
        """Whether a place lies in the span, or holds it."""
        line, column, end_line, end_column = position
        first, start, last, end = self.span
        if path != self.path or line is None or end_line is None:
            return False
        if column is None or end_column is None:
            return first <= line <= last
        inside = (first, start) <= (line, column) and (end_line, end_column) <= (last, end)
        around = (line, column) <= (first, start) and (last, end) <= (end_line, end_column)
        return inside or around

    def instead(self, name: str, arguments: tuple[Any, ...]) -> Any:
        """What a call at the place gives instead; NotImplemented where it is left as it is."""
        if self.how != "uncut" or not arguments:
            return NotImplemented
        value = arguments[0]
        if name in ("detach", "detach_", "data", *_SCALARS) and isinstance(value, torch.Tensor):
            self.times += 1
            return value
        if name == "_set_grad_enabled" and value is False:
            self.times += 1
            return None
        scalars = isinstance(value, (list, tuple)) and bool(value)
        if name in ("tensor", "as_tensor") and scalars and all(_is_scalar(item) for item in value):
            self.times += 1
            return torch.stack(list(value))
        return NotImplemented

    def before_backward(self, optimizers: list[Any]) -> None:
        """Clear what a step has used, where nothing else does."""
        if self.how == "zero_grad" and self.stepped:
            self.stepped = False
            self.times += 1
            for optimizer in optimizers:
                for group in optimizer.param_groups:
                    for parameter in group["params"]:
                        parameter.grad = None


class Gradients:
    """The gradients of the first steps, kept for a later run or compared with those of an earlier one."""

    MOST = 2 << 30
    """Bytes that are kept; the run goes on without the rest."""

    def __init__(self, keep: str | None, compare: str | None) -> None:
        self.keep = keep
        self.bytes = 0
        self.kept: dict[tuple[int, int], list[torch.Tensor | None]] = {}
        self.earlier: dict[tuple[int, int], list[torch.Tensor | None]] = {}
        if compare is not None:
            self.earlier = torch.load(compare, map_location="cpu", weights_only=True)

    def see(
        self, optimizer: int, step: int, parameters: list[torch.Tensor]
    ) -> list[tuple[int, float | None, float | None, float]]:
        """Rows of index, norm in the earlier run, norm now, and relative difference, where the two differ."""
        rows: list[tuple[int, float | None, float | None, float]] = []
        before = self.earlier.get((optimizer, step))
        if before is not None and len(before) == len(parameters):
            for at, (parameter, old) in enumerate(zip(parameters, before, strict=True)):
                new = parameter.grad
                if old is None or new is None:
                    if (old is None) != (new is None):
                        rows.append((at, _norm(old), _norm(new), 1.0))
                    continue
                now = new.detach().to("cpu", torch.float32)
                scale = max(float(old.norm()), float(now.norm()), 1e-30)
                rows.append((at, float(old.norm()), float(now.norm()), float((old - now).norm()) / scale))
        if self.keep is not None and self.bytes < self.MOST:
            kept = [
                p.grad.detach().to("cpu", torch.float32).clone() if p.grad is not None else None for p in parameters
            ]
            self.bytes += sum(4 * g.numel() for g in kept if g is not None)
            self.kept[optimizer, step] = kept
        return rows

    def save(self) -> None:
        """Write what was kept, for the runs that follow."""
        if self.keep is not None:
            torch.save(self.kept, self.keep)


def _itself(kept: torch.Tensor) -> torch.Tensor:
    return kept


def _is_scalar(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() == 0


def _norm(gradient: torch.Tensor | None) -> float | None:
    return float(gradient.detach().float().norm()) if gradient is not None else None
