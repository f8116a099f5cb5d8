"""Build STaRK: questions over a knowledge base whose entities have texts. The answers to a question are relevant.

The authors publish the entities as pickles. These are read without importing any class or function. Only the numbers of
NumPy, which pandas leaves in the tables, are converted.
"""

import io
import math
import pickle
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from pydantic import TypeAdapter
from torch import Tensor

from graphrerank_papers.builders.builder import DatasetWriter, builder
from graphrerank_papers.builders.raw_files import RawFile, RawFiles

SPLITS = ("train", "val", "test")
#: Fields of an entity that are its title, in order of preference.
TITLES = ("title", "name", "DisplayName")
MAX_FIELD_CHARS = 4096
_IDS = TypeAdapter(list[int])


@builder("stark", "STaRK", "CC BY 4.0", "https://huggingface.co/datasets/snap-stanford/stark")
def stark(files: RawFiles, writer: DatasetWriter, *, keep_types: list[str] | None = None) -> None:
    """Build the data set of one knowledge base: ``amazon``, ``mag`` or ``prime``.

    The text of an entity lists its fields without ids and missing values, as STaRK's own texts do. STaRK's texts also
    list the relations of the entity, which are edges here. Relations in both directions are one edge.

    Source: Wu et al. 2024, STaRK.

    Args:
        files: Files that include ``node_info.pkl``, ``edge_type_dict.pkl``, ``edge_index.pt`` and ``edge_types.pt`` of
            the knowledge base (the authors' ``processed.zip``), ``stark_qa.csv``, and ``split/<split>.index`` of at
            least one split.
        writer: Writer of the data set folder.
        keep_types: Names of the relations that become edges. None keeps all of them.

    Raises:
        ValueError: If a file has another format, or a pickle refers to a class or function.
        UserError: If a file is missing or ambiguous.
    """
    entities = _unpickle(files.one("node_info.pkl"))
    if not isinstance(entities, dict):
        raise ValueError(f"entities must be a dictionary, got {type(entities).__name__}")
    _write_questions(files, writer)
    for number, fields in entities.items():
        title = next((name for key in TITLES if (name := _describe(fields.get(key)))), "")
        text = _describe({key: entry for key, entry in fields.items() if key not in TITLES}, limit=None)
        writer.document(str(int(number)), title, text or title, type=fields.get("type"))
    _write_relations(files, writer, keep_types)


def _write_questions(files: RawFiles, writer: DatasetWriter) -> None:
    """Write the questions of all splits that are there, and their answers as relevant documents."""
    indices = [(split, file) for split in SPLITS for file in files.matching(f"split/{split}.index")]
    split_of = {line.strip(): split for split, file in indices for line in file.lines()}
    judgements: dict[str, list[tuple[str, ...]]] = {split: [] for split in SPLITS}
    for row in files.one("stark_qa.csv").rows():
        if row["id"] in split_of:
            writer.query(row["id"], row["query"])
            answers = map(str, _IDS.validate_json(row["answer_ids"], strict=True))
            judgements[split_of[row["id"]]].append((row["id"], *answers))
    for split in SPLITS:
        for query_id, *doc_ids in judgements[split]:
            writer.judge(split, query_id, *doc_ids)
    if missing := [split for split in SPLITS if not judgements[split]]:
        writer.notes.append(f"Splits whose files were not given: {', '.join(missing)}.")


def _write_relations(files: RawFiles, writer: DatasetWriter, keep_types: list[str] | None) -> None:
    """Write the relations as edges: one per pair of entities and type, without those of an entity to itself."""
    type_names = _unpickle(files.one("edge_type_dict.pkl"))
    types, pairs = _tensor(files.one("edge_types.pt")), _tensor(files.one("edge_index.pt"))
    if pairs.dim() != 2 or pairs.shape != (2, len(types)):
        raise ValueError(f"edges must have shape {[2, len(types)]}, one column per type, got {list(pairs.shape)}")
    ends = pairs.sort(dim=0).values
    for source, target, kind in torch.unique(torch.stack([ends[0], ends[1], types]), dim=1).T.tolist():
        name = str(type_names[kind]).replace(" ", "_")
        if source != target and (keep_types is None or name in keep_types):
            writer.edge(str(source), str(target), name)


def _unpickle(file: RawFile) -> Any:
    """Read dictionaries, lists, texts and numbers from a pickle. A pickle that names a class or function is invalid."""
    try:
        return _PlainUnpickler(io.BytesIO(file.read())).load()
    except pickle.PickleError as error:
        raise ValueError(f"a pickle must contain only dictionaries, lists, texts and numbers: {error}") from error


class _PlainUnpickler(pickle.Unpickler):
    """Unpickler that imports nothing."""

    def find_class(self, module: str, name: str) -> Any:
        """Return the stand-in for a number of NumPy, and reject every other name."""
        if (stand_in := _NUMBERS.get((module.replace("numpy._core", "numpy.core"), name))) is None:
            raise pickle.UnpicklingError(f"it names {module}.{name}")
        return stand_in

    def persistent_load(self, pid: Any) -> Any:
        """Reject references to other files."""
        raise pickle.UnpicklingError("it refers to another file")


class _NumberFormat:
    """Stand-in for ``numpy.dtype`` in a pickle: a code such as ``f8`` and, as state, the order of its bytes."""

    def __init__(self, code: str, *_: Any) -> None:
        if code[:1] not in {"b", "i", "u", "f"} or not code[1:].isdigit():
            raise pickle.UnpicklingError(f"it contains numbers of the format {code!r}")
        self.format = np.dtype(code)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.format = self.format.newbyteorder(state[1])


def _number(number_format: _NumberFormat, raw: bytes) -> Any:
    """Return the number in a byte string. Stand-in for ``numpy.core.multiarray.scalar``."""
    (number,) = np.frombuffer(raw, number_format.format).tolist()
    return number


_NUMBERS: Mapping[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "dtype"): _NumberFormat,
    ("numpy.core.multiarray", "scalar"): _number,
}


def _tensor(file: RawFile) -> Tensor:
    """Read a tensor of integers. A file with anything but tensors is invalid."""
    try:
        tensor: Tensor = torch.load(io.BytesIO(file.read()), weights_only=True)
    except pickle.PickleError as error:
        raise ValueError(f"the file must contain a tensor and nothing else: {str(error)[:200]}") from error
    return tensor.long()


def _describe(entry: Any, *, limit: int | None = MAX_FIELD_CHARS) -> str:
    """Return a field as text, or an empty string for a missing value (None or the NaN of pandas)."""
    if isinstance(entry, Mapping):
        fields = ((str(key), value) for key, value in entry.items() if not re.search("^id$|^_|_id", str(key)))
        entry = "; ".join(f"{key}: {text}" for key, value in fields if (text := _describe(value)))
    elif isinstance(entry, list | tuple | set):
        entry = ", ".join(filter(None, map(_describe, entry)))
    is_missing = entry is None or (isinstance(entry, float) and math.isnan(entry))
    return "" if is_missing else " ".join(str(entry).split())[:limit]
