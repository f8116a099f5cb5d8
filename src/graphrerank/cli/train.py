"""``graphrerank train``: train a reranker and its ablations, and evaluate them with the baselines."""

from collections.abc import Mapping
from pathlib import Path

from omegaconf import DictConfig

from graphrerank.cli.command import NONE, CommandContext
from graphrerank.cli.jobs import run_job
from graphrerank.cli.joint_training import joint_training
from graphrerank.cli.ray_training import is_for_ray, train_on_ray
from graphrerank.cli.training_settings import read_train_run, training_folder
from graphrerank.evaluation.baselines import GRAPH_BASELINES
from graphrerank.evaluation.evaluate import evaluate
from graphrerank.evaluation.measuring import RERANKER_MEASURES
from graphrerank.evaluation.memory import peak_memory_mib
from graphrerank.models.manifest import MANIFEST, RerankerManifest, read_manifest, write_manifest
from graphrerank.rerank.graph_reranker import GraphReranker
from graphrerank.rerank.model_card import MODEL_CARD, model_card
from graphrerank.training.trainer import RerankerTrainer
from graphrerank.training.training_data import TrainingData, prepare_training
from graphrerank.utils.files import write_text
from graphrerank.utils.processes import is_first_process


def run(cfg: DictConfig) -> float | None:
    """Run the job of ``conf/train.yaml``, which is :func:`train` unless an experiment replaces it.

    Args:
        cfg: Settings of ``conf/train.yaml``.

    Returns:
        Validation score of the best epoch of ``system``, which Hydra's sweepers optimise. None in a process that is not
        the first, and for a job without a validated training.
    """
    run_dir = train_on_ray(cfg) if is_for_ray(cfg) else run_job(cfg)
    return None if run_dir is None else validation_score(run_dir, cfg.system)


def validation_score(run_dir: Path, system: str) -> float | None:
    """Return the validation score of a trained model.

    Args:
        run_dir: Folder of the run.
        system: Name of the model.

    Returns:
        Score of the best epoch, from the measure that the callback ``best`` monitors. None if the run has no such model
        or did not validate it.
    """
    folder = run_dir / system
    if not (folder / MANIFEST).is_file():
        return None
    validation = read_manifest(folder).content.get("validation")
    return None if validation is None else float(validation["score"])


def train(command: CommandContext) -> Path:
    """Train the model and its ablations, evaluate them, and return the run folder.

    Args:
        command: Running command.

    Returns:
        Run folder.
    """
    with training_folder(command) as run_dir:
        run = read_train_run(command, run_dir)
        data = prepare_training(
            command.parts,
            run.data,
            [row.model for row in run.rows.values()],
            retriever=run.retriever,
            encoder=run.encoder,
            pair_encoder=run.pair_encoder,
            features=run.features,
            settings=run.settings,
            teacher=run.teacher,
            table_split=run.table_split,
        )
        rerankers: dict[str, GraphReranker] = {}
        with joint_training():
            for number, (name, row) in enumerate(run.rows.items(), 1):
                print(f"training {name} ({number} of {len(run.rows)})", flush=True)
                trainer = RerankerTrainer(
                    row.model,
                    run.fit_settings(rerankers),
                    data,
                    features=run.features,
                    logger=command.tracking.open(row.config),
                    run_dir=run_dir,
                    name=name,
                    resume=command.cfg.ckpt_path,
                    parts=command.parts,
                    config=row.recorded,
                    **row.built_groups(),
                )
                rerankers[name] = trainer.train()
        if is_first_process():
            evaluate_rows(command, rerankers, data, run_dir, split=run.table_split)
    return run_dir


def evaluate_rows(
    command: CommandContext, rerankers: Mapping[str, GraphReranker], data: TrainingData, run_dir: Path, *, split: str
) -> None:
    """Evaluate trained models as ``graphrerank evaluate`` does, and write the measures into manifests and model cards.

    Args:
        command: Running command.
        rerankers: Trained models by name.
        data: Data that the models were trained on.
        run_dir: Folder of the run.
        split: Split of the result table.
    """
    cfg = command.cfg
    reads_pairs = any(reranker.inputs.reads_pairs for reranker in rerankers.values())
    result = evaluate(
        rerankers,
        data.first,
        split=split,
        retriever=data.retriever,
        encoder=NONE if data.encoder is None else data.encoder,
        pair_encoder=data.pair_encoder if reads_pairs else None,
        scorers=list(cfg.scorers),
        measures=RERANKER_MEASURES,
        edge_ablations=(),
        baselines=GRAPH_BASELINES,
        run_dir=run_dir,
        parts=command.parts,
        command=command.line,
        config=command.config,
    )
    (dataset,) = result.datasets.values()
    for name, reranker in rerankers.items():
        metrics = {f"{dataset.name}/{dataset.split}": dataset.systems[name].means}
        command.tracking.log_test(run_dir / name, dataset.name, dataset.systems[name].means)
        content = reranker.checkpoint.manifest.content
        entries = {"metrics": metrics, "primary": name == cfg.system, "command": command.line}
        write_manifest(run_dir / name, {**content, **entries})
        manifest = read_manifest(run_dir / name)
        assert isinstance(manifest, RerankerManifest)
        write_text(run_dir / name / MODEL_CARD, model_card(manifest, str(run_dir / name)))
    print(f"peak memory {peak_memory_mib() / 1024:.2f} GiB")
