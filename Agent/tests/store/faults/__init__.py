"""Faults of the disk: whatever it does, no acknowledged fact is lost and none is made up."""
