#!/usr/bin/env python3
"""Trains the digit classifier of the demo and writes digits.pt2, pictures.safetensors and expected.safetensors beside this file.

Data: the 1,797 handwritten digits (8x8, 16 grey levels) that scikit-learn carries. Needs torch, scikit-learn, safetensors."""
import pathlib
import re

import torch
from safetensors.torch import save_file
from sklearn.datasets import load_digits
from torch import nn
from torch.export import Dim

HERE = pathlib.Path(__file__).parent


class Classifier(nn.Module):
    """Two convolutions with batch norm, pooling and two linear layers; probabilities of the ten digits."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True),
                                      nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(inplace=True), nn.MaxPool2d(2))
        self.head = nn.Sequential(nn.Flatten(), nn.Dropout(0.2), nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, pictures):
        return self.head(self.features(pictures)).softmax(-1)


def main():
    torch.manual_seed(0)
    data = load_digits()
    pictures = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(data.target)
    order = torch.randperm(len(labels))
    test, train = order[:300], order[300:]
    net = Classifier()
    optimizer = torch.optim.Adam(net.parameters(), 2e-3)
    for _ in range(30):
        for batch in train[torch.randperm(len(train))].split(64):
            optimizer.zero_grad()
            nn.functional.nll_loss(net(pictures[batch]).clamp_min(1e-9).log(), labels[batch]).backward()
            optimizer.step()
    net.eval()
    with torch.no_grad():
        accuracy = (net(pictures[test]).argmax(1) == labels[test]).float().mean().item()
    print(f"accuracy on 300 held-out digits: {accuracy:.3f}")
    program = torch.export.export(net, (pictures[:2],), dynamic_shapes=({0: Dim("batch", min=1, max=64)},))
    for node in program.graph.nodes:  # no paths of the training machine in the file
        node.meta["stack_trace"] = re.sub(r'File "[^"]*/', 'File "', node.meta.get("stack_trace") or "")
    torch.export.save(program, str(HERE / "digits.pt2"))
    shown = torch.stack([test[labels[test] == digit][0] for digit in (3, 0, 7, 5, 8)])
    with torch.no_grad():
        save_file({"pictures": pictures[shown].contiguous()}, str(HERE / "pictures.safetensors"))
        save_file({"0": net(pictures[shown]).contiguous()}, str(HERE / "expected.safetensors"))


if __name__ == "__main__":
    main()
