import pytest
import torch

from graphrerank.graphs import Queries


def test_a_block_holds_its_rows() -> None:
    queries = Queries(["a", "b", "c"], ["one", "two", "three"], torch.arange(6.0).reshape(3, 2))
    block = queries.block(1, 9)
    assert (len(queries), len(block), block.ids, block.texts) == (3, 2, ["b", "c"], ["two", "three"])
    assert block.encoded.tolist() == [[2, 3], [4, 5]]
    assert Queries(["a", "b"], ["one", "two"]).block(0, 1).vectors is None


def test_vectors_that_are_not_there() -> None:
    with pytest.raises(ValueError, match="`queries` must have vectors: encode them first"):
        _ = Queries(["a"], ["one"]).encoded


@pytest.mark.parametrize(
    ("ids", "texts", "vectors"), [(["a"], [], None), (["a"], ["one"], torch.zeros(2, 3)), ([], ["one"], None)]
)
def test_lengths_must_agree(ids: list[str], texts: list[str], vectors: torch.Tensor | None) -> None:
    with pytest.raises(ValueError, match="must have one entry per query, got"):
        Queries(ids, texts, vectors)


def test_select_takes_queries_in_any_order() -> None:
    queries = Queries(["a", "b", "c"], ["x", "y", "z"], torch.eye(3))
    found = queries.select(torch.tensor([2, 0]))
    assert (found.ids, found.texts) == (["c", "a"], ["z", "x"])
    assert torch.equal(found.encoded, torch.eye(3)[[2, 0]])
    assert Queries(["a"], ["x"]).select(torch.tensor([], dtype=torch.int64)).vectors is None
