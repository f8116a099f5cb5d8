import pytest
import torch

from graphrerank.metrics import parse_measure
from graphrerank.metrics.retrieval import RankingMeasures

NAMES = ["PR@3", "PR@3/multi", "R@3", "CR@3", "nDCG@3", "MRR", "MRR@1"]
QRELS = torch.tensor([[1, 0, 0], [2, 1, 0], [1, 1, 1], [3, 0, 0], [1, 2, 0]])
RANKED = torch.tensor([[0, 0, 1, 0], [1, 0, 0, 2], [1, 1, 0, 0], [0, 0, 0, 0], [0, 2, 1, 0]])


def test_batches_add_up_to_one_pass() -> None:
    measures = RankingMeasures(NAMES)
    for rows in ([0], [1, 2], [3, 4]):  # the first batch has no query for PR@3/multi
        measures.update(RANKED[rows], QRELS[rows])
    actual = measures.compute()
    assert list(actual) == [f"val/{name.lower()}" for name in NAMES]
    for name in NAMES:
        assert actual[f"val/{name.lower()}"].item() == pytest.approx(
            float(parse_measure(name)(RANKED, QRELS).nanmean())
        )
    # by hand: queries 0 and 4 are perfect at 3; of the three with more than one relevant document only 4
    assert actual["val/pr@3"].item() == pytest.approx(2 / 5)
    assert actual["val/pr@3/multi"].item() == pytest.approx(1 / 3)


def test_two_processes_add_up_to_one_pass() -> None:
    first, second, whole = (RankingMeasures(NAMES, prefix="test/") for _ in range(3))
    first.update(RANKED[:1], QRELS[:1])
    second.update(RANKED[1:], QRELS[1:])
    whole.update(RANKED, QRELS)
    first.merge_state(second)
    torch.testing.assert_close(first.compute(), whole.compute())


def test_no_counting_query_is_nan_and_reset_forgets() -> None:
    measures = RankingMeasures(["PR@3/multi", "PR@3"])
    measures.update(RANKED[1:2], QRELS[1:2])
    measures.reset()
    measures.update(RANKED[:1], QRELS[:1])
    assert measures.compute()["val/pr@3/multi"].isnan()
    assert measures.compute()["val/pr@3"] == 1


@pytest.mark.parametrize("measures", [[], ["R@3", "MRR", "R@3"]])
def test_no_measure_or_one_twice_is_refused(measures: list[str]) -> None:
    with pytest.raises(ValueError, match="`measures` must name at least one measure and none twice, got"):
        RankingMeasures(measures)
