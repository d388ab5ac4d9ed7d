"""Claims about distributed checkpoints, run on PyTorch 2.13: in one process, and on four."""

import dataclasses
import inspect
import logging
import pickle
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch", reason="runs claims on a real PyTorch")
if not torch.__version__.startswith("2.13"):
    pytest.skip("the witnesses are written for PyTorch 2.13", allow_module_level=True)

import torch.distributed as dist  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
from torch.distributed.checkpoint import format_utils  # noqa: E402
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.tensor import Shard, distribute_tensor  # noqa: E402
from witness_cases import warned  # noqa: E402
from witness_tools import on_gloo  # noqa: E402


def quietly(call):
    return warned(call)[0]


def test_checkpoint_single_process(tmp_path):
    _, said = warned(lambda: dcp.save({"a": torch.ones(3)}, checkpoint_id=tmp_path / "x"))
    assert any("assuming the intent is to save in a single process" in text for text in said)
    assert sorted(path.name for path in (tmp_path / "x").iterdir()) == [".metadata", "__0_0.distcp"]


def test_storage_is_inferred(tmp_path):
    for arguments, words in (({}, "must be specified"), ({"checkpoint_id": "nowhere://x"}, "Cannot detect")):
        with pytest.raises(RuntimeError, match=words):
            quietly(lambda arguments=arguments: dcp.save({"a": torch.ones(1)}, **arguments))


def test_no_dist(fake, tmp_path):
    quietly(lambda: dcp.save({"a": torch.ones(2)}, checkpoint_id=tmp_path / "x", no_dist=True))
    assert sorted(path.name for path in (tmp_path / "x").iterdir()) == [".metadata", "__0_0.distcp"]
    assert load({"a": torch.zeros(2)}, tmp_path / "x", no_dist=True)["a"].tolist() == [1, 1]


def test_async_save_needs_a_cpu_backend(tmp_path):
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("cuda:fake", store=FakeStore(), rank=0, world_size=1)
    try:
        with pytest.raises(AssertionError, match="A CPU backend must be enabled for async save"):
            dcp.async_save({"a": torch.ones(2)}, checkpoint_id=tmp_path / "x")
    finally:
        dist.destroy_process_group()


def test_old_names_warn(tmp_path):
    writer = dcp.FileSystemWriter(tmp_path / "x")
    _, said = warned(lambda: dcp.save_state_dict({"a": torch.ones(2)}, writer, no_dist=True))
    assert any(text.startswith("FutureWarning: `save_state_dict` is deprecated") for text in said)


class Other:
    """Something that only unrestricted unpickling makes again."""


def test_untrusted_pickles(tmp_path):
    torch.save({"a": torch.ones(2), "other": Other()}, tmp_path / "x.pt")
    with pytest.raises(pickle.UnpicklingError, match="Weights only load failed"):
        torch.load(tmp_path / "x.pt")
    format_utils.torch_save_to_dcp(tmp_path / "x.pt", tmp_path / "x")  # unpickled without a question
    assert (tmp_path / "x" / ".metadata").is_file()


def test_torch_save_reader(fake, ranks):
    assert all(rank == [0, 1, 2, 3] for rank in ranks["read_torch_save"])
    reader, planner = format_utils.BroadcastingTorchSaveReader("unread"), format_utils.DynamicMetaLoadPlanner()
    planner.set_up_planner({"x": distribute_tensor(torch.zeros(16), fake, [Shard(0)])}, None, False)
    reader.set_up_storage_reader(None, False)
    plan = planner.finish_plan(planner.create_local_plan())
    with pytest.raises(NotImplementedError, match="broadcast_"):  # a rank other than 0
        reader.read_data(plan, planner)


class Counter:
    def __init__(self):
        self.calls, self.value = [], torch.ones(2)

    def state_dict(self):
        self.calls.append("state_dict")
        return {"value": self.value}

    def load_state_dict(self, state):
        self.calls.append("load_state_dict")


def test_stateful_objects(tmp_path):
    thing = Counter()
    quietly(lambda: dcp.save({"thing": thing}, checkpoint_id=tmp_path / "x"))
    assert thing.calls == ["state_dict"]
    thing.value = torch.zeros(2)
    quietly(lambda: dcp.load({"thing": thing}, checkpoint_id=tmp_path / "x"))
    assert thing.calls[1:] == ["state_dict", "load_state_dict"] and thing.value.tolist() == [1, 1]


