"""The rows of every table: their columns and contract (``model``, ``check``), how they are read from files (``scan``),
and sorted blocks of them that may be larger than memory."""
