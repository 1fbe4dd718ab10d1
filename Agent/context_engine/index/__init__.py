"""The disposable copy by which memories are found, kept equal to the main store.

outbox_store  the queue of places to look at, for any number of workers
index_worker  `IndexProjector`: nodes, edges and moves as records; `IndexSpaces`: the index of each owner space;
              `IndexWorker`: makes an index equal to the main store at one place
"""
