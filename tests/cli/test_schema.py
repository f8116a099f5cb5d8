import inspect
from collections.abc import Callable
from dataclasses import fields

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from graphrerank.cli.schema import SETTINGS, check_settings, composition_error, register, settings_class
from graphrerank.config.command_settings import default_settings, describe_settings, help_lines
from graphrerank.corpus_store.preparation import prepare_corpus
from graphrerank.feedback.learn import learn_log
from graphrerank.training.calibrate import calibrate_checkpoint
from tests.support import CONF

OVERRIDES = {"learn": ["data=attack"]}


@pytest.mark.parametrize("name", ["train", "evaluate", "serve", "export", "prepare", "calibrate", "doctor"])
def test_groups_without_a_choice_become_null(name: str) -> None:
    register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        cfg = compose(name, overrides=[] if name in ("train", "serve", "export") else ["device=null"])
    check_settings(cfg, name)
    assert cfg.get("experiment") is None
    assert name in ("train", "export", "prepare") or cfg.encoder is None


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_each_setting_of_a_command_has_a_description_and_a_default_in_hydra(name: str) -> None:
    described = settings_class(name)
    assert set(describe_settings(described)) == {field.name for field in fields(described)}
    assert all(line.lstrip().startswith("#") or ":" in line for line in help_lines(described, {}))
    assert max(map(len, help_lines(described, {}))) <= 100
    register(name)
    with initialize_config_dir(str(CONF), version_base="1.3"):
        cfg = compose(name, overrides=OVERRIDES.get(name, []))
    own = OmegaConf.to_container(OmegaConf.load(CONF / f"{name}.yaml"), resolve=False)
    assert isinstance(own, dict)
    for key, default in default_settings(described).items():
        if key not in own and not isinstance(default, dict):
            assert OmegaConf.is_missing(cfg, key) if default == "???" else cfg[key] == default


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("num_queries=x", "`num_queries`: input should be a valid integer, got 'x'"),
        ("resamples=1.5", "`resamples`: input should be a valid integer"),
        ("measures=PR@10", "`measures`: input should be a valid list, got 'PR@10'"),
        ("+sede=1", "unknown setting 'sede'; the settings are .*, did you mean seed\\?"),
    ],
)
def test_a_wrong_name_or_type_is_refused_by_name(override: str, message: str) -> None:
    register("doctor")
    with initialize_config_dir(str(CONF), version_base="1.3"):
        cfg = compose("doctor", overrides=[override])
    with pytest.raises(ValueError, match=message):
        check_settings(cfg, "doctor")


def test_a_folder_may_be_named_by_a_number() -> None:
    register("export")
    with initialize_config_dir(str(CONF), version_base="1.3"):
        cfg = compose("export", overrides=["checkpoint=2024", "revision=1234567"])
    check_settings(cfg, "export")


def test_an_unknown_setting_gets_a_suggestion() -> None:
    error = ValueError("Could not override\nKey 'fromats' is not in struct\n    full_key: fromats")
    assert str(composition_error(error, "export")) == "unknown setting `fromats`, did you mean formats?"
    assert composition_error(ValueError("else"), "export") is None


def test_an_unknown_setting_of_a_group_names_the_command_that_lists_them() -> None:
    error = ValueError("Could not override\nKey 'hiden' is not in struct\n    full_key: model.hiden")
    assert str(composition_error(error, "train")).endswith(
        "graphrerank train --cfg job --package model lists the settings"
    )


@pytest.mark.parametrize(
    ("function", "name"),
    [(learn_log, "learn"), (calibrate_checkpoint, "calibrate"), (prepare_corpus, "prepare")],
)
def test_python_has_the_defaults_of_the_command(function: Callable[..., object], name: str) -> None:
    described = settings_class(name)
    defaults = default_settings(described)
    parameters = inspect.signature(function).parameters.items()
    common = {key: entry.default for key, entry in parameters if key in defaults and entry.default is not entry.empty}
    assert common
    assert common == {key: defaults[key] for key in common}
