"""The two ways of telling the gradient report: lines for a terminal, and a page with a picture."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import itertools
import math
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path

import pytest

from gradlint.gradients import (
    Flow,
    Gradient,
    GradientReport,
    GradientStop,
    Layer,
    ParameterGradient,
    StaleGradient,
    Step,
    UnreadOutput,
)
from gradlint.report import gradients, html, picture
from gradlint.rule import Because, Finding, Judgement, Verdict
from gradlint.trace import Span


def at(path: str, line: int, column: int = 1, length: int = 1) -> Span:
    """A span on one line."""
    return Span(path, line, column, line, column + length)


def layer(
    name: str,
    kind: str,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    gradient: Gradient = Gradient.FINITE,
    norm: float = 0.1,
    *,
    calls: int = 1,
    optimizer: str | None = "Adam",
) -> Layer:
    """A layer whose parameters are all alike; the n-th has the n-th part of the norm."""
    has = gradient in (Gradient.FINITE, Gradient.ZERO)
    return Layer(
        name,
        kind,
        calls,
        None,
        tuple(
            ParameterGradient(
                f"{name}.{own}" if name else own,
                shape,
                gradient,
                (0.0 if gradient is Gradient.ZERO else norm / (number + 1)) if has else None,
                None if gradient is Gradient.FROZEN else optimizer,
            )
            for number, (own, shape) in enumerate((shapes or {}).items())
        ),
    )


def linear(out: int, into: int) -> dict[str, tuple[int, ...]]:
    """The parameters of an `nn.Linear`."""
    return {"weight": (out, into), "bias": (out,)}


def chain(names: Sequence[str], dead: int = 0) -> tuple[Flow, ...]:
    """Each feeds the next; the first `dead` ways carry no gradient back."""
    return tuple(Flow(one, other, number >= dead) for number, (one, other) in enumerate(itertools.pairwise(names)))


def report(
    layers: Sequence[Layer] = (),
    flows: Sequence[Flow] = (),
    *,
    stops: Sequence[GradientStop] = (),
    unread: Sequence[UnreadOutput] = (),
    stale: Sequence[StaleGradient] = (),
    steps: Sequence[Step] = (Step(1, "Adam", at("train.py", 40), 57, 412_000_000, 0.532, 2.3071),),
    notes: Sequence[str] = (),
) -> GradientReport:
    """A report of `python train.py --batch-size 8`."""
    return GradientReport(
        "python train.py --batch-size 8",
        "cpu",
        "2.9.0",
        tuple(layers),
        tuple(flows),
        tuple(stops),
        tuple(unread),
        tuple(stale),
        tuple(steps),
        tuple(notes),
    )


def six() -> GradientReport:
    """Six layers, all of them healthy."""
    sizes = [784, 512, 256, 128, 64, 32, 10]
    layers = [Layer("", "MLP", 1, at("train.py", 31), ())]
    names = []
    for number in range(6):
        names.append(f"fc{number + 1}")
        layers.append(layer(names[-1], "Linear", linear(sizes[number + 1], sizes[number]), norm=0.003 * 3**number))
        layers.append(layer(f"act{number + 1}", "ReLU"))
    order = ["", *(name for number in range(6) for name in (f"fc{number + 1}", f"act{number + 1}"))]
    return report(layers, [*chain(order[:-1]), Flow("fc6", "", True)])


NET = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.norm = nn.BatchNorm2d(64)
        self.fc1 = nn.Linear(1600, 128)
        self.fc2 = nn.Linear(128, 10)
        self.aux = nn.Linear(128, 4)
        self.spare = nn.Linear(128, 10)

    def forward(self, x):
        x = torch.relu(self.conv1(x))
        x = torch.relu(self.norm(self.conv2(x))).detach()  # saves memory
        x = x.flatten(1)
        x = torch.relu(self.fc1(x))
        return self.fc2(x), self.aux(x)
"""


