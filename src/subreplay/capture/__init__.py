"""Recording what an application's consumer receives and acknowledges, in its own process, into Parquet files.

``wrap`` takes a consumer of pulsar-client or confluent-kafka and gives back one that behaves alike and is recorded.
Nothing but pyarrow is needed beside the client that the application uses anyway. Recording never breaks or blocks the
application: what goes wrong is logged once and counted, and what finds no room in the buffer is dropped and counted.
"""

from subreplay.capture.events import EVENTS, VERSION
from subreplay.capture.files import files
from subreplay.capture.settings import Counts, Settings
from subreplay.capture.wrapping import Listener, message_listener, wrap

__all__ = ["EVENTS", "VERSION", "Counts", "Listener", "Settings", "files", "message_listener", "wrap"]
