"""What several indexes share: stages stored under a hash of everything they depend on, and listed passages."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import torch
from torch import Tensor

from graphrerank.core import Ranking
from graphrerank.core.queries import IndexEncoder
from graphrerank.core.ranking import pair_products
from graphrerank.core.sparse_rows import pad_rows
from graphrerank.pipelines.state import RetrievalState
from graphrerank.utils.caching import hash_texts, warn_damaged
from graphrerank.utils.checks import UserError
from graphrerank.utils.files import check_writable, load_tensors, read_checked_json, save_tensors, write_checked_json

FORMAT = 2  # increment when the content of a stage changes
BLOCK_TEXTS = 4096  # encoded between two writes: an interruption loses at most this much work

RecordT = TypeVar("RecordT")


class Stages:
    """A folder of stages, each computed once, and again with a warning if its files are damaged.

    A stage is a record in two files (:func:`save_record`), whose names hold a hash of all that it depends on. The
    tensors are written last, so their presence marks a complete stage even after an interrupted build.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def key(self, name: str, *dependencies: Any) -> str:
        """Return the file name of a stage, given keys of earlier stages, fingerprints and settings."""
        return f"{name}-{hashlib.sha256(repr((FORMAT, name, *dependencies)).encode()).hexdigest()[:24]}"

    def get(self, key: str, kind: type[RecordT], make: Callable[[], RecordT]) -> RecordT:
        """Read a stage by its key and the type of its record; compute and write it first if it is missing."""
        stem = self.folder / key
        if stem.with_suffix(".safetensors").is_file():
            try:
                return load_record(stem, kind)
            except UserError as error:
                warn_damaged(str(error).rpartition(";")[0])
        check_writable(self.folder)
        save_record(stem, make())
        return load_record(stem, kind)

    def encode(self, encoder: IndexEncoder, texts: Sequence[str]) -> Tensor:
        """Encode texts as ``[n, d]`` float32 (``[0, 0]`` without texts), in blocks stored by a hash of their texts."""
        vectors = []
        for start in range(0, len(texts), BLOCK_TEXTS):
            block = texts[start : start + BLOCK_TEXTS]
            key = self.key("vectors", hash_texts(block).hex(), encoder.fingerprint)
            vectors.append(self.get(key, Tensor, partial(encode_texts, encoder, block)))
        return torch.cat(vectors) if vectors else torch.zeros(0, 0)


def encode_texts(encoder: IndexEncoder, texts: Sequence[str]) -> Tensor:
    """Encode texts as ``[n, d]`` float32 on the CPU; refuse vectors that are not finite or not one per text."""
    vectors = encoder.encode(texts).float().cpu()
    if vectors.dim() != 2 or len(vectors) != len(texts) or not torch.isfinite(vectors).all():
        needed = f"finite [{len(texts)}, d] vectors"
        raise UserError(f"`encoder` must return {needed}, got a tensor of shape {list(vectors.shape)}")
    return vectors


def save_record(stem: Path, record: Any) -> None:
    """Write a record as ``<stem>.json`` and, after it, ``<stem>.safetensors``.

    A record is a tensor, a dataclass whose fields are records or what JSON can write, or a tuple or list of these.
    """
    tensors: dict[str, Tensor] = {"end": torch.zeros(0)}  # safetensors cannot read a file without a tensor
    content = {"record": _split(record, "record", tensors), "tensors": list(tensors)}
    write_checked_json(stem.with_suffix(".json"), content)
    save_tensors(stem.with_suffix(".safetensors"), tensors)


def load_record(stem: Path, kind: type[RecordT]) -> RecordT:
    """Read a record of some type that :func:`save_record` wrote; a ValueError says to build the index again."""
    file, tensors = stem.with_suffix(".json"), stem.with_suffix(".safetensors")
    try:
        content = read_checked_json(file)
        record: RecordT = _join(kind, content["record"], "record", load_tensors(tensors, tuple(content["tensors"])))
    except (OSError, LookupError, TypeError, UserError) as error:
        message = f"{file}: missing or damaged index ({error!r}); delete {tensors.name} and build again"
        raise UserError(message) from error
    return record


