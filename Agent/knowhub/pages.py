"""Pages for people, with all that agents' tools can do, and no script.

Stored text cannot run: templates escape all of it, Markdown is rendered without HTML, pictures become links, and the
policy of every answer allows no script at all. A form that changes something is believed only where the browser says
that it was sent from these pages (Sec-Fetch-Site, else Origin); the cookie is HttpOnly and SameSite=Strict.
"""

import contextlib
import difflib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from anyio import from_thread
from jinja2 import Environment, FileSystemLoader
from markdown_it import MarkdownIt
from markupsafe import Markup
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from ..base.language import say_in
from .application import Application
from .gate import wants_chinese
from .hub import KnowHub
from .oidc import KEPT_S, OpenId
from .prompts import WORDS
from .records import RIGHTS, Json, KnowHubError, kind_of
from .schemas import CONTENT_TYPES, TYPES
from .tokens import SESSION_S, Token, sees

_FOLDER = Path(__file__).parent / "templates"
_LANGUAGE_COOKIE = "knowhub_language"
_OPENID_COOKIE = "knowhub_openid"

FIELDS_LIMIT = 200
"""Fields of a form."""
MARKDOWN_LIMIT = 16_384
"""Characters that are rendered: the renderer's time grows with the square of some texts."""


# Markdown without anything that could run


def _make_markdown() -> MarkdownIt:
    markdown = MarkdownIt("commonmark", {"html": False, "linkify": False}).enable(["table", "strikethrough"])
    markdown.validateLink = _is_harmless  # type: ignore[method-assign,assignment]

    def image(self: Any, tokens: Any, idx: int, options: Any, env: Any) -> str:
        token = tokens[idx]
        address, text = str(token.attrs.get("src", "")), token.content or "image"
        said = Markup.escape(f"🖼 {text}")
        if not _is_harmless(address):
            return str(said)
        return str(Markup('<a href="{}" rel="noopener noreferrer nofollow">{}</a>').format(address, said))

    def link_open(self: Any, tokens: Any, idx: int, options: Any, env: Any) -> str:
        tokens[idx].attrSet("rel", "noopener noreferrer nofollow")
        return str(self.renderToken(tokens, idx, options, env))

    markdown.add_render_rule("image", image)
    markdown.add_render_rule("link_open", link_open)
    return markdown


def _is_harmless(address: str) -> bool:
    return urlsplit(address.strip()).scheme.lower() in ("http", "https") if ":" in address else False


_markdown = _make_markdown()


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


class Pages:
    """The pages of one server."""

    def __init__(self, application: Application) -> None:
        self.app = application
        self.hub: KnowHub = application.hub
        environment = Environment(loader=FileSystemLoader(_FOLDER), autoescape=True, trim_blocks=True)
        environment.filters |= {"markdown": render_markdown, "time": show_time}
        environment.filters["pathquote"] = lambda text: quote(str(text), safe="")
        environment.filters["idquote"] = lambda text: quote(str(text), safe="/")
        environment.globals["parts"] = environment.get_template("parts.html").module
        files = [environment.get_template(f"{name}.html") for name in ("knowledge", "house")]
        self._frame = environment.get_template("base.html")
        self._files = {block: file for file in files for block in file.blocks}

    def language(self, request: Request) -> str:
        """Return the language that a browser asked for here, or asks for in general."""
        chosen = request.cookies.get(_LANGUAGE_COOKIE)
        if chosen in WORDS:
            return str(chosen)
        return "zh" if wants_chinese(request.headers.raw) else "en"

    def show(self, request: Request, name: str, status: int = 200, **values: Any) -> Response:
        """Return a page.  To be called in the pool: Markdown of a long text takes its time."""
        language = self.language(request)
        token = request.state.token
        path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        openid = self.app.settings.openid
        shared = {"t": WORDS[language], "language": language, "token": token, "here": path, "types_known": TYPES}
        shared["openid"] = urlsplit(openid.issuer).netloc if openid else ""
        if isinstance(error := values.get("problem"), KnowHubError):
            values["problem"] = error.to_json(in_chinese=language == "zh")
        file = self._files[name]
        main = Markup("".join(file.blocks[name](file.new_context({**shared, **values}))))
        return HTMLResponse(self._frame.render(**shared, title=values.get("title"), main=main), status)

    def remember(self, answer: Response, made: tuple[str, Token]) -> Response:
        """Let a browser keep a session."""
        gate = self.app.gate
        gate.count(made[1])
        kept: Json = {"max_age": SESSION_S, "httponly": True, "samesite": "strict"}
        answer.set_cookie(gate.cookie_name, made[0], secure=self.app.settings.is_secure, **kept)
        return answer

    def refuse(self, request: Request, error: KnowHubError) -> Response:
        """Return the page of a problem."""
        return self.show(request, "problem", error.status, problem=error)


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


