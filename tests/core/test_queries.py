import pytest
import torch

from graphrerank.core import Queries


def test_blocks_and_selections_hold_their_rows() -> None:
    queries = Queries(["a", "b", "c"], ["one", "two", "three"], torch.arange(6.0).reshape(3, 2))
    block, selected = queries.block(1, 9), queries.select(torch.tensor([2, 0]))
    assert (len(queries), len(block), block.ids, block.texts) == (3, 2, ["b", "c"], ["two", "three"])
    assert block.encoded.tolist() == [[2, 3], [4, 5]]
    assert (selected.ids, selected.texts) == (["c", "a"], ["three", "one"])
    assert selected.encoded.tolist() == [[4, 5], [0, 1]]
    bare = Queries(["a", "b"], ["one", "two"])
    assert bare.block(0, 1).vectors is bare.select(torch.tensor([], dtype=torch.int64)).vectors is None
    with pytest.raises(ValueError, match=r"`queries` must have vectors, got None\. Encode them first"):
        _ = bare.encoded
    for ids, texts, vectors in ((["a"], [], None), (["a"], ["one"], torch.zeros(2, 3)), ([], ["one"], None)):
        with pytest.raises(ValueError, match="must have one entry per query, got"):
            Queries(ids, texts, vectors)
