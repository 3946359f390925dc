"""What to say of a path of this machine where there is nothing."""

from __future__ import annotations

import difflib
import os


def not_there(path: str) -> str:
    """That a path of this machine names no file or folder, and which one may be meant."""
    folder, name = os.path.split(os.path.abspath(path))
    if not os.path.isdir(folder):
        return f"{path}: there is no such file or folder: {folder} is not there either; correct the path"
    near = difflib.get_close_matches(name, sorted(os.listdir(folder)), 1, 0.75)
    meant = f"did you mean {near[0]}?" if near else "correct the path"
    return f"{path}: there is no such file or folder in {folder}; {meant}"
