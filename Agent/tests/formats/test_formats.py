"""Tests of import and export: what goes out comes back, in every format, whatever strangers wrote into it."""

import codecs
import csv
import json
import os
import re
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from Agent.formats import READ_FORMATS, WRITE_FORMATS, ImportReport, export_file, import_file
from Agent.formats import records as loading
from Agent.formats.records import Fact, Keyword, Link, is_blank, load, undo_import
from Agent.formats.view import View
from Agent.keyword_tree import (
    ConflictError,
    Info,
    InvalidInputError,
    KeywordNode,
    KeywordTree,
    NotFoundError,
    RelationType,
)
from Agent.tests.support.examples import share
from Agent.tests.support.missing import error_without

DISK = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""A disk in memory, where there is one: what waits for no sync can be tried more often."""

NEEDS = {"notes": "yaml"}

BOTH_WAYS = [name for name in WRITE_FORMATS if name in READ_FORMATS]

HOSTILE = [
    "</script><script>alert(1)</script>", "</script ", "<!-- <script ", "<img src=x onerror=alert(1)>", "<!--",
    "-->", "]]>", "&amp;lt;&#65;&bomb;", "=1+1", "'=1+1", "+cmd|' /C calc'!A0", "-1", "@SUM(A1)", "\t=1", "\r=1",
    "＝1", 'a","b\n"c', "a;b\tc|d", 'x"] --> y["z', "%%{init: {}}%%", "`**b**`", 'n" [color=red]; "', "\\N\\", "end",
    "# not a heading", "- no item", "1. no item", "+ no item", "no heading\n===", "C #", "[no](link)",
    "[[no wikilink]]", "_no emphasis_", "---", "```", "    no code", "{{template}} ${x} $(x)", "../../etc/passwd",
    "C:\\con", "CON", ".git", "AC/DC", " blanks ", "\u3000宽\u3000", "line\nline\n\nline", "\n---\n", "a\r\nb\rc",
    "null", "no", "~", "\u202eright to left\u202c", "👨‍👩‍👧 é e\u0301", "nul\x00 escape\x1b[31m \x85 \u2028",
    "\ufeff mark", "<!-- info {} -->", "\\<!-- info ", "a\n<!-- info {} -->\nb", "a.md", "x" * 512, "字" * 512,
]  # fmt: skip

texts = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    st.text("ab \n\r\t\\/|<>&'\"=-+#*_`[]().!1编", max_size=12),
)
names = texts.filter(lambda text: not is_blank(text))

Outline: TypeAlias = list[Any]


@st.composite
def records(draw: st.DrawFn) -> list[Keyword | Fact | Link]:
    """Draw the records of a whole tree: keywords anywhere under the root, infos on some of them, links made later."""
    ids = ["root"]
    made: list[Keyword | Fact | Link] = []
    for number in range(draw(st.integers(0, 6))):
        aliases = draw(st.lists(names, max_size=2, unique=True))
        parent_id = draw(st.sampled_from(ids))
        made.append(Keyword(f"k{number}", parent_id, draw(names), aliases, draw(texts)))
        ids.append(f"k{number}")
    relations = st.sampled_from(RelationType)
    for number in range(draw(st.integers(0, 4))):
        links = draw(
            st.lists(st.tuples(st.sampled_from(ids), relations), min_size=1, max_size=3, unique_by=lambda x: x[0])
        )
        made.append(Fact(f"i{number}", draw(texts), draw(texts), links))
        if draw(st.booleans()):
            made.append(Link(f"i{draw(st.integers(0, number))}", draw(st.sampled_from(ids)), draw(relations)))
    return made


def need(format_name: str) -> None:
    package = NEEDS.get(format_name)
    if package and find_spec(package) is None:
        pytest.skip(f"{format_name} needs the extra [formats]: {package} is not installed")


@contextmanager
def batches_of(size: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(loading, "BATCH", size)
        yield


def there_and_back(made: list[Keyword | Fact | Link], format_name: str, look: Callable[[KeywordTree], Any]) -> None:
    """Export what the records make, import it twice elsewhere, and compare what `look` sees."""
    with tempfile.TemporaryDirectory(dir=DISK) as name:
        folder = Path(name)
        with KeywordTree(str(folder / "a")) as tree, KeywordTree(str(folder / "b")) as other:
            load(tree, made)
            export_file(tree, folder / "out", format_name)
            with batches_of(3):
                import_file(other, folder / "out", format_name)
            seen = look(other)
            again = import_file(other, folder / "out", format_name)

            assert seen == look(tree)
            assert (again.keywords, again.infos, again.links) == (0, 0, 0)
            assert look(other) == seen


def look_at(tree: KeywordTree) -> Outline:
    """Return the outline with what stands at each keyword."""
    view = View(tree)
    seen: Outline = []
    for depth, node in view.walk():
        seen.append((depth, node.name, node.aliases, node.description, node.id))
        for info in view.infos(node.id):
            relations = {link.keyword_id: link.relation for link in tree.GetLinks(info.id)}
            seen.append((info.content, info.source, info.id, relations[node.id]))
    return seen


def look_at_all(tree: KeywordTree) -> Outline:
    """Return everything that a JSON document keeps; of a keyword's infos not the order in which they were linked."""
    view = View(tree)

    def metadata_of(record: KeywordNode | Info) -> Any:
        said = record.metadata.get("imported", {})
        is_ours = isinstance(said, dict) and "updated_at" in said
        return {name: value for name, value in record.metadata.items() if name != "imported" or not is_ours}

    nodes = [
        (depth, node.id, node.name, node.aliases, node.description, metadata_of(node), node.created_by, node.confirmed)
        for depth, node in view.walk()
    ]
    linked = {info.id: info for _, id, *_ in nodes for info in view.infos(id)}
    infos = [
        (info.id, info.content, info.source, str(metadata_of(info)), info.created_by)
        for info in sorted([*linked.values(), *view.unlinked()], key=lambda info: info.id)
    ]
    links = [
        (link.info_id, link.keyword_id, link.relation, link.created_by)
        for id in sorted(linked)
        for link in tree.GetLinks(id)
    ]
    return [nodes, infos, links]


