"""Tests of URIs: what is one, whose it is, and that no text leads out of its space."""

import os
import random
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from Agent.context_engine.core.errors import AccessDeniedError, InvalidUriError
from Agent.context_engine.core.objects import RequestContext
from Agent.context_engine.fs.uri import category_uri, check_access, memory_uri, parse_uri, session_uri, space_uris

ADA = RequestContext("acme", "ada", "helper", "s1")

BAD = [
    "", "ctx://", "ctx:///users", "file:///etc/passwd", "ctx://acme/users/ada/", "ctx://acme//ada",
    "ctx://acme/users/ada/..", "ctx://acme/users/ada/./x", "ctx://acme/users/ada/a\\b", "ctx://acme/users/ada/a?b",
    "ctx://acme/users/ada/a#b", "ctx://acme/users/ada/a\x00b", "ctx://acme/users/ada/a\u200bb",
    "ctx://acme/users/ada/a\u202eb", "ctx://acme/users/ada/e\u0301", "ctx://acme/users/ada/\ud800",
    "ctx://acme/users/ada/ ", "ctx://" + "/".join(["a"] * 17), "ctx://acme/users/ada/" + "a" * 1_024,
    "ctx://acme/users/ada/" + "龙" * 100, None, 7, b"ctx://acme",
]  # fmt: skip


class TestParse:
    @pytest.mark.parametrize("uri", BAD, ids=repr)
    def test_refuses_what_is_none_before_anything_looks_at_it(self, uri: object) -> None:
        with pytest.raises(InvalidUriError):
            parse_uri(uri)

    def test_decodes_nothing(self) -> None:
        assert parse_uri("ctx://acme/users/%2e%2e/x").segments[2] == "%2e%2e"
        assert parse_uri("ctx://acme/users/%2e%2e/x").folders[2] == "%252e%252e"

    def test_keeps_names_apart_that_a_file_system_might_fold(self) -> None:
        names = ["Ada", "ada", "ADA", "content.md", "content%2emd", ".ctx", "ctx", "İ", "i", "ß", "ss", "龙井", "c++"]
        folders = [parse_uri(f"ctx://a/users/{name}").folders[2] for name in names]

        assert len({unicodedata.normalize("NFKC", folder).casefold() for folder in folders}) == len(names)
        assert not {"content.md", ".ctx", ".meta.json"} & set(folders)

    @given(st.text(st.characters(), max_size=40))
    def test_leads_to_a_folder_beneath_the_store_or_nowhere(self, text: str) -> None:
        for uri in (text, f"ctx://{text}", f"ctx://acme/users/{text}/memories/x"):
            try:
                parsed = parse_uri(uri)
            except InvalidUriError:
                continue
            assert all(name not in ("", ".", "..") and "/" not in name and "\0" not in name for name in parsed.folders)
            assert all(len(os.fsencode(name)) <= 200 for name in parsed.folders)


class TestAccess:
    @pytest.mark.parametrize(
        "uri",
        [
            "ctx://acme/users/bob/memories/profile",
            "ctx://other/users/ada/memories/profile",
            "ctx://acme/agents/other/skills/x",
            "ctx://acme/users/Ada/memories/profile",
            "ctx://acme/users",
            "ctx://acme",
            "ctx://acme/groups/ada/x",
            "ctx://acme/users/ada%2f..%2fbob/x",
        ],
    )
    def test_refuses_what_lies_outside_whether_it_exists_or_not(self, uri: str) -> None:
        with pytest.raises(AccessDeniedError):
            check_access(ADA, uri)

    def test_sees_the_users_and_the_agents_space(self) -> None:
        assert check_access(ADA, "ctx://acme/users/ada/x").owner_space == "user:ada"
        assert check_access(ADA, "ctx://acme/agents/helper/skills/x").owner_space == "agent:helper"

    @pytest.mark.parametrize("user", ["", "..", "a/b", "a#b", "ada/../bob", None, 7, "x" * 300])
    def test_refuses_a_request_whose_ids_are_no_names(self, user: object) -> None:
        with pytest.raises(InvalidUriError):
            space_uris(RequestContext("acme", user, "helper"))  # type: ignore[arg-type]

    def test_lets_no_hostile_text_out(self) -> None:
        is_storm = bool(os.environ.get("KEYWORD_TREE_STORM"))
        count = int(os.environ.get("KEYWORD_TREE_STORM_SIZE") or 1_000_000) if is_storm else 20_000
        chance = random.Random(int(os.environ.get("KEYWORD_TREE_SEED") or 20261122))
        pieces = ["ctx://", "acme", "users", "ada", "bob", "agents", "helper", "/", "..", ".", "%2f", "%2e", "\\", "?",
                  "#", "\0", " ", "..;", "~", "memories", "profile", "\u2215", "\uff0f", "..%c0%af", "Ada"]  # fmt: skip
        escapes = 0
        for _ in range(count):
            text = "".join(chance.choices(pieces, k=chance.randint(1, 12)))
            if chance.random() < 0.8:
                text = f"ctx://acme/users/{text}"
            try:
                parsed = check_access(ADA, text)
            except (InvalidUriError, AccessDeniedError):
                continue
            place = os.path.normpath(os.path.join("/store", *parsed.folders))
            is_own = place.startswith(("/store/acme/users/ada/", "/store/acme/agents/helper/"))
            escapes += not (is_own or place in ("/store/acme/users/ada", "/store/acme/agents/helper"))

        assert escapes == 0
        if is_storm:
            print(f"\n{count:,} hostile URIs: 0 escapes")


class TestPlaces:
    def test_are_those_of_the_table(self) -> None:
        assert memory_uri(ADA, "profile", "x") == "ctx://acme/users/ada/memories/profile"
        assert memory_uri(ADA, "preferences", "喝 龙井") == "ctx://acme/users/ada/memories/preferences/喝-龙井"
        assert memory_uri(ADA, "entities", "C#") == "ctx://acme/users/ada/memories/entities/c♯"
        assert memory_uri(ADA, "events", "x") == "ctx://acme/users/ada/memories/events/x"
        assert memory_uri(ADA, "cases", "x") == "ctx://acme/agents/helper/memories/cases/x"
        assert memory_uri(ADA, "patterns", "x") == "ctx://acme/agents/helper/memories/patterns/x"
        assert memory_uri(ADA, "skills", "x") == "ctx://acme/agents/helper/skills/x"
        assert memory_uri(ADA, "tools", "x") == "ctx://acme/agents/helper/tools/x"
        assert session_uri(ADA) == "ctx://acme/users/ada/sessions/s1"

    def test_tell_their_category(self) -> None:
        for category in ("preferences", "skills", "tools", "events", "profile"):
            assert parse_uri(memory_uri(ADA, category, "x")).category == category
        assert parse_uri(category_uri(ADA, "sessions")).category == "sessions"
        assert parse_uri("ctx://acme/users/ada/memories").category == ""

    def test_need_a_session(self) -> None:
        with pytest.raises(InvalidUriError, match="session_id"):
            session_uri(RequestContext("acme", "ada", "helper"))
        with pytest.raises(InvalidUriError, match="ctx must be a RequestContext, not 'ada'"):
            session_uri("ada")  # type: ignore[arg-type]
