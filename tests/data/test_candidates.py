from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor

from graphrerank.core import CandidateGraphs, PairEncoder, Queries, Ranking
from graphrerank.core.model_inputs import PAIRS, VECTORS, token_states
from graphrerank.core.retriever import CROSS_ENCODER_FEATURES
from graphrerank.corpus import CorpusGraph, candidate_edges
from graphrerank.data import candidates
from graphrerank.data.candidates import (
    CANDIDATE_TENSORS,
    PreparedDataset,
    prepare,
    with_cross_encoder,
)
from graphrerank.data.datamodule import CandidateDataModule
from graphrerank.data.dataset import Dataset
from graphrerank.data.vector_cache import PairCache
from graphrerank.features.feature_columns import cross_encoder_columns
from graphrerank.features.text_match import TextMatch
from graphrerank.operators.bm25 import BM25Retriever
from graphrerank.operators.expand import ExpandRetriever
from graphrerank.operators.hybrid import HybridRetriever
from tests.support.damage import flip_bit
from tests.support.encoders import HashEncoder, HashPairEncoder


class CountingRetriever(HybridRetriever):
    calls = 0

    def retrieve(self, queries: Queries) -> Ranking:
        CountingRetriever.calls += 1
        return super().retrieve(queries)


class ListRetriever:
    """Gives every query the nodes from ``first`` on; reads no vectors, and its fingerprint is another file's."""

    feature_names = ("base_score", "own")
    version = "1"
    calls = 0

    def __init__(self, graph: CorpusGraph, *, first: int = 0, base_first: int | None = None) -> None:
        self.first, self.base_first = first, base_first

    @property
    def fingerprint(self) -> str:
        return ListRetriever.version

    def retrieve(self, queries: Queries) -> Ranking:
        ListRetriever.calls += 1
        scores = torch.arange(9.0, 0.0, -1.0).expand(len(queries), 9).contiguous()
        nodes = (torch.arange(9) + self.first).expand(len(queries), 9).contiguous()
        features = torch.stack([scores, -scores], dim=-1)
        base = None if self.base_first is None else nodes - self.first + self.base_first
        return Ranking(nodes, scores, features, base)


@pytest.fixture(autouse=True)
def fresh_count() -> None:
    CountingRetriever.calls = ListRetriever.calls = 0
    ListRetriever.version = "1"


@pytest.fixture
def prepared(dataset: Dataset, tmp_path: Path) -> PreparedDataset:
    return run(dataset, HashEncoder(), tmp_path)


def run(dataset: Dataset, encoder: Any, cache: Path, **arguments: float) -> PreparedDataset:
    settings: dict[str, Any] = {"top_k": 12} | arguments
    return prepare(dataset, encoder=encoder, build_retriever=partial(CountingRetriever, **settings), cache=cache)


def test_against_the_retriever_itself(dataset: Dataset, prepared: PreparedDataset) -> None:
    graph = prepared.dataset.graph
    queries = Queries(dataset.query_ids, dataset.query_texts, prepared.query_vectors)
    expected = HybridRetriever(graph, top_k=12).retrieve(queries)
    assert torch.equal(prepared.ranking.nodes, expected.nodes)
    assert torch.equal(prepared.ranking.features, expected.features)
    assert prepared.feature_names == HybridRetriever.feature_names
    assert (prepared.top_k, prepared.encoder_name, prepared.encoder_fingerprint) == (12, "hash", "hash")


def test_anything_else_goes_to_another_file(dataset: Dataset, tmp_path: Path) -> None:
    run(dataset, HashEncoder(), tmp_path)
    run(dataset, HashEncoder(), tmp_path, top_k=13)
    run(dataset, HashEncoder(), tmp_path, bm25_weight=0.4)
    run(dataset, HashEncoder(fingerprint="e" * 64), tmp_path)
    other = Dataset(dataset.name, dataset.graph, dataset.query_ids, [*dataset.query_texts[:-1], "?"], dataset.splits)
    run(other, HashEncoder(), tmp_path)
    prepare(dataset, encoder=HashEncoder(), build_retriever=partial(HybridRetriever, top_k=12), cache=tmp_path)
    assert CountingRetriever.calls == 5
    assert len(list(tmp_path.glob("ring-*.safetensors"))) == 6