@pytest.fixture
def saved(tmp_path):
    quietly(lambda: dcp.save({"a": torch.ones(3), "b": torch.ones(2), "step": 7}, checkpoint_id=tmp_path / "x"))
    return tmp_path / "x"


def load(state, folder, **options):
    quietly(lambda: dcp.load(state, checkpoint_id=folder, **options))
    return state


def test_load_in_place(saved):
    low = torch.zeros(3, dtype=torch.bfloat16)
    state = load({"a": low, "step": 0}, saved)
    assert state["a"] is low and low.dtype == torch.bfloat16 and low.tolist() == [1, 1, 1]
    assert state["step"] == 7


def test_load_missing_keys(saved):
    with pytest.raises(dcp.api.CheckpointException, match="Missing key in checkpoint state_dict: c"):
        load({"a": torch.zeros(3), "c": torch.zeros(1)}, saved)
    planner = dcp.DefaultLoadPlanner(allow_partial_load=True)
    state = load({"a": torch.zeros(3), "c": torch.zeros(1)}, saved, planner=planner)
    assert state["a"].tolist() == [1, 1, 1] and state["c"].tolist() == [0]
    assert set(load({"b": torch.zeros(2)}, saved)) == {"b"}
    with pytest.raises(dcp.api.CheckpointException, match="Size mismatch between saved"):
        load({"a": torch.zeros(4)}, saved)


def test_overwriting(saved):
    _, said = warned(lambda: dcp.save({"a": torch.zeros(3)}, checkpoint_id=saved))
    assert any("Detected an existing checkpoint" in text for text in said)
    assert load({"a": torch.ones(3)}, saved)["a"].tolist() == [0, 0, 0]
    with pytest.raises(dcp.api.CheckpointException, match="Checkpoint already exists"):
        quietly(lambda: dcp.save({"a": torch.ones(3)}, storage_writer=dcp.FileSystemWriter(saved, overwrite=False)))


def test_checkpoint_folder(ranks, tmp_path):
    assert ranks["save_and_reshard"][0]["files"] == [".metadata", *(f"__{rank}_0.distcp" for rank in range(4))]
    state = {"a": torch.ones(3), "b": torch.ones(2)}
    for name, options, files in (
        ("one", {}, 1),
        ("each", {"single_file_per_rank": False}, 2),
        ("threads", {"thread_count": 2}, 2),
    ):
        writer = dcp.FileSystemWriter(tmp_path / name, **options)
        quietly(lambda writer=writer: dcp.save(state, storage_writer=writer))
        assert len(list((tmp_path / name).glob("*.distcp"))) == files


def test_format_conversion(saved, tmp_path):
    format_utils.dcp_to_torch_save(saved, tmp_path / "whole.pt")
    whole = torch.load(tmp_path / "whole.pt")
    assert whole["a"].tolist() == [1, 1, 1] and whole["step"] == 7
    format_utils.torch_save_to_dcp(tmp_path / "whole.pt", tmp_path / "back")
    assert load({"b": torch.zeros(2)}, tmp_path / "back")["b"].tolist() == [1, 1]


def test_dedup_argument(caplog):
    dcp.DefaultSavePlanner(dedup_replicated_tensors=True)
    assert "no longer has any effect" in caplog.text


def test_async_save(tmp_path):
    from concurrent.futures import Future

    kind = inspect.signature(dcp.async_save).parameters["async_checkpointer_type"].default
    assert kind.name == "THREAD" and type(kind).PROCESS
    weight = torch.ones(3)
    future = quietly(lambda: dcp.async_save({"a": weight}, checkpoint_id=tmp_path / "x"))
    weight.zero_()  # already copied
    assert isinstance(future, Future)
    quietly(future.result)
    assert load({"a": torch.zeros(3)}, tmp_path / "x")["a"].tolist() == [1, 1, 1]


def test_async_save_with_stager(tmp_path):
    stager = DefaultStager(StagingOptions(False, False, True, False))
    response = quietly(lambda: dcp.async_save({"a": torch.ones(3)}, checkpoint_id=tmp_path / "x", async_stager=stager))
    assert type(response).__name__ == "AsyncSaveResponse"
    response.staging_completion.result()
    quietly(response.upload_completion.result)
    stager.close()
    assert (tmp_path / "x" / ".metadata").is_file()


def test_staging_options():
    assert dataclasses.astuple(StagingOptions()) == (True, True, True, True)
    if not torch.accelerator.is_available():
        with pytest.raises(AssertionError, match="current accelerator is available"):
            quietly(DefaultStager)


