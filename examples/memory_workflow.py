"""A working day of an agent: it fixes an error, learns from it, makes a skill of it, and remembers all three.

Runs as it stands: `python examples/memory_workflow.py`. It needs no model and no key, and keeps its memory in a folder
that is gone afterwards.
"""

import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from Agent.memory.eviction import RecallBased
from Agent.memory.graph import GraphRelation
from Agent.memory.schemas import ActionEntry, EpisodeTrace, ErrorEntry, ProceduralSkill, SemanticPattern
from Agent.memory.store import MemoryStore, record_of


def record_episode() -> EpisodeTrace:
    """What was done (1)."""
    episode = EpisodeTrace.create(
        task_id="task-2024-001",
        agent="developer-assistant",
        goal="Fix TypeScript compilation errors in auth module",
        phase="ACT",
    )
    episode.action_log.append(
        ActionEntry(tool="read_file", input="src/auth.ts", output="Read authentication module source", timestamp=5)
    )
    episode.action_log.append(
        ActionEntry(
            tool="write_file", input="src/auth.ts", output="Fixed type annotations in login function", timestamp=15
        )
    )
    episode.errors_encountered.append(
        ErrorEntry(
            error_type="TypeScript compilation",
            message="Property 'user' does not exist on type 'Request'",
            resolution="Added type declaration for Request.user",
        )
    )
    episode.duration_seconds = 120
    episode.tokens_used = 4500
    episode.outcome = "success"
    episode.files_modified = ["src/auth.ts", "src/types.d.ts"]
    return episode


def learn_pattern(episode: EpisodeTrace) -> SemanticPattern:
    """What holds beyond it (2)."""
    pattern = SemanticPattern.create(
        pattern="TypeScript requires explicit type declarations for extended Request objects",
        category="TypeScript",
        conditions=["Express.js with TypeScript", "Extending Request object", "Using middleware that adds properties"],
        correct_approach="Create a type declaration file that extends the Request interface",
        incorrect_approach="Use 'any' type or ignore TypeScript errors",
    )
    pattern.source_episodes = [episode.id]
    pattern.confidence = 0.9
    return pattern


def make_skill() -> ProceduralSkill:
    """What can be done from now on (3)."""
    skill = ProceduralSkill.create(
        name="Fix TypeScript Request Extension Errors",
        description="Step-by-step guide to fix TypeScript errors when extending Request objects",
        steps=[
            "Identify the missing properties on Request",
            "Create or update type declaration file",
            "Extend the Express Request interface",
            "Import the declaration in your project",
            "Verify compilation passes",
        ],
    )
    skill.add_error_fix(
        error="Declaration file not picked up by TypeScript",
        fix="Ensure the file is included in tsconfig.json's include array",
    )
    skill.exit_criteria = [
        "TypeScript compilation succeeds",
        "All Request properties are properly typed",
        "No type errors in IDE",
    ]
    return skill


def main(folder: str) -> None:
    """Record, learn, validate, write, remember, recall, correct, forget."""
    episode = record_episode()
    pattern = learn_pattern(episode)
    skill = make_skill()

    # 4. Validate all of it.
    all_valid = True
    for record, name in ((episode, "Episode"), (pattern, "Pattern"), (skill, "Skill")):
        errors = record.validate()
        all_valid = all_valid and not errors
        print(f"{name} validation errors: {errors}" if errors else f"{name} validated successfully")

    # 5. Any JSON store could hold it.
    if all_valid and EpisodeTrace.from_dict(json.loads(json.dumps(episode.to_dict()))) == episode:
        print("Data ready for storage")

    # 6. A `MemoryStore` does: each of these is one durable operation.
    with MemoryStore(folder, user="ada", agent="developer") as store:
        store.remember(episode, keywords=["TypeScript", "auth module"])
        store.remember(pattern, keywords=["TypeScript"])
        store.remember(skill, keywords=["TypeScript"])
        region = store.remember("服务器在上海。The servers are in Shanghai.", keywords=["服务器 server"], pinned=True)
        typescript, express = (store.tree.Search(name).node for name in ("TypeScript", "auth module"))
        if typescript and express:
            store.graph.add_relation(GraphRelation(express.id, typescript.id, "written_in"))
        print("Kept:", store.tree)

    # Another day: everything is still there.
    with MemoryStore(folder, user="ada", agent="developer") as store:
        for memory in store.recall(
            "How do I fix a property that does not exist on Request?", kinds=["skill", "pattern"]
        ):
            kind = type(record_of(memory.info)).__name__
            print(f"{kind} at {' / '.join(memory.path)}: {memory.explain()}")

        moved = store.correct(region, "服务器搬到了杭州。The servers have moved to Hangzhou.")
        print("Now:", store.recall("服务器在哪里?", limit=1)[0].info.content)
        print("Before:", store.history(moved)[1].content)
        used = store.record(skill.id)
        print("Recalls of the skill:", used.access_count if used else 0)

        plan = store.plan_forgetting(RecallBased(max_items=2))
        for doomed in plan.doomed:
            print("Would forget:", doomed.id.partition("-")[0], "-", doomed.why)
        operation = store.forget(plan)
        print("Left:", len(store.retriever.known()), "of", plan.kept + len(plan.doomed))
        store.tree.Undo(operation)
        print("Undone:", len(store.retriever.known()), "memories")

    with MemoryStore(folder, user="bob") as store:
        print("Bob knows:", store.recall("服务器在哪里?"))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        main(made)
