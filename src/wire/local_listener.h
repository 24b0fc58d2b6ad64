// LocalListener accepts connections of processes of the same user on the same machine, at an abstract Unix socket
// ("@name": gone with the process, no file): the kernel says who they are.
//
// Threads: one loop's.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/fd.h"
#include "base/loop.h"
#include "types/status.h"

namespace manta::wire {

class LocalListener {
 public:
  using OnAccept = std::function<void(base::Fd socket)>;  // non-blocking, of a peer with our user id

  // `who` we are, for messages: "mantad".
  static Result<std::unique_ptr<LocalListener>> Listen(base::Loop& loop, const std::string& address, std::string who,
                                                       OnAccept on_accept);
  ~LocalListener();
  LocalListener(const LocalListener&) = delete;
  LocalListener& operator=(const LocalListener&) = delete;

 private:
  LocalListener(base::Loop& loop, std::string who, OnAccept on_accept)
      : loop_(loop), who_(std::move(who)), on_accept_(std::move(on_accept)) {}
  void Accept();

  base::Loop& loop_;
  const std::string who_;
  OnAccept on_accept_;
  base::Fd socket_;
  base::Fd spare_;  // given up for a moment when there are no descriptors left
};

}  // namespace manta::wire
