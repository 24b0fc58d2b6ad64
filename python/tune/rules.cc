#include "rules.h"

#include "options.h"

namespace manta::python {

tune::TrialResources ResourcesOf(PyObject* pair) {
  PyObject* bundles = nullptr;
  const char* strategy = nullptr;
  if (!PyArg_ParseTuple(pair, "Os", &bundles, &strategy)) throw PythonError{};
  tune::TrialResources out;
  out.bundles.clear();
  out.strategy = strategy;
  const Held items = Must(PySequence_Fast(bundles, "bundles must be a list"));
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i)
    out.bundles.push_back(AmountsOf(PySequence_Fast_GET_ITEM(items.get(), i)));
  return out;
}

tune::journal::Description DescriptionOf(PyObject* dict) {
  tune::journal::Description out;
  PyObject* key = nullptr;
  PyObject* value = nullptr;
  Py_ssize_t at = 0;
  while (PyDict_Next(dict, &at, &key, &value) != 0) out[TextOf(key)] = TextOf(value);
  return out;
}

tune::trials::RunRules RulesOf(PyObject* dict) {
  Options given(dict);
  tune::trials::RunRules rules;
  given.ForEach("objectives", [&](PyObject* pair) {
    rules.objectives.push_back({TextOf(PyTuple_GET_ITEM(pair, 0)),
                                TextOf(PyTuple_GET_ITEM(pair, 1)) == "max" ? tune::Mode::kMax : tune::Mode::kMin});
  });
  given.Read("time_attr", rules.time_attr);
  given.Read("num_samples", rules.num_samples);
  given.Read("max_concurrent", rules.max_concurrent);
  given.Read("queue_ahead", rules.queue_ahead);
  given.Read("max_starting", rules.max_starting);
  given.Read("time_budget", rules.time_budget);
  given.Read("strict_metric", rules.strict_metric);
  given.Read("can_save", rules.can_save);
  given.Read("reuse_actors", rules.reuse_actors);
  given.Read("window", rules.window);
  if (PyObject* resources = given.Find("resources")) rules.resources = ResourcesOf(resources);
  given.Read("max_failures", rules.failure.max_failures);
  given.Read("fail_fast", rules.failure.fail_fast);
  given.Read("count_lost", rules.failure.count_lost);
  given.Read("backoff", rules.failure.backoff);
  if (PyObject* keep = given.Find("num_to_keep")) rules.checkpoint.num_to_keep = PyLong_AsLongLong(keep);
  given.Read("score_attribute", rules.checkpoint.score_attribute);
  given.Read("score_order", rules.checkpoint.score_order);
  given.Read("at_end", rules.checkpoint.at_end);
  given.Done("the rules of a run");
  return rules;
}

}  // namespace manta::python
