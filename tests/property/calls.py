"""More steps for programs.py: operators as rows of a table, and control flow whose branches are lists of steps themselves.

A row is CALLS[name] = (run, make, exact). `run(arguments, step)` gives one tensor; `make(maker)` chooses arguments and parameters and gives
(value numbers, parameters), or None; `exact` says whether equal inputs give equal bits in any right kernel (see programs.py)."""
import torch
import torch.nn.functional as F
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

CALLS = {}


def row(name, run, make, exact=True):
    CALLS[name] = (run, make, exact)


# ---------------------------------------------------------------- choosing

def is_float(t):
    return t.is_floating_point()


def is_number(t):
    return t.dtype != torch.bool


def ranked(low, high=8):
    return lambda t: low <= t.dim() <= high


def one(test=lambda t: True, jump=False, **params):
    """A value, optionally one that may be compared or rounded; params: name -> function(maker, tensor)."""
    def make(m):
        i = m.pick(test)
        if i is None or jump and not m.jumpable(i):
            return None
        return [i], {k: f(m, m.values[i]) for k, f in params.items()}
    return make


def two(test=lambda t: True, other=None, jump=False, **params):
    """Two values that broadcast (or fit `other(first, second)`)."""
    def make(m):
        i = m.pick(test)
        if i is None:
            return None
        x = m.values[i]
        j = m.pick(lambda t: test(t) and (other(x, t) if other else m.fits(x, t)))
        if j is None or jump and not (m.jumpable(i) and m.jumpable(j)):
            return None
        return [i, j], {k: f(m, x) for k, f in params.items()}
    return make


def dim_of(m, x):
    return m.rng.randrange(-x.dim(), x.dim()) if x.dim() else 0


def dims_of(m, x):
    return sorted(m.rng.sample(range(x.dim()), m.rng.randint(1, x.dim()))) if x.dim() else []


def flag(m, x):
    return m.rng.random() < 0.5


def small(low, high):
    return lambda m, x: m.rng.randint(low, high)


def number(m, x):
    return m.rng.choice([-1, 0, 0.5, 1, 2, 3])


def index_values(m, x):
    return [m.rng.randint(0, 9) for _ in range(m.rng.randint(1, 4))]


def at(index, size, negative=False):
    return torch.tensor([v % size - (size if negative and v % 2 else 0) for v in index], dtype=torch.int64)


def same_dtype(x, t):
    return x.dtype == t.dtype


# ---------------------------------------------------------------- elementwise

for _name in ("floor_divide", "remainder", "fmod"):
    row(_name, lambda a, p, f=getattr(torch, _name): f(a[0], a[1].abs() + 1), two(is_number, jump=True))
    row(_name + "_number", lambda a, p, f=getattr(torch, _name): f(a[0], p["number"]), one(is_number, jump=True, number=lambda m, x: m.rng.choice([-2, 2, 3, 0.5])))
for _name in ("fmax", "fmin", "copysign", "heaviside"):
    row(_name, lambda a, p, f=getattr(torch, _name): f(a[0], a[1]), two(lambda t: t.dtype != torch.bool, other=same_dtype, jump=True))
for _name in ("atan2", "hypot", "logaddexp", "xlogy"):
    row(_name, lambda a, p, f=getattr(torch, _name): f(a[0].abs() + 0.5, a[1].abs() + 0.5), two(is_float, other=same_dtype), False)
for _name in ("expm1", "exp2", "sinh", "asinh", "erfc", "sigmoid", "log_sigmoid", "hardswish", "mish", "selu", "elu", "celu", "softsign", "tanhshrink", "relu6", "hardtanh",
              "leaky_relu", "hardsigmoid"):
    _f = getattr(torch, _name, None) or (F.logsigmoid if _name == "log_sigmoid" else getattr(F, _name))
    row(_name, lambda a, p, f=_f: f(a[0].clamp(-3, 3)), one(is_float), False)
row("frac", lambda a, p: a[0].frac(), one(is_float, jump=True))
row("sgn", lambda a, p: a[0].sgn(), one(jump=True))
row("nan_to_num", lambda a, p: (a[0] / a[0].abs().clamp(max=0.0)).nan_to_num(1.0, 2.0, -2.0), one(is_float, jump=True))
row("clamp", lambda a, p: a[0].clamp(p["low"], p["low"] + 2), one(is_number, low=number))
row("clamp_tensors", lambda a, p: a[0].clamp(a[1], a[2]),
    lambda m: None if (got := two(is_number)(m)) is None or (k := m.pick(lambda t: is_number(t) and m.fits(m.values[got[0][0]], t) and m.fits(m.values[got[0][1]], t))) is None
    else (got[0] + [k], {}))
