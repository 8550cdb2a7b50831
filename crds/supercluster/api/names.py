"""Names and subjects, and the words in which an API server refuses wrong ones.

A pattern alone does not explain an error. So the schema has a rule per mistake, whose message quotes the
value and names the right form. The models keep the pattern, since the operator may read objects that an older
definition accepted.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import StringConstraints, WithJsonSchema

from supercluster.api.common import CelRule

DNS_LABEL_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
STREAM_NAME_PATTERN = r"^[A-Za-z0-9_-]+$"
# As on the brokers, where clients name streams more freely than resources do.
UNDECLARED_NAME_PATTERN = r"^[^\s.*>/\\]+$"
# One word: brokers take any text, and people type it.
USER_NAME_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.@-]*$"
# Tokens between dots; a star is a whole token; ">" stands for the rest and only at the end.
SUBJECT_PATTERN = r"^(\*|[^\s.*>]+)(\.(\*|[^\s.*>]+))*(\.>)?$"


# Faults of a subject that a publisher makes too; the command line says them in the same words.
WHITE_SPACE = "has white space: a subject is tokens with dots between them, such as orders.new"
EMPTY_TOKEN = "has an empty token: put one dot between two tokens, and none at either end"


def _wrong(rule: str, message: str) -> CelRule:
    """A rule on a text; its message begins with the text."""
    return CelRule(
        rule=rule, message=f"a value {message}", message_expression=f'"\'" + self + "\' {message}"'
    )


def _schema(length_max: int, *rules: CelRule) -> WithJsonSchema:
    return WithJsonSchema(
        {
            "type": "string",
            "minLength": 1,
            "maxLength": length_max,
            "x-kubernetes-validations": [rule.to_schema() for rule in rules],
        }
    )


_DNS_LABEL = _wrong(
    f"self.matches(r'{DNS_LABEL_PATTERN}')",
    "is not a name in Kubernetes: use a-z, 0-9 and '-', and begin and end with a letter or a digit",
)

# Names of pods and services are made from it, "<cluster>-brokers" and an ordinal included.
LabelName = Annotated[
    str,
    StringConstraints(pattern=DNS_LABEL_PATTERN, min_length=1, max_length=40),
    _schema(40, _DNS_LABEL),
]
ObjectName = Annotated[
    str,
    StringConstraints(pattern=DNS_LABEL_PATTERN, min_length=1, max_length=63),
    _schema(63, _DNS_LABEL),
]
StreamName = Annotated[
    str,
    StringConstraints(pattern=STREAM_NAME_PATTERN, min_length=1, max_length=128),
    _schema(
        128,
        _wrong(
            f"self.matches(r'{STREAM_NAME_PATTERN}')",
            "is not a name of a stream: use letters, digits, '_' and '-' only",
        ),
    ),
]
UndeclaredName = Annotated[
    str,
    StringConstraints(pattern=UNDECLARED_NAME_PATTERN, min_length=1, max_length=255),
    _schema(
        255,
        _wrong(
            f"self.matches(r'{UNDECLARED_NAME_PATTERN}')",
            "is not a name of a stream: it has a space, or one of . * > / and backslash",
        ),
    ),
]
UserName = Annotated[
    str,
    StringConstraints(pattern=USER_NAME_PATTERN, min_length=1, max_length=128),
    _schema(
        128,
        _wrong(
            f"self.matches(r'{USER_NAME_PATTERN}')",
            "is not a name of a user: use letters, digits and . @ _ - only, and begin with a letter, a digit or '_'",
        ),
    ),
]
Subject = Annotated[
    str,
    StringConstraints(pattern=SUBJECT_PATTERN, min_length=1, max_length=256),
    _schema(
        256,
        _wrong(
            r"!self.matches(r'\s')",
            WHITE_SPACE,
        ),
        _wrong(
            "!self.startsWith('.') && !self.endsWith('.') && !self.contains('..')",
            EMPTY_TOKEN,
        ),
        _wrong(
            r"!self.matches(r'[^.]\*|\*[^.]')",
            "has a '*' beside other characters: '*' stands for one whole token, such as orders.*.new",
        ),
        _wrong(
            r"!self.matches(r'[^.]>|>.')",
            "has a '>' that is not the last token: '>' stands for all tokens that follow, such as orders.>",
        ),
        _wrong(
            "self != '>'",
            "captures every subject, those of the brokers included: begin with a token of your own, such as orders.>",
        ),
        _wrong(
            "!self.startsWith('$JS.') && !self.startsWith('$SYS.') && !self.startsWith('_INBOX.')",
            "belongs to the brokers, as do all subjects that start with $JS., $SYS. or _INBOX.: use another first token",
        ),
    ),
]
