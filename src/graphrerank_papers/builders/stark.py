"""STaRK: questions over a knowledge base whose entities have texts; the entities that answer are relevant.

The authors' tables are pickles, which are read without any class but numpy's numbers, which pandas leaves in them.
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
TITLES = ("title", "name", "DisplayName")
MAX_FIELD_CHARS = 4096
_IDS = TypeAdapter(list[int])


@builder("stark", "STaRK", "CC BY 4.0", "https://huggingface.co/datasets/snap-stanford/stark")
def stark(files: RawFiles, writer: DatasetWriter, *, keep_types: list[str] | None = None) -> None:
    """Read one knowledge base (``amazon``, ``mag`` or ``prime``) with its questions.

    Source: Wu et al. 2024, STaRK. An entity's text is the list of its fields, without ids and missing ones, as in
    STaRK's own texts; these also list its relations, which are edges here. Relations in both directions are one edge.

    ``keep_types`` are the names of the relations to keep; None for all.
    """
    entities = _unpickled(files.one("node_info.pkl"))
    type_names = _unpickled(files.one("edge_type_dict.pkl"))
    pairs, types = _tensor(files.one("edge_index.pt")), _tensor(files.one("edge_types.pt"))
    if not isinstance(entities, dict) or pairs.dim() != 2 or pairs.shape != (2, len(types)):
        raise ValueError(f"needed entities and two ends of each edge, got edges of shape {list(pairs.shape)}")
    given = [(split, file) for split in SPLITS for file in files.matching(f"split/{split}.index")]
    split_of = {line.strip(): split for split, file in given for line in file.lines()}
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
    for number, fields in entities.items():
        title = next((shown for key in TITLES if (shown := _shown(fields.get(key)))), "")
        text = _shown({key: entry for key, entry in fields.items() if key not in TITLES}, limit=None)
        writer.document(str(int(number)), title, text or title, type=fields.get("type"))
    ends = pairs.sort(dim=0).values
    for source, target, kind in torch.unique(torch.stack([ends[0], ends[1], types]), dim=1).T.tolist():
        name = str(type_names[kind]).replace(" ", "_")
        if source != target and (keep_types is None or name in keep_types):
            writer.edge(str(source), str(target), name)


def _unpickled(file: RawFile) -> Any:
    """Read dicts, lists, texts and numbers from a pickle; one that names a class or function is an error."""
    return _PlainUnpickler(io.BytesIO(file.read())).load()


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (found := _NUMBERS.get((module.replace("numpy._core", "numpy.core"), name))) is None:
            raise pickle.UnpicklingError(f"it names {module}.{name}")
        return found

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("it refers to another file")


class _NumberFormat:
    """Stands for ``numpy.dtype`` in a pickle: a code such as ``f8`` and, as state, the order of its bytes."""

    def __init__(self, code: str, *_: Any) -> None:
        if code[:1] not in {"b", "i", "u", "f"} or not code[1:].isdigit():
            raise pickle.UnpicklingError(f"it holds numbers of the format {code!r}")
        self.format = np.dtype(code)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.format = self.format.newbyteorder(state[1])


def _number(number_format: _NumberFormat, raw: bytes) -> Any:
    (number,) = np.frombuffer(raw, number_format.format).tolist()
    return number


_NUMBERS: Mapping[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "dtype"): _NumberFormat,
    ("numpy.core.multiarray", "scalar"): _number,
}


def _tensor(file: RawFile) -> Tensor:
    tensor: Tensor = torch.load(io.BytesIO(file.read()), weights_only=True)
    return tensor.long()


def _shown(entry: Any, *, limit: int | None = MAX_FIELD_CHARS) -> str:
    """Describe a field; empty if it is missing, as None or as pandas' NaN."""
    if isinstance(entry, Mapping):
        parts = ((str(key), part) for key, part in entry.items() if not re.search("^id$|^_|_id", str(key)))
        entry = "; ".join(f"{key}: {shown}" for key, part in parts if (shown := _shown(part)))
    elif isinstance(entry, list | tuple | set):
        entry = ", ".join(filter(None, map(_shown, entry)))
    is_missing = entry is None or (isinstance(entry, float) and math.isnan(entry))
    return "" if is_missing else " ".join(str(entry).split())[:limit]
