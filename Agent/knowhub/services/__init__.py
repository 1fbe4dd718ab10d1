"""What a hub does, one subject a file; `hub.KnowHub` is made of them.

store        what all use                          finding        the search
entries      knowledge itself                      judging        feedback
rewriting    proposals and what becomes of them    slimming       merging what says the same
resources    public bodies and sealed secrets      operations     what was done, and undoing it
traces       goal trees                            token_keeping  who may come in
transfer     export and import
"""
