"""All tests but the core's own table, in folders named for what they show or for the package that they test.

The document's table and the contract of the core stand beside the module, in `Agent/test_keyword_tree.py`. What several
folders share is in `support`; what tests of shared trees start is in `shared`.
"""