LOOKS: dict[str, Callable[[KeywordTree], Outline]] = {"json": look_at_all, "csv": look_at, "tsv": look_at}
"""What each format keeps."""


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path


def outline(tree: KeywordTree) -> list[str]:
    """Return the tree as lines: keywords, and infos behind a bullet."""
    view = View(tree)
    lines: list[str] = []
    for depth, node in view.walk():
        if depth:
            lines.append("  " * (depth - 1) + node.name)
        for info in view.infos(node.id):
            lines.append("  " * depth + f"• {info.content}" + (f" <{info.source}>" if info.source else ""))
    return lines


class TestRoundTrips:
    @pytest.mark.parametrize("format_name", LOOKS)
    @share(0.5)
    @given(made=records())
    def test_a_format_keeps_what_it_says_it_keeps(self, made: list[Keyword | Fact | Link], format_name: str) -> None:
        need(format_name)

        there_and_back(made, format_name, LOOKS[format_name])

    def test_json_keeps_all_but_the_log_through_two_copies(self, tree: KeywordTree, tmp_path: Path) -> None:
        tree.UpdateKeyword("root", {"description": "Everything.", "metadata": {"mine": 1}}, 1)
        first = tree.CreateKeyword("A", "root", ["a"], "the first", metadata={"imported": "by hand"}, created_by="Ada")
        second = tree.CreateKeyword("B", first.id, created_by="agent")
        tree.MergeKeywords(tree.CreateKeyword("C", "root").id, second.id)
        tree.Confirm("what is A?", first.id)
        tree.Confirm("A, please", first.id)
        info = tree.CreateInfo("text", "a book", [second.id], metadata={"imported": {"version": 1}}, created_by="Ada")
        tree.LinkInfo(info.id, first.id, RelationType.RELATED, "Ada")
        tree.CreateInfo("on nothing", metadata={"mine": 2})
        seen = look_at_all(tree)
        export_file(tree, tmp_path / "0.json")
        for number in (1, 2):  # a copy, and the copy's copy
            with KeywordTree(str(tmp_path / str(number)), clock=lambda: 2_000_000_000) as copy:
                with batches_of(2):
                    import_file(copy, tmp_path / f"{number - 1}.json")

                assert look_at_all(copy) == seen
                export_file(copy, tmp_path / f"{number}.json")
        rows = json.loads((tmp_path / "2.json").read_text("utf-8"))["infos"]

        times = [row["metadata"]["imported"].get("created_at") for row in rows]
        assert times == [None, tree.ListInfos()[-1].created_at]

    @given(records(), st.sampled_from(WRITE_FORMATS))
    def test_whatever_is_in_a_tree_can_be_written(self, made: list[Keyword | Fact | Link], format_name: str) -> None:
        need(format_name)
        with tempfile.TemporaryDirectory(dir=DISK) as name, KeywordTree(f"{name}/a") as tree:
            load(tree, made)
            count = export_file(tree, Path(name, "out"), format_name)

        assert count == sum(isinstance(record, Keyword) for record in made)

    @pytest.mark.parametrize("format_name", BOTH_WAYS)
    def test_a_part_comes_back_under_another_keyword(self, tree: KeywordTree, tmp_path: Path, format_name: str) -> None:
        need(format_name)
        load(tree, [Keyword("a", "root", "A"), Keyword("b", "a", "B"), Keyword("c", "b", "C"), Keyword("d", "a", "D")])
        load(tree, [Fact("i", "about c", links=[("c", RelationType.PRIMARY), ("d", RelationType.PRIMARY)])])
        export_file(tree, tmp_path / "part", format_name, root_id="b")
        with KeywordTree(str(tmp_path / "other")) as other:
            other.BatchCreateKeywords([{"id": "x", "name": "X", "parent_id": "root"}])
            import_file(other, tmp_path / "part", format_name, parent_id="x")

            assert outline(other) == ["X", "  B", "    C", "      • about c"]


class TestHostileNames:
    """Nothing in a name becomes syntax of the format that holds it."""

    MADE: ClassVar[list[Keyword | Fact | Link]] = [
        *(Keyword(f"k{number}", "root", name) for number, name in enumerate(HOSTILE)),
        *(Keyword(f"m{number}", f"k{number}", f"{number}", [name], name) for number, name in enumerate(HOSTILE)),
        *(Keyword(f"n{number}", f"m{number}", name) for number, name in enumerate(HOSTILE)),
        *(Fact(f"i{number}", text, text, [("k0", RelationType.PRIMARY)]) for number, text in enumerate(HOSTILE)),
        *(Fact(f"j{number}", text, "", [("n0", RelationType.PRIMARY)]) for number, text in enumerate(HOSTILE)),
    ]

    @pytest.fixture
    def hostile(self, tree: KeywordTree) -> KeywordTree:
        load(tree, self.MADE)
        return tree

    @pytest.mark.parametrize("format_name", LOOKS)
    def test_every_one_comes_back_from_every_place(self, format_name: str) -> None:
        need(format_name)

        there_and_back(self.MADE, format_name, LOOKS[format_name])

    def test_no_cell_is_a_formula(self, hostile: KeywordTree, tmp_path: Path) -> None:
        export_file(hostile, tmp_path / "out.csv")
        with (tmp_path / "out.csv").open(encoding="utf-8-sig", newline="") as file:
            cells = [cell for row in csv.reader(file) for cell in row]

        assert len(cells) == 8 * (1 + len(self.MADE))
        assert not [cell for cell in cells if cell.startswith(tuple("=+-@\t\r\n＝＋－＠"))]


