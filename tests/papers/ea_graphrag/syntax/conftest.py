import os
from pathlib import Path
from typing import Any

import pytest

from graphrerank.text.spacy_pipeline import ENGLISH, load_spacy
from graphrerank_papers.ea_graphrag.syntax.syntax_features import COMPONENTS
from tests.support import ROOT


class Nlp:
    """spaCy, loaded once for all tests."""

    def __init__(self) -> None:
        self.pipeline = load_spacy(ENGLISH, components=COMPONENTS)

    def __call__(self, text: str) -> Any:
        return self.pipeline(text)


@pytest.fixture(scope="session")
def nlp() -> Nlp:
    pytest.importorskip("spacy")
    return Nlp()


@pytest.fixture(scope="session")
def stanza_en() -> Path:
    """A real model of Stanza, which only some machines have."""
    named = os.environ.get("GRAPHRERANK_MODELS")
    models = Path(named) if named else ROOT.parent / "shared" / "models"
    folder = models / "stanza_en"
    if not folder.is_dir():
        pytest.skip(f"no model of Stanza: {folder} is no folder; set GRAPHRERANK_MODELS")
    pytest.importorskip("stanza")
    return folder
