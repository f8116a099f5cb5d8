import json

import pytest
import torch

from graphrerank.graphs.calibration import Calibration, IsotonicCalibration, LogisticCalibration

LOGISTIC = LogisticCalibration(1.5, -2.0)
ISOTONIC = IsotonicCalibration((-1.0, 0.5, 0.75, 3.0), (0.0, 0.1, 0.1, 0.9))


def test_isotonic_against_numpy_interp() -> None:
    numpy = pytest.importorskip("numpy")
    scores = torch.linspace(-2, 4, 601)
    expected = numpy.interp(scores.double().numpy(), ISOTONIC.knots, ISOTONIC.shares)
    torch.testing.assert_close(ISOTONIC.probabilities(scores), torch.from_numpy(expected).float())


@pytest.mark.parametrize("calibration", [LOGISTIC, ISOTONIC, IsotonicCalibration((1.0,), (0.3,))])
def test_no_order_changes(calibration) -> None:
    scores = torch.randn(20_000, generator=torch.Generator().manual_seed(0)).mul(3).sort().values
    p = calibration.probabilities(scores)
    assert p.dtype == torch.float32
    assert bool((p[1:] >= p[:-1]).all())
    assert 0 <= float(p.min()) <= float(p.max()) <= 1


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 5)])
@pytest.mark.parametrize("calibration", [LOGISTIC, ISOTONIC])
def test_any_shape(calibration, shape: tuple[int, ...]) -> None:
    assert calibration.probabilities(torch.zeros(shape)).shape == shape


@pytest.mark.parametrize("calibration", [LOGISTIC, ISOTONIC])
def test_a_manifest_keeps_it(calibration) -> None:
    assert Calibration.from_json(json.loads(json.dumps(calibration.to_json()))) == calibration


@pytest.mark.parametrize("calibration", [LOGISTIC, ISOTONIC, IsotonicCalibration((1.0,), (0.3,))])
def test_the_module_gives_the_same_probabilities(calibration) -> None:
    scores = torch.linspace(-2, 4, 601)
    module = calibration.module()
    assert torch.equal(module(scores), calibration.probabilities(scores))
    assert torch.equal(torch.jit.script(module)(scores), calibration.probabilities(scores))


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"method": "magic"}, r"`calibration.method` must be one of \['logistic', 'isotonic'\], got 'magic'"),
        ({"slope": 1.0}, "cannot be read: KeyError"),
        ("logistic", "cannot be read: TypeError"),
        ({"method": "logistic", "slope": -1.0, "intercept": 0.0}, "`slope` must be finite and not negative"),
        ({"method": "isotonic", "knots": [], "shares": []}, "must be as many, at least one, got 0 and 0"),
        ({"method": "isotonic", "knots": [1, 1], "shares": [0, 1]}, "`knots` must be finite and rise"),
        ({"method": "isotonic", "knots": [0, 1], "shares": [1, 0]}, r"`shares` must lie in \[0, 1\] and not fall"),
    ],
)
def test_a_broken_manifest_is_refused(entry, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Calibration.from_json(entry)