class TestImport:
    def test_refuses_what_no_one_knows(self, tree: KeywordTree, tmp_path: Path) -> None:
        for name, format_name in (("a.xyz", None), ("a.json", "yaml"), ("a.html", None), ("a", "dot")):
            path = write(tmp_path, name, "")
            with pytest.raises(InvalidInputError, match=r"known|written"):
                import_file(tree, path, format_name)
        for missing in ("none.json", "none", 5, b"\0"):
            with pytest.raises(InvalidInputError, match=re.escape(f"no file or folder {missing!r}")):
                import_file(tree, missing)  # type: ignore[arg-type]

    @pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8])  # as an editor leaves it that keeps the mark of another
    def test_refuses_another_encoding_and_reads_it_where_it_is_named(
        self, tree: KeywordTree, tmp_path: Path, mark: bytes
    ) -> None:
        path = tmp_path / "a.csv"
        path.write_bytes(mark + "path\n食物\n".encode("gb18030"))
        with pytest.raises(InvalidInputError, match=r"a\.csv: it is not utf-8: .* --encoding gb18030 "):
            import_file(tree, path)
        with pytest.raises(InvalidInputError, match="klingon"):
            import_file(tree, path, encoding="klingon")
        import_file(tree, path, encoding="gb18030")
        path.write_bytes("\ufeffpath\n茶\n".encode("gb18030"))
        import_file(tree, path)  # known by its own mark

        assert outline(tree) == ["食物", "茶"]

    @pytest.mark.parametrize(
        ("text", "encoding"),
        [("食物", "gb18030"), ("食物", "big5"), ("たべもの", "shift_jis"), ("음식", "euc-kr"), ("еда", "cp1251")],
    )
    def test_the_hint_names_encodings_that_work(
        self, tree: KeywordTree, tmp_path: Path, text: str, encoding: str
    ) -> None:
        path = tmp_path / "a.csv"
        path.write_bytes(f"path\n{text}\n".encode(encoding))
        with pytest.raises(InvalidInputError) as refused:
            import_file(tree, path)
        named = re.findall(r"--encoding (\S+)", str(refused.value))

        assert encoding in named
        for each in named:
            path.read_bytes().decode(each)

    @pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig"])
    @pytest.mark.parametrize("name", ["a.csv", "a.opml", "a.json", "notes"])
    def test_utf_16_is_known_by_its_mark_or_its_zeros(
        self, tree: KeywordTree, tmp_path: Path, name: str, encoding: str
    ) -> None:
        need(name)
        text = {
            "a.csv": "path\n食物 food\n",
            "a.opml": '<opml version="2.0"><body><outline text="食物 food"/></body></opml>',
            "a.json": '{"keywords": [{"id": "f", "name": "食物 food"}]}',
            "notes": "Eat it.",
        }[name]
        path = tmp_path / name
        if name == "notes":
            path.mkdir()
        (path / "食物 food.md" if name == "notes" else path).write_bytes(text.encode(encoding))
        import_file(tree, path)

        assert tree.FindByName("食物 food")

    @pytest.mark.parametrize("format_name", BOTH_WAYS)
    def test_one_line_may_be_megabytes_long(self, tree: KeywordTree, tmp_path: Path, format_name: str) -> None:
        need(format_name)
        long = "字x" * 300_000
        load(tree, [Keyword("f", "root", "food"), Fact("i", long, links=[("f", RelationType.PRIMARY)])])
        export_file(tree, tmp_path / "out", format_name)
        with KeywordTree(str(tmp_path / "other")) as other:
            import_file(other, tmp_path / "out", format_name)
            [node] = other.FindByName("food")

            assert [info.content for info in other.GetInfosOfKeyword(node.id)] == [long]

    def test_names_the_file_where_the_tree_refuses_what_it_holds(self, tree: KeywordTree, tmp_path: Path) -> None:
        with pytest.raises(InvalidInputError, match=r"^a\.csv: description must have"):
            import_file(tree, write(tmp_path, "a.csv", f"path,description\nfood,{'x' * 65_537}\n"))

    def test_keeps_whole_batches_before_a_bad_record_and_goes_on_once_it_is_fixed(
        self, tree: KeywordTree, tmp_path: Path
    ) -> None:
        rows = [json.dumps({"id": str(number), "name": f"n{number}"}) for number in range(6)]
        bad = [*rows[:4], json.dumps({"id": "4", "name": " "}), rows[5]]
        path = write(tmp_path, "a.json", f'{{"keywords": [{",".join(bad)}]}}')
        with batches_of(3), pytest.raises(InvalidInputError, match=r"blank.*before that, 3 keywords, 0 infos"):
            import_file(tree, path)

        assert outline(tree) == ["n0", "n1", "n2"]

        path.write_text(f'{{"keywords": [{",".join(rows)}]}}')

        assert import_file(tree, path) == ImportReport(keywords=3, skipped=3)

    def test_an_import_is_taken_back_by_one_call_wholly_or_not_at_all(self, tree: KeywordTree) -> None:
        with batches_of(2):
            report = load(tree, [Keyword(f"k{i}", "root", f"k{i}") for i in range(7)])
        assert len(report.operation_ids) == 4

        undoing = undo_import(tree, report)
        assert tree.TreeMetrics()["keywords"] == 0
        tree.Undo(undoing)
        assert tree.TreeMetrics()["keywords"] == 7

        tree.CreateKeyword("on it", "k3")
        with pytest.raises(ConflictError):
            undo_import(tree, report)
        assert tree.TreeMetrics()["keywords"] == 8

    def test_a_bad_info_takes_the_keywords_of_its_batch_with_it(self, tree: KeywordTree) -> None:
        with pytest.raises(NotFoundError):
            load(tree, [Keyword("a", "root", "A"), Fact("i", "text", links=[("nowhere", RelationType.PRIMARY)])])

        assert outline(tree) == []

    def test_leaves_what_the_owner_has_changed(self, tree: KeywordTree) -> None:
        made: list[Keyword | Fact | Link] = [
            Keyword("a", "root", "A"),
            Fact("i", "text", links=[("a", RelationType.RELATED)]),
        ]
        load(tree, made)
        tree.LinkInfo("i", "a", RelationType.SOURCE)
        made[0] = Keyword("a", "root", "another name")
        load(tree, made)

        assert look_at(tree)[1:] == [(1, "A", [], "", "a"), ("text", "", "i", RelationType.SOURCE)]

    def test_completes_links_that_an_earlier_import_did_not_reach(self, tree: KeywordTree) -> None:
        load(tree, [Keyword("a", "root", "A"), Fact("i", "text")])
        report = load(tree, [Keyword("a", "root", "A"), Fact("i", "text", links=[("a", RelationType.RELATED)])])

        assert report == ImportReport(links=1, skipped=2)

    def test_a_line_added_in_the_middle_is_all_that_is_new(self, tree: KeywordTree, tmp_path: Path) -> None:
        path = write(tmp_path, "a.csv", "path,info\na/b,one\na/c,two\n")
        import_file(tree, path)
        write(tmp_path, "a.csv", "path,info\na/b,one\na/b,between\na/c,two\n")

        assert import_file(tree, path) == ImportReport(infos=1, links=1, skipped=5)

    def test_a_file_that_moved_is_the_same_under_its_key(self, tree: KeywordTree, tmp_path: Path) -> None:
        import_file(tree, write(tmp_path, "a.csv", "path,info\na,one\n"), key="mine")
        moved = write(tmp_path, "b.csv", "path,info\na,one\n")

        assert import_file(tree, moved, key="mine") == ImportReport(skipped=2)
        assert import_file(tree, moved) == ImportReport(infos=1, links=1, skipped=1)  # a path joins what is there


