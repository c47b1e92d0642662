"""The facts about torch hold: torch says so when measured again, and so do its own derivative formulas."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gradlint import facts
from gradlint.facts import Layer, Op

torch = pytest.importorskip("torch")

from gradlint.facts import probe  # noqa: E402  (it imports torch)

HERE = Path(facts.__file__).parent
SAME_MINOR = torch.__version__.split(".")[:2] == facts.torch_version().split(".")[:2]

CORE = {
    ("method", "mul"), ("method", "add"), ("method", "sub"), ("method", "div"), ("method", "relu"),
    ("method", "exp"), ("method", "sqrt"), ("method", "sigmoid"), ("method", "tanh"), ("method", "softmax"),
    ("method", "matmul"), ("method", "sum"), ("method", "mean"), ("method", "view"), ("method", "chunk"),
    ("method", "detach"), ("method", "item"), ("method", "argmax"), ("method", "max(dim)"),
    ("method", "mul_"), ("method", "add_"), ("method", "zero_"), ("torch", "cat"), ("torch", "stack"),
    ("torch", "where"), ("torch", "tensor"), ("torch", "zeros_like"), ("functional", "relu"),
    ("functional", "linear"), ("functional", "dropout"), ("functional", "cross_entropy"),
}  # fmt: skip
"""What every torch that gradlint supports must agree on, and in these fields."""
CORE_FIELDS = (
    "keeps",
    "mutates",
    "view_of",
    "differentiable",
    "detaches",
    "copies_out_of_graph",
    "multi_view",
)


# --- measured again ----------------------------------------------------------------------------------


def _tables(text: str) -> dict[str, str]:
    return {body.split("\n", 1)[0]: body.strip() for body in text.split("\n[")[1:]}


def _differences(stored: dict[str, str], measured: dict[str, str]) -> list[str]:
    names = sorted(stored.keys() | measured.keys())
    return [
        f"[{n}\n  stored:   {stored.get(n)}\n  measured: {measured.get(n)}"
        for n in names
        if stored.get(n) != measured.get(n)
    ]


@pytest.mark.skipif(not SAME_MINOR, reason=f"the tables are of torch {facts.torch_version()}")
def test_ops_measured_again() -> None:
    stored = _tables((HERE / "ops.toml").read_text(encoding="utf-8"))
    assert not _differences(stored, _tables(probe.render(probe.measure_ops(), {})))


@pytest.mark.skipif(not SAME_MINOR, reason=f"the tables are of torch {facts.torch_version()}")
def test_layers_measured_again() -> None:
    stored = _tables((HERE / "layers.toml").read_text(encoding="utf-8"))
    del stored["containers]"]
    assert not _differences(stored, _tables(probe.render(probe.measure_layers(), {})))


@pytest.mark.parametrize(("space", "full"), sorted(CORE))
def test_core_op_in_any_torch(space: str, full: str) -> None:
    name = full.split("(", maxsplit=1)[0]
    measured = probe.measure_op(space, name)[space, full]
    stored = probe.read(HERE / "ops.toml")[space, full]
    assert {f: measured.get(f) for f in CORE_FIELDS} == {f: stored.get(f) for f in CORE_FIELDS}


# --- derivatives.yaml --------------------------------------------------------------------------------

_META = re.compile(
    r"\b\w+(\[\w+\])?\.(sym_)?(sizes|size|dim|ndimension|scalar_type|options|device|numel|layout|defined|strides|"
    r"storage_offset|is_\w+|suggest_memory_format)\(|\b(zeros_like|TensorGeometry|to_args_\w+)\(\w+\)"
)
"""Uses of a tensor that need its shape or dtype only."""


def _formulas() -> list[tuple[str, list[str], set[str], list[str], dict[str, str]]]:
    """Name, positional parameters, those that are tensors, names of results, gradient -> formula."""
    path = Path(torch.__file__).parent.parent / "torchgen/packaged/autograd/derivatives.yaml"
    entries = []
    for block in path.read_text(encoding="utf-8").split("\n- name: ")[1:]:
        head, _, body = block.partition("\n")
        signature = re.fullmatch(r"(\w+)(?:\.\w+)?\((.*)\) -> (.*)", head.strip())
        if signature is None:
            continue
        body = ("\n" + body).split("AutogradNestedTensor")[0].replace("\n  dispatch:", "")
        body = body.split("    Default:")[-1]
        parameters = [p.rsplit("=", 1)[0].strip() for p in re.split(r",\s*(?![^\[(]*[\])])", signature[2])]
        positional = parameters[: parameters.index("*")] if "*" in parameters else parameters
        names = [p.rsplit(" ", 1)[-1] for p in positional]
        tensors = {p.rsplit(" ", 1)[-1] for p in parameters if p.startswith(("Tensor", "ITensor"))}
        results = re.findall(r"Tensor\S*(?: (\w+))?", signature[3])
        gradients: dict[str, str] = {}
        for key, formula in re.findall(r"\n +([\w, ]+): ((?:.|\n(?! +[\w, ]+: ))*)", body):
            for name in key.split(", "):
                gradients[name] = re.sub(r"#.*", "", formula)
        entries.append((signature[1], names, tensors, results, gradients))
    return entries


def _saved(formula: str, tensors: set[str], results: list[str]) -> set[str]:
    words = set(re.findall(r"\w+", _META.sub("(", formula)))
    numbered = {r: f"result{i}" for i, r in enumerate(results) if r} if len(results) > 1 else {}
    kept = {w for w in words if w in tensors or re.fullmatch(r"result\d*", w)}
    return kept | {numbered[w] for w in words if w in numbered}


def _schema_names(op: Op) -> list[str]:
    return ["self" if n == "input" else n for n in op.operands]


EXPLAINED = {
    "method.matmul()": "of matrices it becomes mm; the formula is for nested tensors",
    "torch.matmul()": "of matrices it becomes mm; the formula is for nested tensors",
    "torch.max_pool2d()": "on the CPU it becomes max_pool2d_with_indices; the formula is for MPS",
    "torch.binary_cross_entropy_with_logits()": "weight and pos_weight were not given",
    "torch.segment_reduce()": "offsets were not given",
}
"""Op -> why what torch keeps is not what its formula names."""


def _disagreement(op: Op, tensors: set[str], results: list[str], gradients: dict[str, str]) -> str | None:
    rename = {"input": "self"}
    allowed = set().union(*(_saved(f, tensors, results) for k, f in gradients.items() if k != "result"))
    for operand, kept in op.keeps.items():
        # A number is kept as a tensor that nobody else holds.
        numbers = {"internal": "other"} if op.form == "number" else {}
        measured = {{**rename, **numbers}.get(k, k) for k in kept}
        formula = gradients.get(rename.get(operand, operand))
        if formula is None:
            return f"{operand}: no formula"
        needed = _saved(formula, tensors, results)
        if not needed <= measured <= allowed:
            return f"{operand}: keeps {sorted(measured)}, formula {sorted(needed)}, of all {sorted(allowed)}"
    return None


def test_against_torchs_own_formulas() -> None:
    formulas = _formulas()
    checked, surprises = 0, {}
    for op in facts.ops():
        if op.space == "functional" or not op.keeps or op.mutates:
            continue
        aten = re.sub(r"^(linalg|special|fft)\.", r"\1_", op.name)
        same = [e for e in formulas if e[0] == aten and e[1] == _schema_names(op)]
        if not same:
            continue
        checked += 1
        complaints = [_disagreement(op, *entry[2:]) for entry in same]
        if None not in complaints:
            surprises[f"{op.space}.{op.name}({op.form})"] = complaints
    print(f"{checked} ops compared with derivatives.yaml")
    assert {k: v for k, v in surprises.items() if k not in EXPLAINED} == {}
    assert not EXPLAINED.keys() - surprises.keys(), "explained, but no longer a difference"
    assert checked > 250


# --- what one can check by hand ----------------------------------------------------------------------


def _kept(op: Op | None) -> dict[str, tuple[str, ...]]:
    assert op is not None
    return dict(op.keeps)


@pytest.mark.parametrize(
    ("op", "keeps"),
    [
        (facts.method("mul"), {"self": ("other",), "other": ("self",)}),
        (facts.method("add"), {"self": (), "other": ()}),
        (facts.method("div"), {"self": ("other",), "other": ("self", "other")}),
        (facts.method("pow", "number"), {"self": ("self",)}),
        (facts.method("relu"), {"self": ("result",)}),
        (facts.method("sigmoid"), {"self": ("result",)}),
        (facts.method("exp_"), {"self": ("result",)}),
        (facts.method("max", "dim"), {"self": ("result1",)}),
        (facts.method("chunk"), {"self": ()}),
        (facts.method("mul_"), {"self": ("other",), "other": ("internal",)}),
        (facts.function("torch.softmax"), {"input": ("result",)}),
        (facts.function("torch.cat"), {"tensors": ()}),
        (facts.function("torch.einsum"), {"tensors": ("tensors",)}),
        (
            facts.function("torch.nn.functional.linear"),
            {"input": ("weight",), "weight": ("input",), "bias": ()},
        ),
        (facts.function("torch.nn.functional.embedding"), {"weight": ("input",)}),
        (facts.function("torch.nn.functional.dropout"), {"input": ("internal",)}),
        (facts.function("torch.nn.functional.dropout", "eval"), {"input": ()}),
    ],
    ids=lambda value: f"{value.name}({value.form})" if isinstance(value, Op) else "",
)
def test_by_hand(op: Op | None, keeps: dict[str, tuple[str, ...]]) -> None:
    assert _kept(op) == keeps


def test_by_hand_conv_and_norm_keep_both_for_either_gradient() -> None:
    # One node with one formula for all its gradients: it keeps its operands whoever asks.
    for operand in ("input", "weight"):
        assert _kept(facts.function("torch.nn.functional.conv2d"))[operand] == ("input", "weight")
        assert {"input", "weight", "internal"} <= set(_kept(facts.function("torch.nn.functional.layer_norm"))[operand])


@pytest.mark.parametrize(
    ("fact", "fields"),
    [
        (facts.method("chunk"), {"view_of": "self", "multi_view": True, "arity": None}),
        (facts.method("reshape"), {"view_of": "self", "maybe_view": True}),
        (facts.method("detach"), {"view_of": "self", "detaches": True, "differentiable": False}),
        (facts.method("item"), {"returns": "python", "detaches": True}),
        (
            facts.method("numpy"),
            {"returns": "numpy", "detaches": True, "refuses": ("self",), "view_of": "self"},
        ),
        (facts.method("max", "dim"), {"differentiable_results": (True, False), "arity": 2}),
        (facts.method("sign"), {"zero_gradient": True, "differentiable": True}),
        (facts.method("argmax"), {"differentiable": False, "detaches": False}),
        (facts.method("add_"), {"mutates": ("self",), "view_of": None}),
        (facts.method("max", "no such form"), {"form": ""}),
        (facts.function("torch.tensor"), {"copies_out_of_graph": True}),
        (facts.function("torch.zeros"), {"factory": True}),
        (facts.function("torch.zeros_like"), {"like": True}),
        (facts.function("torch.linalg.norm"), {"out_argument": True}),
        (facts.function("torch.nn.functional.relu"), {"inplace_argument": True}),
        (facts.layer("LSTM"), {"nested": (0, 2), "returns": "tuple", "arity": 2}),
        (facts.layer("Linear"), {"keeps": {"input": ("weight",), "weight": ("input",), "bias": ()}}),
        (facts.layer("BatchNorm2d"), {"mutates_silently": ("running_mean", "running_var")}),
        (facts.layer("BatchNorm2d"), {"mutates_silently_eval": ()}),
        (facts.layer("Dropout"), {"view_of": None, "view_of_eval": "input", "keeps_eval": {"input": ()}}),
        (facts.layer("CrossEntropyLoss"), {"loss": True, "no_gradient": ("target",)}),
        (facts.layer("LazyLinear"), {"measured": False}),
    ],
    ids=lambda value: value.name if isinstance(value, Op | Layer) else "",
)
def test_by_hand_fields(fact: Op | Layer | None, fields: dict[str, object]) -> None:
    assert fact is not None
    assert {name: getattr(fact, name) for name in fields} == fields


def test_what_is_not_there() -> None:
    assert facts.layer("NoSuchLayer") is None
    assert facts.method("no_such_method") is None
    assert facts.function("numpy.zeros") is None
    assert "Sequential" in facts.containers()


def test_every_table_reads() -> None:
    assert len(facts.ops()) == len(probe.read(HERE / "ops.toml")) > 1400
    assert len(facts.layers()) > 130
    for op in facts.ops():
        of_results = re.compile(r"internal|result\d*")
        for operand, kept in (*op.keeps.items(), *op.keeps_inplace.items()):
            assert operand in op.operands, op
            named = {*op.operands, "lengths"}  # segment_reduce's is keyword-only
            assert all(k in named or of_results.fullmatch(k) for k in kept), op
