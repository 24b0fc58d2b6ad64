// Placement groups and nodes, and how options say where something runs (manta/placement.h).
#include "groups.h"

#include <string>
#include <utility>
#include <vector>

#include "manta/manta.h"
#include "refs.h"

namespace manta::python {
namespace {

bool ReadText(PyObject* value, std::string* out) {
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(value, &size);
  if (text == nullptr) return false;
  out->assign(text, static_cast<std::size_t>(size));
  return true;
}

// [(key, kind, [value])]; the kind is a LabelRule::Is.
bool ReadRules(PyObject* list, std::vector<LabelRule>* out) {
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
    const char* key = nullptr;
    int is = 0;
    PyObject* values = nullptr;
    if (!PyArg_ParseTuple(PyList_GET_ITEM(list, i), "siO!", &key, &is, &PyList_Type, &values)) return false;
    LabelRule rule;
    rule.key = key;
    rule.is = static_cast<LabelRule::Is>(is);
    for (Py_ssize_t j = 0; j < PyList_GET_SIZE(values); ++j) {
      if (!ReadText(PyList_GET_ITEM(values, j), &rule.values.emplace_back())) return false;
    }
    out->push_back(std::move(rule));
  }
  return true;
}

PyObject* AmountsOf(const std::map<std::string, double>& amounts) {
  Obj out(PyDict_New());
  for (const auto& [name, amount] : amounts) {
    const Obj number(PyFloat_FromDouble(amount));
    if (!out || !number || PyDict_SetItemString(out.get(), name.c_str(), number.get()) != 0) return nullptr;
  }
  return out.release();
}

// create_group(bundles: [dict], strategy: int, name, space, detached, labels: [[rule]]) -> id
PyObject* CreateGroup(PyObject*, PyObject* args) {
  PyObject* list = nullptr;
  int strategy = 0;
  const char* name = nullptr;
  const char* space = nullptr;
  int detached = 0;
  PyObject* labels = nullptr;
  if (!PyArg_ParseTuple(args, "O!isspO!", &PyList_Type, &list, &strategy, &name, &space, &detached, &PyList_Type,
                        &labels)) {
    return nullptr;
  }
  GroupOptions options{name, space, detached != 0, {}};
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(labels); ++i) {
    if (!ReadRules(PyList_GET_ITEM(labels, i), &options.labels.emplace_back())) return nullptr;
  }
  std::vector<Bundle> bundles;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
    Bundle& bundle = bundles.emplace_back();
    PyObject* key = nullptr;
    PyObject* value = nullptr;
    Py_ssize_t at = 0;
    while (PyDict_Next(PyList_GET_ITEM(list, i), &at, &key, &value) != 0) {
      std::string text;
      const double amount = PyFloat_AsDouble(value);
      if (PyErr_Occurred() != nullptr || !ReadText(key, &text)) return nullptr;
      bundle[text] = amount;
    }
  }
  return Guard([&] {
    PlacementGroup group;
    {
      const NoGil free;
      group = CreatePlacementGroup(bundles, static_cast<GroupStrategy>(strategy), options);
    }
    return PyUnicode_FromString(group.id().c_str());
  });
}

// remove_group(id)
PyObject* RemoveGroup(PyObject*, PyObject* id) {
  std::string text;
  if (!ReadText(id, &text)) return nullptr;
  return Guard([&] {
    const NoGil free;
    RemovePlacementGroup(PlacementGroup(text));
    return Py_NewRef(Py_None);
  });
}

// find_group(name, space) -> id
PyObject* FindGroup(PyObject*, PyObject* args) {
  const char* name = nullptr;
  const char* space = nullptr;
  if (!PyArg_ParseTuple(args, "ss", &name, &space)) return nullptr;
  return Guard([&] {
    PlacementGroup group;
    {
      const NoGil free;
      group = GetPlacementGroup(name, space);
    }
    return PyUnicode_FromString(group.id().c_str());
  });
}

// wait_group(id, microseconds) -> is it ready?
PyObject* WaitGroup(PyObject*, PyObject* args) {
  const char* id = nullptr;
  long long micros = 0;
  if (!PyArg_ParseTuple(args, "sL", &id, &micros)) return nullptr;
  return Guard([&] {
    bool ready = false;
    {
      const NoGil free;
      ready = PlacementGroup(id).Wait(std::chrono::microseconds(micros));
    }
    return PyBool_FromLong(ready);
  });
}

