// The groups of workloads; each adds its own to the suite.
#pragma once

#include <string>

#include "baselines.h"
#include "harness.h"

namespace bench {

void AddTasks(Suite& suite, Baselines& baselines);
void AddActors(Suite& suite, Baselines& baselines);
void AddObjects(Suite& suite, Baselines& baselines);
void AddLimits(Suite& suite, Baselines& baselines);
void AddDurable(Suite& suite);
void AddStartup(Suite& suite, Baselines& baselines);
void AddControl(Suite& suite);
void AddClusters(Suite& suite, Baselines& baselines);
void AddDeaths(Suite& suite, Baselines& baselines);
void AddTune(Suite& suite, Baselines& baselines);
void AddRivals(Suite& suite, Baselines& baselines);

// The part of queued_1m_tasks that needs a process of its own: prints seconds and bytes per task.
int QueuedProbe();
// The other process of the control store's rows; talks over descriptor 3.
int ServeControl(const std::string& storage);

}  // namespace bench
