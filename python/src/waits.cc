#include "waits.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <vector>

#include "refs.h"
#include "values.h"

namespace manta::python {
namespace {

using Clock = std::chrono::steady_clock;

// Between two looks for Ctrl-C; in a worker, where each end of a wait takes back the task's CPUs, for a cancel.
std::int64_t SliceUs() { return in_worker ? 1'000'000 : 100'000; }

// What is being brought here is looked at so often, for others may come earlier.
constexpr std::int64_t kLookUs = 50'000;

// Seconds as Python gives them (None: for ever) as microseconds. false: a Python error is set.
bool ReadTimeout(PyObject* seconds, std::int64_t* micros) {
  *micros = internal::kForever;
  if (seconds == nullptr || seconds == Py_None) return true;
  const double value = PyFloat_AsDouble(seconds);
  if (value == -1 && PyErr_Occurred() != nullptr) return false;
  if (std::isnan(value) || value < 0) {
    PyErr_Format(PyExc_ValueError, "timeout must be a number of seconds, 0 or more, or None; not %R", seconds);
    return false;
  }
  if (value < 1e12) *micros = static_cast<std::int64_t>(value * 1e6);
  return true;
}

// Until all (or `count`) are ready or the time is up, looking for Ctrl-C meanwhile. -1: a Python error is set.
Py_ssize_t WaitFor(std::span<internal::Entry* const> entries, std::size_t count, std::int64_t timeout_us,
                   std::vector<bool>* ready) {
  const auto start = Clock::now();
  for (;;) {
    std::int64_t slice = SliceUs();
    if (timeout_us >= 0) {
      const std::int64_t gone = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start).count();
      slice = std::clamp<std::int64_t>(timeout_us - gone, 0, slice);
    }
    std::size_t number = 0;
    {
      const NoGil free;
      number = internal::WaitSome(entries, count, slice, ready, /*comes_again=*/timeout_us < 0);
    }
    if (number >= count) return static_cast<Py_ssize_t>(number);
    if (PyErr_CheckSignals() != 0) return -1;
    if (timeout_us >= 0 && Clock::now() - start >= std::chrono::microseconds(timeout_us))
      return static_cast<Py_ssize_t>(number);
  }
}

PyObject* ValueOf(internal::Entry* entry) {
  KeepAlive keep;
  internal::View view;
  if (internal::IsElsewhere(entry)) {
    const NoGil free;  // it is brought here
    view = internal::Await(entry, internal::kForever, &keep);
  } else {
    view = internal::Await(entry, internal::kForever, &keep);
  }
  return DecodeValue(view, keep);
}

// As WaitFor, but what lies in another node's store is ready when it has been brought here.
Py_ssize_t WaitForHere(std::span<internal::Entry* const> entries, std::size_t count, std::int64_t timeout_us,
                       std::vector<bool>* ready) {
  const auto start = Clock::now();
  std::vector<bool> asked(entries.size(), false);
  for (;;) {
    std::int64_t left = timeout_us;
    if (timeout_us >= 0) {
      const std::int64_t gone = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start).count();
      left = std::max<std::int64_t>(timeout_us - gone, 0);
    }
    Py_ssize_t number = WaitFor(entries, count, left, ready);
    if (number < 0) return -1;
    std::vector<internal::Entry*> far;
    std::vector<internal::Entry*> news;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (!(*ready)[i] || !internal::IsElsewhere(entries[i])) continue;
      (*ready)[i] = false;
      --number;
      far.push_back(entries[i]);
      if (!asked[i]) news.push_back(entries[i]);
      asked[i] = true;
    }
    if (!news.empty()) internal::FetchAhead(news);
    if (far.empty() || number >= static_cast<Py_ssize_t>(count)) return number;
    if (timeout_us >= 0 && Clock::now() - start >= std::chrono::microseconds(timeout_us)) return number;
    const NoGil free;  // they are all on their way: the first is as good as any to wait for
    static_cast<void>(internal::FetchHere(far[0], left < 0 ? kLookUs : std::min(left, kLookUs)));
  }
}

