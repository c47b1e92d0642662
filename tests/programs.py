"""Writes programs: gradient-relevant statements in every nesting of control flow.

All conditions are concrete, or (`unknown`) some ask `sys.argv` for a flag.  The tensors `x0`, `x1`, ... have two rows
of three numbers, `w0` and `w1` are leaves that require grad, `v0` and `v1` have three numbers, `l0` is a loss.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

FLAGS = ("f0", "f1", "f2")
PLAIN = ("x0", "x1", "x2")
WEIGHTS = ("w0", "w1")
ROWS = ("v0", "v1")
TENSORS = (*PLAIN, *WEIGHTS, *ROWS, "l0")
LOOKED_AT = (*TENSORS, "z[0]", "z[1]", "n", "trail")

# {t} is a tensor that may be bound or changed, {a} and {b} any two, {v} and {u} rows, {w} a weight.
MAKES = (
    "{a} * 2", "{a} + {b}", "{a} - {b}", "{a} * {b}", "{b} * {a}", "{a} / 2", "{a} / ({b} * {b} + 1)", "-{a}",
    "1 - {a}", "{a} ** 2", "2 / ({a} * {a} + 1)", "{a}.exp()", "torch.sigmoid({a})", "{a}.tanh()", "{a}.relu()",
    "F.relu({a})", "{a}.sin()", "{a}.abs()", "{a}.clone()", "{a}.detach()", "{a}.detach().clone()", "{a}.data",
    "{a}.clamp(min=0)", "torch.stack([{v}, {u}])", "torch.cat([{v}, {u}]).view(2, 3)", "torch.where({a} > 0, {a}, {b})",
    "torch.tensor({a}.tolist())", "{a} * {b}.sum().item()", "torch.zeros_like({a})", "{a}.mean() * {b}",
    "{a}.softmax(dim=1)", "{a}.t().t()", "{a}[:, :]", "{a}.view(2, 3)", "{a}.masked_fill({b} > 0, 0.0)",
    "(lambda p: p * 2)({a})", "[p * 2 for p in ({a}, {b})][0]", "{a} @ torch.eye(3)",
    "{a} + {v}", "{v} * {a}", "torch.add({a}, {b}, alpha=2)", "torch.mul({a}, {b})", "{a}.expand(2, 3)",
    "{a}.unsqueeze(0).squeeze(0)", "torch.ones(2, 3, requires_grad=True)", "{a} if {a}.requires_grad else {b}",
    "z[0]", "z[1] + {a}", "({a} > 0).float()", "F.softplus({a})", "torch.maximum({a}, {b})",
    "{a}.cumsum(0)", "{a}.flip(0)", "dict(p={a}, q={b})['q']", "lin({a})",
    "{a}.detach().requires_grad_()", "{a}.clone().detach_()",
)  # fmt: skip
CHANGES = (
    "{t} += 1", "{t} *= 2", "{t} += {a}", "{t} *= {a}", "{t} -= {a}", "{t} /= 2", "{t}.mul_(2)", "{t}.add_({a})",
    "{t}.mul_({a})", "{t}.sigmoid_()", "{t}.tanh_()", "{t}.relu_()", "{t}.exp_()", "{t}.zero_()", "{t}.fill_(1.0)",
    "{t}.copy_({a})", "{t}.clamp_(0, 1)", "{t}[0] = 1.0", "{t}[0] = {v}", "{t}[0] += 1", "{t}[0] *= {v}",
    "{t}[0].mul_(2)", "{t}[:, 0] = 0.0", "{t}[{a} > 0] = 0.0", "{t}.data.mul_(2)", "{t}.data = {a}.detach()",
    "F.relu({t}, inplace=True)", "{t}.sub_({a}, alpha=2)", "{t}.div_(2)", "{t}.neg_()",
    "{t}.masked_fill_({a} > 0, 0.0)",
    "{t}.detach().add_(1)", "z[0] += 1", "z[1].mul_({a})", "torch.relu_({t})", "nn.init.zeros_({t})",
)  # fmt: skip
ROW_MAKES = (
    "{v} = {a}[0]", "{v} = {a}[1]", "{v} = {a}.sum(0)", "{v}, {u} = {a}.unbind()", "{v}, {u} = {a}[0], {a}[1]",
    "{v}, {u} = {a}", "{v} = {v}.detach()", "{v} = {v}.clone()", "{v} = {u} * 2", "{v} = {a}.view(6)[:3]",
    "{v} = {u} * {v}", "{v}, {u} = {u}, {v}", "{v} = [q for q in {a}][0]",
)  # fmt: skip
ROW_CHANGES = (
    "{v} += 1", "{v}.mul_(2)", "{v} *= {u}", "{v}[0] = 1.0", "{v} -= {u}", "{v}.zero_()", "{v}.data.add_(1)",
)  # fmt: skip
LOSSES = (
    "l0 = {a}.sum()", "l0 = ({a} * {b}).mean()", "l0 = l0 + {a}.sum()", "l0 = {a}.pow(2).sum()",
    "l0 = l0.detach() + {a}.sum()",
    "l0 = F.mse_loss({a}, {b})", "l0 = {v}.sum()",
)  # fmt: skip
BACKWARDS = (
    "l0.backward()", "l0.backward(retain_graph=True)", "({a} * {w}).sum().backward()", "{a}.sum().backward()",
    "({w} * {w}).sum().backward()", "({a}.sum() + l0).backward()",
)  # fmt: skip
STEPS = (
    "opt.zero_grad()", "(w0.sum() + w1.sum()).backward(); opt.step()", "{w}.grad = None",
    "opt.zero_grad(set_to_none=False)",
)  # fmt: skip
HOLDS = ("z = [{a}, {b}]", "z[0] = {a}", "z[1] = {a} * 2", "z.append(z.pop(0))", "z = [q * 2 for q in z]", "z = [*z]")
CONTEXTS = (
    "torch.no_grad()", "torch.enable_grad()", "torch.set_grad_enabled(False)", "torch.set_grad_enabled(True)",
    "torch.set_grad_enabled(n > 1)",
)  # fmt: skip


class Writer:
    """Writes one program."""

    def __init__(self, seed: int, unknown: bool = False, daring: float = 0.25) -> None:
        self.random = random.Random(seed)  # noqa: S311 - no secret
        self.unknown = unknown
        self.daring = daring
        """How often it writes what torch may refuse."""
        self.lines: list[str] = []
        self.depth = 0
        self.room = self.random.randint(6, 20)
        self.count = 0
        self.plain: Sequence[str] = PLAIN
        self.weights: Sequence[str] = WEIGHTS
        self.loops: list[str] = []
        self.inside_function = False
        self.functions: list[str] = []

    def program(self) -> str:
        self.lines = [
            "import sys",
            "import torch",
            "from torch import nn",
            "from torch.nn import functional as F",
            "w0 = torch.ones(2, 3, requires_grad=True)",
            "w1 = torch.full((2, 3), 0.5, requires_grad=True)",
            "lin = nn.Linear(3, 3)",
            "opt = torch.optim.SGD([w0, w1], lr=0.1)",
            "x0 = torch.ones(2, 3)",
            self.pick("x1 = w0 * 2", "x1 = w0.clone()", "x1 = lin(w0)", "x1 = torch.zeros(2, 3)"),
            self.pick("x2 = torch.zeros(2, 3)", "x2 = torch.sigmoid(w1)", "x2 = torch.zeros(2, 3, requires_grad=True)"),
            self.pick("v0 = torch.ones(3)", "v0 = x1[0]"),
            "v1 = torch.ones(3)",
            "l0 = (w0 * x1).sum()",
            "z = [x0, x1]",
            "n = 0",
            "trail = []",
        ]
        if self.unknown:
            self.lines += [f"{flag} = '{flag}' in sys.argv" for flag in FLAGS]
        while self.room > 0:
            self.statement()
        self.write("end = 0")
        return "\n".join(self.lines) + "\n"

    def write(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def pick(self, *options: str) -> str:
        return self.random.choice(options)

    def fill(self, template: str, changed: str = "") -> str:
        names = [*self.plain, *self.weights]
        v, u = self.random.sample(ROWS, 2)
        fields = {
            "t": changed or self.pick(*self.plain),
            "a": self.pick(*names),
            "b": self.pick(*names),
            "w": self.pick(*self.weights),
            "v": v,
            "u": u,
        }
        for name, value in fields.items():
            template = template.replace("{" + name + "}", value)
        return template

    def body(self, *, least: int = 1) -> None:
        self.depth += 1
        for _ in range(self.random.randint(least, 3)):
            self.statement()
        if not self.lines[-1].startswith("    " * self.depth):
            self.write("pass")
        self.depth -= 1

    def statement(self) -> None:
        self.room -= 1
        if self.depth < 3 and self.room > 0 and self.random.random() < 0.4:
            self.random.choice(self.compounds())()
        elif self.loops and self.random.random() < 0.1:
            self.leave()
        else:
            self.simple()

    # -- simple statements

    def simple(self) -> None:
        chance = self.random.random()
        if chance < 0.06:
            self.count += 1
            self.write(f"trail.append({self.count})" if not self.inside_function else "n")
        elif chance < 0.1 and not self.inside_function:
            self.write("n += 1")
        elif chance < 0.35:
            self.write(self.fill("{t} = " + self.random.choice(MAKES)))
        elif chance < 0.62:
            self.change(self.fill(self.random.choice(CHANGES), self.target()))
        elif self.inside_function:
            self.write(self.fill("{t} = " + self.random.choice(MAKES)))
        elif chance < 0.70:
            self.write(self.fill(self.random.choice(ROW_MAKES)))
        elif chance < 0.75:
            self.change(self.fill(self.random.choice(ROW_CHANGES)))
        elif chance < 0.82:
            self.write(self.fill(self.random.choice(LOSSES)))
        elif chance < 0.92:
            self.backward(self.fill(self.random.choice(BACKWARDS)))
        elif chance < 0.95:
            self.write(self.fill(self.random.choice(STEPS)))
        else:
            self.write(self.fill(self.random.choice(HOLDS)))

    def target(self) -> str:
        weight = not self.inside_function and self.random.random() < 0.12
        return self.pick(*self.weights) if weight else self.pick(*self.plain)

    def change(self, line: str) -> None:
        """A change in place; unless daring, only where torch allows one."""
        name = line.split("[", maxsplit=1)[0].split(".", maxsplit=1)[0].split(" ", maxsplit=1)[0]
        leaf = name if name in (*self.plain, *self.weights, *ROWS, "z") else ""
        if self.random.random() < self.daring or not leaf:
            self.write(line)
        elif leaf in self.weights or self.random.random() < 0.2:
            self.write("with torch.no_grad():")
            self.write("    " + line)
        elif leaf == "z":
            self.write(f"if not ({line[:4]}.is_leaf and {line[:4]}.requires_grad):")
            self.write("    " + line)
        else:
            self.write(f"if not ({leaf}.is_leaf and {leaf}.requires_grad):")
            self.write("    " + line)

    def backward(self, line: str) -> None:
        loss = line.partition(".backward")[0]
        if self.random.random() < self.daring:
            self.write(line)
        else:
            self.write(f"if {loss}.requires_grad:")
            self.write("    " + line)

    def leave(self) -> None:
        variable = self.loops[-1]
        word = self.pick("break", "continue")
        self.write(f"if {variable} == {self.random.randint(0, 2)}:")
        self.write("    " + word)

    def condition(self) -> str:
        options = [
            "True",
            "False",
            "n > 1",
            "n % 2 == 0",
            "len(trail) > 1",
            "x0.requires_grad",
            "not x1.requires_grad",
            "x2.is_leaf",
        ]
        if self.inside_function:
            options = ["True", "False", f"{self.plain[0]}.requires_grad", f"{self.plain[0]}.is_leaf"]
        if self.loops:
            options += [f"{self.loops[-1]} == 1", f"{self.loops[-1]} > 0"]
        if self.unknown and self.random.random() < 0.7:
            f, g = self.random.sample(FLAGS, 2)
            options = [f, g, f"not {f}", f"{f} and {g}", f"{f} or {g}", f"not ({f} and {g})", f"{f} and n > 0"]
        return self.pick(*options)

    # -- compound statements

    def compounds(self) -> list[Callable[[], None]]:
        found = [self.if_, self.if_, self.for_, self.while_, self.with_, self.with_, self.try_]
        if not self.inside_function and self.depth < 2:
            found += [self.function, self.function]
        return found

    def if_(self) -> None:
        self.write(f"if {self.condition()}:")
        self.body()
        if self.random.random() < 0.25:
            self.write(f"elif {self.condition()}:")
            self.body()
        if self.random.random() < 0.5:
            self.write("else:")
            self.body()

    def for_(self) -> None:
        self.count += 1
        variable = f"i{self.count}"
        head = self.random.randrange(4)
        if head == 0 and not self.inside_function:
            pair = ", ".join(self.random.sample([*PLAIN, *WEIGHTS], 2))
            self.write(f"for {variable}, {self.pick(*PLAIN)} in enumerate(({pair})):")
        elif head == 1:
            self.write(
                f"for {variable} in [{', '.join(self.random.sample(['0', '1', '2', '3'], self.random.randint(1, 3)))}]:"
            )
        else:
            self.write(f"for {variable} in range({self.random.randint(0, 3)}):")
        self.loops.append(variable)
        self.body()
        self.loops.pop()
        self.else_()

    def while_(self) -> None:
        self.count += 1
        variable = f"k{self.count}"
        self.write(f"{variable} = 0")
        self.write(f"while {variable} < {self.random.randint(0, 3)}:")
        self.write(f"    {variable} += 1")
        self.loops.append(variable)
        self.body()
        self.loops.pop()
        self.else_()

    def else_(self) -> None:
        if self.random.random() < 0.25:
            loops, self.loops = self.loops, []
            self.write("else:")
            self.body()
            self.loops = loops

    def with_(self) -> None:
        managers = self.random.sample(CONTEXTS, self.random.choice([1, 1, 1, 2]))
        if self.inside_function:
            managers = [m.replace("n > 1", "True") for m in managers]
        self.write(f"with {', '.join(managers)}:")
        self.body()

    def try_(self) -> None:
        self.write("try:")
        self.body()
        if self.random.random() < 0.6:
            self.write(
                f"    raise {self.pick('ValueError', 'KeyError', 'ValueError(1)')}"
                if self.random.random() < 0.5
                else "    pass"
            )
        handlers = self.pick(
            "ValueError,KeyError",
            "KeyError,ValueError",
            "(ValueError, KeyError)",
            "ValueError,Exception",
            "LookupError,ValueError",
        )
        if self.depth and not handlers.startswith("("):
            handlers = handlers.replace("Exception", "KeyError")
        handlers = handlers.replace("Exception", "LookupError")
        for name in [handlers] if handlers.startswith("(") else handlers.split(","):
            self.write(f"except {name}:" if self.random.random() < 0.7 else f"except {name} as error:")
            self.body()
        if self.random.random() < 0.3:
            self.write("else:")
            self.body()
        if self.random.random() < 0.3:
            self.write("finally:")
            loops, self.loops = self.loops, []
            self.body()
            self.loops = loops

    def function(self) -> None:
        self.count += 1
        name = f"g{self.count}"
        decorator = self.random.random()
        if decorator < 0.15:
            self.write("@torch.no_grad()")
        elif decorator < 0.2:
            self.write("@torch.enable_grad()")
        self.write(f"def {name}(p, q):")
        plain, weights, loops, self.inside_function = self.plain, self.weights, self.loops, True
        self.plain, self.weights, self.loops = ("p", "q"), ("w0", "w1"), []
        self.body()
        if self.random.random() < 0.3:
            self.write(f"    if {self.condition()}:")
            self.write("        return q")
            self.body(least=1)
        self.write(f"    return {self.pick('p', 'q', 'p * q', 'p.detach()', 'p + w0')}")
        self.plain, self.weights, self.loops, self.inside_function = plain, weights, loops, False
        a, b = self.random.sample([*PLAIN, *WEIGHTS], 2)
        self.write(f"{self.pick(*PLAIN)} = {name}({a}, {b})")
