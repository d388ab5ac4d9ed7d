"""Build data/api.json and data/releases.json from the unpacked wheels of every release.

    python scripts/build_api.py WHEELS [--check]

WHEELS is the folder that scripts/fetch_wheels.py filled. The same wheels give the same bytes. `--check` compares with
what is in the tree and writes nothing.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

KNOWLEDGE = Path(__file__).parent.parent / "src" / "shardguide" / "knowledge"
sys.path.insert(0, str(KNOWLEDGE.parent.parent))

from shardguide.installed.lookup import Tree  # noqa: E402
from shardguide.installed.resolve import Found, Resolver  # noqa: E402
from shardguide.installed.signature import deprecated, methods, signature  # noqa: E402
from shardguide.knowledge import releases  # noqa: E402
from shardguide.knowledge.lines import render  # noqa: E402

# Every patch on the package index, read in November 2026.
PATCHES = {
    "2.0": ("2.0.0", "2.0.1"),
    "2.1": ("2.1.0", "2.1.1", "2.1.2"),
    "2.2": ("2.2.0", "2.2.1", "2.2.2"),
    "2.3": ("2.3.0", "2.3.1"),
    "2.4": ("2.4.0", "2.4.1"),
    "2.5": ("2.5.0", "2.5.1"),
    "2.6": ("2.6.0",),
    "2.7": ("2.7.0", "2.7.1"),
    "2.8": ("2.8.0",),
    "2.9": ("2.9.0", "2.9.1"),
    "2.10": ("2.10.0",),
    "2.11": ("2.11.0",),
    "2.12": ("2.12.0", "2.12.1"),
    "2.13": ("2.13.0",),
    "2.14": ("2.14.0", "2.14.1"),
    "2.15": ("2.15.0",),
}

# Modules whose public names are all taken.
MODULES = (
    "torch.distributed.fsdp",
    "torch.distributed.fsdp.wrap",
    "torch.distributed.fsdp.sharded_grad_scaler",
    "torch.distributed._composable.fsdp",
    "torch.distributed._composable",
    "torch.distributed.device_mesh",
    "torch.distributed.tensor",
    "torch.distributed._tensor",
    "torch.distributed.tensor.parallel",
    "torch.distributed.checkpoint",
    "torch.distributed.checkpoint.state_dict",
    "torch.distributed.algorithms.join",
    "torch.distributed.algorithms._checkpoint.checkpoint_wrapper",
    "torch.distributed.elastic.multiprocessing.errors",
    "torch.distributed.optim",
    "torch.distributed.autograd",
    "torch.distributed.rpc",
    "torch.distributed",
    "torch.distributed.distributed_c10d",
    "torch.nn.parallel",
    "torch.nn.utils",
    "torch.nn.utils.clip_grad",
    "torch.optim",
    "torch.optim.lr_scheduler",
    "torch.amp",
    "torch.cuda.amp",
    "torch.accelerator",
    "torch.cuda",
    "torch.cuda.memory",
    "torch.xpu",
    "torch.compiler",
    "torch.utils.checkpoint",
    "torch.utils.data.distributed",
)
# Single names of modules that are otherwise none of our business.
NAMES = (
    *("torch.compile", "torch.save", "torch.load", "torch.manual_seed", "torch.set_default_device"),
    *("torch.nn.Module", "torch.nn.Parameter", "torch.nn.SyncBatchNorm", "torch.nn.functional.cross_entropy"),
    *("torch.nn.Linear", "torch.nn.LayerNorm", "torch.nn.ModuleList", "torch.nn.ModuleDict", "torch.nn.Sequential"),
)


def index(folder: Path) -> dict[str, dict[str, Any]]:
    """Every covered name of one release."""
    resolver = Resolver(Tree(str(folder)))
    found: dict[str, dict[str, Any]] = {}
    for module_name in MODULES:
        module = resolver.module(module_name)
        if module is None:
            continue
        found[module_name] = {}
        names = [
            *module.public(),
            *(name for name in module.imports if not name.startswith("_") and not module.exported),
        ]
        for source in module.stars:
            star = resolver.module(source)
            names += star.public() if star is not None else []
        for name in names:
            add(found, resolver, f"{module_name}.{name}", resolver.find(f"{module_name}.{name}"))
    for name in NAMES:
        add(found, resolver, name, resolver.find(name))
    return found


def add(found: dict[str, dict[str, Any]], resolver: Resolver, name: str, definition: Found | None) -> None:
    """One name with its methods."""
    if definition is None or not definition.module.startswith("torch") or name in found:
        return
    if name.startswith("torch.cuda.") and name.endswith("Storage"):
        return
    found[name] = entry(resolver, definition)
    if any(isinstance(node, ast.ClassDef) for node in definition.nodes):
        for method in methods(resolver, definition):
            member = resolver.find(f"{definition.module}.{definition.name}.{method}")
            if member is not None:
                found[f"{name}.{method}"] = entry(resolver, member)


def entry(resolver: Resolver, definition: Found) -> dict[str, Any]:
    """What the index keeps of a definition."""
    call = signature(resolver, definition)
    result: dict[str, Any] = {}
    if call is not None:
        result["call"] = [[name] if default is None else [name, default] for name, default in call]
    message = deprecated(definition)
    if message:
        result["deprecated"] = message
    return result


def build(wheels: Path) -> tuple[str, str]:
    """The texts of data/api.json and data/releases.json."""
    names: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    table: dict[str, Any] = {}
    for minor, patches in PATCHES.items():
        folder = wheels / patches[-1]
        if not (folder / "torch" / "version.py").is_file():
            raise SystemExit(f"WHEELS lacks {patches[-1]}: run scripts/fetch_wheels.py")
        api = index(folder)
        for name, value in api.items():
            names.setdefault(name, []).append((minor, value))
        table[minor] = {"patches": list(patches), "fsdp2": fsdp2(api)}
    merged: dict[str, Any] = {}
    for name in sorted(names):
        variants: list[tuple[dict[str, Any], list[str]]] = []
        for minor, value in names[name]:
            for known, minors in variants:
                if known == value:
                    minors.append(minor)
                    break
            else:
                variants.append((value, [minor]))
        merged[name] = [{"in": releases.ranges(minors, tuple(PATCHES)), **value} for value, minors in variants]
    return render(merged), render(table)


def fsdp2(api: dict[str, dict[str, Any]]) -> str:
    """The module from which a release exports FSDP2's fully_shard: the one whose fully_shard takes a mesh."""
    for module in ("torch.distributed.fsdp", "torch.distributed._composable.fsdp"):
        call = api.get(f"{module}.fully_shard", {}).get("call", [])
        if any(item[0] == "mesh" for item in call):
            return module
    return ""


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0].startswith("-"):
        print(__doc__)
        return 2
    texts = dict(zip(("api.json", "releases.json"), build(Path(arguments[0])), strict=True))
    if "--check" in arguments:
        stale = [
            name for name, text in texts.items() if (KNOWLEDGE / "data" / name).read_text(encoding="utf-8") != text
        ]
        print(
            f"differ: {stale}; run scripts/build_api.py"
            if stale
            else "data/api.json and data/releases.json are up to date"
        )
        return 1 if stale else 0
    for name, text in texts.items():
        (KNOWLEDGE / "data" / name).write_text(text, encoding="utf-8")
        print(f"{name}: {text.count(chr(10)) - 2} entries, {len(text)} bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