def cnn() -> GradientReport:
    """A small CNN that detaches its features, leaves one output unread and one layer uncalled."""
    none = Gradient.NONE
    behind = tuple(f"{name}.{own}" for name in ("conv1", "conv2", "norm") for own in ("weight", "bias"))
    return report(
        [
            Layer("", "Net", 3, at("train.py", 31), ()),
            layer("conv1", "Conv2d", {"weight": (32, 3, 3, 3), "bias": (32,)}, none, calls=3),
            layer("conv2", "Conv2d", {"weight": (64, 32, 3, 3), "bias": (64,)}, none, calls=3),
            layer("norm", "BatchNorm2d", {"weight": (64,), "bias": (64,)}, none, calls=3),
            layer("fc1", "Linear", linear(128, 1600), norm=0.8, calls=3),
            layer("fc2", "Linear", linear(10, 128), norm=1.7, calls=3),
            layer("aux", "Linear", linear(4, 128), none, calls=3),
            layer("spare", "Linear", linear(10, 128), none, calls=0),
        ],
        [
            *chain(["", "conv1", "conv2", "norm", "fc1"], dead=4),
            Flow("fc1", "fc2", True),
            Flow("fc1", "aux", False),
            Flow("fc2", "", True),
            Flow("aux", "", False),
        ],
        stops=[GradientStop(at("net.py", 18, 9, 49), "detach", "", behind)],
        unread=[UnreadOutput("", "1", at("net.py", 21, 26, 11))],
        stale=[StaleGradient("Adam", at("train.py", 44, 5, 15), 4, 14, 1.9)],
        steps=[
            Step(n + 1, "Adam", at("train.py", 45), 57, 412_000_000 + 1_000 * (n > 0), 1.9 + 1.8 * n, 2.31 - 0.2 * n)
            for n in range(3)
        ],
        notes=["torch.compile was switched off", "experiment trackers were switched off"],
    )


def cnn_judgements() -> list[Judgement]:
    """What a run says of the findings on it."""
    forward = Because(at("net.py", 17, 13, 26), "conv1 ran: its output has a graph")
    cut = Because(at("net.py", 18, 9, 49), "detach left that graph")
    return [
        Judgement(
            Finding("loss-scaled", "GL404", "info", at("train.py", 38, 5, 4), "the loss is divided by the batch twice"),
            Verdict.NOT_REACHED,
            "train.py:38 did not run in 3 steps.",
        ),
        Judgement(
            Finding(
                "gradient-cut",
                "GL101",
                "error",
                at("net.py", 18, 9, 49),
                "`detach` cuts conv1, conv2 and norm from the loss",
                (cut,),
                "detach only what must not learn:\n    x = torch.relu(self.norm(self.conv2(x)))",
            ),
            Verdict.CONFIRMED,
            "conv1.weight: grad None after 3 backwards; its output was detached at net.py:18, so 6 of 14 parameters "
            "of `opt` learn nothing.",
            (forward, cut, Because(at("train.py", 44, 5, 15), "backward ran and met fc2 and fc1 only")),
            {"parameters": ["conv1.weight", "conv1.bias"], "backwards": 3, "without_gradient": 6, "of": 14},
        ),
        Judgement(
            Finding("stale-gradients", "GL301", "warning", at("train.py", 44, 5, 15), "gradients are never cleared"),
            Verdict.CONFIRMED,
            "At the second backward 4 parameters still held a gradient of norm 1.9 that Adam had used.",
            (),
            {"norm": 1.9, "parameters": 4},
        ),
        Judgement(
            Finding("saved-tensor-mutated", "GL201", "error", at("net.py", 20, 9, 1), "`x` is changed in place"),
            Verdict.REFUTED,
            "This did not happen in 3 steps with this command: the version stayed 0.",
        ),
        Judgement(
            Finding("unread-output", "GL110", "warning", at("net.py", 21, 26, 11), "no loss reads `aux`"),
            Verdict.UNDECIDED,
            "aux.weight: grad None in 3 of 3 steps, but the loss was made by code without source.",
        ),
    ]


TRAIN = (
    "\n" * 36
    + """\
if args.average:
    loss = loss / len(batch)

model = Net()
opt = torch.optim.Adam(model.parameters())
for x, y in loader:
    loss = criterion(model(x)[0], y)
    loss.backward()
    opt.step()
"""
)
SOURCES = {"net.py": NET, "train.py": TRAIN}


