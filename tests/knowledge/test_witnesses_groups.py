"""Claims about process groups, their end, their timeouts and what shows a hang, run on PyTorch 2.13 over Gloo."""

import os
import time
from datetime import timedelta

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch", reason="runs claims on a real PyTorch")
if not torch.__version__.startswith("2.13"):
    pytest.skip("the witnesses are written for PyTorch 2.13", allow_module_level=True)

import torch.distributed as dist  # noqa: E402
from tests.snippets import gloo  # noqa: E402
from witness_answers import all_say, of, said, warned  # noqa: E402

MOMENT = timedelta(seconds=5)


def groups(rank):
    gloo.init()
    facts = {}
    pair = dist.new_group([2, 1], group_desc="the pair")
    facts["handle"] = (isinstance(pair, dist.ProcessGroup), pair is dist.GroupMember.NON_GROUP_MEMBER)
    facts["ranks"] = (dist.get_rank(pair), dist.get_world_size(pair))
    box = torch.tensor([float(rank)])
    facts["outside"] = warned(dist.all_reduce, torch.ones(1), group=pair)
    if rank:
        facts["members"] = dist.get_process_group_ranks(pair)
        facts["translated"] = (dist.get_group_rank(pair, 2), dist.get_global_rank(pair, 1))
        facts["desc"] = pair.group_desc
        facts["backend"] = dist.get_backend(pair)
        facts["source"] = said(dist.broadcast, box, src=0, group=pair)
        dist.broadcast(box, src=2, group=pair)
        facts["global"] = box.item()
        dist.broadcast(box.fill_(rank), group_src=0, group=pair)
        facts["group_src"] = box.item()
    facts["duplicate"] = said(dist.new_group, [0, 0])
    facts["range"] = said(dist.new_group, [0, 7])
    facts["larger"] = said(dist.new_group, [0, 1, 2, 3])
    local = None
    if rank:
        local = dist.new_group([1, 2], use_local_synchronization=True)
        dist.all_reduce(box.fill_(1.0), group=local)
        facts["local"] = box.item()
    else:
        facts["outside_local"] = dist.new_group([1, 2], use_local_synchronization=True)
    unsorted = dist.new_group([2, 0], sort_ranks=False)
    facts["unsorted"] = dist.get_rank(unsorted)
    facts["local_name"] = dist.distributed_c10d._process_group_name([1, 2], use_hashed_name=True)
    facts["mpi_local"] = said(dist.new_group, [0, 1, 2], backend="mpi", use_local_synchronization=True)
    facts["subgroups"] = said(dist.new_subgroups, 2)
    facts["subgroups_default"] = said(dist.new_subgroups)
    facts["overlap"] = said(dist.new_subgroups_by_enumeration, [[0, 1], [1, 2]])
    facts["split_group"] = said(dist.split_group, split_ranks=[[0, 1], [2]])
    facts["shrink"] = said(dist.shrink_group, [2])
    short = dist.new_group(timeout=timedelta(seconds=7))
    of_cpu = [group._get_backend(torch.device("cpu")).options._timeout for group in (dist.group.WORLD, short)]
    facts["timeouts"] = of_cpu
    facts["twice"] = said(dist.init_process_group, "gloo")
    facts["name"] = dist.group.WORLD.group_name
    dist.destroy_process_group(short)
    facts["destroyed"] = said(dist.destroy_process_group, short)
    facts["non_member"] = said(dist.destroy_process_group, pair) if rank == 0 else ""
    dist.all_reduce(box.fill_(1.0))
    facts["others_live"] = box.item()
    dist.barrier()
    dist.destroy_process_group()
    facts["after"] = (dist.is_initialized(), said(dist.all_reduce, box))
    return facts


@pytest.fixture(scope="module")
def grouped():
    return gloo.run(3, groups)


def test_new_group_gives_a_handle(grouped):
    assert of(grouped, "handle") == [(False, True), (True, False), (True, False)]


def test_new_group_sorts_ranks(grouped):
    assert of(grouped, "ranks") == [(-1, -1), (0, 2), (1, 2)]
    assert of(grouped[1:], "members") == [[1, 2]] * 2


def test_new_group_can_keep_the_order(grouped):
    assert of(grouped, "unsorted") == [1, -1, 0]


def test_ranks_are_translated(grouped):
    assert of(grouped[1:], "translated") == [(1, 2)] * 2


def test_outsider_is_warned_and_does_nothing(grouped):
    assert "all_reduce" in grouped[0]["outside"][0] and not grouped[1]["outside"]


