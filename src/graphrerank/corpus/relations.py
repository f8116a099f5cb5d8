"""Relations between passages over time: supersession, contradiction and validity.

The metadata contain them. ``supersedes`` and ``contradicts`` are lists of ids. ``valid_from`` and ``valid_to`` are
times in ISO 8601 (see :mod:`~graphrerank.corpus.times`): a passage is valid from the first time on, and before the
second.
"""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from graphrerank.corpus.filters import Filter
from graphrerank.corpus.metadata_fields import RELATION_FIELDS, SUPERSEDED, SUPERSEDES, VALID_FROM, VALID_TO
from graphrerank.corpus.passages import Passages
from graphrerank.corpus.times import as_iso, now, parse_time
from graphrerank.utils.checks import UserError

#: Passage, other passage, and ``supersedes`` or ``contradicts``.
Relation = tuple[int, int, str]


def valid_at(time: str | None, fields: Sequence[str]) -> Filter:
    """Return a filter for the passages that are valid at a given time.

    Args:
        time: Time in ISO 8601, in UTC if it has no zone. If None, the current time is used.
        fields: Fields among ``valid_from`` and ``valid_to`` that occur in the corpus.

    Raises:
        UserError: If the time is invalid.

    Example:
        >>> valid_at("20250131T12+02", ["valid_to"])
        {'and': [{'or': [{'valid_to': {'exists': False}}, {'valid_to': {'gt': '2025-01-31T10:00:00Z'}}]}]}
    """
    try:
        instant = as_iso(now() if time is None else parse_time(time))
    except UserError as error:
        raise UserError(f"`as_of` must be a time in ISO 8601: {error}") from None
    bounds = ((VALID_FROM, {"lte": instant}), (VALID_TO, {"gt": instant}))
    return {"and": [{"or": [{name: {"exists": False}}, {name: bound}]} for name, bound in bounds if name in fields]}


def relations_among(passages: Passages, nodes: Sequence[int]) -> list[Relation]:
    """Return the relations among the given passages, by their positions in ``nodes``.

    Args:
        passages: Passages of the corpus.
        nodes: Indices of passages, -1 for padding.
    """
    metadata = passages.metadata
    if metadata is None or not metadata.has_relations:
        return []
    position_of = {passages.ids[node]: position for position, node in enumerate(nodes) if node >= 0}
    relations = []
    for position in position_of.values():
        record = metadata.record(nodes[position])
        for kind in RELATION_FIELDS:
            others = record.get(kind) or ()
            for other in [others] if isinstance(others, str) else others:
                # an id outside the given passages is ignored, and so is a relation of a passage to itself
                if isinstance(other, str) and position_of.get(other, position) != position:
                    relations.append((position, position_of[other], kind))
    return relations


def absent_replacements(passages: Passages, nodes: Tensor) -> Tensor:
    """Return the passages that supersede one of the given passages, directly or indirectly, and are not among them.

    Args:
        passages: Passages of the corpus.
        nodes: Indices of passages ``[B, K]``, padded with -1.

    Returns:
        Indices ``[B, m]``, padded with -1.
    """
    metadata, removed = passages.metadata, passages.removed
    rows = []
    if metadata is None or not (metadata.ranks_now and metadata.has_relations):
        return nodes[:, :0]
    for numbers in nodes.tolist():
        visited = set(numbers)
        pending = [node for node in numbers if node >= 0]
        while pending:
            superseding = set(metadata.superseding.get(passages.ids[pending.pop()], ())) - visited
            superseding = {node for node in superseding if removed is None or not removed[node]}
            visited |= superseding
            pending += superseding
        rows.append(torch.tensor(sorted(visited.difference(numbers)), dtype=torch.int64))
    return pad_sequence(rows, batch_first=True, padding_value=-1).to(nodes.device) if rows else nodes[:, :0]


def lift_replacements(passages: Passages, nodes: Tensor, scores: Tensor) -> Tensor:
    """Raise the score of each passage to that of the passages that it supersedes, and rank these directly below it.

    Args:
        passages: Passages of the corpus.
        nodes: Indices of passages ``[B, K]``, padded with -1.
        scores: Scores ``[B, K]``.

    Returns:
        Scores ``[B, K]``.
    """
    if passages.metadata is None or not (passages.metadata.ranks_now and passages.metadata.has_relations):
        return scores
    scores = scores.clone()
    for row, numbers in zip(scores, nodes.tolist(), strict=True):
        pairs = [(new, old) for new, old, kind in relations_among(passages, numbers) if kind == SUPERSEDES]
        for new, old in chain.from_iterable([pairs] * len(pairs)):  # repeat, so that chains propagate in any order
            if row[new] <= row[old]:
                row[new] = row[old]
                row[old] = torch.nextafter(row[old], torch.tensor(-torch.inf))
    return scores


def with_relations(records: Mapping[str, Mapping[str, Any]], relations: Sequence[tuple[str, str, str]]) -> list[Any]:
    """Return metadata to which relations from an edge file have been added.

    Args:
        records: Metadata of passages by id.
        relations: Name in the edge file, source id and target id of each relation.

    Returns:
        Metadata of the passages, in the order of ``records``.

    Raises:
        UserError: If a relation starts at an unknown passage.
    """
    extended = {node_id: dict(record) for node_id, record in records.items()}
    for name, *ends in relations:
        kind, (source, target) = (SUPERSEDES, ends[::-1]) if name == SUPERSEDED else (name, ends)
        if source not in extended:
            raise UserError(f"an edge of type {kind} must start at a passage of the corpus, got {source!r}")
        targets = extended[source].get(kind) or []
        extended[source][kind] = [*([targets] if isinstance(targets, str) else targets), target]
    return list(extended.values())
