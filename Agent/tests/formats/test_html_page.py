"""Tests of the HTML page: what is written, and, where a Chromium is installed, what a reader sees and can do.

The browser is driven through its own debugging pipe (JSON messages that end with a zero byte), so no package is needed.
A folder named by the environment variable KEYWORD_TREE_SCREENS keeps the screens, for people to look at.
"""

import base64
import itertools
import json
import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from http.client import HTTPConnection
from http.server import HTTPServer
from pathlib import Path
from typing import Any

import pytest

from Agent.formats import export_file
from Agent.formats.html_page import make_server
from Agent.formats.records import Fact, Keyword, Record, load
from Agent.keyword_tree import KeywordTree, RelationType
from Agent.memory.store import MemoryStore
from Agent.tests.formats.test_formats import HOSTILE

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Page:
    """A page in a headless Chromium, which remembers what it asked for, and what went wrong in it."""

    def __init__(self, home: Path) -> None:
        to_read, self._to_write = os.pipe()
        self._from_read, to_answer = os.pipe()
        # The browser speaks on descriptors 3 and 4, which a shell puts in place.
        command = f'exec "$0" "$@" 3</dev/fd/{to_read} 4>/dev/fd/{to_answer}'
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        options += ["--disable-quic", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
        options += ["--lang=en-US", f"--user-data-dir={home}", "--remote-debugging-pipe", "about:blank"]
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", command, str(BROWSER), *options],
            pass_fds=(to_read, to_answer),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_answer)
        self._ids = itertools.count(1)
        self._rest = b""
        self._session = ""
        self.requests: list[str] = []
        self.errors: list[str] = []
        target = next(target for target in self.call("Target.getTargets")["targetInfos"] if target["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._to_write)
        os.close(self._from_read)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command, and take messages until its answer comes."""
        id = next(self._ids)
        message = {"id": id, "method": method, "params": params} | (
            {"sessionId": self._session} if self._session else {}
        )
        text = json.dumps(message).encode() + b"\0"
        while text:
            text = text[os.write(self._to_write, text) :]
        while (answer := self._next()).get("id") != id:
            self._note(answer)
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            chunk = os.read(self._from_read, 1 << 20)
            assert chunk, "the browser ended"
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message

    def _note(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        if event["method"] == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif event["method"] == "Runtime.exceptionThrown":
            self.errors.append(params["exceptionDetails"].get("exception", {}).get("description", "?"))
        elif event["method"] == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(params["entry"]["text"])
        elif event["method"] == "Page.javascriptDialogOpening":
            self.errors.append(f"a dialog: {params['message']}")

    def open(self, path: Path) -> None:
        self.call("Page.navigate", url=path.as_uri())
        self.wait("document.readyState === 'complete'")

    def run(self, script: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, userGesture=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait(self, condition: str) -> None:
        end = time.monotonic() + 30
        while not self.run(condition):
            assert time.monotonic() < end, condition
            time.sleep(0.02)

    def type(self, text: str) -> None:
        """Type into the search box as a reader would, and wait for the answer."""
        self.run("document.getElementById('query').value = ''; document.getElementById('query').focus()")
        self.run("document.getElementById('count').textContent = ''")
        self.call("Input.insertText", text=text)
        self.wait("document.getElementById('count').textContent !== ''")

    def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def click(self, name: str, within: str = "#tree", button: str = ".name") -> None:
        """Click where the first button of this name is on the screen."""
        place = self.run(
            f"(() => {{ const name = [...document.querySelectorAll('{within} {button}')].find((name) => "
            f"name.querySelector('bdi').textContent === {json.dumps(name)}); name.scrollIntoView({{block: 'center'}}); "
            "const box = name.querySelector('bdi').getBoundingClientRect(); "
            "return [box.x + Math.min(box.width, 20) / 2, box.y + Math.min(box.height, 20) / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)

    def names(self, within: str = "#tree") -> list[str]:
        """Return the names that stand in the tree or among what was found."""
        found: list[str] = self.run(
            f"[...document.querySelectorAll('{within} .name')].filter((name) => name.offsetParent)"
            ".map((name) => name.querySelector('bdi').textContent)"
        )
        return found

    def text(self, selector: str) -> str:
        return str(self.run(f"document.querySelector('{selector}').innerText"))

    def look(self, scheme: str = "light", width: int = 1280, height: int = 800) -> None:
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def keep_screen(self, name: str) -> None:
        if folder := os.environ.get("KEYWORD_TREE_SCREENS"):
            data = self.call("Page.captureScreenshot", format="png")["data"]
            Path(folder, f"{name}.png").write_bytes(base64.b64decode(data))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    if BROWSER is None:
        pytest.skip("no Chromium is installed: no program chromium, chromium-browser or google-chrome")
    page = Page(tmp_path_factory.mktemp("browser"))
    yield page
    page.close()


@pytest.fixture
def page(browser: Page) -> Iterator[Page]:
    browser.requests.clear()
    browser.errors.clear()
    browser.look()
    yield browser

    assert [url for url in browser.requests if not url.startswith("file:")] == []
    assert browser.errors == []


def export(folder: Path, records: list[Record], root_id: str = "root") -> Path:
    with KeywordTree(str(folder / "store")) as tree:
        load(tree, records)
        export_file(tree, folder / "page.html", root_id=root_id)
    return folder / "page.html"


def data_of(path: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(Reader(path.read_text(encoding="utf-8")).data)
    return data


def fact(id: str, content: str, source: str, keyword_id: str) -> Fact:
    return Fact(id, content, source, [(keyword_id, RelationType.PRIMARY)])


SMALL: list[Record] = [
    Keyword("p", "root", "编程", ["programming"], "What machines\ncan execute."),
    Keyword("py", "p", "Python", ["CPython", "蟒蛇"]),
    Keyword("r", "p", "Rust"),
    Keyword("f", "root", "食物"),
    fact("1", "PEP 703 makes the GIL optional.\nSince 3.13.", "https://peps.python.org/pep-0703/", "py"),
    fact("2", "全局解释器锁可以关闭。", "a friend", "py"),
]


class Reader(HTMLParser):
    """Sees a page as a browser's parser does: its elements, and the text of the one that holds the data."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.data = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.seen and self.seen[-1][1].get("id") == "data" and not self.data:
            self.data = data


class TestFile:
    def test_names_end_neither_the_data_nor_the_script(self, tmp_path: Path) -> None:
        made: list[Record] = [Keyword(f"k{number}", "root", name) for number, name in enumerate(HOSTILE)]
        text = export(
            tmp_path, [*made, *(fact(f"i{n}", text, text, "k0") for n, text in enumerate(HOSTILE))]
        ).read_text()
        plain = export(tmp_path / "plain", []).read_text()
        reader = Reader(text)
        data = json.loads(reader.data)

        assert reader.seen == Reader(plain).seen
        assert [row[1] for row in data["nodes"][1:]] == HOSTILE
        assert [row[:2] for row in data["infos"]] == [[text, text] for text in HOSTILE]

    def test_a_title_is_text(self, tmp_path: Path) -> None:
        page = export(tmp_path, [Keyword("k", "root", "</title><script>1</script>"), Keyword("c", "k", "C")], "k")

        assert "<title>&lt;/title&gt;&lt;script&gt;1&lt;/script&gt;</title>" in page.read_text()

    def test_names_no_address_but_those_of_sources(self, tmp_path: Path) -> None:
        text = export(tmp_path, SMALL).read_text()

        assert re.findall(r"https?://[^\s\"]+", text) == ["https://peps.python.org/pep-0703/"]
        assert not re.findall(r"\b(?:src|href)=|@import|url\(", text)

    def test_an_info_of_several_keywords_stands_in_it_once(self, tmp_path: Path) -> None:
        both = Fact("1", "said once", "", [("p", RelationType.PRIMARY), ("f", RelationType.RELATED)])

        assert export(tmp_path, [*SMALL[:4], both]).read_text().count("said once") == 1


class TestWhatIsOnIt:
    def test_infos_without_a_keyword_are_on_the_page_of_everything(self, tmp_path: Path) -> None:
        load_both: list[Record] = [*SMALL, Fact("3", "nowhere")]

        assert data_of(export(tmp_path, load_both))["loose"] == [2]
        assert data_of(export(tmp_path / "part", load_both, "p"))["loose"] == []

    def test_what_was_corrected_is_not_on_it(self, tmp_path: Path) -> None:
        with MemoryStore(tmp_path / "store") as store:
            old = store.remember("Ada lives in Paris.")
            store.correct(old, "Ada lives in Rome.")
            export_file(store.tree, tmp_path / "page.html")

        assert [row[0] for row in data_of(tmp_path / "page.html")["infos"]] == ["Ada lives in Rome."]


class TestInABrowser:
    def test_opens_on_the_newest_infos_and_says_whose_memory_it_is(self, page: Page, tmp_path: Path) -> None:
        times = itertools.count(1_700_000_000, 60)
        with MemoryStore(tmp_path / "store", user="林悦", clock=lambda: next(times)) as store:
            for text in ("Tea comes first.", "Milk comes second."):
                store.remember(text, keywords=["drinks/tea"])
            export_file(store.tree, tmp_path / "page.html", language="en")
        page.open(tmp_path / "page.html")

        assert page.text("h1") == page.text("h2") == page.run("document.title") == "The memory of 林悦"
        shown = "[...document.querySelectorAll('article p')].map((each) => each.textContent)"
        assert page.run(shown) == ["Milk comes second.", "Tea comes first."]
        assert page.text("article .path").strip() == "drinks / tea"
        assert " · exported " in page.text("#detail > .faint")

        page.click("tea")

        assert page.run(shown) == ["Tea comes first.", "Milk comes second."]

    def test_facts_alone_have_no_tree_and_are_found_each_by_itself(self, page: Page, tmp_path: Path) -> None:
        with MemoryStore(tmp_path / "store", user="ada", clock=lambda: 1_700_000_000.0) as store:
            for text in ("We drive a Volvo.", "The dentist is on Thursday.", "The kitchen will be green."):
                store.remember(text, source="chat")
            export_file(store.tree, tmp_path / "page.html", language="en")
        page.open(tmp_path / "page.html")
        shown = "[...document.querySelectorAll('article p')].map((each) => each.textContent)"

        assert page.run(shown) == ["The kitchen will be green.", "The dentist is on Thursday.", "We drive a Volvo."]
        assert page.text("#count") == "3 infos"
        assert page.run("document.querySelector('nav').checkVisibility()") is False
        assert page.run("document.querySelectorAll('article .path').length") == 0

        page.type("thursday")
        assert page.run(shown) == ["The dentist is on Thursday."]
        assert page.text("#count") == "1 found"
        page.press("Escape")
        assert len(page.run(shown)) == 3

    def test_opens_branches_and_shows_what_is_known(self, page: Page, tmp_path: Path) -> None:
        page.open(export(tmp_path, SMALL))

        assert page.names() == ["KeywordTree", "编程", "Python", "Rust", "食物"]  # a small memory opens unfolded
        assert page.text("#count") == "4 keywords"
        assert "4 keywords · 2 infos · " in page.text("main")

        page.run("""document.querySelector('li[data-node="1"] .toggle').click()""")

        assert page.names() == ["KeywordTree", "编程", "食物"]

        page.run("""document.querySelector('li[data-node="1"] .toggle').click()""")

        page.click("Python")

        assert page.text("h2") == "Python"
        assert page.text("main .path") == "编程 /"
        assert [page.text(f"article:nth-of-type({number}) p") for number in (1, 2)] == [
            "PEP 703 makes the GIL optional.\nSince 3.13.",
            "全局解释器锁可以关闭。",
        ]
        assert page.run("[...document.querySelectorAll('main a')].map((link) => link.href)") == [
            "https://peps.python.org/pep-0703/"
        ]
        page.keep_screen("small-light")
        page.look("dark")
        page.keep_screen("small-dark")
        page.look("light", width=400, height=700)
        page.keep_screen("small-narrow")

    def test_a_click_chooses_and_opens_and_another_one_closes(self, page: Page, tmp_path: Path) -> None:
        page.open(export(tmp_path, SMALL))
        seen = []
        for _ in range(3):
            page.click("编程")
            seen.append(len(page.names()))

        assert seen == [5, 3, 5]

    def test_leads_to_what_is_under_above_and_beside(self, page: Page, tmp_path: Path) -> None:
        both = Fact("3", "shared", "", [("r", RelationType.SOURCE), ("f", RelationType.PRIMARY)])
        page.open(export(tmp_path, [*SMALL, both]))
        seen = []
        for place, name in ((".below", "编程"), (".below", "Rust"), ("article", "食物")):
            page.click(name, f"main {place}", ".step")
            seen.append((page.text("h2"), page.text("#tree .name[aria-current=true] bdi")))
        badges = page.run("document.querySelectorAll('.badge').length")
        page.click("Rust", "main article", ".step")

        assert seen == [("编程", "编程"), ("Rust", "Rust"), ("食物", "食物")]
        assert badges == 0
        assert page.text(".badge") == "source"

        page.click("编程", "main .path", ".step")

        assert page.text("h2") == "编程"

    def test_counts_one_in_the_singular(self, page: Page, tmp_path: Path) -> None:
        page.open(export(tmp_path, [Keyword("t", "root", "tea"), fact("1", "No sugar.", "chat", "t")]))

        assert page.text("#count") == "1 keyword"
        assert "1 keyword · 1 info · " in page.text("main")

    def test_shows_infos_that_are_linked_nowhere(self, page: Page, tmp_path: Path) -> None:
        page.open(export(tmp_path, [*SMALL, Fact("3", "on nothing"), Fact("4", "nowhere")]))

        assert page.names() == ["KeywordTree", "编程", "Python", "Rust", "食物", "infos without a keyword"]
        assert page.text("#count") == "4 keywords"

        page.type("on nothing")
        assert page.names("#found") == ["on nothing"]
        page.click("on nothing", "#found")

        assert page.run("[...document.querySelectorAll('article p')].map((each) => each.textContent)") == ["on nothing"]

    def test_fits_a_phone(self, page: Page, tmp_path: Path) -> None:
        long = "x" * 512
        page.look("dark", width=360, height=640)
        page.call("Emulation.setTouchEmulationEnabled", enabled=True)
        try:
            made: list[Record] = [
                *SMALL,
                Keyword("l", "py", long, [long], long),
                fact("3", long, f"https://{long}", "l"),
            ]
            page.open(export(tmp_path, made))
            page.type("xxx")
            page.click(long, "#found")
            widths = page.run(
                "[...document.querySelectorAll('body, header, nav, main')].map((e) => [e.scrollWidth, e.clientWidth])"
            )
            height = page.run("document.querySelector('#found .name').getBoundingClientRect().height")
            page.keep_screen("phone")
        finally:
            page.call("Emulation.setTouchEmulationEnabled", enabled=False)

        assert all(needed <= there for needed, there in widths)
        assert height >= 36  # enough for a thumb

    def test_finds_by_names_aliases_descriptions_and_infos(self, page: Page, tmp_path: Path) -> None:
        page.open(export(tmp_path, SMALL))
        for query, found in {
            "python": ["Python"],
            "ＰＹＴＨＯＮ": ["Python"],
            "蟒蛇": ["Python"],
            "programming": ["编程"],
            "解释器": ["Python"],
            "谁可以关闭解释器": ["Python"],
            "关闭食物": [],
            "pep optional": ["Python"],
            "execute": ["编程"],
            "no such thing": [],
        }.items():
            page.type(query)
            assert (page.names("#found"), page.text("#count")) == (found, f"{len(found)} found"), query

    def test_what_was_found_is_chosen_by_enter_and_shown_in_its_place(self, page: Page, tmp_path: Path) -> None:
        page.open(export(tmp_path, SMALL))
        page.press("/")
        page.call("Input.insertText", text="rus")
        page.press("Enter")  # before the search has begun by itself

        assert page.names("#found") == ["Rust"]  # what was found stays
        assert page.text("h2") == "Rust"
        assert page.text('#found .name[aria-current="true"] bdi') == "Rust"
        assert page.run("document.activeElement.id") == "query"

        page.type("optional")
        assert page.text("#found .excerpt").startswith("PEP 703 makes the GIL optional.")
        assert page.text("#found .excerpt mark") == "optional"

        page.press("Escape")

        assert page.names() == ["KeywordTree", "编程", "Python", "Rust", "食物"]
        assert page.text('#tree .name[aria-current="true"] bdi') == "Rust"

    def test_a_large_memory_opens_folded(self, page: Page, tmp_path: Path) -> None:
        many = [Keyword(f"k{number}", "p", f"name {number}") for number in range(60)]
        page.open(export(tmp_path, [*SMALL, *many]))

        assert page.names() == ["KeywordTree", "编程", "食物"]

    def test_markdown_is_drawn_and_html_in_it_stays_text(self, page: Page, tmp_path: Path) -> None:
        text = (
            "# Tea\n\nWater at **80 °C**, _not_ `100`.\nSee [a page](https://example.org/tea), "
            "[none](javascript:alert(1)).\n\n- green\n  - Longjing 龙井\n- black\n\n1. boil\n2. wait\n\n"
            "> he said <b>so</b>\n\n```\n<script>alert(1)</script>\n```\n2 * 3 * 4 and snake_case_name"
        )
        page.open(export(tmp_path, [*SMALL, fact("3", text, "", "f")]))
        page.click("食物")
        drawn = page.run(
            "[...document.querySelectorAll('article .text *')].map((one) => one.tagName + ':' + one.textContent)"
        )

        assert "H3:Tea" in drawn
        assert {"STRONG:80 °C", "EM:not", "CODE:100", "A:a page"} <= set(drawn)
        assert "UL:Longjing 龙井" in drawn
        assert [one for one in drawn if one.startswith("OL")] == ["OL:boilwait"]
        assert "BLOCKQUOTE:he said <b>so</b>" in drawn
        assert "PRE:<script>alert(1)</script>" in drawn
        assert "P:2 * 3 * 4 and snake_case_name" in drawn
        assert page.run("[...document.querySelectorAll('article a')].map((link) => link.href)") == [
            "https://example.org/tea"
        ]
        page.keep_screen("markdown")

    def test_no_text_takes_long_to_draw(self, page: Page, tmp_path: Path) -> None:
        texts = ["*" * 50_000, "[" * 50_000, "_a" * 25_000, "> " * 25_000, "`" * 50_001, "- a\n" * 9_000]
        texts += ["**a" * 20_000, "".join(" " * depth + "- a\n" for depth in range(300)), "[a](" * 12_000]
        page.open(export(tmp_path, [*SMALL, *(fact(f"t{n}", text, "", "f") for n, text in enumerate(texts))]))
        started = time.monotonic()
        page.click("食物")

        assert page.text("h2") == "食物"
        assert page.run("document.querySelectorAll('article').length") == len(texts)
        assert time.monotonic() - started < 20  # what reads a text again from each of its places takes minutes

    def test_speaks_chinese_to_who_reads_it(self, page: Page, tmp_path: Path) -> None:
        agent = page.run("navigator.userAgent")
        page.call("Emulation.setUserAgentOverride", userAgent=agent, acceptLanguage="zh-CN")
        try:
            page.open(export(tmp_path, SMALL))
            page.type("解释器")

            assert page.run("[document.documentElement.lang, navigator.language]") == ["zh", "zh-CN"]
            assert page.text("#count") == "1 个结果"
            page.keep_screen("small-chinese")
        finally:
            page.call("Emulation.setUserAgentOverride", userAgent=agent, acceptLanguage="en-US")

    def test_hostile_names_are_text(self, page: Page, tmp_path: Path) -> None:
        names = [name for name in HOSTILE if name.isprintable()]
        made: list[Record] = [Keyword(f"k{number}", "root", name, [name], name) for number, name in enumerate(names)]
        page.open(export(tmp_path, [*made, *(fact(f"i{n}", name, name, "k0") for n, name in enumerate(HOSTILE))]))
        elements = page.run("document.querySelectorAll('script, img, iframe, object, style').length")
        page.click(names[0])
        page.type("script")
        page.keep_screen("hostile")

        assert elements == 3
        assert page.run("document.querySelectorAll('script, img, iframe, object, style').length") == 3
        assert page.run("document.querySelectorAll('main a').length") == 0
        assert names[0] in page.names("#found")

    def test_a_source_that_is_a_script_is_no_link(self, page: Page, tmp_path: Path) -> None:
        page.open(export(tmp_path, [*SMALL[:1], fact("1", "text", "javascript:alert(1)//https://a", "p")]))
        page.click("编程")

        assert page.text("article footer").startswith("javascript:alert(1)//https://a")
        assert page.run("document.querySelectorAll('main a').length") == 0

    def test_a_long_level_is_shown_in_parts(self, page: Page, tmp_path: Path) -> None:
        page.open(export(tmp_path, [Keyword(f"k{number}", "root", f"name {number}") for number in range(1000)]))

        assert len(page.names()) == 1 + 200

        page.run("document.querySelector('.more').click()")

        assert len(page.names()) == 1 + 400

        page.type("name 950")
        page.click("name 950", "#found")
        page.press("Escape")

        assert page.names()[1:] == [f"name {number}" for number in range(1000)]
        assert page.text('#tree .name[aria-current="true"] bdi') == "name 950"


HOME = {
    "Ada": ("en", "", [
        ("Anna is allergic to peanuts.", "chat, 3 May", "people/Anna"),
        ("Anna starts school in September. She is in **class 1b**.", "a letter", "people/Anna"),
        ("Our dog is called Biscuit, and he is afraid of fireworks.", "chat, 4 May", "home/Biscuit"),
        ("Biscuit eats twice a day:\n- in the morning 200 g\n- in the evening 150 g", "the vet", "home/Biscuit"),
        ("Tom drinks his Longjing without sugar, and not too hot.", "chat, 9 May", "people/Tom"),
    ]),
    "林悦": ("zh", ".zh-CN", [
        ("小雨对花生过敏。", "五月三日聊天", "家人/小雨"),
        ("小雨九月上小学，在**一年级二班**。", "学校的信", "家人/小雨"),
        ("我们的狗叫豆豆，怕打雷。", "五月四日聊天", "家里/豆豆"),
        ("豆豆一天吃两顿：\n- 早上 200 克\n- 晚上 150 克", "兽医", "家里/豆豆"),
        ("外婆住在绵阳，爱吃回锅肉。", "五月九日聊天", "家人/外婆"),
    ]),
}  # fmt: skip
"""Of the pictures in the README: whose memory it is → the page's language, the end of the file's name, the facts."""


@pytest.mark.parametrize("owner", HOME)
def test_the_picture_of_the_readme_shows_facts_and_whose_they_are(page: Page, tmp_path: Path, owner: str) -> None:
    language, end, facts = HOME[owner]
    times = itertools.count(1_777_800_000, 86_400)
    with MemoryStore(tmp_path / "store", user=owner, clock=lambda: next(times)) as store:
        for text, source, keyword in facts:
            store.remember(text, source=source, keywords=[keyword])
        export_file(store.tree, tmp_path / "page.html", language=language)
    for scheme in ("light", "dark"):
        page.look(scheme, width=1100, height=560)
        page.open(tmp_path / "page.html")
        page.keep_screen(f"page-{scheme}{end}")
        seen = page.text("main")

        assert owner in page.text("h1")
        assert [seen.index(source) for _, source, _ in reversed(facts)] == sorted(seen.index(one[1]) for one in facts)
        assert "**" not in seen


def ask(server: HTTPServer, path: str, host: str = "") -> tuple[int, str]:
    """Ask a server that runs in a thread; return the status and the text."""
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    try:
        connection.request("GET", path, headers={"Host": host} if host else {})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


class TestServed:
    @pytest.fixture
    def tree(self, tmp_path: Path) -> Iterator[KeywordTree]:
        with KeywordTree(str(tmp_path / "store")) as tree:
            load(tree, SMALL)
            yield tree

    @pytest.fixture
    def server(self, tree: KeywordTree) -> Iterator[HTTPServer]:
        def find(question: str) -> list[dict[str, str]]:
            loose = [info.id for info in tree.ListInfos(unlinked=True) if info.content == question]
            ids = [*loose, *(node.id for node, _ in tree.RankCandidates(question, 3))]
            return [{"id": id, "excerpt": f"{question}!"} for id in ids]

        with make_server(tree, find) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            yield server
            server.shutdown()
            thread.join()

    def test_the_page_shows_what_is_there_at_each_request(self, tree: KeywordTree, server: HTTPServer) -> None:
        before = ask(server, "/")
        tree.CreateKeyword("垃圾回收 garbage", "py")
        after = ask(server, "/")

        assert (before[0], "garbage" in before[1], "garbage" in after[1]) == (200, False, True)
        assert json.loads(Reader(after[1]).data)["ids"][:2] == ["root", "p"]
        assert json.loads(ask(server, "/search?q=CPython")[1])[0] == {"id": "py", "excerpt": "CPython!"}
        assert ask(server, "/elsewhere")[0] == 404

    def test_answers_to_no_other_name(self, server: HTTPServer) -> None:
        assert ask(server, "/", f"localhost:{server.server_port}")[0] == 200
        for host in ("evil.example", f"evil.example:{server.server_port}", "127.0.0.1"):
            assert ask(server, "/search?q=CPython", host)[0] == 421

    def test_its_search_shows_what_the_server_finds(self, page: Page, server: HTTPServer, tree: KeywordTree) -> None:
        for text in ("nowhere", "elsewhere"):
            tree.CreateInfo(text)
        page.call("Page.navigate", url=f"http://127.0.0.1:{server.server_port}/")
        page.wait("document.readyState === 'complete'")
        assert page.text("#detail > .faint").endswith(" · live")
        page.type("elsewhere")
        page.wait("document.querySelectorAll('#found .name').length > 0")
        assert page.names("#found") == ["elsewhere"]
        page.type("蟒蛇 <b>")
        page.wait("document.querySelectorAll('#found .excerpt').length > 0")

        assert page.names("#found")[0] == "Python"
        assert page.text("#found .excerpt") == "蟒蛇 <b>!"

        page.run("document.getElementById('query').focus()")
        page.press("Enter")
        assert page.text("h2") == "Python"
        page.run("fetch = () => new Promise(() => {}); search('late'); 0")
        assert page.text("#count") == "searching …"
        asked = {url.partition("?")[0].rpartition("/")[2] for url in page.requests}
        assert asked <= {"", "search", "favicon.ico"}
        page.errors[:] = [error for error in page.errors if "404" not in error]  # the icon that a browser asks for
        page.requests.clear()
