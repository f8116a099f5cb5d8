"""The defaults of Python are those of ``conf``."""

from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import EMAWeightAveraging
from omegaconf import OmegaConf

from graphrerank.config.components import ComponentFactory
from graphrerank.training.callbacks import TailAveraging
from graphrerank.training.checks import check_trainer_arguments
from graphrerank.training.defaults import (
    CALLBACK_SETS,
    default_trainer_arguments,
    mixed_precision,
    with_precision,
)
from graphrerank.training.trainer import built_callbacks, named_callbacks


def comparable(member: object) -> dict[str, Any]:
    """Return the class and the state of an object, tensors as numbers and paths as text."""
    state = {name: plain(each) for name, each in vars(member).items()}
    return {"class": type(member), **state}


def plain(setting: Any) -> Any:
    if isinstance(setting, torch.Tensor):
        return setting.tolist()
    if OmegaConf.is_config(setting):
        return OmegaConf.to_container(setting)
    return str(setting) if isinstance(setting, Path) else setting


def test_trainer_arguments_are_those_of_conf(tmp_path: Path) -> None:
    nodes = ComponentFactory().compose("+trainer=default", run_dir=tmp_path, system="gatv2").trainer
    settings = dict(OmegaConf.to_container(nodes, resolve=True))
    assert settings.pop("_target_") == "lightning.Trainer"
    (plugin,) = settings.pop("plugins")
    arguments = default_trainer_arguments(tmp_path / "gatv2")
    assert [f"graphrerank.training.{type(each).__name__}" for each in arguments.pop("plugins")] == [plugin["_target_"]]
    assert arguments == settings


@pytest.mark.parametrize("name", CALLBACK_SETS)
def test_callbacks_are_those_of_conf(name: str, tmp_path: Path) -> None:
    nodes = ComponentFactory().compose(f"+callbacks={name}", run_dir=tmp_path, system="gatv2").callbacks
    by_conf = {key: comparable(callback) for key, callback in built_callbacks(nodes).items()}
    by_function = {key: comparable(callback) for key, callback in CALLBACK_SETS[name](tmp_path / "gatv2").items()}
    assert list(by_function) == list(by_conf)  # Lightning calls them in this order
    assert by_function == by_conf


@pytest.mark.parametrize(("name", "average"), [("ema", EMAWeightAveraging), ("swa", TailAveraging)])
def test_averages_are_added_to_the_default_callbacks(name: str, average: type, tmp_path: Path) -> None:
    *others, last = named_callbacks(ComponentFactory(), name, tmp_path, "gatv2").items()
    assert [key for key, _ in others] == list(CALLBACK_SETS["default"](tmp_path))
    assert (last[0], type(last[1])) == ("averaging", average)


def test_callbacks_of_another_name_are_composed_from_conf(tmp_path: Path) -> None:
    assert list(named_callbacks(ComponentFactory(), "last_epoch", tmp_path, "gatv2")) == [
        "best",
        "learning_rate",
        "gradient_norm",
    ]
    with pytest.raises(ValueError, match="must be the name of a file of conf/callbacks, got 'nothing'"):
        named_callbacks(ComponentFactory(), "nothing", tmp_path, "gatv2")


@pytest.mark.parametrize(
    ("capability", "accelerator", "expected"),
    [
        (None, "auto", "32-true"),
        ((9, 0), "auto", "bf16-mixed"),
        ((9, 0), "gpu", "bf16-mixed"),
        ((7, 5), "cuda", "16-mixed"),
        ((9, 0), "cpu", "32-true"),
    ],
)
def test_mixed_precision_follows_the_device(
    capability: tuple[int, int] | None, accelerator: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: capability is not None)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda: capability)
    assert mixed_precision(accelerator) == expected
    assert with_precision({"precision": "auto", "accelerator": accelerator})["precision"] == expected
    assert with_precision({"precision": "64-true"}) == {"precision": "64-true"}


@pytest.mark.parametrize("name", ["gpu", "ddp"])
def test_presets_are_arguments_of_the_trainer(name: str, tmp_path: Path) -> None:
    nodes = ComponentFactory().compose(f"+trainer={name}", run_dir=tmp_path, system="gatv2").trainer
    settings = dict(OmegaConf.to_container(nodes, resolve=True))
    check_trainer_arguments(settings)
    assert settings["precision"] == "auto"
    if name == "ddp":  # on this machine: one process
        arguments = {key: each for key, each in settings.items() if key not in ("_target_", "plugins")}
        assert L.Trainer(**with_precision(arguments | {"accelerator": "cpu"}), logger=False).num_devices == 1
