"""Where the time of the rules goes: ``python -m tests.bench.flame [deliveries]`` draws ``docs/assets/flame.svg``.

The rules judge rows in memory, as in ``rules_alone``. A thread looks every few milliseconds at which function the main
one is in. A bar is a function of this package, or what it calls of a library; its width is the share of looks that met
it, what it calls stands on top of it. A kernel is part of the function that calls it.
"""

from __future__ import annotations

import html
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import subreplay
from tests.bench import day, rules_alone

EVERY = 0.002  # seconds between two looks
PACKAGE = str(Path(subreplay.__file__).parent)
PICTURE = Path(__file__).parents[2] / "docs" / "assets" / "flame.svg"
WIDTH, ROW, LEAST = 1_200, 20, 0.004  # px, px, share of the looks
COLOURS = {"audit": "#d95f02", "model": "#7570b3", "kernels": "#1b9e77", "hashing": "#66a61e"}
Stack = tuple[str, ...]


class Bar(NamedTuple):
    """A function: from which share of the looks to which, and how deep."""

    name: str
    begin: float
    end: float
    depth: int


def looked_at(work: Callable[[], object]) -> Counter[Stack]:
    """Run it, and count the stacks of this package that the looks met."""
    found, done, me = Counter[Stack](), threading.Event(), threading.get_ident()

    def look() -> None:
        while not done.wait(EVERY):
            found[_stack(sys._current_frames()[me])] += 1

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        work()
    finally:
        done.set()
        watcher.join()
    return found


def _stack(frame: FrameType | None) -> Stack:
    """The functions of the package from the outermost one, and what the innermost one calls of another."""
    names: list[str] = []
    above = None
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith(PACKAGE):
            if above is not None and not names:
                names.append(above)
            module = code.co_filename[len(PACKAGE) + 1 : -3].replace("/", ".")
            names.append(f"{module}.{code.co_qualname if sys.version_info >= (3, 11) else code.co_name}")
        above = f"({frame.f_globals.get('__name__', '?').split('.')[0]}) {code.co_name}"
        frame = frame.f_back
    return tuple(reversed(names))


def bars(stacks: Counter[Stack]) -> Iterator[Bar]:
    """Equal beginnings of stacks as one bar, in the order of their names."""
    every = stacks.total()

    def of(parts: Counter[Stack], depth: int, begin: float) -> Iterator[Bar]:
        names = Counter[str]()
        for stack, count in parts.items():
            names[stack[0]] += count
        for name in sorted(names):
            share = names[name] / every
            if share >= LEAST:
                yield Bar(name, begin, begin + share, depth)
                inside = Counter({stack[1:]: n for stack, n in parts.items() if stack[0] == name and stack[1:]})
                yield from of(inside, depth + 1, begin)
            begin += share

    yield from of(Counter({stack: n for stack, n in stacks.items() if stack}), 0, 0.0)


def svg(drawn: list[Bar], title: str) -> str:
    """A picture that needs no script: the full name of a bar is its tooltip."""
    height = (max(bar.depth for bar in drawn) + 2) * ROW + 10
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">',
             f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
             f'<text x="4" y="15" font-size="13">{html.escape(title)}</text>']  # fmt: skip
    for bar in drawn:
        x, width, y = bar.begin * WIDTH, (bar.end - bar.begin) * WIDTH, height - (bar.depth + 1) * ROW
        short = bar.name.rsplit(".", 2 if bar.name.count(".") > 1 else 1)[-1] if "(" not in bar.name else bar.name
        room = int((width - 6) / 6)
        shown = short if len(short) <= room else short[: max(room - 1, 0)] + "…" if room > 3 else ""
        colour = COLOURS.get(bar.name.split(".")[0], "#bbbbbb")
        parts.append(
            f'<g><title>{html.escape(bar.name)}: {bar.end - bar.begin:.1%}</title>'
            f'<rect x="{x:.1f}" y="{y}" width="{max(width - 0.5, 0.5):.1f}" '
            f'height="{ROW - 1}" fill="{colour}b2"/>'
            f'<text x="{x + 3:.1f}" y="{y + 14}" font-size="11">{html.escape(shown)}</text></g>'
        )  # fmt: skip
    return "\n".join([*parts, "</svg>\n"])


def main(deliveries: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        day.write(Path(folder), deliveries)
        judge, rows = rules_alone.judge_of(0), rules_alone.log_of(Path(folder), 0)
        rules_alone.codes_of(judge, [some[:1] for some in rows])  # loads what is compiled
        stacks = looked_at(lambda: rules_alone.codes_of(judge, rows))
    count = sum(batch.num_rows for batch in rows[1])
    title = f"All rules over {count:,} deliveries of one topic partition: share of {stacks.total():,} looks"
    PICTURE.write_text(svg(list(bars(stacks)), title), encoding="utf-8")
    print(f"{PICTURE}: {stacks.total():,} looks")


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 2_000_000)