row("pow_int", lambda a, p: a[0] ** p["k"], one(k=small(0, 3)), False)
row("pow_base", lambda a, p: 2 ** a[0].clamp(-3, 3), one(is_float), False)
row("where_number", lambda a, p: torch.where(a[0], a[1], p["number"]),
    lambda m: None if (c := m.pick(lambda t: t.dtype == torch.bool)) is None or (i := m.pick(lambda t: m.fits(m.values[c], t))) is None else ([c, i], {"number": number(m, None)}))
row("masked_fill", lambda a, p: a[0].masked_fill(a[1], p["number"]),
    lambda m: None if (c := m.pick(lambda t: t.dtype == torch.bool)) is None or (i := m.pick(lambda t: m.fits(m.values[c], t))) is None else ([i, c], {"number": number(m, None)}))
row("shift", lambda a, p: (a[0] << p["k"]) >> 1, one(lambda t: t.dtype in (torch.int32, torch.int64), k=small(0, 3)))
row("bitwise_not", lambda a, p: ~a[0], one(lambda t: not t.is_floating_point()))
row("addcdiv", lambda a, p: torch.addcdiv(a[0], a[1], a[1].abs() + 1, value=p["number"]), two(is_float, other=lambda x, t: same_dtype(x, t) and x.shape == t.shape, number=number), False)
row("add_alpha", lambda a, p: torch.add(a[0], a[1], alpha=p["alpha"]), two(is_number, alpha=small(-2, 3)))
row("sub_scalar_first", lambda a, p: p["number"] - a[0], one(is_number, number=number))
row("divide_scalar_first", lambda a, p: p["number"] / (a[0].abs() + 1), one(is_number, number=number), False)
row("isin", lambda a, p: torch.isin(a[0], torch.tensor([0, 1, -2])), one(lambda t: t.dtype == torch.int64))
row("isclose", lambda a, p: torch.isclose(a[0], a[1]), two(is_number, other=lambda x, t: same_dtype(x, t) and x.shape == t.shape, jump=True))
row("glu", lambda a, p: F.glu(a[0].repeat_interleave(2, p["dim"]), p["dim"]), one(lambda t: is_float(t) and t.dim() > 0, dim=dim_of), False)

# ---------------------------------------------------------------- reductions and scans

for _name in ("sum", "mean", "amax", "amin", "logsumexp", "nansum", "count_nonzero", "std", "var"):
    _make = one(lambda t, n=_name: (is_float(t) or n in ("sum", "amax", "amin", "count_nonzero")) and t.dim() > 0, jump=_name == "count_nonzero", dims=dims_of, keep=flag)
    if _name == "count_nonzero":
        row("count_nonzero", lambda a, p: a[0].count_nonzero(p["dims"]), _make)
    elif _name in ("std", "var"):
        row(_name + "_dims", lambda a, p, f=getattr(torch, _name): f(a[0], p["dims"], correction=p["c"], keepdim=True).nan_to_num(0, 0, 0),
            one(lambda t: is_float(t) and t.dim() > 0, dims=dims_of, c=small(0, 1)), False)
    else:
        row(_name + "_dims", lambda a, p, f=getattr(torch, _name): f(a[0], p["dims"], keepdim=p["keep"]), _make, _name in ("amax", "amin"))
row("sum_dtype", lambda a, p: a[0].sum(p["dims"], dtype=torch.float64), one(lambda t: t.dim() > 0, dims=dims_of), False)
row("prod_dim", lambda a, p: a[0].clamp(-2, 2).prod(p["dim"]), one(lambda t: is_number(t) and t.dim() > 0, dim=dim_of), False)
row("norm", lambda a, p: torch.linalg.vector_norm(a[0], p["ord"], p["dims"], keepdim=p["keep"]),
    one(lambda t: is_float(t) and t.dim() > 0 and t.numel() > 0, dims=dims_of, keep=flag, ord=lambda m, x: m.rng.choice([1, 2, float("inf"), 0, 3])), False)