def run_two(dataset: Dataset, encoder: Any, cache: Path) -> PreparedDataset:
    """Prepare the second and the last query."""
    queries = torch.tensor([1, len(dataset.query_ids) - 1])
    build = partial(CountingRetriever, top_k=12)
    return prepare(dataset, encoder=encoder, build_retriever=build, cache=cache, queries=queries)


def check_two(selected: PreparedDataset, whole: PreparedDataset) -> None:
    """The two queries are as among all queries, and the others have neither candidates nor vectors."""
    assert selected.is_prepared is not None
    two, others = selected.is_prepared.nonzero().flatten(), (~selected.is_prepared).nonzero().flatten()
    assert two.tolist() == [1, len(whole.dataset.query_ids) - 1]
    for name in CANDIDATE_TENSORS:
        tensor, expected = getattr(selected.ranking, name), getattr(whole.ranking, name)
        assert (tensor.dtype, tensor.shape) == (expected.dtype, expected.shape)
        torch.testing.assert_close(tensor[two], expected[two])  # a product of two rows rounds otherwise than of all
    assert bool((selected.ranking.nodes[others] == -1).all())
    assert selected.query_vectors is not None
    assert whole.query_vectors is not None
    assert torch.equal(selected.query_vectors[two], whole.query_vectors[two])
    assert bool(selected.query_vectors[others].isnan().all())


def test_selected_queries_are_encoded_and_retrieved_alone(
    dataset: Dataset, prepared: PreparedDataset, tmp_path: Path
) -> None:
    encoder = HashEncoder()
    selected = run_two(dataset, encoder, tmp_path / "own")
    check_two(selected, prepared)
    assert encoder.asked == [*dataset.graph.texts, dataset.query_texts[1], dataset.query_texts[-1]]
    assert CountingRetriever.calls == 2  # once for all queries, by the fixture
    check_two(run_two(dataset, HashEncoder(), tmp_path / "own"), prepared)
    assert CountingRetriever.calls == 2  # read from the cache
    run(dataset, HashEncoder(), tmp_path / "own")
    assert CountingRetriever.calls == 3  # the cache of two queries is not that of all


def test_selected_queries_use_the_cache_of_all_queries(
    dataset: Dataset, prepared: PreparedDataset, tmp_path: Path
) -> None:
    (file,) = tmp_path.glob("ring-*.safetensors")
    selected = run_two(dataset, HashEncoder(), tmp_path)
    check_two(selected, prepared)
    assert torch.equal(selected.ranking.scores[selected.is_prepared], prepared.ranking.scores[selected.is_prepared])
    assert CountingRetriever.calls == 1
    assert list(tmp_path.glob("ring-*.safetensors")) == [file]


def test_selected_queries_are_retrieved_if_the_cache_of_all_queries_is_damaged(
    dataset: Dataset, tmp_path: Path
) -> None:
    run(dataset, HashEncoder(), tmp_path)
    (file,) = tmp_path.glob("ring-*.safetensors")
    flip_bit(file, 0.5)
    with pytest.warns(UserWarning, match=rf"{file.name}: damaged cache .*; the entry is computed again"):
        selected = run_two(dataset, HashEncoder(), tmp_path)
    assert not file.exists()
    check_two(selected, run(dataset, HashEncoder(), tmp_path))  # without another warning
    assert file.exists()


def test_a_selection_of_all_queries_is_that_of_none(dataset: Dataset, tmp_path: Path) -> None:
    queries = torch.arange(len(dataset.query_ids))
    build = partial(CountingRetriever, top_k=12)
    selected = prepare(dataset, encoder=HashEncoder(), build_retriever=build, cache=tmp_path, queries=queries)
    assert selected.is_prepared is None
    run(dataset, HashEncoder(), tmp_path)
    assert CountingRetriever.calls == 1


@pytest.mark.parametrize("use", ["graphs", "pairs", "answerable", "ceiling"])
def test_using_a_query_that_was_not_prepared_is_an_error(dataset: Dataset, tmp_path: Path, use: str) -> None:
    selected = run_two(dataset, HashEncoder(), tmp_path)
    argument = "train" if use in ("answerable", "ceiling") else torch.tensor([1, 0])
    with pytest.raises(ValueError, match=r"`queries` must be among the 2 prepared queries of data set 'ring', got"):
        getattr(selected, use)(argument)
    selected.graphs(torch.tensor([1]), inputs=VECTORS)


