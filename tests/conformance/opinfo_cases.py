#!/usr/bin/env python3
"""Single-operator cases from PyTorch's own operator database (OpInfo)."""
import argparse
import itertools
import re
import time

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

from caselib import PUBLIC_SALT, SHORT, Report, Skip, seed_all, split, stable_hash, write_case

EXCLUDE = [
    # random, uninitialised or value depends on memory
    r"bernoulli|cauchy|exponential$|geometric|log_normal|multinomial|^normal|uniform|^rand|dropout"
    r"|rrelu|fractional_max_pool|^empty|^new_empty|pca_lowrank|svd_lowrank|hash_tensor",
    # other tensor kinds, fused GPU kernels, run-time compilation
    r"sparse|jiterator|_scaled_mm|_efficient_attention|_flash_attention|triton|^cdouble|^cfloat"
    r"|^chalf|^complex$|^polar$|view_as_complex|view_as_real|^imag|^real$|^mH$|^H$",
    # training only
    r"backward|_with_update|ctc_loss|/grad$|subgradients",
    # dense linear algebra outside the core
    r"^linalg\.(?!norm|vector_norm|matrix_norm|cross|det$|inv$|vecdot|diagonal|multi_dot|matrix_power)",
    r"^(cholesky|geqrf|lu|ormqr|pinverse|qr|svd|triangular_solve|matrix_exp|logdet|norm/nuc)",
    # special functions hardly any model uses
    r"bessel|polynomial|airy|igamma|polygamma|mvlgamma|zeta|histogram|_segment_reduce|_chunk_cat",
]
EXCLUDED = re.compile("|".join(f"(?:{e})" for e in EXCLUDE))
ACCUMULATES = re.compile(
    r"mm(?!a)|mv|matmul|bmm|conv|linear|einsum|dot|norm|sum|mean|var|std|cum|prod|attention|softm|pool"
    r"|interpolate|upsample|grid|dist|cov|corr|trap|fft|stft|loss|det$|inv$|cross|entropy|similarity"
    r"|nll|addr|add[bc]|kron|inner|outer|index_add|scatter|put|reduce|matrix|trace|diff|gradient|vander")
STRIDE_DEPENDENT = re.compile(r"as_strided|resize|is_contiguous|set_|^contiguous|_strided")
MAIN = (torch.float32, torch.int64, torch.bool)
MINOR = (torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.uint8)
MAX_NUMEL = 4096


def real(value):
    """Complex results leave as pairs of real numbers."""
    if isinstance(value, torch.Tensor) and value.is_complex():
        return torch.view_as_real(value.resolve_conj())
    return value


class Op(torch.nn.Module):
    """Calls `function`; tensors are forward inputs, everything else is baked in."""

    def __init__(self, function, spec, constants, inplace=False):
        super().__init__()
        self.function, self.spec, self.constants, self.inplace = function, spec, constants, inplace

    def forward(self, *tensors):
        rest = iter(tensors)
        values = [next(rest) if c is torch.Tensor else c for c in self.constants]
        first, args, kwargs = pytree.tree_unflatten(values, self.spec)
        if self.inplace:
            first = first.clone()
        result = self.function(first, *args, **kwargs)
        if isinstance(result, tuple):  # plain tuples for torch.return_types
            return tuple(map(real, result))
        return real(result)


def op_id(op):
    return op.name + (f"-{op.variant_test_name}" if op.variant_test_name else "")


def parts(sample):
    return sample.input, tuple(sample.args), dict(sample.kwargs)


def tensors_of(sample):
    return [v for v in pytree.tree_leaves(parts(sample)) if isinstance(v, torch.Tensor)]


def features(sample):
    """What a sample exercises; used to pick few samples that differ."""
    found = set()
    for i, t in enumerate(tensors_of(sample)):
        found.add(f"{i}:rank{t.dim()}")
        found.add(f"{i}:{t.dtype}")
        if t.numel() == 0:
            found.add("empty")
        if t.dim() == 0:
            found.add("scalar")
        if not t.is_contiguous():
            found.add("strided")
        if t.is_floating_point() and t.numel() and not t.isfinite().all():
            found.add("nonfinite")
    shapes = [tuple(t.shape) for t in tensors_of(sample)]
    if len(set(shapes)) > 1:
        found.add("broadcast")
    found.add(f"tensors{len(shapes)}")
    for i, a in enumerate(sample.args):
        if not isinstance(a, torch.Tensor):
            found.add(f"arg{i}={a!r:.60}")
    for k, v in sample.kwargs.items():
        found.add(f"{k}=" + (f"{v!r:.60}" if not isinstance(v, torch.Tensor) else "tensor"))
    return found


def usable(sample):
    tensors = tensors_of(sample)
    return (sum(t.numel() for t in tensors) <= MAX_NUMEL
            and all(t.dtype in SHORT and t.layout == torch.strided and not t.is_conj() for t in tensors))


def candidates(op, dtype, side, salt):
    """(index, sample) pairs that belong to `side`."""
    seed_all(salt, op_id(op), dtype)
    found = []
    for source, limit in ((op.sample_inputs, 100), (op.reference_inputs, 60 if dtype in MAIN else 0)):
        try:
            for sample in itertools.islice(source("cpu", dtype, requires_grad=False), limit):
                found.append(sample)
        except Exception:
            pass  # some OpInfos have no reference inputs for a dtype
    numbered = [(i, s) for i, s in enumerate(found) if usable(s)]
    mine = [(i, s) for i, s in numbered if split(op_id(op), i) == side]
    return mine or numbered[:1]


