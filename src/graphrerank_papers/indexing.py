"""Store the stages of indexes under a hash of their dependencies, and build rankings from listed passages."""

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
from graphrerank.utils.files import check_writable, read_checked_json, write_checked_json
from graphrerank.utils.tensor_files import load_tensors, save_tensors

#: Version of the stages. Increment it when the content of a stage changes.
INDEX_FORMAT = 2
#: Number of texts that are encoded between two writes, which is the most that an interruption loses.
BLOCK_TEXTS = 4096

RecordT = TypeVar("RecordT")


class Stages:
    """Folder of stages, each of which is computed once.

    A stage is a record in two files (:func:`save_record`), whose names contain a hash of everything that the stage
    depends on. The tensors are written last, so their file marks a complete stage even after an interrupted build. A
    stage with damaged files is computed again with a warning.

    Attributes:
        folder: Folder of the files.
    """

    def __init__(self, folder: str | Path) -> None:
        """Set the folder, which is created when the first stage is written.

        Args:
            folder: Folder of the files.
        """
        self.folder = Path(folder)

    def key(self, name: str, *dependencies: Any) -> str:
        """Return the file name of a stage, without suffix.

        Args:
            name: Name of the stage.
            *dependencies: Keys of earlier stages, fingerprints and settings that determine the stage.
        """
        return f"{name}-{hashlib.sha256(repr((INDEX_FORMAT, name, *dependencies)).encode()).hexdigest()[:24]}"

    def get(self, key: str, kind: type[RecordT], make: Callable[[], RecordT]) -> RecordT:
        """Return a stage, computing and writing it first if it is missing or damaged.

        Args:
            key: Key of the stage.
            kind: Type of the record.
            make: Function that computes the record.

        Returns:
            Record as read from disk.

        Raises:
            UserError: If the folder cannot be written.
        """
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
        """Encode texts in blocks. Each block is a stage.

        Args:
            encoder: Encoder of the texts.
            texts: ``n`` texts.

        Returns:
            Vectors ``[n, d]`` float32 on the CPU, or ``[0, 0]`` without texts.

        Raises:
            UserError: If the encoder returns invalid vectors.
        """
        vectors = []
        for start in range(0, len(texts), BLOCK_TEXTS):
            block = texts[start : start + BLOCK_TEXTS]
            key = self.key("vectors", hash_texts(block).hex(), encoder.fingerprint)
            vectors.append(self.get(key, Tensor, partial(encode_texts, encoder, block)))
        return torch.cat(vectors) if vectors else torch.zeros(0, 0)


def encode_texts(encoder: IndexEncoder, texts: Sequence[str]) -> Tensor:
    """Encode texts and check the vectors.

    Args:
        encoder: Encoder of the texts.
        texts: ``n`` texts.

    Returns:
        Vectors ``[n, d]`` float32 on the CPU.

    Raises:
        UserError: If the encoder does not return one finite vector per text.
    """
    vectors = encoder.encode(texts).float().cpu()
    if vectors.dim() != 2 or len(vectors) != len(texts) or not torch.isfinite(vectors).all():
        needed = f"finite [{len(texts)}, d] vectors"
        raise UserError(f"`encoder` must return {needed}, got a tensor of shape {list(vectors.shape)}")
    return vectors


def save_record(stem: Path, record: Any) -> None:
    """Write a record to ``<stem>.json`` and then to ``<stem>.safetensors``.

    Args:
        stem: Path without suffix.
        record: Tensor, dataclass whose fields are records or JSON values, or tuple or list of these.
    """
    tensors: dict[str, Tensor] = {"end": torch.zeros(0)}  # safetensors cannot read a file without a tensor
    content = {"record": _split(record, "record", tensors), "tensors": list(tensors)}
    write_checked_json(stem.with_suffix(".json"), content)
    save_tensors(stem.with_suffix(".safetensors"), tensors)


def load_record(stem: Path, kind: type[RecordT]) -> RecordT:
    """Read a record that :func:`save_record` wrote.

    Args:
        stem: Path without suffix.
        kind: Type of the record.

    Returns:
        Record of type ``kind``.

    Raises:
        UserError: If a file is missing or damaged. The message says how to rebuild the index.
    """
    file, tensors = stem.with_suffix(".json"), stem.with_suffix(".safetensors")
    try:
        content = read_checked_json(file)
        record: RecordT = _join(kind, content["record"], "record", load_tensors(tensors, tuple(content["tensors"])))
    except (OSError, LookupError, TypeError, UserError) as error:
        message = f"{file}: missing or damaged index ({error!r}); delete {tensors.name} and rebuild the index"
        raise UserError(message) from error
    return record


