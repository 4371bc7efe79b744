#!/usr/bin/env python3
"""Writes engines/: programs with prebuilt TensorRT engine nodes, as Torch-TensorRT saves them, made without it.

    python make_engines.py

Both kinds of node: `tensorrt::execute_engine`, whose engine is an object of a custom class (a C++ extension with the same class name, state and
operator is compiled for it), and `tensorrt::no_op_placeholder_for_execute_engine`, whose engine is a uint8 buffer. The engines' bytes are no real
engines but texts for the engine library of the tests (src/backends/tensorrt/runtime/fake_library.h). Needs torch and a C++ compiler."""
import base64
import pathlib
import tempfile

import torch
from torch import nn

HERE = pathlib.Path(__file__).resolve().parent / "engines"
EXTENSION = r"""
#include <torch/custom_class.h>
#include <torch/library.h>
struct Engine : torch::CustomClassHolder {
  std::vector<std::string> slots;
  explicit Engine(std::vector<std::string> s) : slots(std::move(s)) {}
};
using Self = c10::intrusive_ptr<Engine>;
TORCH_LIBRARY(tensorrt, m) {
  m.class_<Engine>("Engine")
      .def(torch::init<std::vector<std::string>>())
      .def("__obj_flatten__", [](const Self& self) { return std::make_tuple(std::make_tuple(std::string("slots"), self->slots)); })
      .def_pickle([](const Self& self) { return self->slots; }, [](std::vector<std::string> s) { return c10::make_intrusive<Engine>(std::move(s)); });
  m.def("execute_engine(Tensor[] input_tensors, __torch__.torch.classes.tensorrt.Engine engine) -> Tensor[]");
}
"""
SLOTS = ["abi_version", "name", "serialized_device_info", "serialized_engine", "serialized_in_binding_names", "serialized_out_binding_names",
         "serialized_hardware_compatible", "serialized_metadata", "serialized_target_platform", "serialized_require_output_allocator",
         "serialized_resource_allocation_strategy", "serialized_requires_multidevice", "serialized_aliased_io"]


def record(engine, inputs, outputs, device=0, aliases=(), name="engine_0", **changed):
    """The 13 slots. `engine`: bytes; in objects the slot is their base64."""
    slots = ["10", name, f"{device}%8%0%0%NVIDIA A100", base64.b64encode(engine).decode(), "%".join(inputs), "%".join(outputs), "0",
             base64.b64encode(b"settings").decode(), "linux_x86_64", "0", "0", "0", "%".join("@".join(alias) for alias in aliases)]
    for slot, text in changed.items():
        slots[SLOTS.index(slot)] = text
    return slots


def load_extension():
    from torch.utils import cpp_extension

    folder = tempfile.mkdtemp()
    source = pathlib.Path(folder) / "engine.cpp"
    source.write_text(EXTENSION)
    cpp_extension.load("engine_classes", [str(source)], is_python_module=False, build_directory=folder, extra_cflags=["-O0"])


PLACEHOLDER = torch.library.Library("tensorrt", "FRAGMENT")


def define(shapes_of):
    """The operators' sizes: shapes_of(inputs, output names) gives the results."""
    arguments = ", ".join(("Tensor " if slot == "serialized_engine" else "str ") + slot for slot in SLOTS)
    PLACEHOLDER.define(f"no_op_placeholder_for_execute_engine(Tensor[] inputs, {arguments}) -> Tensor[]")
    torch.library.register_fake("tensorrt::no_op_placeholder_for_execute_engine", lambda inputs, *slots: shapes_of(inputs, given(slots)), lib=PLACEHOLDER)


def define_class(shapes_of):
    @torch._library.register_fake_class("tensorrt::Engine")
    class FakeEngine:
        def __init__(self, slots):
            self.slots = slots

        @classmethod
        def __obj_unflatten__(cls, flat):
            return cls(**dict(flat))

    torch.library.register_fake("tensorrt::execute_engine", lambda inputs, engine: shapes_of(inputs, engine.wrapped_obj.slots[5] if hasattr(engine, "wrapped_obj") else engine.slots[5]), lib=PLACEHOLDER)
    from torch._higher_order_ops.effects import _register_effectful_op
    _register_effectful_op(torch.ops.tensorrt.execute_engine.default, None)


def given(slots):
    """Names of the outputs that a node has: an engine named "elided" leaves out those that are written in place."""
    aliased = [alias.split("@")[0] for alias in slots[12].split("%")] if slots[1] == "elided" else []
    return "%".join(name for name in slots[5].split("%") if name not in aliased)


