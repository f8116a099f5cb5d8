"""Refuse ``.pt2`` files that could run code: torch's loader unpickles, imports by name and evaluates expressions.

Only what :mod:`graphrerank.serving.formats.pt2` writes is accepted: ATen operators on tensors, sizes that are sums and
products, raw weights.
"""

import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RECORD = re.compile(
    r"[^/]+/(models/model\.json|data/(weights/(weight_\d+|model_weights_config\.json)"
    r"|constants/(tensor_\d+|model_constants_config\.json)|sample_inputs/model\.pt)"
    r"|archive_format|archive_version|version|byteorder|\.data/(version|serialization_id)|\.format_version"
    r"|\.storage_alignment)"
)
TARGET = re.compile(r"torch\.ops\.aten\.\w+\.\w+|_operator\.(add|sub|mul|floordiv|eq|ne|ge|gt|le|lt|and_|or_)")
EXPRESSION = re.compile(
    r"(Symbol\('[su]\d+'(, (positive|integer|nonnegative)=True)*\)|Integer\(-?\d+\)|(Add|Mul|Max|Min|FloorDiv)\(|[(), ]"
    r"|[su]\d+|-?\d+)+"
)
GUARD = re.compile(r"(L(\['\w+'\]|\[\d+\])+\.size\(\)\[\d+\]|\d+|[-+* ]|==|>=|<=|!=)+")
PLAIN_TYPES = (None, "builtins.tuple", "builtins.list", "builtins.dict")


def check_pt2(path: Path) -> None:
    """Check a ``.pt2`` file before torch reads it.

    Raises:
        ValueError: If it is unreadable, or contains anything but a graph of ATen operators and raw weights.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            violation = next(_violations(archive), None)
    except (OSError, zipfile.BadZipFile, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path}: not an exported program: {error!r}") from error
    if violation is not None:
        raise ValueError(f"{path}: needed a graph of ATen operators and raw weights, found {violation[:200]}")


def _violations(archive: zipfile.ZipFile) -> Iterator[str]:
    """Yield everything that is not accepted."""
    for record in archive.infolist():
        if not RECORD.fullmatch(record.filename):
            yield f"the record {record.filename!r}"
        elif record.compress_type != zipfile.ZIP_STORED:
            yield f"the compressed record {record.filename!r}"
        elif record.filename.endswith("sample_inputs/model.pt") and record.file_size:
            yield "pickled sample inputs"
        elif record.filename.endswith("_config.json"):
            for name, entry in json.loads(archive.read(record))["config"].items():
                if entry["use_pickle"] or not re.fullmatch(r"(weight|tensor)_\d+", entry["path_name"]):
                    yield f"the pickled constant {name!r}"
        elif record.filename.endswith("models/model.json"):
            yield from _program_violations(json.loads(archive.read(record)))


def _program_violations(program: Any) -> Iterator[str]:
    for guard in program["guards_code"]:
        if not GUARD.fullmatch(guard):
            yield f"the guard {guard!r}"
    if program["graph_module"]["treespec_namedtuple_fields"] or program["graph_module"]["graph"]["custom_obj_values"]:
        yield "objects of other types than tensors"
    yield from _entry_violations(program)


def _entry_violations(content: Any) -> Iterator[str]:
    if isinstance(content, list):
        for entry in content:
            yield from _entry_violations(entry)
    if not isinstance(content, dict):
        return
    for key, entry in content.items():
        if key == "target" and isinstance(entry, str) and "inputs" in content and not TARGET.fullmatch(entry):
            yield f"the operator {entry!r}"
        elif key == "expr_str" and not EXPRESSION.fullmatch(entry):
            yield f"the expression {entry!r}"
        elif key == "metadata" and entry:
            yield f"metadata {str(entry)!r}"
        elif key in ("in_spec", "out_spec"):
            version, tree = json.loads(entry)
            if version != 1:
                yield f"the version {version!r} of arguments"
            yield from _tree_violations(tree)
        else:
            yield from _entry_violations(entry)


def _tree_violations(tree: Any) -> Iterator[str]:
    """Check how arguments nest: torch imports what ``type`` and, in a context, ``__enum__`` name."""
    if not isinstance(tree, dict) or tree.keys() != {"type", "context", "children_spec"}:
        yield f"the arguments {str(tree)!r}"
    elif tree["type"] not in PLAIN_TYPES:
        yield f"the type {tree['type']!r}"
    else:
        names = None if tree["context"] is None else json.loads(tree["context"])
        if not (names is None or (isinstance(names, list) and all(isinstance(name, str) for name in names))):
            yield f"the context {tree['context']!r}"
        for child in tree["children_spec"]:
            yield from _tree_violations(child)
