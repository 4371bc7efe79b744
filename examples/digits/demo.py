#!/usr/bin/env python3
"""The demo: compiles the trained digit classifier, runs it on handwritten digits and shows what it saw. Needs only Python."""
import argparse
import array
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SHADES = " .:-=+*#%@"


def read_tensors(path):
    """safetensors with float32 tensors -> {key: (shape, values)}"""
    data = pathlib.Path(path).read_bytes()
    size, = struct.unpack("<Q", data[:8])
    out = {}
    for key, info in json.loads(data[8:8 + size]).items():
        if key != "__metadata__":
            begin, end = info["data_offsets"]
            values = array.array("f")
            values.frombytes(data[8 + size + begin:8 + size + end])
            out[key] = info["shape"], values
    return out


def call(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nexit {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pteron", default="build/release/bin/pteron")
    options = parser.parse_args()
    work = pathlib.Path(tempfile.mkdtemp(prefix="pteron-demo-"))
    program, results = work / "digits.pte", work / "results.safetensors"
    print("$ pteron compile examples/digits/digits.pt2")
    print(call(options.pteron, "compile", HERE / "digits.pt2", "-o", program))
    call(options.pteron, "run", program, "--inputs", HERE / "pictures.safetensors", "--outputs", results)
    (_, pixels), = read_tensors(HERE / "pictures.safetensors").values()
    _, got = read_tensors(results)["0"]
    _, want = read_tensors(HERE / "expected.safetensors")["0"]
    count = len(want) // 10
    for row in range(8):
        print("   ".join("".join(2 * SHADES[min(9, int(pixels[i * 64 + row * 8 + x] * 9.99))] for x in range(8)) for i in range(count)))
    print("   ".join(f"{max(range(10), key=lambda d: got[i * 10 + d])} ({100 * max(got[i * 10:i * 10 + 10]):5.1f} %)".ljust(16) for i in range(count)))
    worst = max(abs(a - b) for a, b in zip(got, want))
    print(f"\nlargest difference to PyTorch: {worst:.2g}")
    timing = json.loads(call(options.pteron, "bench", program, "--json", "--threads", 1, "--min-time", 0.2))
    print(f"load {timing['load_ms']:.2f} ms, one call {timing['latency_ms']['median'] * 1000:.0f} microseconds on one thread")
    print(f"digits.pt2 {os.path.getsize(HERE / 'digits.pt2'):,} bytes, digits.pte {os.path.getsize(program):,} bytes")
    print("\nNext, with a model of your own saved by torch.export.save:\n  build/release/bin/pteron compile MODEL.pt2 && build/release/bin/pteron inspect MODEL.pte")
    return 0 if worst < 1e-4 else 1


if __name__ == "__main__":
    sys.exit(main())
