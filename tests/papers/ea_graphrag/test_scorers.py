import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from graphrerank.models.checkpoint import load_checkpoint
from graphrerank_papers.ea_graphrag.scorers import AdapterScorer, PrototypeScorer, TextClassifierScorer
from graphrerank_papers.ea_graphrag.syntax.features import SyntaxFeatures
from tests.support.encoders import HashEncoder

TEXTS = ["Who directed the film that won?", "", "zebra", "Où est la gare ?", "word " * 2000]


def test_against_the_model_on_the_features(adapter_folder: Path, recwarn: pytest.WarningsRecorder) -> None:
    scorer = AdapterScorer(checkpoint=adapter_folder)
    expected = load_checkpoint(adapter_folder).model(SyntaxFeatures("dependency").extract(TEXTS))
    found = scorer.score(TEXTS)
    torch.testing.assert_close(found, expected.detach())
    assert bool(((found >= 0) & (found <= 1)).all())
    assert len(found.unique()) > 2
    assert not [warning for warning in recwarn if "was trained on syntax by" in str(warning.message)]
    assert scorer.score([]).shape == (0,)
    given = AdapterScorer(checkpoint=adapter_folder, low=0.25, high=0.75)
    assert (scorer.low, scorer.high, given.low, given.high) == (-1, 2, 0.25, 0.75)


def test_other_syntax_and_other_models_are_noticed(adapter_folder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(adapter_folder, tmp_path / "adapter")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["syntax"]["fingerprint"] = "older"
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.warns(UserWarning, match="was trained on syntax by older, this is"):
        AdapterScorer(checkpoint=folder).score(TEXTS[:1])
    manifest["syntax"]["feature_names"] = ["W", "S"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match="was trained on 2 features of syntax, which are not the"):
        AdapterScorer(checkpoint=folder)
    with pytest.raises(ValueError, match=r"needed a complexity adapter .* found a gatv2_reranker"):
        AdapterScorer(checkpoint="base")


DENSE = ["who is the king", "who is the queen", "what is a river"]
GRAPH = ["who is the father of the king of the river", "where was the mother of the queen born"]


def write(tmp_path: Path, dense: list[str], graph: list[str], validation: dict[str, str]) -> Path:
    entries: list[dict[str, Any]] = [{"text": text, "right": "dense", "part": "training", "label": 0} for text in dense]
    entries += [{"text": text, "right": "graph"} for text in graph]
    entries += [{"text": text, "right": right, "part": "validation"} for text, right in validation.items()]
    file = tmp_path / "disagreements.jsonl"
    file.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return file


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    return write(tmp_path, DENSE, GRAPH, {"who is the duke": "graph"})


@pytest.mark.parametrize("num_nearest", [1, 2, 9])
def test_prototypes_against_the_equation(num_nearest: int, questions: Path) -> None:
    encoder = HashEncoder(dim=32, by_word=True)
    scorer = PrototypeScorer(questions, encoder=encoder, num_nearest=num_nearest, temperature=0.2)
    texts = ["who is the duke", "where was the father of the queen born", "river"]
    for text, score in zip(texts, scorer.score(texts).tolist(), strict=True):
        vector = encoder.encode([text])[0]
        near = []
        for own in (DENSE, GRAPH):
            cosines = sorted((float(vector @ encoder.encode([other])[0]) for other in own), reverse=True)[:num_nearest]
            near.append(sum(cosines) / len(cosines))
        assert score == pytest.approx(1 / (1 + math.exp(-(near[1] - near[0]) / 0.2)), abs=1e-5)
    first, second, _ = scorer.score(texts).tolist()
    assert first < second
    assert scorer.score([]).shape == (0,)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]\n", r"line 1: needed a JSON object"),
        ('{"text": "a", "right": "both"}\n', r"line 1: needed an object .* and `right` of \['dense', 'graph'\]"),
        ('{"text": "a", "right": "graph"}\n', r"needed training questions of both paths, found \[0, 1\]"),
    ],
)
def test_files_of_another_form_are_refused(content: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "questions.jsonl"
    file.write_text(content)
    with pytest.raises(ValueError, match=message):
        PrototypeScorer(file, encoder=HashEncoder())
    with pytest.raises(ValueError, match=r"`low` must be below `high`, got 0\.7 and 0\.6"):
        PrototypeScorer(file, encoder=HashEncoder(), low=0.7)


SIMPLE = ["who is the king", "what is a river", "who is a duke", "what is tin"]
ODD = ["where was zz born", "zz or zx", "did zz see zx", "zx and zz"]


@pytest.fixture
def few_questions(tmp_path: Path) -> Path:
    return write(tmp_path, SIMPLE, ODD, {"who is tin": "dense", "zz zx zz": "graph"})


def make(few_questions: Path, reader: Path, tmp_path: Path, **settings: Any) -> TextClassifierScorer:
    given = {"max_epochs": 40, "learning_rate": 0.02, "batch_size": 4, "cache": tmp_path / "cache", **settings}
    return TextClassifierScorer(few_questions, model=reader, **given)


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
    kept = -(torch.log(1 - scores[0]) + torch.log(scores[1])) / 2
    assert len(losses) == 40
    assert float(kept) == pytest.approx(min(losses), abs=1e-4)


def test_one_seed_one_result_and_nothing_outside_is_touched(few_questions: Path, reader: Path, tmp_path: Path) -> None:
    before = torch.random.get_rng_state()
    scores = [
        make(few_questions, reader, tmp_path, max_epochs=2, cache=tmp_path / name, seed=seed).score(ODD)
        for name, seed in (("a", 0), ("b", 0), ("c", 1))
    ]
    assert torch.equal(scores[0], scores[1])
    assert not torch.equal(scores[0], scores[2])
    assert torch.equal(torch.random.get_rng_state(), before)
