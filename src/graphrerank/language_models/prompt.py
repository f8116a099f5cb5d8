"""Prompts: each file of ``conf/prompts`` holds some, by name."""

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
    """A template of the messages to a chat model; ``{name}`` stands for a text that is inserted verbatim."""

    name: str  # in reports
    user: str  # the user's message
    _: KW_ONLY
    system: str | None = None  # message before it; None for none
    abstention: str | None = None  # sentence by which an answer says that the passages do not hold it; None for none
    # form of what the model writes, which a local one cannot leave: a JSON schema (begins with `{`) or a regular
    # expression; None for any text
    form: str | None = None

    def __post_init__(self) -> None:
        form = self.form or ""
        try:
            json.loads(form) if is_schema(form) else re.compile(form)
        except (ValueError, re.error) as error:
            needed = "a JSON schema, which begins with {, or a regular expression"
            raise UserError(f"the `form` of prompt {self.name!r} must be {needed}, got {form!r}: {error}") from error

    def fill(self, **texts: str) -> str:
        """Return the user's message with texts in their places; a ValueError if it has others."""
        places = set(_FIELD.findall(self.user))
        if places != set(texts):
            raise UserError(f"prompt {self.name!r} must have the places {sorted(texts)}, got {sorted(places)}")
        return _FIELD.sub(lambda place: texts[place[1]], self.user)

    def instructions(self, **settings: object) -> str | None:
        """Return the system message with settings in their places, which it need not have; a ValueError for others."""
        places = set(_FIELD.findall(self.system or ""))
        if unknown := sorted(places - set(settings)):
            raise UserError(
                f"the system message of prompt {self.name!r} must have no places but {sorted(settings)}, got {unknown}"
            )
        return self.system and _FIELD.sub(lambda place: str(settings[place[1]]), self.system)

    @property
    def wording(self) -> str:
        """Both messages without the placeholders."""
        parts = (_FIELD.sub("", message or "").strip() for message in (self.system, self.user))
        return "\n\n".join(filter(None, parts))

    @property
    def key(self) -> str:
        """What caches of extracted knowledge lie under: the system message where the user's is the bare text."""
        return self.system if self.system and self.user == "{text}" else self.fingerprint

    @property
    def fingerprint(self) -> str:
        """12 hexadecimal digits that change whenever the prompt does."""
        form = () if self.form is None else (self.form,)
        return hashlib.sha256(repr((self.system, self.user, self.abstention, *form)).encode()).hexdigest()[:12]


def is_schema(form: str) -> bool:
    """Return whether a form is a JSON schema, else it is a regular expression."""
    return form.lstrip().startswith("{")


ModelT = TypeVar("ModelT")


@runtime_checkable
class ConstrainableModel(Protocol):
    """Protocol of language models that can be made to answer in a form. Other models are asked by their prompt only."""

    def in_form(self, form: str) -> Any:
        """Return a model of the same kind whose answers keep to a form.

        Args:
            form: JSON schema or regular expression.

        Returns:
            The constrained model, or this model if it cannot keep to the form.
        """


def in_form(model: ModelT, form: str | None) -> ModelT:
    """Return a model constrained to a form.

    Args:
        model: Language model. Unless it is a :class:`ConstrainableModel`, it is returned as it is.
        form: JSON schema or regular expression. If None, the model is returned as it is.

    Returns:
        The constrained model, or ``model``.

    Example:
        >>> in_form("a model without forms", '{"type": "object"}')
        'a model without forms'
    """
    if form is None or not isinstance(model, ConstrainableModel):
        return model
    return cast(ModelT, model.in_form(form))


def shipped_prompt(name: str) -> Prompt:
    """Return a prompt that ships with this package or with an installed extension."""
    prompts = listed_choices("prompt")
    if name not in prompts:
        raise UserError(f"`name` must be a prompt that ships, one of {sorted(prompts)}, got {name!r}")
    return Prompt(name, **prompts[name])
