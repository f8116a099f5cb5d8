from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from graphrerank_papers.hipporag.fact_graph import FactGraph, build_fact_graph
from tests.support.encoders import HashEncoder
from tests.support.extractors import StatementExtractor

Build = Callable[..., FactGraph]


@pytest.fixture
def fact_graph(tmp_path: Path, statement_extractor: StatementExtractor, hash_encoder: HashEncoder) -> Build:
    def make(passages: Sequence[str], *, folder: Path = tmp_path, **settings: Any) -> FactGraph:
        models = {"extractor": statement_extractor, "encoder": hash_encoder}
        return build_fact_graph(passages, folder=folder, **settings, **models)

    return make