def test_words_are_matched_for_the_selected_queries(
    dataset: Dataset, prepared: PreparedDataset, tmp_path: Path
) -> None:
    names = (*prepared.feature_names, "query_coverage")
    selected = run_two(dataset, HashEncoder(), tmp_path).with_features(names)
    assert selected.is_prepared is not None
    assert selected.ranking.features is not None
    whole = prepared.with_features(names).ranking.features
    assert whole is not None
    torch.testing.assert_close(selected.ranking.features[selected.is_prepared], whole[selected.is_prepared])
    assert not bool(selected.ranking.features[~selected.is_prepared].any())


class Shallow(ListRetriever):
    def __init__(self, graph: CorpusGraph, *, top_k: int, first: int) -> None:
        super().__init__(graph, first=first)


def test_fingerprints_and_factories_among_the_arguments_name_the_cache(dataset: Dataset, tmp_path: Path) -> None:
    for version in ("1", "2", "1"):
        ListRetriever.version = version
        prepare_lists(dataset, tmp_path)
    assert ListRetriever.calls == 2
    for first in (0, 1, 0):
        build = partial(ExpandRetriever, base=partial(Shallow, first=first), top_k=9, base_k=5, num_seeds=2)
        prepare(dataset, encoder=HashEncoder(), build_retriever=build, cache=tmp_path)
    assert ListRetriever.calls == 4


@pytest.mark.parametrize("share", [0.0, 0.01, 0.1, 0.5, 0.9])
def test_a_flipped_bit_changes_no_candidate(dataset: Dataset, tmp_path: Path, share: float) -> None:
    ranking = run(dataset, HashEncoder(), tmp_path).ranking  # mapped from the file
    expected = {name: getattr(ranking, name).clone() for name in CANDIDATE_TENSORS}
    (file,) = tmp_path.glob("*.safetensors")
    flip_bit(file, share)
    with pytest.warns(UserWarning, match=rf"{file.name}: damaged cache .*; the entry is computed again"):
        found = run(dataset, HashEncoder(), tmp_path)
    assert all(torch.equal(getattr(found.ranking, name), expected[name]) for name in CANDIDATE_TENSORS)
    run(dataset, HashEncoder(), tmp_path)
    assert CountingRetriever.calls == 2


def test_factory_without_a_name_is_refused(dataset: Dataset, tmp_path: Path) -> None:
    def build(graph: CorpusGraph) -> HybridRetriever:
        return HybridRetriever(graph)

    for factory in (build, partial(HybridRetriever, dataset.graph)):
        with pytest.raises(ValueError, match=r"`build_retriever` must be a functools\.partial of a retriever class"):
            prepare(dataset, encoder=HashEncoder(), build_retriever=factory, cache=tmp_path)


@pytest.mark.parametrize("split", ["train", "val"])
def test_graphs_against_naive_loop(prepared: PreparedDataset, split: str) -> None:
    queries = prepared.dataset.split(split).queries[[3, 0, 5]]
    graphs = prepared.graphs(queries, split=split, inputs=VECTORS)
    assert graphs.nodes.tolist() == [n for q in queries.tolist() for n in prepared.ranking.nodes[q].tolist()]
    assert graphs.relevance.tolist() == [
        float(n in (q, q + 1)) for q in queries.tolist() for n in prepared.ranking.nodes[q].tolist()
    ]
    assert graphs.gains.tolist() == [[1.0, 1.0]] * 3
    assert torch.equal(graphs.x, prepared.ranking.features[queries].flatten(0, 1))
    assert torch.equal(graphs.inputs["query_vectors"], prepared.query_vectors[queries])
    assert torch.equal(graphs.inputs["node_vectors"], prepared.dataset.graph.embedding[graphs.nodes])
    assert graphs.query_index is queries
    edge_index, weight, ptr, _ = candidate_edges(prepared.dataset.graph, prepared.ranking.nodes[queries])
    assert torch.equal(graphs.edge_index, edge_index)
    assert torch.equal(graphs.edge_attr, weight)
    assert torch.equal(graphs.ptr, ptr)


