"""Redaction of passwords, which must reach no manifest, no log and no error message."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from graphrerank.utils.checks import UserError

_IN_AUTHORITY = re.compile(r"(://[^:/@\s]*):[^@\s]*@")
_IN_PARAMETER = re.compile(
    r"([?&;][^=&;?\s]*(?:pass|pwd|secret|token|credential|key|odbc_connect)[^=&;?\s]*=)[^&\s]*", re.IGNORECASE
)


def without_passwords(text: str) -> str:
    """Replace each password in the URLs of a text by ``***``.

    A password stands before the host (``user:password@host``) or in a parameter whose name says so (``?password=``,
    ``sslpassword``, ``access_token``, ``api_key``; the whole of ``odbc_connect``).

    Example:
        >>> without_passwords("postgresql://me:hunter2@host/db?sslpassword=hunter3&sslmode=require")
        'postgresql://me:***@host/db?sslpassword=***&sslmode=require'
    """
    return _IN_PARAMETER.sub(r"\1***", _IN_AUTHORITY.sub(r"\1:***@", text)) if "://" in text else text


def redact(content: Any, exclude: Sequence[str] = (), *, without_private: bool = False) -> Any:
    """Return a copy of nested settings without their passwords.

    Args:
        content: Mappings, lists and plain values, nested at any depth.
        exclude: Keys to leave out at any depth.
        without_private: Whether to leave out keys that begin with ``_`` too, such as Hydra's ``_target_``.

    Returns:
        Copy of the content, in which :func:`without_passwords` has replaced the passwords of each text.

    Example:
        >>> settings = {"url": "http://me:hunter2@host", "device": "cpu", "_target_": "x"}
        >>> redact(settings, ["device"], without_private=True)
        {'url': 'http://me:***@host'}
    """
    if isinstance(content, Mapping):
        return {
            key: redact(entry, exclude, without_private=without_private)
            for key, entry in content.items()
            if key not in exclude and not (without_private and str(key).startswith("_"))
        }
    if isinstance(content, list):
        return [redact(entry, exclude, without_private=without_private) for entry in content]
    return without_passwords(content) if isinstance(content, str) else content


def check_no_password(**addresses: str) -> None:
    """Refuse addresses that hold a password; the error does not show it."""
    for argument, address in addresses.items():
        if without_passwords(address) != address:
            raise UserError(
                f"`{argument}` must not hold a password, which would be written into manifests and logs; leave it to "
                "the driver (PGPASSWORD, ~/.pgpass, ~/.my.cnf)"
            )
