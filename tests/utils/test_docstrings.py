"""Docstrings: their entries, and the check that each argument is described."""

import ast
import inspect
import runpy
from typing import Any

import pytest

from graphrerank import FitSettings, GraphReranker, RerankerTrainer, fit
from graphrerank.rerank.hub import push_model
from graphrerank.rerank.rerank_input import RerankInput
from graphrerank.training import schedules
from graphrerank.training.reranker_module import RerankerModule
from graphrerank.training.training_module import TrainingModule
from graphrerank.utils.docstrings import docstring_entries
from graphrerank_papers.ea_graphrag.adapter_module import AdapterModule
from tests.support import ROOT

CHECK = runpy.run_path(str(ROOT / ".ci" / "docstrings.py"))
DESCRIBED = """
        Args:
            top_k: Number of passages.

        Returns:
            The number.
        """


@pytest.mark.parametrize("function", [GraphReranker.rerank, GraphReranker.push_to_hub])
def test_help_describes_each_argument(function: Any) -> None:
    names = [name for name in inspect.signature(function).parameters if name != "self"]
    assert list(docstring_entries(function.__doc__, "Args")) == names


@pytest.mark.parametrize(
    ("function", "records", "different"),
    [
        (GraphReranker.rerank, [RerankInput], ["features"]),
        (GraphReranker.push_to_hub, [push_model], []),
        (fit, [RerankerTrainer, FitSettings], ["data", "optimizer", "module", "trainer", "settings"]),
        (RerankerModule, [TrainingModule], ["model"]),
        (AdapterModule, [TrainingModule], ["model"]),
        (schedules.linear, [schedules.cosine], []),
        (schedules.constant, [schedules.cosine], []),
        (schedules.plateau, [schedules.cosine], []),
    ],
)
def test_an_entry_point_describes_shared_arguments_in_the_same_words(
    function: Any, records: list[Any], different: list[str]
) -> None:
    """Editors show the docstrings in the source, so the most used functions repeat the descriptions."""
    shared = [docstring_entries(record.__doc__, name) for record in records for name in ("Args", "Attributes")]
    for name, entry in docstring_entries(function.__doc__, "Args").items():
        words = [" ".join(entries[name].split()) for entries in shared if name in entries]
        assert name in different or not words or " ".join(entry.split()) == words[0]


def problems(text: str) -> list[str]:
    """Return the messages of the check on a module."""
    source = CHECK["Source"](ROOT / "src" / "sub.py", text.splitlines(), ast.parse(text))
    return [problem.message for problem in CHECK["check_source"](source, CHECK["RecordClasses"]([source]))]


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [
        ("Cut.", ["Args: without top_k", "no Returns:"]),
        ("Return it.", ["Args: without top_k"]),
        ("Cut. See :meth:`~graphrerank.Base.cut` for the arguments.", ["Args: without top_k", "no Returns:"]),
        (f"Cut.\n{DESCRIBED}", []),
        (
            f"Cut.\n{DESCRIBED.replace('top_k', 'depth')}",
            ["Args: without top_k", "Args: describes depth, which the signature lacks"],
        ),
    ],
)
def test_each_argument_is_described_at_the_method(docstring: str, expected: list[str]) -> None:
    assert problems(f'class Sub(Base):\n    def cut(self, top_k: int) -> int:\n        """{docstring}"""\n') == expected


def test_fields_of_records_are_described() -> None:
    base = (
        '@dataclass\nclass Base:\n    """Base.\n\n    Attributes:\n        size: Size.\n    """\n\n    size: int\n\n\n'
    )
    assert problems(base) == []
    assert problems(f'{base}class Sub(Base):\n    """Sub."""\n\n    seed: int\n') == ["Attributes: without seed"]
    assert problems(f'{base}class Sub(Base):\n    """Sub."""\n\n    #: Seed.\n    seed: int\n') == []
