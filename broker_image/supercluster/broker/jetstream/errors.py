"""Errors of the JetStream API with NATS's codes and texts, which clients compare.

`ApiError` is raised where a request is checked, and becomes the `error` object of the answer. The table holds
the errors that brokers return; the caller fills in placeholders. Three codes outside NATS's range are our own
(SF-23).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(unsafe_hash=True)
class ApiError(Exception):
    """One refusal: HTTP-like code, NATS's err_code, and the sentence that a person reads."""

    code: int
    err_code: int
    description: str

    def __str__(self) -> str:
        return f"{self.description} (code {self.code}, err_code {self.err_code})"

    def to_json(self) -> dict[str, Any]:
        """The `error` object of an answer."""
        return {"code": self.code, "err_code": self.err_code, "description": self.description}


# err_code → (code, text). `{}` is what the caller fills in.
TABLE: dict[int, tuple[int, str]] = {
    10002: (400, "resource limits exceeded for account"),
    10003: (400, "bad request"),
    10004: (503, "incomplete results"),
    10005: (400, "no suitable peers for placement{}"),
    10006: (500, "JetStream not in clustered mode"),
    10007: (500, "JetStream cluster not assigned to this server"),
    10008: (503, "JetStream system temporarily unavailable"),
    10009: (500, "JetStream cluster can not handle request"),
    10010: (503, "JetStream clustering support required"),
    10012: (500, "{}"),
    10013: (400, "consumer name already in use"),
    10014: (404, "consumer not found"),
    10015: (400, "deliver subject not valid"),
    10016: (400, "consumer expected to be durable but no durable name set in subject"),
    10017: (400, "consumer name in subject does not match durable name in request"),
    10018: (400, "consumer expected to be durable but a durable name was not set"),
    10019: (400, "consumer expected to be ephemeral but detected a durable name set in subject"),
    10020: (400, "consumer expected to be ephemeral but a durable name was set in request"),
    10021: (400, "stream external api prefix {} must not overlap with $JS.API"),
    10022: (400, "stream external delivery prefix {}"),
    10023: (503, "insufficient resources"),
    10024: (400, "stream external delivery prefix {} must not contain wildcards"),
    10025: (400, "invalid JSON: {}"),
    10026: (400, "maximum consumers limit reached"),
    10027: (400, "maximum number of streams reached"),
    10028: (500, "insufficient memory resources available"),
    10030: (400, "stream mirror must have max message size >= source"),
    10031: (400, "stream mirrors can not also contain other sources"),
    10034: (400, "stream mirrors can not contain subjects"),
    10035: (503, "account not found"),
    10036: (503, "not currently supported in clustered mode"),
    10037: (404, "no message found"),
    10038: (400, "expected an empty request payload"),
    10039: (503, "JetStream not enabled for account"),
    10040: (400, "peer not a member"),
    10044: (400, "server is not a member of the cluster"),
    10043: (400, "sequence {} not found"),
    10046: (400, "stream source must have max message size >= target"),
    10047: (500, "insufficient storage resources available"),
    10049: (500, "{}"),
    10050: (500, "{}"),
    10051: (500, "{}"),
    10052: (500, "{}"),
    10053: (500, "{}"),
    10054: (400, "message size exceeds maximum allowed"),
    10055: (400, "stream mirror configuration can not be updated"),
    10056: (400, "stream name in subject does not match request"),
    10057: (500, "{}"),
    10058: (400, "stream name already in use with a different configuration"),
    10059: (404, "stream not found"),
    10060: (400, "expected stream does not match"),
    10061: (400, "Replicas configuration can not be updated"),
    10062: (500, "restore failed: {}"),
    10063: (503, "expected stream sequence does not match"),
    10064: (500, "snapshot failed: {}"),
    10065: (400, "subjects overlap with an existing stream"),
    10069: (500, "{}"),
    10070: (400, "wrong last msg ID: {}"),
    10071: (400, "wrong last sequence: {}"),
    10074: (500, "replicas > 1 not supported in non-clustered mode"),
    10075: (503, "peer remap failed{}"),
    10076: (503, "JetStream not enabled"),
    10077: (503, "{}"),
    10078: (400, "consumer config required"),
    10079: (400, "consumer deliver subject has wildcards"),
    10080: (400, "consumer in push mode can not set max waiting"),
    10081: (400, "consumer deliver subject forms a cycle"),
    10082: (400, "consumer requires ack policy for max ack pending"),
    10083: (400, "consumer idle heartbeat needs to be >= 100ms"),
    10084: (400, "consumer in pull mode requires explicit ack policy on workqueue stream"),
    10086: (400, "consumer in pull mode can not have rate limit set"),
    10087: (400, "consumer max waiting needs to be positive"),
    10088: (400, "consumer idle heartbeat requires a push based consumer"),
    10089: (400, "consumer flow control requires a push based consumer"),
    10090: (400, "consumer direct requires a push based consumer"),
    10091: (400, "consumer direct requires an ephemeral consumer"),
    10093: (400, "consumer filter subject is not a valid subset of the interest subjects"),
    10094: (400, "{}"),
    10095: (400, "failed to parse consumer sampling configuration: {}"),
    10096: (500, "stream not valid"),
    10097: (400, "header size exceeds maximum allowed of 64k"),
    10098: (400, "workqueue stream requires explicit ack"),
    10099: (400, "multiple non-filtered consumers not allowed on workqueue stream"),
    10100: (400, "filtered consumer not unique on workqueue stream"),
    10101: (400, "consumer must be deliver all on workqueue stream"),
    10102: (400, "consumer name is too long, maximum allowed is {}"),
    10104: (500, "error creating store for consumer: {}"),
    10105: (400, "consumer already exists and is still active"),
    10107: (400, "consumer description is too long, maximum allowed is {}"),
    10108: (400, "consumer with flow control also needs heartbeats"),
    10109: (400, "invalid operation on sealed stream"),
    10110: (500, "{}"),
    10111: (500, "{}"),
    10112: (400, "invalid push consumer deliver subject"),
    10113: (400, "account requires a stream config to have max bytes set"),
    10114: (400, "consumer max request batch needs to be > 0"),
    10115: (400, "consumer max request expires needs to be >= 1ms"),
    10116: (400, "max deliver is required to be > length of backoff values"),
    10117: (500, "subject details would exceed maximum allowed"),
    10118: (500, "stream is offline"),
    10119: (500, "consumer is offline"),
    10121: (400, "consumer max ack pending exceeds system limit of {}"),
    10122: (400, "stream max bytes exceeds account limit max stream bytes"),
    10123: (400, "can not move and scale a stream in a single update"),
    10124: (400, "stream move already in progress: {}"),
    10125: (400, "consumer max request batch exceeds server limit of {}"),
    10126: (400, "consumer config replica count exceeds parent stream"),
    10127: (400, "Consumer name can not contain path separators"),
    10128: (400, "Stream name can not contain path separators"),
    10129: (400, "stream move not in progress{}"),
    10130: (400, "stream name already in use, cannot restore"),
    10131: (400, "Consumer create request did not match filtered subject from create subject"),
    10132: (400, "Consumer Durable and Name have to be equal if both are provided"),
    10133: (400, "replicas count cannot be negative"),
    10134: (400, "consumer config replicas must match interest retention stream's replicas"),
    10135: (400, "consumer metadata exceeds maximum size of {}"),
    10136: (400, "consumer cannot have both FilterSubject and FilterSubjects specified"),
    10137: (400, "consumer with multiple subject filters cannot use subject based API"),
    10138: (400, "consumer subject filters cannot overlap"),
    10139: (400, "consumer filter in FilterSubjects cannot be empty"),
    10140: (400, "duplicate source configuration detected"),
    10141: (400, "sourced stream name is invalid"),
    10142: (400, "mirrored stream name is invalid"),
    10143: (400, "stream mirrors can not have first sequence configured"),
    10144: (400, "source with multiple subject transforms cannot also have a single subject filter"),
    10145: (400, "source transform source: {}"),
    10146: (400, "source transform: {}"),
    10147: (400, "source filters can not overlap"),
    10148: (400, "consumer already exists"),
    10149: (400, "consumer does not exist"),
    10150: (400, "mirror with multiple subject transforms cannot also have a single subject filter"),
    10151: (400, "mirror transform source: {}"),
    10152: (400, "mirror subject filters can not overlap"),
    10153: (400, "consumer inactive threshold exceeds system limit of {}"),
    10154: (400, "mirror transform: {}"),
    10155: (400, "stream transform source: {}"),
    10156: (400, "stream transform: {}"),
    10157: (400, "pedantic mode: {}"),
    10158: (409, "duplicate message id is in process"),
    10159: (400, "Setting PriorityPolicy requires at least one PriorityGroup to be set"),
    10160: (400, "Provided priority group does not exist for this consumer"),
    10161: (400, "Group name cannot be an empty string"),
    10162: (
        400,
        "Valid priority group name must match A-Z, a-z, 0-9, -_/=)+ and may not exceed 16 characters",
    ),
    10163: (503, "expected last sequence per subject temporarily unavailable"),
    10164: (400, "wrong last sequence"),
    10165: (400, "invalid per-message TTL"),
    10166: (400, "per-message TTL is disabled"),
    10167: (429, "too many requests"),
    10168: (400, "message counters is disabled"),
    10169: (400, "message counter increment is missing"),
    10170: (400, "message counter has payload"),
    10171: (400, "message counter increment is invalid"),
    10172: (400, "message counter is broken"),
    10173: (400, "stream mirrors can not also calculate counters"),
    10174: (400, "atomic publish is disabled"),
    10175: (400, "atomic publish sequence is missing"),
    10176: (400, "atomic publish batch is incomplete"),
    10177: (400, "atomic publish unsupported header used: {}"),
    10178: (400, "priority groups can not be used with push consumers"),
    10179: (400, "atomic publish batch ID is invalid"),
    10180: (412, "min last sequence"),
    10181: (400, "consumer ack policy invalid"),
    10182: (400, "consumer replay policy invalid"),
    10183: (400, "consumer ack wait needs to be positive"),
    10184: (400, "consumer backoff needs to be positive"),
    10185: (412, "JetStream minimum api level required"),
    10186: (400, "stream mirrors can not also schedule messages"),
    10187: (400, "stream source can not also schedule messages"),
    10188: (400, "message schedules is disabled"),
    10189: (400, "message schedules pattern is invalid"),
    10190: (400, "message schedules target is invalid"),
    10191: (400, "message schedules invalid per-message TTL"),
    10192: (400, "message schedules invalid rollup"),
    10193: (400, "missing sequence for expected last sequence per subject"),
    10196: (400, "consumer can not have priority groups when policy is none"),
    10197: (400, "PinnedTTL cannot be set when PriorityPolicy is none"),
    10198: (400, "stream mirrors can not also use atomic publishing"),
    10199: (400, "atomic publish batch is too large: {}"),
    10200: (400, "atomic publish batch commit is invalid"),
    10201: (400, "atomic publish batch contains duplicate message id"),
    10203: (400, "message schedules source is invalid"),
    10204: (400, "invalid reset: {}"),
    10205: (400, "batch publish is disabled"),
    10206: (400, "batch publish pattern is invalid"),
    10207: (400, "batch publish ID is invalid"),
    10208: (400, "batch publish ID unknown"),
    10209: (400, "stream mirrors can not also use batch publishing"),
    10210: (429, "atomic publish too many inflight"),
    10211: (429, "batch publish too many inflight"),
    10212: (400, "message schedules invalid scheduler"),
    10213: (400, "stream mirror consumer config is invalid"),
    10215: (400, "stream source consumer config is invalid"),
    10223: (400, "message schedules time zone is invalid"),
    10227: (400, "message stream source header is not allowed"),
    # Ours, far above NATS's range, so that no later release of it can take them.
    19001: (403, "{}"),
    19002: (400, "{}"),
    19003: (403, "{}"),
    19004: (409, "the plan cannot be carried out any more{}"),
    19005: (409, "the replica is not to be replaced{}"),
    19006: (409, "stream {}"),
    19007: (409, "the replica is not to be {}"),
    19008: (503, "not all brokers can read it: {}"),
    19060: (400, "Nats-Msg-Id has {} are allowed"),
    19020: (409, "another migration has that id: {}"),
    19021: (409, "migration {} is under way: wait until it has ended, or abort it"),
    19022: (409, "the streams cannot be migrated as they are: {}"),
    19023: (404, "there is no migration {}"),
    19024: (409, "all streams of migration {} are open on green: migrate them back instead"),
    19025: (409, "the migration cannot be finalized yet: {}"),
    19026: (409, "stream {}: ask the super-cluster that has it"),
    19040: (400, "{}"),
    19041: (409, "{}"),
    19042: (409, "{}"),
    19043: (409, "{}"),
    19044: (409, "{}"),
    19045: (503, "{}"),
    19028: (409, "the stream cannot be taken back by force: {}"),
    19029: (409, "the stream cannot be discarded: {}"),
    19027: (409, "stream {}: wait until it is handed over, or abort the migration"),
}

