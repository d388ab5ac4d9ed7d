"""Claims about process groups, collectives, initialisation, backends and torchrun, run on PyTorch 2.13 over Gloo.

Each fixture starts its processes once; every test is the witness of the claims that name it, and looks at what the ranks saw.
"""

import inspect
import os
import subprocess
import sys
import time
import warnings
from datetime import timedelta

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch", reason="runs claims on a real PyTorch")
if not torch.__version__.startswith("2.13"):
    pytest.skip("the witnesses are written for PyTorch 2.13", allow_module_level=True)

import torch.distributed as dist  # noqa: E402
from tests.snippets import gloo  # noqa: E402

HALF = timedelta(seconds=0.5)


def said(call, *args, **kwargs):
    """How a call failed: "ValueError: its message", or "" when it did not."""
    try:
        call(*args, **kwargs)
    except BaseException as problem:
        return f"{type(problem).__name__}: {problem}"
    return ""


def warned(call, *args, **kwargs):
    """The warnings of a call: "FutureWarning: message"."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call(*args, **kwargs)
    return [f"{item.category.__name__}: {item.message}" for item in caught]


def all_say(texts, *words):
    """Every rank failed with these words."""
    return all(word in text for text in texts for word in words) and bool(texts)


def of(ranks, name):
    return [rank[name] for rank in ranks]


class Pid:
    """Its pickle holds a call: whoever unpickles it runs os.getpid()."""

    def __reduce__(self):
        return os.getpid, ()


# ---------------------------------------------------------------------------------------------------- collectives


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


# --------------------------------------------------------------------------------------------------------- groups


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
    if rank:  # rank 0 is no member and does not call
        local = dist.new_group([1, 2], use_local_synchronization=True)
        dist.all_reduce(box.fill_(1.0), group=local)
        facts["local"] = box.item()
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


# --------------------------------------------------------------------------------------- hangs and how they show


def late(rank):
    gloo.init()
    facts = {}
    first, second = dist.new_group(), dist.new_group()
    slow = dist.new_group(timeout=timedelta(seconds=1))
    os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
    dist.set_debug_level_from_env()
    checked = dist.new_group()
    dist.set_debug_level(dist.DebugLevel.OFF)
    facts["mismatch"] = said(dist.all_reduce, torch.zeros(1 + rank), group=checked)
    if rank < 2:
        facts["barrier"] = said(dist.monitored_barrier, first, timeout=HALF)
    if rank == 0:
        facts["all"] = said(dist.monitored_barrier, second, timeout=HALF, wait_all_ranks=True)
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
    assert hung[0]["alone"].startswith("RuntimeError") and 0.5 < hung[0]["waited"] < 20


def test_debug_detail_reports_a_mismatch(hung):
    assert any("mismatch" in text.lower() or "shape" in text.lower() for text in of(hung, "mismatch"))
    assert all(of(hung, "mismatch"))


# ------------------------------------------------------------------------------------------------- initialisation


def set_up(rank):
    """One process that is not initialised; everything here is refused before it talks to anybody, or world size 1."""
    facts = {}
    init = dist.init_process_group
    full = dict(os.environ)
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        del os.environ[name]
        facts[name] = said(init, "gloo")
        os.environ[name] = full[name]
    facts["tcp_port"] = said(init, "gloo", init_method="tcp://127.0.0.1", rank=0, world_size=1)
    facts["tcp_rank"] = said(init, "gloo", init_method="tcp://127.0.0.1:29999")
    facts["tcp_world"] = said(init, "gloo", init_method="tcp://127.0.0.1:29999", rank=0)
    facts["file_path"] = said(init, "gloo", init_method="file://", rank=0, world_size=1)
    facts["file_rank"] = said(init, "gloo", init_method="file:///tmp/never_made")
    facts["scheme"] = said(init, "gloo", init_method="http://127.0.0.1:1", rank=0, world_size=1)
    facts["url_twice"] = said(
        init, "gloo", init_method="tcp://127.0.0.1:29999?rank=0&world_size=1", rank=0, world_size=1
    )
    os.environ["MASTER_PORT"] = "70000"
    facts["port"] = said(init, "gloo")
    os.environ["MASTER_PORT"] = full["MASTER_PORT"]
    store = dist.HashStore()
    facts["both"] = said(init, "gloo", init_method="env://", store=store, rank=0, world_size=1)
    facts["store_world"] = said(init, "gloo", store=store)
    facts["timeout"] = said(init, "gloo", timeout=30)
    facts["device_cpu"] = said(init, "gloo", device_id=torch.device("cpu", 0))
    facts["device_cuda"] = said(init, "gloo", device_id=torch.device("cuda", 0))
    facts["device_int"] = said(init, device_id=0)
    for name in ("nccl", "mpi", "xccl", "ucc"):
        facts[name] = said(init, name, store=store, rank=0, world_size=1)
    facts["before"] = (dist.is_initialized(), said(dist.get_rank), said(dist.get_backend))
    del os.environ["LOCAL_RANK"]
    facts["local_rank"] = (said(dist.get_node_local_rank), dist.get_node_local_rank(fallback_rank=3))
    os.environ["TORCHELASTIC_RUN_ID"] = "job"
    facts["elastic"] = (dist.is_torchelastic_launched(), os.environ.pop("TORCHELASTIC_RUN_ID"))
    facts["not_elastic"] = dist.is_torchelastic_launched()
    init("gloo", store=store, rank=0, world_size=1, group_name="mine", timeout=timedelta(seconds=9))
    ours = dist.new_group()
    facts["inherited"] = [
        group._get_backend(torch.device("cpu")).options._timeout for group in (dist.group.WORLD, ours)
    ]
    facts["group_name"] = dist.group.WORLD.group_name
    facts["excepthook"] = sys.excepthook.__name__
    dist.destroy_process_group()
    init("cpu:gloo", store=dist.HashStore(), rank=0, world_size=1)
    facts["paired"] = dist.get_backend_config()
    dist.destroy_process_group()
    levels = {}
    for level in ("OFF", "INFO", "DETAIL"):
        os.environ["TORCH_DISTRIBUTED_DEBUG"] = level
        dist.set_debug_level_from_env()
        levels[level] = dist.get_debug_level().name
    del os.environ["TORCH_DISTRIBUTED_DEBUG"]
    dist.set_debug_level_from_env()
    facts["debug"] = (levels, dist.get_debug_level().name)
    facts["init_barrier"] = dist.distributed_c10d._is_barrier_after_init()
    os.environ["TORCH_GLOO_LAZY_INIT"] = "1"
    init("gloo", store=dist.HashStore(), rank=0, world_size=1)
    facts["lazy"] = said(dist.all_reduce, torch.ones(1))
    return facts


@pytest.fixture(scope="module")
def setting():
    return gloo.run(1, set_up)[0]


@pytest.mark.parametrize("name", ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"])
def test_env_init_needs_its_four_variables(setting, name):
    assert all_say([setting[name]], "ValueError", f"environment variable {name} expected, but not set")


def test_tcp_url_needs_a_port(setting):
    assert all_say([setting["tcp_port"]], "ValueError", "port number missing")


def test_tcp_assigns_no_ranks(setting):
    assert all_say([setting["tcp_rank"]], "ValueError", "rank parameter missing")
    assert all_say([setting["tcp_world"]], "ValueError", "world size parameter missing")


def test_file_url_needs_a_path(setting):
    assert all_say([setting["file_path"]], "ValueError", "path missing")


def test_file_assigns_no_ranks(setting):
    assert all_say([setting["file_rank"]], "ValueError", "rank parameter missing")


def test_other_schemes_have_no_handler(setting):
    assert all_say([setting["scheme"]], "RuntimeError", "No rendezvous handler for http")


def test_rank_in_url_and_call(setting):
    assert all_say([setting["url_twice"]], "AssertionError", "node-specific arguments")


def test_port_range(setting):
    assert all_say([setting["port"]], "ValueError", "70000")


def test_store_or_method(setting):
    assert all_say([setting["both"]], "AssertionError", "Cannot specify both")


def test_store_needs_world_size_and_rank(setting):
    assert all_say([setting["store_world"]], "AssertionError", "world_size must be positive")


def test_timeout_is_a_timedelta(setting):
    assert all_say([setting["timeout"]], "TypeError", "datetime.timedelta")


def test_device_id_must_be_an_accelerator(setting):
    assert all_say([setting["device_cpu"]], "ValueError", "must be an accelerator with an index")


def test_device_id_must_fit_the_build(setting):
    assert all_say([setting["device_cuda"]], "ValueError", "does not match the current compilation")


def test_integer_device_id_needs_an_accelerator_build(setting):
    assert all_say([setting["device_int"]], "ValueError", "no accelerator support is found")


def test_cpu_build_has_no_nccl(setting):
    assert not dist.is_nccl_available() and all_say([setting["nccl"]], "RuntimeError", "doesn't have NCCL built in")


def test_wheel_has_no_mpi(setting):
    assert not dist.is_mpi_available() and all_say([setting["mpi"]], "RuntimeError", "doesn't have MPI built in")


def test_cpu_build_has_no_xccl(setting):
    assert not dist.is_xccl_available() and all_say([setting["xccl"]], "RuntimeError", "doesn't have XCCL built in")


def test_wheel_has_no_ucc(setting):
    assert not dist.is_ucc_available() and "Unknown c10d backend type" in setting["ucc"]


def test_wheel_has_gloo():
    assert dist.is_gloo_available() and dist.is_backend_available("gloo") and not dist.is_backend_available("nccl")


def test_nothing_works_before_initialisation(setting):
    assert setting["before"][0] is False and all_say(setting["before"][1:], "ValueError", "init_process_group")


def test_node_local_rank_comes_from_the_launcher(setting):
    assert "LOCAL_RANK is not in the environment" in setting["local_rank"][0] and setting["local_rank"][1] == 3


def test_torchelastic_is_known_by_its_run_id(setting):
    assert setting["elastic"] == (True, "job") and setting["not_elastic"] is False


def test_group_name_is_ignored(setting):
    assert setting["group_name"] != "mine"


def test_new_group_does_not_inherit_the_timeout(setting):
    assert setting["inherited"] == [timedelta(seconds=9), timedelta(minutes=30)]


def test_nccl_options_are_not_in_cpu_builds():
    with pytest.raises(ImportError):
        from torch._C._distributed_c10d import ProcessGroupNCCL  # noqa: F401


def test_cpu_build_names_no_gpu():
    assert (torch.version.cuda, torch.version.hip, torch.version.xpu) == (None, None, None)


def test_tracebacks_get_the_rank(setting):
    assert setting["excepthook"] == "_distributed_excepthook"


def test_backend_for_one_device_type(setting):
    assert setting["paired"] == "cpu:gloo"


def test_debug_level_from_the_environment(setting):
    levels, default = setting["debug"]
    assert all(given == level for given, level in levels.items()) and default == "OFF"


def test_no_barrier_after_initialisation(setting):
    assert "TORCH_DIST_INIT_BARRIER" not in os.environ and setting["init_barrier"] == 0


def test_lazy_gloo_works(setting):
    assert setting["lazy"] == ""


def test_default_timeouts():
    assert dist.distributed_c10d.default_pg_timeout == timedelta(minutes=30)
    stub = inspect.getsourcefile(dist).replace("distributed/__init__.py", "_C/_distributed_c10d.pyi")
    with open(stub, encoding="utf-8") as text:  # noqa: PTH123
        assert "_DEFAULT_PG_NCCL_TIMEOUT: timedelta" in text.read()
    assert dist.distributed_c10d._get_default_timeout(dist.Backend.GLOO) == timedelta(minutes=30)


def test_backend_names_are_lowered():
    assert dist.Backend("GLOO") == "gloo" == dist.Backend.GLOO


def test_backend_pairs():
    config = dist.distributed_c10d.BackendConfig
    assert "Invalid device:backend pairing" in said(config, dist.Backend("cpu:gloo,cuda"))
    assert config(dist.Backend("cpu:gloo,cuda:nccl")).get_device_backend_map() == {"cpu": "gloo", "cuda": "nccl"}


def test_backend_pairs_name_a_device_once():
    assert "Duplicate device type" in said(dist.distributed_c10d.BackendConfig, dist.Backend("cpu:gloo,cpu:gloo"))


def test_default_backends():
    names = {device: dist.get_default_backend_for_device(device) for device in ("cpu", "cuda", "xpu", "mps")}
    assert names == {"cpu": "gloo", "cuda": "nccl", "xpu": "xccl", "mps": "gloo"}


def test_devices_of_the_backends():
    devices = dist.Backend.backend_capability
    assert devices["gloo"] == devices["mpi"] == devices["ucc"] == ["cpu", "cuda"]
    assert devices["nccl"] == ["cuda"] and devices["xccl"] == ["xpu"]


FILE_INIT = """
import os, sys, torch, torch.distributed as dist
def start(path):
    dist.init_process_group("gloo", init_method="file://" + path, rank=0, world_size=1)
    dist.barrier()
