import json
import shutil
from pathlib import Path

import pytest
import torch

from graphrerank.models.checkpoint import load_checkpoint
from graphrerank_papers.ea_graphrag.scorers import AdapterScorer
from graphrerank_papers.ea_graphrag.syntax.features import SyntaxFeatures

TEXTS = ["Who directed the film that won?", "", "zebra", "Où est la gare ?", "word " * 2000]


def test_against_the_model_on_the_features(adapter_folder: Path, recwarn: pytest.WarningsRecorder) -> None:
    scorer = AdapterScorer(checkpoint=adapter_folder)
    expected = load_checkpoint(adapter_folder).model(SyntaxFeatures("dependency").extract(TEXTS))
    found = scorer.score(TEXTS)
    torch.testing.assert_close(found, expected.detach())
    assert bool(((found >= 0) & (found <= 1)).all())
    assert len(found.unique()) > 2
    assert not [warning for warning in recwarn if "was trained with the parser" in str(warning.message)]
    assert scorer.score([]).shape == (0,)
    given = AdapterScorer(checkpoint=adapter_folder, low=0.25, high=0.75)
    assert (scorer.low, scorer.high, given.low, given.high) == (-1, 2, 0.25, 0.75)


def test_other_syntax_and_other_models_are_noticed(adapter_folder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(adapter_folder, tmp_path / "adapter")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["syntax"]["fingerprint"] = "older"
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.warns(UserWarning, match="was trained with the parser older, but the installed parser is"):
        AdapterScorer(checkpoint=folder).score(TEXTS[:1])
    manifest["syntax"]["feature_names"] = ["W", "S"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match="was trained on 2 syntax features, which differ from the"):
        AdapterScorer(checkpoint=folder)
    with pytest.raises(ValueError, match=r"must be a complexity adapter .* got a gatv2_reranker"):
        AdapterScorer(checkpoint="base")
