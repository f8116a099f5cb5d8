from dataclasses import replace
from math import nan

import pytest

from graphrerank.evaluation.study import DatasetStudy
from graphrerank.evaluation.study_notes import notes_of, verdicts


@pytest.mark.parametrize(
    ("difference", "p_holm", "outcome", "verb"),
    [
        (0.02, 0.049, "ahead", "is ahead of"),
        (-0.02, 0.049, "behind", "is behind"),
        (0.02, 0.05, "unclear", "cannot be told from"),
        (0.02, nan, "unclear", "cannot be told from"),
    ],
)
def test_verdicts_follow_the_corrected_p_value(
    difference: float, p_holm: float, outcome: str, verb: str, dataset: DatasetStudy
) -> None:
    test = replace(
        dataset.tests[0], difference=difference, interval=(-0.01, 0.03), p_holm=p_holm, p_randomization=0.012
    )
    (verdict,) = verdicts(replace(dataset, tests=[test, replace(test, baseline="gcs", difference=nan)]))
    assert verdict.outcome == outcome
    assert verdict.line == f"GATv2 against retriever: PR@10 {100 * difference:+.1f} (p = 0.012)"
    assert verdict.sentence.startswith(f"GATv2 {verb} retriever: PR@10 {100 * difference:+.2f} (-1.0 to +3.0), p Holm")


def test_notes_state_the_ceiling_ties_and_missing_queries(dataset: DatasetStudy) -> None:
    expected = [
        "ceiling of PR for checkpoints 86.90 (80.00 before expansion): all relevant are candidates",
        "queries with a tie in the top 10: retriever 5.00%, ",
        "their.run ranks nothing for 4 queries, which count as 0: q3, q4, q5, q6",
    ]
    for note, start in zip(notes_of(dataset, "own"), expected, strict=True):
        assert note.startswith(start)
    assert "as trec_eval does" in notes_of(dataset, "trec")[1]
    system = replace(dataset.systems["gatv2"], tied_share=0.0, missing=tuple("abcdefg"))
    alone = replace(dataset, systems={"gatv2": system}, base_ceiling=dataset.ceiling)
    assert notes_of(alone, "own") == [
        "ceiling of PR 86.90: all relevant are candidates",
        "GATv2 ranks nothing for 7 queries, which count as 0: a, b, c, d, e, ...",
    ]
    assert notes_of(replace(alone, ceiling=None, systems={}), "own") == []
