"""Hooks that keep the collection of tests cheap. Each process of a run collects all tests."""

import gc
from collections.abc import Generator
from pathlib import Path

import pytest
from _pytest.doctest import DoctestModule


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage while modules are imported, leave what they hold out of later searches, and search seldom."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000, 10, 10)  # with the default of 700, a twentieth of the time of tests is spent on it
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Leave out the doctests of a file without examples, because pytest would import the file to find none."""
    collectors = yield
    return [each for each in collectors if not isinstance(each, DoctestModule) or has_examples(file_path)]


def has_examples(path: Path) -> bool:
    """Return whether a Python file contains an example that runs as a doctest."""
    return ">>>" in path.read_text(encoding="utf-8")