def transformer(blocks: int = 12, cut: Sequence[int] = ()) -> GradientReport:
    """A GPT with a module for each head of attention; with `cut`, keys and queries of these blocks are detached."""
    normal = {"weight": (768,), "bias": (768,)}
    layers = [
        Layer("", "GPT", 1, at("train.py", 12), ()),
        Layer("transformer", "ModuleDict", 0, None, ()),
        layer("transformer.wte", "Embedding", {"weight": (50257, 768)}, norm=0.9),
        layer("transformer.wpe", "Embedding", {"weight": (1024, 768)}, norm=0.31),
        layer("transformer.drop", "Dropout"),
        Layer("transformer.h", "ModuleList", 0, None, ()),
    ]
    stream = ["transformer.wte", "transformer.wpe"]
    flows = [Flow("", name, False) for name in stream]
    stops = []
    for number in range(blocks):
        block = f"transformer.h.{number}"
        layers.append(Layer(block, "Block", 1, at("model.py", 50), ()))
        layers.append(layer(f"{block}.ln_1", "LayerNorm", normal, norm=0.02))
        layers.append(Layer(f"{block}.attn", "MultiHeadAttention", 1, at("model.py", 40), ()))
        layers.append(Layer(f"{block}.attn.heads", "ModuleList", 0, None, ()))
        for head in range(6):
            name = f"{block}.attn.heads.{head}"
            layers.append(Layer(name, "Head", 1, at("model.py", 30), ()))
            for own in ("key", "query", "value"):
                gradient = Gradient.NONE if number in cut and own != "value" else Gradient.FINITE
                layers.append(layer(f"{name}.{own}", "Linear", {"weight": (128, 768)}, gradient, 0.004 * (head + 1)))
                flows.append(Flow(f"{block}.ln_1", f"{name}.{own}", gradient is Gradient.FINITE))
                flows.append(Flow(f"{name}.{own}", f"{block}.attn.c_proj", gradient is Gradient.FINITE))
            if number in cut:
                stops.append(
                    GradientStop(
                        at("model.py", 36, 9, 30), "detach", name, (f"{name}.key.weight", f"{name}.query.weight")
                    )
                )
        layers.append(layer(f"{block}.attn.c_proj", "Linear", linear(768, 768), norm=0.05))
        layers.append(layer(f"{block}.attn.drop", "Dropout"))
        layers.append(layer(f"{block}.ln_2", "LayerNorm", normal, norm=0.03))
        layers.append(Layer(f"{block}.mlp", "MLP", 1, None, ()))
        layers.append(layer(f"{block}.mlp.c_fc", "Linear", linear(3072, 768), norm=0.08 / (number + 1)))
        layers.append(layer(f"{block}.mlp.gelu", "GELU"))
        layers.append(layer(f"{block}.mlp.c_proj", "Linear", linear(768, 3072), norm=0.07 * (number + 1)))
        flows += [Flow(before, f"{block}.ln_1", True) for before in stream]
        stream.append(f"{block}.attn.c_proj")
        flows += [Flow(before, f"{block}.ln_2", True) for before in stream]
        flows += chain([f"{block}.{own}" for own in ("ln_2", "mlp.c_fc", "mlp.gelu", "mlp.c_proj")])
        stream.append(f"{block}.mlp.c_proj")
    layers.append(layer("transformer.ln_f", "LayerNorm", normal, norm=0.4))
    tied = ParameterGradient("lm_head.weight", (50257, 768), Gradient.FINITE, 0.9, "AdamW", shared=True)
    layers.append(Layer("lm_head", "Linear", 1, None, (tied,)))
    flows += [Flow(before, "transformer.ln_f", True) for before in stream]
    flows += [Flow("transformer.ln_f", "lm_head", True), Flow("lm_head", "", True)]
    steps = [
        Step(
            n + 1,
            "AdamW",
            at("train.py", 90),
            1214 + 3 * n,
            2_400_000_000 + 9_000_000 * n,
            1.4 / (1 + n / 20) + 0.1 * math.sin(n),
            4 + 6.8 / (1 + n / 8) + 0.1 * math.cos(2 * n),
        )
        for n in range(50)
    ]
    return report(layers, flows, stops=stops, steps=steps)


def transformer_judgements() -> list[Judgement]:
    """What a run says of findings on the transformer with a cut in block 7."""
    return [
        Judgement(
            Finding(
                "gradient-cut",
                "GL101",
                "error",
                at("model.py", 36, 9, 30),
                "`detach` cuts keys and queries from the loss",
            ),
            Verdict.CONFIRMED,
            "transformer.h.7.attn.heads.0.key.weight: grad None after 50 backwards, so 12 of 340 learn nothing.",
            (),
            {
                "parameters": [
                    f"transformer.h.7.attn.heads.{n}.{own}.weight" for n in range(6) for own in ("key", "query")
                ]
            },
        ),
        Judgement(
            Finding("graph-kept", "GL302", "warning", at("train.py", 88, 5, 20), "the sum of losses keeps every graph"),
            Verdict.CONFIRMED,
            "The graph grew from 1214 to 1361 operations in 50 steps, by 3 with every step.",
            (),
            {"nodes": [1214, 1361], "steps": 50},
        ),
    ]


