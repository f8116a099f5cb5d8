import numpy as np
import pytest
import torch
from pydantic import TypeAdapter, ValidationError

from graphrerank.graphs.calibration import Calibration, IsotonicCalibration, LogisticCalibration

LOGISTIC = LogisticCalibration(slope=1.5, intercept=-2.0)
ISOTONIC = IsotonicCalibration(knots=(-1.0, 0.5, 0.75, 3.0), shares=(0.0, 0.1, 0.1, 0.9))
every_calibration = pytest.mark.parametrize(
    "calibration", [LOGISTIC, ISOTONIC, IsotonicCalibration(knots=(1.0,), shares=(0.3,))]
)


def test_isotonic_against_numpy_interp() -> None:
    scores = torch.linspace(-2, 4, 601)
    expected = np.interp(scores.double().numpy(), ISOTONIC.knots, ISOTONIC.shares)
    torch.testing.assert_close(ISOTONIC.probabilities(scores), torch.from_numpy(expected).float())


@every_calibration
def test_no_order_changes(calibration: Calibration) -> None:
    scores = torch.randn(20_000, generator=torch.Generator().manual_seed(0)).mul(3).sort().values
    p = calibration.probabilities(scores)
    assert p.dtype == torch.float32
    assert bool((p[1:] >= p[:-1]).all())
    assert 0 <= float(p.min()) <= float(p.max()) <= 1
    for shape in ((), (0,), (3,), (2, 5)):
        assert calibration.probabilities(torch.zeros(shape)).shape == shape


@every_calibration
def test_the_module_and_a_manifest_give_the_same_probabilities(calibration: Calibration) -> None:
    assert TypeAdapter(Calibration).validate_json(calibration.model_dump_json()) == calibration
    scores = torch.linspace(-2, 4, 601)
    module = calibration.module()
    assert torch.equal(module(scores), calibration.probabilities(scores))
    assert torch.equal(torch.jit.script(module)(scores), calibration.probabilities(scores))


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"method": "logistic", "slope": -1.0, "intercept": 0.0}, r"slope\n.*greater than or equal to 0"),
        ({"method": "isotonic", "knots": [1], "shares": []}, "`shares` must be as many as `knots`, and not fall"),
        ({"method": "isotonic", "knots": [1, 1], "shares": [0, 1]}, "`knots` must rise"),
        ({"method": "isotonic", "knots": [0, 1], "shares": [1, 0]}, "`shares` must .*not fall"),
    ],
)
def test_a_broken_manifest_is_refused(entry: object, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        TypeAdapter(Calibration).validate_python(entry)
