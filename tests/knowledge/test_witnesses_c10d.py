"""Claims about collectives, point-to-point and object collectives, run on PyTorch 2.13 by three processes over Gloo.

Each fixture starts its processes once; every test is the witness of the claims that name it, and looks at what the ranks saw.
"""

import inspect
import os

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch", reason="runs claims on a real PyTorch")
if not torch.__version__.startswith("2.13"):
    pytest.skip("the witnesses are written for PyTorch 2.13", allow_module_level=True)

import torch.distributed as dist  # noqa: E402
from tests.snippets import gloo  # noqa: E402
from witness_answers import all_say, of, said, warned  # noqa: E402


class Pid:
    """Its pickle holds a call: whoever unpickles it runs os.getpid()."""

    def __reduce__(self):
        return os.getpid, ()


def collectives(rank):
    gloo.init()
    facts = {"rank": dist.get_rank(), "world": dist.get_world_size(), "pid": os.getpid()}
    tensor = torch.tensor([rank + 1.0])
    facts["sync"] = (dist.all_reduce(tensor), tensor.item())
    tensor = torch.tensor([1.0])
    work = dist.all_reduce(tensor, async_op=True)
    facts["async"] = (isinstance(work, dist.Work), work.wait(), work.is_completed(), tensor.item())
    tensor = torch.tensor([rank + 1.0])
    facts["avg"] = (said(dist.all_reduce, tensor, op=dist.ReduceOp.AVG), tensor.item())
    facts["premul"] = said(dist.all_reduce, torch.ones(1), op=dist.ReduceOp.PREMUL_SUM(0.5))
    bits = torch.tensor([1 << rank])
    facts["bor"] = (said(dist.all_reduce, bits, op=dist.ReduceOp.BOR), bits.item())
    number = torch.tensor([complex(rank, 1)])
    dist.all_reduce(number)
    facts["complex"] = (number.item(), said(dist.all_reduce, number, op=dist.ReduceOp.MAX))
    facts["dtypes"] = said(dist.all_gather, [torch.zeros(1, dtype=torch.int64)] * 3, torch.zeros(1))
    parts = [torch.zeros(size + 1) for size in range(3)]
    facts["uneven"] = said(dist.all_gather, parts, torch.full((rank + 1,), float(rank)))
    flat, stack = torch.zeros(6), torch.zeros(3, 2)
    facts["into"] = warned(dist.all_gather_into_tensor, flat, torch.full((2,), float(rank)))
    facts["forms"] = (flat.tolist(), said(dist.all_gather_single, stack, torch.full((2,), float(rank))))
    part = torch.zeros(1)
    facts["scatter"] = (warned(dist.reduce_scatter_tensor, part, torch.arange(3.0)), part.item())
    facts["self"] = said(dist.send, part, dst=rank)
    facts["both"] = said(dist.broadcast, part, src=0, group_src=0)
    facts["gather_list"] = said(dist.gather, part, [part] * 3 if rank else None, dst=0)
    facts["split"] = said(dist.all_to_all_single, torch.zeros(4), torch.zeros(4))
    turned = torch.zeros(3)
    dist.all_to_all_single(turned, torch.arange(3.0) + 10 * rank)
    facts["all_to_all"] = turned.tolist()
    facts["coalesced"] = warned(dist.all_gather_coalesced, [[torch.zeros(1)] for _ in range(3)], [torch.ones(1)])
    point_to_point(rank, facts)
    objects(rank, facts)
    return facts


def point_to_point(rank, facts):
    if rank == 0:
        box = torch.zeros(1)
        senders = sorted(dist.recv(box) for _ in range(2))
        facts["any"] = senders
    else:
        dist.send(torch.ones(1), dst=0)
    dist.barrier()  # rank 0 must not take what follows for one of the two
    ours, theirs = torch.tensor([float(rank)]), torch.zeros(1)
    right, left = (rank + 1) % 3, (rank - 1) % 3
    receive_first = [dist.P2POp(dist.irecv, theirs, left), dist.P2POp(dist.isend, ours, right)]
    for request in dist.batch_isend_irecv(receive_first):
        request.wait()
    facts["ring"] = theirs.item() == left
    facts["p2p_op"] = said(dist.P2POp, dist.all_reduce, ours, right)
    other = dist.new_group()
    mixed = [dist.P2POp(dist.irecv, theirs, left), dist.P2POp(dist.isend, ours, right, group=other)]
    facts["p2p_groups"] = said(dist.batch_isend_irecv, mixed)


def objects(rank, facts):
    module = dist.distributed_c10d
    real, calls = module.all_gather, []
    module.all_gather = lambda *args, **kwargs: (calls.append(1), real(*args, **kwargs))[1]
    got = [None] * 3
    facts["object"] = (dist.all_gather_object(got, {"rank": rank}), got)
    module.all_gather = real
    facts["object_calls"] = len(calls)
    pids = [None] * 3
    dist.all_gather_object(pids, Pid())
    facts["unpickled"] = pids
    facts["unpicklable"] = said(dist.all_gather_object, got, lambda: None)
    mine = [None]
    dist.scatter_object_list(mine, ["a", "b", "c"] if rank == 0 else None, src=0)
    facts["scattered"] = mine