def shapes_of(inputs, names):
    """Every output looks like the input whose number ends its name: "y_1" as inputs[1]."""
    return [torch.empty_like(inputs[int(name.rsplit("_", 1)[1])]) for name in names.split("%")]


class Object(nn.Module):
    """relu(engine(x, y)) by an object, called twice with the inputs in another order."""

    def __init__(self, slots):
        super().__init__()
        self.engine = torch.classes.tensorrt.Engine(slots)

    def forward(self, x, y):
        first = torch.ops.tensorrt.execute_engine([x, y], self.engine)
        second = torch.ops.tensorrt.execute_engine([first[1], first[0]], self.engine)
        return torch.relu(second[0]), second[1]


class Buffer(nn.Module):
    """An engine in a buffer, between operators that stay outside, with a weight as its second input."""

    def __init__(self, slots, engine):
        super().__init__()
        self.slots = slots
        self.register_buffer("_trt_engine_0", torch.frombuffer(bytearray(engine), dtype=torch.uint8))
        self.weight = nn.Parameter(torch.arange(4.0))

    def call(self, inputs):
        return torch.ops.tensorrt.no_op_placeholder_for_execute_engine(inputs, *self.slots[:3], self._trt_engine_0, *self.slots[4:])

    def forward(self, x):
        return torch.tanh(self.call([torch.sin(x), self.weight])[0])


class Cache(Buffer):
    """A cache that the engine writes where it lies."""

    def __init__(self, slots, engine):
        super().__init__(slots, engine)
        self.register_buffer("cache", torch.zeros(4))

    def forward(self, x):
        y, cache = self.call([x, self.cache])
        self.cache.copy_(cache)
        return y


class OldCache(Cache):
    """The same, with users of the cache's old value behind the call, and an input that is written in place."""

    def forward(self, x, mine):
        old = self.cache * 1
        y, cache = self.call([x, self.cache])
        z, changed = self.call([x, mine])
        self.cache.copy_(cache)
        return y + old, z, changed, mine + 1


class Elided(Buffer):
    """An input that the engine writes where it lies, without a result for it: what comes behind reads the new value."""

    def forward(self, x, mine):
        doubled = mine * 2
        return self.call([x, doubled])[0], doubled + 0, self.call([x, mine])[0]


class Two(nn.Module):
    """Two engines for two devices that do not wait for each other."""

    def __init__(self, first, second):
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x):
        return self.first.call([x])[0] + self.second.call([x])[0]


def save(name, module, *args, dynamic_shapes=None):
    program = torch.export.export(module, args, dynamic_shapes=dynamic_shapes, strict=False)
    torch.export.save(program, HERE / f"{name}.pt2")


def main():
    HERE.mkdir(exist_ok=True)
    load_extension()
    define(shapes_of)
    define_class(shapes_of)
    x, y = torch.arange(4.0), torch.ones(4)
    pair = b"in x f32 4\nin y f32 4\nout p_0 add x y\nout q_1 sub x y\n"
    save("object", Object(record(pair, ["x", "y"], ["p_0", "q_1"])), x, y)
    sum_of = b"in x f32 4\nin w f32 4\nout p_0 add x w\n"
    save("buffer", Buffer(record(sum_of, ["x", "w"], ["p_0"], device=1), sum_of), x)
    cache = b"in x f32 4\nin cache f32 4\nout p_0 add x cache\nout n_1 add cache x\nalias n_1 cache\n"
    save("cache", Cache(record(cache, ["x", "cache"], ["p_0", "n_1"], aliases=[("n_1", "cache", "kv_cache_update")]), cache), x)
    save("old_cache", OldCache(record(cache, ["x", "cache"], ["p_0", "n_1"], aliases=[("n_1", "cache", "kv_cache_update")]), cache), x, y)
    save("elided", Elided(record(cache, ["x", "cache"], ["p_0", "n_1"], aliases=[("n_1", "cache", "user")], name="elided"), cache), x, y)
    one = [b"in x f32 -1 4\nprofile 1,4 8,4\nout p_0 scale x %d\n" % k for k in (2, 3)]
    two = [Buffer(record(engine, ["x"], ["p_0"], device=device, name=f"engine_{device}"), engine) for device, engine in enumerate(one)]
    save("two", Two(*two), torch.ones(3, 4), dynamic_shapes=({0: torch.export.Dim("batch", min=1, max=8)},))


if __name__ == "__main__":
    main()
