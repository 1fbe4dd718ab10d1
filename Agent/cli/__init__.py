"""The parts of `keyword-tree`: `screen` draws, `session` opens and names, `program` finds a command and ends it.

What people type is in `looking` (finding and showing), `writing` (and correcting), `undoing`, `care` (the store, import
and export) and `groups` (`context`, `hub`, `shared`, `mcp`). They speak English as it stands there and, by
`base.language`, the Chinese of `chinese.toml`.

They need the extra `[cli]`; who imports `keyword_tree.cli.command_line` learns of it there.
"""