def _split(part: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """Return the JSON content of a record, and move its tensors to ``tensors``, keyed by their path in the record."""
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
    """Build a record of a type from the JSON content and the tensors that :func:`_split` returned."""
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
    """Replace the ranking by the best-scored nodes of each query.

    Args:
        state: State whose ranking is replaced.
        query: Query of each hit ``[P]``.
        node: Node of each hit ``[P]``. If a node occurs several times for a query, its highest score is used.
        scores: Score of each hit ``[P]``.
        budget: Maximum number of nodes per query.

    Returns:
        State with the new ranking, whose nodes are also its pool.
    """
    num_nodes = int(node.max()) + 1 if len(node) else 1
    key, position = torch.unique(query * num_nodes + node, return_inverse=True)
    best = torch.full(key.shape, -torch.inf, device=key.device).scatter_reduce_(0, position, scores, "amax")
    nodes = pad_rows(key // num_nodes, key % num_nodes, len(state.queries), fill=-1)
    padded = pad_rows(key // num_nodes, best, len(state.queries), fill=-torch.inf)
    ranked = state.with_ranking(nodes, padded).ranked_by(padded).top(budget)
    return ranked.with_pool(ranked.nodes)


def scores_of(vectors: Tensor, queries: Tensor, listed: Sequence[Iterable[int]]) -> list[dict[int, float]]:
    """Compute the dot products of each query with the vectors listed for it, in one transfer to the CPU.

    Unlike in a matrix product, equal vectors have equal scores in any batch.

    Args:
        vectors: Vectors ``[n, d]``.
        queries: Query vectors ``[B, d]``.
        listed: Rows of ``vectors`` to score for each query. Duplicates are ignored.

    Returns:
        Score by row for each query, with rows ascending.
    """
    rows = [sorted(set(row)) for row in listed]
    pairs = [[query for query, row in enumerate(rows) for _ in row], [entry for row in rows for entry in row]]
    query, entry = torch.tensor(pairs, dtype=torch.int64, device=vectors.device)
    scores = iter(pair_products(vectors, entry, queries.to(vectors.device).float(), query).tolist())
    return [dict(zip(row, islice(scores, len(row)), strict=True)) for row in rows]


def padded_ranking(rows: Sequence[Mapping[int, float]]) -> Ranking:
    """Build a ranking from the scores of each query.

    Args:
        rows: Score by node for each of ``B`` queries, best first.

    Returns:
        Ranking ``[B, K]``, padded with node -1 and score minus infinity.

    Example:
        >>> padded_ranking([{3: 0.9, 1: 0.5}, {2: 0.7}]).nodes
        tensor([[ 3,  1],
                [ 2, -1]])
    """
    width = max(map(len, rows), default=0)
    nodes = torch.tensor([[*row, *[-1] * (width - len(row))] for row in rows], dtype=torch.int64)
    scores = torch.tensor([[*row.values(), *[-torch.inf] * (width - len(row))] for row in rows])
    return Ranking(nodes.reshape(len(rows), width), scores.reshape(len(rows), width))


def with_listed(state: RetrievalState, listed: Sequence[Sequence[int]], *, budget: int) -> RetrievalState:
    """Replace the ranking by the passages listed for each query.

    The score of a passage is the reciprocal of its rank. A query without listed passages keeps its ranking.

    Args:
        state: State whose ranking is replaced.
        listed: Nodes for each query, best first.
        budget: Maximum number of nodes per query.

    Returns:
        State with the new ranking.
    """
    rows = [{node: 1 / rank for rank, node in enumerate(row[:budget], start=1)} for row in listed]
    new = padded_ranking(rows).to(state.nodes.device)
    where = torch.tensor([bool(row) for row in rows], dtype=torch.bool, device=new.nodes.device)
    return replace_where(state, new, where.unsqueeze(1))


def replace_where(state: RetrievalState, new: Ranking, where: Tensor) -> RetrievalState:
    """Replace the ranking of some queries.

    Args:
        state: State whose ranking is replaced.
        new: New ranking of all ``B`` queries.
        where: Mask ``[B, 1]`` of the queries to replace.

    Returns:
        State with the combined ranking.
    """
    width = max(new.nodes.shape[1], state.nodes.shape[1])
    new, old = new.padded(width), state.ranking.padded(width)
    return state.with_ranking(torch.where(where, new.nodes, old.nodes), torch.where(where, new.scores, old.scores))
