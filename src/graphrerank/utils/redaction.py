"""Passwords in the addresses of databases and services, which must reach no manifest, no log and no error."""

import re

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


def check_no_password(**addresses: str) -> None:
    """Refuse addresses that hold a password; the error does not show it."""
    for argument, address in addresses.items():
        if without_passwords(address) != address:
            raise UserError(
                f"`{argument}` must not hold a password, which would be written into manifests and logs; leave it to "
                "the driver (PGPASSWORD, ~/.pgpass, ~/.my.cnf)"
            )
