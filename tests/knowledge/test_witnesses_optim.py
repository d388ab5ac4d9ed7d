"""Witnesses of claims on optimizers, on clipping and on accelerate's settings."""

import inspect
import types
import weakref

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch", reason="runs claims on a real PyTorch")
if not torch.__version__.startswith("2.13"):
    pytest.skip("the witnesses are written for PyTorch 2.13", allow_module_level=True)

from torch import is_tensor, nn  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402


class Operations(TorchDispatchMode):
    """Records the names of the operations run."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.add(func._schema.name.split("::")[1])
        return func(*args, **(kwargs or {}))


def stepped(optimizer_class, parameters, **options):
    optimizer = optimizer_class(parameters, **options)
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    with Operations() as operations:
        optimizer.step()
    return optimizer, operations.names


def test_fused_is_not_the_default():
    for optimizer_class in (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad):
        assert inspect.signature(optimizer_class).parameters["fused"].default is None
    default = stepped(torch.optim.AdamW, [nn.Parameter(torch.ones(4))])[1]
    fused = stepped(torch.optim.AdamW, [nn.Parameter(torch.ones(4))], fused=True)[1]
    assert "_fused_adamw_" in fused and not [name for name in default if name.startswith("_fused")]


def test_adam_step_is_a_scalar_on_the_cpu():
    parameters = [nn.Parameter(torch.ones(4, 4, device="meta", dtype=torch.bfloat16)) for _ in range(2)]
    optimizer, _ = stepped(torch.optim.Adam, parameters, foreach=False)
    steps = [optimizer.state[parameter]["step"] for parameter in parameters]
    assert [(step.shape, step.device.type) for step in steps] == [((), "cpu")] * 2 and steps[0] is not steps[1]
    assert optimizer.state[parameters[0]]["exp_avg"].device.type == "meta"  # the parameters' device


def test_muon_state():
    for dtype in (torch.float32, torch.bfloat16):
        parameter = nn.Parameter(torch.ones(4, 8, dtype=dtype))
        optimizer, _ = stepped(torch.optim.Muon, [parameter])
        (state,) = optimizer.state.values()
        assert set(state) == {"momentum_buffer"}
        assert state["momentum_buffer"].shape == (4, 8) and state["momentum_buffer"].dtype == dtype


def test_one_norm_of_all_gradients():
    parameters = [nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(1))]
    gradients = [torch.tensor([2.0, 3.0]), torch.tensor([6.0])]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    norm = nn.utils.clip_grad_norm_(parameters, 3.5)
    assert norm.item() == 7.0  # of (2, 3, 6)
    assert parameters[0].grad is gradients[0]
    assert torch.allclose(torch.cat(gradients), torch.tensor([1.0, 1.5, 3.0]))


def test_accelerate_versions():
    import os
    from unittest import mock

    from accelerate import FullyShardedDataParallelPlugin

    with mock.patch.dict(os.environ, clear=True):
        assert FullyShardedDataParallelPlugin().fsdp_version == 1
        assert FullyShardedDataParallelPlugin(fsdp_version=2).fsdp_version == 2
    with mock.patch.dict(os.environ, {"FSDP_VERSION": "2"}, clear=True):
        assert FullyShardedDataParallelPlugin().fsdp_version == 2


class Live(TorchDispatchMode):
    """The peak of bytes of tensors that operations made and that are alive at once."""

    def __init__(self):
        super().__init__()
        self.now = self.peak = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        known = {
            tensor.untyped_storage().data_ptr() for tensor in pytree.tree_leaves((args, kwargs)) if is_tensor(tensor)
        }
        for tensor in filter(is_tensor, pytree.tree_leaves(out)):
            if tensor.untyped_storage().data_ptr() not in known:
                self.count(tensor.untyped_storage().nbytes())
                weakref.finalize(tensor, self.count, -tensor.untyped_storage().nbytes())
        return out

    def count(self, size):
        self.now += size
        self.peak = max(self.peak, self.now)


def test_foreach_needs_the_size_of_the_parameters_more():
    peaks = {}
    for foreach in (True, False):
        parameters = [nn.Parameter(torch.ones(1000)) for _ in range(50)]
        optimizer, _ = stepped(torch.optim.AdamW, parameters, foreach=foreach)
        with Live() as live:
            optimizer.step()
        peaks[foreach] = live.peak
    assert peaks[True] - peaks[False] == pytest.approx(50 * 4000, rel=0.1)


def test_bf16_support(monkeypatch):
    """PyTorch's own rule, over stand-ins for what the GPU would answer."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.version, "cuda", "12.6")
    answers = {}
    for major in (7, 8, 9):
        for emulated in (False, True):
            properties = types.SimpleNamespace(major=major)
            monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device, properties=properties: properties)
            monkeypatch.setattr(torch.cuda, "_check_bf16_tensor_supported", lambda device, emulated=emulated: emulated)
            answers[major, emulated] = (
                torch.cuda.is_bf16_supported(),
                torch.cuda.is_bf16_supported(including_emulation=False),
            )
    assert answers == {
        (7, False): (False, False),
        (7, True): (True, False),
        **{(major, emulated): (True, True) for major in (8, 9) for emulated in (False, True)},
    }
    monkeypatch.setattr(torch.version, "hip", "6.0")
    assert torch.cuda.is_bf16_supported(including_emulation=False)