BAD_REQUEST = 10003
NO_SUITABLE_PEERS = 10005
JETSTREAM_NOT_AVAILABLE = 10008
CLUSTER_REQUIRED = 10010
CONSUMER_CREATE_FAILED = 10012
INSUFFICIENT_RESOURCES = 10023
INVALID_JSON = 10025
MAXIMUM_CONSUMERS = 10026
MAXIMUM_STREAMS = 10027
MEMORY_RESOURCES = 10028
NOT_EMPTY_REQUEST = 10038
STORAGE_RESOURCES = 10047
STREAM_GENERAL = 10051
STREAM_INVALID_CONFIG = 10052
MESSAGE_TOO_LARGE = 10054
STREAM_MISMATCH = 10056
STREAM_NAME_IS_PATH = 10128
STREAM_NAME_IN_USE = 10058
NOT_ENABLED_FOR_ACCOUNT = 10039
PEDANTIC = 10157
API_LEVEL_REQUIRED = 10185
SOURCE_HEADER_REFUSED = 10227
STREAM_NOT_FOUND = 10059
RESTORE_FAILED = 10062
RESTORE_NAME_IN_USE = 10130
DELIVER_SUBJECT_INVALID = 10015
REPLICAS_NOT_SUPPORTED = 10074
STORE_FAILED = 10077
HEADER_TOO_LARGE = 10097
STREAM_SEALED = 10109
MAX_BYTES_REQUIRED = 10113
CONSUMER_INVALID_POLICY = 10094
STREAM_OFFLINE = 10118
STREAM_BYTES_EXCEEDED = 10122
PEER_NOT_MEMBER = 10040
SERVER_NOT_MEMBER = 10044
CONSUMER_NAME_TOO_LONG = 10102
CONSUMER_NAME_IS_PATH = 10127
ABOUT_REQUEST = frozenset(
    (
        BAD_REQUEST,
        INVALID_JSON,
        NOT_EMPTY_REQUEST,
        STREAM_MISMATCH,
        CONSUMER_NAME_IS_PATH,
        *(10017, 10018, 10020, 10131, 10137),
    )
)
"""What is wrong with a request whatever stream it is about: told before that there is no such stream."""
DECLARED_STREAM = 19001
"""A client's change of a stream that a resource declares (SF-23); the text names the resource."""
FOREIGN_ACCOUNT = 19003
"""A call about another account's stream by anyone but the operator."""
PLAN_OUTDATED = 19004
"""A move was to go to brokers that do not fit any more: it has to be planned anew."""
NOT_DEAD = 19005
"""A replica was to be replaced whose broker is there, or was there a moment ago."""
RECOVERY_REFUSED = 19006
"""A stream's recovery was to be forced that needs none, or cannot go on from the copy that was named."""
MEMBERS_STAY = 19007
"""A replica was to be added or removed by name, and that can't be."""
MAP_LEVEL = 19008
"""The map is to have an operation that came with a version which not all brokers are known to speak. The same call may be
repeated when all are updated."""
MIGRATION_DIFFERS = 19020
"""A migration was to be started whose id is another one's."""
MIGRATION_OVERLAPS = 19021
"""Two migrations of one account's streams."""
PREFLIGHT_REFUSED = 19022
"""A migration was to be started that cannot succeed; the answer has the findings."""
NO_MIGRATION = 19023
"""No migration has that id."""
ALL_OPEN = 19024
"""A migration was to be aborted of which nothing is left that could go back."""
NOT_FINAL = 19025
"""A migration was to be finalized that has streams or clients which are not on green."""
STREAM_FAR = 19026
"""A call that only the super-cluster may answer which has the stream now."""
NOT_TAKEN_BACK = 19028
"""A stream was to be taken back by force from a super-cluster that may answer yet, or that does not have it."""
NOT_DISCARDED = 19029
"""Blue's copies of a stream were to be dropped that green has not opened at that attempt."""
STREAM_MIGRATES = 19027
"""A stream was to be moved that is on its way to another super-cluster."""
SINK_REFUSED = 19040
"""A field or a row of a sink's call is wrong, or the stream takes none."""
SINK_BATCH_OLD = 19041
"""A batch was committed before, or its writer's checkpoint went back."""
SINK_OFFSETS_DIFFER = 19042
"""A batch was committed with other offsets."""
SINK_STAGE_MISSING = 19043
"""Rows that a commit names, or a block goes on with, are not staged: the batch is to be written again."""
SINK_FULL = 19044
"""There is no room for another stage, or another writer."""
SINK_BUSY = 19045
"""The same call may be repeated: the writer's last batch is being released, or the stream takes no block now."""
NOT_SUPPORTED = 19002
"""A field or call of NATS that these brokers do not have yet: refused, never accepted in silence."""


