"""Training on the scores of a teacher, with and without judgements."""

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from torch import Tensor, nn

from graphrerank import fit
from graphrerank.config.components import ComponentFactory
from graphrerank.data.candidates import PreparedDataset
from graphrerank.data.datamodule import CandidateDataModule
from graphrerank.data.dataset import Dataset
from graphrerank.data.teachers import CrossEncoderTeacher, RunTeacher, Teacher
from graphrerank.losses import kl_divergence, listwise_softmax_cross_entropy, margin_mse
from graphrerank.models.gatv2_reranker import GATv2Reranker
from graphrerank.models.manifest import read_manifest
from graphrerank.training.distillation import build_teacher, unjudged_queries, with_teacher
from graphrerank.training.reranker_module import RerankerModule
from tests.support.encoders import HashPairEncoder
from tests.support.folders import write_word_pairs

QUIET = {"enable_progress_bar": False, "accelerator": "cpu"}
NO_QUERIES = torch.tensor([], dtype=torch.int64)


@dataclass(frozen=True, kw_only=True)
class ThirdFeature(Teacher):
    """Scores the candidates of the toy data set as its judgements do, except for some queries and ranks."""

    silent: tuple[int, ...] = ()
    depth: int = 12
    sign: float = 1.0
    fingerprint = "third"

    def score(self, prepared: PreparedDataset, queries: Tensor) -> Tensor:
        assert prepared.ranking.features is not None
        scores = self.sign * 9 * prepared.ranking.features[queries, :, 2].clone()
        scores[:, self.depth :] = torch.nan
        scores[torch.isin(queries, torch.tensor(self.silent))] = torch.nan
        return scores


def without_judgements(prepared: PreparedDataset, *splits: str) -> PreparedDataset:
    remaining = {name: qrels for name, qrels in prepared.dataset.splits.items() if name not in splits}
    return replace(prepared, dataset=replace(prepared.dataset, splits=remaining))


def taught(prepared: PreparedDataset, teacher: Teacher, unjudged: Tensor | None = None) -> PreparedDataset:
    queries = unjudged_queries(prepared.dataset) if unjudged is None else unjudged
    return with_teacher(prepared, teacher, train_split="train", val_split="val", unjudged=queries)


def test_questions_of_the_training_split_and_without_judgements_are_taught(toy: PreparedDataset) -> None:
    few = replace(
        toy.dataset, splits={**toy.dataset.splits, "train": toy.dataset.split("train").select_queries(torch.arange(5))}
    )
    result = taught(replace(toy, dataset=few), ThirdFeature())
    assert result.teacher is not None
    assert result.training_queries("train").tolist() == list(range(32))
    assert not result.teacher.labels_validation
    assert not result.teacher.scores.isnan().any()  # validation questions are scored, too
    batch = result.graphs(torch.tensor([3, 31]), split="train")
    assert batch.teacher_scores is not None
    assert torch.equal(batch.teacher_scores.view(2, -1), result.teacher.scores[[3, 31]])
    assert batch.relevance is not None
    assert [float(part.sum()) for part in batch.relevance.view(2, -1)] == [2.0, 0.0]
    assert result.dataset.fingerprint == few.fingerprint


