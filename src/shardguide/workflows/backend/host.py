"""What a backend is chosen for, in one immutable value."""

from __future__ import annotations

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import NamedTuple


class Host(NamedTuple):
    """The facts that the choice rests on; "" where nothing is known."""

    device: str
    inter: str  # name of a link of knowledge.hardware.links.INTER
    os: str
    ipoib: str  # "yes", "no" or ""
    offload: bool
    needs: tuple[str, ...]  # as they were asked for
    stated: bool  # whether the needs were said
    release: str  # minor, "2.13"; "" if unknown
    build: str  # of the PyTorch at hand: "cpu", "cuda 12.6", …; "" when none is
    path: str  # where it lies

    @property
    def minor(self) -> tuple[int, int]:
        """The release as numbers; an unknown one counts as the newest."""
        if not self.release:
            return (99, 0)
        major, _, minor = self.release.partition(".")
        return int(major), int(minor)

    @property
    def torch_device(self) -> str:
        """The device type as PyTorch names it: ROCm builds call it cuda."""
        return "cuda" if self.device == "rocm" else self.device


def contradictions(host: Host) -> None:
    """Raises UnusableInput for a device that the operating system cannot have."""
    if host.os == "macos" and host.device in ("cuda", "rocm", "xpu"):
        raise UnusableInput(
            f"--device {host.device} and --os macos exclude each other: PyTorch's builds for macOS run on cpu and mps."
        )
    if host.device == "mps" and host.os not in ("", "macos"):
        raise UnusableInput(f"--device mps and --os {host.os} exclude each other: mps is Apple's GPU, on macOS only.")
    if host.offload and host.device == "cpu":
        raise UnusableInput("--offload yes and --device cpu exclude each other: everything is on the CPU already.")
