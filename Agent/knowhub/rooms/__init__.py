"""The rooms of `KnowHub`: what a hub does, one subject each; `hub.KnowHub` is all of them under one roof.

shared       what all use                          finding        the search
entries      knowledge itself                      judging        feedback
rewriting    proposals and what becomes of them    slimming       merging what says the same
resources    public bodies and sealed secrets      operations     what was done, and undoing it
traces       goal trees                            token_keeping  who may come in
transfer     export and import
"""
