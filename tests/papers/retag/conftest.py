"""Fixtures of the tests of ReTAG."""

from typing import Any

import pytest

from graphrerank.text import WordTokenizer


@pytest.fixture
def parts(word_encoder: Any, name_extractor: Any) -> dict[str, Any]:
    """Components of an index builder."""
    return {"tokenizer": WordTokenizer(), "encoder": word_encoder, "extractor": name_extractor}
