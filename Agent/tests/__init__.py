"""Tests of the core, in folders named for what they show; what they share lies in `support`.

The seed's table and the contract stand beside the module in `Agent/test_keyword_tree.py`, and the tests of a sibling
beside that sibling.
"""