@pytest.fixture(scope="module")
def three():
    return gloo.run(3, collectives)


def test_rank_and_world_size(three):
    assert of(three, "rank") == [0, 1, 2] and of(three, "world") == [3, 3, 3]
    assert len(set(of(three, "pid"))) == 3  # one process each


def test_synchronous_collective_works_in_place(three):
    assert of(three, "sync") == [(None, 6.0)] * 3


def test_asynchronous_collective_returns_work(three):
    assert of(three, "async") == [(True, True, True, 3.0)] * 3


def test_avg_on_gloo(three):
    errors = [fault for fault, _ in of(three, "avg")]
    assert errors == [""] * 3 and of(three, "avg")[0][1] == 2.0


def test_premul_sum_is_not_for_gloo(three):
    assert all_say(of(three, "premul"), "PREMUL_SUM")


def test_bitwise_reductions_on_gloo(three):
    assert of(three, "bor") == [("", 7)] * 3


def test_complex_sums_but_no_maximum(three):
    assert of(three, "complex")[0][0] == 3 + 3j
    assert all_say([text for _, text in of(three, "complex")], "ValueError", "does not support", "complex")


def test_one_dtype_in_a_collective(three):
    assert all_say(of(three, "dtypes"), "ValueError", "different dtypes")


def test_gloo_refuses_uneven_all_gather(three):
    assert all_say(of(three, "uneven"), "RuntimeError", "invalid tensor size")


def test_gather_into_one_tensor_concatenates(three):
    assert [flat for flat, _ in of(three, "forms")] == [[0.0, 0.0, 1.0, 1.0, 2.0, 2.0]] * 3


def test_gloo_refuses_the_stacked_form(three):
    assert all_say([text for _, text in of(three, "forms")], "RuntimeError", "invalid tensor size")


def test_into_tensor_names_are_deprecated(three):
    assert all_say([texts[0] for texts in of(three, "into")], "FutureWarning", "all_gather_single")


def test_reduce_scatter_tensor_is_deprecated(three):
    assert all_say([texts[0] for texts, _ in of(three, "scatter")], "FutureWarning", "reduce_scatter_single")
    assert [value for _, value in of(three, "scatter")] == [0.0, 3.0, 6.0]


def test_no_send_to_oneself(three):
    assert all_say(of(three, "self"), "ValueError", "should not be the same as")


def test_global_or_group_rank_not_both(three):
    assert all_say(of(three, "both"), "ValueError", "Can't specify both group_rank and global_rank")


def test_gather_list_on_the_destination_only(three):
    first, *others = of(three, "gather_list")
    assert "must be specified on destination" in first
    assert all_say(others, "must NOT be specified on non-destination")


def test_all_to_all_single_divides_equally(three):
    assert all_say(of(three, "split"), "RuntimeError", "size % context->size == 0")


def test_gloo_runs_all_to_all_on_the_cpu(three):
    assert of(three, "all_to_all") == [[0.0, 10.0, 20.0], [1.0, 11.0, 21.0], [2.0, 12.0, 22.0]]


def test_coalesced_names_are_deprecated(three):
    assert all_say([texts[0] for texts in of(three, "coalesced")], "FutureWarning", "will be deprecated")


def test_recv_takes_any_sender(three):
    assert three[0]["any"] == [1, 2]


def test_batched_send_and_recv_do_not_deadlock(three):
    assert of(three, "ring") == [True] * 3


def test_p2p_op_is_isend_or_irecv(three):
    assert all_say(of(three, "p2p_op"), "ValueError", "isend")


def test_batch_uses_one_group(three):
    assert all_say(of(three, "p2p_groups"), "ValueError", "All ops need to use the same group")


def test_object_collective_blocks(three):
    assert of(three, "object") == [(None, [{"rank": 0}, {"rank": 1}, {"rank": 2}])] * 3
    for function in (dist.all_gather_object, dist.gather_object, dist.broadcast_object_list, dist.scatter_object_list):
        assert "async_op" not in inspect.signature(function).parameters


def test_object_collective_communicates_twice(three):
    assert of(three, "object_calls") == [2] * 3


def test_objects_are_pickled_and_run_at_the_receiver(three):
    assert [set(pids) for pids in of(three, "unpickled")] == [{pid} for pid in of(three, "pid")]
    assert all_say(of(three, "unpicklable"), "pickle")


def test_scatter_object_list_fills_the_first_element(three):
    assert of(three, "scattered") == [["a"], ["b"], ["c"]]


def test_multi_gpu_functions_are_gone():
    assert not [name for name in dir(dist) + dir(dist.distributed_c10d) if name.endswith("_multigpu")]