PyObject* TimedOut(std::size_t ready, std::size_t all, PyObject* timeout) {
  PyErr_Format(PyTuple_GET_ITEM(hooks.errors, static_cast<int>(Code::kTimedOut)),
               "get: %zu of %zu values were there after %S s; their tasks go on: get them again, or cancel them", ready,
               all, timeout);
  return nullptr;
}

PyObject* GetOne(PyObject* ref, std::int64_t timeout_us, PyObject* timeout) {
  internal::Entry* entry = EntryOf(ref);
  if (!internal::IsReady(entry)) {
    std::vector<bool> ready;
    internal::Entry* const entries[] = {entry};
    const Py_ssize_t number = WaitFor(entries, 1, timeout_us, &ready);
    if (number < 0) return nullptr;
    if (number == 0) return TimedOut(0, 1, timeout);
  }
  return ValueOf(entry);
}

bool EntriesIn(PyObject* list, const char* function, std::vector<internal::Entry*>* out) {
  const Py_ssize_t count = PyList_GET_SIZE(list);
  out->reserve(static_cast<std::size_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* item = PyList_GET_ITEM(list, i);
    if (!IsRef(item)) {
      PyErr_Format(PyExc_TypeError, "%s takes ObjectRefs; item %zd of the list is %.100s", function, i,
                   Py_TYPE(item)->tp_name);
      return false;
    }
    out->push_back(EntryOf(item));
  }
  return true;
}

// The first failure in the list's order ends the wait, also while later ones are not ready.
bool AwaitAll(std::span<internal::Entry* const> entries, std::int64_t timeout_us, PyObject* timeout) {
  const auto start = Clock::now();
  const auto count_ready = [&] {
    return std::count_if(entries.begin(), entries.end(), [](const auto* entry) { return internal::IsReady(entry); });
  };
  const auto show = [&](std::ptrdiff_t ready) {
    const Obj done(PyObject_CallFunction(hooks.progress, "nn", ready, static_cast<Py_ssize_t>(entries.size())));
    return static_cast<bool>(done);
  };
  bool shown = false;
  // With a Python error set: the line of progress must not stay.
  const auto give_up = [&] {
    PyObject* type = nullptr;
    PyObject* value = nullptr;
    PyObject* trace = nullptr;
    PyErr_Fetch(&type, &value, &trace);
    if (shown && !show(static_cast<std::ptrdiff_t>(entries.size()))) PyErr_Clear();
    PyErr_Restore(type, value, trace);
    return false;
  };
  for (;;) {
    std::int64_t slice = SliceUs();
    if (timeout_us >= 0) {
      const std::int64_t gone = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start).count();
      slice = std::clamp<std::int64_t>(timeout_us - gone, 0, slice);
    }
    bool late = false;
    {
      const NoGil free;
      try {
        internal::AwaitAll(entries, slice, /*comes_again=*/timeout_us < 0);
      } catch (const TimeoutError&) {
        late = true;
      }
    }
    if (!late) return !shown || show(static_cast<std::ptrdiff_t>(entries.size()));
    if (PyErr_CheckSignals() != 0) return give_up();
    const std::ptrdiff_t ready = count_ready();
    if (timeout_us < 0 || Clock::now() - start < std::chrono::microseconds(timeout_us)) {
      shown = true;
      if (!show(ready)) return false;
      continue;
    }
    TimedOut(static_cast<std::size_t>(ready), entries.size(), timeout);
    return give_up();
  }
}

