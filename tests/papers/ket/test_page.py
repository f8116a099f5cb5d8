from dataclasses import replace
from pathlib import Path

import pytest
import torch
from matplotlib.figure import Figure

from graphrerank.language_models.reply import Reply
from graphrerank_papers.answers.answer_counts import AnswerCounts, Price
from graphrerank_papers.ket import page
from graphrerank_papers.ket.contexts import ContextResult
from graphrerank_papers.ket.costs import Tokens
from graphrerank_papers.ket.page import draw_sweep, render_ket
from graphrerank_papers.ket.report import KETReport

REPORT = KETReport(
    documents=3, corpus_tokens=1_000_000, chunks=10, chunk_edges=9, core_chunks=8, core_tokens=800_000, sub_chunks=10,
    entities=5, relations=4, skeleton_edges=9, description_tokens=50, relation_tokens=40, keywords=6, keyword_edges=12,
    prompt_tokens=0, num_prompts=0, sent=Tokens(encoder=3_000_000),
)  # fmt: skip


def result(coverage: float, *, answered: bool, report: KETReport | None = None, **settings: object) -> ContextResult:
    values = {"Coverage": torch.tensor([coverage, 1.0]).double()}
    answers = None
    if answered:
        values |= {"EM": torch.tensor([0.0, 1.0]).double(), "F1": torch.tensor([coverage, 1.0]).double()}
        answers = AnswerCounts.of("w", [Reply("a", "answered", "m", 1000, 10)] * 2, [], Price(1.0, 10.0))
    return ContextResult(values, 1.0, 100.0, settings, report=report, answers=answers)


def test_dollars_of_an_index_by_the_papers_prices() -> None:
    row = result(0.5, answered=False, report=REPORT, solution="ket_p", chunk_tokens=150, num_splits=0)
    # read twice, 1.6 million tokens at 0.15 and 3 million of the encoder at 0.02
    assert "| USD of index |" in (text := render_ket([], [row], {}, []))
    assert f"| {1.6 * 0.15 + 3 * 0.02:.3f} |" in text
    asked = replace(REPORT, num_prompts=2, sent=Tokens(2_000_000, 500_000, 3_000_000))  # a model extracted
    text = render_ket([], [replace(row, report=asked)], {}, [])
    assert f"| {2 * 0.15 + 0.5 * 0.6 + 3 * 0.02:.3f} |" in text


def test_a_sweep_with_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(page, "save_figure", lambda path, figure: drawn.append(figure))
    for answered, labels in ((True, ["Coverage", "EM", "F1"]), (False, ["Coverage"])):
        points = {name: {0.0: result(0.0, answered=answered), 1.0: result(1.0, answered=answered)} for name in "ab"}
        draw_sweep(tmp_path / "x.png", "graph_share", points)
        assert [axes.get_ylabel().split()[0] for axes in drawn[-1].axes] == labels
        text = render_ket([], [], {"graph_share": points}, [])
        assert "| `a` | 50.0 | 100.0 |" in text
        assert ("| `b`, EM | 50.0 | 50.0 |" in text) is answered
        assert ("| `b`, USD of answers | 0.0022 | 0.0022 |" in text) is answered
