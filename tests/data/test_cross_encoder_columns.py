from functools import partial
from pathlib import Path

import pytest
import torch

from graphrerank.data.candidates import PreparedDataset, prepare, with_cross_encoder
from graphrerank.data.dataset import Dataset
from graphrerank.data.pair_cache import PairCache
from graphrerank.features.feature_columns import cross_encoder_columns
from graphrerank.graphs.retriever import CROSS_ENCODER_FEATURES
from tests.data.test_candidates import CountingRetriever
from tests.support.encoders import HashEncoder, HashPairEncoder


@pytest.fixture
def prepared(dataset: Dataset, tmp_path: Path) -> PreparedDataset:
    build = partial(CountingRetriever, top_k=9)
    return prepare(dataset, encoder=HashEncoder(), build_retriever=build, cache=tmp_path)


def naive(scores: list[float], read: list[bool]) -> list[list[float]]:
    known = [score for score, is_read in zip(scores, read, strict=True) if is_read]
    rows = []
    for place, (score, is_read) in enumerate(zip(scores, read, strict=True)):
        if not is_read:
            rows.append([0.0, 0.0, float(bool(known))])
            continue
        others = enumerate(zip(scores, read, strict=True))
        before = sum(r and (s > score or (s == score and p < place)) for p, (s, r) in others)
        spread = max(known) - min(known)
        rows.append([(score - min(known)) / spread if spread else 0.0, 1 / (before + 1), 0.0])
    return rows


def test_against_naive_loop() -> None:
    generator = torch.Generator().manual_seed(0)
    scores = (torch.randn(50, 7, generator=generator) * 3).round()  # with ties
    read = torch.rand(50, 7, generator=generator) < 0.6
    read[0], read[1] = True, False
    scores = torch.where(read, scores, torch.nan)
    expected = [naive(*row) for row in zip(scores.tolist(), read.tolist(), strict=True)]
    torch.testing.assert_close(cross_encoder_columns(scores, read), torch.tensor(expected))


def test_scale_and_shift_of_the_scores_do_not_matter() -> None:
    scores, read = torch.tensor([0.5, -2.0, 4.0, 1.0]), torch.tensor([True, True, True, False])
    torch.testing.assert_close(cross_encoder_columns(7 * scores - 3, read), cross_encoder_columns(scores, read))


def test_the_first_candidates_of_some_queries_are_read_once(prepared: PreparedDataset, tmp_path: Path) -> None:
    reader = HashPairEncoder()
    queries = torch.tensor([31, 4])
    found = with_cross_encoder(prepared, PairCache(reader, tmp_path), queries, top_k=3)
    nodes, texts = prepared.ranking.nodes, prepared.dataset.graph.texts
    expected = {(prepared.dataset.query_texts[q], texts[n]) for q in (31, 4) for n in nodes[q, :3].tolist()}
    assert set(reader.pairs) == expected
    assert len(reader.pairs) == 6
    assert found.feature_names == (*prepared.feature_names, *CROSS_ENCODER_FEATURES)
    columns = found.ranking.features[..., -3:]
    others = torch.ones(40, dtype=torch.bool).index_fill(0, queries, False)
    assert not columns[others].any()
    assert torch.equal(columns[queries][..., 2], torch.tensor([0.0] * 3 + [1.0] * 6).expand(2, 9))
    for query in (4, 31):
        logits = reader.head(
            reader.encode([prepared.dataset.query_texts[query]] * 3, [texts[n] for n in nodes[query, :3]])
        )
        assert torch.equal(columns[query, :3], cross_encoder_columns(logits, torch.ones(3, dtype=torch.bool)))
    assert torch.equal(found.ranking.features[..., :-3], prepared.ranking.features)

    again = HashPairEncoder()
    cached = with_cross_encoder(prepared, PairCache(again, tmp_path), queries, top_k=3)
    assert again.pairs == []
    assert torch.equal(cached.ranking.features, found.ranking.features)


def test_lists_shorter_than_what_is_read_and_no_queries(prepared: PreparedDataset) -> None:
    reader = HashPairEncoder()
    found = with_cross_encoder(prepared, reader, torch.tensor([5]), top_k=20)
    assert len(reader.pairs) == 9
    assert not found.ranking.features[5, :, -1].any()  # nothing is unread
    none = with_cross_encoder(prepared, reader, torch.tensor([], dtype=torch.int64), top_k=20)
    assert not none.ranking.features[..., -3:].any()
    with pytest.raises(ValueError, match="`top_k` must be a positive integer, got 0"):
        with_cross_encoder(prepared, reader, torch.tensor([5]), top_k=0)


def test_without_a_cross_encoder_all_is_zero(prepared: PreparedDataset) -> None:
    names = [*prepared.feature_names, *CROSS_ENCODER_FEATURES]
    hidden = prepared.with_features(names)
    none = with_cross_encoder(prepared, HashPairEncoder(), torch.tensor([], dtype=torch.int64), top_k=2)
    assert torch.equal(hidden.ranking.features, none.with_features(names).ranking.features)