class TestExport:
    def test_the_file_appears_whole_or_not_at_all(
        self, tree: KeywordTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        load(tree, [Keyword(f"k{number}", "root", "n") for number in range(1001)])
        path = write(tmp_path, "out.csv", "what was there")

        def stop(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(tree, "GetInfosOfKeyword", stop)
        with pytest.raises(KeyboardInterrupt):
            export_file(tree, path)

        assert path.read_text() == "what was there"
        assert sorted(os.listdir(tmp_path)) == ["out.csv", "store"]

    @pytest.mark.parametrize("format_name", WRITE_FORMATS)
    def test_is_for_its_owner_alone(self, tree: KeywordTree, tmp_path: Path, format_name: str) -> None:
        need(format_name)
        export_file(tree, tmp_path / "out", format_name)

        assert (tmp_path / "out").stat().st_mode & 0o077 == 0

    @pytest.mark.parametrize("name", ["change_log.jsonl", "snapshots/mine.json", "../store/new.csv"])
    def test_refuses_to_write_into_the_store_itself(self, tree: KeywordTree, tmp_path: Path, name: str) -> None:
        before = (tmp_path / "store/change_log.jsonl").read_bytes()
        with pytest.raises(InvalidInputError, match="own folder"):
            export_file(tree, tmp_path / "store" / name)

        assert (tmp_path / "store/change_log.jsonl").read_bytes() == before


class TestJson:
    def test_what_is_said_of_the_root_comes_to_a_root_of_which_nothing_is_said(
        self, tree: KeywordTree, tmp_path: Path
    ) -> None:
        patch = {"description": "Everything.", "metadata": {"mine": 1}}
        tree.UpdateKeyword("root", patch, 1)
        export_file(tree, tmp_path / "1.json")
        seen = []
        for number, own in enumerate(({}, {"description": "My own."})):
            with KeywordTree(str(tmp_path / f"other{number}")) as other:
                other.UpdateKeyword("root", own, 1)
                import_file(other, tmp_path / "1.json")
                root = other.GetKeyword("root")
            assert root is not None
            seen.append((root.description, root.metadata))

        assert seen == [("Everything.", {"mine": 1}), ("My own.", {})]

    def test_children_keep_their_order_after_a_parent_that_came_later(self, tree: KeywordTree, tmp_path: Path) -> None:
        load(
            tree, [Keyword("a", "root", "A"), Keyword("b", "root", "B"), Keyword("c", "a", "C"), Keyword("d", "b", "A")]
        )
        export_file(tree, tmp_path / "1.json")
        with KeywordTree(str(tmp_path / "other")) as other:
            import_file(other, tmp_path / "1.json")

            assert [node.id for node in other.FindByName("A")] == ["a", "d"]

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "[]",
            "{}",
            '{"keywords": [',
            '{"keywords": [{"id": "a", "name": "A"}',
            '{"keywords": [{"id": "a", "name": "A"} {}]}',
            '{"keywords": [{"name": "A"}]}',
            '{"keywords": [1]}',
            '{"keywords": [], "infos": [{"id": "i", "content": "", "links": [["a", "ALIEN"]]}]}',
            '{"keywords": [{"id": "a", "name": "A", "metadata": ' + "[" * 100_000,
            '{"version": 1, "keywords": [{"id": "a", "name": "A"}]}',
            '{"keywords": [{"id": "a", "name": "A"}]} {"keywords": [{"id": "b", "name": "B"}]}',
            '{"keywords": [{"id": ["a"], "name": "A"}]}',
            '{"keywords": [{"id": "a", "name": "A", "confirmed": "what?"}]}',
            '{"keywords": [{"id": "a", "name": "A", "metadata": []}]}',
            '{"keywords": [{"id": "a", "name": "A"}], "infos": [{"id": ["i"], "content": ""}]}',
            '{"keywords": [{"id": "a", "name": "A"}], "infos": [{"id": "i", "content": "", "links": [[1, "SOURCE"]]}]}',
        ],
    )
    def test_refuses_what_is_no_such_document(self, tree: KeywordTree, tmp_path: Path, text: str) -> None:
        with pytest.raises(InvalidInputError):
            import_file(tree, write(tmp_path, "a.json", text))

    def test_names_the_command_that_imports_chats(self, tree: KeywordTree, tmp_path: Path) -> None:
        with pytest.raises(InvalidInputError, match="chats are imported by `context commit`"):
            import_file(tree, write(tmp_path, "conversations.json", '[{"mapping": {}}]'))


