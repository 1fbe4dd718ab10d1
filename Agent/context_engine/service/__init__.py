"""What the engine is used by: the service, the same for asyncio, and the command line.

context_engine_service  `ContextEngineService`
async_service           `AsyncContextEngineService`, each call in a thread
verifying               whether files, journal, index and outbox agree
forgetting              what `forget` takes out of every file
command_line            `keyword-tree context`
"""
