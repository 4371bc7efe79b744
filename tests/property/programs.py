"""Random small programs for property_test.py: a program is plain data (inputs, buffers, steps), made so that every step runs eagerly.

Values that went through roundings that kernels may do differently (sums, exponentials, products of matrices) are marked inexact; operators
that jump (comparisons, floor, casts to integers, sorting) only see exact ones, so that a difference in the last place stays one."""
import functools
import math
import random

import torch

import calls

FLOATS = ["float32", "float32", "float32", "float64", "float16", "bfloat16"]
INTS = ["int64", "int64", "int32", "int16", "int8", "uint8"]
ALL = FLOATS + INTS + ["bool"]
LIMIT = 1e4  # programs whose values grow beyond it are not made


def dtype_of(name):
    return getattr(torch, name)


def make_tensor(rng, dtype, shape, layout="plain"):
    """Numbers that are exact in every dtype; `layout` says how they lie in memory."""
    def numbers(sizes):
        count = math.prod(sizes)
        if dtype == "bool":
            values = [rng.random() < 0.5 for _ in range(count)]
        elif dtype in FLOATS:
            values = [rng.randint(-24, 24) / 8 for _ in range(count)]
        else:
            values = [rng.randint(0 if dtype == "uint8" else -9, 9) for _ in range(count)]
        return torch.tensor(values, dtype=dtype_of(dtype)).reshape(sizes)
    if layout == "turned" and len(shape) >= 2:
        return numbers(shape[::-1]).permute(*reversed(range(len(shape))))
    if layout == "stepped" and shape:
        return numbers([*shape[:-1], shape[-1] * 2])[..., ::2]
    if layout == "channels_last" and len(shape) == 4:
        return numbers(shape).contiguous(memory_format=torch.channels_last)
    if layout == "channels_last" and len(shape) == 5:
        return numbers(shape).contiguous(memory_format=torch.channels_last_3d)
    if layout == "shuffled" and len(shape) >= 2:  # the last dim lies outermost
        return numbers([shape[-1], *shape[:-1]]).movedim(0, -1)
    return numbers(shape)


# ---------------------------------------------------------------- steps
# A step is {"op": name, "in": [value numbers], ...parameters}. apply() runs it; results are appended to the list of values.

UNARY_EXACT = ["neg", "abs", "relu", "sign", "square", "clone", "contiguous", "detach", "positive"]
UNARY_SMOOTH = ["sin", "cos", "tanh", "sigmoid", "exp_", "erf", "gelu", "silu", "softplus", "log1p_", "sqrt_", "atan", "rsqrt_"]
UNARY_JUMP = ["floor", "ceil", "round", "trunc", "isnan", "logical_not"]
BINARY_EXACT = ["add", "sub", "mul", "maximum", "minimum", "rsub"]
BINARY_JUMP = ["eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_xor"]
BINARY_INT = ["bitwise_and", "bitwise_or", "bitwise_xor"]
IN_PLACE = ["add_", "sub_", "mul_", "copy_", "fill_", "zero_", "relu_", "clamp_", "masked_fill_", "assign", "neg_", "addcmul_", "lerp_", "index_add_",
            "index_copy_", "index_put_", "scatter_", "scatter_add_", "abs_", "index_fill_", "transpose_write", "where_write"]


def unary(name, x):
    if name == "exp_":
        return x.clamp(-3, 3).exp()
    if name == "log1p_":
        return x.abs().log1p()
    if name == "sqrt_":
        return x.abs().sqrt()
    if name == "rsqrt_":
        return (x.abs() + 0.5).rsqrt()
    if name == "gelu":
        return torch.nn.functional.gelu(x)
    if name == "silu":
        return torch.nn.functional.silu(x)
    if name == "softplus":
        return torch.nn.functional.softplus(x)
    return getattr(x, name)() if hasattr(x, name) else getattr(torch, name)(x)


def index_tensor(values, limit):
    return torch.tensor([v % limit for v in values], dtype=torch.int64)