class TestTables:
    @pytest.mark.parametrize(
        "text",
        [
            "path;info\nfood;3,50 a loaf\n",
            "path\tinfo\nfood\t3,50 a loaf\n",
            "sep=;\npath;info\nfood;3,50 a loaf\n",
            '"path";"info"\r\n"food";"3,50 a loaf"\r\n',
        ],
    )  # fmt: skip
    def test_cells_may_be_parted_as_excel_does(self, tree: KeywordTree, tmp_path: Path, text: str) -> None:
        import_file(tree, write(tmp_path, "a.csv", text))

        assert [info.content for info in tree.ListInfos()] == ["3,50 a loaf"]

    def test_reads_what_a_person_made(self, tree: KeywordTree, tmp_path: Path) -> None:
        path = write(
            tmp_path,
            "a.csv",
            """\
            path,info,source,aliases
            编程 / Python,PEP 703 makes the GIL optional.,peps.python.org,CPython | py
            编程/Python,'=1+1 is 2.
            music/AC\\/DC
            ,nothing to do with it
            """,
        )
        tree.CreateKeyword("编程", "root")
        import_file(tree, path)

        assert outline(tree) == [
            "• nothing to do with it",
            "编程",
            "  Python",
            "    • PEP 703 makes the GIL optional. <peps.python.org>",
            "    • =1+1 is 2.",
            "music",
            "  AC/DC",
        ]
        assert tree.FindByName("py")[0].name == "Python"

    @pytest.mark.parametrize("text", ["", "name\na\n", 'path\n"a\n', "path,info,relation\na,b,ALIEN\n"])
    def test_refuses_what_is_no_such_table(self, tree: KeywordTree, tmp_path: Path, text: str) -> None:
        with pytest.raises(InvalidInputError, match=r"a\.csv"):
            import_file(tree, write(tmp_path, "a.csv", text))

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            ("path,content\ntea,no sugar\n", r"line 1: .*columns that are not known: \['content'\]; known: .*info"),
            ("path,info,source\ntea,hot, no sugar,chat\n", "line 2: a row has cells under no column: 'chat'"),
            ("path,info,,\ntea,hot,no sugar,\n", "line 2: a row has cells under no column: 'no sugar'"),
            ("", "line 1: it has no column 'path', but none at all"),
            ("path,info,info\ntea,hot,no sugar\n", r"line 1: it has columns twice: \['info'\]"),
            ("path,info,\ntea,hot, no sugar\n", "line 2: a row has cells under no column: ' no sugar'"),
        ],
    )
    def test_refuses_what_it_would_lose(self, tree: KeywordTree, tmp_path: Path, text: str, why: str) -> None:
        with pytest.raises(InvalidInputError, match=why):
            import_file(tree, write(tmp_path, "a.csv", text))
        assert len(tree) == 0

    def test_a_path_too_long_for_a_name_is_kept_in_the_description(self, tree: KeywordTree, tmp_path: Path) -> None:
        import_file(tree, write(tmp_path, "a.csv", "path\n" + "x" * 600 + "\n"))
        node = tree.GetChildren("root")[0]

        assert (len(node.name), node.description) == (512, "x" * 600)

    def test_empty_cells_under_no_column_are_a_spreadsheets_own(self, tree: KeywordTree, tmp_path: Path) -> None:
        import_file(tree, write(tmp_path, "a.csv", "path,info,\ntea,hot,,\n"))
        assert outline(tree) == ["tea", "  • hot"]