// get(refs, timeout=None)
PyObject* Get(PyObject*, PyObject* const* args, Py_ssize_t positional, PyObject* names) {
  PyObject* timeout = nullptr;
  const Py_ssize_t keywords = names == nullptr ? 0 : PyTuple_GET_SIZE(names);
  if (keywords == 1 && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "timeout") == 0)
    timeout = args[positional];
  if (positional != 1 || keywords > 1 || (keywords == 1 && timeout == nullptr)) {
    PyErr_SetString(PyExc_TypeError, "get takes one ObjectRef or a list of them, and timeout=");
    return nullptr;
  }
  std::int64_t timeout_us = 0;
  if (!ReadTimeout(timeout, &timeout_us)) return nullptr;
  PyObject* refs = args[0];
  return Guard([&]() -> PyObject* {
    if (IsRef(refs)) return GetOne(refs, timeout_us, timeout);
    if (!PyList_Check(refs)) {
      if (PyObject_HasAttrString(refs, "_manta_generator") != 0) return Py_NewRef(refs);  // it is its own value
      PyErr_Format(PyExc_ValueError, "get takes an ObjectRef or a list of ObjectRefs, not %.100s",
                   Py_TYPE(refs)->tp_name);
      return nullptr;
    }
    // Another thread may change the list.
    const Obj list(PyList_GetSlice(refs, 0, PyList_GET_SIZE(refs)));
    std::vector<internal::Entry*> entries;
    if (!list || !EntriesIn(list.get(), "get", &entries)) return nullptr;
    if (!entries.empty() && !AwaitAll(entries, timeout_us, timeout)) return nullptr;
    internal::FetchAhead(entries);
    Obj values(PyList_New(static_cast<Py_ssize_t>(entries.size())));
    for (std::size_t i = 0; values && i < entries.size(); ++i) {
      PyObject* value = ValueOf(entries[i]);
      if (value == nullptr) return nullptr;
      PyList_SET_ITEM(values.get(), static_cast<Py_ssize_t>(i), value);
    }
    return values.release();
  });
}

// Has the list an object twice? An object has one entry, so a table of entries tells. The table is kept between calls
// and emptied by counting up `round`: filling it anew would cost more than the rest of a wait. Only with the GIL.
bool HasTwice(std::span<internal::Entry* const> entries) {
  struct Seen {
    internal::Entry* entry;
    std::uint64_t round;
  };
  static std::vector<Seen> table;
  static std::uint64_t round = 0;
  if (table.size() < 2 * entries.size()) table.assign(std::bit_ceil(std::max<std::size_t>(2 * entries.size(), 64)), {});
  ++round;
  const std::size_t mask = table.size() - 1;
  for (internal::Entry* entry : entries) {
    std::size_t at = (reinterpret_cast<std::uintptr_t>(entry) >> 6) * 0x9e3779b1U & mask;
    for (; table[at].round == round; at = (at + 1) & mask) {
      if (table[at].entry == entry) return true;
    }
    table[at] = Seen{entry, round};
  }
  return false;
}

// The positions of the first `count` that can be had at once; fewer: wait for the others.
std::vector<std::size_t> FirstReady(std::span<internal::Entry* const> entries, std::size_t count, bool here) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < entries.size() && found.size() < count; ++i) {
    if (internal::IsReady(entries[i]) && !(here && internal::IsElsewhere(entries[i]))) found.push_back(i);
  }
  return found;
}

// Takes the items at these positions out of the list, in order. Runs of items that stay move at once.
PyObject* TakeOut(PyObject* list, const std::vector<std::size_t>& positions) {
  Obj taken(PyList_New(static_cast<Py_ssize_t>(positions.size())));
  if (!taken || positions.empty()) return taken.release();
  for (std::size_t i = 0; i < positions.size(); ++i) {
    PyObject* item = PyList_GET_ITEM(list, static_cast<Py_ssize_t>(positions[i]));
    PyList_SET_ITEM(taken.get(), static_cast<Py_ssize_t>(i), Py_NewRef(item));
  }
  const Py_ssize_t all = PyList_GET_SIZE(list);
  auto to = static_cast<Py_ssize_t>(positions.front());
  std::size_t next = 0;
  for (Py_ssize_t from = to; from < all; ++from) {
    if (next < positions.size() && positions[next] == static_cast<std::size_t>(from)) {
      ++next;
      if (positions.size() > 1) continue;
      // The usual case, one item: the interpreter moves all behind it.
      return PyList_SetSlice(list, from, from + 1, nullptr) == 0 ? taken.release() : nullptr;
    }
    PyObject* item = PyList_GET_ITEM(list, from);  // both places keep an item until the end is cut off
    PyObject* old = PyList_GET_ITEM(list, to);
    PyList_SET_ITEM(list, to++, item);
    PyList_SET_ITEM(list, from, old);
  }
  return PyList_SetSlice(list, to, all, nullptr) == 0 ? taken.release() : nullptr;
}

