"""What comes back to the driver: membership (the timeline is folded there) and aggregates whose size the report
bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, ParamSpec, Protocol, TypeVar

from pyspark.sql import DataFrame

Rows = list[dict[str, Any]]
T = TypeVar("T")
P = ParamSpec("P")


class Start(Protocol):
    """Starts ``job(*arguments)`` and hands out what will be its result."""

    def __call__(self, job: Callable[P, T], /, *arguments: P.args, **options: P.kwargs) -> Future[T]: ...


@contextmanager
def together(at_once: int = 4) -> Iterator[Start]:
    """Small independent jobs side by side: most of their time is waiting for the driver. All have ended when this
    ends; after an error those that wait do not begin."""
    pool = ThreadPoolExecutor(max_workers=at_once)
    try:
        yield pool.submit
    except BaseException:
        pool.shutdown(cancel_futures=True)
        raise
    pool.shutdown()


def rows(frame: DataFrame) -> Rows:
    """A small frame as plain mappings, nested rows included."""
    return [row.asDict(recursive=True) for row in frame.collect()]