def gan() -> GradientReport:
    """Two outermost modules; the discriminator's last layer explodes, and its first ones get exactly zero."""
    layers = []
    for root, kind in (("netG", "Generator"), ("netD", "Discriminator")):
        layers.append(Layer(root, kind, 2, at("gan.py", 50), ()))
        layers.append(Layer(f"{root}.main", "Sequential", 2, None, ()))
        for number in range(4):
            gradient = Gradient.FINITE
            if root == "netD":
                gradient = Gradient.NONFINITE if number == 3 else Gradient.ZERO if number < 2 else gradient
            layers.append(
                layer(
                    f"{root}.main.{number * 2}",
                    "Conv2d",
                    {"weight": (64, 3, 4, 4)},
                    gradient,
                    0.3 / (number + 1),
                    calls=2 + (root == "netD"),
                    optimizer=f"Adam{' 2' * (root == 'netD')}",
                )
            )
            layers.append(layer(f"{root}.main.{number * 2 + 1}", "LeakyReLU", calls=2))
    frozen = layer("ema", "Linear", linear(8, 8), Gradient.FROZEN, calls=2)
    orphan = layer("scale", "Scale", {"gain": (1,)}, norm=2.0, optimizer=None)
    names = ["", *(f"{root}.main.{number}" for root in ("netG", "netD") for number in range(7))]
    steps = [
        Step(n + 1, f"Adam{' 2' * (n % 2)}", at("gan.py", 80), 40 + n % 2 * 9, None, 0.4 + n % 2, 0.7 - 0.1 * (n % 2))
        for n in range(8)
    ]
    return report(
        [*layers, frozen, orphan],
        [*chain(names), Flow("netD.main.6", "scale", True), Flow("scale", "", True), Flow("netG.main.6", "ema", True)],
        stops=[GradientStop(at("gan.py", 70, 20, 13), "detach", "", ())],
        steps=steps,
    )


HOSTILE = "<script>alert('x')</script>&\"\x1b[31m\u202e"


def hostile() -> GradientReport:
    """Names that try to be more than names."""
    names = [HOSTILE, f"{HOSTILE}.{'a' * 300}", "'\"><img src=x onerror=alert(1)>", "]]>", "日本.語"]
    return report(
        [
            layer(name, HOSTILE, {HOSTILE: (1,)}, Gradient.NONE if number % 2 else Gradient.FINITE)
            for number, name in enumerate(names)
        ],
        chain(names),
        stops=[GradientStop(at(HOSTILE, 1), HOSTILE, HOSTILE, (f"{names[1]}.{HOSTILE}",))],
        unread=[UnreadOutput(names[2], HOSTILE, None)],
        steps=[Step(1, HOSTILE, None, 1, None, float("nan"), float("inf"))],
        notes=[HOSTILE],
    )


REPORTS = {
    "six": six(),
    "cnn": cnn(),
    "transformer": transformer(),
    "transformer with a cut": transformer(cut=[7]),
    "transformer with the same cut in all blocks": transformer(cut=range(12)),
    "gan": gan(),
    "hostile": hostile(),
    "nothing": report(steps=()),
    "no flows": report(cnn().layers, stops=cnn().stops),
    "skips": report(
        [layer(name, "Block", {"weight": (1,)}, norm=number + 1) for number, name in enumerate("abcdefgh")],
        [*chain(["", *"abcdefgh", ""]), *(Flow(one, two, two != "g") for one, two in ("ah", "bg", "cf", "ae", "dh"))],
    ),
    "heads": report(
        [
            layer("encoder", "Encoder", {"weight": (1,)}),
            *(
                layer(f"head_{n}", "Linear", {"weight": (1,)}, Gradient.NONE if n % 3 else Gradient.FINITE)
                for n in range(10)
            ),
        ],
        [
            flow
            for n in range(10)
            for flow in (Flow("encoder", f"head_{n}", n % 3 == 0), Flow(f"head_{n}", "", n % 3 == 0))
        ],
        unread=[UnreadOutput("", str(n), None) for n in range(10) if n % 3],
    ),
    "loop": report(
        [layer(name, "GRUCell", {"weight": (1,)}) for name in ("embed", "cell", "attention", "out")],
        [*chain(["", "embed", "cell", "attention", "cell", "out", "embed"]), Flow("out", "", True)],
    ),
    "long": report(
        [layer(f"stage{n}.{w}", "Conv2d", {"weight": (1,)}, Gradient.NONE) for n in range(40) for w in "ab"],
        chain([f"stage{n}.{w}" for n in range(40) for w in "ab"], dead=80),
    ),
}
ALL = pytest.mark.parametrize("told", REPORTS.values(), ids=REPORTS)


