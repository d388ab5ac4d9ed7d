"""Fetch the Python sources of every PyTorch release from its own macOS wheel (the smallest one), as text.

    python scripts/fetch_wheels.py FOLDER [RELEASE ...]

For the last patch of each minor release from 2.0 on, FOLDER/X.Y.Z/torch/... receives the `.py` and `.pyi` files that
claims and the API index are read from. Nothing is installed or imported, and the wheels are deleted after unpacking:
about 1.3 GB pass through, 150 MB stay.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

# The last patch of every minor release, read from the package index in November 2026.
RELEASES = (
    *("2.0.1", "2.1.2", "2.2.2", "2.3.1", "2.4.1", "2.5.1", "2.6.0", "2.7.1"),
    *("2.8.0", "2.9.1", "2.10.0", "2.11.0", "2.12.1", "2.13.0", "2.14.1", "2.15.0"),
)

FOLDERS = (
    "torch/distributed/",
    "torch/nn/parallel/",
    "torch/nn/utils/",
    "torch/optim/",
    "torch/amp/",
    "torch/cuda/amp/",
    "torch/accelerator/",
    "torch/compiler/",
)
FILES = frozenset(
    {
        "torch/version.py",
        "torch/utils/checkpoint.py",
        "torch/utils/collect_env.py",
        "torch/utils/data/__init__.py",
        "torch/utils/data/dataloader.py",
        "torch/utils/data/distributed.py",
        "torch/multiprocessing/__init__.py",
        "torch/multiprocessing/spawn.py",
        "torch/testing/_internal/distributed/fake_pg.py",
        "torch/cuda/__init__.py",
        "torch/cuda/graphs.py",
        "torch/cuda/memory.py",
        "torch/cuda/random.py",
        "torch/cuda/streams.py",
        "torch/xpu/__init__.py",
        "torch/xpu/memory.py",
        "torch/xpu/random.py",
        "torch/xpu/streams.py",
        "torch/__init__.py",
        "torch/random.py",
        "torch/nn/__init__.py",
        "torch/nn/functional.py",
        "torch/nn/parameter.py",
        "torch/nn/modules/__init__.py",
        "torch/nn/modules/container.py",
        "torch/autograd/graph.py",
        "torch/nn/modules/module.py",
        "torch/nn/modules/batchnorm.py",
        "torch/nn/modules/normalization.py",
        "torch/nn/modules/linear.py",
        "torch/serialization.py",
        "torch/_dynamo/config.py",
    }
)


def wanted(name: str) -> bool:
    """Whether a file of the wheel is kept."""
    if not name.endswith((".py", ".pyi")):
        return False
    stubs = name.startswith("torch/_C/") and name.count("/") == 2
    return name in FILES or name.startswith(FOLDERS) or stubs


def fetch(release: str, cache: Path) -> int:
    """Download one wheel into `cache` and unpack what is wanted; returns the number of files kept."""
    target = cache / release
    if (target / "torch" / "version.py").is_file():
        return sum(1 for _ in target.rglob("*.py*"))
    minor = int(release.split(".")[1])
    platform = "macosx_14_0_arm64" if minor >= 12 else "macosx_11_0_arm64"
    constraint = (
        cache / "no-constraints.txt"
    )  # an ambient constraints file may forbid the very release that is asked for
    constraint.write_text("")
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--only-binary=:all:",
        "--quiet",
        "--dest",
        str(cache),
    ]
    command += ["--platform", platform, "--python-version", "3.11", "--implementation", "cp", "--abi", "cp311"]
    command += [f"torch=={release}"]
    subprocess.run(command, check=True, env={**os.environ, "PIP_CONSTRAINT": str(constraint)})
    (wheel,) = cache.glob(f"torch-{release}-*.whl")
    kept = 0
    with zipfile.ZipFile(wheel) as archive:
        for name in sorted(archive.namelist()):
            if wanted(name) and ".." not in name.split("/"):
                out = target / name
                out.parent.mkdir(parents=True, exist_ok=True)
                out.write_bytes(archive.read(name))
                kept += 1
    wheel.unlink()
    return kept


def main(arguments: list[str]) -> int:
    if not arguments:
        print(__doc__)
        return 2
    cache = Path(arguments[0])
    cache.mkdir(parents=True, exist_ok=True)
    for release in arguments[1:] or RELEASES:
        print(release, fetch(release, cache), "files", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
