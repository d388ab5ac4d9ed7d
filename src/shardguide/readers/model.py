"""The MODEL argument: a configuration, a checkpoint's headers, a shape manifest or a stated size."""

from __future__ import annotations

import os

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import TYPE_CHECKING

from .files import (
    MIB,
    STDIN,
    decode,
    foreign,
    inside,
    is_folder,
    lexists,
    listing,
    open_binary,
    parse_json,
    read_bytes,
    shown,
    split,
)
from .hf_config import LIMIT as CONFIG_LIMIT
from .hf_config import HfConfig, read_config

if TYPE_CHECKING:
    from .shapes import Shapes
    from .stated import StatedSize

    ModelEvidence = HfConfig | Shapes | StatedSize

ACCEPTED = (
    "a config.json or its folder, safetensors files or their index, a shape manifest (JSON), or a size such as 7b"
)
JSON_LIMIT = 128 * MIB  # a manifest's or an index's; a config.json is held to CONFIG_LIMIT
INDEX = "model.safetensors.index.json"
# What people have beside the weights they train from; never opened, since unpickling runs code.
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".distcp")
UNREAD = (*PICKLES, ".gguf", ".ggml", ".onnx", ".h5", ".msgpack", ".npz", ".npy", ".tar", ".zip", ".gz")


def read_model(text: str, prefer_checkpoint: bool = False) -> ModelEvidence:
    """What the MODEL argument ``text`` says about a model.

    A path wins over a size of the same name. In a folder the config.json wins over the weights unless
    ``prefer_checkpoint`` (``--implementation checkpoint``); what lay there is in the notes. ``-`` reads JSON from
    standard input. Raises UnusableInput.
    """
    if text == STDIN:
        return _read_json(read_bytes(STDIN, JSON_LIMIT), STDIN)
    if not text.strip():
        raise UnusableInput(f"No model was given; hand over {ACCEPTED}.")
    if is_folder(text):
        return _read_folder(text, prefer_checkpoint)
    if lexists(text):
        return _read_file(text)
    return _read_words(text)


def _read_words(text: str) -> ModelEvidence:
    from .stated import looks_stated, read_stated

    if looks_stated(text) and not text.lower().endswith((".json", ".safetensors", *UNREAD)):
        return read_stated(text)
    if text.count("/") == 1 and not text.startswith((".", "/", "~")) and "." not in text.rpartition("/")[2][-6:]:
        raise UnusableInput(
            f"{shown(text)}: there is no such file; if it is a model's name on a hub, download its config.json and "
            "hand that over, for nothing is fetched."
        )
    raise UnusableInput(f"{shown(text)}: there is no such file, and it is not a size; hand over {ACCEPTED}.")


def _read_folder(path: str, prefer_checkpoint: bool) -> ModelEvidence:
    names = listing(path)
    config = "config.json" in names
    weights = [name for name in names if name.endswith(".safetensors")]
    if config and not prefer_checkpoint:
        evidence = read_config(
            decode(read_bytes(inside(path, "config.json"), CONFIG_LIMIT), f"{shown(path)}/config.json"),
            f"{shown(path)}/config.json",
        )
        if weights or INDEX in names:
            files = "a safetensors file" if len(weights) == 1 else f"{len(weights)} safetensors files"
            found = files if weights else "an index of safetensors files"
            note = f"{shown(path)} also holds {found}; the shapes are worked out from config.json alone."
            evidence = evidence._replace(notes=(*evidence.notes, note))
        return evidence
    if weights or INDEX in names:
        return _read_checkpoint(path, names, weights)
    pickled = [name for name in names if name.endswith(PICKLES)]
    if pickled:
        raise UnusableInput(
            f"{shown(path)}: it holds pickled weights ({shown(pickled[0])}), which are never opened, and no "
            "config.json; hand over a config.json or a shape manifest."
        )
    wanted = "safetensors files" if prefer_checkpoint else "neither config.json nor safetensors files"
    raise UnusableInput(f"{shown(path)}: this folder holds {'no ' if prefer_checkpoint else ''}{wanted}.")


def _read_checkpoint(path: str, names: list[str], weights: list[str]) -> Shapes:
    from .safetensors import read_index, read_safetensors, siblings

    if INDEX in names:
        return read_index(inside(path, INDEX))
    if "model.safetensors" in weights:
        return read_safetensors([inside(path, "model.safetensors")])
    first = inside(path, weights[0])
    files = siblings(first)
    if len(files) != len(weights):
        raise UnusableInput(
            f"{shown(path)}: {len(weights)} safetensors files and no {INDEX}, so it is not plain which belong "
            f"together; name one file, for example {shown(first)}."
        )
    return read_safetensors(files, shown(path))


def _read_file(path: str) -> ModelEvidence:
    where = shown(path)
    descriptor, size = open_binary(path)
    with os.fdopen(descriptor, "rb") as file:
        head = file.read(64) if size >= 0 else b""
        lower = path.lower()
        what = foreign(head)
        if not what and lower.endswith(UNREAD):
            what = "a pickle, which is never opened" if lower.endswith(PICKLES) else "a file of a kind that is not read"
        if what:
            raise UnusableInput(f"{where}: this is {what}; hand over {ACCEPTED}.")
        if lower.endswith(".safetensors") or (size >= 0 and head[:1] != b"{" and _is_safetensors(head, size)):
            from .safetensors import read_safetensors, siblings

            return read_safetensors(siblings(path))
        # The common case, kept to one opening: a config.json.
        limit = CONFIG_LIMIT if split(path)[1] == "config.json" else JSON_LIMIT
        data = head + file.read(limit + 1 - len(head))
    if len(data) > limit:
        raise UnusableInput(f"{where}: larger than {limit >> 20} MiB, which is the most that is read of such a file.")
    return _read_json(data, path)


def _is_safetensors(head: bytes, size: int) -> bool:
    from .safetensors import is_safetensors

    return is_safetensors(head, size)


def _read_json(data: bytes, path: str) -> ModelEvidence:
    """A JSON file of any of the three kinds, told apart by what only one of them has."""
    where = shown(path)
    text = decode(data, where)
    start = text[:4096].lstrip()[:1]
    if start and start not in "{[":
        if len(text) < 4096 and (start in '"-' or start.isdigit() or text.strip() in ("null", "true", "false")):
            from .hf_config import kind_of

            value = parse_json(text, where, values=1)
            raise UnusableInput(f"{where}: it holds {kind_of(value)} and no JSON object; hand over {ACCEPTED}.")
        raise UnusableInput(f"{where}: not JSON; hand over {ACCEPTED}.")
    if '"weight_map"' in text:
        from .safetensors import read_index

        if path == STDIN:
            raise UnusableInput("standard input: an index names files beside it; hand over its path instead.")
        return read_index(path, text)
    if start == "[" or '"parameters"' in text or '"shardguide-manifest' in text:
        from . import manifest

        value = parse_json(text, where, values=manifest.VALUES)
        if not (isinstance(value, dict) and ("model_type" in value or "architectures" in value)):
            return manifest.from_object(value, where)
    if len(data) > CONFIG_LIMIT:
        raise UnusableInput(f"{where}: larger than {CONFIG_LIMIT >> 20} MiB, more than any config.json.")
    return read_config(text, where)
