// Cancelling a running call: somebody looks every few milliseconds whether the callers want what runs, and raises
// KeyboardInterrupt in a main thread (as Ctrl-C would, so that time.sleep ends) or TaskCancelledError in another.
#pragma once

#include "py.h"

namespace manta::python {

// One per running call, on its thread; made and destroyed without the GIL or with it.
class Interruptible {
 public:
  explicit Interruptible(const internal::Invocation& call);
  ~Interruptible();
  Interruptible(const Interruptible&) = delete;

  // The call's code has ended: nobody is interrupted after this. With the GIL. True: it was asked to stop.
  bool End();

 private:
  std::size_t slot_;
  bool ended_ = false;
};

// Was the call that this thread runs asked to stop? With the GIL.
bool OwnCallCancelled();

}  // namespace manta::python
