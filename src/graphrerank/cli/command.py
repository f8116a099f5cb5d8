"""One command: its configuration, the parts that it chose, and its loggers."""

import shlex
from copy import deepcopy
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from graphrerank.cli.tracking import Tracking
from graphrerank.config.components import ComponentFactory, ConfiguredComponent
from graphrerank.utils.checks import UserError
from graphrerank.utils.redaction import redact, without_passwords

NONE = "none"  # the file of `conf/encoder` for no encoder
SCRIPTS = ("train", "evaluate", "serve")  # commands with a script in a checkout


class CommandContext:
    """Configuration, run folder, loggers and components of a running command."""

    def __init__(self, cfg: DictConfig) -> None:
        self.cfg, self.run_dir, self.tracking = cfg, Path(cfg.paths.run_dir), Tracking()
        self.parts = ComponentFactory(
            paths=dict(cfg.paths),
            device=cfg.device,
            num_threads=cfg.num_threads,
            seed=cfg.get("seed", 0),
            on_dataset=self.tracking.reads_data,
        )

    @property
    def line(self) -> str:
        """The command as it was given, without folders of this machine."""
        hydra = HydraConfig.get()
        name = str(hydra.job.name)
        program = ["python", f"{name}.py"] if name in SCRIPTS else ["graphrerank", name]
        return shlex.join([*program, *map(without_paths, hydra.overrides.task)])

    @property
    def config(self) -> dict[str, Any]:
        """The configuration as written, without folders of this machine."""
        return portable_config(self.cfg)

    def choice(self, group: str) -> str:
        """Return the chosen file of ``conf/<group>``."""
        return str(HydraConfig.get().runtime.choices[group])

    def chosen(self, group: str) -> ConfiguredComponent | None:
        """Return the chosen part of ``conf/<group>``, with its settings; None for none."""
        settings: DictConfig | None = deepcopy(self.cfg[group])
        if settings is None:
            return None
        OmegaConf.resolve(settings)
        return ConfiguredComponent(settings, self.choice(group))

    def mixed_data(self) -> dict[str, ConfiguredComponent]:
        """Return the data sets of ``mix``, which are trained on in addition to ``data``.

        Returns:
            Data sets by name.

        Raises:
            ValueError: If ``mix`` names ``data``, or a data set that does not exist.
        """
        first, mixed = self.choice("data"), dict[str, ConfiguredComponent]()
        for name, entry in (self.cfg.mix or {}).items():
            if name == first:
                raise UserError(f"`mix` must name other data sets than `data`, got {first!r}, which `data` is")
            changes = dict(entry or {})
            mixed[str(name)] = self.parts.component("data", str(changes.pop("data", name)), **changes)
        return mixed


def portable_config(cfg: DictConfig) -> dict[str, Any]:
    """Return a command's configuration as written, without the folders of this machine."""
    content = OmegaConf.to_container(cfg, resolve=False)
    assert isinstance(content, dict)
    return {str(key): redact(entry) for key, entry in content.items() if key not in ("paths", "ckpt_path")}


def without_paths(override: str) -> str:
    """Hide the folders of this machine, and passwords.

    Example:
        >>> without_paths("paths.datasets=/home/me/data")
        'paths.datasets=DIR'
    """
    key = override.split("=", 1)[0]
    return f"{key}=DIR" if key.startswith("paths.") else without_passwords(override)
