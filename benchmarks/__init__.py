"""Measuring programs: KeywordTree beside its peers, in the same run. See README.md."""
