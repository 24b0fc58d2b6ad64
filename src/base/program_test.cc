#include "base/program.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

namespace manta::base {
namespace {

int Here() { return 1; }

TEST(Program, AFunctionOfTheProgramBelongsToTheProgram) {
  const Module* module = ModuleOf(reinterpret_cast<const void*>(&Here));
  ASSERT_NE(module, nullptr);
  EXPECT_TRUE(module->program);
  EXPECT_EQ(module->path, ProgramPath());
  EXPECT_NE(module->path.find("base_test"), std::string::npos);
  EXPECT_EQ(ModuleByHash(module->hash), module);
}

TEST(Program, AFunctionOfTheCLibraryBelongsToIt) {
  const void* symbol = dlsym(RTLD_DEFAULT, "qsort");
  const Module* module = ModuleOf(symbol);
  ASSERT_NE(module, nullptr);
  EXPECT_FALSE(module->program);
  EXPECT_EQ(ModuleByHash(module->hash), module);
  EXPECT_NE(module->hash, ModuleOf(reinterpret_cast<const void*>(&Here))->hash);
}

TEST(Program, WhatNoFileHoldsHasNoModule) {
  const auto heap = std::make_unique<int>(1);
  EXPECT_EQ(ModuleOf(heap.get()), nullptr);
  EXPECT_EQ(ModuleOf(nullptr), nullptr);
  EXPECT_EQ(ModuleByHash(0x12345678), nullptr);
}

TEST(Program, TheHashIsTheSameInAnotherProcessOfThisFile) {
  if (const char* expected = std::getenv("PROGRAM_TEST_HASH")) {
    EXPECT_EQ(std::to_string(ProgramHash()), expected);
    return;
  }
  EXPECT_NE(ProgramHash(), 0U);
  const std::string command = "PROGRAM_TEST_HASH=" + std::to_string(ProgramHash()) + " '" + ProgramPath() +
                              "' --gtest_filter=Program.TheHashIs* >/dev/null";
  EXPECT_EQ(std::system(command.c_str()), 0);
}

TEST(Program, AModuleLoadedLaterIsFound) {
  ASSERT_NE(ModuleOf(reinterpret_cast<const void*>(&Here)), nullptr);  // the table exists
  void* library = nullptr;
  for (const char* name : {"libanl.so.1", "libutil.so.1", "libBrokenLocale.so.1"}) {
    if (dlopen(name, RTLD_NOW | RTLD_NOLOAD) != nullptr) continue;
    library = dlopen(name, RTLD_NOW);
    if (library != nullptr) break;
  }
  if (library == nullptr) GTEST_SKIP() << "no library to load";
  void* init = dlsym(library, "_init");
  const char* symbols[] = {"getaddrinfo_a", "openpty", "__ctype_get_mb_cur_max"};
  for (const char* symbol : symbols) {
    if (init == nullptr) init = dlsym(library, symbol);
  }
  ASSERT_NE(init, nullptr);
  EXPECT_NE(ModuleOf(init), nullptr);
}

TEST(Program, ManyThreadsMayAsk) {
  std::vector<std::thread> threads;
  const void* other = dlsym(RTLD_DEFAULT, "qsort");
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([other] {
      for (int k = 0; k < 10000; ++k) {
        EXPECT_TRUE(ModuleOf(reinterpret_cast<const void*>(&Here))->program);
        EXPECT_FALSE(ModuleOf(other)->program);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace manta::base
