from collections.abc import Iterator
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from graphrerank.cli import schema
from graphrerank.cli.compose import group_from_manifest
from graphrerank.models.entries import GroupEntry
from tests.support import ROOT


@pytest.fixture
def composed() -> Iterator[DictConfig]:
    schema.register()
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        yield compose("evaluate", overrides=["checkpoint=none"])


def targets(content: Any) -> list[str]:
    """Everything that Hydra would call, at any depth."""
    if isinstance(content, dict):
        own = [content["_target_"]] if "_target_" in content else []
        return own + [target for entry in content.values() for target in targets(entry)]
    return [target for entry in content for target in targets(entry)] if isinstance(content, list) else []


CALL = {"_target_": "os.mkdir", "path": "/nowhere"}


@pytest.mark.parametrize("prompt", [CALL, [CALL], [[{"deep": [CALL]}]]])
def test_targets_never_come_from_a_manifest(composed, prompt):
    plain = targets(OmegaConf.to_container(group_from_manifest(composed, "encoder", GroupEntry("minilm"))))
    assert len(plain) > 0
    entry = GroupEntry("minilm", {"_target_": "os.mkdir", "prompt": prompt})
    assert targets(OmegaConf.to_container(group_from_manifest(composed, "encoder", entry))) == plain


@pytest.mark.parametrize("prompt", ["${oc.env:HOME}", ["a", {"b": "${oc.env:HOME}"}]])
def test_a_manifest_does_not_read_the_environment(composed, prompt):
    with pytest.raises(ValueError, match="the manifest's arguments of encoder must be plain"):
        group_from_manifest(composed, "encoder", GroupEntry("minilm", {"prompt": prompt}))


@pytest.mark.parametrize("choice", ["../evaluate", "a/b", "", "minilm,none"])
def test_a_manifest_names_no_file_outside_conf(composed, choice):
    with pytest.raises(ValueError, match="`encoder` must name a file of conf/encoder"):
        group_from_manifest(composed, "encoder", GroupEntry(choice))
