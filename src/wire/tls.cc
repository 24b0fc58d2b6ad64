#include "wire/tls.h"

#include <dlfcn.h>

#include <atomic>
#include <mutex>

namespace manta::wire {
namespace {

std::mutex loading;
std::atomic<TlsLibrary*> loaded{nullptr};

// The folder of the library or program that this code is part of.
std::string OwnFolder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&TlsLoaded), &info) == 0 || info.dli_fname == nullptr) return ".";
  const std::string path = info.dli_fname;
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

}  // namespace

bool TlsLoaded() { return loaded.load(std::memory_order_acquire) != nullptr; }

Result<TlsLibrary*> LoadTls() {
  if (TlsLibrary* const library = loaded.load(std::memory_order_acquire); library != nullptr) return library;
  const std::lock_guard lock(loading);
  if (TlsLibrary* const library = loaded.load(std::memory_order_acquire); library != nullptr) return library;
  const std::string folder = OwnFolder();
  void* object = nullptr;
  std::string why;
  // Beside libmanta.so, or from a program in bin/.
  for (const std::string& path : {folder + "/" MANTA_TLS_OBJECT, folder + "/" MANTA_BIN_TO_LIB "/" MANTA_TLS_OBJECT}) {
    object = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (object != nullptr) break;
    why += Cat(why.empty() ? "" : "; ", dlerror());
  }
  if (object == nullptr) {
    return Status(Code::kUnavailable,
                  Cat("cannot load TLS: ", why, "; install libssl3 and the whole Manta package, or stay on loopback"));
  }
  using Entry = TlsLibrary* (*)(const char* version);
  const auto entry = reinterpret_cast<Entry>(dlsym(object, "manta_tls_library"));
  TlsLibrary* const library = entry != nullptr ? entry(MANTA_VERSION) : nullptr;
  if (library == nullptr) {
    return Status(Code::kUnavailable, Cat(MANTA_TLS_OBJECT, " in ", folder, " is of another version than ",
                                          MANTA_VERSION, "; install them together"));
  }
  loaded.store(library, std::memory_order_release);
  return library;
}

}  // namespace manta::wire