Form = dict[str, str]
Handler = Callable[[Request, Token, Form], Response]
Route = Callable[..., Callable[[Handler], Handler]]


def add_pages(application: Application) -> None:
    """Add the pages to a server."""
    pages, api = Pages(application), application.api
    application.show_problem = pages.refuse

    def route(path: str, *methods: str, is_open: bool = False) -> Callable[[Handler], Handler]:
        """Return a decorator that makes a function the handler of a path: it runs in the pool."""

        def mark(handle: Handler) -> Handler:
            async def answer(request: Request) -> Response:
                token = request.state.token
                try:
                    is_form = request.method == "POST"
                    if is_form and not _is_from_here(request, token):
                        raise KnowHubError("forbidden", "a form of another site is not believed")
                    if token is None and not is_open:
                        return RedirectResponse(f"/login?{urlencode({'next': request.url.path})}", 303)
                    form = await _form(request) if is_form else {}
                    return await run_in_threadpool(handle, request, token, form)
                except KnowHubError as error:
                    return await run_in_threadpool(pages.refuse, request, error)

            api.add_route(path, answer, methods=list(methods or ("GET",)), include_in_schema=False)
            return handle

        return mark

    for path, act, after in _ACTIONS:

        def handle(request: Request, token: Token, form: Form, act: Action = act, after: str = after) -> Response:
            id = request.path_params["id"]
            act(pages.hub, token, id, form)
            return RedirectResponse(after.format(id), 303)

        route(path, "POST")(handle)
    _add_login(pages, route)
    if application.settings.openid is not None:
        _add_openid(pages, route, OpenId(application.settings.openid))
    _add_entries(pages, route)
    _add_judging(pages, route)
    _add_resources(pages, route)
    _add_others(pages, route)


def _add_login(pages: Pages, route: Route) -> None:
    hub, gate, is_secure = pages.hub, pages.app.gate, pages.app.settings.is_secure

    @route("/login", "GET", "POST", is_open=True)
    def login(request: Request, token: Token, form: Form) -> Response:
        """Log a browser in, by a link that is good once or by a token."""
        given = form.get("token", "") if request.method == "POST" else request.query_params.get("code", "")
        if not given or request.method == "HEAD":  # a program that only looks must not use the link up
            return pages.show(request, "login", failed=False)
        made = hub.tokens.log_in(given.strip())
        if made is None:
            return pages.show(request, "login", 401, failed=True)
        return pages.remember(RedirectResponse(_local(request.query_params.get("next", "/")), 303), made)

    @route("/logout", "POST", is_open=True)
    def logout(request: Request, token: Token | None, form: Form) -> Response:
        if token is not None and token.kind == "session":  # a token of its own stays: it was asked with, not logged in
            hub.tokens.revoke(token.digest)
        answer = RedirectResponse("/login", 303)
        answer.delete_cookie(gate.cookie_name, secure=is_secure, httponly=True, samesite="strict")
        return answer

    @route("/language", is_open=True)
    def language(request: Request, token: Token, form: Form) -> Response:
        answer = RedirectResponse(_local(request.query_params.get("back", "/")), 303)
        chosen = "zh" if request.query_params.get("to") == "zh" else "en"
        answer.set_cookie(_LANGUAGE_COOKIE, chosen, max_age=31_536_000, samesite="strict")
        return answer

    style = (_FOLDER / "style.css").read_bytes()

    @route("/style.css", is_open=True)
    def stylesheet(request: Request, token: Token, form: Form) -> Response:
        return Response(style, media_type="text/css", headers={"Cache-Control": "max-age=3600"})

    @route("/api", is_open=True)
    def document(request: Request, token: Token, form: Form) -> Response:
        """Show the API, from the document that describes it, without foreign scripts."""
        say = partial(say_in, pages.language(request))
        rows = [
            {"path": path, "method": method.upper(), "call": operation}
            for path, operations in pages.app.api.openapi()["paths"].items()
            for method, operation in operations.items()
        ]
        return pages.show(request, "api", rows=rows, say=say)


