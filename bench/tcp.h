// Bare TCP over loopback, for what goes between nodes to be measured against: no Manta, no encryption, no checks.
//
// The other end of the ping-pong is a process of its own, forked when it is made (before the program has much memory)
// and ended with it. Used by one thread.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <vector>

namespace bench {

class TcpEcho {
 public:
  TcpEcho();
  ~TcpEcho();
  TcpEcho(const TcpEcho&) = delete;
  TcpEcho& operator=(const TcpEcho&) = delete;

  // p50 of a blocking round trip of so many bytes each way, in µs.
  double TripUs(double seconds, std::size_t bytes);
  // Messages a second, there and back: `window` of them in one write, echoed as they come.
  double PerSecond(double seconds, std::size_t bytes, std::size_t window);

 private:
  pid_t child_ = -1;
  int fd_ = -1;
};

// GB/s of so many bytes from memory to memory, both touched before: the better of one and four connections.
class TcpBulk {
 public:
  explicit TcpBulk(std::size_t bytes);
  ~TcpBulk();
  TcpBulk(const TcpBulk&) = delete;
  TcpBulk& operator=(const TcpBulk&) = delete;
  double GigabytesPerSecond();

 private:
  double Seconds(std::size_t connections);

  std::size_t bytes_;
  std::byte* from_;
  std::byte* into_;
};

}  // namespace bench