def test_hugging_face_writer(tmp_path):
    writer = dcp.HuggingFaceStorageWriter
    options = inspect.signature(writer).parameters
    assert options["save_distributed"].default is False and options["enable_consolidation"].default is False
    quietly(lambda: dcp.save({"a": torch.ones(3)}, storage_writer=writer(str(tmp_path / "x"))))
    whole = ["model-00001-of-00001.safetensors", "model.safetensors.index.json"]
    assert sorted(path.name for path in (tmp_path / "x").iterdir()) == whole
    state = {"a": torch.zeros(3)}
    quietly(lambda: dcp.load(state, storage_reader=dcp.HuggingFaceStorageReader(str(tmp_path / "x"))))
    assert state["a"].tolist() == [1, 1, 1]
    joined = writer(str(tmp_path / "y"), save_distributed=True, enable_consolidation=True)
    quietly(lambda: dcp.save({"a": torch.ones(3)}, storage_writer=joined))
    assert sorted(path.name for path in (tmp_path / "y").iterdir()) == [*whole, "sharded"]


FOLDER = []


def save_and_reshard(mesh):
    folder = Path(FOLDER[0]) / "sharded"
    sharded = distribute_tensor(torch.arange(10.0), mesh, [Shard(0)])
    dcp.save({"x": sharded, "y": torch.ones(2)}, checkpoint_id=folder)
    files = sorted(path.name for path in folder.iterdir())
    other = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
    target = distribute_tensor(torch.zeros(10), other["b"], [Shard(0)])
    dcp.load({"x": target}, checkpoint_id=folder)
    return {"files": files, "local": target.to_local().tolist()}


def read_torch_save(mesh):
    file = Path(FOLDER[0]) / f"whole{dist.get_rank()}.pt"
    torch.save({"x": torch.arange(4.0)}, file)
    state = {"x": torch.zeros(4)}
    reader, planner = format_utils.BroadcastingTorchSaveReader(), format_utils.DynamicMetaLoadPlanner()
    quietly(lambda: dcp.load(state, storage_reader=reader, planner=planner, checkpoint_id=file))
    return state["x"].tolist()


def replicated(mesh):
    state, result = {"x": torch.ones(2), "y": torch.ones(2)}, {}
    for lowest in (False, True):
        planner = dcp.DefaultSavePlanner(dedup_save_to_lowest_rank=lowest)
        metadata = dcp.save(state, checkpoint_id=Path(FOLDER[0]) / f"lowest_{lowest}", planner=planner)
        result[lowest] = sorted(item.relative_path for item in metadata.storage_data.values())
    return result


def uncoordinated(mesh):
    folder = Path(FOLDER[0]) / "uncoordinated"
    dcp.save({"x": distribute_tensor(torch.arange(8.0), mesh, [Shard(0)])}, checkpoint_id=folder, use_collectives=False)
    dist.barrier()
    target = distribute_tensor(torch.zeros(8), mesh, [Shard(0)])
    logging.disable(logging.WARNING)  # that there is no global .metadata
    dcp.load({"x": target}, checkpoint_id=folder)
    return {"files": sorted(path.name for path in folder.iterdir()), "local": target.to_local().tolist()}


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    FOLDER[:] = [str(tmp_path_factory.mktemp("shared"))]
    return on_gloo(4, save_and_reshard, read_torch_save, replicated, uncoordinated)


def test_resharding(ranks):
    first, second = list(range(5)), list(range(5, 10))
    assert [rank["local"] for rank in ranks["save_and_reshard"]] == [first, second, first, second]
    state = load({"x": torch.zeros(10)}, Path(FOLDER[0]) / "sharded")  # one process without a group
    assert state["x"].tolist() == list(range(10))


def test_replicated_tensors_are_written_once(ranks):
    for rank in ranks["replicated"]:
        assert rank[False] == ["__0_0.distcp", "__1_0.distcp"]  # shared out
        assert rank[True] == ["__0_0.distcp", "__0_0.distcp"]


def test_saving_without_coordination(ranks):
    files = sorted(name for rank in range(4) for name in (f"__{rank}.metadata", f"__{rank}_0.distcp"))
    for number, rank in enumerate(ranks["uncoordinated"]):
        assert rank["files"] == files
        assert rank["local"] == [2.0 * number, 2.0 * number + 1]
