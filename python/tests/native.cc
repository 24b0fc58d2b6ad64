// The library that test_cross_language.py loads.
#include <cstdint>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "manta/arrow.h"
#include "manta/manta.h"
#include "manta/python.h"

namespace {

int Add(int a, int b) { return a + b; }
MANTA_REMOTE(Add)

std::string Greet(const std::string& name, std::optional<int> times) {
  std::string out;
  for (int i = 0; i < times.value_or(1); ++i) out += "hello " + name + (i + 1 < times.value_or(1) ? ", " : "");
  return out;
}
MANTA_REMOTE(Greet)

double Sum(const manta::Array<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum;
}
MANTA_REMOTE(Sum)

// Is it memory that is shared with other processes, and not a copy of this one's?
bool IsShared(const void* address) {
  std::ifstream maps("/proc/self/maps");
  const auto at = reinterpret_cast<std::uint64_t>(address);
  for (std::string line; std::getline(maps, line);) {
    std::size_t used = 0;
    const std::uint64_t begin = std::stoull(line, &used, 16);
    const std::uint64_t end = std::stoull(line.substr(used + 1), nullptr, 16);
    if (begin <= at && at < end) return line.substr(line.find(' ') + 1, 4).back() == 's';
  }
  return false;
}

bool InPlace(const manta::Array<double>& values) { return IsShared(values.data()); }
MANTA_REMOTE(InPlace)

manta::Array<float> Squares(std::uint32_t count) {
  std::vector<float> out;
  for (std::uint32_t i = 0; i < count; ++i) out.push_back(static_cast<float>(i) * static_cast<float>(i));
  return manta::Array<float>(std::move(out));
}
MANTA_REMOTE(Squares)

manta::Tensor<double> Transposed(const manta::Tensor<double>& matrix) {
  const std::size_t rows = matrix.shape.at(0);
  const std::size_t columns = matrix.shape.at(1);
  std::vector<double> out(rows * columns);
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < columns; ++j) out[j * rows + i] = matrix.values[i * columns + j];
  }
  return {{columns, rows}, manta::Array<double>(std::move(out))};
}
MANTA_REMOTE(Transposed)

std::map<std::string, std::vector<std::string>> Grouped(const std::vector<std::pair<std::string, std::string>>& pairs) {
  std::map<std::string, std::vector<std::string>> out;
  for (const auto& [key, value] : pairs) out[key].push_back(value);
  return out;
}
MANTA_REMOTE(Grouped)

using Anything = std::variant<std::monostate, bool, std::int64_t, double, std::string, std::vector<std::byte>>;
Anything Echo(const Anything& value) { return value; }
MANTA_REMOTE(Echo)

std::tuple<int, std::string> Two() { return {1, "two"}; }
MANTA_REMOTE(Two)

int Fails(const std::string& why) { throw std::out_of_range(why); }
MANTA_REMOTE(Fails)

void Nothing() {}
MANTA_REMOTE(Nothing)

// Takes the Ref itself, and gives another.
manta::Ref<manta::PlainValue<int>> Forward(const manta::Ref<manta::PlainValue<int>>& ref) { return ref; }
MANTA_REMOTE(Forward)
int Through(const manta::Ref<manta::PlainValue<int>>& ref) { return *ref.Get() + 1; }
MANTA_REMOTE(Through)

// A Python function called from C++ that runs in a Python worker.
double Root(double x) { return *manta::PyTask<double>("math", "sqrt").Remote(x).Get(); }
MANTA_REMOTE(Root)

struct Secret {
  int inside = 0;
};
int Hidden(Secret secret) { return secret.inside; }
MANTA_REMOTE(Hidden)  // its type cannot cross: C++ alone calls it

// The sum of the first column (int64), and whether its values are in the store.
std::pair<std::int64_t, bool> FirstColumn(const manta::ArrowBatch& batch) {
  const ArrowArray& column = *batch.array().children[0];
  const auto* values = static_cast<const std::int64_t*>(column.buffers[1]) + column.offset;
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < column.length; ++i) sum += values[i];
  return {sum, IsShared(values)};
}
MANTA_REMOTE(FirstColumn)

std::int64_t RowsOf(const manta::ArrowTable& table) { return table.rows(); }
MANTA_REMOTE(RowsOf)

// A batch made in C++: one column "n" of 0…count-1.
manta::ArrowBatch Numbers(std::int64_t count) {
  struct Own {
    std::vector<std::int64_t> values;
    const void* buffers[2];
    const void* none[1] = {nullptr};
    ArrowArray column{};
    ArrowArray* columns[1];
    ArrowSchema field{};
    ArrowSchema* fields[1];
  };
  auto* own = new Own();
  for (std::int64_t i = 0; i < count; ++i) own->values.push_back(i);
  own->buffers[0] = nullptr;
  own->buffers[1] = own->values.data();
  own->column.length = count;
  own->column.n_buffers = 2;
  own->column.buffers = own->buffers;
  own->column.release = [](ArrowArray* array) { array->release = nullptr; };
  own->columns[0] = &own->column;
  own->field.format = "l";
  own->field.name = "n";
  own->field.release = [](ArrowSchema* schema) { schema->release = nullptr; };
  own->fields[0] = &own->field;
  ArrowSchema schema{};
  schema.format = "+s";
  schema.name = "";
  schema.n_children = 1;
  schema.children = own->fields;
  schema.release = [](ArrowSchema* one) { one->release = nullptr; };
  ArrowArray array{};
  array.length = count;
  array.n_buffers = 1;
  array.buffers = own->none;
  array.n_children = 1;
  array.children = own->columns;
  array.private_data = own;
  array.release = [](ArrowArray* one) {
    delete static_cast<Own*>(one->private_data);
    one->release = nullptr;
  };
  return manta::ArrowBatch(&schema, &array);
}
MANTA_REMOTE(Numbers)

class Counter {
 public:
  explicit Counter(int start) : value_(start) {}
  int Add(int by) { return value_ += by; }
  [[nodiscard]] int Total() const { return value_; }
  void Fail() { throw std::runtime_error("the counter is stuck"); }

 private:
  int value_;
};
std::unique_ptr<Counter> MakeCounter(int start) { return std::make_unique<Counter>(start); }
MANTA_REMOTE_CLASS(Counter, MakeCounter, &Counter::Add, &Counter::Total, &Counter::Fail)

}  // namespace