def _add_openid(pages: Pages, route: Route, openid: OpenId) -> None:
    """Add the way to a provider, and back."""
    settings = pages.app.settings
    kept: Json = {"httponly": True, "secure": settings.is_secure, "path": "/login/openid"}

    def back_to(request: Request) -> str:
        return f"{'https' if settings.is_secure else 'http'}://{request.headers['host']}/login/openid/back"

    @route("/login/openid", is_open=True)
    def leave(request: Request, token: Token, form: Form) -> Response:
        url, held = from_thread.run(openid.begin, request, back_to(request))
        answer = RedirectResponse(url, 303)
        # Strict, it would not come back with a browser that another site sends.
        answer.set_cookie(_OPENID_COOKIE, held, max_age=KEPT_S, samesite="lax", **kept)
        return answer

    @route("/login/openid/back", is_open=True)
    def come_back(request: Request, token: Token, form: Form) -> Response:
        principal = from_thread.run(openid.finish, request, request.cookies.get(_OPENID_COOKIE, ""))
        made = pages.hub.tokens.log_in_as(principal)
        if made is None:
            raise KnowHubError("forbidden", "no token was made for this person: ask an administrator of the hub")
        # The session's cookie is Strict: it goes only with what this page asks for.
        answer = pages.show(request, "entered", principal=principal)
        answer.headers["Refresh"] = "0; url=/"
        answer.delete_cookie(_OPENID_COOKIE, samesite="lax", **kept)
        return pages.remember(answer, made)


def _judge(hub: KnowHub, token: Token, id: str, form: Form) -> None:
    case = {name: form[name] for name in ("task", "outcome", "reason") if form.get(name)}
    hub.update(token, id, {"add_helpful_case" if form.get("is_helpful") == "yes" else "add_harmful_case": case})


def _accept(hub: KnowHub, token: Token, id: str, form: Form) -> None:
    hub.accept(token, id, {"content": form["content"]} if form.get("content", "").strip() else {})


Action = Callable[[KnowHub, Token, str, Form], object]
_ACTIONS: Sequence[tuple[str, Action, str]] = (
    ("/knowledge/{id:knowledge_id}/feedback", _judge, "/knowledge/{}"),
    ("/knowledge/{id:knowledge_id}/delete", lambda hub, token, id, form: hub.delete(token, id, _version(form)),
     "/operations"),
    ("/proposals/{id:proposal_id}/accept", _accept, "/proposals"),
    ("/proposals/{id:proposal_id}/reject", lambda hub, token, id, form: hub.reject(token, id), "/proposals"),
    ("/drop/{id:path}", lambda hub, token, id, form: hub.delete_resource(token, id, _version(form)), "/resources"),
    ("/operations/{id}/undo", lambda hub, token, id, form: hub.undo(token, id), "/operations"),
    ("/tokens/{id}/revoke", lambda hub, token, id, form: hub.revoke_token(token, id), "/tokens"),
)  # fmt: skip
"""The action of a button, and the page that is shown then."""


def _local(address: str) -> str:
    """Return an address of these pages, or the first page for any other."""
    return address if address.startswith("/") and not address.startswith(("//", "/\\")) else "/"


def _query(request: Request, *names: str) -> Json:
    return {name: value for name in names if (value := request.query_params.get(name))}


def _page(request: Request, *names: str) -> Json:
    return {"limit": 20, **_query(request, "cursor", *names)}


