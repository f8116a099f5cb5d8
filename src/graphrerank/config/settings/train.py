"""Settings of ``graphrerank train``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphrerank.config.settings.base import TrackedSettings


@dataclass(kw_only=True)
class OperatorSettings:
    """Settings of a frozen operator.

    Attributes:
        restart_prob: Restart probability in (0, 1). null is the best of 0.1 to 0.9 in PR@10 on the validation split.
    """

    restart_prob: float | None = None


@dataclass(kw_only=True)
class OperatorsSettings:
    """Settings of the frozen operators that are compared with the trained models.

    Attributes:
        gcs: Graph-based candidate scoring, which the models read too.
        ppr: Personalized PageRank.
    """

    gcs: OperatorSettings = field(default_factory=OperatorSettings)
    ppr: OperatorSettings = field(default_factory=OperatorSettings)


@dataclass(kw_only=True)
class BatchSettings:
    """Settings of the training batches.

    Attributes:
        batch_size: Number of queries per optimiser step, over all devices together.
        seed: Seed of the order of the queries.
        train_split: Split to train on.
        val_split: Split on which the epoch is chosen and probabilities are calibrated.
    """

    batch_size: int = 32
    seed: int = 1
    train_split: str = "train"
    val_split: str = "val"


@dataclass(kw_only=True)
class AugmentationSettings:
    """Probabilities, per query, of changes of the training batches, so that a checkpoint serves other retrievers.

    Attributes:
        base_swap: Probability that BM25 or the cosine takes the place of the base score.
        score_dropout: Probability that a score is hidden.
        cross_encoder_dropout: Probability that a cross-encoder's scores are hidden.
        edge_dropout: Probability that all edges are hidden.
        type_merge: Probability that all edges are of one type. For models that read types of edges.
        type_swap: Probability that types of edges trade places. For models that read types of edges.
        type_dropout: Probability, for each type, that its edges are hidden. For models that read types of edges.
        edge_noise: Probability that up to 1500 random edges of one type are added.
        list_cut: Probability that the list ends after 20 to 80 candidates.
    """

    base_swap: float = 0.0
    score_dropout: float = 0.0
    cross_encoder_dropout: float = 0.0
    edge_dropout: float = 0.0
    type_merge: float = 0.0
    type_swap: float = 0.0
    type_dropout: float = 0.0
    edge_noise: float = 0.0
    list_cut: float = 0.0


@dataclass(kw_only=True)
class TrainSettings(TrackedSettings):
    """Settings of a training of a reranker, and of its evaluation with frozen systems.

    Attributes:
        system: Name of the trained model in tables, and of its folder within the run folder.
        ablations: Further rows by name: other settings of the model, where it has them. ~ablations.mlp removes one.
        scorers: Names of conf/scorer, which your packages bring: further systems in addition to gcs and ppr.
        seed: Seed of the initial weights, of the order of the queries, of augmentation and of dropout.
        calibration: Calibration of scores to probabilities on the validation split. One of: logistic, start (reuse the
            calibration of `start`), null (off).
        ckpt_path: Run folder, or one of its .ckpt files, whose training is resumed with the other settings of its
            command. null starts a new training.
        start: Checkpoint of the same model whose weights the training begins with: a run folder, a .ckpt file, an
            artifact or the name of a shipped checkpoint. experiment=fine_tune has the settings of base. null begins
            with random weights.
        train_only: Prefixes (up to the first dot) of the names of the parameters to train; all others are frozen. null
            trains all parameters.
        num_threads: Number of torch threads for training and evaluation. These graphs are small, so that a second
            thread gains little.
        device: Device on which texts are encoded and systems evaluated. null is cuda where there is one, else cpu.
        test_split: Split of the final table.
        operator: Frozen operators that are compared with the trained models.
        batches: Training batches.
        mix: Data sets to train on in addition to `data`: a name of conf/data with the settings to change, or any name
            with {data: NAME, ...}. null adds none.
        shares: Share of the batches by name of data set, relative to each other. null is the number of training queries
            of each data set.
        cross_encoder_queries: Number of training queries, and half as many validation queries, whose candidates the
            cross-encoder of features.cross_encoder_top_k scores: one number for each data set, or numbers by name of
            data set (0 for the others). null is all queries.
        num_queries: Number of queries of each split (training, validation and the table's), evenly spaced over it, for
            a trial in minutes. null uses all.
        augmentation: Changes of the training batches, so that a checkpoint serves other retrievers.
    """

    system: str = "gatv2"
    ablations: Mapping[str, Any] | None = field(default_factory=lambda: {"mlp": {"message_passing": False}})
    scorers: Sequence[str] = ()
    seed: int = 1
    calibration: str | None = "logistic"
    ckpt_path: str | None = None
    start: str | None = None
    train_only: Sequence[str] | None = None
    test_split: str = "test"
    operator: OperatorsSettings = field(default_factory=OperatorsSettings)
    batches: BatchSettings = field(default_factory=BatchSettings)
    mix: Mapping[str, Any] | None = None
    shares: Mapping[str, Any] | None = None
    cross_encoder_queries: Any = None
    num_queries: int | None = None
    augmentation: AugmentationSettings = field(default_factory=AugmentationSettings)
