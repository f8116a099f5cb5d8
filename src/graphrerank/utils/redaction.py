"""Redaction of passwords, so that they appear in no manifest, log or error message."""

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

    Passwords are recognised before the host (``user:password@host``) and in parameters whose name indicates one
    (``?password=``, ``sslpassword``, ``access_token``, ``api_key``). The value of ``odbc_connect`` is replaced as a
    whole.

    Args:
        text: Any text.

    Returns:
        Text without passwords.

    Example:
        >>> without_passwords("postgresql://me:hunter2@host/db?sslpassword=hunter3&sslmode=require")
        'postgresql://me:***@host/db?sslpassword=***&sslmode=require'
    """
    return _IN_PARAMETER.sub(r"\1***", _IN_AUTHORITY.sub(r"\1:***@", text)) if "://" in text else text


def redact(content: Any, exclude: Sequence[str] = (), *, without_private: bool = False) -> Any:
    """Return a copy of nested settings without passwords.

    Args:
        content: Mappings, lists and plain values, nested at any depth.
        exclude: Keys to omit at any depth.
        without_private: Whether to omit keys that begin with ``_``, such as Hydra's ``_target_``.

    Returns:
        Copy of the content in which :func:`without_passwords` was applied to each string.

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
    """Require addresses without a password. The error message does not show the address.

    Args:
        **addresses: Addresses by argument name.

    Raises:
        ValueError: If an address contains a password.
    """
    for argument, address in addresses.items():
        if without_passwords(address) != address:
            raise UserError(
                f"`{argument}` must not contain a password, because it would be written to manifests and logs; pass "
                "the password to the driver instead (PGPASSWORD, ~/.pgpass, ~/.my.cnf)"
            )
