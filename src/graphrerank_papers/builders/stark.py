"""STaRK: questions over a knowledge base whose entities have texts; the entities that answer are relevant.

Source: Wu et al. 2024, STaRK; of one base (``amazon``, ``mag`` or ``prime``) ``skb/NAME/processed.zip``,
``qa/NAME/stark_qa/stark_qa.csv`` and ``qa/NAME/split/*.index``. An entity's text is the list of its fields, without
ids and what is missing, as in STaRK's own texts; these also list its relations, which are edges here. Relations in both
directions are one edge.

The authors' tables are pickles. They are read without any class but numpy's numbers, of which pandas leaves some in
them: a pickle that names another is refused.
"""

import ast
import io
import math
import pickle
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphrerank.data.readers.records import Record
from graphrerank_papers.builders.draft import Draft, Edge, Judgement, document, query
from graphrerank_papers.builders.raw_files import RawFile, RawFiles

SPLITS = ("train", "val", "test")
TITLES = ("title", "name", "DisplayName")
MAX_FIELD_CHARS = 4096


def build_stark(files: RawFiles, *, keep_types: list[str] | None = None) -> Draft:
    """Read one knowledge base with its questions.

    Args:
        files: The authors'.
        keep_types: Names of the relations to keep; None for all.
    """
    entities = read_pickle(files.one("node_info.pkl"))
    type_names = read_pickle(files.one("edge_type_dict.pkl"))
    pairs, types = _tensor(files.one("edge_index.pt")), _tensor(files.one("edge_types.pt"))
    if not isinstance(entities, dict) or pairs.dim() != 2 or pairs.shape != (2, len(types)):
        raise ValueError(f"`from` must hold a base of STaRK, got edges of shape {list(pairs.shape)}")
    split_of: dict[str, str] = {}
    for split in SPLITS:
        for file in files.matching(f"split/{split}.index"):
            split_of |= {line.strip(): split for _, line in file.lines()}
    queries: list[Record] = []
    qrels: dict[str, list[Judgement]] = {split: [] for split in SPLITS}
    for place, row in files.one("stark_qa.csv").rows("id", "query", "answer_ids"):
        if row["id"] in split_of:
            queries.append(query(row["id"], row["query"]))
            qrels[split_of[row["id"]]] += [Judgement(row["id"], f"{i}") for i in _answer_ids(row["answer_ids"], place)]
    documents = (_entity(int(i), fields) for i, fields in entities.items())
    notes = [f"Splits whose files were not given: {', '.join(s for s in SPLITS if not qrels[s])}."]
    missing = [split for split in SPLITS if not qrels[split]]
    edges = _edges(pairs, types, type_names, None if keep_types is None else set(keep_types))
    return Draft(documents, queries, qrels, edges, notes=notes if missing else [])


def read_pickle(file: RawFile) -> Any:
    """Read dicts, lists, texts and numbers from a pickle; one that names a class or function is a ValueError."""
    troubles = (pickle.UnpicklingError, EOFError, LookupError, AttributeError, TypeError, ValueError, MemoryError)
    try:
        return _PlainUnpickler(io.BytesIO(file.read())).load()
    except troubles as error:
        raise ValueError(f"{file.label}: needed a pickle of plain values ({error})") from error


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (found := _NUMBERS.get((module.replace("numpy._core", "numpy.core"), name))) is None:
            raise pickle.UnpicklingError(f"it names {module}.{name}")
        return found

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("it refers to another file")


class _NumberFormat:
    """What a pickle says of ``numpy.dtype``: a code such as ``f8`` and, as state, the order of its bytes."""

    def __init__(self, code: str, *_: Any) -> None:
        if code[:1] not in {"b", "i", "u", "f"} or not code[1:].isdigit():
            raise pickle.UnpicklingError(f"it holds numbers of the format {code!r}")
        self.format = np.dtype(code)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.format = self.format.newbyteorder(state[1])


def _number(number_format: _NumberFormat, raw: bytes) -> Any:
    """Return one of numpy's numbers as Python's."""
    (number,) = np.frombuffer(raw, number_format.format).tolist()
    return number


_NUMBERS: Mapping[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "dtype"): _NumberFormat,
    ("numpy.core.multiarray", "scalar"): _number,
}


def _tensor(file: RawFile) -> Tensor:
    try:
        tensor = torch.load(io.BytesIO(file.read()), weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        raise ValueError(f"{file.label}: needed a tensor ({str(error)[:200]})") from error
    if not isinstance(tensor, Tensor):
        raise ValueError(f"{file.label}: needed a tensor, found {type(tensor).__name__}")
    return tensor


def _answer_ids(written: str, place: str) -> list[int]:
    try:
        ids = ast.literal_eval(written)
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"{place}: needed a list of numbers as answer_ids, found {written[:80]!r}") from error
    if not isinstance(ids, list) or not all(type(i) is int for i in ids):
        raise ValueError(f"{place}: needed a list of numbers as answer_ids, found {written[:80]!r}")
    return list(dict.fromkeys(ids))


def _entity(number: int, fields: Mapping[str, Any]) -> Record:
    title = next((shown for key in TITLES if (shown := _shown(fields.get(key)))), "")
    text = _shown({key: entry for key, entry in fields.items() if key not in TITLES}, limit=None)
    return document(str(number), title, text or title, type=fields.get("type"))


def _shown(entry: Any, *, limit: int | None = MAX_FIELD_CHARS) -> str:
    """Describe a field; empty if it is missing, as None or as pandas' NaN."""
    if isinstance(entry, Mapping):
        parts = ((str(key), part) for key, part in entry.items() if not _is_id(str(key)))
        entry = "; ".join(f"{key}: {shown}" for key, part in parts if (shown := _shown(part)))
    elif isinstance(entry, list | tuple | set):
        entry = ", ".join(filter(None, map(_shown, entry)))
    is_missing = entry is None or (isinstance(entry, float) and math.isnan(entry))
    return "" if is_missing else " ".join(str(entry).split())[:limit]


def _is_id(key: str) -> bool:
    return key == "id" or key.startswith("_") or "_id" in key


def _edges(pairs: Tensor, types: Tensor, names: Mapping[int, str], kept: set[str] | None) -> Iterator[Edge]:
    ends = pairs.sort(dim=0).values
    rows = torch.unique(torch.stack([ends[0], ends[1], types]), dim=1)
    for source, target, kind in rows.T.tolist():
        name = str(names[kind]).replace(" ", "_")
        if source != target and (kept is None or name in kept):
            yield Edge(str(source), str(target), name)
