"""Forced recoveries that an annotation requests: the annotations, and the recorded outcome (RP-8, SF-9)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from supercluster.api.common import ApiModel

FORCE_RECOVER = "supercluster.dev/force-recover"
"""Annotation of a Stream that lost its majority: `<broker>:<last sequence>`, the broker whose copy it goes on from and the
sequence that this copy must have at least; behind another colon any word, for asking the same once more."""
FORCE_RECOVER_META = "supercluster.dev/force-recover-meta"
"""Annotation of a SuperCluster that lost the majority of its map of streams: `<broker>:<last entry>`, the broker whose copy the map
goes on from and the entry that this copy must have at least; behind further colons any words, for asking the same once more. One
word has a meaning: ACCEPT_DOUBTFUL."""
ACCEPT_DOUBTFUL = "accept-doubtful"
"""The chosen copy may lack what it had confirmed in the last moments before a power failure."""
BEGIN_MAP_ANEW = "supercluster.dev/begin-map-anew"
"""Annotation of a SuperCluster whose volumes were all given up on purpose: its brokers may begin a map of streams again. Any text;
one value permits one beginning."""


class RecoveryStatus(ApiModel):
    """The outcome of an annotation that requests a forced recovery."""

    request: str = Field(description="The annotation's value: one that stands here is not acted upon again.")
    outcome: Literal["Recovered", "Refused"] = Field(description="Whether the brokers did it.")
    message: Annotated[str, StringConstraints(max_length=4096)] = Field(
        default="", description="Data that it may lose, or the reason why it was refused."
    )
