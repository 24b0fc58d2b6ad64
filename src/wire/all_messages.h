// Every message there is, for who must try them all: fuzz targets, and the test that knocks at every port.
// Written by scripts/protocols from the headers; `make check` says when it is out of date.
#pragma once

#include <tuple>

#include "wire/cancel_messages.h"
#include "wire/cluster_messages.h"
#include "wire/control_messages.h"
#include "wire/join.h"
#include "wire/journal_messages.h"
#include "wire/kept_messages.h"
#include "wire/messages.h"

namespace manta::wire {

// clang-format off
using AllMessages =
    std::tuple<Failed, Hello, Welcome, Goodbye, Done, Exit, LeaseRequest, LeaseCancel, LeaseRefused, LeaseGranted,
               LeaseBroken, LeaseStart, FarReady, LeaseReturn, LeaseEnded, LeaseLost, Blocked, Unblock, KillWorker,
               CreateActor, ActorCreated, ActorStart, ActorReady, ActorKeeps, ActorFailed, AttachActor, ActorCaller,
               ActorState, KillActor, FindActor, ActorFound, ListNames, NameList, CreateGroup, GroupMade, RemoveGroup,
               FindGroup, ListGroups, GroupList, WatchGroup, GroupChanged, ListNodes, NodeList, Expect, Publish,
               WaitObjects, ObjectReady, Hold, HoldFar, Drop, NodeGone, ObjectLost, Orphaned, Unmade, Unheld,
               SegmentRequest, SegmentLent, OpenSegment, SegmentOpened, Restore, Restored, Fetch, Fetched, FetchAhead,
               FreeObjects, SegmentReturn, Fork, Forked, Exited, LogLines, StatusRequest, StatusReply, MemoryRequest,
               MemoryReply, ControlHello, ControlWelcome, ControlGet, ControlValue, ControlWrite, ControlWritten,
               ControlScan, ControlEntries, ControlWatch, ControlChanges, ControlUnwatch, ControlWatchEnded, NodeHello,
               NodeWelcome, HeartbeatSeen, Probe, ClusterView, Withdraw, Fenced, Drain, Farewell, NodesRequest,
               StopCluster, NewToken, SchedulerHello, SchedulerWelcome, ClaimName, FindName, NamedActor, ReleaseName,
               GroupsView, ReserveBundle, CommitBundle, ReleaseBundle, BundleAnswer, JobGone, FarHello, FarLease,
               FarLeaseCancel, FarLeaseGranted, FarLeaseRefused, FarLeaseEnded, FarLeaseLost, FarLeaseBroken,
               FarOwnerGone, FarKillWorker, FarJobBegun, FarJobEnded, FarJobGone, FarLogLines, DescribeJob,
               JobDescribed, FetchProgram, ProgramPart, QuotaState, QuotaShare, FarHold, FarDrop, FarSync, FarSynced,
               FarWait, FarObjectReady, FarObjectLost, FarKeep, FarAdopt, FarFree, FarWant, FarForgo, FarFetchFrom,
               FarStopFetch, FarCopyLost, FarFetched, FarFetchFailed, FarCopyDropped, FarCreateActor, FarActorMade,
               FarGetActor, FarKillActor, FarWatchActor, FarActorState, FarStartActor, FarStopActor, FarActorRefused,
               FarActorStarting, FarActorReady, FarActorFailed, FarActorDied, FarAttachActor, FarActorAttached,
               FetchPart, Part, OwnerHello, OwnerWelcome, FarCancel, FarReturned, FarStarted, FarTakeBack, FarBye,
               CopyWanted, CopyJournal, FarJournal, KeepActor, KeepJournal, ForgetActor, FindHome, ActorHome,
               KeptJournal, AdoptActor, ActorAdopted, LeaveHome, ActorMoved, CancelObject, FarCancelObject, JoinRequest,
               JoinReply>;
// clang-format on
// Kinds whose bodies are values of other rooms.
inline constexpr Kind kBareKinds[] = {kHeartbeat, kPlace, kPlaced, kNodeBeat, kFarCalls, kFarReplies};

}  // namespace manta::wire