def _add_entries(pages: Pages, route: Route) -> None:
    hub = pages.hub

    @route("/")
    def home(request: Request, token: Token, form: Form) -> Response:
        """Search: by words at once, by a model where that is asked for."""
        query = _query(request, "q", "types", "min_score", "route")
        more: Json = {"query": query, "has_model": not hub.models.available()}
        if query.get("q", "").strip():
            asked = {"route": "recall", "min_score": 1, "top_k": 20, **query}
            more["found"] = hub.search(token, asked)
        else:
            wanted = {"limit": 10, **_query(request, "cursor", "tag", "types")}
            more["newest"] = hub.list_knowledge(token, wanted)
        return pages.show(request, "home", **more)

    @route("/knowledge/new", "GET", "POST")
    def new(request: Request, token: Token, form: Form) -> Response:
        if request.method != "POST":
            shared = [hub.tokens.org] if hub.tokens.org else ["user:owner", *sorted(token.scopes - {"*"})]
            form = {"scopes": "\n".join(shared), "score": "3"}
            return pages.show(request, "edit", form=form)
        try:
            made = hub.save(token, _entry_of(form))
        except KnowHubError as error:
            return pages.show(request, "edit", error.status, form=form, problem=error)
        return RedirectResponse(f"/knowledge/{made['entry']['id']}", 303)

    @route("/knowledge/{id:knowledge_id}")
    def entry(request: Request, token: Token, form: Form) -> Response:
        found = hub.get(token, request.path_params["id"])
        cases = hub.feedback(token, found["id"], {"limit": 20})
        paths = [["types", name] for name in found["types"]] + [["tags", *pair] for pair in found["tags"].items()]
        is_own = found["created_by"] == token.principal or token.may("curate")
        return pages.show(
            request, "entry", title=found["task"][:80], entry=found, cases=cases, paths=paths, is_own=is_own
        )

    @route("/knowledge/{id:knowledge_id}/edit", "GET", "POST")
    def edit(request: Request, token: Token, form: Form) -> Response:
        id = request.path_params["id"]
        found = hub.get(token, id)
        if request.method != "POST":
            return pages.show(request, "edit", entry=found, form=_fields_of(found))
        body = _entry_of(form, found["tags"])
        patch = {name: body[name] for name in _changed(form, _fields_of(found))}
        try:
            if patch:
                hub.patch(token, id, patch, _version(form))
        except KnowHubError as error:  # what was typed stays; after a conflict, beside what is there by now
            there = hub.get(token, id)
            shown: Json = {**there, "score": there["eval"]["score"]}
            lines = _difference(shown, {**shown, **patch}) if error.code == "changed" else []
            return pages.show(request, "edit", error.status, entry=shown, form=form, problem=error, lines=lines)
        return RedirectResponse(f"/knowledge/{id}", 303)

    @route("/knowledge/{id:knowledge_id}/history")
    def history(request: Request, token: Token, form: Form) -> Response:
        found = hub.history(token, request.path_params["id"])
        versions = found["results"]
        # Each says what it changed in the one before it, the newest first; of many, the newest.
        for place, (newer, older) in enumerate(zip(versions, [*versions[1:], None], strict=True)):
            newer["lines"] = _difference(older, newer) if place < _VERSIONS_COMPARED else []
        return pages.show(request, "history", id=found["id"], versions=versions)

    @route("/tree")
    def tree(request: Request, token: Token, form: Form) -> Response:
        """Show types and tags, and the newest entries of the one that is opened."""
        chosen = _query(request, "types", "tag", "cursor")
        found = hub.list_knowledge(token, {"limit": 20, **chosen}) if chosen else None
        counts, tags = _count_tree(hub, token)
        return pages.show(request, "tree", counts=counts, tags=tags, found=found, chosen=chosen)


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


def _version(form: Form) -> int | None:
    return _number(form.get("version"))


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


def _entry_of(form: Mapping[str, str], there: Mapping[str, str] = {}) -> Json:
    """Return the body that a form describes.  `there`: the tags that it showed; a line of theirs stays what it is."""
    tags, known = {}, _tag_lines(there)
    for line in form.get("tags", "").splitlines():
        key, _, value = line.partition(": " if ": " in line else ":")  # as they are shown; a key may hold a colon
        key, value = known.get(line, (key, value))
        if key.strip() and value.strip():
            tags[key.strip()] = value.strip()
    return {
        "task": form.get("task", "").strip(),
        "content": form.get("content", ""),
        "types": [name for name in form.get("types", "").split(",") if name],
        "tags": tags,
        "scopes": form.get("scopes", "").replace(",", " ").split(),
        "score": _number(form.get("score")) or 3,
        "resource_ids": form.get("resource_ids", "").split(),
    }


def _add_judging(pages: Pages, route: Route) -> None:
    hub = pages.hub

    @route("/knowledge/{id:knowledge_id}/evolve", "POST")
    def evolve(request: Request, token: Token, form: Form) -> Response:
        id = request.path_params["id"]
        made = hub.update(token, id, {"evolve_feedback": form.get("feedback", "")})
        return RedirectResponse(f"/knowledge/{id}" if made["evolution"]["state"] == "applied" else "/proposals", 303)

    @route("/proposals")
    def proposals(request: Request, token: Token, form: Form) -> Response:
        found = hub.proposals(token, _page(request, "state"))
        for each in found["results"]:
            each["lines"] = _difference({"content": each["old_content"]}, {"content": each["content"]})
        return pages.show(request, "proposals", found=found)

    @route("/slim", "GET", "POST")
    def slim(request: Request, token: Token, form: Form) -> Response:
        if request.method == "POST":
            try:
                plan = json.loads(form.get("plan", ""))
            except (ValueError, RecursionError):
                raise KnowHubError("invalid", "the plan cannot be read") from None
            hub.slim(token, {"plan": plan})
            return RedirectResponse("/operations", 303)
        found = hub.slim(token, {"dry_run": True})
        plan = json.dumps(found["plan"], ensure_ascii=False)
        return pages.show(request, "slim", found=found, plan=plan)