normal, hard = sys.argv[1:]
child = os.fork()
if not child:
    start(normal)
    sys.exit()  # a normal exit, without destroy_process_group
os.waitpid(child, 0)
child = os.fork()
if not child:
    start(hard)
    os._exit(0)
os.waitpid(child, 0)
"""


def test_file_is_removed_at_a_normal_exit_only(tmp_path):
    normal, hard = tmp_path / "normal", tmp_path / "hard"
    subprocess.run([sys.executable, "-c", FILE_INIT, str(normal), str(hard)], check=True)
    assert not normal.exists()
    assert hard.exists() and hard.stat().st_size > 0


# ------------------------------------------------------------------------------------------------------- torchrun


def options(*arguments):
    from torch.distributed.run import parse_args

    return parse_args([*arguments, "train.py"])


def test_torchrun_defaults():
    given = options()
    assert (given.nnodes, given.nproc_per_node, given.max_restarts) == ("1:1", "1", 0)
    assert (given.rdzv_backend, given.rdzv_endpoint, given.rdzv_id) == ("static", "", "none")


def test_torchrun_log_defaults():
    given = options()
    assert (given.log_dir, given.redirects, given.tee, given.local_ranks_filter) == (None, "0", "0", "")


def test_torchrun_monitor_interval():
    assert options().monitor_interval == 0.1


def test_torchrun_port_default():
    assert options().master_port is None and options().master_addr == "127.0.0.1"


def test_torchrun_start_method():
    assert options().start_method == "spawn"


def test_torchrun_signals():
    assert options().signals_to_handle == "SIGTERM,SIGINT,SIGHUP,SIGQUIT"


def test_torchrun_options_from_the_environment(monkeypatch):
    monkeypatch.setenv("PET_NPROC_PER_NODE", "5")
    assert options().nproc_per_node == "5"
    assert options("--nproc-per-node", "2").nproc_per_node == "2"


def test_torchrun_log_streams():
    from torch.distributed.elastic.multiprocessing import Std

    assert Std.from_str("3") == Std.ALL
    assert Std.from_str("0:1,1:2") == {0: Std.OUT, 1: Std.ERR}


def test_torchrun_ranks_filter(monkeypatch):
    from torch.distributed.run import config_from_args

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert "comma-separated list of integers" in said(config_from_args, options("--local-ranks-filter", "first"))
    config, _, _ = config_from_args(options("--local-ranks-filter", "0,2"))
    assert config.logs_specs._local_ranks_filter == {0, 2}


def test_torchrun_sets_one_thread(monkeypatch):
    from torch.distributed.run import config_from_args

    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    config_from_args(options("--nproc-per-node", "2"))
    assert os.environ.pop("OMP_NUM_THREADS") == "1"


def test_rendezvous_timeouts():
    from torch.distributed.elastic.rendezvous.dynamic_rendezvous import RendezvousTimeout

    default = RendezvousTimeout()
    assert (default.join, default.last_call) == (timedelta(minutes=10), timedelta(seconds=30))


def test_launch_module_is_deprecated():
    from torch.distributed import launch

    assert "torch.distributed.launch is deprecated" in launch.main.__deprecated__


# ----------------------------------------------------------------------------------------------- DistributedSampler


def indices(size, rank, replicas=2, **more):
    from torch.utils.data import DistributedSampler

    return DistributedSampler(range(size), num_replicas=replicas, rank=rank, **more)


def test_sampler_pads_by_repetition():
    assert [list(indices(5, rank, shuffle=False)) for rank in (0, 1)] == [[0, 2, 4], [1, 3, 0]]


def test_sampler_drops_the_tail():
    assert [list(indices(5, rank, shuffle=False, drop_last=True)) for rank in (0, 1)] == [[0, 2], [1, 3]]


def test_sampler_needs_set_epoch():
    sampler = indices(64, 0)
    first, again = list(sampler), list(sampler)
    sampler.set_epoch(1)
    assert first == again != list(sampler)


def test_sampler_seed_is_shared():
    same = set(indices(64, 0)) | set(indices(64, 1))
    different = set(indices(64, 0)) | set(indices(64, 1, seed=1))
    assert same == set(range(64)) > different


def test_sampler_rank_range():
    assert "Invalid rank 2" in said(indices, 4, 2)
