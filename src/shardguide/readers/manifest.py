"""Shape manifests: what a model is made of, written where the model is built.

Format ``shardguide-manifest/1``, one JSON object::

    {"format": "shardguide-manifest/1",
     "architecture": "MyModel",                                            (optional)
     "parameters": [{"name": "layers.0.weight", "shape": [4096, 1024],     in elements, unsharded
                     "dtype": "float32",                                   (optional)
                     "requires_grad": true,                                (optional, true)
                     "aliases": ["head.weight"],                           (optional: the other names of a tied tensor)
                     "ignored": false}, ...],                              (optional: in fully_shard's ignored_params)
     "buffers": [{"name": ..., "shape": ..., "dtype": ..., "persistent": true}, ...],          (optional)
     "units": [{"modules": ["layers.0"], "module_class": "Block", "role": "block"}, ...]}      (optional)

A bare list of the parameter objects is accepted too. Keys that are not listed are left alone.
"""

from __future__ import annotations

from shardguide.guidance.dtypes import dtype_name
from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any
from shardguide.guidance.model import Buffer, Parameter, Unit

from .files import parse_json, quoted
from .shapes import MAX_TENSORS, Shapes, check_name, check_shape, check_total, units_from_names

FORMAT = "shardguide-manifest/1"
VALUES = 10 * MAX_TENSORS
ROLES = ("block", "embedding", "head")


def _entries(value: Any, what: str, where: str) -> list[dict[str, Any]]:
    if not isinstance(value, list) or any(not isinstance(entry, dict) for entry in value):
        raise UnusableInput(f"{where}: {what} must be a list of objects.")
    if len(value) > MAX_TENSORS:
        raise UnusableInput(f"{where}: {len(value)} {what}, more than the {MAX_TENSORS} that are read.")
    return value


def _flag(entry: dict[str, Any], key: str, default: bool, where: str) -> bool:
    value = entry.get(key, default)
    if not isinstance(value, bool):
        raise UnusableInput(f"{where}: {key} of {quoted(entry.get('name'))} must be true or false.")
    return value


def _dtype(entry: dict[str, Any], where: str) -> str:
    value = entry.get("dtype") or ""
    if not isinstance(value, str):
        raise UnusableInput(f"{where}: the dtype of {quoted(entry.get('name'))} must be a string such as float32.")
    try:
        return dtype_name(value) if value else ""
    except UnusableInput as error:
        raise UnusableInput(f"{where}: {quoted(entry.get('name'))}: {error}") from None


def _names(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise UnusableInput(f"{where}: aliases and modules must be lists of names.")
    return tuple(check_name(name, where) for name in value)


def _parameter(entry: dict[str, Any], where: str) -> Parameter:
    name = check_name(entry.get("name"), where)
    return Parameter(
        name,
        check_shape(entry.get("shape"), name, where),
        _dtype(entry, where),
        _flag(entry, "requires_grad", True, where),
        _names(entry.get("aliases") or [], where),
        _flag(entry, "ignored", False, where),
    )


def _buffer(entry: dict[str, Any], where: str) -> Buffer:
    name = check_name(entry.get("name"), where)
    return Buffer(
        name,
        check_shape(entry.get("shape"), name, where),
        _dtype(entry, where) or "float32",
        _flag(entry, "persistent", True, where),
    )


def _unit(entry: dict[str, Any], where: str) -> Unit:
    modules = _names(entry.get("modules"), where)
    module_class, role = entry.get("module_class") or "", entry.get("role") or "block"
    if not modules or role not in ROLES:
        raise UnusableInput(f"{where}: a unit needs modules and one of the roles {', '.join(ROLES)}.")
    return Unit(modules, check_name(module_class, where) if module_class else "", role)


def from_object(value: Any, where: str) -> Shapes:
    """The evidence in a parsed manifest.

    Raises UnusableInput for names given twice, impossible shapes, unknown dtypes and formats.
    """
    if isinstance(value, list):
        value = {"format": FORMAT, "parameters": value}
    if not isinstance(value, dict) or "parameters" not in value:
        raise UnusableInput(f"{where}: not a shape manifest: it has no list of parameters.")
    form = value.get("format", FORMAT)
    if form != FORMAT:
        raise UnusableInput(f"{where}: the manifest format {quoted(form)} is not known; this release reads {FORMAT}.")
    parameters = tuple(_parameter(entry, where) for entry in _entries(value["parameters"], "parameters", where))
    if not parameters:
        raise UnusableInput(f"{where}: the manifest lists no parameters.")
    buffers = tuple(_buffer(entry, where) for entry in _entries(value.get("buffers") or [], "buffers", where))
    stated = tuple(_unit(entry, where) for entry in _entries(value.get("units") or [], "units", where))
    seen: set[str] = set()
    for name in (n for p in parameters for n in (p.name, *p.aliases)):
        if name in seen:
            raise UnusableInput(f"{where}: {quoted(name)} is listed twice; a tied tensor appears once, with aliases.")
        seen.add(name)
    for buffer in buffers:
        if buffer.name in seen:
            raise UnusableInput(f"{where}: {quoted(buffer.name)} is listed twice.")
        seen.add(buffer.name)
    grouped: set[str] = set()
    for module in (m for unit in stated for m in unit.modules):
        if module in grouped:
            raise UnusableInput(f"{where}: the module {quoted(module)} is in two units.")
        grouped.add(module)
    check_total(parameters, where)
    architecture = value.get("architecture") or ""
    if architecture:
        check_name(architecture, where)
    units = stated or units_from_names(parameter.name for parameter in parameters)
    return Shapes(where, "manifest", parameters, buffers, units, architecture, (where,), _notes(parameters, where))


def _notes(parameters: tuple[Parameter, ...], where: str) -> tuple[str, ...]:
    notes: tuple[str, ...] = ()
    scalars = [p.name for p in parameters if not p.shape and not p.ignored]
    if scalars:
        # torch/distributed/fsdp/_fully_shard/_fsdp_init.py raises ValueError for them.
        notes += (
            f"{where}: {len(scalars)} parameters are scalars, which fully_shard refuses ({scalars[0]}): give them the "
            "shape [1] or pass them in ignored_params.",
        )
    if not any(p.requires_grad for p in parameters):
        notes += (f"{where}: no parameter requires a gradient.",)
    return notes


def read_manifest(text: str, where: str) -> Shapes:
    """The evidence in the text of a shape manifest; ``where`` names the file. Raises UnusableInput."""
    return from_object(parse_json(text, where, values=VALUES), where)
