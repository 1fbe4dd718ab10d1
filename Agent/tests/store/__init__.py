"""The store: what faults of the disk, signals and killed processes leave of it."""
