"""Which prompts the parts of a configuration tell a language model."""

from collections.abc import Mapping
from typing import Any

from omegaconf import OmegaConf

from graphrerank.language_models.prompt import Prompt

TARGET = "graphrerank.language_models.prompt.Prompt"
SLOTS = ("prompt", "prompts")


def prompts_of(*parts: Any) -> list[str]:
    """List the prompts in parts of a configuration, each once: name and fingerprint.

    Those beside a language model that is null, or beside a choice that asks none, are left out.
    """
    found: dict[str, None] = {}
    pending = [OmegaConf.to_container(part, resolve=True) for part in parts if OmegaConf.is_config(part)]
    while pending:
        content: Any = pending.pop(0)
        if isinstance(content, list):
            pending += content
        elif isinstance(content, Mapping) and content.get("_target_") == TARGET:
            prompt = Prompt(**{str(key): entry for key, entry in content.items() if key != "_target_"})
            found[f"{prompt.name} {prompt.fingerprint}"] = None
        elif isinstance(content, Mapping):
            pending += [entry for key, entry in content.items() if not (key in SLOTS and _asks_nobody(content))]
    return list(found)


def _asks_nobody(step: Mapping[Any, Any]) -> bool:
    return (
        step.get("language_model", "") is None
        or (step.get("language") == "extractive" and step.get("routing") != "language_model")
        or step.get("rerank", "language_model") != "language_model"
    )
