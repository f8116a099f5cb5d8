import pytest

from graphrerank.evaluation.study_plan import MIXED_MEASURES, PIPELINE_MEASURES, RERANKER_MEASURES, StudyPlan


def test_measures_have_one_name() -> None:
    plan = StudyPlan(["R@5", "R_cap@10"], ["R_cap@10"])
    assert (plan.measures, plan.tested) == (("R@5", "CR@10"), ("CR@10",))
    assert StudyPlan(["R@5", "R_cap@10"]).tested == ("CR@10",)  # tested as CR@10 is where nothing is named


@pytest.mark.parametrize(
    ("measures", "tested"),
    [
        (RERANKER_MEASURES, ("nDCG@10", "PR@10")),
        (PIPELINE_MEASURES, ("nDCG@10", "CR@10")),
        (MIXED_MEASURES, ("nDCG@10", "PR@10")),
        (("R@7", "R@5"), ("R@7",)),
    ],
)
def test_what_is_tested_where_nothing_is_named(measures: tuple[str, ...], tested: tuple[str, ...]) -> None:
    assert StudyPlan(measures).tested == tested


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"measures": ["R@5"], "tested": ["R@6"]}, r"`tested` must be of `measures` \['R@5'\], got \['R@6'\]"),
        ({"measures": []}, "must name one measure or more"),
        ({"measures": ["CR@5", "R_cap@5"]}, "none twice"),
        ({"measures": ["R@5"], "resamples": 0}, "`resamples` must be a positive integer, got 0"),
        ({"measures": ["R@5"], "ties": "random"}, r"`ties` must be one of \['own', 'trec'\], got 'random'"),
        ({"measures": ["R@5"], "level": 1.0}, r"`level` must lie in \(0, 1\), got 1"),
    ],
)
def test_what_does_not_fit_is_refused(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StudyPlan(**settings)
