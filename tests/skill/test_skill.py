"""The skill: valid by the specification's own validator, complete, the same as the knowledge, installed only after a yes."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from shardguide.frontends.skill import content, places
from shardguide.knowledge import claims_store, diagnosis_store, pattern_store, rule_store, topic_store

from ..frontends.conftest import Shardguide, shardguide

__all__ = ["shardguide"]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def files() -> dict[str, str]:
    return content.files()


@pytest.fixture
def written(tmp_path: Path, files: dict[str, str]) -> Path:
    folder = tmp_path / content.NAME
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_the_validator_of_the_specification_accepts_it(written: Path) -> None:
    validator = pytest.importorskip("skills_ref.validator", reason="skills-ref is the specification's validator")
    assert validator.validate(written) == []


def test_the_validator_would_refuse_another(written: Path) -> None:
    validator = pytest.importorskip("skills_ref.validator", reason="skills-ref is the specification's validator")
    skill = written / "SKILL.md"
    skill.write_text(skill.read_text().replace("license: MIT", "license: MIT\nversion: 1"))
    assert validator.validate(written)


# What people say, and what has little to do with it; an agent sees only the description.
ABOUT = [
    "shard my 70B model over 16 H100s", "the job hangs after the first epoch on 4 nodes", "NCCL watchdog timeout on rank 3",
    "torchrun cannot find the master", "sbatch script for multi-node PyTorch training", "bf16 or fp16 for fully_shard?",
    "clip_grad_norm_ with DTensor parameters", "no_sync and gradient accumulation in DDP", "save a sharded checkpoint and load it on fewer GPUs",
    "ranks run out of batches at different steps", "should I offload to the CPU", "convert FullyShardedDataParallel to FSDP2",
    "init_process_group with tcp://", "gloo or nccl", "2-D device mesh for HSDP", "tensor parallel together with FSDP",
    "ZeroRedundancyOptimizer with DDP", "activation checkpointing runs out of memory", "review my multi-GPU training script",
    "read this Flight Recorder dump",
]  # fmt: skip
WORDS = {
    0: "shards a model", 1: "hang", 2: "timeout", 3: "torchrun", 4: "Slurm", 5: "mixed precision", 6: "clips", 7: "accumulates gradients",
    8: "reshards checkpoints", 9: "uneven inputs", 10: "CPU offload", 11: "FSDP1 to FSDP2", 12: "process groups", 13: "Gloo",
    14: "device meshes", 15: "tensor parallel", 16: "ZeroRedundancyOptimizer", 17: "checkpoints activations", 18: "reviews",
    19: "Flight Recorder",
}  # fmt: skip
NOT_ABOUT = {
    "out of memory on my one GPU": "one GPU", "serve a model with vLLM on 4 GPUs": "inference servers", "pmap in JAX": "JAX",
    "MirroredStrategy": "TensorFlow",
}  # fmt: skip


def test_the_description_covers_what_people_say() -> None:
    assert len(ABOUT) == 20 and set(WORDS) == set(range(20))
    assert all(word in content.DESCRIPTION for word in WORDS.values())
    apart = content.DESCRIPTION.partition("Not for")[2]
    assert all(word in apart for word in NOT_ABOUT.values())


def test_it_is_short_and_leads_to_every_reference(files: dict[str, str]) -> None:
    skill = files["SKILL.md"]
    assert (
        skill.count("\n") < 500 and len(skill) < 20_000
    )  # the specification recommends under 500 lines and 5,000 tokens
    assert 1 <= len(content.DESCRIPTION) <= 1024 and content.CREDITS in skill
    linked = set(re.findall(r"\((references/[a-z0-9-]+\.md)\)", skill))
    errors = {name for name in files if name.startswith("references/errors-")}
    assert linked == set(files) - errors - {"SKILL.md"}
    assert all(name.removeprefix("references/errors-").removesuffix(".md") in skill for name in errors)


def test_every_reference_says_what_it_holds_for(files: dict[str, str]) -> None:
    for name in topic_store.ids():
        text = files[f"references/{name}.md"]
        assert text.startswith("# ") and f"For PyTorch {content.RELEASE}." in text
        assert "shardguide " not in text.replace("shardguide skill", "").replace("the shardguide", ""), name
        assert "site-packages" not in text


def test_all_of_the_knowledge_is_in_it(files: dict[str, str]) -> None:
    whole = "\n".join(files.values())
    plain = re.sub(r"\\(.)", r"\1", whole)
    for code in rule_store.codes():
        assert f"{code} " in files[f"references/rules-{code[3]}xx.md"]
    missing = [name for name in diagnosis_store.ids() if diagnosis_store.get(name).title not in plain]
    assert not missing
    for name in pattern_store.ids():
        snippet = pattern_store.snippet(name, content.RELEASE)
        if snippet is not None and any(name in pattern_store.of_topic(topic) for topic in topic_store.ids()):
            assert snippet.code.strip() in whole, name
    texts = [claims_store.get(name).text for name in claims_store.ids()]
    assert sum(text in plain for text in texts) > 0.75 * len(texts)  # the others speak of other releases


def test_no_file_is_too_long_to_be_opened_as_a_whole(files: dict[str, str]) -> None:
    assert max(len(text.encode()) for text in files.values()) <= 25_000
    for name, text in files.items():
        found = re.fullmatch(r"(references/.+)-code(-\d)?\.md", name)
        if found is not None:
            whole = files[f"{found[1]}.md"]
            assert name in whole and "```" not in whole and "```" in text


def test_calls_stand_as_they_are_typed(files: dict[str, str]) -> None:
    assert "Join([model])" in files["references/join.md"]
    for name, text in files.items():
        prose = re.sub(r"^(`{3,}).*?^\1$", "", text, flags=re.DOTALL | re.MULTILINE)
        assert not re.search(r"\\[\[\]>`]", prose), name
        assert text.count("\n```") % 2 == 0


def test_every_link_leads_to_a_file(files: dict[str, str]) -> None:
    for name, text in files.items():
        for link in re.findall(r"references/[A-Za-z0-9_-]+\.md", text):
            assert link in files, (name, link)
        assert not re.search(r"/(?:home|root|tmp|work|Users)/(?!FOLDER)[a-z]", text.replace("/tmp/", "")), name


def test_another_release(files: dict[str, str]) -> None:
    older = content.files("2.5")
    assert "For PyTorch 2.5." in older["references/wrapping.md"]
    assert "torch.distributed._composable.fsdp" in older["references/wrapping.md"]
    assert older["references/wrapping.md"] != files["references/wrapping.md"]


def test_the_package_in_the_repository_does_not_differ() -> None:
    ran = subprocess.run(
        [sys.executable, "scripts/build_skill.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr


def test_the_plugin_files() -> None:
    plugin = json.loads((ROOT / ".claude-plugin" / "plugin.json").read_text())
    market = json.loads((ROOT / ".claude-plugin" / "marketplace.json").read_text())
    server = json.loads((ROOT / ".mcp.json").read_text())
    assert plugin["name"] == market["plugins"][0]["name"] == "shardguide" == next(iter(server["mcpServers"]))
    assert plugin["version"] == market["plugins"][0]["version"]


# Where each agent's own documentation says that it looks (a project, the home folder):
# https://code.claude.com/docs/en/skills, https://developers.openai.com/codex/skills, https://cursor.com/docs/context/skills,
# https://geminicli.com/docs/cli/using-agent-skills, https://docs.github.com/en/copilot/concepts/agents/about-agent-skills,
# https://docs.windsurf.com/windsurf/cascade/skills
READ = {
    "claude-code": ({".claude"}, {".claude"}),
    "codex": ({".agents"}, {".agents"}),
    "cursor": ({".agents", ".cursor"}, {".agents", ".cursor"}),
    "gemini": ({".agents", ".gemini"}, {".agents", ".gemini"}),
    "copilot": ({".agents", ".github", ".claude"}, {".copilot", ".agents", ".claude"}),
    "windsurf": ({".windsurf"}, {".codeium/windsurf"}),
}


@pytest.mark.parametrize("agent", places.AGENTS)
def test_each_agent_looks_where_it_is_put(agent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for user, root in ((False, tmp_path), (True, tmp_path / "home")):
        folder = Path(places.folder_of(agent, user))
        assert folder.name == content.NAME and folder.parent.name == "skills"
        assert str(folder.parent.parent.relative_to(root)) in READ[agent][user]


@pytest.mark.parametrize(("agent", "user"), [("claude-code", []), ("codex", ["--user"])])
def test_install_and_uninstall(shardguide: Shardguide, agent: str, user: list[str]) -> None:
    refused = shardguide("skill", "install", "--agent", agent, *user)
    assert refused.status == 2 and "--yes" in refused.err and "new  SKILL.md" in refused.err
    ran = shardguide("skill", "install", "--agent", agent, *user, "--yes")
    assert ran.status == 0, ran.err
    folder = Path(ran.out.removeprefix("Installed in ").strip().removesuffix("."))
    assert folder.name == "shardguide" and {str(path.relative_to(folder)) for path in folder.rglob("*.md")} == set(
        content.files()
    )
    assert str(folder).startswith(str(shardguide.folder))
    assert "as it is" in shardguide("skill", "install", "--agent", agent, *user, "--yes").out
    (folder / "SKILL.md").write_text("changed\n")
    (folder / "references" / "gone.md").write_text("of an older version\n")
    again = shardguide("skill", "install", "--agent", agent, *user, "--yes")
    assert "changed  SKILL.md" in again.err and "removed  references/gone.md" in again.err
    (folder / "notes.txt").write_text("mine\n")
    gone = shardguide("skill", "uninstall", "--agent", agent, *user, "--yes")
    assert gone.status == 0
    left = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert left == {"notes.txt", "SKILL.md.bak", "references/gone.md.bak"}  # what was the user's own
    assert shardguide("skill", "uninstall", "--agent", agent, *user, "--yes").status == 2


def test_what_was_edited_is_shown_and_kept(shardguide: Shardguide) -> None:
    """As everything that is written over: a diff first, the old text beside it. What was only installed is replaced without."""
    install = ("skill", "install", "--agent", "claude-code", "--yes")
    assert shardguide(*install).status == 0
    folder = shardguide.folder / ".claude" / "skills" / "shardguide"
    skill, topic = folder / "SKILL.md", folder / "references" / "join.md"
    fresh = skill.read_text()
    skill.write_text(f"{fresh}Our own rule.\n")
    older = (folder / ".shardguide").read_text()
    topic.write_text("of an earlier version\n")
    digest = hashlib.sha256(topic.read_bytes()).hexdigest()
    (folder / ".shardguide").write_text(
        re.sub(r"[0-9a-f]{64} references/join.md", f"{digest} references/join.md", older)
    )
    ran = shardguide(*install)
    assert ran.status == 0 and "-Our own rule." in ran.err and "of an earlier version" not in ran.err
    assert skill.read_text() == fresh and (folder / "SKILL.md.bak").read_text() == f"{fresh}Our own rule.\n"
    assert "Joinable" in topic.read_text() and not list((folder / "references").glob("*.bak"))
    assert (folder / ".shardguide").read_text() == older
    skill.write_text("mine\n")
    assert shardguide("skill", "uninstall", "--agent", "claude-code", "--yes").status == 0
    assert sorted(path.name for path in folder.iterdir()) == ["SKILL.md.bak", "SKILL.md.bak.1"]
    assert (folder / "SKILL.md.bak.1").read_text() == "mine\n"


def test_a_folder_of_somebody_else_is_left_alone(shardguide: Shardguide) -> None:
    other = shardguide.folder / "skills" / "shardguide" / "references"
    other.mkdir(parents=True)
    (other / "own.md").write_text("mine\n")
    ran = shardguide("skill", "install", "--to", "skills", "--yes")
    assert ran.status == 2 and "something else" in ran.err and (other / "own.md").read_text() == "mine\n"


def test_show(shardguide: Shardguide) -> None:
    assert shardguide("skill", "show").out == content.files()["SKILL.md"]
    assert shardguide("skill", "show", "references/join.md").out == content.files()["references/join.md"]
    assert shardguide("skill", "show", "../x").status == 2
    assert json.loads(shardguide("skill", "list", "--json").out)["files"].keys() == content.files().keys()
    assert shardguide("skill", "install").status == 2
    assert shardguide("skill", "install", "--agent", "nobody", "--yes").status == 2
