import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from graphrerank_papers.ea_graphrag.text_classifier_scorer import TextClassifierScorer

DENSE = ["who is the king", "what is a river", "who is a duke", "what is tin"]
GRAPH = ["where was zz born", "zz or zx", "did zz see zx", "zx and zz"]


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    file = tmp_path / "disagreements.jsonl"
    entries = [{"text": text, "right": "dense"} for text in DENSE] + [
        {"text": text, "right": "graph"} for text in GRAPH
    ]
    entries += [{"text": "who is tin", "right": "dense", "part": "validation"}]
    entries += [{"text": "zz zx zz", "right": "graph", "part": "validation"}]
    file.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return file


def make(questions: Path, reader: Path, tmp_path: Path, **settings: Any) -> TextClassifierScorer:
    given = {"max_epochs": 40, "learning_rate": 0.02, "batch_size": 4, "cache": tmp_path / "cache", **settings}
    return TextClassifierScorer(questions, model=reader, **given)


def test_it_learns_which_path_is_right(questions: Path, reader: Path, tmp_path: Path) -> None:
    scorer = make(questions, reader, tmp_path)
    dense, graph = scorer.score([*DENSE, "who is tin"]), scorer.score([*GRAPH, "zz zx zz"])
    assert float(dense.max()) < 0.5 < float(graph.min())
    assert scorer.score([]).shape == (0,)


def test_scores_are_those_of_the_weights_that_were_kept(questions: Path, reader: Path, tmp_path: Path) -> None:
    scorer = make(questions, reader, tmp_path)
    scores = scorer.score(GRAPH)
    (file,) = (tmp_path / "cache" / "text_classifiers").iterdir()
    again = make(questions, reader, tmp_path)
    again._train = None  # type: ignore[assignment, method-assign]  # read, not trained
    torch.testing.assert_close(again.score(GRAPH), scores, rtol=0, atol=0)
    from safetensors.torch import load_file

    plain = AutoModelForSequenceClassification.from_pretrained(reader, num_labels=1)
    plain.load_state_dict(load_file(file))
    tokenizer = AutoTokenizer.from_pretrained(reader)
    for text, score in zip(GRAPH, scores, strict=True):  # one at a time: padding changes nothing
        with torch.no_grad():
            logit = plain.eval()(**tokenizer(text, return_tensors="pt", truncation=True)).logits
        assert float(torch.sigmoid(logit)) == pytest.approx(float(score), abs=1e-5)


def test_the_epoch_that_is_best_on_validation_is_kept(questions: Path, reader: Path, tmp_path: Path) -> None:
    losses: list[float] = []
    scorer = make(questions, reader, tmp_path)
    measure = scorer._validation_loss
    scorer._validation_loss = lambda classifier: losses.append(measure(classifier)) or losses[-1]  # type: ignore
    scores = scorer.score(["who is tin", "zz zx zz"]).double()
    kept = -(torch.log(1 - scores[0]) + torch.log(scores[1])) / 2
    assert len(losses) == 40
    assert float(kept) == pytest.approx(min(losses), abs=1e-4)


def test_one_seed_one_result_and_nothing_outside_is_touched(questions: Path, reader: Path, tmp_path: Path) -> None:
    before = torch.random.get_rng_state()
    scores = [
        make(questions, reader, tmp_path, max_epochs=2, cache=tmp_path / name, seed=seed).score(GRAPH)
        for name, seed in (("a", 0), ("b", 0), ("c", 1))
    ]
    assert torch.equal(scores[0], scores[1])
    assert not torch.equal(scores[0], scores[2])
    assert torch.equal(torch.random.get_rng_state(), before)


def test_settings_out_of_range_are_refused(questions: Path, reader: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"`low` must be below `high`, got 0\.7 and 0\.6"):
        make(questions, reader, tmp_path, low=0.7)
    with pytest.raises(ValueError, match="`max_epochs`"):
        make(questions, reader, tmp_path, max_epochs=0)
    questions.write_text('{"text": "a", "right": "graph"}\n')
    with pytest.raises(ValueError, match="that the path 'dense' gets right, got none"):
        make(questions, reader, tmp_path)
