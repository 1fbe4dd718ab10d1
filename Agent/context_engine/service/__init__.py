"""What the engine is used by: the service, and the same for asyncio.

context_engine_service  `ContextEngineService`, and `AsyncContextEngineService`, each call in a thread
care                    what `forget` takes out of every file; whether files, journal, index and outbox agree
"""