def page(told: GradientReport) -> str:
    """The page of a report, with its findings where it has some."""
    judged = cnn_judgements() if told is REPORTS["cnn"] else []
    return html.render(told, judged, SOURCES)


def test_text_of_a_healthy_model() -> None:
    assert gradients.render(six()).splitlines()[:9] == [
        "Gradient report of python train.py --batch-size 8",
        "torch 2.9.0 on cpu, 1 step: 12 parameters with a gradient",
        "",
        "layer  class   calls  1e-03......1e+00  gradient norm",
        "fc1    Linear      1  ===               0.00335",
        "fc2    Linear      1  ======            0.0101",
        "fc3    Linear      1  ========          0.0302",
        "fc4    Linear      1  ===========       0.0906",
        "fc5    Linear      1  =============     0.272",
    ]


def test_text_says_what_is_wrong_and_where() -> None:
    lines = gradients.render(cnn(), SOURCES).splitlines()
    assert lines[1:3] == [
        "torch 2.9.0 on cpu, 3 steps: 8 parameters without a gradient, 2 parameters in layers that never ran,",
        "4 parameters with a gradient",
    ]
    for line in (
        "conv1  Conv2d           3                    none",
        "fc1    Linear           3  ========          0.894",
        "spare  Linear           0                    never ran",
        "  net.py:18: detach; 6 parameters behind it without a gradient: conv1.weight, conv1.bias,",
        "      | x = torch.relu(self.norm(self.conv2(x))).detach()  # saves memory",
        "  net.py:21: output 1 of Net",
        "  1 layer with parameters: spare",
        "  train.py:44: a backward added to gradients that Adam had already used: 4 of 14 parameters,",
        "   2  Adam       2.11            3.7          57  393 MB",
        "note: torch.compile was switched off",
    ):
        assert line in lines


def test_text_of_two_models() -> None:
    text = gradients.render(gan())
    for line in (
        "netD.main.2  Conv2d      3                    exactly zero\n",
        "netD.main.6  Conv2d      3                    non-finite\n",
        "ema          Linear      2                    frozen\n",
        "scale        Scale       1  =============     2; in no optimizer\n",
        "  1 parameter that no step changes: scale.gain\n",
        "Cut, and nothing behind it had to learn\n  gan.py:70: detach\n",
    ):
        assert line in text


def test_text_folds_what_is_alike() -> None:
    lines = gradients.render(transformer()).splitlines()
    assert "transformer.h.0 ... h.11  12 x Block      1  ==========------  0.152 ... 0.944" in lines
    assert len(lines) < 35
    lines = gradients.render(transformer(cut=[7])).splitlines()
    assert any(line.startswith("transformer.h.0 ... h.6 ") for line in lines)
    assert any(line.startswith("transformer.h.7.attn.heads.0.key ") and line.endswith(" none") for line in lines)
    assert any(line.startswith("transformer.h.8 ... h.11 ") for line in lines)
    assert len(lines) < 60


def test_text_shows_one_of_many_that_are_wrong_in_the_same_way() -> None:
    text = gradients.render(transformer(cut=range(12)))
    assert "\ntransformer.h.0.attn.heads.0.query " in text
    assert "\ntransformer.h.1 ... h.11 " in text
    assert "as in" in text
    assert "detach in transformer.h.0.attn.heads.0 and 71 more; 144 parameters behind it" in text
    assert text.count("\n") < 60


def test_text_names_a_part_of_a_layer() -> None:
    part = layer("fc", "Linear", linear(2, 2))
    bias = dataclasses.replace(part.parameters[1], gradient=Gradient.NONE, norm=None)
    text = gradients.render(report([dataclasses.replace(part, parameters=(part.parameters[0], bias))]))
    assert "0.1; none in 1 of 2 (bias)" in text


def test_text_does_not_blame_layers_whose_owner_reads_their_weights() -> None:
    inner = layer("attn.out_proj", "NonDynamicallyQuantizableLinear", linear(2, 2), Gradient.NONE, calls=0)
    assert "never ran" not in gradients.render(report([layer("attn", "MultiheadAttention"), inner]))
    used = layer("table", "Embedding", {"weight": (9, 9)}, calls=0)
    assert "never ran" not in gradients.render(report([used]))


def test_text_of_growth() -> None:
    text = gradients.render(transformer())
    assert "the graph of AdamW grew with every step, from 1214 to 1361 operations" in text
    assert "memory grew with every step, from 2.25 GB to 2.65 GB" in text
    assert "Growth" not in gradients.render(cnn())