row("max_dim", lambda a, p: a[0].max(p["dim"], p["keep"])[p["which"]], one(ranked(1), jump=True, dim=dim_of, keep=flag, which=small(0, 1)))
row("min_dim", lambda a, p: a[0].min(p["dim"], p["keep"])[p["which"]], one(ranked(1), jump=True, dim=dim_of, keep=flag, which=small(0, 1)))
row("aminmax", lambda a, p: a[0].aminmax(dim=p["dim"])[p["which"]], one(ranked(1), dim=dim_of, which=small(0, 1)))
row("argmin", lambda a, p: a[0].argmin(p["dim"], p["keep"]), one(lambda t: is_number(t) and t.dim() > 0, jump=True, dim=dim_of, keep=flag))
row("topk", lambda a, p: a[0].topk(min(p["k"], a[0].shape[p["dim"]]), p["dim"], p["down"])[0], one(lambda t: is_number(t) and t.dim() > 0, k=small(1, 3), dim=dim_of, down=flag))
# Eager's order statistics read beside an expanded tensor: they get dense ones.
row("kthvalue", lambda a, p: a[0].clone(memory_format=torch.contiguous_format).kthvalue(1, p["dim"])[0], one(lambda t: is_number(t) and t.dim() > 0, dim=dim_of))
row("median", lambda a, p: a[0].clone(memory_format=torch.contiguous_format).median(p["dim"])[0], one(lambda t: is_number(t) and t.dim() > 0 and t.numel() > 0, dim=dim_of))
row("cummax", lambda a, p: a[0].cummax(p["dim"])[p["which"]], one(ranked(1), jump=True, dim=dim_of, which=small(0, 1)))
row("cumprod", lambda a, p: a[0].clamp(-1, 1).cumprod(p["dim"]), one(lambda t: is_number(t) and t.dim() > 0, dim=dim_of), False)
row("logcumsumexp", lambda a, p: a[0].logcumsumexp(p["dim"]), one(lambda t: is_float(t) and t.dim() > 0, dim=dim_of), False)
row("diff", lambda a, p: a[0].diff(dim=p["dim"]), one(lambda t: t.dim() > 0, dim=dim_of))
row("argsort", lambda a, p: a[0].argsort(dim=p["dim"], stable=True), one(lambda t: is_number(t) and t.dim() > 0, jump=True, dim=dim_of))
row("any_dims", lambda a, p: a[0].any(p["dim"], p["keep"]), one(ranked(1), jump=True, dim=dim_of, keep=flag))
row("searchsorted", lambda a, p: torch.searchsorted(a[0].sort(-1)[0].contiguous(), a[1].contiguous(), right=p["right"]),
    two(lambda t: is_number(t) and t.dim() > 0 and t.dtype in (torch.float32, torch.int64), other=lambda x, t: same_dtype(x, t) and x.shape[:-1] == t.shape[:-1], jump=True, right=flag))
row("bucketize", lambda a, p: torch.bucketize(a[0], torch.tensor([-2.0, 0.0, 1.5]), right=p["right"]), one(is_float, jump=True, right=flag))

# ---------------------------------------------------------------- shapes

row("movedim", lambda a, p: a[0].movedim(p["a"], p["b"]), one(ranked(1), a=dim_of, b=dim_of))
row("unflatten", lambda a, p: a[0].unflatten(p["dim"], (-1, 1)), one(ranked(1, 6), dim=dim_of))
row("split", lambda a, p: a[0].split(p["size"], p["dim"])[p["which"]], one(ranked(1), size=small(1, 3), dim=dim_of, which=lambda m, x: m.rng.choice([0, -1])))
row("tensor_split", lambda a, p: a[0].tensor_split(p["n"], p["dim"])[p["which"]], one(ranked(1), n=small(1, 3), dim=dim_of, which=lambda m, x: m.rng.choice([0, -1])))
row("unbind", lambda a, p: a[0].unbind(p["dim"])[-1], one(lambda t: t.dim() > 0 and t.numel() > 0, dim=dim_of))
row("repeat", lambda a, p: a[0].repeat(*p["times"], *[1] * a[0].dim()), one(ranked(0, 5), times=lambda m, x: [m.rng.randint(1, 2)]))
row("tile", lambda a, p: a[0].tile(p["times"]), one(ranked(0, 5), times=lambda m, x: [m.rng.randint(1, 2), 2]))
row("repeat_interleave", lambda a, p: a[0].repeat_interleave(p["n"], p["dim"]), one(ranked(1), n=small(0, 3), dim=dim_of))
row("flatten_dims", lambda a, p: a[0].flatten(p["a"], -1), one(ranked(2), a=lambda m, x: m.rng.randint(0, x.dim() - 1)))
row("view_dtype", lambda a, p: a[0].contiguous().view(torch.int32), one(lambda t: t.dtype == torch.float32, jump=True))
row("as_strided", lambda a, p: a[0].contiguous().as_strided((2, 2), (1, 1), p["offset"]), one(lambda t: t.numel() >= 4, offset=small(0, 1)))
row("expand_as", lambda a, p: a[0].expand_as(a[1]), two(other=lambda x, t: _broadcasts(x, t)))
row("broadcast_pair", lambda a, p: torch.broadcast_tensors(a[0], a[1])[p["which"]], two(which=small(0, 1)))
row("tril", lambda a, p: a[0].tril(p["k"]), one(ranked(2), k=small(-1, 2)))
row("triu", lambda a, p: a[0].triu(p["k"]), one(ranked(2), k=small(-1, 2)))
row("diag_embed", lambda a, p: torch.diag_embed(a[0], p["k"]), one(ranked(1, 4), k=small(-1, 1)))
row("rot90", lambda a, p: a[0].rot90(p["k"], [0, 1]), one(ranked(2), k=small(0, 3)))
row("pad_mode", lambda a, p: F.pad(a[0].flatten(0, -2).unsqueeze(0) if a[0].dim() > 1 else a[0][None, None], [1, 1], mode=p["mode"]),
    one(lambda t: is_float(t) and t.dim() > 0 and t.shape[-1] > 1 and t.numel() > 0, mode=lambda m, x: m.rng.choice(["reflect", "replicate", "circular"])))