def apply(step, values, watch=None):
    """Runs one step on `values` (a list that grows). In-place steps return nothing new. `watch` sees every result, those inside control flow too."""
    op, p = step["op"], step
    args = [values[i] for i in step["in"]]
    x = args[0]
    if op == "unary":
        out = unary(p["name"], x)
    elif op == "binary":
        out = getattr(torch, p["name"])(x, args[1])
    elif op == "binary_number":
        out = getattr(torch, p["name"])(x, p["number"])
    elif op == "divide":
        out = x / (args[1].abs() + 0.5) if not p.get("mode") else torch.div(x, args[1].abs() + 1, rounding_mode=p["mode"])
    elif op == "where":
        out = torch.where(args[0], args[1], args[2])
    elif op == "reduce":
        keep = {"keepdim": p["keepdim"]}
        out = getattr(torch, p["name"])(x, p["dim"], **keep) if p["dim"] is not None else getattr(torch, p["name"])(x)
    elif op == "cumsum":
        out = x.cumsum(p["dim"])
    elif op == "sort":
        out = x.sort(dim=p["dim"], stable=True, descending=p["down"])[p["which"]]
    elif op == "softmax":
        out = x.softmax(p["dim"])
    elif op == "layer_norm":
        out = torch.nn.functional.layer_norm(x, x.shape[-1:], eps=0.5)  # a smaller one makes rounding errors large
    elif op == "matmul":
        out = x @ args[1].mT if p["turn"] else x @ args[1]
    elif op == "to":
        out = x.to(dtype_of(p["dtype"]))
    elif op == "cat":
        out = torch.cat(args, p["dim"])
    elif op == "stack":
        out = torch.stack(args, p["dim"])
    elif op == "transpose":
        out = x.transpose(p["a"], p["b"])
    elif op == "permute":
        out = x.permute(*p["dims"])
    elif op == "flatten":
        out = x.flatten()
    elif op == "reshape":
        out = x.reshape(p["sizes"])
    elif op == "slice":
        index = [slice(None)] * x.dim()
        index[p["dim"]] = slice(p["start"], p["end"], p["step"])
        out = x[tuple(index)]
    elif op == "select":
        out = x.select(p["dim"], p["index"])
    elif op == "unsqueeze":
        out = x.unsqueeze(p["dim"])
    elif op == "squeeze":
        out = x.squeeze() if p["dim"] is None else x.squeeze(p["dim"])
    elif op == "expand":
        out = x.unsqueeze(p["dim"]).expand(*p["sizes"])
    elif op == "narrow":
        out = x.narrow(p["dim"], p["start"], p["length"])
    elif op == "diagonal":
        out = x.diagonal(p["offset"], 0, 1)
    elif op == "unfold":
        out = x.unfold(p["dim"], p["size"], p["step"])
    elif op == "chunk":
        out = x.chunk(p["chunks"], p["dim"])[p["which"]]
    elif op == "flip":
        out = x.flip(p["dim"])
    elif op == "roll":
        out = x.roll(p["shift"], p["dim"])
    elif op == "gather":
        out = x.index_select(p["dim"], index_tensor(p["index"], x.shape[p["dim"]]))
    elif op == "take":
        index = [slice(None)] * x.dim()
        index[p["dim"]] = index_tensor(p["index"], x.shape[p["dim"]])
        out = x[tuple(index)]
    elif op == "pad":
        out = torch.nn.functional.pad(x, p["pad"], value=p["number"])
    elif op == "call":
        out = calls.CALLS[p["f"]][0](args, p)
    elif op == "control":
        out = calls.run_control(apply if watch is None else functools.partial(apply, watch=watch), p, args)
    elif op == "write":
        write(step, args)
        if watch is not None:
            watch(x)
        return
    else:
        raise AssertionError(op)
    if watch is not None:
        watch(out)
    values.append(out)


