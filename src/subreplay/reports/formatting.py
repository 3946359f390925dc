"""Format numbers, durations and times for readers. All renderers use these functions."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from decimal import Decimal
from functools import lru_cache
from itertools import takewhile

MISSING = "–"
RULES_PAGE = "https://subreplay.github.io/subreplay/reference/rules/"


def format_count(value: float) -> str:
    """Format a whole number with thousands separators."""
    return f"{value:,.0f}"


def format_short_count(value: float) -> str:
    """Format a round number with the letter of its magnitude, for an axis.

    >>> [format_short_count(value) for value in (0, 50, 1_500, 20_000_000)]
    ['0', '50', '1.5k', '20M']
    """
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def format_percent(share: float) -> str:
    """Format a fraction as per cent with one decimal, or two if it is small.

    >>> [format_percent(share) for share in (0, 0.00001, 0.00123, 0.0456, 0.5035, 0.99999, 1)]
    ['0%', '<0.01%', '0.12%', '4.6%', '50.4%', '>99.9%', '100%']
    """
    if share in (0, 1):
        return f"{share * 100:.0f}%"
    if 0 < share < 0.0001:
        return "<0.01%"
    if 0.9995 <= share < 1:
        return ">99.9%"
    exact = Decimal(str(float(share))) * 100  # round the decimal form, not the binary one
    return f"{exact:.2f}%" if share < 0.01 else f"{exact:,.1f}%"


def format_optional_percent(share: float | None) -> str:
    """Format a fraction as per cent, or None as a dash."""
    return MISSING if share is None else format_percent(share)


def format_ratio(ratio: float) -> str:
    """Format a ratio such as a skew: ``1.42×``."""
    return f"{ratio:,.2f}×" if ratio < 100 else f"{ratio:,.0f}×"


def format_names(names: Sequence[str], of: int, most: int = 3) -> str:
    """List the best names among ``of`` compared ones.

    >>> format_names(["a"], 2), format_names(["a", "b", "c", "d", "e"], 9), format_names(["a", "b"], 2)
    ('a', 'a, b, c and 2 more', 'all the same')
    """
    if len(names) == of > 1:
        return "all the same"
    rest = f" and {format_count(len(names) - most)} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


def quote_name(name: str) -> str:
    """Quote a name, so that it does not read as part of the sentence, unless it is that of a policy.

    >>> quote_name("kafka.range"), quote_name("two consumers")
    ('kafka.range', '"two consumers"')
    """
    return name if "." in name and " " not in name else f'"{name}"'


def format_worst(worst: str, best_: str) -> str:
    """Format the figure of the worst scenario, if it differs from that of the best."""
    return "" if worst == best_ else " (others: never)" if worst == "never" else f" (others up to {worst})"


def format_bytes(value: float) -> str:
    """Format bytes in decimal units."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            break
        value /= 1000
    return f"{value:,.0f} {unit}" if unit == "B" or value >= 100 else f"{value:,.1f} {unit}"


def format_plural(number: int, one: str, many: str | None = None) -> str:
    """Format a number with its noun: ``1 epoch``, ``2 epochs``, ``1,000 keys``."""
    return f"{format_count(number)} {one if number == 1 else many or one + 's'}"


