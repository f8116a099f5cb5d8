"""What commands refuse, each with one message and before anything is written."""

import shlex
from pathlib import Path

import pytest

from tests.support.commands import RunCommand
from tests.support.folders import write_films

EVALUATE = "evaluate.py datasets=[{ring}]"
CURVES = f"{EVALUATE} experiment=fastinsight_curves"
FILMS = "train.py debug=fast features=scores data=folder data.path={films} data.splits=auto"
CROSS = "train.py features=scores_match_typed_cross_encoder features.cross_encoder_top_k=3"
REFUSED = [
    ("train.py model.hiden_channels=3", "unknown setting `model.hiden_channels`"),
    (
        "train.py operator.gcs.restart=0.5",
        "unknown setting `operator.gcs.restart`, did you mean operator.gcs.restart_prob?",
    ),
    ("train.py +sede=3", "unknown setting 'sede'; the settings are"),
    ("train.py trainer.max_epochs=abc", "`trainer.max_epochs`: input should be a valid integer, got 'abc'"),
    ("train.py +trainer.max_epoch=3", "`trainer.max_epoch` is not an argument of lightning.Trainer, did you mean max_"),
    ("train.py seed=x", "`seed`: input should be a valid integer, got 'x'"),
    ("train.py batches.batch_size=1.5", "`batches.batch_size`: input should be a valid integer"),
    ("train.py augmentation.edge_dropout=x", "`augmentation.edge_dropout`: input should be a valid number"),
    ("train.py operator.gcs.restart_prob=x", "`operator.gcs.restart_prob`: input should be a valid number"),
    ("train.py data.path=nowhere.json", "nowhere.json: no such file"),
    ("train.py ckpt_path=nowhere", "`ckpt_path` must be a run folder or a .ckpt file in a run folder"),
    ("train.py features=other", "`features` must be the name of a file of conf/features, got 'other'"),
    ("train.py system=mlp", "`system` must not be the name of a baseline or an ablation, ['retriever',"),
    ("train.py system=ppr", "`system` must not be the name of a baseline or an ablation, ['retriever',"),
    ("train.py loss=kl", "`teacher` must be set for a distillation loss, got None. One of: cross_encoder, run"),
    ("train.py teacher=run teacher.path=a.trec", "`loss` must use the scores of the teacher (kl, margin_mse,"),
    ("train.py teacher=run loss=kl", "teacher.path"),
    ("train.py loss=weighted", "`losses` must map losses to weights, such as {listwise: 1, kl: 0.5}, got None"),
    ("train.py loss=weighted loss.losses={{listwize:1}}", "must be the name of a file of conf/loss, got 'listwize'"),
    ("train.py calibration=magic", "`calibration` must be one of ['logistic', 'start'], got 'magic'"),
    (f"{CROSS} calibration=start", "`start` must be a checkpoint if `calibration` is 'start', got null"),
    (
        f"{CROSS} data=attack cross_encoder_queries={{{{atack:3}}}}",
        "must be keyed by data sets in ['attack'], got ['atack']",
    ),
    (f"{FILMS} encoder=none", "must be set for a retriever that searches vectors"),
    (f"{FILMS} encoder=none features=full retriever=run", "for a model with vectors as inputs"),
    (f"{FILMS} encoder=none retriever=run_expand", "for a retriever that searches vectors"),
    (f"{FILMS} retriever=run retriever.path=nowhere.trec", "nowhere.trec: no such file"),
    ("train.py experiment=grapher_tables trainer.devices=2", "`trainer.devices` must be 1 for this job"),
    ("evaluate.py", "must name a system to evaluate, got none"),
    ("evaluate.py checkpoint=base features=scores", "unknown setting `features`"),
    ("evaluate.py checkpont=nowhere", "unknown setting `checkpont`, did you mean checkpoint?"),
    ("evaluate.py checkpoint=attack datasets=[atack]", "`data` must be the name of a file of conf/data, got 'atack'"),
    (
        "evaluate.py checkpoint=base data.edges=auto",
        "Add data=folder data.path=DIR, or use edges=auto for the edges of",
    ),
    ("train.py data={ring}", "ring'. Use data=folder data.path="),
    ("evaluate.py checkpoint=base retriever.top_k=3", "changes the selected retriever, got none. Add retriever=NAME"),
    ("evaluate.py checkpoint=base datasets=attack", "`datasets`: input should be a valid list, got 'attack'"),
    ("evaluate.py checkpoint=base num_queries=x", "`num_queries`: input should be a valid integer"),
    ("evaluate.py systems=[a.trec] datasets=[attack,spider]", "a.trec is for one data set, but `datasets` names 2. "),
    (f"{EVALUATE} systems=[a.trec,a.trec]", "must contain at least one system and no duplicates"),
    (f"{EVALUATE} systems=[nothing]", "must be a run folder, a .ckpt file, an artifact or one of the shipped names"),
    (f"{EVALUATE} systems=[missing.trec]", "missing.trec: no such file"),
    (f"{EVALUATE} systems=[a.trec] measures=[Recoll@3]", "got 'Recoll@3'"),
    (
        f"{EVALUATE} systems=[a.trec] significance_measures=[R@7]",
        "`significance_measures` must be a subset of `measures`",
    ),
    (f"{EVALUATE} systems=[a.trec] edge_ablations=[turned]", "got ['turned']"),
    (f"{EVALUATE} systems=[a.trec] counterfactuals=[turned]", "`edge_ablations` must be a subset of"),
    (f"{EVALUATE} systems=[a.trec] tested=R@7", "`tested`: input should be a valid list, got 'R@7'"),
    (f"{EVALUATE} systems=[vector_search] pipeline=gar", "must not be combined with `pipeline` or `pipelines`"),
    (f"{EVALUATE} checkpoint=base pipelines=[gar]", "`checkpoint` and `systems` must not be combined with"),
    (f"{EVALUATE} pipelines=[nothing]", "`pipelines` must name files of conf/pipeline, got 'nothing'"),
    (f"{EVALUATE} pipeline=re2", "re2: `pair_encoder` must be set for a step that scores pairs"),
    (f"{EVALUATE} pipeline=ea_graphrag", "`pipeline.steps.0.adapter.checkpoint` must be set for pipeline=ea_graphrag"),
    (
        f"{EVALUATE} systems=[vector_search,ea_graphrag]",
        "`settings.ea_graphrag.steps.0.adapter.checkpoint` must be set for pipeline=ea_graphrag",
    ),
    (f"{EVALUATE} systems=[gar] settings.re2.budget=5", "`settings` must name pipelines in `systems`"),
    (
        f"{EVALUATE} systems=[gar] settings.gar=5",
        "`settings.gar` must be a mapping such as settings.gar.KEY=..., got 5",
    ),
    (f"{EVALUATE} pipeline=gar settings.gar.budget=5", "`settings.gar` must not be used with pipeline=gar"),
    (f"{EVALUATE} systems=[gar] settings.gar.depth=5", "are invalid for conf/pipeline/gar.yaml: Key 'depth'"),
    (f"{EVALUATE} systems=[gar] settings.gar.steps.9.x=5", "are invalid for conf/pipeline/gar.yaml: list index out of"),
    (f"{CURVES} job.budgets=[]", "`job.budgets` must contain at least one budget"),
    (f"{CURVES} +job.settings.depth=[1] pair_encoder.model=x", "of the pipeline 'fastinsight', got 'depth'"),
    ("serve.py mode=http", "`checkpoint` or `artifact` must be set for mode=http"),
    ("serve.py mode=serve", "`mode` must be one of ['http', 'bench', 'export'], got 'serve'"),
    ("serve.py mode=bench", "`checkpoint` or `artifact` must be set for mode=bench"),
    ("serve.py mode=export artifact={out}", "`checkpoint` must be set for mode=export"),
    (
        "serve.py mode=export checkpoint=base format=onnx",
        "`format` must be null for mode=export",
    ),
    (
        "serve.py mode=export checkpoint=nothing",
        "must be a run folder, a .ckpt file, an artifact or one of the shipped",
    ),
    ("serve.py mode=export checkpoint=base formats=onnx", "`formats`: input should be a valid list, got 'onnx'"),
    (
        "serve.py mode=export checkpoint=base formats=[]",
        "`formats` must be one or more of ['torchscript',",
    ),
    (
        "serve.py checkpoint=base formats=[magic]",
        "`formats` must be one or more of ['torchscript',",
    ),
    ("serve.py checkpoint=base revision=v1", "`revision` applies only to models on the hub, got 'v1' for base"),
    ("export checkpoint=base formats=[magic]", "`formats` must be one or more of ['torchscript',"),
    ("serve.py artifact=attack port=http", "`port`: input should be a valid integer, got 'http'"),
    ("serve.py artifact=attack limits.body_bytes=many", "`limits.body_bytes`: input should be a valid integer"),
    ("serve.py artifact=attack limits.body_bytes=0", "`limits.body_bytes` must be a finite number above 0, got 0"),
    ("serve.py artifact=attack limits.bodies=1", "unknown setting `limits.bodies`"),
    ("serve.py artifact=attack mode=bench bench.rounds=0", "`rounds` must be a positive integer, got 0"),
    ("prepare {out}", "got neither"),
    ("prepare {out} data=folder data.path=here compact=true add=there", "got add= and compact= and data="),
    ("prepare {out} data=folder another", "accepts only one folder, got 'another' in addition"),
    ("prepare {out} replace=1", "`replace`: input should be a valid boolean, got 1"),
    ("doctor nowhere/", "no such folder"),
    ("doctor nothing", "`data` must be the name of a file"),
    ("build nothing --from x --out {out}", "nothing"),
    ("build spider --from x --option k --out {out}", "`--option` must be KEY=VALUE, got 'k'"),
    ("build nq --from x --option 'all_pages=[a' --out {out}", "`--option` must be KEY=VALUE, got 'all_pages=[a'"),
]


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_films(tmp_path_factory.mktemp("data") / "films", edges=True, judged=True)


@pytest.mark.parametrize(("command", "message"), REFUSED, ids=[command for command, _ in REFUSED])
def test_what_does_not_fit_is_refused_by_name(
    command: str, message: str, run_command: RunCommand, ring: Path, films: Path, tmp_path: Path
) -> None:
    name, *arguments = shlex.split(command.format(ring=ring, films=films, out=tmp_path / "out"))
    run_dir = [] if name == "build" else [f"hydra.run.dir={tmp_path / 'run'}"]
    done = run_command(name, *arguments, *run_dir, status=1)
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob("run/*/manifest.json"))
