// A cluster that loses things, in virtual time: the real rules of leases, rebuilding, references, membership, the life
// of actors and their replay (src/rules), over a model of processes, links, stores and journals, with seeded deaths of
// workers, actors, nodes and the head, broken and cut links, delays, and messages that overtake each other. A driver
// submits chains and trees of tasks, lends Refs and calls actors, as do tasks and other actors. After a while the
// faults end, everything must come to an end, and what was seen is compared with what should have been.
//
// Checked: every value is right, wherever and whenever it is read, and an owner gets it once; every call acts on its
// actor once, in the order of its caller, and its answer is the same whoever asks again; of an actor one process acts;
// a node's workers never use more than it has; nothing is left at the end: no lease, value, Ref, actor or process; and
// all that within a bounded time.
//
// Where tasks go is drawn, not decided: the rules must hold wherever they go. The same model gives the same events.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace manta::sim {

// Bugs that can be planted, to see that they are found. Tests only.
struct RecoveryFaults {
  bool forget_answers = false;          // an actor that comes back does not know what it has answered
  bool early_checkpoint = false;        // the state is taken before the last call, whose record goes all the same
  bool keep_records = false;            // a checkpoint leaves the records that it covers
  bool answer_before_copy = false;      // answers leave the actor's node before its journal has left it
  bool local_answers_first = false;     // only those to callers on the actor's own node
  bool lose_last_journal = false;       // a dead process's journal is not taken over, only the last copy
  bool rerun_unmarked = false;          // calls are sent again as if for the first time
  bool resend_backwards = false;        // the last of them first
  bool blame_all = false;               // of the calls that an actor had when it died, each is thought to be to blame
  bool begin_for_ever = false;          // a call is begun again however often its actor died in it
  bool grant_twice = false;             // a lease gets two workers
  bool forget_lost_leases = false;      // of workers that died
  bool rebuild_without_inputs = false;  // the lost value's task runs again, but not those that make its inputs
  bool keep_lost_places = false;        // a value on a node that is gone is thought to be there
  bool drop_lent_early = false;         // a Ref is let go when its task is sent, not when it has answered
  bool free_without_reading = false;    // what nobody holds is freed before all that was sent is read
  bool ignore_fence = false;            // a node that is cut off goes on
  bool deaf_while_still = false;        // what is sent to a node that stands still is lost
  bool children_of_the_dead = false;    // what a dead process owned is not given back
};

struct RecoveryModel {
  std::uint64_t seed = 1;
  std::uint32_t nodes = 4;  // the first is the driver's, and does not die
  std::uint32_t cpus = 4;   // of each
  std::uint32_t actors = 3;
  std::uint32_t chains = 2;
  std::uint32_t links = 6;  // tasks of a chain
  std::uint32_t trees = 1;
  std::uint32_t callers = 4;  // tasks that call actors
  std::uint32_t borrowers = 3;
  std::uint32_t calls = 12;             // of the driver to each actor
  std::int64_t trouble_us = 3'000'000;  // how long faults happen
  std::int64_t rest_us = 60'000'000;    // how long it may take until all is over
  double fault_us = 120'000;            // one in this time, in the mean; 0: none
  double slow = 0.02;                   // messages that take fifty times as long
  double clock_skew = 0.02;             // clocks run faster or slower by up to this part
  RecoveryFaults faults;
};

struct RecoveryFigures {
  std::vector<std::string> violations;
  std::uint64_t trace = 0;  // a hash of every message
  std::uint64_t events = 0;
  std::uint64_t tasks = 0;     // submitted, each once
  std::uint64_t runs = 0;      // of tasks, again or not
  std::uint64_t rebuilt = 0;   // because their values were lost
  std::uint64_t calls = 0;     // of actors, each once
  std::uint64_t replayed = 0;  // by actors that came back
  std::uint64_t answered_again = 0;
  std::uint64_t refused = 0;  // because the actor had died in them too often
  std::uint64_t checkpoints = 0;
  std::uint64_t leases = 0;
  std::uint64_t workers_killed = 0;
  std::uint64_t actors_killed = 0;
  std::uint64_t nodes_killed = 0;
  std::uint64_t stood_still = 0;  // nodes that the head did not answer, …
  std::uint64_t went_on = 0;      // … and then did
  std::uint64_t fenced = 0;       // nodes that ended because they were given up
  std::uint64_t heads_killed = 0;
  std::uint64_t links_broken = 0;
  double seconds = 0;  // virtual

  void Add(const RecoveryFigures& other);
  [[nodiscard]] std::string Describe() const;
};

[[nodiscard]] RecoveryFigures RunRecovery(const RecoveryModel& model);

// What a seed stands for: three to five nodes, more or less work.
[[nodiscard]] RecoveryModel RecoveryModelOf(std::uint64_t seed);

}  // namespace manta::sim
