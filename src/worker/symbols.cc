#include "worker/symbols.h"

#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace manta::worker {
namespace {

constexpr std::size_t kLongName = 100;

// The array a section holds, or nothing if the file lies about its size.
template <typename T>
std::span<const T> Array(const char* data, std::size_t size, std::size_t offset, std::size_t bytes) {
  if (offset > size || bytes > size - offset || offset % alignof(T) != 0) return {};
  return {reinterpret_cast<const T*>(data + offset), bytes / sizeof(T)};
}

void Replace(std::string* text, std::string_view from, std::string_view to) {
  for (std::size_t at = text->find(from); at != std::string::npos; at = text->find(from, at + to.size())) {
    text->replace(at, from.size(), to);
  }
}

// Behind the bracket that closes the one at `open`. Knows (), <>, {} and []; "->" and operators were dealt with.
std::size_t SkipGroup(std::string_view text, std::size_t open) {
  int depth = 0;
  for (std::size_t i = open; i < text.size(); ++i) {
    if (std::strchr("(<{[", text[i]) != nullptr) ++depth;
    if (text[i] == '>' && i > 0 && text[i - 1] == '-') continue;
    if (std::strchr(")>}]", text[i]) != nullptr && --depth == 0) return i + 1;
  }
  return text.size();
}

}  // namespace

