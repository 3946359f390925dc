"""What stands for a session of Spark where none is needed."""


class _Settings:
    def get(self, name: str, default: object = None) -> object:
        """Nothing is set but that the session is of this machine."""
        return "local[2]" if name == "spark.master" else default


class Session:
    """One that does nothing."""

    version = "4.1.1"
    conf = _Settings()

    def interruptAll(self) -> None:
        """As Spark calls it."""
