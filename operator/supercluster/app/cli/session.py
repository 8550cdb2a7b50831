"""Commands that talk to a Kubernetes API server.

Such a command is a coroutine that takes a `Site` first. `command` adds the options for the API server and the
namespace, connects, and turns errors of the API server or the brokers into a `CommandError`. Modules with a
slow import are imported where they are used, here and in the commands: `supercluster version`, `--help` and
completion need none of them.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from supercluster.app.cli.options import option
from supercluster.app.commands.errors import EXIT_OK, CommandError, UsageError

if TYPE_CHECKING:
    from supercluster.app.kube import KubeClient

Work = TypeVar("Work", bound=Callable[..., Awaitable[int | None]])


@dataclass(frozen=True, slots=True)
class Connection:
    """The options that say which API server and namespace are meant."""

    kubeconfig: Annotated[
        str | None,
        option("FILE", "Default: $KUBECONFIG, the pod's service account, ~/.kube/config."),
    ] = None
    context: Annotated[str | None, option("NAME", "Context of the kubeconfig. Default: the current one.")] = (
        None
    )
    namespace: Annotated[str | None, option("NAME", "Default: that of the context.", "-n", "--namespace")] = (
        None
    )


@dataclass(frozen=True, slots=True)
class Site:
    """An API server, and the namespace that a command works in."""

    kube: KubeClient
    namespace: str
    kubeconfig: Path | None = None


@asynccontextmanager
async def connect(to: Connection) -> AsyncIterator[Site]:
    """
    Raises:
        CommandError: the kubeconfig can't be used, or the API server or the brokers refused.
    """
    from supercluster.app import kubeconfig
    from supercluster.app.kube import KubeClient
    from supercluster.reconcilers.ports import BrokersError, KubeError

    try:
        found = kubeconfig.load(to.kubeconfig, context=to.context)
        async with KubeClient(found, field_manager="supercluster-cli") as kube:
            yield Site(kube, to.namespace or found.namespace, found.file)
    except kubeconfig.KubeconfigError as error:
        raise UsageError(str(error)) from error
    except KubeError as error:
        raise CommandError(str(error)) from error
    except BrokersError as error:
        raise CommandError(f"the brokers: {error}") from error


def command(app: typer.Typer, name: str | None = None) -> Callable[[Work], Work]:
    """Register a coroutine that takes a Site first; it returns its exit code.

    A parameter whose type is a dataclass stands for the options that are the fields of the dataclass.
    """

    def register(work: Work) -> Work:
        own = list(inspect.signature(work, eval_str=True).parameters.values())[1:]
        groups: dict[str, Any] = {
            each.name: each.annotation for each in own if is_dataclass(each.annotation)
        } | {"": Connection}
        fields = {key: inspect.signature(group, eval_str=True).parameters for key, group in groups.items()}

        async def connected(given: dict[str, Any]) -> int | None:
            built = {key: groups[key](**{each: given.pop(each) for each in fields[key]}) for key in groups}
            async with connect(built.pop("")) as site:
                return await work(site, **given, **built)

        @wraps(work)
        def run(**given: Any) -> None:
            finish(connected(given))

        named = [fields.get(each.name, {each.name: each}) for each in own]
        run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [each for some in (*named, fields[""]) for each in some.values()]
        )
        app.command(name)(run)
        return work

    return register


def finish(work: Coroutine[Any, Any, int | None]) -> None:
    """Run it to its end, which is the end of the command."""
    try:
        code = asyncio.run(work)
    except KeyboardInterrupt as error:
        raise CommandError("interrupted") from error
    raise typer.Exit(code or EXIT_OK)


def say(text: str) -> None:
    """Progress and remarks go to standard error, so that a program can read standard output."""
    print(text, file=sys.stderr, flush=True)


def complain(text: str) -> None:
    say(f"supercluster: {text}")
