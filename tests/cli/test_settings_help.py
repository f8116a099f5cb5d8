from pathlib import Path

import pytest

from graphrerank.cli.settings_help import is_asked, settings_help
from tests.support import CONF


@pytest.mark.parametrize("name", ["train", "evaluate", "serve"])
def test_every_setting_with_its_comment(name: str) -> None:
    text = settings_help(name, ["--help"], [CONF])
    lines = (CONF / f"{name}.yaml").read_text().split("\nhydra:\n")[0].splitlines()
    assert lines
    for line in lines:
        assert (line in text.splitlines()) != ("- override " in line), line
    assert "claim_run_folder" not in text  # Hydra's own
    assert "  retriever: bm25, dense, hybrid, " in text


def test_a_choice_with_what_it_inherits() -> None:
    text = settings_help("train", ["data=folder", "--help", "trainer.max_epochs=3"], [CONF])
    for file in ("folder", "shared/edges"):
        for line in (CONF / "data" / f"{file}.yaml").read_text().splitlines():
            assert f"  {line}" in text
    assert settings_help("evaluate", ["data=null"], [CONF]) == settings_help("evaluate", [], [CONF])
    with pytest.raises(ValueError, match=r"`data` must be one of \['2wikimultihopqa', .* got 'nothing'"):
        settings_help("train", ["--help", "data=nothing"], [CONF])


def test_choices_of_other_packages(tmp_path: Path) -> None:
    (tmp_path / "loss").mkdir()
    (tmp_path / "loss" / "mine.yaml").write_text("_target_: mine.Loss # my own\n")
    text = settings_help("train", ["--help", "loss=mine"], [CONF, tmp_path])
    assert "loss: bce, lambdaloss, listwise, mine, ranknet" in text
    assert "loss/mine.yaml\n  _target_: mine.Loss # my own" in text


def test_who_asks() -> None:
    assert is_asked(["a=1", "--help"])
    assert is_asked(["-h"])
    assert not is_asked(["--hydra-help", "--cfg", "job"])
