from dataclasses import fields
from inspect import Parameter, signature

import pytest

from graphrerank import FitSettings, RerankerTrainer, fit


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_queries": 0}, "num_queries"),
        ({"calibration": "linear"}, "calibration"),
        ({"calibration": "start"}, "`start` must be a checkpoint"),
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
    ("name", "advice"), [("learning_rat", "Did you mean 'learning_rate'"), ("xyz", "The settings are")]
)
def test_an_unknown_argument_is_refused_by_name(name: str, advice: str) -> None:
    with pytest.raises(ValueError, match=f"unknown training setting '{name}'. {advice}"):
        FitSettings().with_changes(**{name: 1})


def test_the_arguments_of_fit_are_those_of_the_trainer_and_the_fields_of_the_settings() -> None:
    arguments = signature(fit).parameters
    trainer = signature(RerankerTrainer).parameters.keys() - {"measures"}
    names = {field.name for field in fields(FitSettings)}
    assert arguments.keys() == trainer | names
    assert all(parameter.kind is not Parameter.VAR_KEYWORD for parameter in arguments.values())
    assert {name: repr(arguments[name].default) for name in names} == {
        name: repr(getattr(FitSettings(), name)) for name in names
    }


@pytest.mark.parametrize(
    ("arguments", "batch_size", "seed"),
    [({}, 8, 3), ({"batch_size": 32}, 32, 3), ({"settings": None, "seed": 2}, 32, 2)],
    ids=["settings alone", "a default that was passed", "no settings"],
)
def test_an_argument_of_fit_replaces_the_field_of_its_settings(
    monkeypatch: pytest.MonkeyPatch, arguments: dict[str, object], batch_size: int, seed: int
) -> None:
    trained: list[FitSettings] = []
    monkeypatch.setattr(RerankerTrainer, "train", lambda trainer: trained.append(trainer.settings))
    fit("ring", model="gatv2", features="scores", **{"settings": FitSettings(seed=3, batch_size=8), **arguments})
    assert (trained[0].batch_size, trained[0].seed) == (batch_size, seed)