row("pad_many", lambda a, p: F.pad(a[0], p["pad"], value=2), one(ranked(2), pad=lambda m, x: [m.rng.randint(-1, 2) for _ in range(2 * m.rng.randint(1, x.dim()))]))
row("memory_format", lambda a, p: a[0].contiguous(memory_format=torch.channels_last) if p["how"] else a[0].to(memory_format=torch.channels_last),
    one(ranked(4, 4), how=flag))
row("memory_format_3d", lambda a, p: a[0].contiguous(memory_format=torch.channels_last_3d), one(ranked(5, 5)))
row("channels_last_clone", lambda a, p: a[0].clone(memory_format=torch.channels_last).transpose(1, 2), one(ranked(4, 4)))
row("new_full", lambda a, p: a[0].new_full(a[0].shape, p["n"]) + torch.ones_like(a[0]), one(is_number, n=small(0, 3)))
row("arange_like", lambda a, p: torch.arange(a[0].shape[p["dim"]]) * 2, one(ranked(1), dim=dim_of))
row("one_hot", lambda a, p: F.one_hot(a[0].clamp(0, 4), 5), one(lambda t: t.dtype == torch.int64 and t.dim() < 5))
row("hstack", lambda a, p: torch.hstack((a[0], a[1])), two(ranked(1), other=lambda x, t: x.shape == t.shape))
row("cat_three", lambda a, p: torch.cat([a[0].unsqueeze(0), a[1].unsqueeze(0), a[0][None] + 1]), two(other=lambda x, t: x.shape == t.shape))
row("stack_mixed", lambda a, p: torch.stack([a[0], a[1], a[0]], p["dim"]), two(other=lambda x, t: x.shape == t.shape, dim=dim_of))
row("meshgrid", lambda a, p: torch.meshgrid(a[0].flatten()[:3], a[1].flatten()[:2], indexing=p["indexing"])[p["which"]],
    two(other=same_dtype, which=small(0, 1), indexing=lambda m, x: m.rng.choice(["ij", "xy"])))


def _broadcasts(x, t):
    try:
        return torch.broadcast_shapes(x.shape, t.shape) == t.shape
    except RuntimeError:
        return False


# ---------------------------------------------------------------- indexing

def _places(m, x, count):
    return [[m.rng.randint(0, 9) for _ in range(count)] for _ in range(2)]


def _pair_index(m):
    i = m.pick(ranked(2))
    if i is None:
        return None
    x = m.values[i]
    dims = m.rng.sample(range(x.dim()), 2)
    return [i], {"dims": dims, "places": _places(m, x, m.rng.randint(1, 4)), "negative": m.rng.random() < 0.4}


def _pair(x, p):
    where = [slice(None)] * x.dim()
    for d, values in zip(p["dims"], p["places"]):
        where[d] = at(values, x.shape[d], p["negative"])
    return tuple(where)


