"""A week in a tea shop's kitchen: an agent loses a batch, learns from it, makes a skill of it, and remembers all three.

Runs as it is: `python examples/memory_workflow.py`. It needs no model and no key, and keeps its memory in a folder
that is gone afterwards.
"""

import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from keyword_tree.memory.eviction import RecallBased
from keyword_tree.memory.graph import GraphRelation
from keyword_tree.memory.schemas import ActionEntry, EpisodeTrace, ErrorEntry, ProceduralSkill, SemanticPattern
from keyword_tree.memory.store import MemoryStore, record_of


def bitter_batch() -> EpisodeTrace:
    """One task as it went (1)."""
    episode = EpisodeTrace.create("batch-31", "kitchen", "Brew forty cups of 龙井 for the wedding", phase="VERIFY")
    kettle = ActionEntry("set_kettle", "boiler 2", "96 °C after six minutes", 360)
    tasting = ActionEntry("ask_taster", "cup 4", "too bitter to be served", 840)
    episode.action_log += [kettle, tasting]
    scalded = ErrorEntry("scalded leaves", "the water was 16 degrees too hot", "poured away and brewed again at 80 °C")
    episode.errors_encountered.append(scalded)
    episode.outcome, episode.duration_seconds = "partial", 2_400
    episode.files_read = ["recipes/longjing.md"]
    return episode


def lesson(episode: EpisodeTrace) -> SemanticPattern:
    """What holds beyond it (2)."""
    pattern = SemanticPattern.create(
        "Green tea turns bitter above 85 °C",
        "brewing",
        conditions=["the leaves were not oxidised"],
        correct_approach="Let the water cool down to 80 °C before it touches the leaves",
        incorrect_approach="Pour it as it comes out of the boiler",
    )
    pattern.source_episodes, pattern.confidence = [episode.id], 0.95
    return pattern


def recipe() -> ProceduralSkill:
    """What can be done from now on (3)."""
    steps = ["Heat the water", "Wait until it has 80 °C", "Pour it over the leaves", "Take them out after 3 minutes"]
    skill = ProceduralSkill.create("Brew 龙井 for a crowd", "Forty cups of green tea, none of them bitter", steps)
    skill.add_error_fix("The thermometer is broken", "Count five minutes from the boil")
    skill.exit_criteria = ["the taster nods"]
    return skill


def main(folder: str) -> None:
    """Record, learn, check, write, remember, recall, correct, forget."""
    episode = bitter_batch()
    pattern = lesson(episode)
    skill = recipe()

    # 4. Everything that is wrong with a record is reported at once.
    for record in (episode, pattern, skill):
        print(type(record).__name__, "has faults:" if record.validate() else "is sound", *record.validate())

    # 5. Any store of JSON could hold it.
    print("Comes back from JSON:", EpisodeTrace.from_dict(json.loads(json.dumps(episode.to_dict()))) == episode)

    # 6. A `MemoryStore` does: each of these is one durable operation.
    with MemoryStore(folder, user="lin", agent="kitchen") as store:
        store.remember(episode, keywords=["green tea", "boiler 2"])
        store.remember(pattern, keywords=["green tea"])
        store.remember(skill, keywords=["green tea"])
        leaves = "茶叶放在二号柜。The leaves are kept in cupboard 2."
        place = store.remember(leaves, keywords=["茶叶 leaves"], pinned=True)
        tea, boiler = (store.tree.FindByName(name)[0] for name in ("green tea", "boiler 2"))
        store.graph.add_relation(GraphRelation(boiler.id, tea.id, "heats_water_for"))
        print("Kept:", store.tree)

    # Another day: everything is still there.
    with MemoryStore(folder, user="lin", agent="kitchen") as store:
        for memory in store.recall("How hot may the water be for 龙井?", kinds=["skill", "pattern"]):
            kind = type(record_of(memory.info)).__name__
            print(f"{kind} at {' / '.join(memory.path)}: {memory.explain()}")

        moved = store.correct(place, "茶叶搬到了冷藏间。The leaves have moved to the cold room.")
        print("Now:", store.recall("茶叶放在哪里？", limit=1)[0].info.content)
        print("Before:", store.history(moved)[1].content)
        used = store.record(skill.id)
        print("Recalls of the skill:", used.access_count if used else 0)

        plan = store.plan_forgetting(RecallBased(max_items=1))
        for eviction in plan.evictions:
            print("Would forget:", eviction.id.partition("-")[0], "-", eviction.why)
        operation = store.forget(plan)
        print("Left:", len(store.retriever.known()), "of", plan.kept + len(plan.evictions))
        store.tree.Undo(operation)
        print("Undone:", len(store.retriever.known()), "memories")

    with MemoryStore(folder, user="mei") as store:
        print("Mei knows:", store.recall("茶叶放在哪里？"))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        main(made)
