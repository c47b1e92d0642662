"""What autograd does with shadow tensors: operations, what they keep, mutations, cuts, backward."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from gradlint.facts import Op
from gradlint.shadow.values import Symbol, Value, tensors_in
from gradlint.trace import (
    MAYBE,
    NO,
    YES,
    Backward,
    Called,
    Cleared,
    Constructed,
    Cut,
    Edge,
    Event,
    Frame,
    GradMode,
    Known,
    Made,
    Module,
    Mutated,
    Node,
    Optimizer,
    Saved,
    Site,
    Storage,
    Tensor,
    Trace,
)

if TYPE_CHECKING:
    from gradlint.shadow.chunks import ShadowSite

# A value that passed this many cuts says no more about them.
_MOST_CUTS = 8
# A change of a tensor is passed on to this many of its views, the latest ones.
_MOST_VIEWS = 64


class Autograd:
    """Writes the trace.  `frame`, `turns` and `grad_enabled` say where and how the program is running."""

    def __init__(self, entry: str) -> None:
        self.trace = Trace(entry=entry)
        self.grad_enabled = True
        self.grad_switch: GradMode | None = None
        self.frame = Frame("module")
        self.turns: tuple[tuple[Site, int], ...] = ()
        self.backwards = 0
        self.layers = 0
        """How many modules were made or called so far."""
        self.views: dict[Tensor, list[Tensor]] = {}
        """The views of each tensor; what was made without grad stays without."""
        self.decided: list[Symbol] = []
        """The unknowns that this path has decided something about."""
        self.supposing = False
        self.mutated: Mutated | None = None

    # -- events

    def tell(self, event: Event) -> None:
        event.index = len(self.trace.events)
        if isinstance(event, (Called, Constructed)):
            self.layers += 1
        event.turns = self.turns
        event.assumed = self.supposing
        self.trace.events.append(event)

    # -- unknown values as tensors

    def as_tensor(self, value: Value) -> Tensor | None:
        """`value` as a tensor; None where it is something else.  An unknown becomes one of which little is known."""
        if isinstance(value, Tensor):
            return value
        if type(value) is not Symbol:
            return None
        if value.tensor is None:
            known = NO if value.graphless else MAYBE
            tensor = Tensor(requires_grad=known, name=value.name, certain=False, site=value.site)
            value.tensor = tensor
            self.decided.append(value)
            if value.called is not None and not value.graphless:
                self.opaque(tensor, value.called, value.arguments)
        return value.tensor

    def opaque(self, tensor: Tensor, called: Value, arguments: Sequence[Value]) -> None:
        """Make `tensor` the result of unknown code that saw `arguments`."""
        site = tensor.site or _nowhere
        edges = [self.edge(t) for a in arguments for t in self.flat(a)]
        # Calling an object (a model, a criterion) makes a graph; what a factory returns may be no tensor at all.
        tensor.grad_fn = Node(
            "call",
            site,
            tuple(e for e in edges if e.requires_grad is not NO),
            opaque=isinstance(called, Symbol),
            index=len(self.trace.events),
        )

    def flat(self, value: Value) -> list[Tensor]:
        """The tensors of a nested value; an unknown counts as one."""
        if isinstance(value, Symbol):
            tensor = self.as_tensor(value)
            return [tensor] if tensor is not None else []
        if isinstance(value, (tuple, list)):
            return [t for item in value for t in self.flat(item)]
        if isinstance(value, dict):
            return [t for item in value.values() for t in self.flat(item)]
        return [t for _, t in tensors_in(value)]

    @staticmethod
    def edge(tensor: Tensor) -> Edge:
        return Edge(tensor, tensor.grad_fn, tensor.storage.version, tensor.requires_grad)

    # -- operations

    def make(self, site: ShadowSite, requires_grad: Known = NO, name: str = "", parameter: bool = False) -> Tensor:
        """A new leaf."""
        return Tensor(requires_grad=requires_grad, site=site, name=name, is_parameter=parameter)

    def cuts_of(self, values: Iterable[Value]) -> tuple[Cut, ...]:
        found: dict[int, Cut] = {}
        for value in values:
            if cuts := getattr(value, "cuts", None):
                for cut in cuts:
                    found[id(cut)] = cut
        return tuple(found.values())[:_MOST_CUTS] if found else ()

    def operation(
        self,
        site: ShadowSite,
        op: str,
        fact: Op | None,
        bound: dict[str, Value],
        module: Module | None = None,
        extra: Sequence[Tensor] = (),
        keeps: Mapping[str, tuple[str, ...]] | None = None,
    ) -> Value:
        """The result of applying `op` to the operands `bound`; `extra` are a layer's own parameters."""
        operands = self.operands(fact, bound)
        tensors = [t for found in operands.values() for t in found]
        table = keeps if keeps is not None else fact.keeps if fact is not None else {}
        # An operand that the facts give no gradient (an index, a target, `type_as`'s other) carries no graph on.
        idle = {id(t) for name, found in operands.items() if table and name not in table for t in found}
        edges = tuple(
            self.edge(t) if id(t) not in idle else self.edge(t)._replace(grad_fn=None, requires_grad=NO)
            for t in (*tensors, *extra)
        )
        gradient = joined(e.requires_grad for e in edges)
        differentiable = fact is None or fact.differentiable
        results = self.results(site, fact, operands)
        wanted = gradient if self.grad_enabled else NO
        node = None
        if wanted is not NO and differentiable:
            node = Node(op, site, edges, module=module, index=len(self.trace.events))
            node.constants = self.cuts_of(_numbers({n: v for n, v in bound.items() if not isinstance(v, Tensor)}))
        flags = fact.differentiable_results if fact is not None else ()
        for i, result in enumerate(results):
            if node is not None and (i >= len(flags) or flags[i]):
                result.requires_grad = wanted
                result.grad_fn = node
                continue
            result.requires_grad = NO
            result.cuts = self.cuts_of([*(t for t in tensors if id(t) not in idle), *_numbers(bound)])
            if any(t.grad_of is not None or t.note == "gradient" for t in tensors):
                result.note = "gradient"
            if gradient is not NO:
                how = op if not differentiable or i < len(flags) else "no_grad"
                for edge in edges:
                    if (edge.requires_grad is YES and i == 0) or (i < len(flags) and edge.requires_grad is YES):
                        result.cuts = (*result.cuts, self.cut(site, edge, result, how))[-_MOST_CUTS:]
        if node is not None:
            node.saved = self.saved(table, operands, extra, results)
        for result in results:
            self.tell(Made(site=site, frame=self.frame, op=op, inputs=edges, output=result, node=result.grad_fn))
        if fact is not None and fact.returns == "tuple":
            return tuple(results)
        return results[0]

    def operands(self, fact: Op | None, bound: dict[str, Value]) -> dict[str, list[Tensor]]:
        """The tensors among the operands; an unknown counts as one where the operation takes a gradient for it."""
        found: dict[str, list[Tensor]] = {}
        for at, (name, value) in enumerate(bound.items()):
            if type(value) is Symbol and value.tensor is None and at and (fact is None or name not in fact.keeps):
                found[name] = []
            else:
                found[name] = self.flat(value)
        return found

    def results(self, site: ShadowSite, fact: Op | None, operands: dict[str, list[Tensor]]) -> list[Tensor]:
        count = (fact.arity or 2) if fact is not None and fact.returns == "tuple" else 1
        results = []
        for _ in range(count):
            result = Tensor(site=site)
            if fact is not None and fact.view_of and (viewed := operands.get(fact.view_of)):
                self.view(result, viewed[0])
                result.multi_view = fact.multi_view
            results.append(result)
        return results

    def view(self, result: Tensor, viewed: Tensor) -> None:
        result.storage = viewed.storage
        result.base = viewed.base or viewed
        if self.grad_enabled:
            self.views.setdefault(result.base, []).append(result)
        result.data_of = viewed.data_of
        result.grad_of = viewed.grad_of
        result.multi_view = viewed.multi_view

    @staticmethod
    def saved(
        table: Mapping[str, tuple[str, ...]],
        operands: dict[str, list[Tensor]],
        extra: Sequence[Tensor],
        results: Sequence[Tensor],
    ) -> tuple[Saved, ...]:
        """What is kept, per gradient: only the gradients that somebody may ask for keep anything."""
        named = {**operands, **{t.name.rpartition(".")[2] or "weight": [t] for t in extra}}
        found: dict[tuple[int, str], Saved] = {}
        for wanting, roles in table.items():
            asked = joined(t.requires_grad for t in named.get(wanting, ()))
            if asked is NO:
                continue
            for role in roles:
                if role.startswith("result"):
                    at = int(role[6:] or 0)
                    kept = [results[at]] if at < len(results) else []
                else:
                    kept = named.get(role, [])
                if role == "tensors" and len(kept) > 1 and wanting == "tensors":
                    # What the gradient of one element keeps of the others is not told apart.
                    asked = MAYBE if asked is YES else asked
                for tensor in kept:
                    key = id(tensor.storage), role
                    sure = asked is YES
                    if key not in found or (sure and not found[key].certain):
                        found[key] = Saved(tensor.storage, tensor.storage.version, role, sure)
            if roles and not found:
                # Something internal is kept: nobody can change it, but backward frees it.
                found[0, "internal"] = Saved(_internal, 0, "internal", asked is YES)
        return tuple(found.values())

    def cut(self, site: Site, source: Edge, result: Tensor | None, how: str) -> Cut:
        switch = self.grad_switch if how == "no_grad" else None
        event = Cut(site=site, frame=self.frame, source=source, result=result, how=how, switch=switch)
        self.tell(event)
        return event

    def detached(self, site: ShadowSite, tensor: Tensor, how: str) -> Tensor:
        """`tensor.detach()` or `tensor.data`: the value without its graph, on the same storage."""
        result = Tensor(requires_grad=NO, site=site, name=tensor.name, certain=tensor.certain)
        result.storage = tensor.storage
        result.cuts = tensor.cuts
        if tensor.requires_grad is not NO:
            event = self.cut(site, self.edge(tensor), result, how)
            if tensor.requires_grad is YES:
                result.cuts = (event,)
        if how == "data":
            result.data_of = tensor
        result.data_of = tensor.data_of or result.data_of
        result.grad_of = tensor.grad_of
        return result

    # -- mutations

    def mutate(
        self,
        site: ShadowSite,
        tensor: Tensor,
        op: str,
        fact: Op | None,
        bound: dict[str, Value],
        by: Module | None = None,
    ) -> Tensor:
        """Change `tensor` in place; torch's own refusals (leaves, multi-output views) are told and then ignored."""
        operands = self.operands(fact, bound)
        others = [t for name, found in operands.items() if name != "self" for t in found if t is not tensor]
        tracked = tensor.data_of is None
        base = tensor.base or tensor
        root = tensor if tensor.base is None else base
        leaf = tracked and self.grad_enabled and root.grad_fn is None and root.requires_grad is YES
        before = self.edge(tensor)
        if tracked:
            tensor.storage.version += 1
        event = Mutated(
            site=site,
            frame=self.frame,
            tensor=tensor,
            storage=tensor.storage,
            op=op,
            tracked=tracked,
            grad_enabled=self.grad_enabled,
            version=tensor.storage.version,
            by=by,
            leaf=leaf,
            value=others[0] if len(others) == 1 else None,
            multi_view=tracked and self.grad_enabled and tensor.multi_view and base.requires_grad is YES,
        )
        self.tell(event)
        self.mutated = event
        tensor.storage.mutations.append(event)
        if tensor.grad_of is not None and op in ("zero_", "fill_"):
            self.tell(Cleared(site=site, frame=self.frame, tensors=(tensor.grad_of,), in_place=True))
        if not self.grad_enabled or leaf:
            if not self.grad_enabled:
                self.remember_cuts(tensor, others)
            return tensor
        edges = (before, *(self.edge(t) for t in others))
        gradient = joined(e.requires_grad for e in edges)
        if gradient is NO:
            self.remember_cuts(tensor, [*others, *_numbers(bound)])
            return tensor
        node = Node(op, site, edges, index=len(self.trace.events))
        node.constants = self.cuts_of(_numbers({n: v for n, v in bound.items() if not isinstance(v, Tensor)}))
        tensor.grad_fn, tensor.requires_grad = node, gradient
        if fact is not None:
            table = {
                wanting: tuple(role for role in roles if role != "self")
                for wanting, roles in (fact.keeps_inplace or fact.keeps).items()
            }
            first = next(iter(operands), "self")
            operands = {**operands, first: [Tensor(requires_grad=before.requires_grad)]}
            node.saved = self.saved(table, operands, (), [tensor])
        if tensor.base is not None:
            whole = Node("copy_slices", site, (self.edge(base), *(self.edge(t) for t in others)), index=node.index)
            base.requires_grad = joined((base.requires_grad, gradient))
            whole.saved = node.saved
            base.grad_fn = whole
        if views := self.views.get(base):
            # Views follow their base: torch makes their grad_fn anew.
            again = Node("view", site, (self.edge(base),), index=node.index)
            for view in views[-_MOST_VIEWS:]:
                if view is not tensor:
                    view.requires_grad, view.grad_fn = base.requires_grad, again
        if tracked:
            self.tell(Made(site=site, frame=self.frame, op=op, inputs=edges, output=tensor, node=node))
        return tensor

    def remember_cuts(self, tensor: Tensor, others: Sequence[Value]) -> None:
        for target in (tensor, tensor.base):
            if target is not None and target.requires_grad is NO:
                target.cuts = self.cuts_of([target, *others])

    def stepped(self, site: Site, optimizer: Optimizer) -> None:
        """An optimizer's step writes every parameter it holds."""
        for tensor in optimizer.parameters:
            tensor.storage.version += 1
            event = Mutated(
                site=site,
                frame=self.frame,
                tensor=tensor,
                storage=tensor.storage,
                op="step",
                tracked=True,
                grad_enabled=False,
                version=tensor.storage.version,
                by=optimizer,
            )
            self.tell(event)
            tensor.storage.mutations.append(event)

    # -- backward

    def backward(self, site: Site, root: Tensor, retain: Known, create: Known, **more: object) -> Backward:
        self.backwards += 1
        event = Backward(
            site=site,
            frame=self.frame,
            root=root,
            edge=self.edge(root),
            retain=YES if retain is NO and create is YES else retain,
            create=create,
        )
        event = dataclasses.replace(event, **more)  # type: ignore[arg-type]
        self.tell(event)
        return event


def joined(facts: Iterable[Known]) -> Known:
    """Whether any of the operands requires grad."""
    result = NO
    for fact in facts:
        if fact is YES:
            return YES
        if fact is MAYBE:
            result = MAYBE
    return result


def _numbers(bound: dict[str, Value]) -> list[Value]:
    """What is no tensor among the operands, containers opened."""
    found: list[Value] = []
    todo = list(bound.values())
    while todo:
        value = todo.pop()
        if isinstance(value, (tuple, list)):
            todo.extend(value)
        elif getattr(value, "cuts", ()):
            found.append(value)
    return found


_internal = Storage()
_nowhere = Site()

__all__ = ["Autograd", "joined"]
