import json
import shutil
from pathlib import Path

import pytest
import torch

from graphrerank.models.checkpoint import load_checkpoint
from graphrerank_papers.ea_graphrag.adapter_scorer import AdapterScorer
from graphrerank_papers.ea_graphrag.syntax.syntax_features import SyntaxFeatures

TEXTS = ["Who directed the film that won?", "", "zebra", "Où est la gare ?", "word " * 2000]


@pytest.fixture
def changed(adapter_folder: Path, tmp_path: Path):
    """Copy the adapter with another entry of its manifest."""

    def change(**entries: object) -> Path:
        folder = shutil.copytree(adapter_folder, tmp_path / "adapter", dirs_exist_ok=True)
        manifest = json.loads((folder / "manifest.json").read_text())
        (folder / "manifest.json").write_text(json.dumps(manifest | entries))
        return folder

    return change


def test_against_the_model_on_the_features(adapter_folder: Path, recwarn: pytest.WarningsRecorder) -> None:
    scorer = AdapterScorer(checkpoint=adapter_folder)
    features = SyntaxFeatures("dependency").extract(TEXTS)
    expected = load_checkpoint(adapter_folder).model(features)
    found = scorer.score(TEXTS)
    torch.testing.assert_close(found, expected.detach())
    assert bool(((found >= 0) & (found <= 1)).all())
    assert len(found.unique()) > 2
    assert not [warning for warning in recwarn if "was trained on syntax by" in str(warning.message)]
    assert scorer.score([]).shape == (0,)


def test_thresholds_are_the_checkpoints_or_given(adapter_folder: Path) -> None:
    assert (AdapterScorer(checkpoint=adapter_folder).low, AdapterScorer(checkpoint=adapter_folder).high) == (-1, 2)
    given = AdapterScorer(checkpoint=adapter_folder, low=0.25, high=0.75)
    assert (given.low, given.high) == (0.25, 0.75)
    with pytest.raises(ValueError, match=r"`low` must be below `high`, got 0\.5 and 0\.4"):
        AdapterScorer(checkpoint=adapter_folder, low=0.5, high=0.4)


def test_another_version_of_the_syntax_is_told(changed) -> None:
    names = json.loads((changed() / "manifest.json").read_text())["syntax"]["feature_names"]
    folder = changed(syntax={"name": "dependency", "fingerprint": "older", "feature_names": names})
    with pytest.warns(UserWarning, match="was trained on syntax by older, this is"):
        AdapterScorer(checkpoint=folder).score(TEXTS[:1])


def test_other_features_are_refused(changed) -> None:
    folder = changed(syntax={"name": "dependency", "fingerprint": "older", "feature_names": ["W", "S"]})
    with pytest.raises(ValueError, match="was trained on 2 features of syntax, which are not the"):
        AdapterScorer(checkpoint=folder)


def test_a_stranger_is_refused() -> None:
    with pytest.raises(ValueError, match=r"needed a complexity adapter .* found a gatv2_reranker"):
        AdapterScorer(checkpoint="base")
