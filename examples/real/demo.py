#!/usr/bin/env python3
"""The demo with trained public models that Python packages carry: an ImageNet classifier on photographs and a sentence embedder.

Exports both, compiles and runs them with pteron, shows the answers and compares them with PyTorch. ./dev demo --real runs it in .venv-models."""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import time
import warnings

warnings.filterwarnings("ignore")
os.environ.update(HF_HUB_OFFLINE="1", HF_HUB_DISABLE_PROGRESS_BARS="1", TRANSFORMERS_VERBOSITY="error")  # everything is in packages
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "conformance"))

import torch  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

import real_cases  # noqa: E402

SHADES = " .:-=+*#%@"
SENTENCES = ("A man is eating food.", "Someone has a meal.", "The cat sleeps on the sofa.", "A kitten naps on the couch.", "The weather is lovely today.",
             "It is sunny outside!")


def call(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nexit {done.returncode}: {done.stderr.strip()}")
    return done.stdout


class Model:
    """One exported and compiled program in a folder; `equal` says whether every answer so far was PyTorch's."""

    def __init__(self, pteron, folder, name, net, example, dynamic_shapes=None):
        self.pteron, self.net, self.name, self.equal = pteron, net, name, True
        self.archive, self.program = folder / f"{name}.pt2", folder / f"{name}.pte"
        begin = time.time()
        with torch.no_grad():
            torch.export.save(torch.export.export(net, example, dynamic_shapes=dynamic_shapes), self.archive)
        print(f"exported by PyTorch {torch.__version__} in {time.time() - begin:.1f} s\n$ pteron compile {self.archive.relative_to(ROOT)}")
        print(call(pteron, "compile", self.archive, "-o", self.program))

    def __call__(self, *calls):
        """First outputs of one process that is called once for each tuple of inputs, compared with PyTorch."""
        words, files = [], []
        for i, inputs in enumerate(calls):
            given, made = (self.program.with_name(f"{self.name}.{what}{i}.safetensors") for what in ("in", "out"))
            save_file({str(k): x.contiguous() for k, x in enumerate(inputs)}, given)
            words += ["--inputs", given, "--outputs", made]
            files.append(made)
        call(self.pteron, "run", self.program, *words)
        got = [load_file(f)["0"] for f in files]
        with torch.no_grad():
            want = [self.net(*inputs) for inputs in calls]
        for a, b in zip(got, want):
            if a.shape != b.shape or a.dtype != b.dtype:
                sys.exit(f"{self.name}: {a.dtype}{list(a.shape)} where PyTorch gives {b.dtype}{list(b.shape)}")
            difference, scale = (a - b).abs().max().item(), b.abs().max().item()
            equal = difference <= 1e-4 * max(1.0, scale)  # False for NaN
            self.equal = self.equal and equal
            print(f"largest difference to PyTorch: {difference:.2g}, outputs up to {scale:.3g}: {'equal' if equal else 'NOT EQUAL'}")
        return got, want

    def report(self, what="one call"):
        timing = json.loads(call(self.pteron, "bench", self.program, "--json", "--threads", 1, "--min-time", 0.5))
        print(f"load {timing['load_ms']:.2f} ms, {what} {timing['latency_ms']['median']:.1f} ms on one thread; {self.archive.name} "
              f"{os.path.getsize(self.archive):,} bytes, {self.program.name} {os.path.getsize(self.program):,} bytes\n")
        return self.equal


def picture(x, rows=14):
    """A [1,3,H,W] tensor as lines of characters."""
    grey = torch.nn.functional.interpolate(x.mean(1, keepdim=True), (rows, 2 * rows), mode="area")[0, 0]
    grey = (grey - grey.min()) / (grey.max() - grey.min())
    return ["".join(SHADES[min(9, int(v * 9.99))] for v in row) for row in grey]


def top_five(logits, names):
    chance, index = logits.softmax(-1).topk(5)
    return [(names(int(i)), float(c)) for i, c in zip(index, chance)]


def classify(pteron, folder):
    from timm.data import ImageNetInfo

    names = ImageNetInfo("imagenet-1k").index_to_description
    photographs = list(real_cases.pictures())
    model = Model(pteron, folder, "classifier", real_cases.classifier_net(), (photographs[0][1],))
    got, want = model(*[(x,) for _, x in photographs])
    same = True
    for (name, x), a, b in zip(photographs, got, want):
        lines = [f"photograph '{name}'"] + [f"{100 * chance:5.1f} %  {label.split(',')[0]}" for label, chance in top_five(a[0], names)]
        same = same and [label for label, _ in top_five(a[0], names)] == [label for label, _ in top_five(b[0], names)]
        lines.insert(1, "")
        for i, row in enumerate(picture(x)):
            print(row, " ", lines[i] if i < len(lines) else "")
        print()
    print(f"top five names: {'the same as' if same else 'OTHER than'} PyTorch's")
    return model.report() and same


def compare_sentences(pteron, folder):
    tokenizer, net = real_cases.embedder_net()
    batch, length = torch.export.Dim("batch", min=1, max=8), torch.export.Dim("length", min=2, max=64)

    def tokens(texts):
        t = tokenizer(list(texts), return_tensors="pt", padding=True)
        return t["input_ids"], t["attention_mask"]

    model = Model(pteron, folder, "embedder", net, tokens(SENTENCES[:2]), ({0: batch, 1: length}, {0: batch, 1: length}))
    got, _ = model(tokens(SENTENCES), tokens(SENTENCES[:1]), tokens(SENTENCES[2:5]))  # batches of 6, 1 and 3, three lengths
    alike = got[0] @ got[0].t()
    print("\nsimilarity (cosine)" + " " * 11 + "".join(f"{i + 1:>6}" for i in range(len(SENTENCES))))
    for i, text in enumerate(SENTENCES):
        print(f"{i + 1}  {text:<27}" + "".join(f"{v:6.2f}" for v in alike[i].tolist()))
    print()
    return model.report("one call at the largest sizes (8 texts of 64 tokens)")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pteron", default=str(ROOT / "build" / "release" / "bin" / "pteron"))
    parser.add_argument("--work", default=str(ROOT / "build" / "real"), help="folder for the exported and compiled models")
    options = parser.parse_args()
    folder = pathlib.Path(options.work).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    print("efficientnet-lite0, trained on ImageNet, on four photographs of scikit-image")
    good = classify(options.pteron, folder)
    print("all-MiniLM-L6-v2, a sentence embedder with dynamic batch and length")
    good = compare_sentences(options.pteron, folder) and good
    print("Next, with a model of your own saved by torch.export.save:\n  build/release/bin/pteron compile MODEL.pt2 && build/release/bin/pteron inspect MODEL.pte")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
