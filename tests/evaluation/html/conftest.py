import pytest

from graphrerank.evaluation.html.page import render_html
from graphrerank.evaluation.study import Study


@pytest.fixture(scope="session")
def html(study: Study) -> str:
    """The page of a study of two data sets."""
    return render_html(study)
