"""The faster composition of :mod:`tests.support.composition` against Hydra's own."""

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra._internal import defaults_list
from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

from graphrerank.cli import schema
from tests.support import CONF
from tests.support.composition import CREATE_MAP, LOAD, composes_faster


def composed(name: str, overrides: list[str], conf: Path = CONF) -> str:
    with initialize_config_dir(str(conf), version_base="1.3"):
        return OmegaConf.to_yaml(compose(name, overrides=overrides, return_hydra_config=True))


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("train", []),
        ("train", ["experiment=base", "logger=[csv,wandb]", "seed=3"]),
        ("evaluate", ["pipeline=ket", "checkpoint=x", "hydra.run.dir=out"]),
    ],
)
def test_against_hydra(name: str, overrides: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    schema.register()
    faster = [composed(name, overrides) for _ in range(2)]  # the second one reads no file
    monkeypatch.setattr(OmegaConf, "load", LOAD)
    monkeypatch.setattr(defaults_list, "_create_interpolation_map", CREATE_MAP)
    monkeypatch.delattr(ConfigStore, "__deepcopy__")
    assert faster == [composed(name, overrides)] * 2


def test_interpolations_in_defaults(tmp_path: Path) -> None:
    (tmp_path / "db").mkdir()
    (tmp_path / "db_user").mkdir()
    (tmp_path / "db" / "sql.yaml").write_text("a: 1")
    (tmp_path / "db_user" / "sql.yaml").write_text("b: 2")
    (tmp_path / "main.yaml").write_text("defaults: [{db: sql}, {db_user: '${db}'}, _self_]")
    assert "db_user:\n  b: 2" in composed("main", [], tmp_path)


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    with composes_faster():
        for text in ("a: 1", "a: 23"):
            (tmp_path / "main.yaml").write_text(text)
            assert composed("main", [], tmp_path).endswith(f"{text}\n")
