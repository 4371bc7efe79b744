#!/usr/bin/env python3
"""Writes the archives of this folder: the same small program as the torch that runs this script saves it, and as a CUDA machine would save it.

    python make.py                      # torch_VERSION/: archive, inputs, expected outputs (PyTorch eager), case.json for check.py
    python make.py --cuda torch_2_14    # torch_2_14_cuda/: the same archive with every device field rewritten from cpu to cuda:0
    python make.py --pack CASES/model   # small public architectures out of a folder made by tests/conformance/model_cases.py --section B, deflated

An archive holds device fields in four places: the tensors of the graph (tensor_values), device arguments of nodes, the payload tables
(model_weights_config.json, model_constants_config.json) and the storages in the pickle of the sample inputs. Nothing else differs between an
export on the CPU and one on a CUDA device, as long as the program's operators are the same. Needs torch, safetensors and numpy."""
import argparse
import io
import json
import pathlib
import shutil
import sys
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
ALIGNMENT = 64
# Of section B, what is small and told faults apart: vision and language, weight norm, relative positions, rotary positions, data-dependent checks.
PACKED = ("hf_llama", "hf_smolvlm", "hf_t5_encoder", "hf_wav2vec2", "tv_convnext_small_config")


def program():
    """(module, calls, options of caselib.write_case): every kind of weight, mutated and other buffers, a literal, in-place operators, a region
    without gradients, a factory with a device, nested inputs and outputs, a dynamic batch."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Everything(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(2, 3, 3, padding=1).to(memory_format=torch.channels_last)
            self.norm = nn.BatchNorm2d(3)
            self.layer = nn.Linear(3, 3)
            self.same = self.layer
            self.turned = nn.Parameter(torch.randn(3, 3).t())
            self.small = nn.Parameter(torch.randn(3).half())
            self.brief = nn.Parameter(torch.randn(3).bfloat16())
            self.register_buffer("calls", torch.tensor(0))
            self.register_buffer("mask", torch.tensor([True, False, True]))
            self.register_buffer("narrow", torch.tensor([-3, 7], dtype=torch.int8))
            self.register_buffer("empty", torch.zeros(0))
            self.register_buffer("scale", torch.tensor(0.25), persistent=False)

        def forward(self, x, more):
            self.calls.add_(1)
            y = F.relu_(self.norm(self.conv(x)))
            y = F.dropout(y, 0.1, self.training).mean((2, 3))
            y = self.same(self.layer(y)) @ self.turned
            y = torch.where(self.mask, y, y * self.small.float()) + more["bias"] * self.brief.float()
            y[:, 0] += self.scale
            with torch.no_grad():
                z = y * torch.arange(y.shape[1], device=y.device) + torch.tensor([1.0, 2.0, 3.0], device=y.device)
            return {"y": y, "rest": [z.bfloat16(), self.calls.clone(), self.narrow.sum(), torch.cat([self.empty, z[0]])]}

    calls = [(torch.randn(batch, 2, 4, 4), {"bias": torch.randn(3)}) for batch in (2, 3)]
    dynamic = ({0: torch.export.Dim("batch", min=1, max=8)}, {"bias": None})
    return Everything(), calls, dict(dynamic_shapes=dynamic, grad=True)


def make():
    import torch

    sys.path.insert(0, str(HERE.parent / "conformance"))
    import caselib

    name = "torch_" + "_".join(torch.__version__.split(".")[:2])
    caselib.seed_all("archives")
    module, calls, options = program()
    caselib.write_case(HERE, name, module, calls, kind="state", op="archive", source="own", notes=f"saved by torch {torch.__version__}", **options)
    print(name)


def on_cuda(value):
    """JSON with every {"type": "cpu"} device replaced."""
    if isinstance(value, list):
        return [on_cuda(v) for v in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"type", "index"} and value["type"] == "cpu":
        return {"type": "cuda", "index": 0}
    return {k: on_cuda(v) for k, v in value.items()}


def pickle_on_cuda(data):
    """A protocol 2 pickle whose storages lie on the device "cpu": BINUNICODE, length, text."""
    return data.replace(b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:0")


def rewrite(data, edit, method=zipfile.ZIP_STORED):
    """A zip archive with edit(name, bytes) applied to every entry; stored ones are aligned as torch does it."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w", method, compresslevel=9) as new:
        for item in old.infolist():
            info = zipfile.ZipInfo(item.filename, (1980, 1, 1, 0, 0, 0))
            behind = out.tell() + 30 + len(item.filename.encode()) + 4
            padding = -behind % ALIGNMENT
            info.compress_type = method
            if method == zipfile.ZIP_STORED:
                info.extra = b"FB" + padding.to_bytes(2, "little") + b"Z" * padding
            new.writestr(info, edit(item.filename, old.read(item.filename)))
    return out.getvalue()


def edit_entry(name, data):
    if name.endswith(".json"):
        return json.dumps(on_cuda(json.loads(data))).encode()
    if name.endswith(".pt"):
        return rewrite(data, lambda inner, more: pickle_on_cuda(more) if inner.endswith("data.pkl") else more)
    return data


def make_cuda(source):
    folder = HERE / f"{source}_cuda"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(HERE / source, folder)
    (folder / "model.pt2").write_bytes(rewrite((HERE / source / "model.pt2").read_bytes(), edit_entry))
    case = json.loads((folder / "case.json").read_text())
    case.update(name=folder.name, notes=f"{source} with device fields rewritten to cuda:0")
    (folder / "case.json").write_text(json.dumps(case, indent=1) + "\n")
    print(folder.name)


def pack(cases):
    for name in PACKED:
        folder = HERE / name
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(pathlib.Path(cases) / name, folder)
        (folder / "model.pt2").write_bytes(rewrite((folder / "model.pt2").read_bytes(), lambda _, data: data, zipfile.ZIP_DEFLATED))
        print(name)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuda", metavar="FOLDER")
    parser.add_argument("--pack", metavar="FOLDER")
    options = parser.parse_args()
    if options.pack:
        pack(options.pack)
    elif options.cuda:
        make_cuda(options.cuda)
    else:
        make()


if __name__ == "__main__":
    main()
