"""CSV and JSON files become one table: each record keeps its line, and a line that cannot be read is one record."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from subreplay.adapters.source import text_files
from subreplay.adapters.source.json_text import read_json_records
from subreplay.adapters.source.row_conversion import BROKEN_COLUMN, HIDDEN_COLUMNS, LINE_COLUMN
from subreplay.adapters.source.text_files import detect_csv_options
from subreplay.engine.interface import TableSource
from subreplay.engine.local.engine import LocalEngine
from subreplay.errors import EnvironmentFailed, InputError

ROWS = [{"offset": n, "key": f"k{n % 3}"} for n in range(5)]


def read(path: Path, form: str, **options: str) -> tuple[list[dict[str, Any]], list[int]]:
    """The rows of a file without what stands beside them, and the lines of those that are broken."""
    with LocalEngine(cores=2) as engine:
        table = engine.scan(TableSource("traffic.messages", str(path), format=form, options=options)).to_table()
    good = table.filter(table[BROKEN_COLUMN].is_null()).drop_columns(list(HIDDEN_COLUMNS))
    return good.to_pylist(), table.filter(table[BROKEN_COLUMN].is_valid())[LINE_COLUMN].to_pylist()


def text(tmp_path: Path, name: str, content: str) -> Path:
    path = tmp_path / name
    path.write_text(content, encoding="utf-8", newline="")
    return path


@pytest.mark.parametrize(
    "written",
    [
        "\n".join(map(json.dumps, ROWS)),
        "\n".join(json.dumps(row, indent=2) for row in ROWS),
        "".join(map(json.dumps, ROWS)),
        json.dumps(ROWS),
        json.dumps(ROWS, indent=2),
        "[\n" + ",\n".join(map(json.dumps, ROWS)) + "\n]\n",
        json.dumps({"records": ROWS}),
        json.dumps({"topic": "t", "messages": ROWS}, indent=1),
    ],
)
def test_json_objects_are_read_however_they_are_laid_out(written: str, tmp_path: Path) -> None:
    assert read(text(tmp_path, "a.json", written), "json") == (ROWS, [])


@pytest.mark.parametrize(
    ("written", "rows", "lines"),
    [
        ('{"a": 1}\n{"a": \n{"a": 3}\n', [1, 3], [2]),
        ('{"a": 1}\n{"a": 2}\nno JSON\n[1]\n', [1, 2], [3, 4]),
        ('{\n "a": 1\n}\n{\n "a": oops\n}\n{\n "a": 3\n}\n', [1, 3], [4]),
        ('{\n "a": 1\n}\n{\n "a": 2', [1], [4]),
        ('{"a": 1}\n\n{"a": 2}\n{"a"', [1, 2], [4]),
    ],
)
def test_a_broken_object_is_one_record_with_its_line(
    written: str, rows: list[int], lines: list[int], tmp_path: Path
) -> None:
    found, broken = read(text(tmp_path, "a.json", written), "json")
    assert ([row["a"] for row in found], broken) == (rows, lines)


def test_fields_have_the_type_that_all_values_have(tmp_path: Path) -> None:
    rows = [{"n": 1, "x": 1, "m": 1, "s": {"a": 1}}, {"n": 2**63, "x": 0.5, "m": "b", "s": {"b": "c"}}, {"d": None}]
    found, _ = read(text(tmp_path, "a.json", "\n".join(map(json.dumps, rows))), "json")
    assert [row["n"] for row in found] == ["1", str(2**63), None]
    assert [row["x"] for row in found] == [1.0, 0.5, None]
    assert [row["m"] for row in found] == ["1", "b", None]
    assert [row["s"] for row in found] == [{"a": 1, "b": None}, {"a": None, "b": "c"}, None]


@pytest.mark.parametrize(("sep", "sign"), [(",", None), (";", ";"), ("\t", "\t"), ("|", "|")])
def test_the_separator_of_csv_is_recognised(sep: str, sign: str | None, tmp_path: Path) -> None:
    lines = [("when", "who", "amount"), ("2026-11-20 10:00:00", "a", "1"), ("2026-11-20 10:00:01", "b b", "2")]
    path = text(tmp_path, "a.csv", "\n".join(sep.join(line) for line in lines))
    options = detect_csv_options(path)
    assert options == {"header": "true"} | ({} if sign is None else {"sep": sign})
    rows, _ = read(path, "csv", **options)
    assert [row["who"] for row in rows] == ["a", "b b"]


def test_decimal_commas_within_values_do_not_make_the_separator(tmp_path: Path) -> None:
    path = text(tmp_path, "a.csv", "zeit;kunde;betrag\n2026-11-20 10:00:00,5;a;1,5\n2026-11-20 10:00:01,5;b;2\n")
    assert detect_csv_options(path)["sep"] == ";"


def test_csv_without_a_header_has_numbered_columns(tmp_path: Path) -> None:
    path = text(tmp_path, "a.csv", "0,17,1584680012228,k\n1,18,1584680012265,k\n")
    assert detect_csv_options(path) == {"header": "false"}
    rows, _ = read(path, "csv", header="false")
    assert rows[0] == {"_c0": "0", "_c1": "17", "_c2": "1584680012228", "_c3": "k"}


def test_csv_has_quoted_values_and_lines_of_another_length_are_broken(tmp_path: Path) -> None:
    path = text(
        tmp_path, "a.csv", '\ufeff"a","b"\r\n"x, ""y""","1"\r\n\r\n"z"\r\n"1","2","3"\r\n"","' + '4"\r\n"5",\r\n'
    )
    rows, lines = read(path, "csv", header="true")
    assert rows == [{"a": 'x, "y"', "b": "1"}, {"a": "", "b": "4"}, {"a": "5", "b": None}]
    assert lines == [4, 5]


