"""What the engine is used by: the service, the same for asyncio, and the command line.

context_engine_service  `ContextEngineService`, and `AsyncContextEngineService`, each call in a thread
care                    what `forget` takes out of every file; whether files, journal, index and outbox agree
command_line            `keyword-tree context`
"""
