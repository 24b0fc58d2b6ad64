// How fast lineage gets to disk, apart from the tasks that make it.
#pragma once

namespace bench {

// Calls with their answers that are on disk, per second: written as an owner writes them (lineage/record.h), through
// its ring, by the daemon's keeper (node/lineage_keeper.h), all synced at the end. `plain`: those of
// single_client_tasks_async, of which nearly all is as expected; else arguments and answers are 16 random bytes each.
double LineagePerSecond(double seconds, bool plain);

}  // namespace bench
