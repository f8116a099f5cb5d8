"""Exports with a short parity gate: the whole gate of 500 batches takes seconds and has tests of its own."""

from collections.abc import Iterator
from unittest.mock import patch

import pytest

from graphrerank.artifacts.export import export_artifact
from graphrerank.artifacts.parity import HARD_CASES

FEW_BATCHES = len(HARD_CASES) + 8


@pytest.fixture(scope="session", autouse=True)
def _short_gate() -> Iterator[None]:
    """Compare an exported model on few batches by default. ``tests/artifacts/test_formats.py`` has the whole gate."""
    with patch.dict(export_artifact.__kwdefaults__, num_batches=FEW_BATCHES):
        yield
