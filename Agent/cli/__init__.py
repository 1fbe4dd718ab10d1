"""What `keyword-tree` is made of: `screen` draws, `session` opens and names, `program` finds a command and ends it.

What people type is in `commands` (writing, finding, correcting), `care` (history, order, the store) and `carry`
(import, export, beginning); `undoing` decides what `undo` means; `completing` is for shells. They speak English as it
stands there and, by `language`, the Chinese of `chinese`.

They need the extra `[cli]`; who imports `keyword_tree.cli.command_line` learns of it there.
"""
