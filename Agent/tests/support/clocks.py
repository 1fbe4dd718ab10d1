"""A clock that a test turns."""


class Clock:
    """Stands until it is turned; what takes a clock takes it.

    Args:
        now: Seconds, of the epoch or of anything else.
    """

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        """Return the time."""
        return self.now
