"""Claims about DDP with the RPC framework, run on PyTorch 2.13 by two processes."""

import warnings

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch", reason="runs claims on a real PyTorch")
if not torch.__version__.startswith("2.13"):
    pytest.skip("the witnesses are written for PyTorch 2.13", allow_module_level=True)

from tests.snippets import gloo  # noqa: E402
from torch.nn.parallel import DistributedDataParallel as DDP  # noqa: E402
from witness_answers import all_say, number, of, said, weight  # noqa: E402


def remote(rank):
    import torch.distributed.autograd as dist_autograd
    from torch.distributed import rpc
    from torch.distributed.optim import DistributedOptimizer

    gloo.init()
    facts = {"timeout": rpc.constants.DEFAULT_RPC_TIMEOUT_SEC}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2)
        facts["again"] = said(rpc.init_rpc, f"again{rank}", rank=rank, world_size=2)
        model = DDP(weight())
        optimizer = DistributedOptimizer(torch.optim.SGD, [rpc.RRef(p) for p in model.parameters()], lr=0.1)
        with dist_autograd.context() as context:
            dist_autograd.backward(context, [model(number(rank)).sum()])
            facts["grad"] = model.module.weight.grad
            (gradient,) = dist_autograd.get_gradients(context).values()
            facts["context_grad"] = gradient.item()
            optimizer.step(context)
        facts["weight"] = model.module.weight.item()
        rpc.shutdown()
    facts["warnings"] = [str(item.message) for item in caught if "rpc" in str(item.message).lower()]
    return facts


@pytest.fixture(scope="module")
def called():
    return gloo.run(2, remote)


def test_rpc_gradients_are_in_the_context(called):
    assert of(called, "grad") == [None, None] and of(called, "context_grad") == [1.5, 1.5]


def test_rpc_distributed_optimizer_steps(called):
    assert of(called, "weight") == pytest.approx([0.85, 0.85])


def test_rpc_is_initialised_once(called):
    assert all_say(of(called, "again"), "RuntimeError")


def test_rpc_timeout(called):
    assert of(called, "timeout") == [60.0, 60.0]


def test_rpc_warns_of_nothing(called):
    assert of(called, "warnings") == [[], []]
