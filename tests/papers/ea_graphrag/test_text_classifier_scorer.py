from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from graphrerank_papers.ea_graphrag.text_classifier_scorer import TextClassifierScorer
from tests.papers.ea_graphrag.questions import write_questions

SIMPLE = ["who is the king", "what is a river", "who is a duke", "what is tin"]
ODD = ["where was zz born", "zz or zx", "did zz see zx", "zx and zz"]


@pytest.fixture
def few_questions(tmp_path: Path) -> Path:
    return write_questions(tmp_path, SIMPLE, ODD, {"who is tin": "dense", "zz zx zz": "graph"})


def make(few_questions: Path, reader: Path, tmp_path: Path, **settings: Any) -> TextClassifierScorer:
    arguments = {"max_epochs": 40, "learning_rate": 0.02, "batch_size": 4, "cache": tmp_path / "cache", **settings}
    return TextClassifierScorer(few_questions, model=reader, **arguments)


def test_it_learns_which_path_is_right_and_keeps_its_weights(few_questions: Path, reader: Path, tmp_path: Path) -> None:
    scorer = make(few_questions, reader, tmp_path)
    dense, scores = scorer.score([*SIMPLE, "who is tin"]), scorer.score(ODD)
    assert float(dense.max()) < 0.5 < min(float(scores.min()), float(scorer.score(["zz zx zz"])))
    assert scorer.score([]).shape == (0,)
    (file,) = (tmp_path / "cache" / "text_classifiers").iterdir()
    again = make(few_questions, reader, tmp_path)
    again._train = None  # type: ignore[assignment, method-assign]  # read, not trained
    torch.testing.assert_close(again.score(ODD), scores, rtol=0, atol=0)
    plain = AutoModelForSequenceClassification.from_pretrained(reader, num_labels=1)
    plain.load_state_dict(load_file(file))
    tokenizer = AutoTokenizer.from_pretrained(reader)
    for text, score in zip(ODD, scores, strict=True):  # one at a time: padding changes nothing
        with torch.no_grad():
            logit = plain.eval()(**tokenizer(text, return_tensors="pt", truncation=True)).logits
        assert float(torch.sigmoid(logit)) == pytest.approx(float(score), abs=1e-5)


def test_the_epoch_that_is_best_on_validation_is_kept(few_questions: Path, reader: Path, tmp_path: Path) -> None:
    losses: list[float] = []
    scorer = make(few_questions, reader, tmp_path)
    measure = scorer._validation_loss
    scorer._validation_loss = lambda classifier: losses.append(measure(classifier)) or losses[-1]  # type: ignore
    scores = scorer.score(["who is tin", "zz zx zz"]).double()
    best = -(torch.log(1 - scores[0]) + torch.log(scores[1])) / 2
    assert len(losses) == 40
    assert float(best) == pytest.approx(min(losses), abs=1e-4)


def test_one_seed_one_result_and_nothing_outside_is_touched(few_questions: Path, reader: Path, tmp_path: Path) -> None:
    before = torch.random.get_rng_state()
    scores = [
        make(few_questions, reader, tmp_path, max_epochs=2, cache=tmp_path / name, seed=seed).score(ODD)
        for name, seed in (("a", 0), ("b", 0), ("c", 1))
    ]
    assert torch.equal(scores[0], scores[1])
    assert not torch.equal(scores[0], scores[2])
    assert torch.equal(torch.random.get_rng_state(), before)
