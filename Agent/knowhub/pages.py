"""Pages for people, with all that agents' tools can do, and no script.

Stored text cannot run: templates escape all of it, Markdown is rendered without HTML, pictures become links, and the
policy of every answer allows no script at all. A form that changes something is believed only where the browser says
that it was sent from these pages (Sec-Fetch-Site, else Origin); the cookie is HttpOnly and SameSite=Strict.
"""

import contextlib
import difflib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from anyio import from_thread
from jinja2 import Environment, FileSystemLoader
from markdown_it import MarkdownIt
from markupsafe import Markup
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response

from ..base.language import say_in
from ..base.text import typed_names
from .application import Application
from .gate import wants_chinese
from .hub import KnowHub
from .oidc import KEPT_S, OpenId
from .prompts import WORDS
from .records import OWNER_SCOPE, RIGHTS, Json, KnowHubError, invalid, kind_of, not_found
from .schemas import CONTENT_TYPES, TYPES
from .tokens import SESSION_S, Token, sees

_FOLDER = Path(__file__).parent / "templates"
_LANGUAGE_COOKIE = "knowhub_language"
_OPENID_COOKIE = "knowhub_openid"

FIELDS_LIMIT = 200
"""Fields of a form."""
RECORDS_SHOWN = 5
"""Records of an operation in the list of operations."""
MARKDOWN_LIMIT = 16_384
"""Characters that are rendered: the renderer's time grows with the square of some texts."""


# Markdown without anything that could run


def _is_harmless(address: str) -> bool:
    return ":" in address and urlsplit(address.strip()).scheme.lower() in ("http", "https")


# Where a picture would be fetched, its link stands. No page says where its links were followed from, see `gate`.
_markdown = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable("image")
_markdown.validateLink = _is_harmless  # type: ignore[method-assign,assignment]


def render_markdown(text: str) -> Markup:
    """Return a text as HTML in which nothing runs and nothing is fetched; a very long one as it stands.

    >>> str(render_markdown("**bold** <script>alert(1)</script>")).strip()
    '<p><strong>bold</strong> &lt;script&gt;alert(1)&lt;/script&gt;</p>'
    """
    if len(text) > MARKDOWN_LIMIT:
        return Markup('<pre tabindex="0">{}</pre>').format(text)
    return Markup(_markdown.render(text))


def show_time(text: str) -> Markup:
    """Return a time as people read it, to the minute.

    >>> str(show_time("2026-03-05T12:34:56.789Z"))
    '<time datetime="2026-03-05T12:34:56.789Z">2026-03-05 12:34 UTC</time>'
    """
    return Markup('<time datetime="{}">{} {} UTC</time>').format(text, text[:10], text[11:16])


# Answering

Form = dict[str, str]


class Pages:
    """The pages of one server."""

    def __init__(self, application: Application) -> None:
        self.app = application
        self.openid = OpenId(application.settings.openid) if application.settings.openid is not None else None
        environment = Environment(loader=FileSystemLoader(_FOLDER), autoescape=True, trim_blocks=True)
        environment.filters |= {"markdown": render_markdown, "time": show_time}
        environment.filters["pathquote"] = lambda text: quote(str(text), safe="")
        environment.globals["parts"] = environment.get_template("parts.html").module
        files = [environment.get_template(f"{name}.html") for name in ("knowledge", "house")]
        self.frame = environment.get_template("base.html")
        self.files = {block: file for file in files for block in file.blocks}

    def refuse(self, request: Request, error: KnowHubError) -> Response:
        """Return the page of a problem."""
        return Visit(self, request, {}).show("problem", problem=error)


