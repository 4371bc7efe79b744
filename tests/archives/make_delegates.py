#!/usr/bin/env python3
"""Writes delegates/: programs for the rules of delegation and of device memory (src/facade/delegation_test.cpp, tests/interop/test_delegation.py).

    python make_delegates.py

Needs torch."""
import pathlib

import torch
from torch import nn

HERE = pathlib.Path(__file__).resolve().parent / "delegates"


class Residual(nn.Module):
    """Two groups with a product outside; sizes whose bytes are no multiple of 64."""

    def __init__(self):
        super().__init__()
        self.norm, self.wide, self.narrow = nn.LayerNorm(10), nn.Linear(10, 14), nn.Linear(14, 10)

    def forward(self, x):
        return x + self.narrow(nn.functional.gelu(self.wide(self.norm(x))) * 1.5)


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 6) / 3)

    def forward(self, x):
        return torch.cos(torch.erfinv(torch.tanh(torch.mm(torch.tanh(x), self.weight)) * 0.9))


class Counter(nn.Module):
    """A buffer that only a linear layer's group uses."""

    def __init__(self):
        super().__init__()
        self.register_buffer("sum", torch.tensor([0.5, 0.0, 0.25, 1.0]))

    def forward(self, x):
        self.sum.mul_(2).add_(x)
        return torch.tanh(self.sum) + x


class Views(torch.nn.Module):
    """Two groups with views between them that need no copy."""

    def forward(self, x):
        return torch.cos(torch.tanh(x).view(-1)[6:].view(-1, 2))


class Shared(torch.nn.Module):
    """A part of a tensor is read by another group and by the host."""

    def forward(self, x):
        first, second = torch.tanh(x).chunk(2)
        return torch.cos(first) + torch.sin(second) + torch.erfinv(first * 0.5)


class Turned(torch.nn.Module):
    """A view that no delegate takes as it lies."""

    def forward(self, x):
        return torch.cos(torch.tanh(x).t())


def main():
    torch.manual_seed(5)
    HERE.mkdir(exist_ok=True)
    for name, model, inputs in [("residual", Residual(), (torch.randn(3, 10),)), ("mixed", Mixed(), (torch.randn(4, 6),)), ("counter", Counter(), (torch.randn(4),))]:
        torch.export.save(torch.export.export(model.eval(), inputs), HERE / f"{name}.pt2")
    rows = torch.export.Dim("rows", min=2, max=8)
    for name, model, shapes in [("views", Views(), None), ("views_dynamic", Views(), ({0: rows},)), ("views_shared", Shared(), None), ("views_turned", Turned(), None)]:
        torch.export.save(torch.export.export(model, (torch.randn(4, 6),), dynamic_shapes=shapes), HERE / f"{name}.pt2")


if __name__ == "__main__":
    main()
