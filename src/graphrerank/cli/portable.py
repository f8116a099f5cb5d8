"""What a run tells of its settings, without the folders of this machine, and what names them in short."""

import hashlib
import json
from typing import Any

from omegaconf import DictConfig, OmegaConf


def portable_config(job: DictConfig) -> dict[str, Any]:
    """Return the configuration as written, without the folders of this machine."""
    content = OmegaConf.to_container(job, resolve=False)
    assert isinstance(content, dict)
    return {str(key): entry for key, entry in content.items() if key not in ("paths", "ckpt_path")}


def without_paths(override: str) -> str:
    """Hide the folders of this machine.

    Example:
        >>> without_paths("paths.datasets=/home/me/data")
        'paths.datasets=DIR'
    """
    key = override.split("=", 1)[0]
    return f"{key}=DIR" if key.startswith("paths.") else override


def digest(parts: Any) -> str:
    """Hash what JSON can write, to 12 hexadecimal digits."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]
