"""Fake process groups for the witnesses: eight ranks in one process, of which the test is one."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # this folder is no package; the witnesses' tools lie in it

WORLD = 8


@pytest.fixture
def fake():
    """The 1-D mesh of eight ranks, seen from rank 5."""
    from torch.distributed.device_mesh import init_device_mesh
    from witness_tools import fake_group

    with fake_group(WORLD, 5):
        yield init_device_mesh("cpu", (WORLD,))


@pytest.fixture
def grid(fake):
    """Two nodes of four."""
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))


@pytest.fixture(scope="module")
def last_rank():
    """The group of eight, seen from its last rank, where what is left over shows."""
    from witness_tools import fake_group

    with fake_group(WORLD, WORLD - 1):
        yield


@pytest.fixture
def mesh():
    """All ranks of the group in one dimension."""
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh("cpu", (WORLD,))