def test_graphs_without_labels_vectors_edges_or_padding(dataset: Dataset, tmp_path: Path) -> None:
    prepared = run(dataset, HashEncoder(), tmp_path, top_k=70)
    graphs = prepared.graphs(torch.tensor([0, 1]), edges=False)
    assert (graphs.relevance, graphs.gains, graphs.inputs) == (None, None, {})
    assert graphs.edge_index.shape == (2, 0)
    assert graphs.ptr.tolist() == [0, 60, 120]
    assert graphs.x.isfinite().all()


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_ceiling_against_naive_loop(prepared: PreparedDataset, split: str) -> None:
    queries = prepared.dataset.split(split).queries.tolist()
    reached = [{q, q + 1} <= set(prepared.ranking.nodes[q].tolist()) for q in queries]
    assert prepared.ceiling(split) == pytest.approx(sum(reached) / len(reached))
    assert 0 < prepared.ceiling("train") < 1


def test_match_features_are_computed_where_asked(
    dataset: Dataset, prepared: PreparedDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates, "MATCH_QUERIES", 7)
    features = prepared.with_features(["neighbourhood_coverage", "base_score", "query_coverage"]).ranking.features
    match = TextMatch(dataset.graph.texts)
    for query in range(40):
        graphs = prepared.graphs(torch.tensor([query]))
        expected = match.score([dataset.query_texts[query]], graphs.nodes, graphs.edge_index, graphs.ptr)
        assert torch.equal(features[query][:, [2, 0]], expected[:, [0, 2]])
        assert torch.equal(features[query][:, 1], graphs.x[:, 0])
    assert (features[..., 0] > features[..., 2]).any()


def test_features_by_name_are_zero_where_the_retriever_does_not_give_optional_ones(prepared: PreparedDataset) -> None:
    first, *_, last = prepared.feature_names
    picked = prepared.with_features([last, first])
    assert picked.feature_names == (last, first)
    assert torch.equal(picked.ranking.features, prepared.ranking.features[..., [-1, 0]])
    assert torch.equal(picked.ranking.nodes, prepared.ranking.nodes)
    with pytest.raises(
        ValueError, match=r"needs the scores \['pagerank'\] of each candidate, but the retriever only provides"
    ):
        prepared.with_features(["pagerank"])
    names = [*prepared.feature_names, "hops", "best_seed_score", "best_seed_reciprocal_rank", "seeds_reached"]
    wide = prepared.with_features(names)
    assert (list(wide.feature_names), wide.ranking.features is not None) == (names, True)
    assert torch.equal(wide.ranking.features[..., :3], prepared.ranking.features)
    assert (wide.ranking.features[..., 3:] == 0).all()
    swapped = prepared.with_features(["hops", "dense_score"])
    assert torch.equal(swapped.ranking.features[..., 1], prepared.ranking.features[..., 2])
    assert (swapped.ranking.features[..., 0] == 0).all()


def prepare_lists(dataset: Dataset, cache: Path, **arguments: Any) -> PreparedDataset:
    return prepare(dataset, encoder=None, build_retriever=partial(ListRetriever, **arguments), cache=cache)


def test_without_an_encoder_there_are_no_vectors(dataset: Dataset, tmp_path: Path) -> None:
    prepared = prepare_lists(dataset, tmp_path)
    assert (prepared.query_vectors, prepared.encoder_name, prepared.encoder_fingerprint) == (None, None, None)
    assert prepared.dataset.graph.embedding is None
    graphs = prepared.graphs(torch.tensor([0]))
    assert (graphs.num_nodes, graphs.inputs) == (9, {})
    with pytest.raises(
        ValueError, match=r"the model needs vectors of data set 'ring', got no encoder; use encoder=minilm"
    ):
        prepared.graphs(torch.tensor([0]), inputs=VECTORS)
    known = prepared.with_features(["base_score", "bm25_score", "dense_score"]).ranking.features
    assert known[0, 0].tolist() == [9, 0, 0]


