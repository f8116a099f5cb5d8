"""Times in ISO 8601, parsed to instants, so that the same time in different notations compares as equal."""

import re
from datetime import UTC, date, datetime, timedelta

from graphrerank.utils.checks import UserError

TIME_FORMS = (
    "a time in ISO 8601, such as 2025-01-31, 20250131, 2025-01, 2025-01-31T10:00Z or 2025-01-31T10:00:00.5+02:00 "
    "(UTC where no zone is written)"
)
_DATE = re.compile(
    r"(?P<year>\d{4})"
    r"(?:-(?P<month>\d\d)(?:-(?P<day>\d\d))?|(?P<basic_month>\d\d)(?P<basic_day>\d\d)"
    r"|-?W(?P<week>\d\d)(?:-?(?P<weekday>[1-7]))?|-?(?P<ordinal>\d{3}))?(?:[Tt ](?P<clock>.*))?",
    re.ASCII,
)
_CLOCK = re.compile(
    r"(?P<hour>\d\d)(?::?(?P<minute>\d\d)(?::?(?P<second>\d\d))?)?(?:[.,](?P<fraction>\d{1,30}))?"
    r"[ ]?(?P<zone>[Zz]|[+-]\d\d(?::?\d\d)?)?",
    re.ASCII,
)
_DAY = 86_400_000_000  # microseconds in a day
_END = date(9999, 12, 31).toordinal() * _DAY


def parse_time(text: object) -> int:
    """Return the instant of a text in ISO 8601.

    A date is a year, month, day, week, day of a week or day of a year, in extended (``2025-01-31``) or basic format
    (``20250131``). A time of day follows after a ``T`` or a blank. It has hours and optionally minutes and seconds, and
    the last of these may have a decimal fraction. Missing parts are the first possible ones: ``2025`` is midnight of 1
    January 2025. Times without a zone are in UTC. Fractions of microseconds are dropped.

    Args:
        text: Text. Blanks at its ends are ignored.

    Returns:
        Microseconds since 1 January of the year 1 in UTC, at least 0.

    Raises:
        UserError: If the value is not a text in ISO 8601, or not a time in the years 1 to 9999.

    Example:
        >>> parse_time("2025-01-31T10:00Z") == parse_time("20250131T120000+0200") == parse_time("2025-W05-5 10:00")
        True
        >>> parse_time("2025-01-31") < parse_time("2025-01-31T00:00:00.5") < parse_time("2025-02")
        True
    """
    try:
        if not isinstance(text, str):
            raise ValueError
        if (parts := _DATE.fullmatch(text.strip())) is None:
            raise ValueError
        since_midnight = 0 if parts["clock"] is None else _microseconds(parts["clock"])
        instant = (_day_of(parts) - 1) * _DAY + since_midnight
        if not 0 <= instant < _END:  # a zone can move the instant out of range
            raise ValueError
        return instant
    except ValueError:
        shown = repr(text)
        raise UserError(f"expected {TIME_FORMS}, got {shown if len(shown) <= 80 else f'{shown[:77]}...'}") from None


def now() -> int:
    """Return the current instant in microseconds, in the form of :func:`parse_time`."""
    return (datetime.now(UTC) - datetime(1, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def as_iso(instant: int) -> str:
    """Return an instant in ISO 8601, in UTC.

    Args:
        instant: Microseconds of :func:`parse_time`.
    """
    return f"{(datetime(1, 1, 1) + timedelta(microseconds=instant)).isoformat()}Z"


def as_text(instant: int) -> str:
    """Return an instant as a text whose alphabetical order is the order of the instants.

    Args:
        instant: Microseconds of :func:`parse_time`.
    """
    return f"{instant:016x}"


def _day_of(day: re.Match[str]) -> int:
    """Return the ordinal number of a day."""
    year = int(day["year"])
    if day["week"] is not None:
        return date.fromisocalendar(year, int(day["week"]), int(day["weekday"] or 1)).toordinal()
    if day["ordinal"] is not None:
        first, number = date(year, 1, 1).toordinal(), int(day["ordinal"])
        if not 1 <= number <= 366 or date.fromordinal(first + number - 1).year != year:
            raise ValueError
        return first + number - 1
    return date(
        year, int(day["month"] or day["basic_month"] or 1), int(day["day"] or day["basic_day"] or 1)
    ).toordinal()


def _microseconds(written: str) -> int:
    """Return the microseconds of a time of day since midnight in UTC."""
    clock = _CLOCK.fullmatch(written)
    if clock is None:
        raise ValueError
    unit, parts = _DAY // 24, [int(clock["hour"]), int(clock["minute"] or 0), int(clock["second"] or 0)]
    for name in ("minute", "second"):
        unit //= 60 if clock[name] is not None else 1
    fraction = clock["fraction"] or "0"
    rest = int(fraction) * unit // 10 ** len(fraction)
    since = (parts[0] * 3600 + parts[1] * 60 + parts[2]) * 1_000_000 + rest
    if max(parts[1:]) > 59 or since > _DAY:  # 24:00 is the end of the day
        raise ValueError
    zone = clock["zone"] or "Z"
    if zone in "Zz":
        return since
    hours, minutes = int(zone[1:3]), int(zone[3:].lstrip(":") or 0)
    if hours > 23 or minutes > 59:
        raise ValueError
    offset = (hours * 60 + minutes) * 60_000_000
    return since + offset if zone[0] == "-" else since - offset
