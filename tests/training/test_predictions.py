"""``Trainer.test``, ``Trainer.predict`` and ``load_from_checkpoint`` with plain Lightning."""

from functools import partial
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor, nn

from graphrerank.core import ModelInputs, Reranker
from graphrerank.data.candidates import PreparedDataset
from graphrerank.data.datamodule import CandidateDataModule
from graphrerank.evaluation.reranking import measure_queries, trained_system
from graphrerank.losses import smooth_perfect_recall
from graphrerank.models.gatv2_reranker import GATv2Reranker
from graphrerank.training import RerankerModule, TrecRunWriter
from graphrerank.training.hyperparameters import build_loss, loss_entry
from graphrerank.training.predictions import flat_predictions
from graphrerank.training.weighted_loss import WeightedLoss
from graphrerank.utils.checks import UserError
from graphrerank_papers.ea_graphrag.adapter_module import AdapterDataModule, AdapterModule
from tests.papers.ea_graphrag.rows import module as adapter_module
from tests.papers.ea_graphrag.rows import planted
from tests.papers.ea_graphrag.rows import trainer as adapter_trainer
from tests.training.test_reranker_module import module, trainer


class Linear(Reranker):
    """Model of this test, outside of the package."""

    inputs = ModelInputs(("base_features",))

    def __init__(self, num_scores: int, **others: Any) -> None:
        super().__init__()
        self.score = nn.Linear(num_scores, 1)

    def forward(self, base_features: Tensor) -> Tensor:
        return self.score(base_features).squeeze(1)


def fitted(toy: PreparedDataset, folder: Path, made: RerankerModule) -> tuple[L.Trainer, CandidateDataModule]:
    data = CandidateDataModule(toy, batch_size=8, test_split="val")
    run = trainer(folder, ModelCheckpoint(folder, filename="mine"), max_epochs=2)
    run.fit(made, data)
    return run, data


def test_test_measures_the_test_split(toy: PreparedDataset, tmp_path: Path) -> None:
    made = module()
    run, data = fitted(toy, tmp_path, made)
    (measured,) = run.test(made, data, verbose=False)
    expected = measure_queries(
        toy, "val", trained_system("mine", made.model, torch.device("cpu")), measures=["nDCG@10", "PR@2"]
    )
    assert measured["test/ndcg@10"] == pytest.approx(float(expected["nDCG@10"].mean()))
    assert measured["test/pr@2"] == pytest.approx(float(expected["PR@2"].mean()))
    assert "test/loss" in measured


def test_predict_ranks_ids_with_probabilities(toy: PreparedDataset, tmp_path: Path) -> None:
    made = module()
    run, data = fitted(toy, tmp_path, made)
    ranked = flat_predictions(run.predict(made, data))
    queries = toy.dataset.split("val").queries
    assert [each.query_id for each in ranked] == [toy.dataset.query_ids[query] for query in queries.tolist()]
    for each, query in zip(ranked, queries.tolist(), strict=True):
        ids = {toy.dataset.graph.node_ids[node] for node in toy.ranking.nodes[query].tolist()}
        assert set(each.passage_ids) == ids
        assert each.probabilities is not None
        assert bool(((each.probabilities >= 0) & (each.probabilities <= 1)).all())
        assert bool((each.scores.diff() <= 0).all())
        assert bool((each.probabilities.diff() <= 0).all())
    mean = torch.stack([each.probabilities.mean() for each in ranked if each.probabilities is not None]).mean()
    assert float(mean) == pytest.approx(2 / 12, abs=0.03)  # two of twelve candidates are relevant


def test_an_untrained_module_has_no_probabilities(toy: PreparedDataset, tmp_path: Path) -> None:
    data = CandidateDataModule(toy, batch_size=8, test_split="val")
    ranked = flat_predictions(trainer(tmp_path).predict(module(), data))
    assert {each.probabilities for each in ranked} == {None}


def test_predict_needs_ids(toy: PreparedDataset, tmp_path: Path) -> None:
    data = CandidateDataModule(toy, batch_size=8)
    with pytest.raises(UserError, match=r"needs batches with the ids .* got CandidateGraphs"):
        trainer(tmp_path).predict(module(), data.val_dataloader())


def test_a_missing_test_split_is_named(toy: PreparedDataset, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="test"):
        trainer(tmp_path).test(module(), CandidateDataModule(toy, batch_size=8))


def test_several_data_sets_are_tested_by_name(toy: PreparedDataset, tmp_path: Path) -> None:
    data = CandidateDataModule({"a": toy, "b": toy}, batch_size=8, test_split="val", tested=["b"])
    (measured,) = trainer(tmp_path).test(module(val_names=["a", "b"]), data, verbose=False)
    assert "test/b/ndcg@10" in measured
    assert "test/a/ndcg@10" not in measured


