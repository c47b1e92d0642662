"""What observation costs a training step: `python -m benchmarks.confirm`, from a checkout with torch.

Plain and observed steps are run in turns in one process; what is printed is the ratio of their CPU times.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

from gradlint.record.child import install, observe, start

ROUNDS = 6
STEPS = 12

Step = Callable[[], None]


class Convolutions(nn.Module):
    """A small network for small pictures."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2))
        self.second = nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU())
        self.head = nn.Linear(32, 10)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """Scores of ten classes."""
        features: torch.Tensor = self.second(self.first(pictures)).mean((2, 3))
        scores: torch.Tensor = self.head(features)
        return scores


class Language(nn.Module):
    """A transformer of ten million parameters."""

    def __init__(self, width: int = 384, words: int = 1000) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(width, 6, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
        self.head = nn.Linear(width, words)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Scores of the next word at each place."""
        scores: torch.Tensor = self.head(self.layers(self.embedding(words)))
        return scores


def pictures() -> Step:
    """Steps of the small network."""
    model = Convolutions()
    batch, labels = torch.randn(32, 3, 32, 32), torch.randint(0, 10, (32,))
    return training(model, lambda: functional.cross_entropy(model(batch), labels))


def words() -> Step:
    """Steps of the transformer."""
    model = Language()
    batch = torch.randint(0, 1000, (2, 64))
    return training(model, lambda: functional.cross_entropy(model(batch).flatten(0, 1), batch.flatten()))


def training(model: nn.Module, loss: Callable[[], torch.Tensor]) -> Step:
    """A step that trains `model`."""
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        loss().backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def seconds(step: Step) -> float:
    """CPU seconds of a step, the lower quartile of several."""
    found = []
    for _ in range(STEPS):
        began = time.process_time()
        step()
        found.append(time.process_time() - began)
    return statistics.quantiles(found, n=4)[0]


def main() -> None:
    """Print the ratios."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        own = str(Path(__file__).parent) + "/"
        run = start.prepare({"out": folder, "roots": [own], "places": 16, "steps": sys.maxsize, "seed": 0})
        observer = run.observer
        if not isinstance(observer, observe.Observer):
            sys.exit("torch is not observed")
        for name, make in (("CNN, batch of 32", pictures), ("transformer, 10 million parameters", words)):
            step = make()
            step()
            ratios = []
            for _ in range(ROUNDS):
                with install.unobserved(observer):
                    plain = seconds(step)
                ratios.append(seconds(step) / plain)
            low, middle, high = min(ratios), statistics.median(ratios), max(ratios)
            print(f"{name}: observed / plain = {middle:.2f} ({ROUNDS} rounds, {low:.2f} to {high:.2f})")


if __name__ == "__main__":
    main()