class TestOpml:
    @pytest.mark.parametrize(
        "encoding", ["GB18030", "gbk", "Big5", "Shift_JIS", "ISO-8859-1", "windows-1252", "UTF-16"]
    )
    def test_is_read_in_the_encoding_that_it_declares(self, tree: KeywordTree, tmp_path: Path, encoding: str) -> None:
        name = "café" if encoding in ("ISO-8859-1", "windows-1252") else "食物"
        text = f"<?xml version='1.0' encoding='{encoding}'?><opml><body><outline text='{name}'/></body></opml>"
        (tmp_path / "a.opml").write_bytes(text.encode(encoding))
        import_file(tree, tmp_path / "a.opml")

        assert outline(tree) == [name]

    @pytest.mark.parametrize("note", ["_note", "description"])
    def test_the_note_of_a_bookmark_follows_its_text(self, tree: KeywordTree, tmp_path: Path, note: str) -> None:
        bookmark = f'<outline text="Blog" url="https://b" {note}="On Monday."/>'
        path = write(tmp_path, "a.opml", f"<opml><body>{bookmark}</body></opml>")
        for _ in range(2):
            import_file(tree, path)

        assert [(info.content, info.source) for info in tree.ListInfos()] == [("Blog\n\nOn Monday.", "https://b")]

    def test_reads_what_others_write(self, tree: KeywordTree, tmp_path: Path) -> None:
        path = write(
            tmp_path,
            "a.opml",
            """\
            <?xml version="1.0"?><opml version="1.0"><head><title>t</title></head><body>
            <outline title="Feeds"><outline type="rss" text="LWN" xmlUrl="https://lwn.net/rss"/></outline>
            <outline text=""><outline text="食物" _note="What one eats."/></outline>
            <outline text="Links" url="https://example.org/"><outline text="below"/></outline>
            <outline text="Tea" _id="t" _aliases="Chai|茶\\|"><outline type="info" text="Hot." _id="i"/></outline>
            </body></opml>
            """,
        )
        import_file(tree, path)

        assert outline(tree) == [
            "Feeds",
            "  • LWN <https://lwn.net/rss>",
            "食物",
            "Links",
            "  • Links <https://example.org/>",
            "  below",
            "Tea",
            "  • Hot.",
        ]
        tea, hot = tree.GetKeyword("t"), tree.GetInfo("i")
        assert (tea and tea.aliases, hot and hot.content) == (["Chai", "茶|"], "Hot.")
        assert tree.FindByName("食物")[0].description == "What one eats."

    @pytest.mark.parametrize(
        ("head", "named"),
        [
            ('<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>', "entity"),
            ('<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>', "entity"),
            ('<!DOCTYPE x [<!ENTITY % a SYSTEM "http://localhost/a">]>', "entity"),
            ('<?xml version="1.0" encoding="klingon"?>', "klingon"),
        ],
    )
    def test_refuses_entities_and_unknown_encodings_before_anything_is_written(
        self, tree: KeywordTree, tmp_path: Path, head: str, named: str
    ) -> None:
        path = write(tmp_path, "a.opml", f'{head}<opml><body><outline text="a"/></body></opml>')
        with pytest.raises(InvalidInputError, match=named):
            import_file(tree, path)

        assert outline(tree) == []

    def test_refuses_what_is_no_xml(self, tree: KeywordTree, tmp_path: Path) -> None:
        for text in ("", "<opml>", "no", "<opml><body></opml>"):
            with pytest.raises(InvalidInputError, match="no XML"):
                import_file(tree, write(tmp_path, "a.opml", text))

    def test_nests_as_deep_as_it_likes(self, tree: KeywordTree, tmp_path: Path) -> None:
        deep = "<outline text='n'>" * 1000 + "</outline>" * 1000
        import_file(tree, write(tmp_path, "a.opml", f"<opml><body>{deep}</body></opml>"))

        assert tree.TreeMetrics()["depth"] == 1000


