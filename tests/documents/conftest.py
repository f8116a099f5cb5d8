import os

import pytest


@pytest.fixture(autouse=True)
def _one_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read documents in one process by default: for a few files a second one only costs its start.

    Tests of several processes say how many.
    """
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
