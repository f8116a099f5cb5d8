import pytest
import torch

from graphrerank_papers.hipporag import synonyms
from graphrerank_papers.hipporag.synonyms import synonym_edges


def vectors(num: int = 60, *, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(num, 4, generator=generator)
    drawn[7], drawn[9] = drawn[8], 0.0
    return drawn


@pytest.mark.parametrize(("rows", "columns", "new"), [(512, 4096, 1 << 22), (7, 11, 5), (64, 9, 1 << 22)])
@pytest.mark.parametrize("max_synonyms", [0, 1, 3, 100])
def test_against_naive_loop(
    max_synonyms: int, rows: int, columns: int, new: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, number in (("TILE_ROWS", rows), ("TILE_COLUMNS", columns), ("MAX_PENDING", new)):
        monkeypatch.setattr(synonyms, name, number)
    drawn = vectors()
    unit = torch.nn.functional.normalize(drawn, dim=1)
    cosine = unit @ unit.T
    expected = {}
    for entity in range(60):
        near = [other for other in range(60) if other != entity and cosine[entity, other] >= 0.8]
        for other in sorted(near, key=lambda other: (-float(cosine[entity, other]), other))[:max_synonyms]:
            expected[min(entity, other), max(entity, other)] = float(cosine[entity, other])
    pairs, weight = synonym_edges(drawn, threshold=0.8, max_synonyms=max_synonyms)
    assert pairs.tolist() == [list(pair) for pair in sorted(expected)]
    assert weight.tolist() == pytest.approx([expected[pair] for pair in sorted(expected)])
    assert (len(expected) > 20) == (max_synonyms > 0)
    assert not (pairs == 9).any()  # a vector of zeros


def test_no_entity_and_one() -> None:
    assert synonym_edges(torch.zeros(0, 0))[0].shape == (0, 2)
    assert synonym_edges(torch.ones(1, 3))[0].shape == (0, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"threshold": 0.0}, r"`threshold` must lie in \(0, 1\], got 0.0"),
        ({"max_synonyms": -1}, "`max_synonyms` must not be negative, got -1"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        synonym_edges(vectors(), **arguments)


def test_odd_vectors_are_refused() -> None:
    with pytest.raises(ValueError, match=r"`vectors` must be a finite \[E, d\] matrix, got \[1, 1\]"):
        synonym_edges(torch.tensor([[float("nan")]]))
