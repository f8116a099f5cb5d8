import json
import math

import pytest
import torch

from graphrerank.graphs.list_confidence import ListConfidence, list_statistics

CONFIDENCE = ListConfidence(beyond=-1.5, within=0.25, intercept=-0.75)


def test_numbers_worked_by_hand() -> None:
    beyond, within = list_statistics(torch.tensor([0.5, 0.25, 0.0])).exp().unbind(1)
    assert beyond.dtype == torch.float64
    assert beyond.tolist() == pytest.approx([0.251, 0.001, 0.001])
    assert within.tolist() == pytest.approx([0.501, 0.751, 0.751])
    one = ListConfidence(beyond=0.0, within=2.0, intercept=1.0).perfect_recall(torch.tensor([0.999]))
    assert float(one) == pytest.approx(1 / (1 + math.exp(-1)))


def test_it_never_falls_with_the_rank() -> None:
    rising = torch.rand(50, generator=torch.Generator().manual_seed(0)).sort(descending=True).values
    assert bool((CONFIDENCE.perfect_recall(rising).diff() >= 0).all())
    falling = ListConfidence(beyond=0.0, within=-1.0, intercept=0.0)
    first, *others = falling.perfect_recall(torch.tensor([0.9, 0.5, 0.1])).tolist()
    assert others == [first, first]


def test_padding_changes_nothing_but_its_own_ranks() -> None:
    p = torch.rand(3, 7, generator=torch.Generator().manual_seed(0)).sort(1, descending=True).values
    alone = CONFIDENCE.perfect_recall(p)
    padded = CONFIDENCE.perfect_recall(torch.nn.functional.pad(p, (0, 4)))
    torch.testing.assert_close(padded[:, :7], alone)
    torch.testing.assert_close(CONFIDENCE.perfect_recall(p[1]), alone[1])


@pytest.mark.parametrize("shape", [(0,), (2, 0), (1,), (2, 5)])
def test_any_shape(shape: tuple[int, ...]) -> None:
    found = CONFIDENCE.perfect_recall(torch.zeros(shape))
    assert (found.shape, found.dtype) == (shape, torch.float32)


def test_certain_lists() -> None:
    for p in (torch.ones(100), torch.zeros(100)):
        assert bool(CONFIDENCE.perfect_recall(p).isfinite().all())


def test_a_manifest_keeps_it() -> None:
    assert ListConfidence.from_json(json.loads(json.dumps(CONFIDENCE.to_json()))) == CONFIDENCE


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"beyond": math.inf, "within": 1, "intercept": 0}, "`beyond`, `within` and `intercept` must be finite"),
        ({"beyond": "much", "within": 1, "intercept": 0}, "`list_confidence` cannot be read: ValueError"),
        ({"beyond": 1, "within": 1}, "cannot be read: KeyError"),
        (3, "cannot be read: TypeError"),
    ],
)
def test_a_broken_manifest_is_refused(entry, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ListConfidence.from_json(entry)
