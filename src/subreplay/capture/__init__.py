"""Record what an application's consumer receives and acknowledges, in its own process, into Parquet files.

``wrap`` takes a consumer of pulsar-client or confluent-kafka and returns one that behaves the same and is recorded. It
needs only pyarrow besides the client. Recording never breaks or blocks the application: errors are logged once and
counted, and events that exceed the buffer are dropped and counted.
"""

import warnings
from typing import Any

from subreplay.capture.capture_files import list_capture_files
from subreplay.capture.file_format import EVENTS, VERSION
from subreplay.capture.settings import Counts, Settings
from subreplay.capture.wrapping import Listener, message_listener, wrap

__all__ = ["EVENTS", "VERSION", "Counts", "Listener", "Settings", "list_capture_files", "message_listener", "wrap"]


def __getattr__(name: str) -> Any:
    """Return an attribute by its former name, with a warning."""
    if name != "files":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn("subreplay.capture.files is now list_capture_files", DeprecationWarning, stacklevel=2)
    return list_capture_files
