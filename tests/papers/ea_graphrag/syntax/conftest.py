from typing import Any

import pytest

from graphrerank.text.spacy_pipeline import ENGLISH, load_spacy
from graphrerank_papers.ea_graphrag.syntax.features import COMPONENTS


@pytest.fixture(scope="session")
def nlp() -> Any:
    """spaCy, loaded once for all tests."""
    pytest.importorskip("spacy")
    return load_spacy(ENGLISH, components=COMPONENTS)
