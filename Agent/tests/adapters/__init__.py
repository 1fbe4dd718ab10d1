"""Tests of the adapters: what their hosts call, and what is left in the tree."""