def test_a_callback_writes_a_run(toy: PreparedDataset, tmp_path: Path) -> None:
    writer = TrecRunWriter(tmp_path / "mine.trec", tag="mine")
    data = CandidateDataModule(toy, batch_size=8, test_split="val")
    ranked = flat_predictions(trainer(tmp_path, writer).predict(module(), data))
    lines = [line.split() for line in (tmp_path / "mine.trec").read_text().splitlines()]
    assert [(line[0], line[2]) for line in lines] == [
        (each.query_id, id_) for each in ranked for id_ in each.passage_ids
    ]
    assert (lines[0][1], lines[0][3], lines[0][5]) == ("Q0", "1", "mine")


@pytest.mark.parametrize("network", ["built-in", "own"])
def test_a_checkpoint_rebuilds_its_module(network: str, toy: PreparedDataset, tmp_path: Path) -> None:
    model = Linear(3, note="a") if network == "own" else GATv2Reranker(hidden_channels=16, num_layers=2, heads=2)
    loss = partial(smooth_perfect_recall, top_k=2)
    made = RerankerModule(model, loss, measures=["PR@2"], learning_rate=0.02, divergence=0.1)
    _, data = fitted(toy, tmp_path, made)
    again = RerankerModule.load_from_checkpoint(tmp_path / "mine.ckpt")
    assert type(again.model) is type(model)
    assert (again.learning_rate, again.divergence, [each.name for each in again.measures]) == (0.02, 0.1, ["PR@2"])
    assert loss_entry(again.loss) == loss_entry(loss)
    assert again.calibration == made.calibration is not None
    assert all(torch.equal(weight, again.state_dict()[name]) for name, weight in made.state_dict().items())
    before, after = (flat_predictions(trainer(tmp_path).predict(each, data)) for each in (made, again))
    assert [each.passage_ids for each in before] == [each.passage_ids for each in after]


def test_what_a_checkpoint_cannot_describe_must_be_passed(toy: PreparedDataset, tmp_path: Path) -> None:
    class Other(nn.Module):
        inputs = ModelInputs(("base_features",))

        def __init__(self) -> None:
            super().__init__()
            self.score = nn.Linear(3, 1)

        def forward(self, base_features: Tensor) -> Tensor:
            return self.score(base_features).squeeze(1)

    def squares(scores: Tensor, relevance: Tensor, mask: Tensor) -> Tensor:
        return ((scores - relevance) ** 2)[mask].mean()

    fitted(toy, tmp_path, RerankerModule(Other(), squares, measures=["PR@2"]))
    path = tmp_path / "mine.ckpt"
    with pytest.raises(UserError, match="`model` must be passed to load_from_checkpoint"):
        RerankerModule.load_from_checkpoint(path)
    with pytest.raises(UserError, match=r"`loss` must be passed .* trained with .*squares"):
        RerankerModule.load_from_checkpoint(path, model=Other())
    assert RerankerModule.load_from_checkpoint(path, model=Other(), loss=squares).loss is squares
    with pytest.raises(UserError, match="no such file"):
        RerankerModule.load_from_checkpoint(tmp_path / "other.ckpt")
    with pytest.raises(UserError, match="`weights_only` must be True"):
        RerankerModule.load_from_checkpoint(path, weights_only=False)


def test_the_adapter_is_tested_predicts_and_is_rebuilt(tmp_path: Path) -> None:
    made = adapter_module(planted(120), label_smoothing=0.2)
    data = AdapterDataModule(planted(120), planted(40, 1), test=planted(40, 2))
    run = adapter_trainer(tmp_path, max_epochs=2)
    run.fit(made, data)
    (measured,) = run.test(made, data, verbose=False)
    assert set(measured) == {"test/loss", "test/auc"}
    (probabilities,) = run.predict(made, data)
    again = AdapterModule.load_from_checkpoint(tmp_path / "last.ckpt")
    assert again.label_smoothing == 0.2
    torch.testing.assert_close(again.eval()(planted(40, 2).features), probabilities)
    with pytest.raises(UserError, match="`test` must be the rows"):
        run.test(made, AdapterDataModule(planted(120), planted(40, 1)), verbose=False)


def test_a_weighted_loss_is_described_and_rebuilt() -> None:
    loss = WeightedLoss({"listwise": 1.0, "smooth_pr": {"weight": 0.5, "top_k": 2}})
    again = build_loss(loss_entry(loss))
    assert [term.weight for term in again.terms] == [1.0, 0.5]
    assert loss_entry(again) == loss_entry(loss)
