"""Evaluate any systems on any data sets: plan, load, rank, measure, test, report."""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from graphrerank._moved import moved_names
from graphrerank.config.components import ComponentFactory
from graphrerank.config.compose import group_choices
from graphrerank.corpus.filters import Filter
from graphrerank.evaluation.ablations import EDGE_ABLATIONS
from graphrerank.evaluation.baselines import OPTIONAL_BASELINES
from graphrerank.evaluation.dataset_result import measure_systems
from graphrerank.evaluation.datasets import DatasetLoader
from graphrerank.evaluation.loading import candidate_notes, endpoint_notes, load_systems
from graphrerank.evaluation.plan import plan_evaluation
from graphrerank.evaluation.rank import build_runners, rank_systems, with_notes
from graphrerank.evaluation.records import DatasetResult
from graphrerank.evaluation.reporting import report_dataset, summarize
from graphrerank.evaluation.result import EvaluationResult
from graphrerank.evaluation.systems import Stage, System

Argument = TypeVar("Argument")

__getattr__ = moved_names(__name__)


def evaluate(
    systems: Any,
    data: Any,
    *,
    split: str = "test",
    edges: str | None = None,
    retriever: Any = None,
    encoder: Any = None,
    pair_encoder: Any = None,
    cross_encoder_top_k: int = 20,
    scorers: Sequence[str | System] = (),
    measures: Sequence[str] = (),
    significance_measures: Sequence[str] = (),
    ties: str = "own",
    resamples: int = 10_000,
    edge_ablations: Sequence[str] = EDGE_ABLATIONS,
    baselines: Sequence[str] = OPTIONAL_BASELINES,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    stages: Sequence[Stage] = (),
    filter: Filter | None = None,
    num_queries: int | None = None,
    seed: int = 0,
    run_dir: str | Path | None = None,
    parts: ComponentFactory | None = None,
    show: bool = True,
    command: str = "graphrerank.evaluate",
    config: Mapping[str, Any] | None = None,
    tested: Sequence[str] | None = None,
    counterfactuals: Sequence[str] | None = None,
) -> EvaluationResult:
    r"""Evaluate systems on the same queries of each data set, and compare the last system with every other system.

    All checkpoints rerank the same candidates. The retriever's ranking, PPR, GCS and a fusion of ranks are added as
    baselines. If a data set is passed by name, the settings of the first checkpoint that was trained on it are used.

    Args:
        systems: One system, a list of systems, or a mapping from labels to systems. A system is one of

            - a checkpoint: a :class:`~graphrerank.GraphReranker`, the name of a shipped checkpoint, or the path of a
              run folder, a ``.ckpt`` file or an artifact;
            - a pipeline: the name of a file of ``conf/pipeline``, settings, a factory, or a built
              :class:`~graphrerank.pipelines.pipeline.Pipeline`;
            - a TREC run file: its path, in which ``{dataset}`` is replaced by the name of the data set.

            Systems without labels are named after the last components of their paths. If a single checkpoint is passed,
            its models keep the names in their manifests.
        data: One data set or a list of them: a :class:`~graphrerank.Dataset`, the name of a file of ``conf/data``, the
            path of a data set folder, settings, or a prepared data set.
        split: Split whose queries and judgements are used.
        edges: Edges of all data set folders in ``data``. ``"auto"`` also extracts edges from the texts
            (:meth:`Dataset.from_folder <graphrerank.Dataset.from_folder>`). If None, the edges are those of the data
            sets. It cannot change a data set that has already been loaded.
        retriever: Retriever that produces the candidates. Pipeline search steps that name no retriever use it too. If
            None, the retriever that the first checkpoint was trained with is used, or dense search without checkpoints.
        encoder: Text encoder for queries and passages, or ``"none"`` to run without vectors. If None, the encoder that
            the first checkpoint was trained with is used, or MiniLM if there are only pipelines.
        pair_encoder: Cross-encoder for pipelines, and for checkpoints that use its scores or vectors. If None, each
            checkpoint uses the cross-encoder that it was trained with.
        cross_encoder_top_k: Number of top candidates per query that ``pair_encoder`` scores. Only used by checkpoints
            with cross-encoder features.
        scorers: Additional baselines: names of files of ``conf/scorer``, or systems.
        measures: Names of measures, such as ``nDCG@10``, ``PR@5`` or an expression of ``ir_measures``. If empty,
            ``RERANKER_MEASURES`` for a single checkpoint and ``MIXED_MEASURES`` otherwise
            (:mod:`~graphrerank.evaluation.measuring`).
        significance_measures: Measures to run significance tests on. Must be a subset of ``measures``. If empty,
            nDCG@10, PR@10 and CR@10 are tested if they are measured, and the measures that ``stages`` request.
        ties: Order of passages with equal scores: ``own`` keeps the system's order, ``trec`` sorts by document id as
            trec_eval does (:func:`~graphrerank.evaluation.measuring.break_ties`).
        resamples: Number of random sign flips of each randomisation test, and number of bootstrap samples.
        edge_ablations: Edge ablations to run: each checkpoint is evaluated again with edges ``shuffled``, ``removed``,
            or without one edge type (``each_type``). Defaults to all three; an empty list disables them.
        baselines: Baselines to compare with checkpoints, in addition to the retriever: ``ppr``, ``gcs`` and
            ``rank_fusion`` (reciprocal rank fusion of BM25, dense search and PPR, for retrievers that return both
            scores). Defaults to all three.
        settings: Overrides of pipeline settings, by label of the pipeline.
        stages: Functions that are called with the rankings of all systems and add measures, notes and tables
            (:class:`~graphrerank.evaluation.systems.Stage`).
        filter: Metadata filter (:mod:`~graphrerank.corpus.filters`). Passages that do not match are removed from the
            corpus, the judgements and the run files. If None, all passages are used.
        num_queries: Number of queries to evaluate, the first ones in the order of their ids. If None, all queries of
            the split are used.
        seed: Random seed for resampling and for edge shuffling.
        run_dir: Folder for the report, ``metrics.json``, ``result.json`` and run files. If None, no files are written.
        parts: Factory of components. If None, components are built with the folders of ``conf/paths``.
        show: Whether to print the table of each data set.
        command: Command line, for the report.
        config: Configuration of the command, which is saved for comparisons between runs. If None, it is empty.
        tested: Deprecated name of ``significance_measures``.
        counterfactuals: Deprecated name of ``edge_ablations``.

    Returns:
        Means, intervals, significance tests and costs of every system. The scores per query are
        ``datasets[name].systems[label].values[measure]``, ``[Q]`` float64, NaN for queries that a measure excludes.

    Raises:
        UserError: If a system is unknown, if two systems have the same name, or if another argument is invalid.

    Example:
        Compare a trained model with the shipped checkpoint:

        >>> from graphrerank import Dataset, evaluate, fit
        >>> data = Dataset.from_folder("my_data")  # doctest: +SKIP
        >>> result = evaluate({"base": "base", "mine": fit(data)}, data)  # doctest: +SKIP
        >>> result.to_pandas()["nDCG@10"]  # doctest: +SKIP

        Measure a run file:

        >>> import tempfile, torch
        >>> from graphrerank.corpus import CorpusGraph
        >>> from graphrerank.data.dataset import Qrels
        >>> graph = CorpusGraph.from_edges(["a", "b"], ["about a dog", "about a cat"], torch.tensor([[0, 1]]))
        >>> qrels = Qrels(query=torch.tensor([0]), node=torch.tensor([1]), gain=torch.tensor([1.0]))
        >>> data = Dataset("toy", graph, ["q"], ["which cat?"], {"test": qrels})
        >>> run = Path(tempfile.mkdtemp()) / "mine.trec"
        >>> _ = run.write_text("q Q0 a 1 2.0 mine\nq Q0 b 2 1.0 mine\n")
        >>> result = evaluate({"mine": run}, data, measures=["MRR"], resamples=10, show=False)
        >>> result.datasets["toy"].systems["mine"].means
        {'MRR': 0.5}
    """
    components = parts or ComponentFactory(seed=seed)
    planned = plan_evaluation(
        systems,
        data,
        pipeline_names=group_choices("pipeline"),
        measures=measures,
        significance_measures=_renamed("tested", tested, "significance_measures", significance_measures),
        stages=stages,
        pipeline_settings=settings,
        edge_ablations=_renamed("counterfactuals", counterfactuals, "edge_ablations", edge_ablations),
        baselines=baselines,
        ties=ties,
        resamples=resamples,
        seed=seed,
    )
    loaded = load_systems(
        planned,
        components,
        retriever=retriever,
        encoder=encoder,
        pair_encoder=pair_encoder,
        cross_encoder_top_k=cross_encoder_top_k,
    )
    runners = build_runners(planned, loaded, components, scorers=scorers, seed=seed)
    notes = candidate_notes(loaded)
    loader = DatasetLoader(
        components,
        loaded,
        split=split,
        edges=edges,
        filter=filter,
        num_queries=num_queries,
        prepare=any(runner.needs_preparation for runner in runners),
    )
    folder = None if run_dir is None else Path(run_dir)
    datasets: dict[str, DatasetResult] = {}
    for dataset in loader.resolve(planned.datasets):
        task = loader.load(dataset)
        ranked = rank_systems(task, runners, planned.labels, notes=notes)
        ranked = with_notes(ranked, endpoint_notes(components.encoder_counts))
        stage_results = [stage(ranked, run_dir=folder, seed=seed) for stage in stages]
        measured = measure_systems(ranked, planned.measures, stage_results)
        datasets[measured.name] = measured
        result = summarize(
            datasets, planned.measures, command=command, config=config, filter=filter, counts=components.encoder_counts
        )
        report_dataset(result, measured.name, show=show, run_dir=folder)
    return result


def _renamed(old: str, old_argument: Argument | None, new: str, argument: Argument) -> Argument:
    """Return the argument passed under its old name, with a deprecation warning, or else the one under its new name."""
    if old_argument is None:
        return argument
    warnings.warn(
        f"`{old}` of evaluate() was renamed to `{new}`. The old name will be removed in 0.5.0",
        DeprecationWarning,
        stacklevel=3,
    )
    return old_argument