@dataclass(frozen=True)
class Visit:
    """A request for a page, and the fields of its form."""

    pages: Pages
    request: Request
    form: Form

    @property
    def hub(self) -> KnowHub:
        """The hub that is looked at."""
        return self.pages.app.hub

    @property
    def token(self) -> Token:
        """The caller; None on a page that is open to all."""
        return self.request.state.token  # type: ignore[no-any-return]

    @property
    def id(self) -> str:
        """What the path names."""
        return str(self.request.path_params["id"])

    @property
    def version(self) -> int | None:
        """The version that the form was made of."""
        return _number(self.form.get("version"))

    def query(self, *names: str) -> Json:
        """Return the parameters of the address that are not empty."""
        return {name: value for name in names if (value := self.request.query_params.get(name))}

    def page(self, *names: str) -> Json:
        """Return which page of a list is asked for."""
        return {"limit": 20, **self.query("cursor", *names)}

    def language(self) -> str:
        """Return the language that a browser asked for here, or asks for in general."""
        chosen = self.request.cookies.get(_LANGUAGE_COOKIE)
        if chosen in WORDS:
            return str(chosen)
        return "zh" if wants_chinese(self.request.headers.raw) else "en"

    def show(self, name: str, status: int = 200, **values: Any) -> Response:
        """Return a page, of a problem with its status.  For the pool: Markdown of a long text takes its time."""
        language, url, openid = self.language(), self.request.url, self.pages.app.settings.openid
        shared: Json = {"t": WORDS[language], "language": language, "token": self.token, "types_known": TYPES}
        shared["say"] = partial(say_in, language)
        shared["here"] = url.path + (f"?{url.query}" if url.query else "")
        shared["openid"] = urlsplit(openid.issuer).netloc if openid else ""
        if isinstance(error := values.get("problem"), KnowHubError):
            status, values["problem"] = error.status, error.to_json(in_chinese=language == "zh")
        file = self.pages.files[name]
        main = Markup("".join(file.blocks[name](file.new_context({**shared, **values}))))
        return HTMLResponse(self.pages.frame.render(**shared, title=values.get("title"), main=main), status)

    def remember(self, answer: Response, made: tuple[str, Token]) -> Response:
        """Let a browser keep a session."""
        gate, is_secure = self.pages.app.gate, self.pages.app.settings.is_secure
        gate.count(made[1])
        kept: Json = {"max_age": SESSION_S, "httponly": True, "samesite": "strict"}
        answer.set_cookie(gate.cookie_name, made[0], secure=is_secure, **kept)
        return answer


async def _form(request: Request) -> dict[str, str]:
    """Return the fields of a form, lines ended as here; of those that come twice, the values with commas."""
    found: dict[str, str] = {}
    body = (await request.body()).decode("utf-8", errors="replace")
    try:
        fields = parse_qsl(body, keep_blank_values=True, max_num_fields=FIELDS_LIMIT)
    except ValueError:
        raise KnowHubError("invalid", f"a form has at most {FIELDS_LIMIT} fields") from None
    for name, value in fields:
        value = value.replace("\r\n", "\n")
        found[name] = f"{found[name]},{value}" if name in found else value
    return found


def _changed(form: Mapping[str, str], shown: Mapping[str, str]) -> list[str]:
    """Return the names of the fields whose text is not the one that a browser was shown.

    Browsers send every end of a line in one way, and no NUL: that alone changes nothing.
    """

    def as_sent(text: str) -> str:
        return text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")

    return [name for name, text in shown.items() if form.get(name, "") != as_sent(text)]


def _is_from_here(request: Request, token: Token | None) -> bool:
    """Return whether a form was sent from one of these pages, as the browser says.

    A program that says nothing, and brings no session, logs in with the token that it sends.
    """
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    origin = request.headers.get("origin")
    if origin is None:
        return token is None
    return urlsplit(origin).netloc == request.headers.get("host")


Handler = Callable[[Visit], Response]
_Handler = TypeVar("_Handler", bound=Handler)
_PAGES: list[tuple[str, Sequence[str], bool, Handler]] = []


def page(path: str, *methods: str, is_open: bool = False) -> Callable[[_Handler], _Handler]:
    """Make a function the handler of a path: it runs in the pool."""

    def mark(handle: _Handler) -> _Handler:
        _PAGES.append((path, methods or ("GET",), is_open, handle))
        return handle

    return mark


