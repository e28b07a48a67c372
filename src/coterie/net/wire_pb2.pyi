from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Hello(_message.Message):
    __slots__ = ("version", "session", "digest", "shared", "signatures", "round", "finished")
    class SharedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    SHARED_FIELD_NUMBER: _ClassVar[int]
    SIGNATURES_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    version: int
    session: str
    digest: str
    shared: _containers.ScalarMap[str, str]
    signatures: _containers.RepeatedScalarFieldContainer[str]
    round: int
    finished: bool
    def __init__(self, version: _Optional[int] = ..., session: _Optional[str] = ..., digest: _Optional[str] = ..., shared: _Optional[_Mapping[str, str]] = ..., signatures: _Optional[_Iterable[str]] = ..., round: _Optional[int] = ..., finished: _Optional[bool] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("accepted", "reason", "version", "session", "round", "finished", "first")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    accepted: bool
    reason: str
    version: int
    session: str
    round: int
    finished: bool
    first: int
    def __init__(self, accepted: _Optional[bool] = ..., reason: _Optional[str] = ..., version: _Optional[int] = ..., session: _Optional[str] = ..., round: _Optional[int] = ..., finished: _Optional[bool] = ..., first: _Optional[int] = ...) -> None: ...

class Header(_message.Message):
    __slots__ = ("version", "session", "round", "tag", "architecture", "size", "bytes", "checksum", "nothing", "numbers")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    TAG_FIELD_NUMBER: _ClassVar[int]
    ARCHITECTURE_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    NOTHING_FIELD_NUMBER: _ClassVar[int]
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    version: int
    session: str
    round: int
    tag: str
    architecture: str
    size: float
    bytes: int
    checksum: int
    nothing: bool
    numbers: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, version: _Optional[int] = ..., session: _Optional[str] = ..., round: _Optional[int] = ..., tag: _Optional[str] = ..., architecture: _Optional[str] = ..., size: _Optional[float] = ..., bytes: _Optional[int] = ..., checksum: _Optional[int] = ..., nothing: _Optional[bool] = ..., numbers: _Optional[_Iterable[int]] = ...) -> None: ...

class Receipt(_message.Message):
    __slots__ = ("accepted", "reason", "detail", "round", "session", "finished")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    accepted: bool
    reason: str
    detail: str
    round: int
    session: str
    finished: bool
    def __init__(self, accepted: _Optional[bool] = ..., reason: _Optional[str] = ..., detail: _Optional[str] = ..., round: _Optional[int] = ..., session: _Optional[str] = ..., finished: _Optional[bool] = ...) -> None: ...

class Application(_message.Message):
    __slots__ = ("card", "proof")
    CARD_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    card: str
    proof: bytes
    def __init__(self, card: _Optional[str] = ..., proof: _Optional[bytes] = ...) -> None: ...

class Introduction(_message.Message):
    __slots__ = ("card",)
    CARD_FIELD_NUMBER: _ClassVar[int]
    card: str
    def __init__(self, card: _Optional[str] = ...) -> None: ...

class Introductions(_message.Message):
    __slots__ = ("all",)
    ALL_FIELD_NUMBER: _ClassVar[int]
    all: _containers.RepeatedCompositeFieldContainer[Introduction]
    def __init__(self, all: _Optional[_Iterable[_Union[Introduction, _Mapping]]] = ...) -> None: ...

class Answer(_message.Message):
    __slots__ = ("reason", "card", "asks")
    REASON_FIELD_NUMBER: _ClassVar[int]
    CARD_FIELD_NUMBER: _ClassVar[int]
    ASKS_FIELD_NUMBER: _ClassVar[int]
    reason: str
    card: str
    asks: bool
    def __init__(self, reason: _Optional[str] = ..., card: _Optional[str] = ..., asks: _Optional[bool] = ...) -> None: ...

class Reached(_message.Message):
    __slots__ = ("trouble", "address", "clock")
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CLOCK_FIELD_NUMBER: _ClassVar[int]
    trouble: str
    address: str
    clock: float
    def __init__(self, trouble: _Optional[str] = ..., address: _Optional[str] = ..., clock: _Optional[float] = ...) -> None: ...
