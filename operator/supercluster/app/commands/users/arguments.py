"""What `supercluster users` can be asked."""

from __future__ import annotations

import argparse
import re

from supercluster.api.units import PERIOD_PATTERN, period_s
from supercluster.app.commands.options import add_connection, add_output, add_timeout


def add_users(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    users = commands.add_parser(
        "users",
        help="list Users, rotate their credentials, and see which clients show which one",
        description="Users of a super-cluster and their credentials. No password and no seed is printed.",
    )
    actions = users.add_subparsers(dest="action", required=True, metavar="ACTION")
    listed = actions.add_parser("list", help="list Users with their credentials and rotations")
    add_output(listed)
    show = actions.add_parser("show", help="show a User: its credential, its rotation, and what to do next")
    rotate = _add_rotate(actions)
    who = actions.add_parser(
        "who-uses",
        help="list the clients that show a credential of a User, by broker",
        description="Ask each broker which clients show which credential of a User. Brokers that do not answer are named, and the exit "
        "code is 1 then. Run it where the brokers' monitoring ports can be reached.",
    )
    who.add_argument("--all", action="store_true", help="list credentials that no client shows, too")
    adopt = actions.add_parser(
        "adopt",
        help="print manifests that take over users of users.json",
        description="Print the manifests of Users that take over the users that were written into users.json by hand, with account, "
        "permissions and limits as they are. `kubectl apply -f -` carries it out. Users that cannot be taken over are named on "
        "standard error.",
    )
    for command in (show, rotate, who):
        command.add_argument("name", metavar="NAME", help="name of the User resource")
    listed.add_argument("--super-cluster", default="", metavar="NAME", help="of that SuperCluster only")
    adopt.add_argument("--super-cluster", default="", metavar="NAME", help="(the only one there is)")
    for command in (listed, show, rotate, who, adopt):
        add_connection(command)


def _add_rotate(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    rotate: argparse.ArgumentParser = actions.add_parser(
        "rotate",
        help="exchange the credential of a User, hold that, or take it back",
        description="Ask for a new credential. Clients find it in the Secret of the User when every broker accepts it. The former one is "
        "withdrawn when no client shows it any more, or at a deadline. The rotation is refused while another one is under way, "
        "suspended or cancelled, and while the User is not Ready.",
    )
    instead = rotate.add_mutually_exclusive_group()
    instead.add_argument(
        "--deadline-after",
        type=_period,
        metavar="PERIOD",
        help="withdraw the former credential after that time, such as 24h or 7d, whichever client still shows it; later rotations keep "
        "the setting",
    )
    instead.add_argument(
        "--cancel",
        action="store_true",
        help="instead: take the rotation under way back, and let none begin before --resume",
    )
    instead.add_argument(
        "--suspend",
        action="store_true",
        help="instead: stop the rotation where it is, and let none begin before --resume",
    )
    instead.add_argument(
        "--resume", action="store_true", help="instead: end what --cancel or --suspend began"
    )
    rotate.add_argument(
        "--wait", action="store_true", help="wait until no rotation is under way, and print how far it is"
    )
    add_timeout(rotate, 600.0, "for --wait")
    return rotate


def _period(text: str) -> str:
    if not re.fullmatch(PERIOD_PATTERN, text) or period_s(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no time such as 90m, 24h or 7d")
    return text
