"""The finder: a question → the texts that answer it.

Read in this order: `texts` cuts questions and texts into terms; `index` keeps the terms in one SQLite file; `score`
ranks what has them; `calibration` makes a score mean the same in every index; `evidence` quotes the sentence that
answers; `placing` chooses a parent for a new keyword; `tree` lets an index follow a tree.
"""
