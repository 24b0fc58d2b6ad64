// Which code is loaded where. A function crosses processes as (hash of its module, offset in it): the
// same file loads at different addresses in different processes, but its inside never moves.
//
// The table of modules is built at the first question and again when an address or a hash is unknown
// and something was loaded since (dlopen). Modules stay valid for the life of the process, also after
// dlclose. Every function may be called from any thread.
#pragma once

#include <cstdint>
#include <string>

namespace manta::base {

struct Module {
  std::uintptr_t base = 0;  // first mapped address: offsets count from here
  std::uintptr_t end = 0;   // behind the last mapped address
  std::uintptr_t bias = 0;  // address - bias is what the file's symbol table calls it
  std::uint32_t hash = 0;   // of the build id, or else of the path
  bool program = false;     // the executable itself
  std::string path;         // absolute where the loader knows it so
};

// Identifies the executable: of its GNU build id, or else of its path, size and time of change.
[[nodiscard]] std::uint64_t ProgramHash();
// Absolute, as it was at start; " (deleted)" may follow.
[[nodiscard]] const std::string& ProgramPath();
// Programs of one installation, or of one build, are beside each other.
[[nodiscard]] std::string BesideProgram(const std::string& name);

// nullptr: no loaded file holds it (generated code, heap).
[[nodiscard]] const Module* ModuleOf(const void* address);
// The same for a signal handler: allocates and locks nothing, and so knows only what was found before.
[[nodiscard]] const Module* KnownModuleOf(const void* address);
// nullptr: this process has not loaded it.
[[nodiscard]] const Module* ModuleByHash(std::uint32_t hash);

}  // namespace manta::base
