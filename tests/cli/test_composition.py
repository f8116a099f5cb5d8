"""The faster composition of :mod:`tests.support.composition` against Hydra's own."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

from graphrerank.cli import schema
from tests.support import CONF
from tests.support.composition import REPLACED, composes_faster


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
    for owner, attribute, hydras_own in REPLACED:
        assert getattr(owner, attribute) is not getattr(hydras_own, "__func__", hydras_own)
        monkeypatch.setattr(owner, attribute, hydras_own)
    monkeypatch.delattr(ConfigStore, "__deepcopy__")
    schema.register()
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


def test_settings_that_are_used_twice_are_copies(tmp_path: Path) -> None:
    (tmp_path / "db").mkdir()
    (tmp_path / "db" / "sql.yaml").write_text("hosts: {main: a}")
    (tmp_path / "main.yaml").write_text("defaults: [db@first: sql, db@second.inner: sql, _self_]")
    with initialize_config_dir(str(tmp_path), version_base="1.3"):
        cfg = compose("main", overrides=["first.hosts.main=b"])
        assert cfg == {"first": {"hosts": {"main": "b"}}, "second": {"inner": {"hosts": {"main": "a"}}}}
        cfg.second.inner.hosts.main = "c"
        assert compose("main").second.inner.hosts.main == "a"


def test_stored_defaults_follow_their_class(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass
    class Other:
        seed: int = 7

    schema.register("train")
    before = ConfigStore.instance().repo["train_settings.yaml"]
    schema.register("train")
    assert ConfigStore.instance().repo["train_settings.yaml"] is before
    with monkeypatch.context() as patched:
        patched.setattr(schema, "settings_class", lambda name: Other)
        schema.register("train")
        assert ConfigStore.instance().load("train_settings.yaml").node == {"seed": 7}
    schema.register("train")
    assert ConfigStore.instance().load("train_settings.yaml").node == before.node
