import pytest
import torch
from sklearn.feature_selection import mutual_info_classif

from graphrerank_papers.ea_graphrag.adapter_rows import LabelledRows


def rows(num_rows: int = 60, num_features: int = 6, *, share: float = 0.3, seed: int = 0) -> LabelledRows:
    """Column 2 tells the label, column 4 does in part, the rest is noise."""
    generator = torch.Generator().manual_seed(seed)
    labels = (torch.arange(num_rows) < share * num_rows).long()[torch.randperm(num_rows, generator=generator)]
    features = torch.randn(num_rows, num_features, generator=generator)
    features[:, 2] = 5 * labels + 0.1 * features[:, 2]
    features[:, 4] = labels + features[:, 4]
    return LabelledRows(features, labels)


def test_selection_against_sklearn() -> None:
    made = rows(200, 12)
    shared = torch.from_numpy(mutual_info_classif(made.features.numpy(), made.labels.numpy(), random_state=7))
    for top_k in (1, 2, 5):
        found = LabelledRows(made.features, made.labels, 7).top_features(top_k)
        assert found.tolist() == sorted(shared.argsort(descending=True)[:top_k].tolist())
        assert 2 in found
    assert LabelledRows(made.features, made.labels).top_features(2).tolist() == [2, 4]
    assert LabelledRows(made.features, made.labels).top_features(85).tolist() == list(range(12))  # 85 of 12


def test_z_scores_by_hand() -> None:
    features = torch.tensor([[1.0, 7.0, 0.0], [3.0, 7.0, 1e6], [5.0, 7.0, 0.0], [7.0, 7.0, 1e6]])
    mean, std = LabelledRows(features, torch.tensor([0, 1, 0, 1])).z_scores(torch.tensor([0, 1, 2]))
    torch.testing.assert_close(mean, torch.tensor([4.0, 7.0, 5e5]))
    torch.testing.assert_close(std, torch.tensor([5.0**0.5, 1.0, 5e5]))  # a constant column is left as it is


def test_folds_hold_each_row_once_with_the_classes_in_proportion() -> None:
    made = rows()
    folds = made.folds(3)
    assert sorted(torch.cat([test for _, test in folds]).tolist()) == list(range(60))
    for train, test in folds:
        assert not set(train.tolist()) & set(test.tolist())
        assert int(made.labels[test].sum()) == 6
    again = rows().folds(3)
    assert all(torch.equal(a[1], b[1]) for a, b in zip(folds, again, strict=True))


def test_rows_to_stop_by_are_a_fifth_of_each_class() -> None:
    made = rows()
    train, held = made.early_stopping_split
    assert (len(train), len(held)) == (48, 12)
    assert int(held.labels.sum()) == 4
    joined = torch.cat([train.features, held.features])
    assert sorted(joined[:, 0].tolist()) == sorted(made.features[:, 0].tolist())


def test_first_rows_are_nested_and_in_proportion() -> None:
    made = rows(100)
    before: set[float] = set()
    for num_rows in (10, 20, 50, 100):
        part = made.first(num_rows)
        found = set(part.features[:, 0].tolist())
        assert len(found) == num_rows
        assert before < found
        assert abs(int(part.labels.sum()) - 0.3 * num_rows) <= 1
        before = found
    assert torch.equal(made.first(100).features, made.features)


@pytest.mark.parametrize("label", [0, 1])
def test_one_class_alone_is_refused(label: int) -> None:
    with pytest.raises(ValueError, match=rf"`labels` must hold both classes, 0 and 1, got \[{label}\] in 4 rows"):
        LabelledRows(torch.zeros(4, 2), torch.full((4,), label))


def test_rows_are_checked() -> None:
    labels = torch.tensor([0, 1, 2])
    with pytest.raises(ValueError, match=r"both classes, 0 and 1, got \[0, 1, 2\]"):
        LabelledRows(torch.zeros(3, 2), labels)
    with pytest.raises(ValueError, match=r"`features` must have shape \[n, F\] and `labels` \[n\], got \(4, 2\) and"):
        LabelledRows(torch.zeros(4, 2), labels)
    with pytest.raises(ValueError, match="`features` must be finite, got NaN or infinity in row 1"):
        LabelledRows(torch.tensor([[0.0], [torch.nan]]), torch.tensor([0, 1]))


def test_too_few_rows_for_a_split_are_refused() -> None:
    few = LabelledRows(torch.randn(6, 2), torch.tensor([0, 0, 0, 0, 0, 1]))
    with pytest.raises(ValueError, match="`num_folds` must lie in 2 to the rows of the rarer class, 1, got 2"):
        few.folds(2)
    with pytest.raises(ValueError, match="two rows of each class, got 1 of the rarer one"):
        _ = few.early_stopping_split
    with pytest.raises(ValueError, match="`num_rows` must lie in 2 to 6, got 7"):
        few.first(7)
    with pytest.raises(ValueError, match="`top_k` must be a positive integer, got 0"):
        few.top_features(0)
