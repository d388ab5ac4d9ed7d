"""The MODEL argument: binary files of other kinds, pipes, devices and standard input."""

from __future__ import annotations

import io
import json
import os
import pickle
import sys
import threading
import zipfile
from pathlib import Path

import pytest

from shardguide.guidance.errors import UnusableInput
from shardguide.readers import files
from shardguide.readers.model import read_model


def refused(argument: str) -> str:
    with pytest.raises(UnusableInput) as caught:
        read_model(argument)
    sentence = str(caught.value)
    assert sentence.endswith(".") and sentence.isprintable() and len(sentence) < 800
    return sentence


class Trap:
    """Unpickled, it would leave a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, (str(self.path), "w")


@pytest.mark.parametrize("name", ["model.bin", "model.pt", "model.pth", "model.safetensors", "model", "config.json"])
def test_pickles_are_named_and_never_loaded(tmp_path: Path, name: str) -> None:
    trap = Trap(tmp_path / "tricked")
    for protocol in range(2, 6):
        (tmp_path / name).write_bytes(pickle.dumps(trap, protocol=protocol))
        assert "pickle" in refused(str(tmp_path / name))
    with zipfile.ZipFile(tmp_path / name, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(trap))
    assert "pickle" in refused(str(tmp_path / name))
    assert not trap.path.exists()


@pytest.mark.torch
def test_what_torch_saves_is_recognised(tmp_path: Path) -> None:
    import torch

    torch.save({"w": torch.zeros(2)}, tmp_path / "new")
    torch.save({"w": torch.zeros(2)}, tmp_path / "old", _use_new_zipfile_serialization=False)
    assert "torch.save" in refused(str(tmp_path / "new"))
    assert "pickle" in refused(str(tmp_path / "old"))
    (tmp_path / "pytorch_model.bin").write_bytes((tmp_path / "new").read_bytes())
    assert "pickled weights" in refused(str(tmp_path))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"GGUF\x03\0\0\0", "GGUF"),
        (b"\x08\x07\x12\x07pytorch\x1a\x052.4.0", "ONNX"),  # ir_version 7, producer_name "pytorch"
        (b"\x1f\x8b\x08\0", "gzip"),
        (b"\x89HDF\r\n\x1a\n", "HDF5"),
        (b"%PDF-1.7", "PDF"),
        (b"import torch\n", "not JSON"),
        (b"\xff" * 100, "UTF-8"),
    ],
)
def test_other_files(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "file").write_bytes(content)
    assert says in refused(str(tmp_path / "file"))


def test_what_would_never_end_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "pipe" in refused(str(tmp_path / "pipe"))
    assert "device" in refused("/dev/zero")
    assert "no such file" in refused(str(tmp_path / "nothing.json"))
    assert "folder" in refused(str(tmp_path))
    assert "no such file" in refused(f"{tmp_path}/{'x' * 300}.json")
    with pytest.raises(UnusableInput, match="zero byte"):
        files.read_bytes("a\x00b", 10)


def test_pipe_that_the_shell_opened(tmp_path: Path) -> None:
    """``shardguide plan <(jq … config.json)`` hands over /dev/fd/63."""
    reading, writing = os.pipe()
    content = json.dumps({"model_type": "llama", "padding": "x" * 200_000}).encode()

    def write() -> None:
        with os.fdopen(writing, "wb") as file:
            file.write(content)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        assert read_model(f"/dev/fd/{reading}").model_type == "llama"
    finally:
        os.close(reading)
        thread.join()


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stdin:
        buffer = io.BytesIO(b'{"model_type": "llama"}')

    monkeypatch.setattr(sys, "stdin", Stdin())
    evidence = read_model("-")
    assert evidence.where == "standard input" and evidence.model_type == "llama"
    assert "empty" in refused("-")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_no_permission(tmp_path: Path) -> None:
    (tmp_path / "config.json").touch(mode=0)
    assert "permissions" in refused(str(tmp_path))


def test_names_are_shown_harmlessly(tmp_path: Path) -> None:
    assert files.shown("a\x1b[31mb\n\udcff") == "a\\x1b[31mb\\n\\udcff"
    assert len(files.shown("x" * 5000)) < 200
