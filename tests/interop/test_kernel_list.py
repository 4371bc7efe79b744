"""The list of kernels that --profile executorch may emit (src/compiler/executorch_kernels.inc) against the installed official runtime."""
import re

from conftest import ROOT


def test_every_listed_kernel_is_registered():
    from executorch.runtime import Runtime
    registered = set(Runtime.get().operator_registry.operator_names)
    listed = re.findall(r'EXECUTORCH_KERNEL\("([^"]+)"\)', (ROOT / "src" / "compiler" / "executorch_kernels.inc").read_text())
    assert len(listed) > 200
    assert not sorted(set(listed) - registered)