def write(p, args):
    x, name = args[0], p["name"]
    y = args[1] if len(args) > 1 else p["number"]
    if name in ("add_", "sub_", "mul_", "copy_"):
        getattr(x, name)(y)
    elif name == "fill_":
        x.fill_(p["number"])
    elif name in ("zero_", "relu_", "neg_", "abs_"):
        getattr(x, name)()
    elif name == "clamp_":
        x.clamp_(-1, 2)
    elif name == "masked_fill_":
        x.masked_fill_(args[1], p["number"])
    elif name == "assign":
        index = [slice(None)] * x.dim()
        index[p["dim"]] = slice(p["start"], p["end"], p["step"])
        x[tuple(index)] = p["number"] if len(args) < 2 else args[1]
    elif name == "addcmul_":
        x.addcmul_(args[1], args[2], value=p["number"])
    elif name == "lerp_":
        x.lerp_(args[1], 0.25)
    elif name == "transpose_write":
        x.mT.add_(args[1])
    elif name == "where_write":
        x[args[1]] = p["number"]
    else:
        index = index_tensor(p["index"], x.shape[p["dim"]])
        if name == "index_fill_":
            x.index_fill_(p["dim"], index, p["number"])
        elif name == "index_put_":
            at = [slice(None)] * x.dim()
            at[p["dim"]] = index
            x[tuple(at)] = args[1]
        elif name in ("scatter_", "scatter_add_"):
            sizes = [1] * x.dim()
            sizes[p["dim"]] = len(p["index"])
            full = list(args[1].shape)
            getattr(x, name)(p["dim"], index.reshape(sizes).expand(full), args[1])
        else:
            getattr(x, name)(p["dim"], index, args[1])


class Program(torch.nn.Module):
    """Runs the steps; torch.export traces through it."""

    def __init__(self, spec):
        super().__init__()
        self.spec = spec
        rng = random.Random(spec["data_seed"])
        for i, b in enumerate(spec["buffers"]):
            self.register_buffer(f"b{i}", make_tensor(rng, b["dtype"], b["shape"]))

    def forward(self, *inputs):
        values = [*inputs, *(getattr(self, f"b{i}") for i in range(len(self.spec["buffers"])))]
        for step in self.spec["steps"]:
            apply(step, values)
        return tuple(values[i] for i in self.spec["outputs"])


def make_inputs(spec, call, sizes=None):
    """Inputs of one call; `sizes` replaces dims: {(input, dim): size}."""
    rng = random.Random(f"{spec['data_seed']} {call}")
    made = []
    for i, x in enumerate(spec["inputs"]):
        shape = [(sizes or {}).get((i, d), n) for d, n in enumerate(x["shape"])]
        made.append(make_tensor(rng, x["dtype"], shape, x["layout"]))
    return tuple(made)


# ---------------------------------------------------------------- making programs

