"""The disposable copy by which memories are found, kept equal to the main store.

outbox_store     which places have to be looked at, for any number of workers
record_builder   a node's levels, passages and messages as records
index_projector  records of nodes, edges and moves
spaces           the index of each owner space
index_worker     `reconcile`: makes the index equal to the main store at one place
"""
