// Resources: tasks say what they need, and no more run at a time than there is room for.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "manta/manta.h"

namespace {

using namespace std::chrono_literals;

std::string Train(int model) {
  const char* devices = std::getenv("CUDA_VISIBLE_DEVICES");
  std::this_thread::sleep_for(50ms);
  return "model " + std::to_string(model) + " on GPU " + (devices == nullptr ? "?" : devices);
}

int Query(int number) {
  std::this_thread::sleep_for(20ms);
  return number;
}

}  // namespace

int main() {
  manta::Config config;
  config.cpus = 4;
  config.gpus = 2;                  // only counted and handed out: there need not be any
  config.resources["license"] = 3;  // anything that there is a number of
  manta::Init(config);

  std::vector<manta::Ref<std::string>> models;
  for (int i = 0; i < 4; ++i) models.push_back(manta::Task(Train).SetGpus(1).Remote(i));
  for (const std::string& line : manta::Get(models)) std::printf("%s\n", line.c_str());

  // Twelve queries, three licenses, a tenth of a CPU each: four rounds of 20 ms.
  const auto begin = std::chrono::steady_clock::now();
  std::vector<manta::Ref<int>> queries;
  for (int i = 0; i < 12; ++i) {
    queries.push_back(manta::Task(Query).SetCpus(0.1).SetResource("license", 1).Remote(i));
  }
  manta::Get(queries);
  const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;
  std::printf("12 queries with 3 licenses took %.0f ms\n", time.count());

  // What can never fit says so at once.
  try {
    manta::Task(Query).SetCpus(1'000).Remote(1).Get();
  } catch (const manta::InfeasibleError& error) {
    std::printf("%s\n", error.what());
  }

  manta::Shutdown();
  return 0;
}