def choose(samples, count):
    """Greedy cover of features, earliest first."""
    chosen, seen, rest = [], set(), [(i, s, features(s)) for i, s in samples]
    while rest and len(chosen) < count:
        best = max(rest, key=lambda r: (len(r[2] - seen), -r[0]))
        if chosen and not best[2] - seen:
            break
        rest.remove(best)
        seen |= best[2]
        chosen.append(best[:2])
    return chosen


def channels_last(sample):
    def change(v):
        if isinstance(v, torch.Tensor) and v.dim() == 4 and v.numel():
            return v.contiguous(memory_format=torch.channels_last)
        return v
    return pytree.tree_map(change, parts(sample))


def variants(op, dtype, samples):
    """(suffix, index, function, (input, args, kwargs), options) for one op and dtype."""
    for i, s in samples:
        yield "", i, op.op, parts(s), {}
    if dtype != torch.float32 or not samples:
        return
    plain = [(i, s) for i, s in samples if any(t.numel() > 1 for t in tensors_of(s))]
    if plain and not STRIDE_DEPENDENT.search(op.name):
        i, s = plain[-1]
        image = [(j, p) for j, p in plain if any(t.dim() == 4 for t in tensors_of(p))]
        if image:
            yield "cl", image[0][0], op.op, channels_last(image[0][1]), {}
        if all(t.is_contiguous() for _, p in samples for t in tensors_of(p)):
            yield "nc", i, op.op, parts(s.noncontiguous()), {}
    if op.inplace_variant is not None and plain:
        i, s = plain[0]
        yield "inplace", i, op.inplace_variant, parts(s), {"inplace": True}
    if stable_hash(op_id(op)) % 3 == 0:  # decomposing is slow
        i, s = samples[0]
        yield "core", i, op.op, parts(s), {"decompose": True}


def dtypes_for(op, minor_count, salt, main=MAIN, minor=MINOR):
    supported = op.supported_dtypes("cpu")
    extra = sorted((d for d in minor if d in supported),
                   key=lambda d: stable_hash(salt, op_id(op), d))[:minor_count]
    return [d for d in main if d in supported], extra


def generate(out, side="public", salt=PUBLIC_SALT, pattern="", per_dtype=3, minor_count=2,
             limit=0, main=MAIN, minor=MINOR, skip_variants=(), prefix="", every=1):
    report, start = Report(limit=10), time.time()
    for op in op_db:
        name = op_id(op)
        if EXCLUDED.search(name.replace("-", "/")) or not re.search(pattern, name):
            continue
        wanted, extra = dtypes_for(op, minor_count, salt, main, minor)
        for dtype in wanted + extra:
            count = per_dtype if dtype == torch.float32 else 1
            samples = choose(candidates(op, dtype, side, salt), count)
            for suffix, i, function, call, options in variants(op, dtype, samples):
                if suffix in skip_variants or (limit and len(report.written) >= limit):
                    continue
                case = f"{prefix}{name}.{SHORT[dtype]}.{i}" + (f".{suffix}" if suffix else "")
                if every > 1 and stable_hash("every", case) % every:
                    continue
                flat, spec = pytree.tree_flatten(call)
                constants = [torch.Tensor if isinstance(v, torch.Tensor) else v for v in flat]
                tensors = tuple(v.detach() for v in flat if isinstance(v, torch.Tensor))
                module = Op(function, spec, constants, options.pop("inplace", False))
                notes = ", ".join(f"{tuple(t.shape)}" for t in tensors)
                notes += "".join(f" {k}={v!r:.40}" for k, v in call[2].items() if not isinstance(v, torch.Tensor))
                report.attempt(case, lambda: write_case(
                    out, case, module, [tensors], kind="op", op=name, source="opinfo", notes=notes,
                    dtype=dtype, model=False, accumulates=bool(ACCUMULATES.search(name)), **options))
    report.print(out)
    print(f"{time.time() - start:.0f} s")
    return report


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--out", required=True, help="folder for the cases")
    p.add_argument("--ops", default="", help="regular expression on the operator name")
    p.add_argument("--per-dtype", type=int, default=3, help="float32 samples per operator")
    p.add_argument("--minor", type=int, default=2, help="how many of fp16/bf16/fp64/int32/uint8 per operator")
    p.add_argument("--limit", type=int, default=0, help="stop after this many cases")
    p.add_argument("--every", type=int, default=1, help="keep one case of this many, chosen by name")
    p.add_argument("--small", action="store_true", help="one float32 sample per operator, no variants")
    a = p.parse_args()
    if a.small:
        generate(a.out, pattern=a.ops, per_dtype=1, minor_count=0, limit=a.limit,
                 main=(torch.float32,), skip_variants=("cl", "nc", "inplace", "core"))
    else:
        generate(a.out, pattern=a.ops, per_dtype=a.per_dtype, minor_count=a.minor, limit=a.limit, every=a.every)


if __name__ == "__main__":
    main()