@ALL
def test_text_fits(told: GradientReport) -> None:
    lines = gradients.render(told, SOURCES).split("\n")
    assert max(map(len, lines)) <= 100
    assert all(line == line.rstrip() for line in lines)
    assert "\x1b" not in "".join(lines)


@ALL
@pytest.mark.parametrize("most", [gradients.ROWS, picture.BOXES])
def test_trouble_is_never_folded_away(told: GradientReport, most: int) -> None:
    rows = gradients.view(gradients.tree(told), most)
    shown: dict[str, list[gradients.Row]] = {}
    for row in rows:
        for part in row.walk():
            shown.setdefault(part.name, []).append(row)
    for one in told.layers:
        if one.parameters:
            assert one.name in shown
        if any(state.bad for state in gradients.states(one)):
            assert any(row.bad for row in shown[one.name])
    if most == picture.BOXES:
        drawn = [p.box.text for p in picture.draw(told, {}).boxes if p.box.look not in ("flows", "frozen")]
        assert all(any(text.startswith(f"{row.label}, ") for text in drawn) for row in rows if row.bad)
    else:
        text = gradients.render(told)
        assert all(f"\n{row.label} " in text for row in rows if row.bad and len(row.label) < 30 and row.label.isascii())


def boxes_of(told: GradientReport) -> dict[str, picture.Placed]:
    """The boxes by what they are called."""
    return {placed.box.name: placed for placed in picture.draw(told, SOURCES).boxes}


def ways_of(told: GradientReport) -> dict[tuple[str, str], str]:
    """How the ways between boxes look."""
    drawn = picture.draw(told, SOURCES)
    names = {placed.box.key: placed.box.name for placed in drawn.boxes}
    return {(names[way.source], names[way.target]): way.look for way in drawn.ways}


def test_the_cut_stands_in_the_way_that_it_cuts() -> None:
    assert ways_of(cnn()) == {
        ("input", "conv1"): "quiet",
        ("conv1", "conv2"): "none",
        ("conv2", "norm"): "none",
        ("norm", "detach"): "cut",
        ("detach", "fc1"): "cut",
        ("fc1", "fc2"): "flows",
        ("fc1", "aux"): "none",
        ("fc2", "loss"): "flows",
        ("aux", "output 1"): "none",
    }
    boxes = boxes_of(cnn())
    assert boxes["norm"].y < boxes["detach"].y < boxes["fc1"].y
    assert (boxes["detach"].box.value, boxes["detach"].box.detail[:14]) == ("net.py:18", "x = torch.relu")
    assert boxes["spare"].box.look == "never"


def test_a_residual_stream_is_a_chain() -> None:
    assert ways_of(transformer()) == {
        ("input", "transformer.wte"): "quiet",
        ("input", "transformer.wpe"): "quiet",
        ("transformer.wte", "transformer.h.0 ... h.11"): "flows",
        ("transformer.wpe", "transformer.h.0 ... h.11"): "flows",
        ("transformer.h.0 ... h.11", "transformer.ln_f"): "flows",
        ("transformer.ln_f", "lm_head"): "flows",
        ("lm_head", "loss"): "flows",
    }


def test_one_relu_in_many_places_does_not_tie_them() -> None:
    names = ["", "a", "relu", "b", "relu", "c", "relu", "d", ""]
    layers = [layer(name, "Linear", {"weight": (1,)}) for name in "abcd"]
    told = report([*layers, layer("relu", "ReLU", calls=3)], chain(names))
    assert set(ways_of(told)) == {("input", "a"), ("a", "b"), ("b", "c"), ("c", "d"), ("d", "loss")}


def test_the_cut_stands_behind_layers_that_no_optimizer_holds() -> None:
    names = ["held", "loose", "last"]
    states = [Gradient.NONE, Gradient.NONE, Gradient.FINITE]
    layers = [layer(name, "Linear", {"weight": (1,)}, state) for name, state in zip(names, states, strict=True)]
    stop = GradientStop(at("net.py", 18), "data", "", ("held.weight",))
    ways = ways_of(report(layers, chain(names, dead=2), stops=[stop]))
    assert ways == {("held", "loose"): "none", ("loose", "data"): "cut", ("data", "last"): "cut"}


