"""What can go wrong, under Ray's names.

A task that raised makes ``get`` raise a ``TaskError`` that is also an instance of the user's own exception class, so
that ``except ValueError`` works across processes; its text is the remote traceback.
"""
from __future__ import annotations

__all__ = [
    "MantaError", "TaskError", "WorkerCrashedError", "ActorError", "ActorDiedError", "ActorUnavailableError",
    "ActorCrashedError", "NondeterminismError",
    "ObjectLostError", "GetTimeoutError", "TaskCancelledError", "OutOfMemoryError", "ObjectStoreFullError",
    "InfeasibleError", "UnavailableError", "CorruptError", "RaySystemError", "RayError", "RayTaskError",
    "RayActorError", "AsyncioActorExit", "PendingCallsLimitExceeded", "RuntimeEnvSetupError", "OwnerDiedError",
    "ObjectReconstructionFailedError", "ObjectFetchTimedOutError", "ObjectFreedError", "LocalRayletDiedError",
    "NodeDiedError", "CrossLanguageError", "OutOfDiskError", "UserCodeException", "TaskUnschedulableError",
    "ReferenceCountingAssertionError", "ObjectReconstructionFailedMaxAttemptsExceededError",
    "ObjectReconstructionFailedLineageEvictedError", "ActorUnschedulableError", "TaskPlacementGroupRemoved",
    "ActorPlacementGroupRemoved", "ActorAlreadyExistsError", "ActorHandleNotFoundError",
    "AuthenticationError", "UnserializableException", "OufOfBandObjectRefSerializationException",
]


class MantaError(Exception):
    """Everything that Manta itself raises."""


class TaskError(MantaError):
    """A task raised. ``cause`` is the exception as it was raised there, if it could be brought here."""

    cause: BaseException | None = None
    traceback_str: str = ""

    def __str__(self) -> str:
        return self.traceback_str or super().__str__()

    def as_instanceof_cause(self) -> BaseException:
        return self


class WorkerCrashedError(MantaError):
    """The process that ran the task died under it."""


class ActorError(MantaError):
    """An actor cannot answer."""


class ActorDiedError(ActorError):
    """The actor is gone and will not come back."""


class ActorUnavailableError(ActorError):
    """The actor cannot be reached now."""


class ActorCrashedError(ActorDiedError, ActorUnavailableError, WorkerCrashedError):
    """The actor's process died in this call, which may not be begun again. The actor itself comes back: Ray would raise
    ActorDiedError if it did not, ActorUnavailableError if it did, and whoever catches either catches this.
    """


class ObjectLostError(MantaError):
    """The value existed and cannot be had any more."""


class NondeterminismError(ObjectLostError):
    """The value is lost: the task that made it was run again and put other values, or made other calls, than before."""


class GetTimeoutError(MantaError, TimeoutError):
    """The value was not there in time."""


class TaskCancelledError(MantaError):
    """The task was cancelled."""


class OutOfMemoryError(MantaError):
    """The object store, or the machine, is full."""


class InfeasibleError(MantaError, ValueError):
    """Asks for more than the cluster has."""


class InvalidError(MantaError, ValueError):
    """A wrong argument, configuration or state."""


class InitializedError(InvalidError, RuntimeError):
    """``init`` was called twice."""


class NotFoundError(MantaError, ValueError):
    """No actor of that name."""


class UnavailableError(MantaError, ConnectionError):
    """The cluster cannot be reached, or is shutting down."""


class CorruptError(MantaError):
    """Bytes from another process that make no sense."""


class IoError(MantaError, OSError):
    """Disk full, too few file descriptors, …"""


class AsyncioActorExit(MantaError):
    """Raised by ``exit_actor`` inside an actor."""


class PendingCallsLimitExceeded(MantaError):
    """An actor has ``max_pending_calls`` calls that it has not answered."""


class RuntimeEnvSetupError(MantaError):
    """A runtime_env could not be made."""


# Ray's names for the same.
RayError = MantaError
RayTaskError = TaskError
RayActorError = ActorError
RaySystemError = LocalRayletDiedError = UnavailableError
NodeDiedError = WorkerCrashedError
CrossLanguageError = TaskError
# Why it is lost, and why it could not be made again, its text says.
OwnerDiedError = ObjectFetchTimedOutError = ObjectFreedError = ReferenceCountingAssertionError = ObjectLostError
ObjectReconstructionFailedError = ObjectReconstructionFailedMaxAttemptsExceededError = ObjectLostError
ObjectReconstructionFailedLineageEvictedError = ObjectLostError
ObjectStoreFullError = OutOfMemoryError
OutOfDiskError = IoError
UserCodeException = TaskError
TaskUnschedulableError = ActorUnschedulableError = InfeasibleError
TaskPlacementGroupRemoved = ActorPlacementGroupRemoved = ActorHandleNotFoundError = NotFoundError
ActorAlreadyExistsError = InvalidError
AuthenticationError = UnavailableError
UnserializableException = OufOfBandObjectRefSerializationException = MantaError  # a TypeError here

# By manta::Code (include/manta/errors.h).
BY_CODE = (
    MantaError, TaskError, WorkerCrashedError, ActorDiedError, ObjectLostError, GetTimeoutError, TaskCancelledError,
    OutOfMemoryError, InfeasibleError, InvalidError, NotFoundError, UnavailableError, CorruptError, IoError,
    ActorCrashedError,  # has no code: it is a kind of WorkerCrashedError
    NondeterminismError,  # likewise, of ObjectLostError
)
