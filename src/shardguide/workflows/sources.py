"""From the claims that decisions cite to sources that were opened again."""

from __future__ import annotations

from shardguide.guidance.hints import NamedTuple
from shardguide.guidance.record import Check, Decision, Release, Source
from shardguide.installed.verify import claims
from shardguide.knowledge import claims_store, releases


def knowledge_version() -> str:
    """What identifies the knowledge that answered: the digest of the shipped claims."""
    return claims_store.digest()


class Cited(NamedTuple):
    """Decisions with the ids of their sources, and all sources once."""

    decisions: tuple[Decision, ...]
    sources: tuple[Source, ...]
    checks: tuple[Check, ...]
    not_confirmed: tuple[str, ...]
    found: int  # claims opened again in the PyTorch at hand
    total: int
    knowledge: str  # version of the knowledge


def cite(decisions: list[Decision], release: Release) -> Cited:
    """Look every cited claim up for the release; what does not stand there is said, not shown as if it did."""
    if not release.version:
        # Which statements hold depends on the release, so none is shown as confirmed or not.
        later = "Statements are looked up once the release is known."
        bare = tuple(decision._replace(sources=()) for decision in decisions)
        return Cited(
            bare, (), (Check("sources", "unknown", later),) if decisions else (), (), 0, 0, knowledge_version()
        )
    wanted = [
        claim for claim in dict.fromkeys(c for decision in decisions for c in decision.sources) if about(claim, release)
    ]
    looked_up = claims(wanted, release)
    sources: dict[str, Source] = {}
    for claim in looked_up.values():
        for source in claim.sources:
            sources.setdefault(source.id, source)
    out = tuple(
        decision._replace(
            sources=tuple(
                source.id for claim in decision.sources if claim in looked_up for source in looked_up[claim].sources
            )
        )
        for decision in decisions
    )
    missing = [claim for claim in looked_up.values() if claim.status == "not confirmed"]
    by_status = [claim.status for claim in looked_up.values()]
    found, index, page = by_status.count("found"), by_status.count("index"), by_status.count("page")
    checks: tuple[Check, ...] = ()
    if wanted:
        where = f"PyTorch {release.version} at {release.path}" if release.path else "the shipped index"
        words = f"{found + index} claims found in {where}, {page} on documentation pages"
        if missing:
            words += f", {len(missing)} not confirmed for this release"
        checks = (Check("sources", "passed" if not missing and release.version else "unknown", words + "."),)
    return Cited(
        out,
        tuple(sources.values()),
        checks,
        tuple(f"not confirmed for this release: {claim.text}" for claim in missing),
        found + index,
        len(wanted),
        knowledge_version(),
    )


def about(claim: str, release: Release) -> bool:
    """Whether the claim speaks of this release; decisions cite the FSDP1 and the FSDP2 form of a fact side by side."""
    statement = claims_store.get(claim)
    if not statement.releases:
        return True
    return releases.within(release.version, statement.releases) and (
        not statement.limits or releases.within(release.version, statement.limits)
    )