def test_two_cuts_in_a_row_stand_where_they_cut() -> None:
    layers = [
        layer(name, "Linear", {"weight": (1,)}, Gradient.NONE if name != "c" else Gradient.FINITE) for name in "abc"
    ]
    stops = [
        GradientStop(at("net.py", 18), "detach", "", ("a.weight",)),
        GradientStop(at("net.py", 19), "no_grad", "", ("a.weight", "b.weight")),
    ]
    assert list(ways_of(report(layers, chain("abc", dead=2), stops=stops))) == [
        ("a", "detach"),
        ("detach", "b"),
        ("b", "no_grad"),
        ("no_grad", "c"),
    ]


def test_an_unread_output_hangs_at_the_layer_of_its_name() -> None:
    none = Gradient.NONE
    layers = [
        layer("body", "Linear", {"weight": (1,)}),
        *(layer(name, "Linear", {"weight": (1,)}, none) for name in ("depth", "seg")),
    ]
    flows = [Flow("body", "depth", False), Flow("body", "seg", False), Flow("body", "", True)]
    told = report([Layer("", "Net", 1, None, ()), *layers], flows, unread=[UnreadOutput("", "seg", None)])
    assert ways_of(told)["seg", "output seg"] == "none"


def test_a_residual_stream_beside_a_cut_is_one_red_way() -> None:
    layers = [
        layer(name, "Linear", {"weight": (1,)}, Gradient.NONE if name == "c" else Gradient.FINITE) for name in "abcd"
    ]
    flows = [*chain("ab"), *(Flow(name, "c", False) for name in "ab"), Flow("c", "d", False), Flow("b", "d", True)]
    assert ways_of(report(layers, flows)) == {
        ("a", "b"): "flows",
        ("b", "c"): "none",
        ("c", "d"): "none",
        ("b", "d"): "flows",
    }


def test_a_box_says_how_much_of_it_is_zero() -> None:
    part = layer("fc", "Linear", linear(2, 2))
    bias = dataclasses.replace(part.parameters[1], gradient=Gradient.ZERO, norm=0.0)
    told = report([dataclasses.replace(part, parameters=(part.parameters[0], bias))], [Flow("fc", "", True)])
    box = boxes_of(told)["fc"].box
    assert (box.look, box.value, box.text) == ("zero", "zero in 1 of 2", "fc, Linear: exactly zero in 1 of 2 (bias)")
    assert ways_of(told) == {("fc", "loss"): "flows"}


def test_one_line_that_cuts_in_many_blocks_is_one_box() -> None:
    drawn = picture.draw(transformer(cut=range(12)), {})
    assert [p.box.detail for p in drawn.boxes if p.box.kind == "stop"] == ["144 parameters behind it"]


@ALL
def test_nothing_overlaps(told: GradientReport) -> None:
    drawn = picture.draw(told, SOURCES)
    for one, other in itertools.combinations(drawn.boxes, 2):
        beside = one.x + one.width <= other.x or other.x + other.width <= one.x
        assert beside or one.y + one.height <= other.y or other.y + other.height <= one.y
    for placed in drawn.boxes:
        assert placed.x >= 0
        assert placed.y >= 0
        assert placed.x + placed.width <= drawn.width
        assert placed.y + placed.height <= drawn.height
    for way in drawn.ways:
        assert all(0 <= x <= drawn.width and 0 <= y <= drawn.height for x, y in way.points)
        for (x, y), (u, v) in itertools.pairwise(way.points):
            left, right, upper, lower = min(x, u), max(x, u), min(y, v), max(y, v)
            for placed in drawn.boxes:
                beside = right <= placed.x or placed.x + placed.width <= left
                assert beside or lower <= placed.y or placed.y + placed.height <= upper


@ALL
def test_the_picture_is_as_large_as_its_boxes_need(told: GradientReport) -> None:
    drawn = picture.draw(told, SOURCES)
    area = sum(placed.width * placed.height for placed in drawn.boxes)
    assert drawn.width * drawn.height < 14 * area + 60_000


def test_a_long_chain_is_broken_into_columns() -> None:
    drawn = picture.draw(REPORTS["long"], {})
    assert 0.8 < drawn.width / drawn.height < 2.5


class Reader(HTMLParser):
    """Reads a page as strictly as it was written: what is opened is closed, in order."""

    VOID = ("meta", "input", "path", "rect", "circle", "polyline")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names))
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in ("meta", "input"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in self.VOID
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))


