# ruff: noqa: N999  the package is named as the folder beside WeaveAgent.py is
"""The parts of `Agent.command_line`: `screen` draws, `session` opens and names, `commands` are what people type.

They need the extra `[cli]`; who imports `Agent.command_line` learns of it there.
"""
