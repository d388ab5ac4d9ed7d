"""What a process group is set up for, in one immutable value."""

from __future__ import annotations

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import NamedTuple


class Case(NamedTuple):
    """The facts that code and advice rest on; "" or None where nothing is known."""

    method: str  # as asked: "env", "tcp", "file"
    backend: str  # as init_process_group gets it
    launcher: str  # "torchrun", "slurm", "mpirun", "spawn", "hand"
    named: bool  # whether the launcher was said
    world_size: int | None
    rank: int | None
    address: str  # host:port
    path: str
    os: str
    release: str  # minor, "2.13"; "" if unknown

    @property
    def minor(self) -> tuple[int, int]:
        """The release as numbers; an unknown one counts as the newest."""
        if not self.release:
            return (99, 0)
        major, _, minor = self.release.partition(".")
        return int(major), int(minor)

    @property
    def used(self) -> str:
        """The method of the code: env:// where tcp:// finds no store, and under MPI, which uses none."""
        return "env" if self.no_store or self.main == "mpi" else self.method

    @property
    def no_store(self) -> bool:
        """tcp:// under torchrun below 2.14: its agent serves a store of its own, and nobody serves another."""
        return (
            self.method == "tcp"
            and self.launcher == "torchrun"
            and self.main != "mpi"
            and no_second_store(self.release)
        )

    @property
    def main(self) -> str:
        """The backend of the tensors that are trained on."""
        if ":" not in self.backend:
            return self.backend
        pairs = dict(part.split(":") for part in self.backend.split(","))
        return next((pairs[device] for device in ("cuda", "xpu") if device in pairs), next(iter(pairs.values())))

    @property
    def device(self) -> str:
        """The accelerator that each process gets one of; "" on the CPU, and where the backend does not say it."""
        return {"nccl": "cuda", "xccl": "xpu"}.get(self.main, "")

    @property
    def device_id(self) -> bool:
        """Whether the call passes device_id: it came with 2.3 for CUDA devices, and takes every accelerator since 2.7."""
        return (self.device == "cuda" and self.minor >= (2, 3)) or (self.device != "" and self.minor >= (2, 7))

    @property
    def complete(self) -> bool:
        """Whether the URL of the method is known."""
        return self.used == "env" or self.main == "mpi" or bool(self.address if self.used == "tcp" else self.path)

    @property
    def minutes(self) -> int:
        """The default timeout: 10 minutes for NCCL alone since 2.2, 30 for everything else, several backends in one group included."""
        return 10 if self.backend == "nccl" and self.minor >= (2, 2) else 30


def no_second_store(release: str) -> bool:
    """Whether ranks under torchrun only connect: 2.14 lets rank 0 serve an address that is not the agent's. An unknown release counts."""
    return not release or tuple(int(part) for part in release.split(".")) < (2, 14)


def url_of_file(path: str, system: str) -> str:
    """The file:// URL of a path, in the form that PyTorch reads on that system.

    Raises UnusableInput for a path that is not absolute: of file://folder/x only /x would count.
    """
    if system == "windows":
        slashes = path.replace("\\", "/")
        if slashes.startswith("//"):  # \\machine\share\file
            return f"file://////{slashes.lstrip('/')}"
        drive = slashes.lstrip("/")
        if len(drive) > 2 and drive[0].isalpha() and drive[1:3] == ":/":
            return f"file:///{drive}"
        raise UnusableInput(
            r"--path on Windows must be a local file such as d:\tmp\x or a shared one such as \\machine\share\x."
        )
    if not path.startswith("/") or path.startswith("//"):
        raise UnusableInput(
            f"--path {path[:60]} must be absolute, such as /shared/x: of file://folder/x PyTorch uses only /x."
        )
    return f"file://{path}"


def contradictions(case: Case) -> None:
    """Raises UnusableInput for options that cannot be meant together."""
    if case.rank is not None and case.world_size is not None and case.rank >= case.world_size:
        raise UnusableInput(
            f"--rank {case.rank} and --world-size {case.world_size} exclude each other: ranks go from 0 to {case.world_size - 1}."
        )
    if case.rank is not None and case.named and case.launcher != "hand":
        raise UnusableInput(f"--rank is for --launcher hand: {case.launcher} gives each process its own.")
    if case.path and case.method not in ("", "file"):
        raise UnusableInput(f"--path belongs to --method file, not to {case.method}.")
    if case.address and case.method == "file":
        raise UnusableInput("--address belongs to --method tcp or env, not to file.")
    if case.os == "windows" and "nccl" in case.backend:
        raise UnusableInput(
            "--backend nccl and --os windows exclude each other: Windows builds have every backend but NCCL."
        )
    if case.os == "macos" and case.device:
        raise UnusableInput(
            f"--backend {case.main} and --os macos exclude each other: PyTorch's builds for macOS have no {case.device}."
        )
    if "xccl" in case.backend and case.minor < (2, 6):
        raise UnusableInput(f"--backend xccl: PyTorch {case.release} does not have it; it came with 2.6.")
    if case.path:
        url_of_file(case.path, case.os)
