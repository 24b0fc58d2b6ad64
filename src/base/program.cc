#include "base/program.h"

#include <elf.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstring>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

namespace manta::base {
namespace {

std::uint64_t Hash(std::string_view bytes) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  hash ^= hash >> 32;
  hash *= 0xd6e8feb86659fd93ULL;
  return hash ^ (hash >> 32);
}

// The bytes of the module's NT_GNU_BUILD_ID, empty if the linker wrote none.
std::string_view BuildId(const dl_phdr_info& info) {
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info.dlpi_phdr[i];
    if (header.p_type != PT_NOTE) continue;
    const auto* at = reinterpret_cast<const char*>(info.dlpi_addr + header.p_vaddr);
    const std::size_t align = header.p_align == 8 ? 8 : 4;
    std::size_t left = header.p_memsz;
    while (left >= sizeof(ElfW(Nhdr))) {
      ElfW(Nhdr) note;
      std::memcpy(&note, at, sizeof note);
      const std::size_t name = sizeof note;
      const std::size_t text = (name + note.n_namesz + align - 1) & ~(align - 1);
      const std::size_t next = (text + note.n_descsz + align - 1) & ~(align - 1);
      if (text + note.n_descsz > left) break;
      if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(at + name, "GNU", 4) == 0) {
        return {at + text, note.n_descsz};
      }
      if (next >= left) break;
      at += next;
      left -= next;
    }
  }
  return {};
}

// Immutable once published.
struct Table {
  unsigned long long changes = 0;         // the loader's count of loads and unloads when it was made
  std::vector<const Module*> by_address;  // sorted, disjoint
  std::uint64_t program_hash = 0;
};

std::atomic<const Table*> current{nullptr};
// Shared by all threads: nearly all questions of a program are about one module, and then nobody writes it.
std::atomic<const Module*> last_by_address{nullptr};
std::atomic<const Module*> last_by_hash{nullptr};

// What was ever published: readers hold plain pointers into it.
struct Kept {
  std::mutex mutex;
  std::vector<std::unique_ptr<const Module>> modules;
  std::vector<std::unique_ptr<const Table>> tables;
};
Kept& Everything() {
  static Kept* kept = new Kept;  // outlives the statics of the program: a destructor may still ask
  return *kept;
}

struct Build {
  Kept* kept;
  Table* table;
  bool first = true;
};

int AddModule(dl_phdr_info* info, std::size_t, void* argument) {
  auto* build = static_cast<Build*>(argument);
  const bool program = std::exchange(build->first, false);  // the loader lists the executable first
  build->table->changes = info->dlpi_adds + info->dlpi_subs;
  std::uintptr_t begin = UINTPTR_MAX;
  std::uintptr_t end = 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    if (header.p_type != PT_LOAD) continue;
    begin = std::min<std::uintptr_t>(begin, info->dlpi_addr + header.p_vaddr);
    end = std::max<std::uintptr_t>(end, info->dlpi_addr + header.p_vaddr + header.p_memsz);
  }
  if (begin >= end) return 0;
  begin &= ~static_cast<std::uintptr_t>(4095);

  auto module = std::make_unique<Module>();
  module->base = begin;
  module->end = end;
  module->bias = info->dlpi_addr;
  module->program = program;
  module->path = program ? ProgramPath() : info->dlpi_name;
  const std::string_view id = BuildId(*info);
  std::uint64_t hash = Hash(id.empty() ? std::string_view(module->path) : id);
  module->hash = static_cast<std::uint32_t>(hash);
  if (program) {
    if (id.empty()) {
      struct stat file{};
      if (stat("/proc/self/exe", &file) == 0) {
        const std::int64_t facts[] = {file.st_size, file.st_mtim.tv_sec, file.st_mtim.tv_nsec};
        hash = Hash(module->path + std::string(reinterpret_cast<const char*>(facts), sizeof facts));
      }
    }
    build->table->program_hash = hash;
  }
  for (const auto& known : build->kept->modules) {
    if (known->base == begin && known->end == end && known->hash == module->hash && known->path == module->path) {
      build->table->by_address.push_back(known.get());
      return 0;
    }
  }
  build->table->by_address.push_back(module.get());
  build->kept->modules.push_back(std::move(module));
  return 0;
}