// groups() -> [(id, name, space, strategy, detached, ready, [bundle], [node], why)]
PyObject* Groups(PyObject*, PyObject*) {
  return Guard([&]() -> PyObject* {
    std::vector<GroupInfo> all;
    {
      const NoGil free;
      all = ListPlacementGroups();
    }
    Obj out(PyList_New(0));
    for (const GroupInfo& info : all) {
      const Obj bundles(PyList_New(0));
      const Obj nodes(PyList_New(0));
      if (!out || !bundles || !nodes) return nullptr;
      for (const Bundle& bundle : info.bundles) {
        const Obj amounts(AmountsOf(bundle));
        if (!amounts || PyList_Append(bundles.get(), amounts.get()) != 0) return nullptr;
      }
      for (const std::string& node : info.nodes) {
        const Obj name(PyUnicode_FromString(node.c_str()));
        if (!name || PyList_Append(nodes.get(), name.get()) != 0) return nullptr;
      }
      const Obj row(Py_BuildValue("sssiOOOOs", info.group.id().c_str(), info.name.c_str(), info.space.c_str(),
                                  static_cast<int>(info.strategy), info.detached ? Py_True : Py_False,
                                  info.ready ? Py_True : Py_False, bundles.get(), nodes.get(), info.why.c_str()));
      if (!row || PyList_Append(out.get(), row.get()) != 0) return nullptr;
    }
    return out.release();
  });
}

// nodes() -> [(number, name, draining, here, labels, resources, available, alive, address, why, store bytes)], with
// the dead ones
PyObject* GetNodes(PyObject*, PyObject*) {
  return Guard([&]() -> PyObject* {
    std::vector<NodeInfo> all;
    {
      const NoGil free;
      all = Nodes(true);
    }
    Obj out(PyList_New(0));
    for (const NodeInfo& node : all) {
      const Obj labels(PyDict_New());
      const Obj resources(AmountsOf(node.resources));
      const Obj available(AmountsOf(node.available));
      if (!out || !labels || !resources || !available) return nullptr;
      for (const auto& [key, value] : node.labels) {
        const Obj text(PyUnicode_FromString(value.c_str()));
        if (!text || PyDict_SetItemString(labels.get(), key.c_str(), text.get()) != 0) return nullptr;
      }
      const Obj row(Py_BuildValue("IsOOOOOOssK", node.number, node.name.c_str(), node.draining ? Py_True : Py_False,
                                  node.here ? Py_True : Py_False, labels.get(), resources.get(), available.get(),
                                  node.alive ? Py_True : Py_False, node.address.c_str(), node.why.c_str(),
                                  static_cast<unsigned long long>(node.store_bytes)));
      if (!row || PyList_Append(out.get(), row.get()) != 0) return nullptr;
    }
    return out.release();
  });
}

PyMethodDef functions[] = {
    {"create_group", CreateGroup, METH_VARARGS, nullptr},
    {"remove_group", RemoveGroup, METH_O, nullptr},
    {"find_group", FindGroup, METH_VARARGS, nullptr},
    {"wait_group", WaitGroup, METH_VARARGS, nullptr},
    {"groups", Groups, METH_NOARGS, nullptr},
    {"nodes", GetNodes, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

bool ReadPlacement(PyObject* where, Placement* out) {
  if (where == nullptr || where == Py_None) return true;
  const char* node = nullptr;
  int soft = 0;
  int spread = 0;
  PyObject* labels = nullptr;
  PyObject* prefer = nullptr;
  const char* group = nullptr;
  int bundle = -1;
  if (!PyTuple_Check(where)) {
    PyErr_SetString(PyExc_TypeError, "manta: a placement is a tuple");
    return false;
  }
  if (!PyArg_ParseTuple(where, "sppO!O!si", &node, &soft, &spread, &PyList_Type, &labels, &PyList_Type, &prefer, &group,
                        &bundle))
    return false;
  out->node = node;
  out->soft = soft != 0;
  out->spread = spread != 0;
  out->group = group;
  out->bundle = bundle;
  return ReadRules(labels, &out->labels) && ReadRules(prefer, &out->prefer);
}

bool AddGroupFunctions(PyObject* module) { return PyModule_AddFunctions(module, functions) == 0; }

}  // namespace manta::python
