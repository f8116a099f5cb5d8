"""What the page of a service shows before the first request."""

from pathlib import Path

from omegaconf import OmegaConf

from graphrerank.cli.http_service import chosen_page
from graphrerank.serving.settings import PageSettings
from graphrerank.serving.setup.page_settings import MAX_QUESTION, page_settings
from tests.support.folders import write_dataset


def test_the_page_offers_questions_of_the_corpus(tmp_path: Path) -> None:
    questions = [f"question {number}" for number in range(9)]
    records = [{"_id": f"q{number}", "text": text} for number, text in enumerate(questions)]
    folder = write_dataset(tmp_path / "data", corpus=[{"_id": "p", "text": "a"}], queries=records)
    assert page_settings("mine", folder) == PageSettings(
        "mine", searches=True, questions=questions[:4], corpus=folder.name
    )
    assert page_settings("base") == PageSettings("base")
    chosen = OmegaConf.create({"page": True, "index": str(folder), "artifact": "runs/mine"})
    assert chosen_page(chosen) == PageSettings("mine", searches=True, questions=questions[:4], corpus=folder.name)
    assert chosen_page(OmegaConf.create({"page": True, "index": None, "artifact": "base"})) == PageSettings("base")
    assert chosen_page(OmegaConf.create({"page": False, "index": str(folder)})) is None


def test_questions_are_hidden_where_callers_have_principals_and_long_ones_are_cut(tmp_path: Path) -> None:
    records = [{"_id": "q", "text": "x" * (MAX_QUESTION + 1)}]
    folder = write_dataset(tmp_path / "data", corpus=[{"_id": "p", "text": "a"}], queries=records)
    assert page_settings("mine", folder).questions == ["x" * MAX_QUESTION]
    assert page_settings("mine", folder, has_permissions=True) == PageSettings(
        "mine", searches=True, questions=[], corpus="data"
    )
    assert page_settings("mine", tmp_path) == PageSettings("mine", searches=True, questions=[], corpus=tmp_path.name)
