import pytest
from hydra import compose, initialize_config_dir

from graphrerank.cli.schema import check_settings, register
from tests.support import CONF


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        ("train", ["seed=x"], "`seed`: input should be a valid integer, got 'x'"),
        ("train", ["batches.batch_size=1.5"], "`batches.batch_size`: input should be a valid integer"),
        ("train", ["batches.buffer=many"], "`batches.buffer`: input should be a valid integer"),
        ("train", ["augmentation.edge_dropout=x"], "`augmentation.edge_dropout`: input should be a valid number"),
        ("train", ["operator.gcs.restart_prob=x"], "`operator.gcs.restart_prob`: input should be a valid number"),
        ("train", ["+sede=3"], "unknown setting 'sede'; the settings are"),
        ("evaluate", ["datasets=attack"], "`datasets`: input should be a valid list, got 'attack'"),
        ("evaluate", ["num_queries=x"], "`num_queries`: input should be a valid integer"),
        ("prepare", ["replace=1"], "`replace`: input should be a valid boolean, got 1"),
        ("serve", ["port=http"], "`port`: input should be a valid integer, got 'http'"),
    ],
)
def test_a_setting_of_another_type_is_named(name: str, overrides: list[str], message: str) -> None:
    register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        cfg = compose(name, overrides=overrides)
    with pytest.raises(ValueError, match=message):
        check_settings(cfg, name)


@pytest.mark.parametrize("name", ["train", "evaluate", "serve", "export", "prepare", "calibrate", "doctor"])
def test_groups_without_a_choice_become_null(name: str) -> None:
    register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        cfg = compose(name, overrides=[] if name in ("train", "serve") else ["device=null"])
    check_settings(cfg, name)
    assert cfg.get("experiment") is None
    assert name in ("train", "export", "prepare") or cfg.encoder is None
