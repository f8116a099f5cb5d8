import numpy as np
import pytest

from graphrerank.serving.edge_arrays import check_ends, read_edges


def test_pairs_and_weights() -> None:
    edges = read_edges([[0, 1], (2, 1, 0.5), [3, 0, 4]], most=3)
    assert edges.pairs.tolist() == [[0, 1], [2, 1], [3, 0]]
    assert edges.weights.tolist() == [1.0, 0.5, 4.0]
    assert (edges.pairs.dtype, edges.weights.dtype) == (np.int64, np.float64)
    check_ends(edges, 4)
    assert len(read_edges([], most=1)) == 0
    check_ends(read_edges([], most=1), 1)


def test_types() -> None:
    assert read_edges([[0, 1], [2, 1, 0.5]], most=3).types is None
    edges = read_edges([[0, 1], [2, 1, 0.5], [3, 0, 4, "cites"], [0, 2, 1, "likes"], (1, 3, 1, "knn")], most=5)
    assert edges.pairs.tolist() == [[0, 1], [2, 1], [3, 0], [0, 2], [1, 3]]
    assert edges.weights.tolist() == [1.0, 0.5, 4.0, 1.0, 1.0]
    assert edges.type_names == ["other", "other", "reference", "other", "similarity"]
    check_ends(read_edges([[0, 1], [0, 1, 1, "cites"], [1, 0, 1, "knn"]], most=3), 4)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("01", "must be a list of .* got str"),
        ({}, "must be a list of .* got dict"),
        ([[0, 1]] * 4, "must be at most 3, got 4"),
        ([[0, 1], 7], r"be \[i, j\], \[i, j, weight\] or \[i, j, weight, type\], got another at index 1"),
        ([[0, 1], [0]], "got another at index 1"),
        ([[0, 1, 1, "knn", "knn"]], "got another at index 0"),
        ([[0, 1], [0, 2, 1, 1]], "have a text as type, got another at index 1"),
        ([[0, 2, 1, "knn"], [0, 1, 1, None]], "have a text as type, got another at index 1"),
        ([[0, 2, 1, ["knn"]]], "have a text as type, got another at index 0"),
        ([[0, 2, "knn"]], "a weight in .* at index 0"),
        ([[0, 2, None, "knn"]], "a weight in .* at index 0"),
        ([[0, 1, 1, "knn"], [0, -2, 1, "knn"]], "integers from 0, got another at index 1"),
        ([[0, 1], [0, 1.5]], "integers from 0, got another at index 1"),
        ([[True, 0]], "integers from 0"),
        ([["0", 1]], "integers from 0"),
        ([[0, None]], "integers from 0"),
        ([[0, 1], [-1, 0]], "integers from 0, got another at index 1"),
        ([[0, 10**30]], "integers from 0"),
        ([[0, 1, 0]], r"a weight in \[1e-09, 1e\+09\], got another at index 0"),
        ([[0, 1, 1e10]], "a weight in"),
        ([[0, 1, 10**400]], "a weight in"),
        ([[0, 1, float("nan")]], "a weight in"),
        ([[0, 1], [0, 2, True]], "a weight in .* at index 1"),
        ([[0, 1, "1"]], "a weight in"),
    ],
)
def test_what_is_no_edge(given: object, message: str) -> None:
    with pytest.raises(ValueError, match=f"`edges` must .*{message}|`edges` {message}"):
        read_edges(given, most=3)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([[0, 1], [0, 6]], r"join documents 0 to 5, got \[0, 6\] at index 1"),
        ([[0, 1], [2, 2]], r"join two different documents, got \[2, 2\] at index 1"),
        ([[0, 1], [3, 2], [1, 0]], r"be given once, in one direction, got \[1, 0\] at index 2"),
        (
            [[0, 1], [0, 1, 1, "cites"], [1, 0, 2, "mention"]],  # both are references
            r"be given once for each type, in one direction, got \[1, 0\] at index 2",
        ),
    ],
)
def test_ends(given: list[list[int]], message: str) -> None:
    with pytest.raises(ValueError, match=f"`edges` must each {message}"):
        check_ends(read_edges(given, most=9), 6)