def _index_put(a, p):
    x = a[0].clone() if p["copy"] else a[0] * 1
    where = _pair(x, p)
    value = torch.ones((), dtype=x.dtype) if p["one"] else x[where] + 1 if x.dtype != torch.bool else ~x[where]
    return x.index_put(tuple(w if isinstance(w, torch.Tensor) else None for w in where), value, accumulate=p["accumulate"]) if p["functional"] else _index_put_(x, where, value, p)


def _index_put_(x, where, value, p):
    torch.ops.aten.index_put_(x, [w if isinstance(w, torch.Tensor) else None for w in where], value, p["accumulate"])
    return x


def _index_put_make(m):
    made = _pair_index(m)
    if made is None:
        return None
    flags = {k: m.rng.random() < 0.5 for k in ("copy", "one", "functional", "accumulate")}
    if not flags["accumulate"] and not flags["one"]:  # equal places would race
        values = made[1]["places"][0]
        made[1]["places"] = [values[:1], made[1]["places"][1][:1]]
    return made[0], made[1] | flags


row("index_pair", lambda a, p: a[0][_pair(a[0], p)], _pair_index)
row("index_put", lambda a, p: _index_put(a, p), _index_put_make, False)
row("index_outer", lambda a, p: a[0][at(p["a"], a[0].shape[0])[:, None], at(p["b"], a[0].shape[1])], one(ranked(2), a=index_values, b=index_values))
row("index_bool_row", lambda a, p: a[0][torch.tensor([p["k"] % (j + 2) == 0 for j in range(a[0].shape[0])])], one(ranked(1), k=small(0, 6)))
row("index_none", lambda a, p: a[0][None, ..., p["k"] % a[0].shape[-1], None], one(lambda t: t.dim() > 0 and t.shape[-1] > 0, k=small(0, 5)))
row("take_along", lambda a, p: torch.take_along_dim(a[0], a[0].argsort(dim=p["dim"], stable=True), p["dim"]), one(lambda t: is_number(t) and t.dim() > 0, jump=True, dim=dim_of))
row("gather_full", lambda a, p: a[0].gather(p["dim"], (a[1] % a[0].shape[p["dim"]]).to(torch.int64)),
    two(ranked(1), other=lambda x, t: t.dtype in (torch.int64, torch.int32) and x.shape == t.shape, dim=dim_of))
row("scatter_reduce", lambda a, p: a[0].scatter_reduce(p["dim"], torch.zeros(a[1].shape, dtype=torch.int64), a[1], p["how"], include_self=p["self"]),
    two(lambda t: is_number(t) and t.dim() > 0 and t.numel() > 0, other=lambda x, t: same_dtype(x, t) and x.shape == t.shape, dim=dim_of,
        how=lambda m, x: m.rng.choice(["sum", "amax", "amin"] + (["mean"] if is_float(x) else [])), self=flag), False)
row("index_add", lambda a, p: a[0].index_add(p["dim"], at(p["index"], a[0].shape[p["dim"]]), a[1].narrow(p["dim"], 0, 1).expand(_with(a[1], p["dim"], len(p["index"]))), alpha=2),
    two(lambda t: is_number(t) and t.dim() > 0 and t.numel() > 0, other=lambda x, t: same_dtype(x, t) and x.shape == t.shape, dim=dim_of, index=index_values), False)
row("slice_scatter", lambda a, p: a[0].slice_scatter(a[1].narrow(p["dim"], 0, 1), p["dim"], 0, 1),
    two(lambda t: t.dim() > 0 and t.numel() > 0, other=lambda x, t: same_dtype(x, t) and x.shape == t.shape, dim=dim_of))
row("select_scatter", lambda a, p: a[0].select_scatter(a[1].select(p["dim"], 0), p["dim"], -1),
    two(lambda t: t.dim() > 0 and t.numel() > 0, other=lambda x, t: same_dtype(x, t) and x.shape == t.shape, dim=dim_of))
row("embedding", lambda a, p: F.embedding(a[0].abs() % 4, torch.arange(12.0).reshape(4, 3) / 8), one(lambda t: t.dtype == torch.int64 and t.dim() < 5))
row("masked_scatter", lambda a, p: a[0].masked_scatter(a[1], torch.arange(a[0].numel()).to(a[0].dtype)),
    lambda m: None if (c := m.pick(lambda t: t.dtype == torch.bool)) is None or (i := m.pick(lambda t: t.shape == m.values[c].shape)) is None else ([i, c], {}))


def _with(x, dim, size):
    sizes = list(x.shape)
    sizes[dim] = size
    return sizes


