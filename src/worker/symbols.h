// Names of functions from ELF symbol tables (.symtab, or .dynsym if the file was stripped).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/program.h"
#include "worker/lines.h"

namespace manta::worker {

struct Symbol {
  std::string_view name;     // mangled; valid while the file stays mapped
  std::uintptr_t value = 0;  // what the symbol table says; its address is value + module.bias
};

// The file of a module, mapped as long as this lives. Allocates nothing: fit for a signal handler.
class SymbolFile {
 public:
  explicit SymbolFile(const base::Module& module);
  ~SymbolFile();
  SymbolFile(const SymbolFile&) = delete;
  SymbolFile& operator=(const SymbolFile&) = delete;

  // One pass for all: found[i] is the function that holds addresses[i], its name empty if none does.
  void Find(std::span<const std::uintptr_t> addresses, std::span<Symbol> found) const;
  // Where the source of this address is; line 0 if the file has no debug information, or has it compressed or
  // elsewhere.
  [[nodiscard]] Place FindLine(std::uintptr_t address) const;

 private:
  // The contents of the section of this name; empty if there is none.
  [[nodiscard]] std::span<const char> Section(std::string_view name) const;

  std::uintptr_t bias_ = 0;
  const char* data_ = nullptr;
  std::size_t size_ = 0;
};

// "Parse(std::string const&)": demangled, with the library's long spellings shortened.
[[nodiscard]] std::string Demangle(const char* mangled);
// "ns::Parse" of "int ns::Parse<int>(char const*)": no result, no arguments, no anonymous namespaces; no
// template arguments either if they are long.
[[nodiscard]] std::string ShortName(std::string_view demangled);
// For a signal handler: "ns::Parse" of the simple names, anything else stays mangled. Returns the length.
std::size_t PlainName(std::string_view mangled, std::span<char> into);
// "my_program" of "/home/me/my_program".
[[nodiscard]] std::string_view FileName(std::string_view path);

}  // namespace manta::worker
