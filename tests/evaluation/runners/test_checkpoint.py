from dataclasses import replace
from pathlib import Path

import pytest
import torch

from graphrerank.config.components import ComponentFactory
from graphrerank.core import CandidateGraphs
from graphrerank.core.model_inputs import PAIRS, VECTORS
from graphrerank.core.retriever import CROSS_ENCODER_FEATURES
from graphrerank.data.candidates import PreparedDataset
from graphrerank.evaluation.reranking import rerank
from graphrerank.evaluation.runners.base import RankingTask
from graphrerank.evaluation.runners.checkpoint import (
    CheckpointGroup,
    CheckpointRunner,
    checkpoint_row,
    run_reranker,
)
from graphrerank.evaluation.systems import System, base_ranking
from graphrerank.models.checkpoint import load_primary
from graphrerank.utils.files import hash_files
from tests.support.encoders import HashPairEncoder

RETRIEVER = System("retriever", base_ranking, reads_graph=False)


def prefer_first_triangle(graphs: CandidateGraphs) -> torch.Tensor:
    return -graphs.nodes.float()


def test_a_ranked_system_holds_its_ranking_and_what_it_took(prepared: PreparedDataset) -> None:
    queries = torch.tensor([0, 2])
    search = {"retrieve": [1.0, 1.0]}
    row = run_reranker(prepared, queries, System("first", prefer_first_triangle), search=search)
    assert (row.name, row.kind, row.source, row.on_other_edges) == ("first", "operator", "first", {})
    assert torch.equal(row.ranking.nodes, rerank(prepared, queries, System("first", prefer_first_triangle)).nodes)
    assert list(row.cost.ms) == ["retrieve", "graph", "rerank", "total"]
    assert row.cost.ms["total"]["p50"] == pytest.approx(1 + row.cost.latency_ms["p50"])  # retrieval is not its own
    assert row.cost.encodings is None
    alone = run_reranker(prepared, queries, RETRIEVER)
    assert alone.cost.ms["total"] == alone.cost.latency_ms


def test_systems_see_edges_and_vectors_only_where_they_ask(prepared: PreparedDataset) -> None:
    seen = {}

    def spy(name: str):
        def score(graphs: CandidateGraphs) -> torch.Tensor:
            seen[name] = (graphs.edge_index.shape[1], "node_vectors" in graphs.inputs, graphs.num_graphs)
            return graphs.x[:, 0]

        return score

    for system in (System("a", spy("a"), reads_graph=False), System("b", spy("b"), inputs=VECTORS)):
        run_reranker(prepared, torch.arange(3), system)
    assert seen["a"][:2] == (0, False)
    assert seen["b"][0] > 0
    assert seen["b"][1:] == (True, 1)  # the last calls time one query at a time


def test_pairs_are_counted_where_a_system_reads_them(prepared: PreparedDataset) -> None:
    reading = replace(prepared, pair_encoder=HashPairEncoder())
    pairs = System("pairs", lambda graphs: graphs.inputs["pair_vectors"][:, 0], inputs=PAIRS)
    row, plain = (run_reranker(reading, torch.arange(3), system) for system in (pairs, RETRIEVER))
    assert (row.cost.encodings, plain.cost.encodings) == (4.0, None)


def group(*labels: str, top_k: int | None = None) -> CheckpointGroup:
    checkpoint = load_primary("base")
    return CheckpointGroup("runs/mine", dict.fromkeys(labels, checkpoint), top_k)


def of_base(prepared: PreparedDataset) -> PreparedDataset:
    """A data set with constant values in all columns that `base` reads."""
    names = load_primary("base").reranker.retriever.feature_names
    features = prepared.ranking.features.expand(-1, -1, len(names)).contiguous()
    return replace(prepared, ranking=replace(prepared.ranking, features=features), feature_names=tuple(names))


def test_checkpoints_stand_below_baselines_of_one_setting(prepared: PreparedDataset) -> None:
    groups = {"one": group("one"), "two": group("two-a", "two-b")}
    scorer = System("scorer", prefer_first_triangle)
    runner = CheckpointRunner(groups, ComponentFactory(), scorers=[scorer], edge_ablations=["removed"])
    data = of_base(prepared)
    rows = runner.run(RankingTask(data.dataset, "val", torch.tensor([0, 2]), data))
    assert {label: [row.name for row in listed] for label, listed in rows.items()} == {
        "": ["retriever", "ppr", "gcs", "rank_fusion", "scorer"], "one": ["one"], "two": ["two-a", "two-b"],
    }  # fmt: skip
    one, (first, _) = rows["one"][0], rows["two"]
    assert torch.equal(one.ranking.scores, first.ranking.scores)
    assert (one.kind, one.source) == ("checkpoint", "runs/mine")
    assert one.fingerprint == hash_files([load_primary("base").path])
    assert one.calibration == load_primary("base").reranker.calibration
    assert list(one.on_other_edges) == ["removed"]
    assert [list(row.on_other_edges) for row in rows[""]] == [[], *[["removed"]] * 4]


def test_pairs_of_a_given_cross_encoder_are_counted(prepared: PreparedDataset) -> None:
    row = run_reranker(prepared, torch.tensor([0]), RETRIEVER)
    checkpoint = load_primary("base")
    assert checkpoint_row(row, checkpoint, group("one", top_k=2)).cost.encodings == 2.0
    assert checkpoint_row(row, checkpoint, group("one", top_k=20)).cost.encodings == 4.0  # as many as candidates
    assert checkpoint_row(row, checkpoint, group("one")).cost.encodings is None


def test_a_data_set_gets_the_columns_and_the_cross_encoder_of_a_checkpoint(
    prepared: PreparedDataset, tmp_path: Path
) -> None:
    data, queries = of_base(prepared), torch.tensor([0, 2])
    plain = CheckpointRunner({"one": group("one")}, ComponentFactory())
    assert plain.prepare(plain.groups["one"], data, queries).pair_encoder is None
    encoder = HashPairEncoder()
    components = ComponentFactory(cache=tmp_path)
    runner = CheckpointRunner({"one": group("one", top_k=2)}, components, pair_encoder=encoder)
    scored = runner.prepare(runner.groups["one"], data, queries)
    assert encoder.pairs == [("", "")]  # all texts are empty, and a pair is read once
    assert scored.feature_names == data.feature_names
    columns = [column for column, name in enumerate(scored.feature_names) if name in CROSS_ENCODER_FEATURES]
    assert columns
    changed = (scored.ranking.features != data.ranking.features).any(0).any(0).nonzero().flatten().tolist()
    assert set(changed) <= set(columns)
    assert changed
