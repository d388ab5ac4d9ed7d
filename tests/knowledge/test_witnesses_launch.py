"""Claims about torchrun's options and DistributedSampler, run on PyTorch 2.13."""

import os
from datetime import timedelta

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch", reason="runs claims on a real PyTorch")
if not torch.__version__.startswith("2.13"):
    pytest.skip("the witnesses are written for PyTorch 2.13", allow_module_level=True)

from witness_answers import said  # noqa: E402


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
