import torch

from graphrerank.data.query_draws import QueryDraws


def drawn(share: slice) -> list[torch.Tensor]:
    draws = QueryDraws(torch.Generator().manual_seed(3), 7, share)
    return [draws.uniform(), draws.choice(5), draws.uniform(2)]


def test_shares_of_a_batch_draw_what_the_whole_batch_draws() -> None:
    whole = drawn(slice(None))
    assert [tuple(part.shape) for part in whole] == [(7,), (7,), (7, 2)]
    for rank in range(3):
        share = slice(rank, None, 3)
        for part, all_of_it in zip(drawn(share), whole, strict=True):
            assert torch.equal(part, all_of_it[share])
