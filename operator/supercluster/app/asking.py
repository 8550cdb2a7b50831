"""Asks brokers one after the other, and several at once while one is slow.

A broker that stands still keeps its connections and answers nothing. The next one is asked when it has been silent for
a moment, so it costs a call that moment and not the whole time-out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from typing import Any

from supercluster.reconcilers.ports import BrokersRefusedError, BrokersUnreachableError, Json

# A broker that has not answered by then is not waited for alone.
SLOW_S = 0.5
# How long silent ones are waited for behind an answer that does not do.
OTHERS_S = 0.5

Answer = Json | BrokersUnreachableError | BrokersRefusedError


async def answers(
    urls: Sequence[str], ask: Callable[[str], Coroutine[Any, Any, Json]], slow_s: float = SLOW_S
) -> AsyncGenerator[tuple[str, Answer], None]:
    """Each answer as it comes, until the caller has heard enough.

    Raises:
        BrokersRefusedError: for good. The others would refuse it too.
    """
    left, asked = list(urls), dict[asyncio.Task[Json], str]()
    has_answer = False
    try:
        while left or asked:
            if left:
                url = left.pop(0)
                asked[asyncio.create_task(ask(url))] = url
            patience_s = slow_s if left else OTHERS_S if has_answer else None
            done, _ = await asyncio.wait(asked, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
            if not done and not left and has_answer:
                return
            for task in done:
                url = asked.pop(task)
                answer = await _result(task)
                has_answer = has_answer or not isinstance(answer, Exception)
                yield url, answer
    finally:
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)


async def _result(task: asyncio.Task[Json]) -> Answer:
    try:
        return await task
    except BrokersUnreachableError as error:
        return error
    except BrokersRefusedError as error:
        if not error.is_passing:
            raise
        return error
