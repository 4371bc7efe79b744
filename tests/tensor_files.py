"""Small input files for tests of the tool, written without a library."""
import json
import struct


def safetensors(tensors):
    """Bytes of a file: {name: (dtype, shape, bytes)}."""
    header, data = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def read_safetensors(path):
    """{name: (dtype, shape, bytes)} of a file."""
    content = path.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    return {name: (t["dtype"], t["shape"], content[8 + size + t["data_offsets"][0]:8 + size + t["data_offsets"][1]])
            for name, t in json.loads(content[8:8 + size]).items() if name != "__metadata__"}


def floats(*shape):
    """A float32 tensor of zeros."""
    count = 1
    for size in shape:
        count *= size
    return ("F32", list(shape), bytes(4 * count))
