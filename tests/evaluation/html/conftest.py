import pytest

from graphrerank.evaluation.result import EvaluationResult


@pytest.fixture(scope="session")
def html(study: EvaluationResult) -> str:
    """The page of a study of two data sets."""
    return study.html()
