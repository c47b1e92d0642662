"""Confirmed runs on a CUDA device: streams, the device's own backward threads, nccl, memory."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from gradlint.confirmation import Confirmation, Request, observe
from gradlint.rule import Verdict

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]

HEAD = """
import torch
import torch.nn as nn

device = torch.device("cuda", torch.cuda.device_count() - 1)
net = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1)).to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
"""


def run(program: str, folder: Path, monkeypatch: pytest.MonkeyPatch, **more: object) -> Confirmation:
    monkeypatch.chdir(folder)
    (folder / "train.py").write_text(HEAD + program)
    return observe(Request([sys.executable, "train.py"], ["train.py"], isolated=True, **more))  # type: ignore[arg-type]


def verdicts(told: Confirmation) -> dict[str, Verdict]:
    return {judgement.finding.name: judgement.verdict for judgement in told.judgements}


@pytest.mark.parametrize("stream", ["torch.cuda.current_stream(device)", "torch.cuda.Stream(device)"])
def test_a_fault_is_confirmed_on_any_stream(stream: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = f"""
with torch.cuda.stream({stream}):
    for step in range(3):
        hidden = torch.sigmoid(net[0](torch.randn(4, 8, device=device)))
        hidden.data.clamp_(0.4, 0.6)
        optimizer.zero_grad()
        net[1](hidden).mean().backward()
        optimizer.step()
"""
    told = run(program, tmp_path, monkeypatch)
    assert verdicts(told) == {"data-write-on-saved-tensor": Verdict.CONFIRMED}
    assert told.gradients is not None
    assert told.gradients.device == "cuda"
    assert all(step.memory for step in told.gradients.steps)
    assert told.notes == tuple(note for note in told.notes if "observer" not in note)


def test_backward_on_the_device_threads_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = """
from torch.utils.checkpoint import checkpoint

for step in range(3):
    hidden = checkpoint(net[0], torch.randn(4, 8, device=device, requires_grad=True), use_reentrant=True)
    net[1](hidden).mean().backward()
    optimizer.step()
"""
    told = run(program, tmp_path, monkeypatch)
    assert verdicts(told) == {"missing-zero-grad": Verdict.CONFIRMED}
    assert told.gradients is not None
    assert all(p.norm is not None for p in told.gradients.parameters())


def test_nccl_with_one_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = """
torch.distributed.init_process_group("nccl")
model = nn.parallel.DistributedDataParallel(net)
for step in range(3):
    model(torch.randn(4, 8, device=device)).mean().backward()
    optimizer.step()
"""
    told = run(program, tmp_path, monkeypatch, nproc=1)
    assert verdicts(told) == {"missing-zero-grad": Verdict.CONFIRMED}


def test_copies_before_hidden_writes_stay_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = """
weight = nn.Parameter(torch.zeros(64 << 20, device=device))
for step in range(3):
    optimizer.zero_grad()
    (net(torch.randn(4, 8, device=device)).mean() + weight[0]).backward()
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    weight.data.clamp_(-1, 1)
    assert torch.cuda.max_memory_allocated(device) < before + (128 << 20)
    optimizer.step()
"""
    told = run(program, tmp_path, monkeypatch)
    assert "AssertionError" not in told.ended
    assert told.steps == 2
