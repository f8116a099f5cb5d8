import pytest
from hydra import compose, initialize_config_dir

from graphrerank.cli.schema import check_settings, register
from tests.support import CONF


@pytest.mark.parametrize("name", ["train", "evaluate", "serve", "export", "prepare", "calibrate", "doctor"])
def test_groups_without_a_choice_become_null(name: str) -> None:
    register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        cfg = compose(name, overrides=[] if name in ("train", "serve") else ["device=null"])
    check_settings(cfg, name)
    assert cfg.get("experiment") is None
    assert name in ("train", "export", "prepare") or cfg.encoder is None
