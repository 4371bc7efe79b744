"""Defines mine::scaled_add for PyTorch and exports a model that uses it: python export.py model.pt2"""
import sys

import torch

torch.library.define("mine::scaled_add", "(Tensor x, Tensor y, float scale=1.0) -> Tensor")


@torch.library.impl("mine::scaled_add", "CompositeExplicitAutograd")
def scaled_add(x, y, scale=1.0):
    return x + scale * y


@torch.library.register_fake("mine::scaled_add")
def _(x, y, scale=1.0):
    return torch.empty_like(x)


class Model(torch.nn.Module):
    def forward(self, x, y):
        return torch.ops.mine.scaled_add(x.relu(), y.t(), 0.5) * 2


if __name__ == "__main__":
    n = torch.export.Dim("n", min=1, max=8)
    program = torch.export.export(Model(), (torch.randn(3, 4), torch.randn(4, 3)), dynamic_shapes=({0: n}, {1: n}))
    torch.export.save(program, sys.argv[1])