@lru_cache(maxsize=4096)
def parse_us(text: str) -> int:
    """Parse an ISO 8601 instant to microseconds since the epoch; the default zone is UTC."""
    text = re.sub(r"\.(\d+)", lambda part: f".{part[1][:6]:0<6}", re.sub("[Zz]$", "+00:00", text.strip()))
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    delta = moment - datetime(1970, 1, 1, tzinfo=timezone.utc)
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def format_clock(text: str, day: str | None = None) -> str:
    """Format an instant: ``12:00:03.120`` on the report's ``day``, else with the date.

    >>> format_clock("2026-05-01T12:00:03.120000Z", "2026-05-01"), format_clock("2026-05-02T00:00:00Z", "2026-05-01")
    ('12:00:03.120', '2026-05-02 00:00:00')
    """
    match = re.fullmatch(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(\.\d+)?(Z|z|\+00:?00)?", text.strip())
    if not match:
        return text
    date, time, fraction, _ = match.groups()
    fraction = (fraction or "").rstrip("0").rstrip(".")
    fraction = fraction.ljust(4, "0") if fraction else ""
    return f"{time}{fraction}" if date == day else f"{date} {time}{fraction}"


def find_common_day(start: str, end: str) -> str | None:
    """Find the date of both instants, or None if they differ."""
    return start[:10] if start[:10] == end[:10] else None


def format_span(micros: int) -> str:
    """Format a duration in its two largest units: ``1 h 4 min``, ``2.5 s``.

    >>> [format_span(value) for value in (900, 45_000, 2_500_000, 3_840_000_000, 180_000_000_000)]
    ['0.9 ms', '45 ms', '2.5 s', '1 h 4 min', '2 d 2 h']
    """
    if micros < 1_000_000:
        return f"{micros / 1000:.3g} ms"
    seconds = micros / 1_000_000
    if seconds < 60:
        return f"{seconds:.3g} s"
    units = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
    whole = round(seconds)
    at = next(i for i, (_, length) in enumerate(units) if whole >= length)
    (name, length), (small, part) = units[at], units[at + 1]
    rest = whole % length // part
    return f"{whole // length} {name} {rest} {small}" if rest else f"{whole // length} {name}"


def format_nanos(duration: int | None) -> str:
    """Format a duration in ns, or None as a dash.

    >>> format_nanos(2_500_000_000), format_nanos(40_000), format_nanos(None)
    ('2.5 s', '0.04 ms', '–')
    """
    return MISSING if duration is None else format_span(duration // 1_000)


def format_nanos_or_never(duration: int | None) -> str:
    """Format a duration in ns, or None as ``never``."""
    return "never" if duration is None else format_nanos(duration)


def format_amount(value: float | None, unit: str) -> str:
    """Format a measured amount with its unit.

    >>> format_amount(0.5, "share"), format_amount(1500, "messages")
    ('50.0%', '1,500 messages')
    >>> format_amount(None, "ns"), format_amount(float("inf"), "ns")
    ('–', 'never')
    """
    if value is None:
        return MISSING
    if not math.isfinite(value) or value >= 2.0**62:
        return "never"
    if unit == "share":
        return format_percent(value)
    if unit == "times":
        return format_ratio(value)
    if unit == "ns":
        return format_nanos(round(value))
    if unit == "bytes":
        return format_bytes(value)
    return f"{value:,.0f} {unit}" if value == round(value) else f"{value:,.1f} {unit}"


def format_rule_url(code: str) -> str:
    """Format the address of the page that describes a rule; empty if this is not the name of a rule.

    >>> format_rule_url("KEY_ORDER"), format_rule_url("<b>")
    ('https://subreplay.github.io/subreplay/reference/rules/#key_order', '')
    """
    return RULES_PAGE + "#" + code.lower() if re.fullmatch("[A-Z][A-Z_]*", code) else ""


def format_early(count_: int, delayed: int, least: int, most: int) -> str:
    """Describe how many delayed messages came too early, and by how much (ns)."""
    by = (
        format_nanos(least)
        if format_nanos(least) == format_nanos(most)
        else f"{format_nanos(least)} to {format_nanos(most)}"
    )
    return f"{format_count(count_)} of {format_plural(delayed, 'delayed message')} come {by} too early"


@lru_cache(maxsize=1 << 14)
def natural_sort_key(text: str) -> tuple[tuple[int, int, str], ...]:
    """Build a sort key that puts c2 before c10."""
    parts = re.findall(r"[0-9]+|[^0-9]+", text)
    return tuple([(0, int(p), p) if p[0].isdigit() and len(p) < 19 else (1, 0, p) for p in parts])


def format_utc_clock(micros: int) -> str:
    """Format the UTC time of day of an instant (µs), with milliseconds unless it is a whole second.

    >>> format_utc_clock(1_777_636_803_120_000), format_utc_clock(1_777_636_800_000_000)
    ('12:00:03.120', '12:00:00')
    """
    seconds, rest = divmod(micros // 1000, 1000)
    of_day = seconds % 86_400
    time = f"{of_day // 3600:02d}:{of_day // 60 % 60:02d}:{of_day % 60:02d}"
    return f"{time}.{rest:03d}" if rest else time


def shorten_cause(cause: str) -> str:
    """Remove the epoch and the time from a cause, because columns beside it show them.

    >>> shorten_cause("epoch 3: c3 joined at 03:24:56.426122"), shorten_cause("unexplained")
    ('c3 joined', 'unexplained')
    """
    return re.sub(r"^epochs? \d+( to \d+)?: | at (\d{4}-\d\d-\d\d[T ])?\d\d:\d\d:\d\d\S*$", "", cause)


def shorten_topics(topics: Iterable[str]) -> dict[str, str]:
    """Remove from each topic the tenant and namespace that all of them share, so that short names stay different.

    >>> shorten_topics(["persistent://shop/eu/orders", "persistent://shop/us/orders"]).values()
    dict_values(['eu/orders', 'us/orders'])
    >>> shorten_topics(["persistent://shop/eu/orders"])
    {'persistent://shop/eu/orders': 'orders'}
    """
    names = sorted({*topics})
    levels = zip(*(name.split("/")[:-1] for name in names), strict=False)
    shared = sum(len(level[0]) + 1 for level in takewhile(lambda level: len({*level}) == 1, levels))
    return {name: name[shared:] for name in names}


def shorten_scope(scope: str, topic: str) -> str:
    """Remove the report's topic from a scope.

    >>> shorten_scope("persistent://a/b/c, partition 3", "persistent://a/b/c")
    'partition 3'
    >>> shorten_scope("persistent://a/b/c", "persistent://a/b/c")
    ''
    """
    rest = scope.removeprefix(topic)
    return rest.lstrip(", -") if rest != scope else scope