def add_pages(application: Application) -> None:
    """Add the pages to a server."""
    pages = Pages(application)
    application.show_problem = pages.refuse
    for path, methods, is_open, handle in _PAGES:
        answer = partial(_answer, pages, handle, is_open)
        application.api.add_route(path, answer, methods)


async def _answer(pages: Pages, handle: Handler, is_open: bool, request: Request) -> Response:
    token, is_form = request.state.token, request.method == "POST"
    try:
        if is_form and not _is_from_here(request, token):
            raise KnowHubError("forbidden", "a form of another site is not believed")
        if token is None and not is_open:
            return RedirectResponse(f"/login?{urlencode({'next': request.url.path})}", 303)
        return await run_in_threadpool(handle, Visit(pages, request, await _form(request) if is_form else {}))
    except KnowHubError as error:
        return await run_in_threadpool(pages.refuse, request, error)


def _local(address: str) -> str:
    """Return an address of these pages, or the first page for any other."""
    return address if address.startswith("/") and not address.startswith(("//", "/\\")) else "/"


def _to(address: str) -> Response:
    return RedirectResponse(address, 303)


# Logging in


@page("/login", "GET", "POST", is_open=True)
def login(visit: Visit) -> Response:
    """Log a browser in, by a link that is good once or by a token."""
    asked = visit.request.query_params
    given = visit.form.get("token", "") if visit.request.method == "POST" else asked.get("code", "")
    if not given or visit.request.method == "HEAD":  # a program that only looks must not use the link up
        return visit.show("login", failed=False)
    made = visit.hub.tokens.log_in(given.strip())
    if made is None:
        return visit.show("login", 401, failed=True)
    return visit.remember(_to(_local(asked.get("next", "/"))), made)


@page("/logout", "POST", is_open=True)
def logout(visit: Visit) -> Response:
    """Log a browser out."""
    token, app = visit.token, visit.pages.app
    if token is not None and token.kind == "session":  # a token of its own stays: it was asked with, not logged in
        visit.hub.tokens.revoke(token.digest)
    answer = _to("/login")
    answer.delete_cookie(app.gate.cookie_name, secure=app.settings.is_secure, httponly=True, samesite="strict")
    return answer


@page("/language", is_open=True)
def language(visit: Visit) -> Response:
    """Choose the language of the pages."""
    asked = visit.request.query_params
    answer, chosen = _to(_local(asked.get("back", "/"))), "zh" if asked.get("to") == "zh" else "en"
    answer.set_cookie(_LANGUAGE_COOKIE, chosen, max_age=31_536_000, samesite="strict")
    return answer


@page("/style.css", is_open=True)
def stylesheet(visit: Visit) -> Response:
    """Return how the pages look."""
    return FileResponse(_FOLDER / "style.css", headers={"Cache-Control": "max-age=3600"})


@page("/api", is_open=True)
def document(visit: Visit) -> Response:
    """Show the API, from the document that describes it, without foreign scripts."""
    paths = visit.pages.app.api.openapi()["paths"]
    return visit.show("api", paths=paths)


def _openid_of(visit: Visit) -> tuple[OpenId, Json]:
    """Return the provider, and what the cookie is like that a browser keeps until it comes back."""
    if visit.pages.openid is None:
        raise not_found()
    kept = {"httponly": True, "secure": visit.pages.app.settings.is_secure, "path": "/login/openid"}
    return visit.pages.openid, {**kept, "samesite": "lax"}  # strict, it would not come with one sent by another site


@page("/login/openid", is_open=True)
def leave(visit: Visit) -> Response:
    """Send a browser to the OpenID provider."""
    openid, kept = _openid_of(visit)
    back = f"{'https' if kept['secure'] else 'http'}://{visit.request.headers['host']}/login/openid/back"
    url, held = from_thread.run(openid.begin, visit.request, back)
    answer = _to(url)
    answer.set_cookie(_OPENID_COOKIE, held, max_age=KEPT_S, **kept)
    return answer