def test_candidates_before_expansion_are_kept(dataset: Dataset, tmp_path: Path) -> None:
    """Query ``q`` has the relevant nodes ``q`` and ``q + 1``; training queries are 0 to 23."""
    for _ in range(2):  # made, then from the cache
        prepared = prepare_lists(dataset, tmp_path, first=20, base_first=3).with_features(["base_score"])
        assert prepared.ceiling("train") == pytest.approx(4 / 24)  # 20 to 23
        assert torch.equal(prepared.ranking.base_nodes, torch.arange(3, 12).expand(40, 9))
        plain = prepare_lists(dataset, tmp_path, first=20).ranking
        assert torch.equal(plain.base_nodes, plain.nodes)


class LengthPairEncoder:
    """Gives each pair the lengths of its texts."""

    hidden_size = 2
    fingerprint = "lengths"

    def encode(self, query_texts: Sequence[str], passages: Sequence[str]) -> Tensor:
        return torch.tensor([[len(q), len(p)] for q, p in zip(query_texts, passages, strict=True)], dtype=torch.float32)

    def head(self, vectors: Tensor) -> Tensor:
        return vectors.sum(-1)


class PlainPairEncoder(LengthPairEncoder, PairEncoder):
    """Has no layers that can be divided."""


class LetterStates(LengthPairEncoder, PairEncoder):
    """Gives each pair, as states, the letters of its passage and the number of omitted layers."""

    def encode_states(
        self, query_texts: Sequence[str], passages: Sequence[str], *, without_last: int
    ) -> tuple[Tensor, Tensor]:
        states = [float(ord(letter)) + without_last / 100 for passage in passages for letter in passage]
        return torch.tensor(states).unsqueeze(1), torch.tensor([0, *map(len, passages)]).cumsum(0)


def test_states_of_tokens_against_naive_loop(prepared: PreparedDataset) -> None:
    with_pairs = replace(prepared, pair_encoder=LetterStates())
    graphs = with_pairs.graphs(torch.tensor([31, 4]), split="test", inputs=token_states(2))
    assert set(graphs.inputs) == {"token_states", "token_ptr", "degree"}
    states, token_ptr = graphs.inputs["token_states"], graphs.inputs["token_ptr"]
    assert len(token_ptr) == graphs.num_nodes + 1
    for position, node in enumerate(graphs.nodes.tolist()):
        letters = states[token_ptr[position] : token_ptr[position + 1], 0]
        assert "".join(chr(int(letter)) for letter in letters) == prepared.dataset.graph.texts[node]
    torch.testing.assert_close(states % 1, torch.full_like(states, 0.02), atol=1e-4, rtol=0)
    with pytest.raises(ValueError, match="candidates of a batch with `token_states` cannot be selected"):
        graphs.select_nodes(torch.ones(graphs.num_nodes, dtype=torch.bool))


def test_an_encoder_without_layers_has_no_states(prepared: PreparedDataset) -> None:
    with_pairs = replace(prepared, pair_encoder=PlainPairEncoder())
    with pytest.raises(ValueError, match="`pair_encoder` must be a CrossEncoder for a model of its last layers"):
        with_pairs.graphs(torch.tensor([31]), split="test", inputs=token_states(1))


def test_pair_vectors_against_naive_loop(prepared: PreparedDataset) -> None:
    with_pairs = replace(prepared, pair_encoder=LengthPairEncoder())
    queries = torch.tensor([31, 4])
    graphs = with_pairs.graphs(queries, split="test", inputs=PAIRS)
    expected = [
        [len(prepared.dataset.query_texts[query]), len(prepared.dataset.graph.texts[node])]
        for query, start, stop in zip(queries.tolist(), graphs.ptr[:-1].tolist(), graphs.ptr[1:].tolist(), strict=True)
        for node in graphs.nodes[start:stop].tolist()
    ]
    assert set(graphs.inputs) == {"pair_vectors", "degree"}
    assert graphs.inputs["pair_vectors"].tolist() == expected
    # of the ring with chords, not of the candidates
    assert graphs.inputs["degree"].tolist() == [4] * graphs.num_nodes
    assert with_pairs.graphs(queries).inputs == {}
    with pytest.raises(ValueError, match="the model needs a `pair_encoder` for data set 'ring', got None"):
        prepared.graphs(queries, inputs=PAIRS)