class Maker:
    """Makes a program step by step, each tried on real values."""

    depth = 0  # of control flow

    def __init__(self, seed):
        self.rng = random.Random(seed)
        rng = self.rng
        deep = rng.random() < 0.15  # ranks up to 8, with short dims
        rank = rng.randint(5, 8) if deep else 4
        base = [rng.choice([1, 2, 3, 4, 5] if not deep else [1, 1, 2, 2, 3]) for _ in range(rank)]
        if rng.random() < 0.08:
            base[rng.randrange(rank)] = 0
        self.spec = {"seed": seed, "data_seed": seed, "inputs": [], "buffers": [], "steps": [], "outputs": [], "dynamic": rng.random() < 0.3}
        main = rng.choice(FLOATS + INTS[:2])
        for _ in range(rng.randint(1, 3)):
            shape = base[rank - rng.choice([0, 1, 2, 2, 3, 3, rank, rank - 1 if deep else 4]):] if rng.random() < 0.8 else [rng.randint(1, 4) for _ in range(rng.randint(0, 3))]
            layout = rng.choice(["plain", "plain", "plain", "turned", "stepped", "channels_last", "shuffled"])
            self.spec["inputs"].append({"dtype": main if rng.random() < 0.6 else rng.choice(ALL), "shape": shape, "layout": layout})
        for _ in range(rng.choice([0, 0, 1, 1, 2])):
            shape = base[rank - rng.choice([1, 2, 3, 0]):]
            self.spec["buffers"].append({"dtype": main if rng.random() < 0.7 else rng.choice(ALL), "shape": shape})
        self.module = Program(self.spec)
        self.values = self.start()
        self.exact = [True] * len(self.values)
        # Values that share memory: writing to one with inexact numbers makes all of them inexact.
        self.family = list(range(len(self.values)))

    # choosing values
    def fits(self, a, b):
        return fits(a, b)

    def body(self, operands, exact):
        """Steps of a branch or loop body over copies of `operands`, and whether their result is exact."""
        child = object.__new__(Branch)
        child.rng, child.depth = self.rng, self.depth + 1
        child.first = [v.detach().clone() for v in operands]
        child.values, child.exact = [v.clone() for v in child.first], list(exact)
        child.family = list(range(len(operands)))
        child.spec = {"steps": []}
        for _ in range(self.rng.randint(0, 5)):
            made = child.step()
            if made is not None:
                child.accept(made)
        views = [self.rng.choice(["detach", "alias", "turn", "slice"]) for _ in range(self.rng.choice([0, 0, 1, 2]))]
        at = self.rng.randrange(max(0, len(child.values) - 3), len(child.values))
        return {"steps": child.spec["steps"], "views": views, "pick": at}, all(child.exact)

    def pick(self, test=lambda t: True):
        fits = [i for i, v in enumerate(self.values) if test(v)]
        if not fits:
            return None
        return self.rng.choice(fits[-6:]) if self.rng.random() < 0.6 else self.rng.choice(fits)

    def jumpable(self, i):
        return self.exact[i] or not self.values[i].is_floating_point()

    weights = [6, 8, 4, 2, 4, 16, 4, 24, 3, 4, 3, 2, 4, 2, 24, 3]

    def step(self):
        rng = self.rng
        kind = rng.choices(["unary", "binary", "number", "divide", "reduce", "view", "join", "write", "matmul", "cast", "where", "norm", "index", "sort", "call", "control"],
                           self.weights)[0]
        return getattr(self, f"make_{kind}")()

    def make_unary(self):
        i = self.pick()
        x = self.values[i]
        if x.dtype == torch.bool:
            return {"op": "unary", "name": rng_choice(self.rng, ["logical_not", "clone"]), "in": [i]}, True
        group = self.rng.random()
        if group < 0.35 or not x.is_floating_point():
            return {"op": "unary", "name": rng_choice(self.rng, UNARY_EXACT), "in": [i]}, True
        if group < 0.8 or not self.jumpable(i):
            return {"op": "unary", "name": rng_choice(self.rng, UNARY_SMOOTH), "in": [i]}, False
        return {"op": "unary", "name": rng_choice(self.rng, UNARY_JUMP), "in": [i]}, True

    def make_binary(self):
        i = self.pick()
        j = self.pick(lambda t: fits(self.values[i], t))
        if j is None:
            return None
        name = rng_choice(self.rng, BINARY_EXACT + BINARY_JUMP + BINARY_INT)
        if name in BINARY_JUMP and not (self.jumpable(i) and self.jumpable(j)):
            return None
        return {"op": "binary", "name": name, "in": [i, j]}, True

    def make_number(self):
        i = self.pick()
        number = rng_choice(self.rng, [2, -1, 0.5, 1.25, 3, True]) if self.rng.random() < 0.9 else 0
        name = rng_choice(self.rng, ["add", "sub", "mul", "eq", "lt", "ge"])
        if name in BINARY_JUMP and not self.jumpable(i):
            return None
        return {"op": "binary_number", "name": name, "number": number, "in": [i]}, True

    def make_divide(self):
        i = self.pick()
        j = self.pick(lambda t: fits(self.values[i], t) and t.dtype != torch.bool)
        if j is None:
            return None
        mode = rng_choice(self.rng, [None, None, "floor", "trunc"])
        if mode and not (self.jumpable(i) and self.jumpable(j)):
            return None
        return {"op": "divide", "mode": mode, "in": [i, j]}, self.values[i].dtype not in (torch.float16, torch.bfloat16)

    def make_where(self):
        c = self.pick(lambda t: t.dtype == torch.bool)
        if c is None:
            return None
        i = self.pick(lambda t: fits(self.values[c], t))
        if i is None:
            return None
        j = self.pick(lambda t: fits(self.values[i], t) and fits(self.values[c], t))
        return None if j is None else ({"op": "where", "in": [c, i, j]}, True)

    def make_reduce(self):
        i = self.pick()
        x = self.values[i]
        dim = self.rng.randrange(-x.dim(), x.dim()) if x.dim() and self.rng.random() < 0.8 else None
        name = rng_choice(self.rng, ["sum", "sum", "mean", "amax", "amin", "any", "all", "argmax", "var", "prod", "cumsum", "logsumexp"])
        if name == "cumsum":
            return None if dim is None else ({"op": "cumsum", "dim": dim, "in": [i]}, not x.is_floating_point())
        if name == "logsumexp" and dim is None or name in ("amax", "amin") and dim is None:
            dim = list(range(x.dim()))
        if name in ("any", "all", "argmax") and not self.jumpable(i):
            return None
        exact = name in ("amax", "amin", "any", "all", "argmax") or not x.is_floating_point() and name in ("sum", "prod")
        return {"op": "reduce", "name": name, "dim": dim, "keepdim": self.rng.random() < 0.4, "in": [i]}, exact

    def make_view(self):
        rng = self.rng
        i = self.pick()
        x = self.values[i]
        rank = x.dim()
        name = rng_choice(rng, ["transpose", "permute", "flatten", "reshape", "slice", "slice", "select", "unsqueeze", "squeeze", "expand", "narrow",
                                "diagonal", "unfold", "chunk", "flip", "roll", "pad"])
        s = {"op": name, "in": [i]}
        dim = rng.randrange(rank) if rank else 0
        size = x.shape[dim] if rank else 0
        if rank == 0 and name not in ("flatten", "unsqueeze", "reshape"):
            return None
        if name == "transpose":
            s.update(a=dim, b=rng.randrange(rank))
        elif name == "permute":
            dims = list(range(rank))
            rng.shuffle(dims)
            s.update(dims=dims)
        elif name == "reshape":
            s.update(sizes=factors(rng, x.numel()))
        elif name == "slice":
            start = rng.randint(-size, size) if rng.random() < 0.7 else None
            end = rng.randint(-size, size + 1) if rng.random() < 0.5 else None
            s.update(dim=dim, start=start, end=end, step=rng.choice([1, 1, 1, 2, 3]))
        elif name == "select":
            if size == 0:
                return None
            s.update(dim=dim, index=rng.randrange(-size, size))
        elif name == "unsqueeze":
            s.update(dim=rng.randint(0, rank))
        elif name == "squeeze":
            s.update(dim=None if rng.random() < 0.4 else dim)
        elif name == "expand":
            at = rng.randint(0, rank)
            s.update(dim=at, sizes=[*x.shape[:at], rng.randint(1, 3), *x.shape[at:]])
        elif name == "narrow":
            start = rng.randint(0, size)
            s.update(dim=dim, start=start, length=rng.randint(0, size - start))
        elif name == "diagonal":
            if rank < 2:
                return None
            s.update(offset=rng.choice([0, 0, 1, -1]))
        elif name == "unfold":
            if size < 2:
                return None
            s.update(dim=dim, size=rng.randint(1, size), step=rng.randint(1, 2))
        elif name == "chunk":
            chunks = rng.randint(1, 3)
            s.update(dim=dim, chunks=chunks, which=rng.choice([0, -1]))
        elif name == "flip":
            s.update(dim=[dim])
        elif name == "roll":
            s.update(dim=dim, shift=rng.randint(-2, 3))
        elif name == "pad":
            s.update(pad=[rng.randint(0, 2), rng.randint(0, 1)], number=1)
        return s, True

    def make_join(self):
        i = self.pick()
        x = self.values[i]
        rank = x.dim()
        if self.rng.random() < 0.5:
            same = [j for j, v in enumerate(self.values) if v.shape == x.shape]
            return {"op": "stack", "dim": self.rng.randint(0, rank), "in": [i, rng_choice(self.rng, same)]}, True
        if rank == 0:
            return None
        dim = self.rng.randrange(rank)
        same = [j for j, v in enumerate(self.values) if v.dim() == rank and all(v.shape[d] == x.shape[d] for d in range(rank) if d != dim)]
        return {"op": "cat", "dim": dim, "in": [i, *self.rng.choices(same, k=self.rng.randint(1, 2))]}, True

    def make_matmul(self):
        i = self.pick(lambda t: t.dim() >= 1 and t.is_floating_point())
        if i is None:
            return None
        x = self.values[i]
        j = self.pick(lambda t: t.dtype == x.dtype and t.dim() >= 1)
        return {"op": "matmul", "turn": self.values[j].dim() >= 2 and self.rng.random() < 0.6, "in": [i, j]}, False

    def make_cast(self):
        i = self.pick()
        to = rng_choice(self.rng, ALL)
        if not self.jumpable(i) and to not in FLOATS:
            return None
        return {"op": "to", "dtype": to, "in": [i]}, True

    def make_norm(self):
        i = self.pick(lambda t: t.dim() >= 1 and t.is_floating_point())
        if i is None:
            return None
        if self.rng.random() < 0.6:
            return {"op": "softmax", "dim": self.rng.randrange(self.values[i].dim()), "in": [i]}, False
        return {"op": "layer_norm", "in": [i]}, False

    def make_index(self):
        i = self.pick(lambda t: t.dim() >= 1)
        if i is None:
            return None
        dim = self.rng.randrange(self.values[i].dim())
        if self.values[i].shape[dim] == 0:
            return None
        return {"op": rng_choice(self.rng, ["gather", "take"]), "dim": dim, "index": [self.rng.randint(0, 9) for _ in range(self.rng.randint(1, 4))], "in": [i]}, True

    def make_call(self):
        return calls.make_call(self)

    def make_control(self):
        return calls.make_control(self)

    def make_sort(self):
        i = self.pick(lambda t: t.dim() >= 1 and t.dtype != torch.bool)
        if i is None or not self.jumpable(i):
            return None
        return {"op": "sort", "dim": self.rng.randrange(self.values[i].dim()), "down": self.rng.random() < 0.5, "which": self.rng.randrange(2), "in": [i]}, True

    def make_write(self):
        rng = self.rng
        i = self.pick()
        x = self.values[i]
        name = rng_choice(rng, IN_PLACE)
        s = {"op": "write", "name": name, "in": [i], "number": rng_choice(rng, [2, 0, 1, -1, 0.5])}
        rank = x.dim()
        dim = rng.randrange(rank) if rank else 0
        size = x.shape[dim] if rank else 0
        if name in ("add_", "sub_", "mul_", "copy_") and rng.random() < 0.8:
            j = self.pick(lambda t: broadcasts_to(t, x))
            s["in"].append(j if j is not None else i)
        elif name in ("masked_fill_", "where_write"):
            j = self.pick(lambda t: t.dtype == torch.bool and (broadcasts_to(t, x) if name == "masked_fill_" else t.shape == x.shape))
            if j is None:
                return None
            s["in"].append(j)
        elif name == "assign":
            if rank == 0:
                return None
            start = rng.randint(0, size)
            s.update(dim=dim, start=start, end=rng.randint(start, size + 1), step=rng.choice([1, 1, 2]))
            if rng.random() < 0.7:
                shape = list(x.shape)
                shape[dim] = len(range(*slice(s["start"], s["end"], s["step"]).indices(size)))
                j = self.pick(lambda t: broadcasts_to_shape(t, shape))
                if j is not None:
                    s["in"].append(j)
        elif name in ("addcmul_", "lerp_"):
            if not x.is_floating_point():
                return None
            j = self.pick(lambda t: broadcasts_to(t, x) and t.dtype == x.dtype)
            s["in"] += [j, j]
        elif name == "transpose_write":
            if rank < 2:
                return None
            j = self.pick(lambda t: broadcasts_to(t, x.mT))
            if j is None:
                return None
            s["in"].append(j)
        elif name in ("index_add_", "index_copy_", "index_put_", "index_fill_", "scatter_", "scatter_add_"):
            if rank == 0 or size == 0:
                return None
            count = rng.randint(1, size)
            s.update(dim=dim, index=rng.sample(range(size), count))
            if name != "index_fill_":
                shape = list(x.shape)
                shape[dim] = count
                j = self.pick(lambda t: list(t.shape) == shape and t.dtype == x.dtype)
                if j is None:
                    return None
                s["in"].append(j)
        return s, True

    # trying a step
    def accept(self, made):
        step, exact = made
        before = len(self.values)
        sources = step["in"]
        if step["op"] == "write":
            # Reading memory that the same step writes has no defined result.
            if any(self.family[j] == self.family[sources[0]] for j in sources[1:]):
                return
            x = self.values[sources[0]]
            if x.dtype == torch.bool and any(self.values[j].is_floating_point() and not self.exact[j] for j in sources[1:]):
                return
            if not x.is_floating_point() and any(not self.jumpable(j) for j in sources[1:]):
                return
            if 0 in x.stride() and x.numel() > 0 or step["name"] == "transpose_write" and x.numel() == 0:
                return
            # Elements that share memory (windows of unfold) have a defined result only if all get the same number.
            if overlaps(x) and not (step["name"] in ("fill_", "zero_") or step["name"] == "assign" and len(sources) == 1):
                return
        # The sign of a sum that rounds to nothing is no one's mistake.
        if step["op"] == "unary" and step["name"] == "sign" and not all(self.jumpable(j) for j in sources):
            return
        try:
            apply(step, self.values)
        except Exception:  # eager refuses the step
            del self.values[before:]
            if step["op"] == "write":
                self.rebuild()
            return
        if any(too_big(v) for v in self.values[before:] + [self.values[j] for j in sources]):
            del self.values[before:]
            if step["op"] == "write":
                self.rebuild()
            return
        self.spec["steps"].append(step)
        inherited = all(self.exact[j] for j in sources)
        if step["op"] == "write":
            if not inherited:
                for j, f in enumerate(self.family):
                    if f == self.family[sources[0]]:
                        self.exact[j] = False
            return
        out = self.values[before]
        storage = out.untyped_storage().data_ptr()
        family = next((self.family[j] for j in range(before) if self.values[j].untyped_storage().data_ptr() == storage and self.values[j].numel()), before)
        self.family.append(family)
        self.exact.append(exact and inherited)

    def start(self):
        return [*make_inputs(self.spec, 0), *(getattr(self.module, f"b{i}").clone() for i in range(len(self.spec["buffers"])))]

    def rebuild(self):
        """The values after all accepted steps: a refused write may have changed some."""
        self.values = self.start()
        for step in self.spec["steps"]:
            apply(step, self.values)

    def make(self):
        with torch.no_grad():
            for _ in range(self.rng.randint(4, 40)):
                made = self.step()
                if made is not None:
                    self.accept(made)
        count = len(self.values)
        inputs = len(self.spec["inputs"])
        candidates = list(range(inputs, count)) or [0]
        chosen = sorted(set(self.rng.choices(candidates, k=min(3, len(candidates))) + [candidates[-1]]))
        self.spec["outputs"] = chosen
        return self.spec


