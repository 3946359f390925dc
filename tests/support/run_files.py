"""Run files of a test, as texts."""

from pathlib import Path

import pytest

from subreplay.config import run as config
from subreplay.config.run import RunConfig
from subreplay.errors import ConfigError


def run(tmp_path: Path, text: str, **overrides) -> RunConfig:
    path = tmp_path / "run.yaml"
    path.write_text(text, encoding="utf-8")
    return config.load(path, **overrides)


def complaint(tmp_path: Path, text: str, **overrides) -> str:
    with pytest.raises(ConfigError) as error:
        run(tmp_path, text, **overrides)
    return str(error.value).replace(f"{tmp_path}/", "")
