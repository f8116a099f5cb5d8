"""Docstrings: arguments that are described in one place, and the check that each argument is described."""

import ast
import inspect
import runpy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from graphrerank import FitSettings, GraphReranker, RerankerTrainer, fit
from graphrerank.rerank.hub import push_model
from graphrerank.rerank.rerank_input import RerankInput
from graphrerank.training import schedules
from graphrerank.utils.docstrings import arguments_from, docstring_entries
from tests.support import ROOT

CHECK = runpy.run_path(str(ROOT / ".ci" / "docstrings.py"))
BASE = '''
class Base:
    def cut(self, top_k: int) -> int:
        """Cut.

        Args:
            top_k: Number of passages.

        Returns:
            The number.
        """

class Reader(Protocol):
    def __call__(self, content: bytes, /) -> str:
        """Parse.

        Args:
            content: Bytes.

        Returns:
            Text.
        """
'''


@dataclass
class Options:
    """Options.

    Attributes:
        seed: Seed of the order,
            which is an integer.
        size: Size.
    """

    seed: int = 0
    size: int = 1


def test_arguments_are_in_the_order_of_the_signature() -> None:
    @arguments_from(Options)
    def draw(size: int, number: int, *, seed: int) -> None:
        """Draw.

        Args:
            number: Number of draws.

        Raises:
            ValueError: If there is nothing to draw.
        """

    assert draw.__doc__ == (
        "Draw.\n\nArgs:\n    size: Size.\n    number: Number of draws.\n    seed: Seed of the order,\n"
        "        which is an integer.\n\nRaises:\n    ValueError: If there is nothing to draw."
    )


def test_an_argument_that_no_source_describes_is_refused() -> None:
    def draw(colour: str) -> None:
        """Draw."""

    with pytest.raises(TypeError, match="draw: no source describes colour"):
        arguments_from(Options)(draw)


def test_nothing_is_added_without_docstrings() -> None:
    def draw(seed: int) -> None: ...

    assert arguments_from(Options)(draw).__doc__ is None


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


def problems(text: str) -> Iterator[str]:
    """Yield the messages of the check on a module that is added to ``BASE``."""
    source = CHECK["Source"](ROOT / "src" / "sub.py", (BASE + text).splitlines(), ast.parse(BASE + text))
    yield from (problem.message for problem in CHECK["check_source"](source, CHECK["Definitions"]([source])))


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [
        ("Cut.", ["Args: without top_k", "no Returns:"]),
        ("Cut. See :meth:`~graphrerank.Base.cut` for the arguments and the result.", []),
        ("Cut. See :meth:`~graphrerank.Base.cut` for the\n        arguments and the result.", []),
        ("Cut. See :meth:`~graphrerank.Base.cut` for the arguments.", ["no Returns:"]),
        (
            "Cut. See :meth:`~graphrerank.Base.slice` for the arguments.",
            ["Args: refers to graphrerank.Base.slice, which does not exist", "Args: without top_k", "no Returns:"],
        ),
        (
            "Return it. See :meth:`lightning.Callback.cut` for the arguments.",
            ["Args: refers to lightning.Callback.cut, which no base class defines", "Args: without top_k"],
        ),
    ],
)
def test_a_reference_takes_the_place_of_sections(docstring: str, expected: list[str]) -> None:
    text = f'class Sub(Base):\n    def cut(self, top_k: int) -> int:\n        """{docstring}"""\n'
    assert list(problems(text)) == expected


def test_methods_of_other_packages_are_referred_to_by_their_subclasses() -> None:
    reference = "See :meth:`lightning.Callback.cut` for the arguments and the result."
    text = f'class Sub(L.Callback):\n    def cut(self, top_k: int) -> int:\n        """Cut. {reference}"""\n'
    assert list(problems(text)) == []


def test_functions_refer_to_a_protocol() -> None:
    reference = "See :class:`~graphrerank.Reader` for the arguments and the result."
    assert list(problems(f'def read(content: bytes) -> str:\n    """Parse. {reference}"""\n')) == []
    expected = ["Args: without text"]
    assert list(problems(f'def read(text: bytes) -> str:\n    """Parse. {reference}"""\n')) == expected


def test_the_decorator_describes_arguments() -> None:
    decorated = '@arguments_from(Base.cut)\ndef cut(top_k: int, seed: int) -> int:\n    """Return the number."""\n'
    assert list(problems(decorated)) == ["Args: without seed"]
