"""Entry points of other packages: folders of settings, and names of models."""

from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from graphrerank.installation import plugins as extensions
from graphrerank.installation.plugins import (
    GROUP,
    SERVICES,
    check_settings_folders,
    extension_versions,
    load_service,
    model_entries,
    settings_folders,
)
from tests.support import CONF
from tests.support.files import write_files

Enter = Callable[..., None]


@pytest.fixture
def enter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Enter:
    """Install entry points, ``name=value``, and a package for each folder that they name."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def install(*entries: tuple[str, str], files: Sequence[str] = ()) -> None:
        write_files(tmp_path, dict.fromkeys(files, "{}\n"))
        found = tuple(EntryPoint(name, value, GROUP) for name, value in entries)
        monkeypatch.setattr(extensions, "extension_entries", lambda: found)

    return install


def test_an_entry_point_names_a_folder_or_a_class(enter: Enter, tmp_path: Path) -> None:
    enter(("conf", "outsider_a.conf"), ("mine", "outsider_a.model:Mine"), files=["outsider_a/conf/loss/mine.yaml"])
    assert settings_folders() == [tmp_path / "outsider_a" / "conf"]
    assert {name: entry.value for name, entry in model_entries().items()} == {"mine": "outsider_a.model:Mine"}
    check_settings_folders(CONF)


def test_a_package_is_found_once_where_it_is_seen_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("first", "second"):  # as an installed package and its checkout are
        info = tmp_path / place / "outsider_b-1.5.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outsider-b\nVersion: 1.5\n")
        (info / "entry_points.txt").write_text(f"[{GROUP}]\nmine = outsider_b:Mine\n")
        monkeypatch.syspath_prepend(str(tmp_path / place))
    extensions.extension_entries.cache_clear()
    try:
        assert model_entries()["mine"].value == "outsider_b:Mine"
        assert extension_versions()["outsider-b"] == "1.5"
    finally:
        extensions.extension_entries.cache_clear()


def test_two_models_of_one_name_are_refused(enter: Enter) -> None:
    enter(("mine", "outsider_c:Mine"), ("mine", "outsider_d:Mine"))
    with pytest.raises(ValueError, match="unique names, got the entry point mine = 'outsider_c:Mine' and the entry"):
        model_entries()


@pytest.mark.parametrize("value", ["outsider_e.conf", "outsider_e.module", "nowhere.conf"])
def test_a_folder_that_is_not_there_is_refused(enter: Enter, value: str) -> None:
    enter(("conf", value), files=["outsider_e/module.py"])
    with pytest.raises(ValueError, match=f"the entry point conf = '{value}'"):
        settings_folders()


def test_a_file_does_not_hide_another(enter: Enter, tmp_path: Path) -> None:
    enter(("conf", "outsider_f.conf"), files=["outsider_f/conf/loss/ranknet.yaml"])
    with pytest.raises(
        ValueError, match=rf"outsider_f/conf/loss/ranknet.yaml: loss/ranknet.yaml already exists in {CONF}"
    ):
        check_settings_folders(CONF)
    files = ["outsider_g/conf/loss/own.yaml", "outsider_h/conf/loss/own.yaml"]
    enter(("a", "outsider_g.conf"), ("b", "outsider_h.conf"), files=files)
    with pytest.raises(
        ValueError, match=r"outsider_h/conf/loss/own.yaml: loss/own.yaml already exists in .*outsider_g/conf"
    ):
        check_settings_folders(CONF)


def test_a_service_is_loaded_by_the_name_of_its_model(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [EntryPoint("mine", "pathlib:Path", SERVICES), EntryPoint("broken", "nowhere:serve", SERVICES)]
    monkeypatch.setattr(extensions, "entry_points", lambda group: entries if group == SERVICES else [])
    assert load_service("mine") is Path
    with pytest.raises(ValueError, match="broken = 'nowhere:serve' cannot be loaded: No module named 'nowhere'"):
        load_service("broken")
    with pytest.raises(ValueError, match=r"must contain a reranker or a model with an entry point of .*, got a x"):
        load_service("x")
