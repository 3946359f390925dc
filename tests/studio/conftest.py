"""The studio of all tests here: over the bundled recording, read once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from subreplay.studio.state import StudioRun
from subreplay.studio.workbench import Workbench
from tests.support.studio import RunningStudio, open_workbench, start_studio, write_recording


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> StudioRun:
    return write_recording(tmp_path_factory.mktemp("studio"))


@pytest.fixture(scope="session")
def workbench(run: StudioRun) -> Iterator[Workbench]:
    with open_workbench(run) as workbench:
        yield workbench


@pytest.fixture(scope="session")
def studio(workbench: Workbench) -> Iterator[RunningStudio]:
    with start_studio(workbench) as studio:
        yield studio
