import os
from pathlib import Path
from typing import Any

import pytest

from graphrerank.text.spacy_pipeline import ENGLISH, load_spacy
from graphrerank_papers.ea_graphrag.syntax.features import PARSER_COMPONENTS
from tests.support import ROOT


@pytest.fixture(scope="session")
def nlp() -> Any:
    """spaCy, loaded once for all tests."""
    pytest.importorskip("spacy")
    return load_spacy(ENGLISH, components=PARSER_COMPONENTS)


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