def _split(part: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """Return what JSON writes of a record, and move its tensors to a table, by their path in the record."""
    if isinstance(part, Tensor):
        tensors[name] = part.clone()  # safetensors refuses tensors that share memory
        return None
    if is_dataclass(part):
        keys = [field.name for field in fields(part)]
        return {key: _split(getattr(part, key), f"{name}.{key}", tensors) for key in keys}
    if isinstance(part, tuple) or (isinstance(part, list) and part and is_dataclass(part[0])):
        return [_split(entry, f"{name}.{index}", tensors) for index, entry in enumerate(part)]
    return part


def _join(kind: Any, content: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """Build a record of some type from what :func:`_split` made of it."""
    arguments = get_args(kind)
    if kind is Tensor:
        return tensors[name]
    if isinstance(kind, type) and is_dataclass(kind):
        kinds = get_type_hints(kind)
        return kind(**{key: _join(kinds[key], part, f"{name}.{key}", tensors) for key, part in content.items()})
    if get_origin(kind) is tuple and Ellipsis not in arguments:
        parts = enumerate(zip(arguments, content, strict=True))
        return tuple(_join(of, part, f"{name}.{index}", tensors) for index, (of, part) in parts)
    if arguments and is_dataclass(arguments[0]):
        return [_join(arguments[0], part, f"{name}.{index}", tensors) for index, part in enumerate(content)]
    return content


def with_documents(
    state: RetrievalState, query: Tensor, node: Tensor, scores: Tensor, *, budget: int
) -> RetrievalState:
    """Replace the retrieved passages by nodes of queries, ``[P]`` each, by their best scores up to ``budget``."""
    num_nodes = int(node.max()) + 1 if len(node) else 1
    key, position = torch.unique(query * num_nodes + node, return_inverse=True)
    best = torch.full(key.shape, -torch.inf, device=key.device).scatter_reduce_(0, position, scores, "amax")
    nodes = pad_rows(key // num_nodes, key % num_nodes, len(state.queries), fill=-1)
    padded = pad_rows(key // num_nodes, best, len(state.queries), fill=-torch.inf)
    ranked = state.with_ranking(nodes, padded).ranked_by(padded).top(budget)
    return ranked.with_pool(ranked.nodes)


def scores_of(vectors: Tensor, queries: Tensor, listed: Sequence[Iterable[int]]) -> list[dict[int, float]]:
    """Return the dot products of ``B`` queries with the rows of ``vectors`` listed for each, ascending (one transfer).

    Unlike in a matrix product, equal vectors give equal scores in any batch.
    """
    rows = [sorted(set(row)) for row in listed]
    pairs = [[query for query, row in enumerate(rows) for _ in row], [entry for row in rows for entry in row]]
    query, entry = torch.tensor(pairs, dtype=torch.int64, device=vectors.device)
    scores = iter(pair_products(vectors, entry, queries.to(vectors.device).float(), query).tolist())
    return [dict(zip(row, islice(scores, len(row)), strict=True)) for row in rows]


def padded_ranking(rows: Sequence[Mapping[int, float]]) -> Ranking:
    """Return the ranking of ``B`` queries, given the scores by node of each, best first."""
    width = max(map(len, rows), default=0)
    nodes = torch.tensor([[*row, *[-1] * (width - len(row))] for row in rows], dtype=torch.int64)
    scores = torch.tensor([[*row.values(), *[-torch.inf] * (width - len(row))] for row in rows])
    return Ranking(nodes.reshape(len(rows), width), scores.reshape(len(rows), width))


def with_listed(state: RetrievalState, listed: Sequence[Sequence[int]], *, budget: int) -> RetrievalState:
    """Replace the retrieved passages by those listed for each query, best first, up to ``budget``.

    The score of a passage is the reciprocal of its rank. A query for which none is listed keeps its ranking.
    """
    rows = [{node: 1 / rank for rank, node in enumerate(row[:budget], start=1)} for row in listed]
    new = padded_ranking(rows).to(state.nodes.device)
    where = torch.tensor([bool(row) for row in rows], dtype=torch.bool, device=new.nodes.device)
    return replace_where(state, new, where.unsqueeze(1))


def replace_where(state: RetrievalState, new: Ranking, where: Tensor) -> RetrievalState:
    """Replace the ranking of the queries where ``[B, 1]`` bool is true."""
    width = max(new.nodes.shape[1], state.nodes.shape[1])
    new, old = new.padded(width), state.ranking.padded(width)
    return state.with_ranking(torch.where(where, new.nodes, old.nodes), torch.where(where, new.scores, old.scores))