// wait(refs: list, num_returns: int, timeout, fetch_local: bool) -> (ready, rest)
PyObject* Wait(PyObject*, PyObject* args) {
  PyObject* refs = nullptr;
  Py_ssize_t count = 0;
  PyObject* timeout = nullptr;
  int fetch = 0;
  std::int64_t timeout_us = 0;
  if (!PyArg_ParseTuple(args, "O!nOp", &PyList_Type, &refs, &count, &timeout, &fetch) ||
      !ReadTimeout(timeout, &timeout_us))
    return nullptr;
  return Guard([&]() -> PyObject* {
    // Another thread may change the list.
    const Obj rest(PyList_GetSlice(refs, 0, PyList_GET_SIZE(refs)));
    std::vector<internal::Entry*> entries;
    if (!rest || !EntriesIn(rest.get(), "wait", &entries)) return nullptr;
    if (HasTwice(entries)) {
      PyErr_SetString(PyExc_ValueError, "wait: the list has an ObjectRef twice");
      return nullptr;
    }
    const auto wanted = static_cast<std::size_t>(count);
    std::vector<std::size_t> found = FirstReady(entries, wanted, fetch != 0);
    if (found.size() < wanted) {
      std::vector<bool> is_ready;
      const auto wait = fetch != 0 ? &WaitForHere : &WaitFor;
      if (wait(entries, wanted, timeout_us, &is_ready) < 0) return nullptr;
      found.clear();
      for (std::size_t i = 0; i < entries.size() && found.size() < wanted; ++i) {
        if (is_ready[i]) found.push_back(i);
      }
    }
    const Obj ready(TakeOut(rest.get(), found));
    return ready ? PyTuple_Pack(2, ready.get(), rest.get()) : nullptr;
  });
}

PyObject* AllRefs(PyObject*, PyObject* list) {
  if (!PyList_Check(list)) Py_RETURN_FALSE;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
    if (!IsRef(PyList_GET_ITEM(list, i))) Py_RETURN_FALSE;
  }
  Py_RETURN_TRUE;
}

// cancel(ref, force, recursive)
PyObject* Cancel(PyObject*, PyObject* args) {
  PyObject* ref = nullptr;
  int force = 0;
  int recursive = 1;
  if (!PyArg_ParseTuple(args, "O!pp", ref_type, &ref, &force, &recursive)) return nullptr;
  return Guard([&] {
    if (recursive != 0) {
      internal::CancelTree(EntryOf(ref), force != 0);
    } else {
      internal::Cancel(EntryOf(ref), force != 0);
    }
    return Py_NewRef(Py_None);
  });
}

PyMethodDef functions[] = {
    {"get", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&Get)), METH_FASTCALL | METH_KEYWORDS,
     "get(object_refs, *, timeout=None)\n--\n\nThe value, or the list of values; raises what a task raised."},
    {"wait", Wait, METH_VARARGS, nullptr},
    {"all_refs", AllRefs, METH_O, "Is this a list of ObjectRefs and nothing else?"},
    {"cancel", Cancel, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

bool AddWaitFunctions(PyObject* module) { return PyModule_AddFunctions(module, functions) == 0; }

}  // namespace manta::python
