"""Arguments of ``rerank`` in every container that users pass: each must give the result of plain lists."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from graphrerank import GraphReranker, RerankInput

TEXTS = ["the hall pump leaks", "a seal of the pump", "bread is made of flour", "the pump hums"]
ARGUMENTS: dict[str, list[Any]] = {
    "passages": TEXTS,
    "scores": [0.9, 0.3, 0.1, 0.5],
    "ids": ["a", "b", "c", "d"],
    "doc_ids": ["x", "x", "y", "x"],
    "chunk_ids": [0, 1, 0, 2],
    "entities": [["pump", "hall"], ["pump"], ["bread"], ["pump"]],
    "edges": [("a", "b"), ("a", "d"), ("c", "b")],
    "edge_weights": [1.0, 0.5, 0.25],
    "edge_types": ["citation", "other", "citation"],
}


def series(entries: Sequence[Any]) -> Any:
    """A column whose labels are not the positions, as after sorting or filtering a data frame."""
    pandas = pytest.importorskip("pandas")
    return pandas.Series(list(entries), index=range(len(entries), 0, -1))


def array(entries: Sequence[Any]) -> np.ndarray:
    """An array of numbers, of strings, or of objects if the entries are lists."""
    if not isinstance(entries[0], list | tuple):
        return np.array(entries)
    objects = np.empty(len(entries), dtype=object)
    objects[:] = entries
    return objects


def ranked(reranker: GraphReranker, arguments: dict[str, Any]) -> list[tuple[Any, float]]:
    return list(reranker.rerank("which pump leaks", **arguments))


@pytest.mark.parametrize("container", [tuple, array, series])
@pytest.mark.parametrize("name", list(ARGUMENTS))
def test_each_argument_in_any_container(
    reranker: GraphReranker, name: str, container: Callable[[Sequence[Any]], Any]
) -> None:
    changed = {**ARGUMENTS, name: container(ARGUMENTS[name])}
    assert ranked(reranker, changed) == ranked(reranker, ARGUMENTS)


@pytest.mark.parametrize("container", [array, series])
def test_all_arguments_in_one_container(reranker: GraphReranker, container: Callable[[Sequence[Any]], Any]) -> None:
    changed = {name: container(entries) for name, entries in ARGUMENTS.items()}
    assert ranked(reranker, changed) == ranked(reranker, ARGUMENTS)


@pytest.mark.parametrize("container", [torch.tensor, array, series])
def test_integer_ids_in_any_container(reranker: GraphReranker, container: Callable[[Sequence[Any]], Any]) -> None:
    arguments = {**ARGUMENTS, "ids": [10, 20, 30, 40], "edges": [(10, 20), (10, 40), (30, 20)]}
    changed = {**arguments, "ids": container(arguments["ids"]), "scores": container(arguments["scores"])}
    assert ranked(reranker, changed) == ranked(reranker, arguments)


@pytest.mark.parametrize("container", [array, series])
def test_empty_containers_are_empty_lists(container: Callable[[Sequence[Any]], Any]) -> None:
    empty = container([""])[:0]
    assert RerankInput("which pump leaks", empty, ids=empty, entities=empty).num_passages == 0


@pytest.mark.parametrize("name", ["passages", "scores", "doc_ids", "chunk_ids", "entities"])
def test_a_missing_entry_of_a_column_is_none(reranker: GraphReranker, name: str) -> None:
    pandas = pytest.importorskip("pandas")
    entries = [None if index == 1 else entry for index, entry in enumerate(ARGUMENTS[name])]
    expected = ranked(reranker, {**ARGUMENTS, name: entries})
    column = pandas.Series(entries, index=[4, 3, 2, 1])  # numbers become floats with NaN
    assert ranked(reranker, {**ARGUMENTS, name: column}) == expected
    for missing in (float("nan"), pandas.NA):
        replaced = [missing if entry is None else entry for entry in entries]
        assert ranked(reranker, {**ARGUMENTS, name: pandas.Series(replaced, dtype=object)}) == expected