def error(err_code: int, detail: object = "") -> ApiError:
    """The refusal with that err_code; `detail` fills the blank of its text."""
    code, text = TABLE[err_code]
    return ApiError(code, err_code, text.replace("{}", str(detail)))


def detailed(err_code: int, why: str) -> ApiError:
    """The refusal in NATS's words, which its clients know, and behind them what they do not say."""
    found = error(err_code)
    return ApiError(found.code, found.err_code, f"{found.description}: {why}")


def invalid_config(why: str) -> ApiError:
    """A stream's configuration contradicts itself or names something that cannot be."""
    return error(STREAM_INVALID_CONFIG, why)


def not_supported(what: str) -> ApiError:
    """A feature of NATS that these brokers do not have."""
    return error(NOT_SUPPORTED, f"{what} not supported yet")


def declared_stream(stream: str, resource: str, fields: str) -> ApiError:
    """SF-23: only the operator's credentials change a stream that a resource declares."""
    return error(
        DECLARED_STREAM,
        f"stream {stream} is declared by the Stream resource {resource}: change {fields} there, "
        "its spec wins over the JetStream API",
    )


def claimed_stream(stream: str, resource: str) -> ApiError:
    """SF-23: whether a resource declares a stream is for the operator to say."""
    return error(
        DECLARED_STREAM,
        f"stream {stream}: metadata supercluster.dev/resource (set to {resource}) is for the operator's credentials alone",
    )


