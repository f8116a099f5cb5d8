import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count

import pytest
import torch

from graphrerank import GraphReranker, RerankInput
from graphrerank.models.checkpoint import Checkpoint
from graphrerank.rerank import explanation
from graphrerank.rerank.explanation import Explainer

NAMES = ("base_score", "bm25_score", "query_coverage", "title_coverage", "neighbourhood_coverage")
WORDS = [f"w{number}" for number in range(60)]
Edge = tuple[tuple[int, int], str | None]  # with its type, for models that read types


@pytest.fixture(scope="module")
def checkpoint(make_checkpoint: Callable[..., Checkpoint]) -> Checkpoint:
    return make_checkpoint(NAMES, num_scores=5)


def random_inputs(num_inputs: int, **more: object) -> Iterator[tuple[RerankInput, list[tuple[int, int]]]]:
    for seed in range(num_inputs):
        rng = random.Random(seed)
        size = rng.randint(2, 12)
        texts = [" ".join(rng.choices(WORDS, k=rng.randint(0, 20))) or "." for _ in range(size)]
        edges = sorted({tuple(sorted(rng.sample(range(size), 2))) for _ in range(rng.randint(0, 2 * size))})
        query = " ".join(rng.choices(WORDS, k=rng.choice([3, 70])))
        yield RerankInput(query, texts, edges=edges, **more), edges


def check_effects(checkpoint: Checkpoint, given: RerankInput, edges: list[Edge], **more: object) -> list[Edge]:
    """Compare each effect with reranking without that edge; return the named edges."""
    reranker, named = GraphReranker(checkpoint), []

    def scores_with(kept: list[Edge]) -> torch.Tensor:
        pairs, types = [pair for pair, _ in kept], [name or "other" for _, name in kept]
        return in_order_given(reranker, replace(given, edges=pairs, edge_types=types, **more))

    full = scores_with(edges)
    whole = replace(given, edges=[p for p, _ in edges], edge_types=[name or "other" for _, name in edges], **more)
    for place, row in enumerate(Explainer(checkpoint).explain(whole, num_edges=len(edges) or 1)):
        assert row.gcs_part + row.learned_part == pytest.approx(float(full[place]), abs=1e-5)
        for pair, effect, edge_type in row.edges:
            without = scores_with([edge for edge in edges if edge != (pair, edge_type)])
            assert effect == pytest.approx(float(full[place] - without[place]), abs=2e-5)
            named.append((pair, edge_type))
    return named


@pytest.mark.parametrize("rows_at_once", [1, 60, 1 << 15])
def test_against_reranking_without_each_edge(
    checkpoint: Checkpoint, rows_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explanation, "ROWS_AT_ONCE", rows_at_once)
    named = [check_effects(checkpoint, given, [(pair, None) for pair in pairs]) for given, pairs in random_inputs(4)]
    assert sum(map(len, named)) > 25


def test_an_edge_of_each_type_is_left_out_by_itself(make_checkpoint: Callable[..., Checkpoint]) -> None:
    typed = make_checkpoint(NAMES, num_scores=5, num_edge_types=5)
    named = []
    for given, pairs in random_inputs(4):
        edges = [(pair, name) for pair in pairs for name in ("reference", "other")[: 1 + sum(pair) % 2]]
        named += check_effects(typed, given, edges)
    assert {name for _, name in named} == {"reference", "other"}
    assert len(named) > 8


def test_given_coverage_stays_as_it_is(checkpoint: Checkpoint) -> None:
    for given, pairs in random_inputs(4):
        features = {"neighbourhood_coverage": [0.1 * place for place in range(given.num_passages)]}
        check_effects(checkpoint, given, [(pair, None) for pair in pairs], features=features)


def test_it_can_be_stopped_between_steps(checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explanation, "ROWS_AT_ONCE", 1)
    given, _ = next(pair for pair in random_inputs(9) if len(pair[1]) > 3)
    calls = count()

    def stop_at_the_third() -> None:
        if next(calls) == 2:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        Explainer(checkpoint).explain(given, check=stop_at_the_third)


def in_order_given(reranker: GraphReranker, given: RerankInput) -> torch.Tensor:
    ranking = reranker.rerank_batch([given])[0]
    scores = torch.empty(len(ranking))
    scores[ranking.indices] = ranking.scores
    return scores