def test_a_corpus_without_judgements_is_validated_on_the_best_candidates(
    toy: PreparedDataset, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        result = taught(without_judgements(toy, "train", "val"), ThirdFeature())
    assert "there is no split 'val', so 4 questions without judgements are held out" in caplog.text
    qrels = result.dataset.split("val")
    assert qrels.queries.tolist() == [9, 19, 29, 39]
    assert toy.ranking.features is not None
    best = toy.ranking.features[qrels.query, :, 2].argmax(1, keepdim=True)
    assert torch.equal(qrels.node, toy.ranking.nodes[qrels.query].gather(1, best).squeeze(1))
    assert result.teacher is not None
    assert result.teacher.labels_validation
    assert sorted([*result.training_queries("train").tolist(), 9, 19, 29, 39]) == list(range(48))


@pytest.mark.parametrize(("unscored", "expected"), [("lowest", 0), ("ignore", 9)])
def test_candidates_without_a_score(toy: PreparedDataset, unscored: str, expected: int) -> None:
    result = taught(toy, ThirdFeature(depth=3, unscored=unscored))
    assert result.teacher is not None
    scores = result.teacher.scores[0]
    assert int(scores.isnan().sum()) == expected
    assert expected or torch.equal(scores[3:], scores[:3].min().expand(9))


def test_a_question_without_scores_is_an_error_by_default(toy: PreparedDataset) -> None:
    message = (
        r"the teacher ThirdFeature must score at least two candidates of each of the 32 training questions of 'toy', "
        r"got fewer for 2 of them, such as 'q7'"
    )
    with pytest.raises(ValueError, match=message):
        taught(toy, ThirdFeature(silent=(7, 9)))
    with pytest.raises(ValueError, match="got fewer for 32 of them"):
        taught(toy, ThirdFeature(depth=1))
    result = taught(toy, ThirdFeature(silent=(7, 9, 40), allow_missing=True))
    assert result.teacher is not None
    assert set(range(32)) - set(result.teacher.queries.tolist()) == {7, 9}
    assert len(result.training_queries("train")) == 32  # they have judgements


def test_a_run_of_the_training_questions_alone_is_enough(toy: PreparedDataset, tmp_path: Path) -> None:
    run = tmp_path / "train.trec"
    ids, nodes = toy.dataset.graph.node_ids, toy.ranking.nodes[:32].tolist()
    lines = [f"q{q} Q0 {ids[n]} 1 {rank} t\n" for q, row in enumerate(nodes) for rank, n in enumerate(row)]
    run.write_text("".join(lines))
    result = taught(toy, RunTeacher(path=run))
    assert result.teacher is not None
    assert torch.equal(result.teacher.scores[:32], torch.arange(12.0).expand(32, 12))
    assert result.teacher.scores[32:].isnan().all()


def test_a_teacher_that_is_worse_than_the_retriever_is_reported(
    toy: PreparedDataset, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        taught(toy, ThirdFeature())
    assert "nDCG@10 of the teacher 1.000, of the retriever" in caplog.text
    assert "worse than the retriever" not in caplog.text
    taught(toy, ThirdFeature(sign=-1.0))
    assert "the teacher ranks split 'val' worse than the retriever" in caplog.text


def test_scores_that_do_not_fit_are_refused(toy: PreparedDataset) -> None:
    class Wrong(ThirdFeature):
        def score(self, prepared: PreparedDataset, queries: Tensor) -> Tensor:
            return super().score(prepared, queries)[:, :5]

    with pytest.raises(ValueError, match=r"the teacher Wrong must return finite scores of shape \[48, 12\]"):
        taught(toy, Wrong())


def test_a_data_set_without_questions_is_refused(toy: PreparedDataset) -> None:
    with pytest.raises(ValueError, match="has no judged questions, so there is no split 'val'"):
        taught(without_judgements(toy, "train", "val"), ThirdFeature(), NO_QUERIES)
    with pytest.raises(ValueError, match="must have the split 'train'"):
        taught(without_judgements(toy, "train"), ThirdFeature(), NO_QUERIES)


@pytest.mark.parametrize("loss", ["kl", "margin_mse"])
def test_learns_the_ranking_of_the_teacher_without_judgements(loss: str, toy: PreparedDataset, tmp_path: Path) -> None:
    result = taught(without_judgements(toy, "train"), ThirdFeature())
    data = CandidateDataModule(result, batch_size=8)
    assert sum(batch.num_graphs for batch in data.train_dataloader()) == 32
    torch.manual_seed(0)
    model = GATv2Reranker(hidden_channels=16, num_layers=2, heads=2)
    function = {"kl": kl_divergence, "margin_mse": margin_mse}[loss]
    module = RerankerModule(model, function, learning_rate=1e-2, warmup_steps=3, measures=["nDCG@10"])
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=40,
        check_val_every_n_epoch=40,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        default_root_dir=tmp_path,
    )
    before = float(trainer.validate(module, data, verbose=False)[0]["val/ndcg@10"])
    trainer.fit(module, data)
    assert before < 0.6
    assert float(trainer.callback_metrics["val/ndcg@10"]) > 0.9
    without_teacher = CandidateDataModule(toy, batch_size=8)
    assert float(trainer.validate(module, without_teacher, verbose=False)[0]["val/ndcg@10"]) > 0.9
    batch = next(iter(without_teacher.train_dataloader()))
    with pytest.raises(ValueError, match="`teacher` must be set for a distillation loss, but the batch has no"):
        module.train().loss_of(batch, module(batch))


def test_a_loss_and_a_teacher_need_each_other(tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"retriever": "bm25", "encoder": None, "run_dir": tmp_path}
    with pytest.raises(ValueError, match="`teacher` must be set for a distillation loss, got None"):
        fit("attack_paths", loss="kl", **arguments)
    with pytest.raises(ValueError, match="`loss` must use the scores of the teacher"):
        fit("attack_paths", loss="listwise", teacher=RunTeacher(path="x.trec"), **arguments)


def test_build_teacher(tmp_path: Path) -> None:
    parts = ComponentFactory(cache=tmp_path)
    assert build_teacher(parts, None) is None
    assert build_teacher(parts, "none") is None
    for teacher in (HashPairEncoder(), CrossEncoderTeacher(pair_encoder=HashPairEncoder())):
        built = build_teacher(parts, teacher)
        assert isinstance(built, CrossEncoderTeacher)
        assert Path(built.pair_encoder.path).parent == tmp_path / "pairs"  # type: ignore[attr-defined]
    named = build_teacher(parts, "cross_encoder", HashPairEncoder())
    assert isinstance(named, CrossEncoderTeacher)
    assert (named.top_k, named.unscored) == (20, "lowest")
    run = build_teacher(parts, {"_target_": "graphrerank.data.teachers.RunTeacher", "path": "x.trec"})
    assert run == RunTeacher(path="x.trec")
    with pytest.raises(
        ValueError, match="`pair_encoder` must be the cross-encoder for teacher=cross_encoder, got None"
    ):
        build_teacher(parts, "cross_encoder")
    with pytest.raises(ValueError, match="`teacher` must be a name of conf/teacher, a cross-encoder or"):
        build_teacher(parts, 3)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Questions about a word that one passage contains; only those of ``val`` and ``test`` have judgements."""
    return write_word_pairs(
        tmp_path / "words",
        40,
        val=[(f"q{n}", f"b{n}", 1) for n in range(30, 35)],
        test=[(f"q{n}", f"b{n}", 1) for n in range(35, 40)],
    )


class Temperature(nn.Module):
    """Listwise loss with a temperature of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.log_temperature = nn.Parameter(torch.zeros(()))

    def forward(self, scores: Tensor, relevance: Tensor, mask: Tensor) -> Tensor:
        return listwise_softmax_cross_entropy(scores / self.log_temperature.exp(), relevance, mask)


def test_fit_without_judged_training_questions_and_resume(folder: Path, tmp_path: Path) -> None:
    parts = ComponentFactory(cache=tmp_path / "cache", device="cpu")
    encoder = HashPairEncoder()
    usual: dict[str, Any] = {"retriever": "bm25", "encoder": None, "features": "scores", "trainer": QUIET}
    reranker = fit(
        Dataset.from_folder(folder),
        loss="kl",
        teacher=encoder,
        max_epochs=1,
        parts=parts,
        run_dir=tmp_path / "run",
        **usual,
    )
    manifest = read_manifest(tmp_path / "run" / "gatv2")
    assert manifest.content["teacher"]["name"] == "CrossEncoderTeacher"
    assert manifest.content["calibration"] is not None
    assert len({query for query, _ in encoder.pairs}) == 35  # all but the test questions
    assert len(reranker.rerank("what of word1?", ["about word1", "else"], scores=[2.0, 1.0]).scores) == 2
    with pytest.raises(ValueError, match=r"which has teacher\.fingerprint"):
        fit(
            Dataset.from_folder(folder),
            loss="kl",
            teacher=HashPairEncoder(fingerprint="other"),
            max_epochs=2,
            parts=parts,
            resume=tmp_path / "run",
            **usual,
        )


def test_a_module_among_weighted_losses_is_trained(folder: Path, tmp_path: Path) -> None:
    module = Temperature()
    qrels = "query-id\tcorpus-id\tscore\n" + "".join(f"q{n}\tb{n}\t1\n" for n in range(4))
    (folder / "qrels" / "train.tsv").write_text(qrels)
    run = tmp_path / "teacher.trec"
    run.write_text(
        "".join(f"q{n} Q0 {kind}{n} 1 {score} t\n" for n in range(35) for kind, score in (("a", 1), ("b", 3)))
    )
    reranker = fit(
        Dataset.from_folder(folder),
        loss={"kl": 0.5, module: 1.0},
        teacher=RunTeacher(path=run),
        retriever="bm25",
        encoder=None,
        features="scores",
        trainer=QUIET,
        max_epochs=2,
        parts=ComponentFactory(cache=tmp_path / "cache", device="cpu"),
        run_dir=tmp_path / "run",
    )
    assert float(module.log_temperature) != 0
    assert not any("temperature" in name for name in reranker.checkpoint.model.state_dict())
