import pytest
import torch
from pydantic import ValidationError

from graphrerank.calibration.logistic import Calibration

CALIBRATION = Calibration(slope=1.5, intercept=-2.0)


def test_no_order_changes() -> None:
    scores = torch.randn(20_000, generator=torch.Generator().manual_seed(0)).mul(3).sort().values
    p = CALIBRATION.probabilities(scores)
    torch.testing.assert_close(p, torch.sigmoid(1.5 * scores.double() - 2).float())
    assert bool((p[1:] >= p[:-1]).all())
    for shape in ((), (0,), (3,), (2, 5)):
        assert CALIBRATION.probabilities(torch.zeros(shape)).shape == shape


def test_the_module_and_a_manifest_give_the_same_probabilities() -> None:
    assert Calibration.model_validate_json(CALIBRATION.model_dump_json()) == CALIBRATION
    scores = torch.linspace(-2, 4, 601)
    assert torch.equal(torch.jit.script(CALIBRATION.module())(scores), CALIBRATION.probabilities(scores))


def test_a_broken_manifest_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"slope\n.*greater than or equal to 0"):
        Calibration.model_validate({"method": "logistic", "slope": -1.0, "intercept": 0.0})