def naive(scores: list[float], read: list[bool]) -> list[list[float]]:
    known = [score for score, is_read in zip(scores, read, strict=True) if is_read]
    rows = []
    for score, is_read in zip(scores, read, strict=True):
        if not is_read:
            rows.append([0.0, 0.0, float(bool(known))])
            continue
        rank = sum(other > score for other in known) + (known.count(score) + 1) / 2  # the mean rank of ties
        spread = max(known) - min(known)
        rows.append([(score - min(known)) / spread if spread else 0.0, 1 / rank, 0.0])
    return rows


def test_against_naive_loop() -> None:
    generator = torch.Generator().manual_seed(0)
    scores = (torch.randn(50, 7, generator=generator) * 3).round()  # with ties
    read = torch.rand(50, 7, generator=generator) < 0.6
    read[0], read[1] = True, False
    scores = torch.where(read, scores, torch.nan)
    expected = [naive(*row) for row in zip(scores.tolist(), read.tolist(), strict=True)]
    torch.testing.assert_close(cross_encoder_columns(scores, read), torch.tensor(expected))


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
    assert torch.equal(columns[queries][..., 2], torch.tensor([0.0] * 3 + [1.0] * 9).expand(2, 12))
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
    assert len(reader.pairs) == 12
    assert not found.ranking.features[5, :, -1].any()  # nothing is unread
    none = with_cross_encoder(prepared, reader, torch.tensor([], dtype=torch.int64), top_k=20)
    assert not none.ranking.features[..., -3:].any()
    hidden = prepared.with_features(none.feature_names)  # without a cross-encoder
    assert torch.equal(hidden.ranking.features, none.ranking.features)
    with pytest.raises(ValueError, match="`top_k` must be a positive integer, got 0"):
        with_cross_encoder(prepared, reader, torch.tensor([5]), top_k=0)


class Noting(L.LightningModule):
    """Notes the queries of each step; may fail at one, as a machine may."""

    def __init__(self, stop_at: int | None, *, steps: int) -> None:
        super().__init__()
        self.steps, self.stop_at = steps, stop_at
        self.weight = torch.nn.Parameter(torch.ones(1))
        self.seen: list[list[int]] = []

    def training_step(self, batch: CandidateGraphs, _: int) -> torch.Tensor:
        if self.global_step == self.stop_at:
            raise RuntimeError("power cut")
        self.seen.append(batch.query_index.tolist())
        return (self.weight * batch.x.sum()).sum()

    def validation_step(self, batch: CandidateGraphs, *_: int) -> None:
        pass

    def configure_optimizers(self) -> torch.optim.Optimizer:
        assert self.trainer.estimated_stepping_batches == self.steps  # reads batches before a checkpoint is restored
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.parametrize(("sets", "stop_at"), [(1, 3), (1, 8), (2, 17)])
def test_a_broken_run_goes_on_within_the_epoch(dataset: Dataset, tmp_path: Path, sets: int, stop_at: int) -> None:
    """Two epochs with a checkpoint after each step, until the end or a power cut."""
    ranked = prepare(dataset, encoder=None, build_retriever=partial(BM25Retriever, top_k=5), cache=tmp_path)

    def run(name: str, *, stop_at: int | None = None, resume: Path | None = None) -> list[list[int]]:
        keep = ModelCheckpoint(tmp_path / name, save_last=True, every_n_train_steps=1)
        trainer = L.Trainer(
            max_epochs=2, callbacks=[keep], logger=False, enable_progress_bar=False, accelerator="cpu",
            use_distributed_sampler=False, enable_model_summary=False,
        )  # fmt: skip
        noting = Noting(stop_at, steps=12 * sets)
        data = CandidateDataModule({str(number): ranked for number in range(sets)}, batch_size=4, seed=1)
        try:
            trainer.fit(noting, datamodule=data, ckpt_path=resume, weights_only=True)
        except RuntimeError:
            assert stop_at is not None
        return noting.seen

    whole = run("whole")
    assert run("broken", stop_at=stop_at) == whole[:stop_at]
    assert run("resumed", resume=tmp_path / "broken" / "last.ckpt") == whole[stop_at:]
