import torch

from graphrerank.corpus.edge_types import REFERENCE
from graphrerank.feedback.learning import LearningData
from graphrerank.feedback.stages import FEW_PARAMETERS, STAGES, ModelUpdate, exact_scores, fit_stage, quick_scores


def targets_of(material: LearningData, prefix: str) -> torch.Tensor:
    """Say that the passage of a topic with some first letter is relevant."""
    ids = material.prepared.dataset.graph.node_ids
    topics = range(len(material.lists.nodes))
    rows = [
        [node >= 0 and ids[node] == f"{prefix}{topic}" for node in material.lists.nodes[topic].tolist()]
        for topic in topics
    ]
    return torch.tensor(rows, dtype=torch.float64)


def share(material: LearningData, scores: torch.Tensor, targets: torch.Tensor) -> float:
    """Return the mean log-probability of the relevant passages."""
    log = torch.log_softmax(scores.double().masked_fill(~material.lists.mask, -1e30), dim=1)
    return float(log[targets > 0].mean())


def test_parts_of_scores_add_up_to_the_models(material: LearningData) -> None:
    every = torch.arange(len(material.lists.nodes))
    exact = exact_scores(material.model, material.prepared, every)
    torch.testing.assert_close(torch.where(material.lists.mask, material.lists.scores, 0.0), exact)
    assert REFERENCE in material.lists.types


def test_factors_are_folded_into_the_weights(material: LearningData) -> None:
    """Factors of the retriever and the network are exact; those of types to first order."""
    every, parts = torch.arange(len(material.lists.nodes)), (material.model, material.prepared, material.lists)
    change = fit_stage(FEW_PARAMETERS, *parts, every, targets_of(material, "t"))
    quick = quick_scores(change, *parts, every)
    exact = exact_scores(change.model, material.prepared, every)
    correlation = torch.corrcoef(torch.stack([quick[material.lists.mask], exact[material.lists.mask]]))[0, 1]
    assert float(correlation) > 0.95
    types = dict.fromkeys(list(change.factors)[2:], 1.0)
    scaled = quick_scores(
        ModelUpdate(FEW_PARAMETERS, material.model, {"retriever": 2.0, "model": 0.5, **types}), *parts, every
    )
    torch.testing.assert_close(scaled, 2 * material.lists.gcs_scores + 0.5 * material.lists.learned)


def test_every_stage_raises_what_was_clicked(material: LearningData) -> None:
    lists, wanted = material.lists, targets_of(material, "t")
    every = torch.arange(len(lists.nodes))
    before = share(material, lists.scores, wanted)
    state = {name: weight.clone() for name, weight in material.model.state_dict().items()}
    for stage in STAGES:
        change = fit_stage(stage, material.model, material.prepared, lists, every, wanted)
        assert share(material, exact_scores(change.model, material.prepared, every), wanted) > before, stage
    assert all(torch.equal(weight, state[name]) for name, weight in material.model.state_dict().items())


def test_the_parents_own_shares_change_nothing(material: LearningData) -> None:
    shares = torch.softmax(material.lists.scores.double().masked_fill(~material.lists.mask, -1e30), dim=1)
    change = fit_stage(
        FEW_PARAMETERS, material.model, material.prepared, material.lists, torch.arange(len(shares)), shares
    )
    assert all(abs(factor - 1) < 0.02 for factor in change.factors.values())
