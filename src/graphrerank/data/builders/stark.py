"""STaRK: questions over a knowledge base whose entities have texts; the entities that answer are relevant.

Source: Wu et al. 2024, STaRK; of one base (``amazon``, ``mag`` or ``prime``) ``skb/NAME/processed.zip``,
``qa/NAME/stark_qa/stark_qa.csv`` and ``qa/NAME/split/*.index``. An entity's text is the list of its fields; STaRK's own
texts also list its relations, which are edges here. Relations in both directions are one edge.

The authors' tables are pickles. They are read without any class: a pickle that names one is refused.
"""

import ast
import io
import pickle
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from graphrerank.data.builders.draft import Draft, Edge, Judgement, document, query
from graphrerank.data.builders.raw_files import RawFile, RawFiles
from graphrerank.data.readers.records import Record

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
    try:
        return _PlainUnpickler(io.BytesIO(file.read())).load()
    except (pickle.UnpicklingError, EOFError, IndexError, KeyError, AttributeError, TypeError, MemoryError) as error:
        raise ValueError(f"{file.label}: needed a pickle of plain values ({error})") from error


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it names {module}.{name}")

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("it refers to another file")


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
    title = next((str(fields[key]) for key in TITLES if fields.get(key)), "")
    parts = [f"{key}: {shown}" for key, entry in fields.items() if key not in TITLES and (shown := _shown(entry))]
    return document(str(number), title, "; ".join(parts) or title, type=fields.get("type"))


def _shown(entry: Any) -> str:
    if isinstance(entry, Mapping):
        entry = "; ".join(f"{key}: {shown}" for key, part in entry.items() if (shown := _shown(part)))
    elif isinstance(entry, list | tuple | set):
        entry = ", ".join(filter(None, map(_shown, entry)))
    return "" if entry is None else " ".join(str(entry).split())[:MAX_FIELD_CHARS]


def _edges(pairs: Tensor, types: Tensor, names: Mapping[int, str], kept: set[str] | None) -> Iterator[Edge]:
    ends = pairs.sort(dim=0).values
    rows = torch.unique(torch.stack([ends[0], ends[1], types]), dim=1)
    for source, target, kind in rows.T.tolist():
        name = str(names[kind]).replace(" ", "_")
        if source != target and (kept is None or name in kept):
            yield Edge(str(source), str(target), name)
