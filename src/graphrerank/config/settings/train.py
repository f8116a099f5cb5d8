"""Settings of ``graphrerank train``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphrerank.config.settings.base import TrackedSettings
from graphrerank.data.augmentation_settings import AugmentationSettings


@dataclass(kw_only=True)
class OperatorSettings:
    """Settings of an untrained baseline.

    Attributes:
        restart_prob: Restart probability in (0, 1). null tunes it over 0.1 to 0.9 by PR@10 on the validation split.
    """

    restart_prob: float | None = None


@dataclass(kw_only=True)
class OperatorsSettings:
    """Settings of the untrained baselines that are compared with the trained models.

    Attributes:
        gcs: Graph Cohesive Smoothing, whose score is also a feature of the models.
        ppr: Personalized PageRank.
    """

    gcs: OperatorSettings = field(default_factory=OperatorSettings)
    ppr: OperatorSettings = field(default_factory=OperatorSettings)


@dataclass(kw_only=True)
class BatchSettings:
    """Settings of the training batches.

    Attributes:
        batch_size: Number of queries per optimiser step, summed over all devices. Ignored if max_nodes or max_edges is
            set.
        num_workers: Number of processes that build batches. The result does not depend on it. null uses several
            processes for a GPU, and none for a CPU.
        prefetch: Number of batches that each process builds in advance. null is two. Only used with processes.
        max_nodes: Maximum number of candidates per batch, summed over all devices. A batch has as many queries of
            similar size as fit. null does not limit it.
        max_edges: Maximum number of edges per batch, before augmentation. null does not limit it.
        buffer: Number of training queries that are shuffled together. If set, the candidates of all queries are written
            to files instead of being loaded into memory. null keeps all candidates in memory and shuffles all training
            queries together.
        seed: Seed of the order of the queries.
        train_split: Split to train on.
        val_split: Split that selects the epoch, tunes the baselines and calibrates the scores.
    """

    batch_size: int = 32
    num_workers: int | None = None
    prefetch: int | None = None
    max_nodes: int | None = None
    max_edges: int | None = None
    buffer: int | None = None
    seed: int = 1
    train_split: str = "train"
    val_split: str = "val"


@dataclass(kw_only=True)
class TrainSettings(TrackedSettings):
    """Settings of the training of a reranker and of its evaluation against untrained baselines.

    Attributes:
        system: Name of the trained model in the result table and of its folder in the run folder.
        ablations: Ablations of the model, which are trained too. Each name maps to the model settings to change. An
            ablation of a setting that the model does not have is skipped. ~ablations.mlp removes the ablation mlp.
        scorers: Additional scorers to compare with the baselines gcs and ppr, as names of conf/scorer. Installed
            plugins provide these files.
        seed: Seed of the initial weights, the order of the queries, the augmentation and dropout.
        calibration: Calibration of scores to probabilities on the validation split. One of: logistic, start (reuse the
            calibration of `start`), null (off).
        ckpt_path: Folder of a training run to resume, or one of its .ckpt files. Repeat the other settings of its
            command. An interrupted run continues where it stopped. A finished run trains further with a larger
            trainer.max_epochs. null starts a new training run.
        start: Checkpoint of the same model to initialise the weights from: a run folder, a .ckpt file, an artifact or
            the name of a shipped checkpoint. null initialises the weights at random. experiment=fine_tune fine-tunes
            the shipped checkpoint base.
        train_only: Prefixes (up to the first dot) of the names of the parameters to train; all others are frozen. null
            trains all parameters.
        num_threads: Number of torch threads for training and evaluation. The graphs are small, so a second thread
            gains little.
        device: Device for encoding texts and for evaluation, such as cpu or cuda. null uses cuda if available,
            otherwise cpu. `trainer.accelerator` sets the device for training.
        test_split: Split to evaluate on after the training, and to predict with callbacks=trec_run.
        operator: Untrained baselines that are compared with the trained models.
        batches: Training batches.
        mix: Additional data sets to train on. Each key is either a name of conf/data, with the settings to change, or
            any name, with {data: NAME, ...}. null adds no data set.
        shares: Relative share of the batches per data set, by name. null makes each share proportional to the number of
            training queries of the data set.
        cross_encoder_queries: Number of training queries whose candidates the cross-encoder scores; half as many
            validation queries are scored. Either one number for every data set, or numbers by name of data set (0 for
            data sets that are not named). Only used with features.cross_encoder_top_k. null scores all queries.
        num_queries: Number of queries per split (training, validation and test), evenly spaced over the split, for a
            quick trial. null uses all queries.
        augmentation: Augmentation of the training batches, which makes a checkpoint robust to other retrievers.
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