def test_source_is_a_global_rank(grouped):
    assert all_say(of(grouped[1:], "source"), "ValueError", "Global rank 0 is not part of group")
    assert of(grouped[1:], "global") == [2.0, 2.0] and of(grouped[1:], "group_src") == [1.0, 1.0]


def test_group_description(grouped):
    assert of(grouped[1:], "desc") == ["the pair"] * 2


def test_new_group_takes_the_default_backend(grouped):
    assert of(grouped[1:], "backend") == ["gloo"] * 2


def test_new_group_refuses_wrong_ranks(grouped):
    assert all_say(of(grouped, "duplicate"), "ValueError", "duplicate entries")


def test_new_group_refuses_ranks_out_of_range(grouped):
    assert all_say(of(grouped, "range"), "ValueError", "out of range")
    assert all_say(of(grouped, "larger"), "ValueError", "less or equal")


def test_local_synchronisation_needs_members_only(grouped):
    assert of(grouped[1:], "local") == [2.0, 2.0]
    assert grouped[0]["outside_local"] is None  # at once, without the others


def test_local_groups_need_equal_histories(grouped):
    """Rank 2 is in one group more than rank 1: the name under which they would meet differs."""
    assert grouped[1]["local_name"] != grouped[2]["local_name"]


def test_local_synchronisation_is_not_for_mpi(grouped):
    assert all_say(of(grouped, "mpi_local"), "ValueError", "MPI")


def test_subgroups_divide_the_world(grouped):
    assert all_say(of(grouped, "subgroups"), "ValueError", "must be divisible")


def test_subgroups_default_needs_cuda(grouped):
    assert all_say(of(grouped, "subgroups_default"), "ValueError", "CUDA")


def test_subgroups_do_not_overlap(grouped):
    assert all_say(of(grouped, "overlap"), "ValueError", "has appeared in both")


def test_split_group_needs_a_bound_device(grouped):
    assert all_say(of(grouped, "split_group"), "RuntimeError", "No device associated")


def test_shrink_group_is_not_for_gloo(grouped):
    assert all_say(of(grouped, "shrink"), "TypeError")


def test_every_group_has_its_timeout(grouped):
    assert of(grouped, "timeouts") == [[timedelta(minutes=30), timedelta(seconds=7)]] * 3


def test_second_initialisation_is_refused(grouped):
    assert all_say(of(grouped, "twice"), "ValueError", "twice")


def test_destroying_one_group_leaves_the_others(grouped):
    assert all_say(of(grouped, "destroyed"), "ValueError", "Invalid process group")
    assert of(grouped, "others_live") == [3.0] * 3


def test_non_members_may_destroy(grouped):
    assert grouped[0]["non_member"] == ""


def test_destroying_all_ends_the_package(grouped):
    assert all(not alive for alive, _ in of(grouped, "after"))
    assert all_say([text for _, text in of(grouped, "after")], "ValueError", "has not been initialized")


def late(rank):
    gloo.init()
    facts = {}
    first, second = dist.new_group(), dist.new_group()
    slow = dist.new_group()
    os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
    dist.set_debug_level_from_env()
    checked = dist.new_group()
    dist.set_debug_level(dist.DebugLevel.OFF)
    facts["mismatch"] = said(dist.all_reduce, torch.zeros(1 + rank), group=checked)
    dist.barrier()  # all are in step, whatever the machine's load
    if rank < 2:
        facts["barrier"] = said(dist.monitored_barrier, first, timeout=MOMENT)
    if rank == 0:
        dist.distributed_c10d._set_pg_timeout(timedelta(seconds=1), slow)  # only now: its own set-up may take longer
        facts["all"] = said(dist.monitored_barrier, second, timeout=MOMENT, wait_all_ranks=True)
        started = time.monotonic()
        facts["alone"] = said(dist.all_reduce, torch.ones(1), group=slow)
        facts["waited"] = time.monotonic() - started
    dist.barrier()  # nobody leaves before rank 0 has seen its timeouts
    return facts


@pytest.fixture(scope="module")
def hung():
    return gloo.run(3, late)


def test_monitored_barrier_names_the_missing_rank(hung):
    assert "Rank 2 failed to pass monitoredBarrier" in hung[0]["barrier"]
    assert "RuntimeError" in hung[1]["barrier"]  # the others fail too


def test_monitored_barrier_collects_all_missing_ranks(hung):
    assert "1, 2" in hung[0]["all"]


def test_gloo_collective_raises_after_its_timeout(hung):
    assert hung[0]["alone"].startswith("RuntimeError") and 0.5 < hung[0]["waited"] < 100


def test_debug_detail_reports_a_mismatch(hung):
    assert any("mismatch" in text.lower() or "shape" in text.lower() for text in of(hung, "mismatch"))
    assert all(of(hung, "mismatch"))