@page("/login/openid/back", is_open=True)
def come_back(visit: Visit) -> Response:
    """Log in a browser that the provider sends back."""
    openid, kept = _openid_of(visit)
    principal = from_thread.run(openid.finish, visit.request, visit.request.cookies.get(_OPENID_COOKIE, ""))
    made = visit.hub.tokens.log_in_as(principal)
    if made is None:
        raise KnowHubError("forbidden", "no token was made for this person: ask an administrator of the hub")
    # The session's cookie is Strict: it goes only with what this page asks for.
    answer = visit.show("entered", principal=principal)
    answer.headers["Refresh"] = "0; url=/"
    answer.delete_cookie(_OPENID_COOKIE, **kept)
    return visit.remember(answer, made)


# Buttons


def _judge(visit: Visit) -> None:
    case = {name: visit.form[name] for name in ("task", "outcome", "reason") if visit.form.get(name)}
    name = "add_helpful_case" if visit.form.get("is_helpful") == "yes" else "add_harmful_case"
    visit.hub.update(visit.token, visit.id, {name: case})


def _accept(visit: Visit) -> None:
    text = visit.form.get("content", "")
    visit.hub.accept(visit.token, visit.id, {"content": text} if text.strip() else {})


def _put_group(visit: Visit) -> None:
    body = {"members": typed_names(visit.form.get("members", "")), "scopes": typed_names(visit.form.get("scopes", ""))}
    visit.hub.put_group(visit.token, visit.form.get("group", ""), body)


def _slim(visit: Visit) -> None:
    try:
        plan = json.loads(visit.form.get("plan", ""))
    except (ValueError, RecursionError):
        raise KnowHubError("invalid", "the plan cannot be read") from None
    visit.hub.slim(visit.token, {"plan": plan})


_ACTIONS: Sequence[tuple[str, Callable[[Visit], object], str]] = (
    ("/knowledge/{id:knowledge_id}/feedback", _judge, "/knowledge/{}"),
    ("/knowledge/{id:knowledge_id}/delete", lambda at: at.hub.delete(at.token, at.id, at.version), "/operations"),
    ("/proposals/{id:proposal_id}/accept", _accept, "/proposals"),
    ("/proposals/{id:proposal_id}/reject", lambda at: at.hub.reject(at.token, at.id), "/proposals"),
    ("/slim", _slim, "/operations"),
    ("/drop/{id:path}", lambda at: at.hub.delete_resource(at.token, at.id, at.version), "/resources"),
    ("/operations/{id}/undo", lambda at: at.hub.undo(at.token, at.id), "/operations"),
    ("/tokens/{id}/revoke", lambda at: at.hub.revoke_token(at.token, at.id), "/tokens"),
    ("/groups", _put_group, "/tokens"),
)
"""The action of a button, and the page that is shown then."""


def _act(act: Callable[[Visit], object], after: str, visit: Visit) -> Response:
    act(visit)
    return _to(after.format(visit.request.path_params.get("id")))


for _path, _action, _after in _ACTIONS:
    page(_path, "POST")(partial(_act, _action, _after))


# Knowledge


@page("/")
def home(visit: Visit) -> Response:
    """Search: by words at once, by a model where that is asked for."""
    query = visit.query("q", "types", "min_score", "route")
    more: Json = {"query": query, "has_model": not visit.hub.models.available()}
    if query.get("q", "").strip():
        more["found"] = visit.hub.search(visit.token, {"route": "recall", "min_score": 1, "top_k": 20, **query})
    else:
        more["newest"] = visit.hub.list_knowledge(visit.token, visit.query("cursor", "tag", "types"))
    return visit.show("home", **more)


@page("/knowledge/new", "GET", "POST")
def new(visit: Visit) -> Response:
    """Write an entry."""
    org = visit.hub.tokens.org
    shared = [org] if org else [OWNER_SCOPE, *sorted(visit.token.scopes - {"*"})]
    if visit.request.method != "POST":
        return visit.show("edit", form={"scopes": "\n".join(shared), "score": "3"})
    try:
        made = visit.hub.save(visit.token, _entry_of(visit.form, {"scopes": shared}))
    except KnowHubError as error:
        return visit.show("edit", form=visit.form, problem=error)
    return _to(f"/knowledge/{made['entry']['id']}")