def test_values_over_several_lines_are_one_record(tmp_path: Path) -> None:
    rows, lines = read(text(tmp_path, "a.csv", 'a,b\n"x\ny",1\nz,2\n'), "csv", header="true")
    assert (rows, lines) == ([{"a": "x\ny", "b": "1"}, {"a": "z", "b": "2"}], [])


def test_a_column_that_is_there_twice_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="column 'a' occurs twice"):
        read(text(tmp_path, "a.csv", "a,a\n1,2\n"), "csv", header="true")


def test_packed_files_are_read_and_one_that_is_cut_off_is_named(tmp_path: Path) -> None:
    packed = gzip.compress("\n".join(map(json.dumps, ROWS * 50)).encode())
    path = tmp_path / "a.json.gz"
    path.write_bytes(packed)
    assert len(read(path, "json")[0]) == 250
    path.write_bytes(packed[:-20])
    with pytest.raises(EnvironmentFailed, match="truncated or damaged"):
        read(path, "json")


def test_a_file_in_utf_16_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("a;b\n1;ü\n".encode("utf-16"))
    assert read(path, "csv", **detect_csv_options(path))[0] == [{"a": "1", "b": "ü"}]


def test_files_of_a_folder_are_one_table(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for n, columns in enumerate(("a,b", "b,c")):
        text(tmp_path / "in", f"{n}.csv", f"{columns}\n1,2\n")
    rows, _ = read(tmp_path / "in", "csv", header="true")
    assert sorted(rows, key=str) == [{"a": "1", "b": "2", "c": None}, {"a": None, "b": "1", "c": "2"}]


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are cut into parts of a few lines."""
    monkeypatch.setattr(text_files, "BLOCK_BYTES", 40)


@pytest.mark.parametrize("last", ['2,"y\n3,z\n', '2,x,"y\n3,z\n'], ids=["values as many as names", "more values"])
def test_a_quote_that_is_not_closed_breaks_the_record_that_takes_all_that_follows(tmp_path: Path, last: str) -> None:
    rows, broken = read(text(tmp_path, "a.csv", "a,b\n1,x\n" + last), "csv", header="true")
    assert (rows[0], broken) == ({"a": "1", "b": "x"}, [3])


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("packed", [False, True])
def test_records_of_a_large_file_keep_their_lines(tmp_path: Path, packed: bool) -> None:
    lines = ["a,b", *(f"{n},x" if n % 7 else f"{n},x,y" for n in range(1, 60))]
    path = text(tmp_path, "a.csv", "\n".join(lines))
    if packed:
        path.write_bytes(gzip.compress(path.read_bytes()))
    rows, broken = read(path, "csv", header="true")
    assert sorted(int(row["a"]) for row in rows) == [n for n in range(1, 60) if n % 7]
    assert sorted(broken) == [n + 1 for n in range(7, 60, 7)]


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize(
    ("options", "of_value"),
    [
        ({}, '"{n}\nx ""y"", z\n"'),
        ({"escape": "\\"}, '"{n}\nx \\"y\\", z\n"'),
        ({"sep": ";"}, '{n} x "y", z'),
        ({"quote": "'"}, "'{n}\nx \"y\", z\n'"),
    ],
)
def test_a_large_file_is_never_cut_within_a_value(tmp_path: Path, options: dict[str, str], of_value: str) -> None:
    sep = options.get("sep", ",")
    lines = [sep.join(("n", "text")), *(f"{n}{sep}{of_value.format(n=n)}" for n in range(30))]
    rows, broken = read(text(tmp_path, "a.csv", "\n".join(lines)), "csv", header="true", **options)
    assert not broken
    found = {int(row["n"]): " ".join(row["text"].split()) for row in rows}
    assert found == {n: f'{n} x "y", z' for n in range(30)}


@pytest.mark.usefixtures("small_parts")
def test_fields_of_a_large_file_have_the_type_that_all_values_have(tmp_path: Path) -> None:
    rows = [{"n": n, "x": n if n < 10 else n + 0.5, "m": n if n else "a", "s": {"a": n} if n % 2 else {"b": None},
             "l": [n] if n % 3 else [], "d": None, "late": n if n > 15 else None} for n in range(20)]  # fmt: skip
    found, _ = read(text(tmp_path, "a.json", "\n".join(map(json.dumps, rows))), "json")
    assert sorted(found, key=lambda row: row["n"]) == [
        row | {"m": str(row["m"]), "s": {"a": None, "b": None} | row["s"]} for row in rows
    ]
    assert all(isinstance(row["x"], float) for row in found)


def test_a_large_file_with_objects_of_several_lines_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_files, "MAX_NESTED_BYTES", 10)
    pretty = text(tmp_path, "pretty.json", "\n".join(json.dumps(row, indent=1) for row in ROWS))
    with pytest.raises(InputError, match="Write one object per line"):
        read(pretty, "json")


def test_an_empty_file_has_no_record(tmp_path: Path) -> None:
    assert list(read_json_records(" \n")) == []
    with pytest.raises(InputError, match="no json record"):
        read(text(tmp_path, "a.json", " \n"), "json")


def test_bytes_that_are_no_text_are_no_csv(tmp_path: Path) -> None:
    path = tmp_path / "random.csv"
    path.write_bytes(b"\x91a\rb,\x07\x00c\rd\n,")
    with pytest.raises(InputError, match=r"random.csv: the file is not valid CSV .* Check its name"):
        detect_csv_options(path)
