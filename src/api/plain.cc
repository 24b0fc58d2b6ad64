// Names that other languages call (manta/internal/plain_call.h), and what reading plain values needs of the library.
#include <dlfcn.h>

#include <atomic>
#include <map>
#include <mutex>

#include "manta/internal/plain_call.h"
#include "manta/python.h"
#include "types/text.h"

namespace manta::internal {
namespace {

struct Table {
  std::recursive_mutex mutex;  // statics of a library register while it is being loaded
  std::map<std::string, std::map<std::string, PlainCode>> libraries;  // "": the program and what it is linked with
  std::string loading;
};
Table& TheTable() {
  static auto* table = new Table();
  return *table;
}

std::atomic<PickleReader> g_pickle_reader{nullptr};

}  // namespace

void RegisterPlain(const std::string& name, const PlainCode& code) {
  Table& table = TheTable();
  const std::lock_guard lock(table.mutex);
  table.libraries[table.loading][name] = code;
}

const PlainCode* FindPlain(const std::string& library, const std::string& name) {
  Table& table = TheTable();
  const std::lock_guard lock(table.mutex);
  const auto names = table.libraries.find(library);
  if (names == table.libraries.end()) return nullptr;
  const auto it = names->second.find(name);
  return it == names->second.end() ? nullptr : &it->second;  // never erased
}

std::vector<std::string> PlainNames(const std::string& library) {
  Table& table = TheTable();
  const std::lock_guard lock(table.mutex);
  std::vector<std::string> names;
  for (const auto& [name, code] : table.libraries[library]) names.push_back(name);
  return names;
}

void LoadPlainLibrary(const std::string& path) {
  Table& table = TheTable();
  const std::lock_guard lock(table.mutex);
  if (path.empty() || table.libraries.contains(path)) return;
  table.loading = path;
  // Local: two libraries may have functions of one name. Never closed: calls may be under way.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  table.loading.clear();
  if (library == nullptr) {
    table.libraries.erase(path);
    const char* why = dlerror();
    throw NotFoundError(Cat("cannot load the library '", path, "': ", why == nullptr ? "no reason given" : why));
  }
  if (!table.libraries.contains(path)) {
    throw NotFoundError(Cat("the library '", path,
                            "' names nothing for other languages (MANTA_REMOTE, MANTA_REMOTE_CLASS), or was loaded "
                            "before by other means"));
  }
}

const char* PlainTagName(PlainTag tag) {
  static constexpr const char* kNames[] = {"None",         "bool",     "bool",
                                           "int",          "float",    "str",
                                           "bytes",        "tuple",    "a pickled object",
                                           "list",         "dict",     "an array",
                                           "an ObjectRef", "an actor", "an Arrow table",
                                           "int"};
  const auto index = static_cast<std::size_t>(tag);
  return index < std::size(kNames) ? kNames[index] : "something unknown";
}

void ThrowNotReadable(PlainTag tag, const char* wanted) {
  throw InvalidError(Cat("a value of another language (", PlainTagName(tag), ") cannot be read as ", wanted));
}

void SetPickleReader(PickleReader reader) { g_pickle_reader.store(reader); }

View PlainOfPickle(View pickle, KeepAlive* keep) {
  const PickleReader reader = g_pickle_reader.load();
  if (reader == nullptr) {
    throw InvalidError(
        "this value was pickled by Python, which this process has not: let Python send None, bool, int, float, str, "
        "bytes, lists, dicts and arrays of numbers");
  }
  return reader(pickle, keep);
}

}  // namespace manta::internal
