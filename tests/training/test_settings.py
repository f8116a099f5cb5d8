import pytest

from graphrerank import FitSettings


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_queries": 0}, "num_queries"),
        ({"calibration": "linear"}, "calibration"),
        ({"calibration": "start"}, "`calibration=start` needs a checkpoint"),
    ],
)
def test_bad_settings_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FitSettings(**arguments)  # type: ignore[arg-type]


def test_changes_replace_fields_and_are_checked() -> None:
    settings = FitSettings(seed=2, batch_size=8)
    assert settings.with_changes(seed=3) == FitSettings(seed=3, batch_size=8)
    with pytest.raises(ValueError, match="num_queries"):
        settings.with_changes(num_queries=-1)


@pytest.mark.parametrize(
    ("name", "advice"), [("learning_rat", "did you mean 'learning_rate'"), ("xyz", "the arguments are")]
)
def test_an_unknown_argument_is_refused_by_name(name: str, advice: str) -> None:
    with pytest.raises(ValueError, match=f"unknown argument '{name}' of a training; {advice}"):
        FitSettings().with_changes(**{name: 1})