class Branch(Maker):
    """Steps inside control flow: nothing is written to (torch.cond refuses it), fewer views."""

    weights = [8, 8, 5, 2, 4, 10, 3, 0, 3, 3, 4, 2, 3, 1, 14, 3]

    def start(self):
        return [v.clone() for v in self.first]


def overlaps(x):
    if x.numel() < 2:
        return False
    last = sum((n - 1) * s for n, s in zip(x.shape, x.stride()))
    places = torch.arange(last + 1).as_strided(x.shape, x.stride())
    return places.unique().numel() < x.numel()


def rng_choice(rng, items):
    return items[rng.randrange(len(items))]


def fits(a, b):
    try:
        torch.broadcast_shapes(a.shape, b.shape)
        return True
    except RuntimeError:
        return False


def broadcasts_to_shape(t, shape):
    try:
        return list(torch.broadcast_shapes(t.shape, shape)) == list(shape)
    except RuntimeError:
        return False


def broadcasts_to(t, x):
    return broadcasts_to_shape(t, x.shape)


def factors(rng, count):
    """Sizes with that product."""
    if count == 0:
        return [0, rng.randint(1, 3)]
    sizes, left = [], count
    while left > 1 and len(sizes) < 3:
        divisors = [d for d in range(1, left + 1) if left % d == 0]
        sizes.append(rng_choice(rng, divisors))
        left //= sizes[-1]
    sizes.append(left)
    return sizes


def too_big(v):
    if v.numel() == 0 or v.numel() > 4096 or v.dim() > 8:
        return v.numel() > 4096 or v.dim() > 8
    if not v.is_floating_point():
        return v.dtype != torch.bool and bool((v.to(torch.float64).abs() > 1e9).any())
    return not bool(torch.isfinite(v).all()) or bool((v.abs() > (200 if v.dtype == torch.float16 else LIMIT)).any())


def make_program(seed):
    return Maker(seed).make()
