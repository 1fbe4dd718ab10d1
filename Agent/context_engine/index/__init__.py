"""The disposable copy by which memories are found, kept equal to the main store.

outbox_store     which places have to be looked at, for any number of workers
record_builder   a node's levels, passages and messages, its edges and its moves, as records
index_worker     the index of each owner space, and `reconcile`: makes it equal to the main store at one place
"""