class TestNotes:
    def vault(self, tmp_path: Path, **notes: str) -> Path:
        (tmp_path / "vault").mkdir()
        for name, text in notes.items():
            write(tmp_path / "vault", f"{name}.md", text)
        return tmp_path / "vault"

    def linked(self, tree: KeywordTree, content: str) -> list[str]:
        """Return what the text with this beginning is RELATED to."""
        [info] = [info for info in tree.ListInfos() if info.content.startswith(content)]
        return [node.name for node, relation in tree.GetKeywordsOfInfo(info.id) if relation is RelationType.RELATED]

    @pytest.mark.parametrize(
        ("text", "others"),
        [
            ("| x |\n|---|\n| [[B\\|the b]] |\n", ["B"]),
            ("| [[B\\|b]] | [[C#top\\|c]] |\n", ["B", "C"]),
            ("`[[B]]` and ``[[C]] ` ``", []),
            ("```\n[[B]]\n```\n[[C]]", ["C"]),
            ("> ~~~md\n> [[B]]\n> ~~~\n[[C]]", ["C"]),
            ("```\n[[B]] to the end", []),
            ("a ` alone, then [[B]]", ["B"]),
            ("in [the b](B.md#top), [it again](./b.md) and [C](<C.md>)", ["B", "C"]),
            ("`[b](B.md)` and [elsewhere](https://example.org/B.md)", []),
        ],
    )
    def test_links_stand_in_tables_and_not_in_code(
        self, tree: KeywordTree, tmp_path: Path, text: str, others: list[str]
    ) -> None:
        import_file(tree, self.vault(tmp_path, A=text, B="b", C="c"))

        assert self.linked(tree, text[:3]) == others

    def test_a_markdown_link_goes_from_its_own_folder_first(self, tree: KeywordTree, tmp_path: Path) -> None:
        vault = self.vault(tmp_path, B="at the top")
        write(vault, "in/A.md", "[near](Two%20words.md), [far](../B.md), [from the top](in/Two%20words.md)")
        write(vault, "in/Two words.md", "near")
        import_file(tree, vault)

        assert self.linked(tree, "[near]") == ["Two words", "B"]

    @pytest.mark.parametrize(
        ("text", "tag"),
        [
            ("#हिन्दी x", "हिन्दी"),
            ("#ภาษาไทย,", "ภาษาไทย"),
            ("#cafe\u0301", "café"),
            ("#语言/普通话。", "普通话"),
            ("#a🎉", "a🎉"),
        ],
    )
    def test_a_tag_keeps_its_marks(self, tree: KeywordTree, tmp_path: Path, text: str, tag: str) -> None:
        import_file(tree, self.vault(tmp_path, A=text))

        assert self.linked(tree, text) == [tag]

    def test_a_tag_is_one_whatever_its_case_and_composition(self, tree: KeywordTree, tmp_path: Path) -> None:
        import_file(tree, self.vault(tmp_path, A="#Cafe\u0301", B="#CAFÉ", C="---\ntags: [café]\n---\nc"))

        assert [self.linked(tree, content) for content in ("#Cafe", "#CAFÉ", "c")] == [["Café"]] * 3

    @pytest.mark.parametrize(
        "tags", ["[{a: [b, c]}]", "{a: {b: , c: }}", "\n  - a/b\n  - a:\n      - c", "[[a/b], [a/c]]"]
    )
    def test_tags_may_be_nested_in_yaml(self, tree: KeywordTree, tmp_path: Path, tags: str) -> None:
        import_file(tree, self.vault(tmp_path, A=f"---\ntags: {tags}\n---\ntext"))

        assert self.linked(tree, "text") == ["b", "c"]

    @pytest.fixture(autouse=True)
    def _needs(self) -> None:
        need("notes")

    def test_a_note_s_own_text_stands_before_those_that_link_to_it(self, tree: KeywordTree, tmp_path: Path) -> None:
        write(tmp_path, "notes/Index.md", "See [[Python]].")
        write(tmp_path, "notes/Python.md", "A language.")
        with batches_of(1):
            import_file(tree, tmp_path / "notes")
        [node] = tree.FindByName("Python")

        assert [info.content for info in tree.GetInfosOfKeyword(node.id)] == ["A language.", "See [[Python]]."]

    def test_reads_tags_in_the_text_but_none_in_code(self, tree: KeywordTree, tmp_path: Path) -> None:
        text = """\
            ---
            tags: [food]
            ---
            #饮食/茶 and (#green-tea), not #123, a#b, `#code`, 茶。#家人《书》#书 “#引” https://a.example/#place
            # A heading
            ```sh
            #comment
            ```
            """
        write(tmp_path, "notes/Tea.md", text)
        import_file(tree, tmp_path / "notes")

        names = [line for line in outline(tree) if "•" not in line]
        assert names == ["Tea", "tags", "  food", "  饮食", "    茶", "  green-tea", "  家人", "  书", "  引"]

    def test_reads_folders_frontmatter_tags_and_wikilinks(self, tree: KeywordTree, tmp_path: Path) -> None:
        vault = tmp_path / "vault"
        write(vault, ".obsidian/app.md", "not a note")
        write(vault, "no notes/.trash/old.md", "not a note")
        write(vault, "picture.png", "")
        write(vault, "编程/编程.md", "---\ndescription: What machines can execute.\n---\n")
        write(
            vault,
            "编程/Python.md",
            "---\naliases: [CPython, no, 2024-01-01]\ntags:\n  - language/dynamic\n---\n"
            "[[c++|C]], [[Nowhere]], [[Rust#Why]]",
        )
        write(vault, "编程/C++.md", "---\nalias: cpp\ntags: '#language, old'\n---\n")
        write(vault, "notes/Rust.md", "---\n: : no yaml\n  - [\n---\nSafe.")
        import_file(tree, vault)
        python = tree.FindByName("CPython")[0]
        info = tree.GetInfosOfKeyword(python.id)[0]

        assert outline(tree) == [
            "notes",
            "  Rust",
            "    • ---\n: : no yaml\n  - [\n---\nSafe. <notes/Rust.md>",
            "    • [[c++|C]], [[Nowhere]], [[Rust#Why]] <编程/Python.md>",
            "编程",
            "  C++",
            "    • [[c++|C]], [[Nowhere]], [[Rust#Why]] <编程/Python.md>",
            "  Python",
            "    • [[c++|C]], [[Nowhere]], [[Rust#Why]] <编程/Python.md>",
            "tags",
            "  language",
            "    dynamic",
            "      • [[c++|C]], [[Nowhere]], [[Rust#Why]] <编程/Python.md>",
            "  old",
        ]
        assert python.aliases == ["CPython", "no", "2024-01-01"]
        assert tree.FindByName("编程")[0].description == "What machines can execute."
        assert [(node.name, relation.value) for node, relation in tree.GetKeywordsOfInfo(info.id)] == [
            ("Python", "PRIMARY"),
            ("C++", "RELATED"),
            ("Rust", "RELATED"),
            ("dynamic", "RELATED"),
        ]

    @pytest.mark.parametrize(
        "text",
        [
            "[[" + "a" * 1_000_000,
            "[[a" * 300_000,
            "---\n" + "a: [b]\n" * 300_000 + "---\n",
            "---\na: &a [x,x]\n"
            + "".join(f"b{n}: &b{n} [*b{n - 1},*b{n - 1}]\n" for n in range(1, 99)).replace("b0", "a"),
            "---\naliases: !!python/object/apply:os.system [exit]\n---\n",
            "---\naliases: " + "[" * 500 + "]" * 500 + "\n---\n",
            "---\ntags: " + "a/" * 20_000 + "\n---\n",
            "<!-- info " + "x " * 500_000,
        ],
        ids=["link", "links", "long front", "laughs", "tag", "deep front", "deep tag", "info"],
    )
    def test_hostile_notes_are_texts_like_others(self, tree: KeywordTree, tmp_path: Path, text: str) -> None:
        write(tmp_path, "vault/a.md", text)
        report = import_file(tree, tmp_path / "vault")

        assert report.keywords <= 2
        assert len(tree.GetChildren("root")) <= 2
        assert [node.aliases for node in tree.FindByName("a")] in ([[]], [["exit"]])  # a name, and no command

    def test_follows_no_symbolic_link_out_of_the_folder(self, tree: KeywordTree, tmp_path: Path) -> None:
        write(tmp_path, "private/secret.md", "secret")
        write(tmp_path, "vault/a.md", "mine")
        (tmp_path / "vault/out").symlink_to(tmp_path / "private")
        (tmp_path / "vault/b.md").symlink_to(tmp_path / "private/secret.md")
        import_file(tree, tmp_path / "vault")

        assert outline(tree) == ["a", "  • mine <a.md>"]

    def test_reads_a_note_in_another_encoding_where_it_is_named(self, tree: KeywordTree, tmp_path: Path) -> None:
        write(tmp_path, "vault/a.md", "龙井")
        (tmp_path / "vault/b.md").write_bytes("食物".encode("gb18030"))
        with pytest.raises(InvalidInputError, match=r"b\.md is not .* --encoding gb18030 "):
            import_file(tree, tmp_path / "vault")
        import_file(tree, tmp_path / "vault", encoding="gb18030")  # which reads 龙井 in UTF-8 as other characters

        assert outline(tree) == ["a", "  • 龙井 <a.md>", "b", "  • 食物 <b.md>"]

    def test_a_note_that_was_edited_is_counted_and_taken_over_where_that_is_wanted(
        self, tree: KeywordTree, tmp_path: Path
    ) -> None:
        note = write(tmp_path, "own/Hanne.md", "Lives in Oslo.")
        import_file(tree, note.parent)
        note.write_text(note.read_text().replace("Oslo", "Bergen"))
        assert import_file(tree, note.parent) == ImportReport(skipped=1, changed=1)
        assert outline(tree)[1] == "  • Lives in Oslo. <Hanne.md>"

        report = import_file(tree, note.parent, update=True)

        assert outline(tree)[1] == "  • Lives in Bergen. <Hanne.md>"
        undo_import(tree, report)
        assert outline(tree)[1] == "  • Lives in Oslo. <Hanne.md>"

    def test_what_the_source_leaves_empty_stays(self, tree: KeywordTree) -> None:
        load(tree, [Keyword("a", "root", "A", description="a letter"), Fact("i", "text", "book")])

        assert load(tree, [Keyword("a", "root", "A"), Fact("i", "text")], update=True) == ImportReport(skipped=2)