@page("/knowledge/{id:knowledge_id}")
def entry(visit: Visit) -> Response:
    """Show an entry and its cases."""
    found = visit.hub.get(visit.token, visit.id)
    cases = visit.hub.feedback(visit.token, found["id"], {"limit": 20})
    is_own = found["created_by"] == visit.token.principal or visit.token.may("curate")
    return visit.show("entry", title=found["task"][:80], entry=found, cases=cases, is_own=is_own)


@page("/knowledge/{id:knowledge_id}/edit", "GET", "POST")
def edit(visit: Visit) -> Response:
    """Change an entry."""
    found = visit.hub.get(visit.token, visit.id)
    if visit.request.method != "POST":
        return visit.show("edit", entry=found, form=_fields_of(found))
    patch: Json = {}
    try:
        body = _entry_of(visit.form, found)
        if patch := {name: body[name] for name in _changed(visit.form, _fields_of(found))}:
            visit.hub.patch(visit.token, visit.id, patch, visit.version)
    except KnowHubError as error:  # what was typed stays; after a conflict, beside what is there by now
        there = visit.hub.get(visit.token, visit.id)
        shown: Json = {**there, "score": there["eval"]["score"]}
        lines = _difference(shown, {**shown, **patch}) if error.code == "changed" else []
        return visit.show("edit", entry=shown, form=visit.form, problem=error, lines=lines)
    return _to(f"/knowledge/{visit.id}")


@page("/knowledge/{id:knowledge_id}/history")
def history(visit: Visit) -> Response:
    """Show the versions of an entry, each by what it changed in the one before it; of many, the newest."""
    found = visit.hub.history(visit.token, visit.id)
    versions = found["results"]
    for place, (newer, older) in enumerate(zip(versions, [*versions[1:], None], strict=True)):
        newer["lines"] = _difference(older, newer) if place < _VERSIONS_COMPARED else []
    return visit.show("history", id=found["id"], versions=versions)


@page("/tree")
def tree(visit: Visit) -> Response:
    """Show types and tags, and the newest entries of the one that is opened."""
    chosen = visit.query("types", "tag", "cursor")
    found = visit.hub.list_knowledge(visit.token, {"limit": 20, **chosen}) if chosen else None
    counts, tags = _count_tree(visit.hub, visit.token)
    return visit.show("tree", counts=counts, tags=tags, found=found, chosen=chosen)


def _count_tree(hub: KnowHub, token: Token) -> tuple[Mapping[str, int], dict[str, dict[str, int]]]:
    """Return how many entries a token sees of each type, and of the most frequent values of each tag."""
    counts, tags = Counter(dict.fromkeys(TYPES, 0)), defaultdict[str, Counter[str]](Counter)
    for known in hub.catalog.all("knowledge"):
        if not known.merged_into and sees(token, known):
            counts.update(known.fields["types"])
            for key, value in known.fields["tags"].items():
                tags[key][str(value)] += 1
    return counts, {key: dict(values.most_common(50)) for key, values in sorted(tags.items())}


