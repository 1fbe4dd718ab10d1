"""Tools on the core's public port: places, past, inspection, backup, repair, reorganization, the follower of a log."""