class TestMcp:
    ANSWER: ClassVar[dict[str, list[dict[str, Any]]]] = {
        "entities": [{"name": "Kiln", "entityType": "tool", "observations": ["fires clay"]}],
        "relations": [{"from": "Kiln", "to": "Wheel", "relationType": "stands beside"}],
    }

    def test_is_known_by_what_it_holds(self, tree: KeywordTree, tmp_path: Path) -> None:
        lines = [{"type": "entity", **self.ANSWER["entities"][0]}, {"type": "relation", **self.ANSWER["relations"][0]}]
        texts = ["\n".join(map(json.dumps, lines)), "\n\n".join(map(json.dumps, reversed(lines)))]
        texts += [
            json.dumps(self.ANSWER),
            json.dumps(self.ANSWER, indent=2),
            json.dumps({"structuredContent": self.ANSWER}),
        ]
        texts += [json.dumps({"content": [{"type": "text", "text": json.dumps(self.ANSWER)}]})]
        reports = [import_file(tree, write(tmp_path, "memory.json", text), key="one") for text in texts]

        assert [report.infos for report in reports] == [2, 0, 0, 0, 0, 0]
        assert tree.FindByName("Kiln")

    GRAPH = (
        '{"type":"entity","name":"Ada","entityType":"person","observations":["plays chess","speaks 中文"]}\n'
        '{"type":"entity","name":"Bern","entityType":"city","observations":[]}\n'
        '{"type":"entity","name":"Eve","entityType":"person","observations":["plays chess"]}\n'
        '{"type":"relation","from":"Ada","to":"Bern","relationType":"lives in"}\n'
        '{"type":"relation","from":"Bern","to":"Bern","relationType":"is beneath"}\n'
    )

    def test_reads_a_graph(self, tree: KeywordTree, tmp_path: Path) -> None:
        import_file(tree, write(tmp_path, "memory.jsonl", self.GRAPH))

        assert outline(tree) == [
            "person",
            "  Ada",
            "    • plays chess",
            "    • speaks 中文",
            "    • Ada lives in Bern",
            "  Eve",
            "    • plays chess",
            "city",
            "  Bern",
            "    • Ada lives in Bern",
            "    • Bern is beneath Bern",
        ]

    @pytest.mark.parametrize(
        "line",
        [
            "{",
            "[]",
            "{}",
            '{"type":"entity","name":1}',
            '{"type":"thing"}',
            '{"type":"entity","name":"A","entityType":"t","observations":"one text"}',
        ],
    )
    def test_refuses_a_line_that_the_server_does_not_write(self, tree: KeywordTree, tmp_path: Path, line: str) -> None:
        path = write(tmp_path, "memory.jsonl", self.GRAPH + line)
        with pytest.raises(InvalidInputError, match="line 6"):
            import_file(tree, path)

        assert outline(tree) == []


@pytest.mark.parametrize(
    ("package", "module", "extra"),
    [("yaml", "Agent.formats.obsidian_notes", "formats"), ("anyio", "Agent.adapters.mcp.sdk", "mcp")],
)
def test_a_missing_package_is_named_with_the_command_that_brings_it(package: str, module: str, extra: str) -> None:
    assert f"pip install '.[{extra}]' in its repository" in error_without(package, module)
