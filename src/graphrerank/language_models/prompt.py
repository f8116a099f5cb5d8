"""Prompts. Each file of ``conf/prompts`` defines one or more prompts by name."""

import hashlib
import json
import re
from dataclasses import KW_ONLY, dataclass
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

from graphrerank.installation.conf_folder import listed_choices
from graphrerank.utils.checks import UserError

_FIELD = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Prompt:
    """Template of the messages to a chat model. Placeholders such as ``{name}`` are replaced by texts verbatim.

    Attributes:
        name: Name of the prompt in reports.
        user: Template of the user message.
        system: Template of the system message. If None, there is none.
        abstention: Sentence with which an answer states that the passages do not contain it. If None, there is none.
        form: Form of the answer: a JSON schema (begins with ``{``) or a regular expression. Models that support
            constrained generation cannot deviate from it. If None, any text is allowed.
    """

    name: str
    user: str
    _: KW_ONLY
    system: str | None = None
    abstention: str | None = None
    form: str | None = None

    def __post_init__(self) -> None:
        form = self.form or ""
        try:
            json.loads(form) if is_schema(form) else re.compile(form)
        except (ValueError, re.error) as error:
            needed = "a JSON schema, which begins with {, or a regular expression"
            raise UserError(f"the `form` of prompt {self.name!r} must be {needed}, got {form!r}: {error}") from error

    def fill(self, **texts: str) -> str:
        """Return the user message with texts in place of the placeholders.

        Args:
            **texts: Text of each placeholder.

        Returns:
            User message.

        Raises:
            ValueError: If the template has other placeholders.
        """
        placeholders = set(_FIELD.findall(self.user))
        if placeholders != set(texts):
            raise UserError(
                f"prompt {self.name!r} must have the placeholders {sorted(texts)}, got {sorted(placeholders)}"
            )
        return _FIELD.sub(lambda match: texts[match[1]], self.user)

    def instructions(self, **settings: object) -> str | None:
        """Return the system message with settings in place of the placeholders.

        Args:
            **settings: Value of each placeholder. The template need not use all of them.

        Returns:
            System message, or None if the prompt has none.

        Raises:
            ValueError: If the template has other placeholders.
        """
        placeholders = set(_FIELD.findall(self.system or ""))
        if unknown := sorted(placeholders - set(settings)):
            raise UserError(
                f"the system message of prompt {self.name!r} must only have the placeholders {sorted(settings)}, "
                f"got {unknown}"
            )
        return self.system and _FIELD.sub(lambda match: str(settings[match[1]]), self.system)

    @property
    def wording(self) -> str:
        """System and user message without the placeholders."""
        messages = (_FIELD.sub("", message or "").strip() for message in (self.system, self.user))
        return "\n\n".join(filter(None, messages))

    @property
    def key(self) -> str:
        """Key of caches of extracted knowledge: the system message if the user message is the bare text."""
        return self.system if self.system and self.user == "{text}" else self.fingerprint

    @property
    def fingerprint(self) -> str:
        """Hash of 12 hexadecimal digits that changes whenever the prompt does."""
        form = () if self.form is None else (self.form,)
        return hashlib.sha256(repr((self.system, self.user, self.abstention, *form)).encode()).hexdigest()[:12]


def is_schema(form: str) -> bool:
    """Return whether a form is a JSON schema rather than a regular expression.

    Args:
        form: Form of a prompt.

    Returns:
        True for a JSON schema.
    """
    return form.lstrip().startswith("{")


ModelT = TypeVar("ModelT")


@runtime_checkable
class ConstrainableModel(Protocol):
    """Protocol of language models whose answers can be constrained to a form. Other models only follow their prompt."""

    def in_form(self, form: str) -> Any:
        """Return a model of the same kind whose answers are constrained to a form.

        Args:
            form: JSON schema or regular expression.

        Returns:
            Constrained model, or this model if it does not support the form.
        """


def in_form(model: ModelT, form: str | None) -> ModelT:
    """Return a model constrained to a form.

    Args:
        model: Language model. Unless it is a :class:`ConstrainableModel`, it is returned unchanged.
        form: JSON schema or regular expression. If None, the model is returned unchanged.

    Returns:
        Constrained model, or ``model``.

    Example:
        >>> in_form("a model without forms", '{"type": "object"}')
        'a model without forms'
    """
    if form is None or not isinstance(model, ConstrainableModel):
        return model
    return cast(ModelT, model.in_form(form))


def shipped_prompt(name: str) -> Prompt:
    """Return a prompt that ships with this package or with an installed extension.

    Args:
        name: Name of the prompt.

    Returns:
        The prompt.

    Raises:
        ValueError: If no prompt has this name.
    """
    prompts = listed_choices("prompt")
    if name not in prompts:
        raise UserError(f"`name` must be one of the shipped prompts {sorted(prompts)}, got {name!r}")
    return Prompt(name, **prompts[name])
