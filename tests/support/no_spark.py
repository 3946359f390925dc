"""What stands for a session of Spark where none is needed."""


class Session:
    """One that does nothing."""

    def interruptAll(self) -> None:
        """As Spark calls it."""

    def range(self, end: int) -> None:
        """Asked, it is there."""
