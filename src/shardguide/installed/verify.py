"""Look claims up in the PyTorch at hand before they are shown."""

from __future__ import annotations

from collections.abc import Iterable

from shardguide.guidance.record import Claim, Release, Reopened, Source
from shardguide.installed.lookup import Place, Tree, find, missing
from shardguide.knowledge import claims_store, releases
from shardguide.knowledge.claims_store import Page, Statement, Words


def claims(ids: Iterable[str], release: Release, docs: str = "") -> dict[str, Claim]:
    """Each claim as it stands for a release.

    The status is ``found`` when every source in PyTorch's code was opened again in ``release.path`` (an installed
    PyTorch or a source tree), ``index`` when no PyTorch is at hand and the shipped data answers for the release, ``page``
    for a claim that rests on documentation pages alone, and ``not confirmed`` otherwise: the words do not stand there, the
    statement is known not to hold for the release, or the release is unknown. With `docs`, a folder of downloaded documentation,
    pages are opened again there: their status stays ``page``, and the sources say where the sentences stand.

    Raises:
        KeyError: there is no claim of that id.
        UnusableInput: `docs` is no folder of documentation.
    """
    tree = Tree(release.path) if release.path else None
    statements = {name: claims_store.get(name) for name in ids}
    pages = _pages(statements.values(), docs) if docs else {}
    return {name: _claim(statement, release, tree, pages) for name, statement in statements.items()}


def _pages(statements: Iterable[Statement], docs: str) -> dict[str, Reopened]:
    """Where the sentences of pages stand in a folder, by their digests."""
    from shardguide.installed.pages import Sentence, find

    sources = [source for statement in statements for source in statement.sources if isinstance(source, Page)]
    wanted = {source.digest: Sentence(source.digest, source.words, source.key, source.at) for source in sources}
    stems = {source.url.rstrip("/").rpartition("/")[2].partition(".html")[0] for source in sources}
    return find(docs, wanted, stems)


def _claim(statement: Statement, release: Release, tree: Tree | None, pages: dict[str, Reopened]) -> Claim:
    sources: list[Source] = []
    looked_up = found = 0
    for number, source in enumerate(statement.sources, 1):
        name = statement.id if number == 1 else f"{statement.id}#{number}"
        if isinstance(source, Words):
            looked_up += 1
            item, reopened = _reopen(source, release, tree)
            found += reopened is not None
            sources.append(Source(name, source.title, source.url, item, source.releases, reopened))
        else:
            title = f"{source.title}, {source.section}" if source.section else source.title
            sources.append(Source(name, title, source.url, "", source.version, pages.get(source.digest)))
    if statement.limits and not releases.within(release.version, statement.limits):
        status = "not confirmed"
    elif not looked_up:
        status = "page"
    elif tree is None:
        status = "index" if releases.within(release.version, statement.releases) else "not confirmed"
    else:
        status = "found" if found == looked_up else "not confirmed"
    return Claim(statement.id, statement.text, tuple(sources), status)


def _reopen(source: Words, release: Release, tree: Tree | None) -> tuple[str, Reopened | None]:
    """The public name to show, and where the words were found."""
    places = tuple(Place(*place) for place in source.places)
    if tree is None:
        return places[0].object, None
    hit = find(tree, places, source.anchors)
    if hit is None and missing(tree, places) and _expected(source, release):
        from shardguide.installed.resolve import moved  # parses files: only when something has moved

        for place in moved(tree, places):
            hit = hit or find(tree, (place,), source.anchors)
    if hit is None:
        return places[0].object, None
    return hit.place.object, hit.reopened


def _expected(source: Words, release: Release) -> bool:
    """Whether a definition that is not in its place should be looked for: not in a release known to lack it."""
    name = releases.minor(release.version)
    return name not in releases.known() or releases.within(name, source.releases)
