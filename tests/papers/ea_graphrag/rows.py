"""Labelled queries with a planted signal, and trainings on them."""

from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from graphrerank.training import AtomicCheckpoints
from graphrerank_papers.ea_graphrag.adapter_fit import AdapterSettings, build_adapter
from graphrerank_papers.ea_graphrag.adapter_module import AdapterModule, AdapterRows
from graphrerank_papers.ea_graphrag.complexity_adapter import ComplexityAdapter


def planted(num_rows: int, seed: int = 0) -> AdapterRows:
    """Ten raw features of very different sizes; two of them decide, one only through its absolute size."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(num_rows, 10, generator=generator)
    decides = 2 * x[:, 1] + 2 * (x[:, 6].abs() - 0.7) + 0.5 * torch.randn(num_rows, generator=generator)
    scale, shift = torch.logspace(-3, 3, 10), torch.linspace(-50, 50, 10)
    return AdapterRows(x * scale + shift * scale, (decides > 0).long())


def build(**arguments: Any) -> ComplexityAdapter:
    """Build a small adapter."""
    return ComplexityAdapter(hidden_channels=[32, 32], **arguments)


def module(train: AdapterRows, *, dropout: float = 0.3, seed: int = 0, **arguments: Any) -> AdapterModule:
    """Return the module of a small adapter of six features."""
    model = build_adapter(build, train, AdapterSettings(num_selected=6, dropout=dropout, seed=seed))
    return AdapterModule(model, **{"learning_rate": 3e-3, "seed": seed, **arguments})


def trainer(folder: Path, *callbacks: L.Callback, **arguments: Any) -> L.Trainer:
    """Return a plain trainer that keeps the last checkpoint and the one with the lowest validation loss."""
    kept = [
        ModelCheckpoint(folder, filename="best", monitor="val/loss", enable_version_counter=False),
        ModelCheckpoint(folder, filename="last", save_on_train_epoch_end=True, enable_version_counter=False),
    ]
    settings: dict[str, Any] = {
        "max_epochs": 8, "accelerator": "cpu", "logger": False, "enable_progress_bar": False,
        "enable_model_summary": False, "num_sanity_val_steps": 0, "plugins": [AtomicCheckpoints()],
        "log_every_n_steps": 1, "default_root_dir": folder,
    }  # fmt: skip
    return L.Trainer(callbacks=[*kept, *callbacks], **settings | arguments)
