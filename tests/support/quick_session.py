"""Settings of a Spark session for tables of some rows."""

from __future__ import annotations

from typing import Final

QUICK: Final = {
    # to compile queries costs more than to interpret them
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.ui.explainMode": "simple",
    "spark.databricks.delta.stats.collect": "false",
    "spark.databricks.delta.stats.skipping": "false",
    "spark.databricks.delta.writeChecksumFile.enabled": "false",
}
