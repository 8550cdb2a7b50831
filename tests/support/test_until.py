"""`until`, which nearly every test with processes waits by: what it tells of a failure has to be true."""

from __future__ import annotations

import pytest
from tests.support.local_clusters import until


async def test_a_condition_that_never_holds_is_named() -> None:
    async def never() -> bool:
        return False

    with pytest.raises(AssertionError, match="waited in vain for: a miracle"):
        await until(never, "a miracle", timeout_s=0.01)


async def test_a_time_limit_of_the_condition_itself_is_not_taken_for_the_end_of_the_wait() -> None:
    """A test once failed after 5 s with "waited in vain", of 30 s: a client had raised asyncio's error, not its own."""

    async def own_limit() -> bool:
        raise TimeoutError("of a client")

    with pytest.raises(TimeoutError, match="of a client"):
        await until(own_limit, "a miracle")