@ALL
def test_the_page_is_well_formed_and_alone(told: GradientReport) -> None:
    text = page(told)
    reader = Reader(text)
    ids = [attributes["id"] for _, attributes in reader.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for tag, attributes in reader.tags:
        assert not {"src", "style", "srcset", "action"} & attributes.keys()
        assert not any(name.startswith("on") for name in attributes)
        assert tag not in ("img", "link", "iframe", "object", "base")
        if "href" in attributes:
            assert attributes["href"].removeprefix("#") in ids
        assert set(attributes.get("data-boxes", "").split()) <= set(ids)
        for name in ("aria-labelledby", "aria-controls"):
            assert attributes.get(name, ids[0]) in ids
    assert not re.search(r"https?://|@import|url\((?!#)", text)


@ALL
def test_the_page_allows_its_own_script_only(told: GradientReport) -> None:
    reader = Reader(page(told))
    policy = next(a["content"] for _, a in reader.tags if a.get("http-equiv") == "Content-Security-Policy")
    for tag in ("style", "script"):
        assert [name for name, _ in reader.tags].count(tag) == 1
        content = "".join(data for inside, data in reader.texts if inside == tag)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")


def test_names_stay_names() -> None:
    reader = Reader(page(hostile()))
    told = "".join(data for tag, data in reader.texts if tag not in ("script", "style"))
    assert "<script>alert('x')</script>&\"\ufffd[31m\ufffd" in told
    assert "\x1b" not in told
    assert "\u202e" not in told
    judgement = Judgement(
        Finding(HOSTILE, HOSTILE, "error", at(HOSTILE, 1), HOSTILE, (Because(at(HOSTILE, 1), HOSTILE),), HOSTILE),
        Verdict.CONFIRMED,
        HOSTILE,
        (),
        {HOSTILE: HOSTILE, "list": [HOSTILE], "map": {HOSTILE: None}},
    )
    Reader(html.render(hostile(), [judgement], {HOSTILE: f"{HOSTILE}\n" * 3}))


def test_findings_on_the_page() -> None:
    reader = Reader(page(REPORTS["cnn"]))
    findings = [a for tag, a in reader.tags if tag == "details" and "finding" in a["class"]]
    assert [a["class"].removeprefix("finding ") for a in findings] == [
        "confirmed",
        "confirmed",
        "undecided",
        "not-reached",
        "refuted",
    ]
    assert ["open" in a for a in findings] == [True, False, False, False, False]
    keys = {placed.box.key: placed.box.name for placed in picture.draw(cnn(), SOURCES).boxes}
    focus = [[keys[key] for key in a["data-boxes"].split()] for a in findings]
    assert focus == [["detach", "conv1", "conv2", "norm"], [], ["output 1", "aux"], [], []]
    marked = [data for tag, data in reader.texts if tag == "mark"]
    assert marked[0] == "x = torch.relu(self.norm(self.conv2(x))).detach()"
    told = "".join(data for _, data in reader.texts)
    assert "so 6 of 14 parameters of opt learn nothing" in told
    assert "x = torch.relu(self.norm(self.conv2(x)))\n" not in told.split("Instead")[0]


def test_places_past_the_end_do_no_harm() -> None:
    for span in (at("net.py", 999), at("gone.py", 3), Span("net.py", 18, 900, 30, 1), Span("net.py", 21, 1, 999, 9)):
        judgement = Judgement(Finding("rule", "GL999", "error", span, "message"), Verdict.CONFIRMED, "reason")
        Reader(html.render(cnn(), [judgement], SOURCES))


def test_a_page_of_three_hundred_layers_is_small() -> None:
    for told in (transformer(), transformer(cut=[7]), transformer(cut=range(12))):
        assert sum(bool(one.parameters) for one in told.layers) > 270
        assert len(html.render(told, transformer_judgements(), SOURCES).encode()) < 150_000


def test_size_grows_with_the_model_and_not_faster() -> None:
    def sizes(blocks: int) -> tuple[int, int, int]:
        told = transformer(blocks, cut=[3])
        drawn = picture.draw(told, {})
        return len(page(told)), len(gradients.render(told)), len(drawn.boxes) + len(drawn.ways)

    (small, text, drawn), (large, longer, more) = sizes(12), sizes(48)
    assert large < small * 4
    assert longer < text + 200
    assert more == drawn


def test_no_order_is_left_to_chance() -> None:
    code = (
        "import hashlib, test_report_gradients as t\n"
        "text = ''.join(t.page(told) + t.gradients.render(told) for told in t.REPORTS.values())\n"
        "print(hashlib.sha256(text.encode('utf-8', 'backslashreplace')).hexdigest())\n"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", code],
            check=True,
            capture_output=True,
            text=True,
            cwd=Path(__file__).parent,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(told) == 1