SymbolFile::SymbolFile(const base::Module& module) : bias_(module.bias) {
  // The program's own file may have been replaced since: /proc still names the one that runs.
  const int fd = open(module.program ? "/proc/self/exe" : module.path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  struct stat file{};
  if (fstat(fd, &file) == 0 && file.st_size > static_cast<off_t>(sizeof(ElfW(Ehdr)))) {
    void* data = mmap(nullptr, static_cast<std::size_t>(file.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
    if (data != MAP_FAILED) {
      data_ = static_cast<const char*>(data);
      size_ = static_cast<std::size_t>(file.st_size);
    }
  }
  close(fd);
}

SymbolFile::~SymbolFile() {
  if (data_ != nullptr) munmap(const_cast<char*>(data_), size_);
}

void SymbolFile::Find(std::span<const std::uintptr_t> addresses, std::span<Symbol> found) const {
  for (Symbol& symbol : found) symbol = Symbol();
  if (data_ == nullptr || std::memcmp(data_, ELFMAG, SELFMAG) != 0) return;
  const auto* header = reinterpret_cast<const ElfW(Ehdr)*>(data_);
  const auto sections =
      Array<ElfW(Shdr)>(data_, size_, header->e_shoff, std::size_t{header->e_shnum} * sizeof(ElfW(Shdr)));
  const ElfW(Shdr)* table = nullptr;
  for (const ElfW(Shdr) & section : sections) {
    if (section.sh_type == SHT_SYMTAB || (section.sh_type == SHT_DYNSYM && table == nullptr)) table = &section;
  }
  if (table == nullptr || table->sh_link >= sections.size()) return;
  const auto symbols = Array<ElfW(Sym)>(data_, size_, table->sh_offset, table->sh_size);
  const ElfW(Shdr)& names = sections[table->sh_link];
  const auto text = Array<char>(data_, size_, names.sh_offset, names.sh_size);
  for (const ElfW(Sym) & symbol : symbols) {
    const int type = ELF64_ST_TYPE(symbol.st_info);
    if ((type != STT_FUNC && type != STT_GNU_IFUNC) || symbol.st_value == 0 || symbol.st_name >= text.size()) continue;
    for (std::size_t i = 0; i < addresses.size(); ++i) {
      const std::uintptr_t at = addresses[i] - bias_;
      // Size 0: hand-written assembly, or the stub through which a fixed-address program calls a library.
      if (at - symbol.st_value >= std::max<std::uintptr_t>(symbol.st_size, 1) || !found[i].name.empty()) continue;
      const char* name = text.data() + symbol.st_name;
      found[i] = {{name, strnlen(name, text.size() - symbol.st_name)}, symbol.st_value};
    }
  }
}

std::span<const char> SymbolFile::Section(std::string_view name) const {
  if (data_ == nullptr || std::memcmp(data_, ELFMAG, SELFMAG) != 0) return {};
  const auto* header = reinterpret_cast<const ElfW(Ehdr)*>(data_);
  const auto sections =
      Array<ElfW(Shdr)>(data_, size_, header->e_shoff, std::size_t{header->e_shnum} * sizeof(ElfW(Shdr)));
  if (header->e_shstrndx >= sections.size()) return {};
  const ElfW(Shdr)& names = sections[header->e_shstrndx];
  const auto text = Array<char>(data_, size_, names.sh_offset, names.sh_size);
  for (const ElfW(Shdr) & section : sections) {
    if (section.sh_name >= text.size() || (section.sh_flags & SHF_COMPRESSED) != 0) continue;
    const char* own = text.data() + section.sh_name;
    if (std::string_view(own, strnlen(own, text.size() - section.sh_name)) != name) continue;
    return section.sh_type == SHT_NOBITS ? std::span<const char>()
                                         : Array<char>(data_, size_, section.sh_offset, section.sh_size);
  }
  return {};
}

Place SymbolFile::FindLine(std::uintptr_t address) const {
  const LineSections sections{Section(".debug_line"), Section(".debug_line_str"), Section(".debug_str")};
  return worker::FindLine(sections, address - bias_);
}

std::string Demangle(const char* mangled) {
  int status = 0;
  char* text = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
  if (text == nullptr) return mangled;
  std::string name = text;
  std::free(text);
  // What the compiler split off a function is still that function.
  if (const std::size_t clone = name.find(" [clone"); clone != std::string::npos) name.resize(clone);
  Replace(&name, "std::__cxx11::", "std::");
  Replace(&name, "std::basic_string<char, std::char_traits<char>, std::allocator<char> >", "std::string");
  Replace(&name, "std::basic_string_view<char, std::char_traits<char> >", "std::string_view");
  Replace(&name, "(anonymous namespace)::", "");
  Replace(&name, "[abi:cxx11]", "");
  return name;
}

std::string ShortName(std::string_view demangled) {
  std::string name;
  std::string full(demangled);
  Replace(&full, "(anonymous namespace)::", "");
  if (const std::size_t clone = full.find(" [clone"); clone != std::string::npos) full.resize(clone);
  const std::string_view text = full;
  for (std::size_t i = 0; i < text.size();) {
    if (text.substr(i).starts_with("operator") && (i == 0 || text[i - 1] == ':' || text[i - 1] == ' ')) {
      std::size_t end = i + 8;
      if (text.substr(end).starts_with("()")) {
        end += 2;
      } else {
        while (end < text.size() && text[end] != '(') ++end;  // "operator<<", "operator bool"
      }
      name += text.substr(i, end - i);
      i = end;
    } else if (text.substr(i).starts_with("{lambda(")) {
      const std::size_t end = SkipGroup(text, i);
      const std::size_t number = text.rfind('#', end);
      name += "lambda";
      if (number != std::string_view::npos && number > i) name += text.substr(number, end - 1 - number);
      i = end;
    } else if (text[i] == '(' || (text[i] == '<' && demangled.size() > kLongName)) {
      const bool arguments = text[i] == '(';
      i = SkipGroup(text, i);
      if (arguments && text.substr(i).starts_with(" const")) i += 6;
    } else if (text[i] == '<' || text[i] == '{' || text[i] == '[') {
      const std::size_t end = SkipGroup(text, i);
      for (; i < end; ++i) name += text[i] == ' ' ? '\t' : text[i];  // not a space that ends the result type
    } else if (text[i] == ' ') {
      name.clear();  // that was the result type
      ++i;
    } else {
      name += text[i++];
    }
  }
  std::replace(name.begin(), name.end(), '\t', ' ');
  for (const std::string_view call : {"::_FUN", "::__invoke", "::operator()"}) {
    if (name.ends_with(call) && name.find("lambda") != std::string::npos) name.resize(name.size() - call.size());
  }
  return name.empty() ? full : name;
}

std::size_t PlainName(std::string_view mangled, std::span<char> into) {
  std::size_t length = 0;
  const auto put = [&](std::string_view text) {
    const std::size_t count = std::min(text.size(), into.size() - length);
    std::memcpy(into.data() + length, text.data(), count);
    length += count;
  };
  const auto give_up = [&] {
    length = 0;
    put(mangled);
    return length;
  };
  std::string_view rest = mangled;
  if (!rest.starts_with("_Z")) return give_up();
  rest.remove_prefix(2);
  const bool nested = rest.starts_with("N");
  if (nested) rest.remove_prefix(1);
  while (nested && !rest.empty() && std::strchr("KVrRO", rest[0]) != nullptr) rest.remove_prefix(1);
  std::string_view last;
  while (!rest.empty() && (!nested || rest[0] != 'E')) {
    if (rest[0] == 'L') {
      rest.remove_prefix(1);
    } else if (rest.starts_with("St")) {
      rest.remove_prefix(2);
      put("std");
      if (rest.empty()) return give_up();
    }
    if (rest.size() > 1 && last.data() != nullptr && (rest[0] == 'C' || rest[0] == 'D') && rest[1] >= '0' &&
        rest[1] <= '5') {
      put(rest[0] == 'D' ? "::~" : "::");
      put(last);
      rest.remove_prefix(2);
      continue;
    }
    std::size_t count = 0;
    while (!rest.empty() && rest[0] >= '0' && rest[0] <= '9' && count < mangled.size()) {
      count = count * 10 + static_cast<std::size_t>(rest[0] - '0');
      rest.remove_prefix(1);
    }
    if (count == 0 || count > rest.size()) return give_up();  // a template, an operator, a substitution
    last = rest.substr(0, count);
    rest.remove_prefix(count);
    if (!last.starts_with("_GLOBAL__N")) {
      if (length > 0) put("::");
      put(last);
    }
    if (!nested) break;
  }
  if (!nested && rest.starts_with("I")) return give_up();
  return length == 0 ? give_up() : length;
}

std::string_view FileName(std::string_view path) { return path.substr(path.rfind('/') + 1); }

}  // namespace manta::worker