def _difference(older: Mapping[str, Any] | None, newer: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the changes between two versions, line by line: "+", "-" or " ", and the line."""

    def lines(version: Mapping[str, Any] | None) -> list[str]:
        if version is None:
            return []
        shown = [f"{name}: {json.dumps(version[name], ensure_ascii=False)}" for name in _COMPARED if name in version]
        said = str(version["content"]).splitlines()
        return [*shown, *said[:_LINES_COMPARED], *(["…"] if len(said) > _LINES_COMPARED else [])]

    old, new = lines(older), lines(newer)
    found: list[tuple[str, str]] = []
    # Not `ndiff`, which also looks for the likest line of each: of 200 new lines that takes a second.
    for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(None, old, new).get_opcodes():
        found += [(" " if tag == "equal" else "-", line) for line in old[i1:i2]]
        found += [("+", line) for line in new[j1:j2] if tag != "equal"]
    return found


_LINES_COMPARED, _VERSIONS_COMPARED = 400, 20
_COMPARED = ("task", "title", "types", "tags", "scopes", "score", "resource_ids", "merged_into")


def _number(text: str | None) -> int | None:
    with contextlib.suppress(TypeError, ValueError):
        return int(text or "")
    return None


_COLONS = (": ", "：", ":")
"""Between a tag and its value: the first that a line holds, as shown (a key may hold a colon), or as typed."""


def _tag_lines(tags: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    return {f"{key}: {value}": (key, value) for key, value in tags.items()}


def _fields_of(entry: Mapping[str, Any]) -> dict[str, str]:
    """Return the texts of the fields of an entry's form."""
    return {
        "task": entry["task"],
        "content": entry["content"],
        "types": ",".join(name for name in TYPES if name in entry["types"]),
        "tags": "\n".join(_tag_lines(entry["tags"])),
        "scopes": "\n".join(entry["scopes"]),
        "score": str(entry["eval"]["score"]),
        "resource_ids": "\n".join(entry["resource_ids"]),
    }


def _entry_of(form: Mapping[str, str], there: Mapping[str, Any]) -> Json:
    """Return the body that a form describes.  `there`: what it showed; its tags and scopes stay what they are."""
    tags, known = {}, _tag_lines(there.get("tags", {}))
    for number, line in enumerate(form.get("tags", "").splitlines(), 1):
        colon = next((one for one in _COLONS if one in line), ":")
        key, value = known.get(line) or map(str.strip, line.partition(colon)[::2])
        if key and value:
            tags[key] = value
        elif line.strip():
            raise invalid("/tags", f"line {number} must be a tag, a colon and a value")
    return {
        "task": form.get("task", "").strip(),
        "content": form.get("content", ""),
        "types": typed_names(form.get("types", "")),
        "tags": tags,
        "scopes": typed_names(form.get("scopes", ""), there["scopes"]),
        "score": _number(form.get("score")) or 3,
        "resource_ids": typed_names(form.get("resource_ids", "")),
    }


@page("/knowledge/{id:knowledge_id}/evolve", "POST")
def evolve(visit: Visit) -> Response:
    """Let an entry be rewritten."""
    made = visit.hub.update(visit.token, visit.id, {"evolve_feedback": visit.form.get("feedback", "")})
    return _to(f"/knowledge/{visit.id}" if made["evolution"]["state"] == "applied" else "/proposals")


_cut_reason = re.compile(r"(it loses|it brings in|[^(]*)(.*)", re.DOTALL).findall


def _reasons(why: str) -> list[tuple[str, str]]:
    """Return the reasons why a text waits for a person, each with the value that follows some."""
    return [_cut_reason(part)[0] for part in why.split("; ") if part]


@page("/proposals")
def proposals(visit: Visit) -> Response:
    """Show what was proposed."""
    found = visit.hub.proposals(visit.token, visit.page("state"))
    for each in found["results"]:
        each["lines"] = _difference({"content": each["old_content"]}, {"content": each["content"]})
        each["why"] = _reasons(each["why"])
    return visit.show("proposals", found=found)


@page("/slim")
def slim(visit: Visit) -> Response:
    """Show what would be merged."""
    found = visit.hub.slim(visit.token, {"dry_run": True})
    return visit.show("slim", found=found, plan=json.dumps(found["plan"], ensure_ascii=False))


# Resources

_RESOURCE_FIELDS = ("title", "content_type", "body", "expires_at", "scopes")


def _resource_fields(resource: Mapping[str, Any]) -> dict[str, str]:
    """Return the texts of the fields of a resource's form."""
    found = {**resource, "scopes": " ".join(resource["scopes"])}
    return {name: found[name] or "" for name in _RESOURCE_FIELDS}


@page("/resources")
def resources(visit: Visit, problem: KnowHubError | None = None) -> Response:
    """Show the resources, and the form of a new one."""
    found = visit.hub.list_resources(visit.token, visit.page())
    form = visit.form or {"scopes": OWNER_SCOPE}
    return visit.show("resources", found=found, form=form, content_types=CONTENT_TYPES, problem=problem)


def _show_resource(visit: Visit, id: str, **more: Any) -> Response:
    found = visit.hub.get_resource(visit.token, id)
    versions = visit.hub.history(visit.token, f"resource/{id}")
    form = {**(visit.form or _resource_fields(found)), "id": id, "version": found["version"]}
    return visit.show("resource", resource=found, history=versions, form=form, content_types=CONTENT_TYPES, **more)


@page("/resources", "POST")
def keep(visit: Visit) -> Response:
    """Keep a resource; what the form does not change stays."""
    form, id = visit.form, visit.form.get("id", "")
    there = visit.hub.get_resource(visit.token, id) if visit.version is not None else None
    changed = _changed(form, _resource_fields(there) if there else dict.fromkeys(_RESOURCE_FIELDS, ""))
    given: Json = {**form, "expires_at": form.get("expires_at") or None}
    given["scopes"] = typed_names(form.get("scopes", ""), there["scopes"] if there else ()) or [OWNER_SCOPE]
    body = {name: given.get(name, "") for name in changed}
    if form.get("secure_body"):
        body["secure_body"] = form["secure_body"]
    try:
        if body:
            visit.hub.put_resource(visit.token, id, {"title": form.get("title", ""), **body}, visit.version)
    except KnowHubError as error:  # what was typed stays, but for the secret: no page repeats one
        return _show_resource(visit, id, problem=error) if there else resources(visit, error)
    return _to(f"/resources/{quote(id, safe='/')}")


@page("/resources/{id:path}")
def resource(visit: Visit) -> Response:
    """Show a resource."""
    return _show_resource(visit, visit.id)


@page("/reveal/{id:path}", "POST")
def reveal(visit: Visit) -> Response:
    """Show a secret: a POST, so that no history and no cache keeps it."""
    return _show_resource(visit, visit.id, secret=visit.hub.reveal(visit.token, visit.id)["secure_body"])


# All else


@page("/operations")
def operations(visit: Visit) -> Response:
    """Show what was done, to entries by their tasks."""
    found, tasks = visit.hub.operations(visit.token, visit.page()), dict[str, str]()
    shown = {id for one in found["results"] for id in one["records"][:RECORDS_SHOWN] if kind_of(id) == "knowledge"}
    for id in shown:
        with contextlib.suppress(KnowHubError):  # it may be gone
            tasks[id] = visit.hub.get(visit.token, id)["task"]
    return visit.show("operations", found=found, tasks=tasks, kind_of=kind_of, limit=RECORDS_SHOWN)


@page("/access")
def access(visit: Visit) -> Response:
    """Show who read which secret."""
    return visit.show("access", found=visit.hub.accesses(visit.token, visit.page()))


@page("/goals")
def goals(visit: Visit) -> Response:
    """Show one's own goal trees."""
    from .goal_tool import GoalTree

    found = visit.hub.list_goals(visit.token, visit.page())
    for each in found["results"]:
        each["text"] = GoalTree.from_json(each).render()
    return visit.show("goals", found=found)


@page("/tokens", "GET", "POST")
def tokens(visit: Visit) -> Response:
    """Show tokens and groups, and a new token this once."""
    hub, form, made = visit.hub, visit.form, None
    if visit.request.method == "POST":
        body = {"principal": form.get("principal", ""), "rights": typed_names(form.get("rights", ""))}
        made = hub.make_token(visit.token, {**body, "scopes": typed_names(form.get("scopes", ""))})
    found, groups = hub.list_tokens(visit.token), hub.list_groups(visit.token)
    return visit.show("tokens", found=found, groups=groups, made=made, rights=RIGHTS)
