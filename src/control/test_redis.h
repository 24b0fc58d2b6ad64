// For this room's tests: a redis-server, if there is one.
#pragma once

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "control/test_server.h"

namespace manta::control {

class RedisServer : public TestServer {
 public:
  void Start(const std::string& folder, std::vector<std::string> more) {
    std::vector<std::string> words{"redis-server", "--dir", folder,       "--save", "",
                                   "--daemonize",  "no",    "--loglevel", "warning"};
    words.insert(words.end(), more.begin(), more.end());
    Run(std::move(words));
  }
};

inline bool HasRedis() {
  static const bool has = std::system("redis-server --version >/dev/null 2>&1") == 0;
  return has;
}

}  // namespace manta::control
