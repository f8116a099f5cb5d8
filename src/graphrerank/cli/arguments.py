"""The command line before Hydra reads it."""

from collections.abc import Sequence

from graphrerank.checks import UserError
from graphrerank.passwords import check_no_password, without_passwords

RENAMED = dict.fromkeys(("tables", "adapter", "curves", "routing", "ket", "retag"), "job")
OPEN = ("service.", "settings.")  # mappings to which keys are added


def read_arguments(arguments: Sequence[str]) -> list[str]:
    """Write settings of pipelines as Hydra adds them.

    Keys of earlier versions are refused, and URLs with a password, which Hydra would log.

    Example:
        >>> read_arguments(["settings.fastinsight.budget=50"])
        ['+settings.fastinsight.budget=50']
    """
    for argument in arguments:
        key = argument.lstrip("+~").split("=", 1)[0]
        first, dot, rest = key.partition(".")
        if first in RENAMED:
            shown = without_passwords(argument)
            raise UserError(f"`{key}` must be written as `{RENAMED[first]}{dot}{rest}`, got {shown!r}")
        check_no_password(**{key: argument})
    return [f"+{argument}" if argument.startswith(OPEN) else argument for argument in arguments]
