"""Process groups, collectives and the launcher."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist

from .common import case


@case
def group_initialised_twice(fixed: bool) -> None:
    if not (fixed and dist.is_initialized()):
        dist.init_process_group("gloo")


@case
def backend_not_built(fixed: bool) -> None:
    dist.new_group(backend="gloo" if fixed else "nccl")


@case
def backend_string(fixed: bool) -> None:
    dist.distributed_c10d.BackendConfig(dist.Backend("cpu:gloo,cuda:gloo" if fixed else "cpu:gloo,cuda"))


@case
def group_ranks(fixed: bool) -> None:
    dist.new_group([0, 1] if fixed else [0, 4])


@case
def hybrid_autodetect_group_size(fixed: bool) -> None:
    dist.new_subgroups(group_size=2 if fixed else 8)


@case
def group_not_member(fixed: bool) -> None:
    group = dist.new_group([0])
    if dist.get_rank() == 0:
        dist.get_group_rank(group, 0 if fixed else 1)
    elif not fixed:
        dist.get_group_rank(dist.group.WORLD, 5)


@case
def split_group_arguments(fixed: bool) -> None:
    if fixed:
        dist.new_group([0, 1])
    else:
        dist.split_group(split_ranks=[[0, 1]])


@case
def shrink_group_arguments(fixed: bool) -> None:
    if not fixed:
        dist.shrink_group([])


@case
def collective_argument_type(fixed: bool) -> None:
    dist.all_reduce(torch.tensor(1.0) if fixed else 1.0)


@case
def collective_dtype(fixed: bool) -> None:
    out = [torch.zeros(2, dtype=torch.float32 if fixed else torch.float64) for _ in range(2)]
    dist.all_gather(out, torch.zeros(2))


@case
def collective_one_sided_lists(fixed: bool) -> None:
    give = dist.get_rank() == 0 if fixed else dist.get_rank() != 0
    dist.gather(torch.ones(1), [torch.zeros(1), torch.zeros(1)] if give else None, dst=0)


@case
def collective_both_ranks(fixed: bool) -> None:
    dist.broadcast(torch.ones(1), src=0, **({} if fixed else {"group_src": 0}))


@case
def p2p_to_self(fixed: bool) -> None:
    me = dist.get_rank()
    if not fixed:
        dist.send(torch.ones(1), dst=me)
    elif me == 0:
        dist.send(torch.ones(1), dst=1)
    else:
        dist.recv(torch.ones(1), src=0)


@case
def p2p_batch(fixed: bool) -> None:
    peer = 1 - dist.get_rank()
    if fixed:
        ops = [dist.P2POp(dist.isend, torch.ones(1), peer), dist.P2POp(dist.irecv, torch.ones(1), peer)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
    else:
        dist.batch_isend_irecv([dist.isend])


@case
def local_rank_missing(fixed: bool) -> None:
    before = os.environ.pop("LOCAL_RANK", None)
    try:
        dist.get_node_local_rank(0 if fixed else None)
    finally:
        if before is not None:
            os.environ["LOCAL_RANK"] = before


@case
def init_url(fixed: bool) -> None:
    from torch.distributed.rendezvous import rendezvous

    if not fixed:
        next(iter(rendezvous("tcp://127.0.0.1:29517")))


# torchrun


def _torchrun(*arguments: str) -> None:
    from torch.distributed.run import config_from_args, parse_args

    config, *_ = config_from_args(parse_args([*arguments, "train.py"]))
    from torch.distributed.elastic.rendezvous import registry

    if config.rdzv_backend != "c10d":
        from torch.distributed.elastic.rendezvous import RendezvousParameters

        registry.get_rendezvous_handler(
            RendezvousParameters(
                config.rdzv_backend,
                config.rdzv_endpoint,
                config.run_id,
                config.min_nodes,
                config.max_nodes,
                **config.rdzv_configs,
            )
        )


@case
def torchrun_numbers(fixed: bool) -> None:
    _torchrun("--nnodes", "1:2" if fixed else "3:2", "--rdzv-backend", "c10d")


@case
def torchrun_flags(fixed: bool) -> None:
    _torchrun("--rdzv-backend", "c10d", "--no-python", *([] if fixed else ["--module"]))


@case
def torchrun_rdzv_conf(fixed: bool) -> None:
    _torchrun("--rdzv-backend", "c10d", "--rdzv-conf", "timeout=900" if fixed else "timeout")


@case
def torchrun_backend_unknown(fixed: bool) -> None:
    _torchrun("--rdzv-backend", "c10d" if fixed else "c10", "--rdzv-endpoint", "localhost:0")


@case
def torchrun_endpoint(fixed: bool) -> None:
    from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint

    parse_rendezvous_endpoint("node1:29500" if fixed else "http://node1:29500", 29400)


@case
def torchrun_logs(fixed: bool) -> None:
    _torchrun("--rdzv-backend", "c10d", "--redirects", "3" if fixed else "7")


@case
def init_device_id(fixed: bool) -> None:
    from torch.distributed.distributed_c10d import _new_process_group_helper

    if not fixed:
        _new_process_group_helper(2, dist.get_rank(), [], "gloo", None, "bound", device_id=torch.device("cpu"))


@case
def coalescing_mixed(fixed: bool) -> None:
    from torch.distributed.distributed_c10d import _coalescing_manager

    with _coalescing_manager():
        dist.all_reduce(torch.ones(1))
        if not fixed:
            dist.all_gather_into_tensor(torch.zeros(2), torch.ones(1))


@case
def torchrun_static_arguments(fixed: bool) -> None:
    from torch.distributed.elastic.rendezvous import RendezvousParameters
    from torch.distributed.elastic.rendezvous.static_tcp_rendezvous import create_rdzv_handler

    options = {"rank": 0} if fixed else {}
    create_rdzv_handler(RendezvousParameters("static", "127.0.0.1:29500", "job", 1, 1, **options))


@case
def rdzv_state_corrupt(fixed: bool) -> None:
    from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend

    store = dist.HashStore()
    if not fixed:
        store.set("torch.rendezvous.job", "not base64!")
    C10dRendezvousBackend(store, "job").get_state()