# Sizes that depend on data: used at once, so that no later step meets them.
def _selected(a, p):
    picked = a[0][a[1]]
    if p["then"] == "sum":
        return picked.to(torch.float64).sum()
    if p["then"] == "count":
        return torch.ones_like(picked, dtype=torch.int64).sum()
    return torch.cat([picked.flatten() * 2, torch.zeros(3, dtype=picked.dtype)])[:3] if p["then"] == "cat" else picked.sum(0)


row("masked_select", lambda a, p: _selected(a, p),
    lambda m: None if (c := m.pick(lambda t: t.dtype == torch.bool and t.dim() > 0)) is None or (i := m.pick(lambda t: t.shape == m.values[c].shape and is_number(t))) is None
    else ([i, c], {"then": m.rng.choice(["sum", "count", "cat", "sum0"])}), False)
row("nonzero", lambda a, p: a[0].nonzero().sum(0), one(jump=True))


def _item_slice(a, p):
    n = (a[1].flatten()[0].abs() % 3).item()
    torch._check(n >= 0)
    torch._check(n <= 2)
    base = torch.cat([a[0].flatten(), torch.zeros(3, dtype=a[0].dtype)])
    return base.narrow(0, 0, n).to(torch.float64).sum() + n


row("item_slice", _item_slice, lambda m: None if (i := m.pick(is_number)) is None or (j := m.pick(lambda t: t.dtype == torch.int64 and t.numel() > 0)) is None else ([i, j], {}), False)

# ---------------------------------------------------------------- products, windows, norms


def _as_image(x, rank):
    """[1, C, ...] with `rank` spatial dims, from any tensor of that rank or higher."""
    return x.flatten(0, x.dim() - rank - 1).unsqueeze(0) if x.dim() > rank else x[None, None]


def _weights(out, inner, kernel, dtype):
    count = out * inner
    for k in kernel:
        count *= k
    return ((torch.arange(count) % 7 - 3).to(dtype) / 8).reshape(out, inner, *kernel)


def _conv(a, p):
    x = _as_image(a[0], p["rank"])
    w = _weights(2, x.shape[1], p["kernel"], x.dtype)
    convolve = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[p["rank"]]
    if p["last"] and p["rank"] == 2:
        w = w.contiguous(memory_format=torch.channels_last)
    return convolve(x, w, torch.ones(2, dtype=x.dtype) if p["bias"] else None, stride=p["stride"], padding=1)


def _conv_make(m):
    rank = m.rng.randint(1, 3)
    i = m.pick(lambda t: is_float(t) and t.dim() >= rank and t.numel() > 0)
    if i is None:
        return None
    return [i], {"rank": rank, "kernel": [m.rng.randint(1, 2) for _ in range(rank)], "stride": m.rng.randint(1, 2), "bias": m.rng.random() < 0.5, "last": m.rng.random() < 0.3}


def _pool(a, p):
    x = _as_image(a[0], p["rank"])
    f = {"max1": F.max_pool1d, "max2": F.max_pool2d, "max3": F.max_pool3d, "avg1": F.avg_pool1d, "avg2": F.avg_pool2d, "avg3": F.avg_pool3d}[p["kind"] + str(p["rank"])]
    return f(x, p["kernel"], 1, padding=p["padding"])


