"""``verify=RUN`` of a stranger: what a capsule's overrides may say, and what ran code once."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hydra import initialize_config_dir
from omegaconf import OmegaConf

from graphrerank.cli import schema
from graphrerank.cli.places import Places
from graphrerank.cli.replay import compose_again
from tests.support import ROOT

OWN = ["paths.run_dir=out"]


@pytest.fixture
def places(tmp_path: Path) -> Iterator[Places]:
    schema.register()
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        yield Places(tmp_path / "cache")


BASE = ["checkpoint=attack"]


@pytest.mark.parametrize(
    "override",
    [
        "retriever._target_=joblib.load",
        "+retriever._target_=torch.hub.load",
        "++encoder={_target_:numpy.load,file:x.npy,allow_pickle:true}",
        "encoder={_target_:os.system,command:x}",
        "data={_target_:os.system}",
        "retriever={_target_:os.system}",
        "+encoder.trust_remote_code=true",
        "encoder.trust_remote_code=true",
        "pipeline={_target_:os.system}",
        "checkpoint={_target_:os.system}",
        "checkpoint=[{_target_:os.system}]",
        "job._target_=os.system",
        "job={_target_:os.system}",
        "~encoder",
        "data@shared.x=attack",
        "encoder.model.package=runs.x.y",
        "encoder.model.folder=../x",
        "encoder.model.sha256=0",
        "encoder.model=../x",
        "encoder.model=/etc",
        "hydra.run.dir=/etc",
        "hydra/launcher=x",
        "verify=elsewhere",
        "models=[os.system]",
        "report=[a]",
        "logger=wandb",
        "paths.cache=/etc",
        "paths.datasets=../..",
        "checkpoint=/etc",
        "checkpoint=../x",
        "checkpoint=${oc.env:HOME}",
        "system=${oc.env:HOME}",
        "seed=${eval:1}",
        "seed=1,2",
        "seed=choice(1,2)",
        "checkpoint=glob(*)",
        "system='../x'",
        "datasets=[./x]",
        "systems=['runs/x.trec']",
        "retriever=/etc/passwd",
        "retriever=../serve",
        "encoder=nothing",
        "experiment=../train",
        "nothing=1",
        "+settings.fastinsight._target_=os.system",
        "+settings.fastinsight={_target_:os.system}",
        "+settings.ea_graphrag.steps.0.adapter.checkpoint=../x",
        "++settings.fastinsight.budget=5",
        "_target_=os.system",
        "seed",
        "seed==1=",
        "",
    ],
)
def test_a_capsule_sets_nothing_else(places: Places, override: str) -> None:
    with pytest.raises(Exception, match=r"capsule|of a file|Could not override|Key '\w+' is not in struct") as caught:
        compose_again([*BASE, "encoder=minilm", "retriever=run", override], OWN, places)
    assert isinstance(caught.value, ValueError) or "Could not override" in str(caught.value)


def test_choices_and_plain_values_pass(places: Places) -> None:
    overrides = [
        "checkpoint=[base,attack]",
        "encoder=sentence_transformer",
        "encoder.model=intfloat/multilingual-e5-large",
        'encoder.prompt="query: "',
        "retriever=dense",
        "retriever.top_k=50",
        "data=nfcorpus",
        "data.splits={test: dev}",
        "resamples=200",
        "measures=[nDCG@10,R@5]",
        "device=null",
        "+settings.fastinsight.steps.1.smoothing=0.4",
    ]
    cfg = compose_again(overrides, OWN, places)
    assert (cfg.encoder.model, cfg.retriever.top_k, cfg.resamples) == ("intfloat/multilingual-e5-large", 50, 200)
    assert OmegaConf.to_container(cfg.data.splits) == {"train": "train", "val": "dev", "test": "dev"}
    assert OmegaConf.to_container(cfg.settings) == {"fastinsight": {"steps": {"1": {"smoothing": 0.4}}}}
    assert cfg.paths.run_dir == "out"


def test_files_of_conf_at_known_places_and_their_texts_pass(places: Places) -> None:
    overrides = [
        *BASE,
        "answers=judged",
        "prompt@answers.writer.prompt=short_answer",
        "prompt@answers.judge.prompt=grapher_judge",
        'answers.writer.prompt.system="Answer /briefly/, please: {a: b}"',
    ]
    prompt = compose_again(overrides, OWN, places).answers.writer.prompt
    assert (prompt.name, prompt.system) == ("short_answer", "Answer /briefly/, please: {a: b}")
    piped = ["pipeline=light_rag", "extractor@shared.extractor=two_stage", "prompt@shared.prompts.keywords=citations"]
    shared = compose_again(piped, OWN, places).shared
    assert shared.prompts.keywords.name == "citations"
    assert shared.extractor.extractor.relations.name == "ea_graphrag_triples"


@pytest.mark.parametrize(
    "override",
    [
        "prompt@answers.writer.prompt=/etc/passwd",
        "prompt@answers.writer.prompt=../evaluate",
        "prompt@answers.writer.prompt={_target_: os.system}",
        "prompt@answers.judge.prompt=short_answer",  # `endpoint` has no judge
        "prompt@hydra.run=short_answer",
        "nothing@answers.writer.prompt=short_answer",
        "answers.writer.prompt.system={_target_: os.system}",
        "answers.writer.cache=/etc",
    ],
)
def test_other_files_at_known_places_do_not(places: Places, override: str) -> None:
    with pytest.raises(ValueError, match=r"capsule|of a file"):
        compose_again([*BASE, "answers=endpoint", override], OWN, places)


def test_a_mapping_that_is_permitted_names_no_class(places: Places) -> None:
    for content in ("_target_: os.system", "a: [{_target_: os.system}]"):
        overrides = [*BASE, "encoder=sentence_transformer", f"encoder.prompt={{{content}}}"]
        with pytest.raises(ValueError, match="must not change which classes are built"):
            compose_again(overrides, OWN, places)


def test_a_path_is_the_users_to_name(places: Places, tmp_path: Path) -> None:
    theirs = ["checkpoint=/somewhere/else", "data=folder", f"data.path={tmp_path}"]
    with pytest.raises(ValueError, match="`checkpoint` of a file names '/somewhere/else'"):
        compose_again(theirs, OWN, places)
    with pytest.raises(ValueError, match=r"`data\.path` of a file names"):
        compose_again(theirs, [*OWN, "checkpoint=mine"], places)
    cfg = compose_again(theirs, [*OWN, "checkpoint=mine", "data.path=/my/data"], places)
    assert (cfg.checkpoint, cfg.data.path) == ("mine", "/my/data")
    places.add(str(tmp_path))
    assert compose_again(theirs, [*OWN, "checkpoint=mine"], places).data.path == str(tmp_path)


def test_verify_of_a_strangers_run_runs_nothing(run_command, tmp_path: Path) -> None:
    marker, run = tmp_path / "ran", tmp_path / "run"
    run.mkdir()
    capsule = {
        "format": 1,
        "config": {},
        "settings": {},
        "versions": {},
        "weights": {},
        "data": {},
        "measures": {},
        "tolerance": 1e-6,
    }
    for override in (f"retriever={{_target_:os.mkdir,path:{marker}}}", f"+encoder={{_target_:os.mkdir,path:{marker}}}"):
        (run / "capsule.json").write_text(json.dumps({**capsule, "overrides": ["checkpoint=attack", override]}))
        done = run_command("evaluate.py", f"verify={run}", f"hydra.run.dir={tmp_path / 'out'}")
        assert done.returncode != 0
        assert "a capsule's" in done.stderr
        assert not marker.exists()
    for entry in (
        {"overrides": "checkpoint=attack"},
        {"tolerance": 10.0},
        {"data": {"../../x": {}}},
        {"overrides": [1]},
    ):
        (run / "capsule.json").write_text(json.dumps({**capsule, "overrides": ["checkpoint=attack"], **entry}))
        done = run_command("evaluate.py", f"verify={run}", f"hydra.run.dir={tmp_path / 'out'}")
        assert done.returncode != 0
        assert "capsule.json: not a capsule that can be read" in done.stderr
