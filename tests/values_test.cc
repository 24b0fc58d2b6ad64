// Values: everything that may be an argument, a result or put, sent to a task and back.
#include <array>
#include <complex>
#include <deque>
#include <limits>
#include <list>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <variant>

#include "fixture.h"

namespace manta::testing {
namespace {

class Values : public ClusterTest {};

template <typename T>
T Echo(T value) {
  return value;
}

// There and back as an argument and result, and through Put.
template <typename T>
void RoundTrip(const T& value) {
  EXPECT_EQ(Task(Echo<T>).Remote(value).Get(), value);
  EXPECT_EQ(Get(Put(value)), value);
  EXPECT_EQ(Task(Echo<T>).Remote(Put(value)).Get(), value);
}

TEST_F(Values, Numbers) {
  RoundTrip(true);
  RoundTrip('c');
  RoundTrip(std::numeric_limits<std::int8_t>::min());
  RoundTrip(std::numeric_limits<std::uint16_t>::max());
  RoundTrip(-123'456);
  RoundTrip(std::numeric_limits<std::int64_t>::min());
  RoundTrip(std::numeric_limits<std::uint64_t>::max());
  RoundTrip(1.5F);
  RoundTrip(-0.1);
  RoundTrip(std::numeric_limits<double>::infinity());
}

enum class Color : std::uint8_t { kRed, kGreen };
TEST_F(Values, Enums) { RoundTrip(Color::kGreen); }

TEST_F(Values, Strings) {
  RoundTrip(std::string());
  RoundTrip(std::string("text"));
  RoundTrip(std::string("zero \0 inside", 13));
  RoundTrip(std::string(1'000'000, 'x'));
  for (std::size_t size : {255U, 256U, 257U, 1'023U, 1'024U, 8'191U, 8'192U, 8'193U, 65'536U})
    RoundTrip(std::string(size, 'b'));
}

TEST_F(Values, Containers) {
  RoundTrip(std::vector<int>{1, 2, 3});
  RoundTrip(std::vector<int>{});
  RoundTrip(std::vector<bool>{true, false, true});
  RoundTrip(std::vector<std::string>{"a", "", "ccc"});
  RoundTrip(std::vector<std::vector<double>>{{1.5}, {}, {2, 3}});
  RoundTrip(std::array<int, 3>{1, 2, 3});
  RoundTrip(std::deque<int>{1, 2});
  RoundTrip(std::list<std::string>{"x", "y"});
  RoundTrip(std::set<int>{3, 1, 2});
  RoundTrip(std::map<std::string, int>{{"a", 1}, {"b", 2}});
  RoundTrip(std::unordered_set<int>{1, 2, 3});
  RoundTrip(std::unordered_map<int, std::string>{{1, "one"}, {2, "two"}});
  RoundTrip(std::pair<int, std::string>{1, "one"});
}

TEST_F(Values, OptionalVariantAndTuple) {
  RoundTrip(std::optional<int>());
  RoundTrip(std::optional<std::string>("there"));
  using Either = std::variant<int, std::string, std::vector<int>>;
  RoundTrip(Either(7));
  RoundTrip(Either("text"));
  RoundTrip(Either(std::vector<int>{1, 2}));
  const std::tuple<int, std::string, double> tuple{1, "two", 3.0};
  EXPECT_EQ(Get(Put(tuple)), tuple) << "as a result a tuple would be three values";
  RoundTrip(std::vector{tuple});
}

TEST_F(Values, TimesAndComplexNumbers) {
  RoundTrip(std::chrono::milliseconds(17));
  RoundTrip(std::complex<double>(1, -2));
}

// No macro, no constructor: Manta looks at the fields itself.
struct Address {
  std::string street;
  int number = 0;
  bool operator==(const Address&) const = default;
};
struct Person {
  std::string name;
  std::vector<Address> homes;
  std::optional<double> height;
  std::map<std::string, std::vector<int>> notes;
  bool operator==(const Person&) const = default;
};
struct Point {
  float x = 0, y = 0, z = 0;
  bool operator==(const Point&) const = default;
};

TEST_F(Values, PlainAggregates) {
  RoundTrip(Point{1, 2, 3});
  RoundTrip(Person{"Ada", {{"Long Lane", 7}, {"", 0}}, 1.6, {{"scores", {1, 2}}, {"none", {}}}});
  RoundTrip(std::vector<Point>(1'000, Point{1, 2, 3}));
  RoundTrip(std::vector<Person>(3, Person{"Bob", {}, {}, {}}));
}

class Account {
 public:
  Account() = default;
  Account(std::string owner, std::int64_t cents) : owner_(std::move(owner)), cents_(cents) {}
  bool operator==(const Account&) const = default;
  MANTA_FIELDS(owner_, cents_)

 private:
  std::string owner_;
  std::int64_t cents_ = 0;
};

TEST_F(Values, ClassesThatNameTheirFields) {
  RoundTrip(Account("me", -5));
  RoundTrip(std::map<int, Account>{{1, Account("a", 1)}});
}

// Writes itself: only the set cells of a sparse row.
class Sparse {
 public:
  void Set(std::uint32_t at, double value) { cells_[at] = value; }
  bool operator==(const Sparse& other) const { return cells_ == other.cells_ && sum_ == other.sum_; }
  template <typename Archive>
  void Serialize(Archive& archive) {
    archive(cells_);
    if constexpr (Archive::kReading) {
      sum_ = 0;
      for (const auto& [at, value] : cells_) sum_ += value;
    }
  }
  [[nodiscard]] double sum() const { return sum_; }

 private:
  std::map<std::uint32_t, double> cells_;
  double sum_ = 0;  // recomputed
};

TEST_F(Values, ClassesThatSerializeThemselves) {
  Sparse row;
  row.Set(5, 1.5);
  row.Set(1'000'000, 2);
  EXPECT_EQ(Task([](const Sparse& r) { return r.sum(); }).Remote(row).Get(), 3.5);
  EXPECT_EQ(Get(Put(row)).sum(), 3.5);
}

TEST_F(Values, ArraysOfEverySize) {
  for (std::size_t size : {0U, 1U, 63U, 64U, 65U, 1'000U, 100'000U, 3'000'000U}) {
    std::vector<float> values(size);
    for (std::size_t i = 0; i < size; ++i) values[i] = static_cast<float>(i);
    RoundTrip(values);
    RoundTrip(Array<float>(std::span<const float>(values)));
  }
}

TEST_F(Values, ASpanIsPassedToAFunctionThatTakesOne) {
  const std::vector<double> values(10'000, 0.5);
  auto sum = [](std::span<const double> numbers) {
    double total = 0;
    for (double number : numbers) total += number;
    return total;
  };
  EXPECT_EQ(Task(sum).Remote(Put(values)).Get(), 5'000);
  EXPECT_EQ(Task(sum).Remote(std::span<const double>(values)).Get(), 5'000);
  // A small one lies among the other arguments, perhaps not aligned.
  auto shifted = [](char, std::span<const double> numbers) { return numbers[2]; };
  for (std::size_t size : {3U, 31U, 32U, 33U, 100U}) {
    EXPECT_EQ(Task(shifted).Remote('c', std::span<const double>(values).first(size)).Get(), 0.5);
  }
}

TEST_F(Values, ArraysInsideValuesAreReadInPlaceToo) {
  struct Frame {
    std::string camera;
    Array<std::uint8_t> pixels;
  };
  Ref<Frame> frame = Put(Frame{"left", Array<std::uint8_t>(std::vector<std::uint8_t>(1 << 20, 9))});
  const Frame a = frame.Get();
  const Frame b = frame.Get();
  EXPECT_EQ(a.pixels.size(), 1U << 20);
  EXPECT_EQ(a.pixels[1'000], 9);
  EXPECT_EQ(a.pixels.data(), b.pixels.data());
  EXPECT_EQ(Task([](const Frame& f) { return f.camera + std::to_string(f.pixels[5]); }).Remote(frame).Get(), "left9");
}

TEST_F(Values, AnArgumentConvertsToTheParametersType) {
  EXPECT_EQ(Task([](double x) { return x / 2; }).Remote(3).Get(), 1.5);
  EXPECT_EQ(Task([](const std::string& s) { return s.size(); }).Remote("four").Get(), 4U);
  EXPECT_EQ(Task([](std::optional<int> x) { return x.value_or(-1); }).Remote(5).Get(), 5);
}

TEST_F(Values, ParametersMayBeTakenByValueConstReferenceOrRvalue) {
  EXPECT_EQ(Task([](std::string a, const std::string& b, std::string&& c) { return a + b + std::move(c); })
                .Remote("a", "b", "c")
                .Get(),
            "abc");
}

}  // namespace
}  // namespace manta::testing