_RESOURCE_FIELDS = ("title", "content_type", "body", "expires_at", "scopes")


def _resource_fields(resource: Mapping[str, Any]) -> dict[str, str]:
    """Return the texts of the fields of a resource's form."""
    found = {**resource, "scopes": " ".join(resource["scopes"])}
    return {name: found[name] or "" for name in _RESOURCE_FIELDS}


def _add_resources(pages: Pages, route: Route) -> None:
    hub = pages.hub

    def show_all(request: Request, token: Token, form: Json, problem: KnowHubError | None = None) -> Response:
        found = hub.list_resources(token, _page(request))
        status, more = problem.status if problem else 200, {"content_types": CONTENT_TYPES, "problem": problem}
        return pages.show(request, "resources", status, found=found, form=form, **more)

    def show(
        request: Request, token: Token, id: str, form: Json | None = None, problem: KnowHubError | None = None,
        secret: str | None = None,
    ) -> Response:  # fmt: skip
        found = hub.get_resource(token, id)
        history = hub.history(token, f"resource/{id}")
        form = {**(form or _resource_fields(found)), "id": id, "version": found["version"]}
        status, more = problem.status if problem else 200, {"content_types": CONTENT_TYPES, "problem": problem}
        return pages.show(
            request, "resource", status, resource=found, secret=secret, history=history, form=form, **more
        )

    @route("/resources")
    def resources(request: Request, token: Token, form: Form) -> Response:
        return show_all(request, token, {"scopes": "user:owner"})

    @route("/resources", "POST")
    def keep(request: Request, token: Token, form: Form) -> Response:
        id, version = form.get("id", ""), _version(form)
        there = hub.get_resource(token, id) if version is not None else None
        changed = _changed(form, _resource_fields(there) if there else dict.fromkeys(_RESOURCE_FIELDS, ""))
        given: Json = {**form, "expires_at": form.get("expires_at") or None}
        given["scopes"] = _entry_of(form)["scopes"] or ["user:owner"]
        body = {name: given.get(name, "") for name in changed}
        if form.get("secure_body"):
            body["secure_body"] = form["secure_body"]
        try:
            if body:  # what it does not say stays
                hub.put_resource(token, id, {"title": form.get("title", ""), **body}, version)
        except KnowHubError as error:  # what was typed stays, but for the secret: no page repeats one
            return show(request, token, id, form, error) if there else show_all(request, token, form, error)
        return RedirectResponse(f"/resources/{quote(id, safe='/')}", 303)

    @route("/resources/{id:path}")
    def resource(request: Request, token: Token, form: Form) -> Response:
        return show(request, token, request.path_params["id"])

    @route("/reveal/{id:path}", "POST")
    def reveal(request: Request, token: Token, form: Form) -> Response:
        """Show a secret: a POST, so that no history and no cache keeps it."""
        found = hub.reveal(token, request.path_params["id"])
        return show(request, token, request.path_params["id"], secret=found["secure_body"])


def _add_others(pages: Pages, route: Route) -> None:
    hub = pages.hub

    @route("/operations")
    def operations(request: Request, token: Token, form: Form) -> Response:
        return pages.show(request, "operations", found=hub.operations(token, _page(request)), kind_of=kind_of)

    @route("/access")
    def access(request: Request, token: Token, form: Form) -> Response:
        return pages.show(request, "access", found=hub.accesses(token, _page(request)))

    @route("/goals")
    def goals(request: Request, token: Token, form: Form) -> Response:
        from .goal_tool import GoalTree

        found = hub.list_goals(token, _page(request))
        for each in found["results"]:
            each["text"] = GoalTree.from_json(each).render()
        return pages.show(request, "goals", found=found)

    @route("/tokens", "GET", "POST")
    def tokens(request: Request, token: Token, form: Form) -> Response:
        made = None
        if request.method == "POST":
            body = {"principal": form.get("principal", ""), "rights": _list(form.get("rights"))}
            made = hub.make_token(token, {**body, "scopes": _list(form.get("scopes"))})
        found, groups = hub.list_tokens(token), hub.list_groups(token)
        return pages.show(request, "tokens", found=found, groups=groups, made=made, rights=RIGHTS)

    @route("/groups", "POST")
    def groups(request: Request, token: Token, form: Form) -> Response:
        body = {"members": _list(form.get("members")), "scopes": _list(form.get("scopes"))}
        hub.put_group(token, form.get("group", ""), body)
        return RedirectResponse("/tokens", 303)


def _list(text: str | None) -> list[str]:
    return [part for part in (text or "").replace(" ", ",").split(",") if part]
