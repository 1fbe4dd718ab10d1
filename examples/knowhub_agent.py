"""An agent that learns: it focuses a goal, finds nothing, does research, saves what it found, and finds it again.

Runs as it is, without a key, a server or a network: `python examples/knowhub_agent.py`. What a model would decide
is scripted; everything else is what an agent really calls. Needs `pip install '.[knowhub]'`.
"""

import asyncio
import os
import tempfile

from keyword_tree.knowhub.goal_tool import ServerTraceStore, goal, open_trace, reflect
from keyword_tree.knowhub.tools import (
    ProgramCall,
    close_local,
    fill_secrets,
    knowledge_save,
    knowledge_update,
    resource_save,
)

TASK = "用 selenium 登录 website_a,绕过自动化检测"
TRANSCRIPT = [
    {"role": "user", "content": TASK},
    {"role": "assistant", "content": "I try the test account: password: hunter2-demo, from the team's wiki."},
    {"role": "tool", "content": "blocked: automated browser"},
    {"role": "assistant", "content": "undetected_chromedriver 能通过检测:设置 user-agent,每步随机等待 2–5 秒。"},
]


async def work() -> None:
    """Let the agent work in the hub that the environment names."""
    with open_trace("trace-1", ServerTraceStore()):
        goal_id = (await goal("add", description=TASK)).metadata["goal_id"]

        first = await goal("focus", goal_id)
        print(first.output, "\n")
        assert len(first) == 0, "nothing is known yet: the agent does research"

        draft = reflect(TRANSCRIPT, TASK)  # the research was done; what of it is worth keeping?
        for resource in draft.resources:
            print((await resource_save(**resource)).output.splitlines()[0])
        for entry in draft.knowledge:
            saved = await knowledge_save(entry["task"], entry["content"], ["tool", "strategy"], score=4)
            print(saved.title, saved.output, "\n")

        second = await goal("focus", goal_id)
        print(second.output, "\n")
        assert len(second) == 1, "what was saved comes back with the goal"

        account = draft.resources[0]["resource_id"]
        goes_to = {"allowed_programs": {"login": ["PASSWORD"]}}  # the secret goes there, and nowhere else
        await resource_save(account, draft.resources[0]["title"], metadata=goes_to)
        call = ProgramCall("login", (), {"PASSWORD": "{{secret:" + account + "}}"})
        filled = await fill_secrets(call, [account])
        print("a tool starts", filled.program, "with", filled.environment["PASSWORD"].replace("hunter2-demo", "•" * 8))
        case = {"task": TASK, "outcome": "登录成功"}
        print((await knowledge_update(second.metadata["items"][0]["id"], add_helpful_case=case)).output)
        print((await goal("done", goal_id)).output)


def main() -> None:
    """Run the agent in a folder that is removed afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"KNOWHUB_URL": f"file:{folder}/hub", "XDG_CONFIG_HOME": f"{folder}/config"}
        try:
            asyncio.run(work())
        finally:
            close_local()


if __name__ == "__main__":
    main()
