import pytest
import torch

from graphrerank.data.candidates import PreparedDataset
from graphrerank.evaluation.baselines import baseline_row_name, baseline_settings, baseline_systems, reranking_systems
from graphrerank.evaluation.reranking import rerank
from graphrerank.models.checkpoint import load_primary
from graphrerank.operators.gcs import GCS
from graphrerank.operators.ppr import PPR

PROBS = {"gcs": 0.3, "ppr": 0.2}


def test_baselines_are_the_retriever_ppr_and_gcs_with_their_restart_probabilities(prepared: PreparedDataset) -> None:
    retriever, ppr, gcs = baseline_systems(PROBS)
    assert (retriever.name, ppr.name, gcs.name) == ("retriever", "ppr", "gcs")
    assert (retriever.reads_graph, ppr.reads_graph, gcs.reads_graph) == (False, True, True)
    graphs = prepared.graphs(torch.arange(3))
    assert torch.equal(retriever.score(graphs), graphs.x[:, 0])
    assert torch.equal(ppr.score(graphs), PPR(restart_prob=0.2).score(graphs))
    assert torch.equal(gcs.score(graphs), GCS(restart_prob=0.3).score(graphs))
    assert torch.equal(rerank(prepared, torch.arange(3), retriever).nodes, prepared.ranking.nodes)


def test_trained_models_come_after_baselines_and_scorers() -> None:
    model = load_primary("base").model
    (scorer,) = baseline_systems(PROBS)[:1]
    rows = reranking_systems({"mine": model}, PROBS, device=torch.device("cpu"), scorers=[scorer])
    assert [row.name for row in rows] == ["retriever", "ppr", "gcs", "retriever", "mine"]


def test_settings_of_a_checkpoint_determine_its_baselines() -> None:
    manifest = load_primary("base").reranker
    assert baseline_settings(manifest) == {
        "retriever": None, **manifest.operators, "rank_fusion": manifest.operators["ppr"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"a": {"gcs": 0.3}, "b": {"gcs": 0.3}}, ["gcs", None]),
        ({"a": {"gcs": 0.3}, "b": {"gcs": 0.5}, "c": {"gcs": 0.3}}, ["gcs-a", "gcs-b", None]),
        ({"a": {"gcs": 0.3}, "b": {}}, ["gcs"]),
    ],
)
def test_one_row_per_distinct_setting(settings: dict[str, dict[str, float]], names: list[str | None]) -> None:
    assert [baseline_row_name("gcs", label, settings) for label in settings if "gcs" in settings[label]] == names
