"""The notebook between calls: what is superseded is forgotten, and a refusal names the remembered answer behind it."""

from __future__ import annotations

from .conftest import FULL, Shardguide

REST = [word for word in FULL if word not in ("--gpu", "H100 SXM 80GB", "--intra", "nvlink")]


def names(shardguide: Shardguide) -> set[str]:
    return {one["name"] for one in shardguide("answers", "show", "--json").json["answers"]}


def test_a_stated_memory_drops_the_remembered_gpu_for_good(shardguide: Shardguide) -> None:
    assert shardguide(*REST, "--gpu", "T4", "--intra", "pcie", "--json").status == 0
    assert shardguide("plan", "--gpu-memory", "24GB", "--json").status == 3  # the link was the T4's
    assert "gpu" not in names(shardguide) and "gpu_memory" in names(shardguide)
    again = shardguide("plan", "--intra", "pcie", "--json")
    assert again.status == 0 and again.json["answers"]["gpu_memory"]["from"] == "notebook"


def test_another_gpu_takes_its_own_link(shardguide: Shardguide) -> None:
    assert shardguide(*REST, "--gpu", "H100 SXM", "--intra", "nvlink", "--json").status == 0
    other = shardguide("plan", "--gpu", "MI300X", "--json")
    assert other.status == 0 and other.json["answers"]["intra"]["value"] == "xgmi"
    assert "intra" not in names(shardguide)


def test_another_model_drops_the_remembered_tensor_parallelism(shardguide: Shardguide) -> None:
    assert shardguide(*FULL, "--tp", "4", "--json").status == 0
    assert shardguide("plan", "7b", "--json").json["answers"].get("tp") is None
    assert "tp" not in names(shardguide)


def test_a_refusal_names_the_remembered_answer_that_causes_it(shardguide: Shardguide) -> None:
    """PyTorch 2.1 has FSDP1 only, whose flat parameters with tensor parallelism are not worked out."""
    assert shardguide(*FULL, "--tp", "4", "--json").status == 0
    ran = shardguide("plan", "--torch", "2.1", "--json")
    assert ran.status == 2 and ran.out == ""
    assert "tp 4 was remembered" in ran.err and "answers forget tp" in ran.err
    assert "remembered" not in shardguide("plan", "--torch", "2.1", "--tp", "4", "--json").err


def test_a_remembered_model_that_is_gone_is_named_as_remembered(shardguide: Shardguide) -> None:
    config = shardguide.folder / "config.json"
    config.write_text('{"model_type": "gpt2"}')
    shardguide("plan", "config.json", "--torch", "2.13", "--json")
    config.unlink()
    ran = shardguide("plan", "--json")
    assert ran.status == 2 and "answers forget model" in ran.err


def test_the_same_request_is_known_again(shardguide: Shardguide) -> None:
    asked = ("backend", "--device", "cuda", "--interconnect", "infiniband", "--os", "linux", "--torch")
    said = "Asked here before"
    assert said not in shardguide(*asked, "2.13").out
    assert said in shardguide(*asked, "2.13").out
    assert said not in shardguide(*asked, "2.8").out  # another release: another answer
    first, second = (shardguide(*asked, "2.13", "--json").out for _ in range(2))
    assert first == second and said not in first