int CountChanges(dl_phdr_info* info, std::size_t, void* argument) {
  *static_cast<unsigned long long*>(argument) = info->dlpi_adds + info->dlpi_subs;
  return 1;  // the first module tells
}

// The table that is right now: the same as before if nothing was loaded or unloaded.
const Table* Refresh() {
  const Table* table = current.load(std::memory_order_acquire);
  if (table != nullptr) {
    unsigned long long changes = 0;
    dl_iterate_phdr(CountChanges, &changes);
    if (changes == table->changes) return table;
  }
  Kept& kept = Everything();
  const std::lock_guard lock(kept.mutex);
  auto fresh = std::make_unique<Table>();
  Build build{&kept, fresh.get()};
  dl_iterate_phdr(AddModule, &build);
  std::sort(fresh->by_address.begin(), fresh->by_address.end(),
            [](const Module* a, const Module* b) { return a->base < b->base; });
  table = fresh.get();
  kept.tables.push_back(std::move(fresh));
  current.store(table, std::memory_order_release);
  last_by_address.store(nullptr, std::memory_order_relaxed);
  last_by_hash.store(nullptr, std::memory_order_relaxed);
  return table;
}

const Module* FindAddress(const Table& table, std::uintptr_t address) {
  auto after = std::upper_bound(table.by_address.begin(), table.by_address.end(), address,
                                [](std::uintptr_t value, const Module* module) { return value < module->base; });
  if (after == table.by_address.begin()) return nullptr;
  const Module* module = *--after;
  return address < module->end ? module : nullptr;
}

const Module* FindHash(const Table& table, std::uint32_t hash) {
  for (const Module* module : table.by_address) {
    if (module->hash == hash) return module;
  }
  return nullptr;
}

// Asks the table there is, then, if it does not know, the table there should be.
template <typename Find>
const Module* Ask(Find find) {
  const Table* table = current.load(std::memory_order_acquire);
  if (table == nullptr) table = Refresh();
  if (const Module* module = find(*table)) return module;
  const Table* fresh = Refresh();
  return fresh == table ? nullptr : find(*fresh);
}

}  // namespace

const std::string& ProgramPath() {
  static const std::string* path = [] {
    char text[PATH_MAX];
    const ssize_t size = readlink("/proc/self/exe", text, sizeof text);
    return new std::string(text, size > 0 ? static_cast<std::size_t>(size) : 0);
  }();
  return *path;
}

std::string BesideProgram(const std::string& name) {
  const std::string& self = ProgramPath();
  return self.substr(0, self.rfind('/') + 1) + name;
}

std::uint64_t ProgramHash() {
  const Table* table = current.load(std::memory_order_acquire);
  if (table == nullptr) table = Refresh();
  return table->program_hash;
}

const Module* ModuleOf(const void* address) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  const Module* last = last_by_address.load(std::memory_order_acquire);
  if (last != nullptr && at >= last->base && at < last->end) return last;
  const Module* module = Ask([at](const Table& table) { return FindAddress(table, at); });
  if (module != nullptr) last_by_address.store(module, std::memory_order_release);
  return module;
}

const Module* KnownModuleOf(const void* address) {
  const Table* table = current.load(std::memory_order_acquire);
  return table == nullptr ? nullptr : FindAddress(*table, reinterpret_cast<std::uintptr_t>(address));
}

const Module* ModuleByHash(std::uint32_t hash) {
  const Module* last = last_by_hash.load(std::memory_order_acquire);
  if (last != nullptr && last->hash == hash) return last;
  const Module* module = Ask([hash](const Table& table) { return FindHash(table, hash); });
  if (module != nullptr) last_by_hash.store(module, std::memory_order_release);
  return module;
}

}  // namespace manta::base
