"""The exceptions of the package: one for each result of the C API, with the library's sentence and the parts of the error.

Every module of the package uses it.
"""


class Error(Exception):
    """A call that did not succeed. Its text is the library's sentence.

    rank: this rank of the communicator; peer: the rank at fault, or None; collective, call, tag: which call it was, where a
    call failed; expected, got: what was compared, where something was.
    """

    result = ""  # as C calls it

    def __init__(self, sentence, *, rank=None, peer=None, collective=None, call=None, tag=None, expected=None, got=None):
        super().__init__(sentence)
        self.rank, self.peer, self.collective, self.call, self.tag = rank, peer, collective, call, tag
        self.expected, self.got = expected, got


class InvalidArgument(Error, ValueError):
    """An argument is not valid. The call had no effect; the communicator stays usable."""

    result = "qcclInvalidArgument"


class InvalidUsage(Error, RuntimeError):
    """The call is not allowed here: another thread is inside, the handle has ended, the process is a forked child, ..."""

    result = "qcclInvalidUsage"


class Timeout(Error, TimeoutError):
    """A live rank did not come in time."""

    result = "qcclTimeout"


class Mismatch(Error):
    """Ranks disagree about a call."""

    result = "qcclMismatch"


class PeerLost(Error, ConnectionError):
    """A rank died or left, or cannot be reached."""

    result = "qcclPeerLost"


class Revoked(Error):
    """A rank revoked or aborted the communicator."""

    result = "qcclRevoked"


class RemoteError(Error):
    """Another rank failed."""

    result = "qcclRemoteError"


class DamagedData(Error):
    """Encoded bytes that no encoder writes."""

    result = "qcclDamagedData"


class DeviceError(Error):
    """A call to the device's runtime failed."""

    result = "qcclUnhandledDeviceError"


class SystemFailure(Error, OSError):
    """A call to the operating system failed."""

    result = "qcclSystemError"


class InternalError(Error):
    """A mistake in QCCL itself."""

    result = "qcclInternalError"


class LibraryError(Error, ImportError):
    """The C library was not found, or this package cannot use it."""


BY_NAME = {kind.result: kind for kind in (InvalidArgument, InvalidUsage, Timeout, Mismatch, PeerLost, Revoked, RemoteError, DamagedData,
                                        DeviceError, SystemFailure, InternalError)}
