"""A disk that is full ends a run of the local engine with exit code 4 and one sentence."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.commands import start_audit, wait_for, write_inputs


def mounts() -> bool:
    """Whether this user may mount a small file system in a namespace of its own."""
    tried = ["unshare", "-Urm", "mount", "-t", "tmpfs", "none", "/mnt"]
    return (
        shutil.which("unshare") is not None and subprocess.run(tried, capture_output=True, check=False).returncode == 0
    )


pytestmark = [pytest.mark.long, pytest.mark.skipif(not mounts(), reason="this user may not mount a file system")]


@pytest.mark.parametrize(("full", "kilobytes"), [("scratch", 64), ("scratch", 512), ("tables", 64), ("tables", 192)])
def test_a_full_disk_is_one_sentence(full: str, kilobytes: int, tmp_path: Path) -> None:
    (run_file,) = write_inputs(tmp_path, "s")
    disk = tmp_path / ("scratch" if full == "scratch" else "out/tables")
    disk.mkdir(parents=True)
    mounted = f'mount -t tmpfs -o size={kilobytes}k none "$0" && exec "$@"'
    audit = start_audit(
        run_file,
        f"--out={tmp_path}/out",
        "--engine=local",
        "--quiet",
        environment={"TMPDIR": str(disk)} if full == "scratch" else {},
        before=["unshare", "-Urm", "sh", "-c", mounted, str(disk)],
    )
    code, said = wait_for(audit)
    assert code == 4, said
    sentence, log = said.splitlines()
    assert "No space left on device; free some space" in sentence
    assert log.startswith("log: ")
