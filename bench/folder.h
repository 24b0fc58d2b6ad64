// A folder for the files of a workload, gone with the object.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "harness.h"

namespace bench {

class Folder {
 public:
  Folder() {
    const char* parent = std::getenv("TMPDIR");
    path_ = std::string(parent != nullptr && *parent != '\0' ? parent : "/tmp") + "/manta-bench-XXXXXX";
    if (mkdtemp(path_.data()) == nullptr) Fail("cannot make the folder " + path_);
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace bench
