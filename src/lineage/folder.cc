#include "lineage/folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "manta/codec.h"

namespace manta::lineage {
namespace {

constexpr std::size_t kMostName = 100;

Status Trouble(const std::string& what, const std::string& path) {
  return Status(Code::kIo, Cat(what, " ", path, ": ", std::strerror(errno)));
}

Status MakeFolder(const std::string& path) {
  if (mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return {};
  return Trouble("cannot make the folder", path);
}

Status MakeFolders(const std::string& state, const std::string& folder) {
  for (const std::string& path : {state, Cat(state, "/jobs"), folder}) {
    if (Status s = MakeFolder(path); !s.ok()) return s;
  }
  return {};
}

Status WriteNote(const std::string& folder, const JobNote& note) {
  const std::string path = Cat(folder, "/job");
  const std::string fresh = path + ".new";
  std::vector<std::byte> bytes(EncodedSize(note));
  Encode(note, bytes);
  {
    const base::Fd file(open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    if (!file.valid()) return Trouble("cannot make", fresh);
    if (write(file.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
      return Trouble("cannot write", fresh);
    }
  }
  if (rename(fresh.c_str(), path.c_str()) != 0) return Trouble("cannot rename", fresh);
  return {};
}

}  // namespace

Status CheckJobName(const std::string& name) {
  const bool good = !name.empty() && name.size() <= kMostName && name[0] != '.' &&
                    std::all_of(name.begin(), name.end(), [](unsigned char c) {
                      return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-';
                    });
  if (good) return {};
  return Status(Code::kInvalid, Cat("'", name, "' is no name of a job: up to ", kMostName,
                                    " letters, digits, '.', '_' and '-', not beginning with '.'"));
}

std::string FolderOf(const std::string& state, const std::string& name) { return Cat(state, "/jobs/", name); }

Result<JobNote> ReadNote(const std::string& folder) {
  std::ifstream file(folder + "/job", std::ios::binary);
  if (!file) return Status(Code::kNotFound, Cat("no job has left anything in ", folder));
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  try {
    return Decode<JobNote>(std::as_bytes(std::span(text)));
  } catch (const Error& error) {
    return Status(Code::kCorrupt, Cat(folder, "/job is damaged: ", error.what()));
  }
}

std::vector<std::string> LineageFiles(const std::string& folder) {
  std::vector<std::pair<unsigned long, std::string>> found;  // by run
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename();
    unsigned node = 0;
    unsigned long run = 0;
    if (std::sscanf(name.c_str(), "lineage-%u-%lu.log", &node, &run) == 2) found.emplace_back(run, entry.path());
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> paths;
  paths.reserve(found.size());
  for (auto& [run, path] : found) paths.push_back(std::move(path));
  return paths;
}

std::vector<std::string> JobsIn(const std::string& state) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(state + "/jobs", error)) {
    if (entry.is_directory(error)) names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Result<JobFolder> JobFolder::Open(const std::string& state, const std::string& name, bool resume, JobNote* note,
                                  bool* resumed) {
  if (Status s = CheckJobName(name); !s.ok()) return s;
  if (state.empty()) {
    return Status(Code::kInvalid, "a job with a name needs a folder for its lineage, and there is no HOME");
  }
  JobFolder folder;
  folder.path_ = FolderOf(state, name);
  if (Status s = MakeFolders(state, folder.path_); !s.ok()) return s;
  const std::string lock = folder.path_ + "/lock";
  folder.lock_.Reset(open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!folder.lock_.valid()) return Trouble("cannot make", lock);
  if (flock(folder.lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    return Status(Code::kUnavailable, Cat("the job '", name, "' runs already (", lock,
                                          " is locked); wait for its end, or give this one another name"));
  }
  *resumed = false;
  if (resume) {
    Result<JobNote> before = ReadNote(folder.path_);
    if (before.ok()) {
      *note = std::move(*before);
      *resumed = true;
      return folder;
    }
    if (before.status().code() != Code::kNotFound) return before.status();
  }
  std::error_code error;
  for (const std::string& path : LineageFiles(folder.path_)) unlink(path.c_str());
  std::filesystem::remove_all(folder.path_ + "/objects", error);
  note->name = name;
  if (Status s = WriteNote(folder.path_, *note); !s.ok()) return s;
  return folder;
}

Result<JobFolder> JobFolder::Join(const std::string& state, const std::string& name) {
  if (Status s = CheckJobName(name); !s.ok()) return s;
  JobFolder folder;
  folder.path_ = FolderOf(state, name);
  if (Status s = MakeFolders(state, folder.path_); !s.ok()) return s;
  return folder;
}

std::string JobFolder::NewFile(std::uint32_t node) const {
  unsigned long last = 0;
  for (const std::string& path : LineageFiles(path_)) {
    unsigned of = 0;
    unsigned long run = 0;
    const std::string name = path.substr(path.rfind('/') + 1);
    if (std::sscanf(name.c_str(), "lineage-%u-%lu.log", &of, &run) == 2) last = std::max(last, run);
  }
  return Cat(path_, "/lineage-", node, "-", last + 1, ".log");
}

Status JobFolder::Sync() const {
  const std::string jobs = path_.substr(0, path_.rfind('/'));
  for (const std::string& path : {path_ + "/job", path_, jobs, jobs.substr(0, jobs.rfind('/'))}) {
    const base::Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file.valid() || fsync(file.get()) != 0) return Trouble("cannot sync", path);
  }
  return {};
}

void JobFolder::Remove() {
  std::error_code error;
  std::filesystem::remove_all(path_, error);
}

}  // namespace manta::lineage