def _pool_make(m):
    rank = m.rng.randint(1, 3)
    i = m.pick(lambda t: is_float(t) and t.dim() >= rank and t.numel() > 0)
    kernel = m.rng.randint(1, 3)
    return None if i is None else ([i], {"rank": rank, "kernel": kernel, "kind": m.rng.choice(["max", "avg"]), "padding": m.rng.randint(0, kernel // 2)})


def _resize(a, p):
    return F.interpolate(_as_image(a[0], 2), size=p["size"], mode=p["mode"], **({} if p["mode"] == "nearest" else {"align_corners": p["align"]}))


row("conv", _conv, _conv_make, False)
row("pool", _pool, _pool_make, False)
row("adaptive_pool", lambda a, p: F.adaptive_avg_pool2d(_as_image(a[0], 2), p["size"]),
    one(lambda t: is_float(t) and t.dim() >= 2 and t.numel() > 0, size=lambda m, x: [m.rng.randint(1, 3), m.rng.randint(1, 3)]), False)
row("resize", _resize, one(lambda t: is_float(t) and t.dim() >= 2 and t.numel() > 0, size=lambda m, x: [m.rng.randint(1, 6), m.rng.randint(1, 6)], align=flag,
                           mode=lambda m, x: m.rng.choice(["nearest", "bilinear", "bicubic"])), False)
row("linear", lambda a, p: F.linear(a[0], _weights(3, a[0].shape[-1], [], a[0].dtype), torch.ones(3, dtype=a[0].dtype) if p["bias"] else None),
    one(lambda t: is_float(t) and t.dim() > 0, bias=flag), False)
row("left_constant", lambda a, p: _weights(3, a[0].shape[-2], [], a[0].dtype) @ a[0], one(lambda t: is_float(t) and t.dim() > 1), False)
row("einsum", lambda a, p: torch.einsum("...i,...j->...ij", a[0], a[1]), two(lambda t: is_float(t) and 0 < t.dim() < 6, other=lambda x, t: same_dtype(x, t) and x.shape[:-1] == t.shape[:-1]), False)
row("addmm", lambda a, p: torch.addmm(a[0][:1, :1], a[0], a[0].t(), beta=0.5, alpha=2), one(lambda t: is_float(t) and t.dim() == 2), False)
row("outer", lambda a, p: torch.outer(a[0].flatten(), a[1].flatten()), two(lambda t: is_number(t) and t.numel() < 40, other=same_dtype), False)
row("group_norm", lambda a, p: F.group_norm(_as_image(a[0], 1), 1, eps=0.5), one(lambda t: is_float(t) and t.dim() > 1 and t.numel() > 0), False)
row("rms_norm", lambda a, p: F.rms_norm(a[0], a[0].shape[-1:], eps=0.5), one(lambda t: is_float(t) and t.dim() > 0), False)
row("log_softmax", lambda a, p: a[0].log_softmax(p["dim"]), one(lambda t: is_float(t) and t.dim() > 0, dim=dim_of), False)
row("attention", lambda a, p: F.scaled_dot_product_attention(a[0], a[0], a[0], is_causal=p["causal"]), one(lambda t: is_float(t) and t.dim() in (3, 4) and t.numel() > 0, causal=flag), False)
row("cdist", lambda a, p: torch.cdist(a[0], a[0] + 1, p=1.0), one(lambda t: t.dtype in (torch.float32, torch.float64) and t.dim() >= 2), False)
row("unfold_image", lambda a, p: F.unfold(_as_image(a[0], 2), 2, padding=1), one(lambda t: is_float(t) and t.dim() >= 2 and t.numel() > 0))
row("pixel_shuffle", lambda a, p: F.pixel_unshuffle(F.pixel_shuffle(_as_image(a[0], 2).repeat(1, 4, 1, 1), 2), 1), one(lambda t: is_float(t) and t.dim() >= 2 and t.numel() > 0))
row("fft_magnitude", lambda a, p: torch.view_as_real(torch.fft.rfft(a[0], dim=-1)), one(lambda t: t.dtype in (torch.float32, torch.float64) and t.dim() > 0 and t.shape[-1] > 0), False)


def make_call(m):
    name = m.rng.choice(list(CALLS))
    _, make, exact = CALLS[name]
    made = make(m)
    if made is None:
        return None
    return {"op": "call", "f": name, "in": made[0], **made[1]}, exact


# ---------------------------------------------------------------- control flow
# A body is {"steps": [...], "pick": number, "how": name}: steps over the operands, and how the value picked becomes a result with the operand's shape.

def run_body(apply, body, operands):
    values = list(operands)
    for name in body["views"]:
        values[0] = {"detach": lambda t: t.detach(), "alias": lambda t: t.view_as(t), "turn": lambda t: t.flip(0).flip(0) if t.dim() else t,
                     "slice": lambda t: t[0:] if t.dim() else t[...]}[name](values[0])
    for step in body["steps"]:
        apply(step, values)
    x, v = operands[0], values[body["pick"]]
    if v.shape != x.shape:
        v = v.flatten()[:1].sum().expand(x.shape)
    if v.dtype == torch.bool or x.dtype == torch.bool or v.is_floating_point() and not x.is_floating_point():
        v = (v != 0)
    return torch.where(v == v, v.to(x.dtype), torch.ones_like(x)).clone(memory_format=torch.contiguous_format)


def run_predicate(p, x):
    if p["predicate"] == "any":
        return (x > 0).any()
    if p["predicate"] == "all":
        return (x == x).all()
    if p["predicate"] == "first":
        return x.flatten()[:1].sum() > 0
    return x.shape[0] > 2 if x.dim() else x.sum() > 0


def run_plainly(apply, p, args):
    """What control flow means: eager's own operators compile their bodies at every call."""
    kind = p["kind"]
    if kind == "cond":
        return run_body(apply, p["true" if run_predicate(p, args[0]) else "false"], args[1:])
    if kind == "while":
        x = args[0].clone(memory_format=torch.contiguous_format)
        for _ in range(p["count"]):
            x = run_body(apply, p["body"], [x, *args[1:]])
        return x
    if kind == "map":
        return torch.stack([run_body(apply, p["body"], [x, *args[1:]]) for x in args[0]])
    if kind == "scan":
        carry, outs = args[1].clone(), []
        for x in args[0]:
            carry, out = scan_step(apply, p, carry, x)
            outs.append(out)
        return [carry, torch.stack(outs)][p["which"]]
    rows = [args[0][0]]
    for x in args[0][1:]:
        rows.append(COMBINE[p["combine"]](rows[-1], x))
    return torch.stack(rows)


COMBINE = {"add": torch.add, "max": torch.maximum, "max_add": lambda a, b: torch.maximum(a + 1, b + 1) - 1}


def scan_step(apply, p, carry, x):
    out = run_body(apply, p["body"], [carry, x])
    return out, (out + x if out.dtype != torch.bool else out ^ x)


def run_control(apply, p, args):
    if not torch.compiler.is_exporting():
        return run_plainly(apply, p, args)
    kind = p["kind"]
    if kind == "cond":
        operands = args[1:]
        branch = lambda body: (lambda *o: run_body(apply, body, o))
        return torch.cond(run_predicate(p, args[0]), branch(p["true"]), branch(p["false"]), tuple(operands))
    if kind == "while":
        rest = args[1:]
        def body(i, x):
            return i + 1, run_body(apply, p["body"], [x, *rest])
        start = args[0].clone(memory_format=torch.contiguous_format)
        return while_loop(lambda i, x: i < p["count"], body, (torch.zeros((), dtype=torch.int64), start))[1]
    if kind == "map":
        return torch_map(lambda x, *rest: run_body(apply, p["body"], [x, *rest]), args[0], *args[1:])
    if kind == "scan":
        return scan(lambda carry, x: scan_step(apply, p, carry, x), args[1].clone(memory_format=torch.contiguous_format), args[0])[p["which"]]
    return associative_scan(COMBINE[p["combine"]], args[0], 0, combine_mode="generic").clone()  # one row would be returned as it is


def make_control(m):
    kind = m.rng.choices(["cond", "while", "map", "scan", "assoc"], [6, 3, 2, 2, 1])[0]
    i = m.pick(lambda t: t.dim() > 0 or kind in ("cond", "while"))
    if i is None or m.depth > 1:
        return None
    x = m.values[i]
    if kind == "cond":
        c = m.pick(lambda t: t.numel() > 0)
        if c is None or not m.jumpable(c):
            return None
        operands = [i] + [j for j in [m.pick()] if m.rng.random() < 0.6]
        bodies = {k: m.body([m.values[j] for j in operands], [m.exact[j] for j in operands]) for k in ("true", "false")}
        exact = all(b[1] for b in bodies.values())
        return {"op": "control", "kind": kind, "predicate": m.rng.choice(["any", "all", "first", "size"]), "in": [c, *operands], **{k: b[0] for k, b in bodies.items()}}, exact
    if kind == "while":
        operands = [i] + [j for j in [m.pick()] if m.rng.random() < 0.6]
        body, exact = m.body([m.values[j] for j in operands], [m.exact[j] for j in operands])
        return {"op": "control", "kind": kind, "count": m.rng.randint(0, 3), "in": operands, "body": body}, exact
    if x.shape[0] == 0 or x.numel() > 200:
        return None
    if kind == "map":
        operands = [i] + [j for j in [m.pick()] if m.rng.random() < 0.5]
        body, exact = m.body([x[0], *(m.values[j] for j in operands[1:])], [m.exact[j] for j in operands])
        return {"op": "control", "kind": kind, "in": operands, "body": body}, exact
    if kind == "scan":
        j = m.pick(lambda t: t.shape == x.shape[1:] and t.dtype == x.dtype)
        if j is None:
            return None
        body, exact = m.body([m.values[j], x[0]], [m.exact[j], m.exact[i]])
        return {"op": "control", "kind": kind, "in": [i, j], "which": m.rng.randint(0, 1), "body": body}, exact
    return {"op": "control", "kind": kind, "combine": m.rng.choice(["add", "max", "max_add"] if x.dtype != torch.bool else ["max"]), "in": [i]}, m.exact[i] and not x.is_floating_point()