def no_suitable_peers(why: str) -> ApiError:
    """NATS's 10005, with what was looked at."""
    return error(NO_SUITABLE_PEERS, f": {why}")


def not_available(why: str) -> ApiError:
    """NATS's 10008: nobody could answer in time, and what is known of the reason."""
    found = error(JETSTREAM_NOT_AVAILABLE)
    return ApiError(found.code, found.err_code, f"{found.description}: {why}") if why else found


def members_are_changing(stream: str) -> ApiError:
    """A member of the stream's group is being replaced by its new identity: a move begins behind that."""
    return not_available(
        f"a member of stream {stream} is being replaced by its new identity, ask again when that is done"
    )


def no_voter_left(stream: str, node: str) -> ApiError:
    """The stream's only copy lost data that may have been acknowledged, so nobody may lead it (SF-4)."""
    found = error(STREAM_OFFLINE)
    why = (
        f"the only copy of stream {stream}, on {node}, lost data, so the stream can have no leader; delete the stream and create "
        f"it again (what was damaged lies in quarantine on {node}, and goes with the stream)"
    )
    return ApiError(found.code, found.err_code, f"{found.description}: {why}")


def recovery_refused(stream: str, why: str) -> ApiError:
    """RP-8: what is forced has to be needed, and to be possible."""
    return error(RECOVERY_REFUSED, f"{stream} is not recovered by force: {why}")


def map_recovery_refused(why: str) -> ApiError:
    """The same of the map of streams."""
    code, _ = TABLE[RECOVERY_REFUSED]
    return ApiError(code, RECOVERY_REFUSED, f"the map of streams is not recovered by force: {why}")


def map_recovery_not_now(why: str) -> ApiError:
    """Nobody judged it: the same call may be repeated."""
    return ApiError(
        503, RECOVERY_REFUSED, f"the map of streams is not recovered by force now: {why}: ask again"
    )
