// The codec of user values and messages. Every type goes there and back; every malformed input either
// decodes or throws CorruptError.
#include "manta/codec.h"

#include <gtest/gtest.h>

#include <chrono>
#include <complex>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace manta {
namespace {

using Blob = std::vector<std::byte>;

template <typename T>
Blob ToBytes(const T& value) {
  Blob blob(EncodedSize(value), std::byte{0xEE});
  Encode(value, blob);
  return blob;
}

template <typename T>
T RoundTrip(const T& value) {
  return Decode<T>(ToBytes(value));
}

template <typename T>
void ExpectRoundTrip(const T& value) {
  const Blob blob = ToBytes(value);
  EXPECT_GE(blob.size(), 1U);
  EXPECT_EQ(Decode<T>(blob), value);
  // At any address.
  Blob shifted(blob.size() + 1);
  std::copy(blob.begin(), blob.end(), shifted.begin() + 1);
  EXPECT_EQ(Decode<T>(std::span(shifted).subspan(1)), value);
  // As an element among others, and twice in one stream.
  const std::vector<T> two{value, value};
  EXPECT_EQ(RoundTrip(two), two);
  for (std::size_t n = 0; n < blob.size(); ++n) {
    EXPECT_THROW((void)Decode<T>(std::span(blob).first(n)), CorruptError) << n << " of " << blob.size();
  }
  Blob longer = blob;
  longer.push_back(std::byte{0});
  EXPECT_THROW((void)Decode<T>(longer), CorruptError);
}

enum class Colour : std::uint16_t { kRed = 1, kBlue = 500 };
enum Plain { kOne, kTwo };
enum class Flag : bool { kNo, kYes };

struct Empty {
  friend bool operator==(const Empty&, const Empty&) = default;
};
struct Point {
  float x = 0;
  float y = 0;
  float z = 0;
  friend bool operator==(const Point&, const Point&) = default;
};
struct Padded {
  std::uint8_t kind = 0;
  double weight = 0;
  std::uint16_t tail = 0;
  friend bool operator==(const Padded&, const Padded&) = default;
};
struct Nested {
  Point points[2];
  Padded padded;
  std::array<Padded, 2> more;
  friend bool operator==(const Nested&, const Nested&) = default;
};
struct WithBool {
  int number = 0;
  bool yes = false;
  friend bool operator==(const WithBool&, const WithBool&) = default;
};
struct WithArrays {
  char name[300] = {};
  std::string texts[2];
  int grid[2][3] = {};
  WithBool flags[2];
  friend bool operator==(const WithArrays&, const WithArrays&) = default;
};
struct Tree {
  std::string name;
  std::vector<Tree> children;
  friend bool operator==(const Tree&, const Tree&) = default;
};
struct Link {
  int value = 0;
  std::unique_ptr<Link> next;
};
struct Wide {
  int a1 = 1, a2 = 2, a3 = 3, a4 = 4, a5 = 5, a6 = 6, a7 = 7, a8 = 8, a9 = 9, a10 = 10, a11 = 11, a12 = 12, a13 = 13;
  std::string b1 = "b1", b2 = "b2", b3 = "b3";
  int c1 = 1, c2 = 2, c3 = 3, c4 = 4, c5 = 5, c6 = 6, c7 = 7, c8 = 8, c9 = 9, c10 = 10, c11 = 11, c12 = 12, c13 = 13;
  std::string d1 = "d1", d2 = "d2", d3 = "d3";
  friend bool operator==(const Wide&, const Wide&) = default;
};
struct TooWide {
  Wide wide;
  int a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16;
  int b1, b2, b3, b4, b5, b6, b7, b8, b9, b10, b11, b12, b13, b14, b15, b16;
};

class Account {
 public:
  Account() = default;
  Account(std::string owner, double balance) : owner_(std::move(owner)), balance_(balance) {}
  friend bool operator==(const Account&, const Account&) = default;

  MANTA_FIELDS(owner_, balance_)

 private:
  std::string owner_;
  double balance_ = 0;
};

class Celsius {
 public:
  Celsius() = default;
  explicit Celsius(double degrees) : kelvin_(degrees + 273.15) {}
  bool was_read() const { return was_read_; }

  template <typename Archive>
  void Serialize(Archive& archive) {
    archive(kelvin_, history_);
    if constexpr (Archive::kReading) was_read_ = true;
  }

 private:
  double kelvin_ = 0;
  std::vector<int> history_{1, 2, 3};
  bool was_read_ = false;
};

// No default constructor: only its Codec can make one.
class Meters {
 public:
  explicit Meters(double value) : value_(value) {}
  double value() const { return value_; }
  friend bool operator==(const Meters&, const Meters&) = default;

 private:
  double value_;
};
struct Hike {
  Meters up;
  std::vector<Meters> legs;
  const int day;
  friend bool operator==(const Hike&, const Hike&) = default;
};
struct Silent {
  template <typename Archive>
  void Serialize(Archive&) {}
  friend bool operator==(const Silent&, const Silent&) = default;
};

struct Base {
  int x = 0;
};
struct Derived : Base {
  int y = 0;
};
class Closed {
 public:
  explicit Closed(int v) : v_(v) {}
  int v() const { return v_; }

 private:
  int v_;
};
struct Shape {
  virtual ~Shape() = default;
  MANTA_FIELDS(sides)
  int sides = 0;
};
struct HoldsPointer {
  int number = 0;
  const char* text = nullptr;
};
struct HoldsReference {
  const int& number;
};
union Either {
  int i;
  float f;
};
struct NeedsArgument {
  explicit NeedsArgument(int value) : v(value) {}
  int v;
  MANTA_FIELDS(v)
};

}  // namespace

template <>
struct Codec<Meters> {
  template <typename Archive>
  static void Write(Archive& archive, const Meters& meters) {
    archive(meters.value());
  }
  static Meters Read(Reader& reader) { return Meters(reader.Read<double>()); }
};

namespace {

static_assert(Encodable<int> && Encodable<std::vector<Tree>> && Encodable<Link> && Encodable<Hike>);
static_assert(Decodable<int> && Decodable<std::vector<Tree>> && Decodable<Link> && Decodable<Hike>);
static_assert(Encodable<std::string_view> && !Decodable<std::string_view>);
static_assert(Encodable<std::span<const int>> && Decodable<std::span<const int>>);
static_assert(Encodable<std::span<int>> && !Decodable<std::span<int>>);
static_assert(Encodable<std::span<const std::string>> && !Decodable<std::span<const std::string>>);
static_assert(!Encodable<int*> && !Encodable<const char*> && !Encodable<int&> && !Encodable<void (*)()>);
static_assert(!Encodable<std::vector<int*>> && !Encodable<HoldsPointer> && !Encodable<std::map<int, HoldsPointer>>);
static_assert(!Encodable<std::optional<std::tuple<int, std::variant<int, char*>>>>);
static_assert(!Encodable<HoldsReference> && !Encodable<Either> && !Encodable<std::function<void()>>);
static_assert(!Encodable<Derived> && !Encodable<Closed> && !Encodable<TooWide> && !Encodable<std::mutex>);
static_assert(!Encodable<std::unique_ptr<Shape>> && Encodable<Shape>);
static_assert(Encodable<NeedsArgument> && !Decodable<NeedsArgument> && !Decodable<std::vector<NeedsArgument>>);
static_assert(Encodable<Wide> && Encodable<const int>);
// Which structs go as one block.
static_assert(internal::Raw<Point> && internal::Raw<Padded> && internal::Raw<Nested> && internal::Raw<Colour>);
static_assert(!internal::Raw<bool> && !internal::Raw<WithBool> && !internal::Raw<Flag> && !internal::Raw<Empty>);
static_assert(!internal::Raw<Plain> && !internal::Raw<HoldsPointer> && !internal::Raw<std::string>);
static_assert(internal::RawOf<Point>::kPacked && !internal::RawOf<Padded>::kPacked &&
              !internal::RawOf<Nested>::kPacked);

TEST(Codec, NumbersComeBack) {
  ExpectRoundTrip<std::int8_t>(-5);
  ExpectRoundTrip<std::uint64_t>(std::numeric_limits<std::uint64_t>::max());
  ExpectRoundTrip<char>('x');
  ExpectRoundTrip<wchar_t>(L'x');
  ExpectRoundTrip<char16_t>(u'x');
  ExpectRoundTrip<float>(1.5F);
  ExpectRoundTrip<double>(-0.1);
  ExpectRoundTrip<long double>(3.25L);
  ExpectRoundTrip<std::byte>(std::byte{7});
  ExpectRoundTrip<Colour>(Colour::kBlue);
  ExpectRoundTrip<Plain>(kTwo);
  ExpectRoundTrip<Flag>(Flag::kYes);
  ExpectRoundTrip<std::complex<double>>({1, -2});
  EXPECT_TRUE(RoundTrip(true));
  EXPECT_FALSE(RoundTrip(false));
}

TEST(Codec, NumbersTakeTheirOwnSizeAndAreLittleEndian) {
  EXPECT_EQ(EncodedSize(7), 4U);
  EXPECT_EQ(EncodedSize(true), 1U);
  EXPECT_EQ(EncodedSize(std::pair(1, 2)), 8U);
  EXPECT_EQ(EncodedSize(std::pair(char(1), 2.0)), 9U);
  EXPECT_EQ(EncodedSize(Colour::kRed), 2U);
  EXPECT_EQ(EncodedSize(std::string("abc")), 11U);
  EXPECT_EQ(EncodedSize(Padded{}), 11U);
  EXPECT_EQ(ToBytes(0x01020304), (Blob{std::byte{4}, std::byte{3}, std::byte{2}, std::byte{1}}));
}

TEST(Codec, EqualValuesHaveEqualBytesWhateverLiesInTheirPadding) {
  std::vector<Nested> a(20);
  std::vector<Nested> b(20);
  std::memset(static_cast<void*>(a.data()), 0x11, a.size() * sizeof(Nested));
  std::memset(static_cast<void*>(b.data()), 0x77, b.size() * sizeof(Nested));
  const auto fill = [](Nested& to, double weight) {
    for (Point& point : to.points) point.x = point.y = point.z = 2;
    to.padded.kind = to.more[0].kind = to.more[1].kind = 3;
    to.padded.weight = to.more[0].weight = to.more[1].weight = weight;
    to.padded.tail = to.more[0].tail = to.more[1].tail = 4;
  };
  for (int i = 0; i < 20; ++i) fill(a[i], i), fill(b[i], i);
  EXPECT_EQ(ToBytes(a), ToBytes(b));
  EXPECT_EQ(RoundTrip(a), a);
  long double first;
  long double second;
  std::memset(&first, 0x11, sizeof first);
  std::memset(&second, 0x77, sizeof second);
  first = second = 1.0L;
  EXPECT_EQ(ToBytes(first), ToBytes(second));
}

TEST(Codec, TextComesBack) {
  ExpectRoundTrip(std::string());
  ExpectRoundTrip(std::string("hello\0there", 11));
  ExpectRoundTrip(std::string(255, 'a'));
  ExpectRoundTrip(std::string(256, 'a'));
  ExpectRoundTrip(std::wstring(100, L'b'));
  ExpectRoundTrip(std::u16string(3, u'c'));
  ExpectRoundTrip(std::filesystem::path("/tmp/a file"));
  EXPECT_EQ(Decode<std::string>(ToBytes(std::string_view("view"))), "view");
}

TEST(Codec, SequencesComeBack) {
  ExpectRoundTrip(std::vector<int>{});
  ExpectRoundTrip(std::vector<int>{1, 2, 3});
  ExpectRoundTrip(std::vector<double>(100, 1.5));
  ExpectRoundTrip(std::vector<Point>(50, Point{1, 2, 3}));
  ExpectRoundTrip(std::vector<Padded>(50, Padded{1, 2, 3}));
  ExpectRoundTrip(std::vector<WithBool>(50, WithBool{1, true}));
  ExpectRoundTrip(std::vector<bool>{true, false, true});
  ExpectRoundTrip(std::vector<std::string>{"a", std::string(300, 'b'), ""});
  ExpectRoundTrip(std::vector<std::vector<float>>{{1}, std::vector<float>(70, 2), {}});
  ExpectRoundTrip(std::vector<std::pair<int, double>>{{1, 2}, {3, 4}});
  ExpectRoundTrip(std::vector<std::chrono::nanoseconds>(40, std::chrono::nanoseconds(5)));
  ExpectRoundTrip(std::vector<std::complex<float>>(40, {1, 2}));
  ExpectRoundTrip(std::vector<std::array<int, 3>>(40, {1, 2, 3}));
  ExpectRoundTrip(std::vector<Meters>{Meters(1), Meters(2)});
  ExpectRoundTrip(std::vector<Empty>(5));
  ExpectRoundTrip(std::vector<std::monostate>(5));
  ExpectRoundTrip(std::vector<std::tuple<>>(5));
  ExpectRoundTrip(std::vector<std::array<int, 0>>(5));
  ExpectRoundTrip(std::vector<Silent>(5));
  ExpectRoundTrip(std::deque<int>{1, 2, 3});
  ExpectRoundTrip(std::list<std::string>{"x", "y"});
  ExpectRoundTrip(std::array<int, 3>{1, 2, 3});
  ExpectRoundTrip(std::array<double, 64>{1, 2, 3});
  ExpectRoundTrip(std::array<std::string, 2>{"a", "b"});
  ExpectRoundTrip(std::array<Meters, 2>{Meters(1), Meters(2)});
  ExpectRoundTrip(std::array<bool, 2>{true, false});
}

TEST(Codec, SetsAndMapsComeBack) {
  ExpectRoundTrip(std::set<int>{3, 1, 2});
  ExpectRoundTrip(std::multiset<int>{3, 3, 2});
  ExpectRoundTrip(std::unordered_set<std::string>{"a", "b"});
  ExpectRoundTrip(std::unordered_multiset<int>{1, 1, 2});
  ExpectRoundTrip(std::map<std::string, std::vector<int>>{{"a", {1}}, {"b", {}}});
  ExpectRoundTrip(std::multimap<int, std::string>{{1, "x"}, {1, "y"}});
  ExpectRoundTrip(std::unordered_map<int, Point>{{1, {1, 2, 3}}, {2, {}}});
  ExpectRoundTrip(std::unordered_multimap<int, int>{{1, 2}, {1, 2}});
  ExpectRoundTrip(std::map<int, int, std::greater<>>{{1, 2}, {3, 4}});
}

TEST(Codec, AKeyThatComesTwiceIsCorrupt) {
  EXPECT_THROW((void)Decode<std::set<int>>(ToBytes(std::multiset<int>{1, 1})), CorruptError);
  EXPECT_THROW((void)(Decode<std::unordered_map<int, int>>(ToBytes(std::multimap<int, int>{{1, 2}, {1, 3}}))),
               CorruptError);
}

TEST(Codec, HoldersComeBack) {
  ExpectRoundTrip(std::pair<std::string, int>{"a", 1});
  ExpectRoundTrip(std::tuple<int, std::string, bool>{1, "b", true});
  ExpectRoundTrip(std::optional<int>());
  ExpectRoundTrip(std::optional<std::string>("x"));
  ExpectRoundTrip(std::optional<std::optional<int>>(std::in_place, std::nullopt));
  ExpectRoundTrip(std::optional<bool>(false));
  ExpectRoundTrip(std::variant<int, std::string, int>(std::in_place_index<2>, 7));
  ExpectRoundTrip(std::variant<std::monostate, Meters>());
  ExpectRoundTrip(std::variant<std::monostate, Meters>(Meters(2)));
  ExpectRoundTrip(std::chrono::milliseconds(15));
  ExpectRoundTrip(std::chrono::duration<double>(1.5));
  ExpectRoundTrip(std::chrono::system_clock::now());
  ExpectRoundTrip(std::tuple<>());
  ExpectRoundTrip(std::monostate());
}

TEST(Codec, SmartPointersCarryTheValue) {
  EXPECT_EQ(RoundTrip(std::unique_ptr<int>()), nullptr);
  EXPECT_EQ(*RoundTrip(std::make_unique<std::string>("x")), "x");
  EXPECT_EQ(*RoundTrip(std::make_shared<Point>(Point{1, 2, 3})), (Point{1, 2, 3}));
  EXPECT_EQ(*RoundTrip(std::make_shared<const int>(4)), 4);
  std::vector<std::unique_ptr<Meters>> many;
  many.push_back(std::make_unique<Meters>(3));
  many.push_back(nullptr);
  const auto back = RoundTrip(many);
  EXPECT_EQ(*back.at(0), Meters(3));
  EXPECT_EQ(back.at(1), nullptr);
}

TEST(Codec, AggregatesComeBackWithoutAnyMacro) {
  ExpectRoundTrip(Empty{});
  ExpectRoundTrip(Point{1, 2, 3});
  ExpectRoundTrip(Padded{1, 2, 3});
  ExpectRoundTrip(Nested{{{1, 2, 3}, {4, 5, 6}}, {1, 2, 3}, {Padded{4, 5, 6}}});
  ExpectRoundTrip(WithArrays{"name", {"a", "b"}, {{1, 2, 3}, {4, 5, 6}}, {{1, true}, {2, false}}});
  ExpectRoundTrip(Tree{"root", {Tree{"left", {}}, Tree{"right", {Tree{"leaf", {}}}}}});
  ExpectRoundTrip(Wide{});
  const Hike hike{Meters(5), {Meters(1), Meters(2)}, 3};
  EXPECT_EQ(RoundTrip(hike), hike);
  Link link{1, std::make_unique<Link>(Link{2, nullptr})};
  EXPECT_EQ(RoundTrip(link).next->value, 2);
}

TEST(Codec, ClassesSayHowTheyAreSent) {
  ExpectRoundTrip(Account("ada", 12.5));
  ExpectRoundTrip(Meters(5));
  ExpectRoundTrip(Silent{});
  const Celsius back = RoundTrip(Celsius(20));
  EXPECT_TRUE(back.was_read());
  EXPECT_EQ(ToBytes(back), ToBytes(Celsius(20)));
  EXPECT_EQ(RoundTrip(std::map<std::string, std::vector<Celsius>>{{"a", {Celsius(1)}}}).at("a").size(), 1U);
}

TEST(Codec, LongRunsStartAtAMultipleOf64AndShortOnesDoNot) {
  const std::tuple<char, std::vector<float>> large{'x', std::vector<float>(64, 1.0F)};
  EXPECT_EQ(EncodedSize(large), 64U + 256U);
  const std::tuple<char, std::vector<float>> small{'x', std::vector<float>(63, 1.0F)};
  EXPECT_EQ(EncodedSize(small), 1U + 8U + 252U);
  EXPECT_EQ(EncodedSize(std::tuple<char, std::string>{'x', std::string(256, 'a')}), 64U + 256U);
  EXPECT_EQ(EncodedSize(std::tuple<char, std::array<char, 256>>{}), 64U + 256U);
  // Two runs in one value, after each other.
  const std::vector<std::vector<double>> rows(3, std::vector<double>(33, 2.0));  // 264 bytes each
  const Blob blob = ToBytes(rows);
  EXPECT_EQ(blob.size(), 64U + 264U + 56U + 264U + 56U + 264U);
  EXPECT_EQ(RoundTrip(rows), rows);
  for (std::size_t i = 1 + 8; i < 64; ++i) EXPECT_EQ(ToBytes(large)[i], std::byte{0}) << "padding is zero";
}

TEST(Codec, AVectorASpanAndAnArrayAreTheSameBytes) {
  for (const std::size_t count : {0, 3, 200}) {
    const std::vector<double> vector(count, 1.5);
    const Array<double> array(count, 1.5);
    EXPECT_EQ(ToBytes(vector), ToBytes(array));
    EXPECT_EQ(ToBytes(vector), ToBytes(std::span<const double>(vector)));
    EXPECT_EQ(Decode<Array<double>>(ToBytes(vector)), array);
    EXPECT_EQ(Decode<std::vector<double>>(ToBytes(array)), vector);
  }
  EXPECT_EQ(ToBytes(std::vector<bool>{true, false}), ToBytes(Array<bool>{true, false}));
  ExpectRoundTrip(Array<bool>{true, false, true});
  ExpectRoundTrip(Array<WithBool>{{1, true}, {2, false}});
  ExpectRoundTrip(Array<Padded>{{1, 2, 3}, {4, 5, 6}});
}

TEST(Codec, AnArrayLooksAtKeptBytesInPlaceAndHoldsOnToThem) {
  auto kept = std::make_shared<Array<char>>();
  const std::vector<double> values(100, 2.5);
  const Blob blob = ToBytes(values);
  *kept = Array<char>::Copy(blob.data(), blob.size());  // line-aligned
  const std::weak_ptr<Array<char>> watch = kept;
  const auto bytes = std::as_bytes(kept->span());
  {
    const auto array = Decode<Array<double>>(bytes, kept);
    EXPECT_EQ(reinterpret_cast<const std::byte*>(array.data()), bytes.data() + 64);
    const Array<double> copy = array;
    EXPECT_EQ(copy.data(), array.data());
    kept.reset();
    EXPECT_FALSE(watch.expired());
    EXPECT_EQ(copy.to_vector(), values);
  }
  EXPECT_TRUE(watch.expired());
}

TEST(Codec, AnArrayCopiesBytesThatNobodyKeepsOrThatAreNotAligned) {
  const Blob blob = ToBytes(std::vector<double>(100, 2.5));
  const Array<char> aligned = Array<char>::Copy(blob.data(), blob.size());
  const auto inside = [](const Array<double>& array, std::span<const std::byte> bytes) {
    const auto* at = reinterpret_cast<const std::byte*>(array.data());
    return at >= bytes.data() && at < bytes.data() + bytes.size();
  };
  const auto bytes = std::as_bytes(aligned.span());
  EXPECT_FALSE(inside(Decode<Array<double>>(bytes), bytes));
  EXPECT_FALSE(inside(Decode<Array<double>>(bytes, KeepAlive()), bytes));

  const auto owner = std::make_shared<int>(0);
  EXPECT_TRUE(inside(Decode<Array<double>>(bytes, owner), bytes));
  Blob shifted(blob.size() + 65);
  const std::size_t start = 65 - reinterpret_cast<std::uintptr_t>(shifted.data()) % 64;  // odd address
  std::copy(blob.begin(), blob.end(), shifted.begin() + static_cast<std::ptrdiff_t>(start));
  const auto odd = std::span<const std::byte>(shifted).subspan(start, blob.size());
  const auto array = Decode<Array<double>>(odd, owner);
  EXPECT_FALSE(inside(array, odd));
  EXPECT_EQ(array.to_vector(), std::vector<double>(100, 2.5));
  EXPECT_EQ(owner.use_count(), 1);
}

TEST(Codec, ASpanIsAViewOrACopyThatTheCallerOwnsOrAnError) {
  const Blob blob = ToBytes(std::tuple<char, std::vector<double>>('x', {1, 2, 3}));  // short: not aligned
  using T = std::tuple<char, std::span<const double>>;
  const auto owner = std::make_shared<int>(0);
  EXPECT_THROW((void)Decode<T>(blob), InvalidError);
  EXPECT_THROW((void)Decode<T>(blob, owner), InvalidError);
  std::vector<KeepAlive> copies;
  const T copied = Decode<T>(blob, owner, &copies);
  EXPECT_EQ(copies.size(), 1U);
  EXPECT_EQ(std::get<1>(copied)[2], 3);

  const std::vector<int> values(100, 7);
  const Blob plain = ToBytes(values);
  const Array<char> aligned = Array<char>::Copy(plain.data(), plain.size());
  const auto bytes = std::as_bytes(aligned.span());
  const auto view = Decode<std::span<const int>>(bytes, owner);
  EXPECT_EQ(reinterpret_cast<const std::byte*>(view.data()), bytes.data() + 64);
  EXPECT_EQ(view.size(), 100U);
  EXPECT_TRUE(Decode<std::span<const int>>(ToBytes(std::vector<int>{}), owner).empty());
}

TEST(Codec, AFalseCountNeitherAllocatesNorReads) {
  Blob blob = ToBytes(std::vector<std::string>{"a"});
  const std::uint64_t huge[] = {~0ULL, 1ULL << 62, 1ULL << 40, blob.size()};
  for (const std::uint64_t count : huge) {
    std::memcpy(blob.data(), &count, sizeof count);
    EXPECT_THROW((void)Decode<std::vector<std::string>>(blob), CorruptError);
    EXPECT_THROW((void)Decode<std::vector<double>>(blob), CorruptError);
    EXPECT_THROW((void)Decode<Array<double>>(blob), CorruptError);
    EXPECT_THROW((void)Decode<std::string>(blob), CorruptError);
    EXPECT_THROW((void)Decode<std::u32string>(blob), CorruptError);
    EXPECT_THROW((void)Decode<std::vector<bool>>(blob), CorruptError);
    EXPECT_THROW((void)Decode<std::vector<Empty>>(blob), CorruptError);
    EXPECT_THROW((void)(Decode<std::unordered_map<int, int>>(blob)), CorruptError);
    EXPECT_THROW((void)Decode<std::list<Silent>>(blob), CorruptError);
  }
}

TEST(Codec, BytesThatAreNoBoolNoAlternativeAreCorrupt) {
  const Blob two{std::byte{2}};
  EXPECT_THROW((void)Decode<bool>(two), CorruptError);
  EXPECT_THROW((void)Decode<Flag>(two), CorruptError);
  EXPECT_THROW((void)Decode<std::optional<Empty>>(two), CorruptError);
  EXPECT_THROW((void)(Decode<std::variant<std::monostate, bool>>(two)), CorruptError);
  EXPECT_THROW((void)Decode<std::unique_ptr<int>>(two), CorruptError);
  Blob bools = ToBytes(std::vector<bool>{true});
  bools.back() = std::byte{2};
  EXPECT_THROW((void)Decode<std::vector<bool>>(bools), CorruptError);
  EXPECT_THROW((void)Decode<Array<bool>>(bools), CorruptError);
}

TEST(Codec, ADeepValueIsRefusedBeforeTheStackEnds) {
  // 1,000 levels still go through, on a thread with the usual 8 MB.
  Tree tree;
  for (std::size_t i = 1; i < internal::kMaxDepth; ++i) {
    Tree parent;
    parent.name = "n";
    parent.children.push_back(std::move(tree));
    tree = std::move(parent);
  }
  const Blob deep = ToBytes(tree);
  EXPECT_EQ(Decode<Tree>(deep), tree);
  Tree parent;
  parent.children.push_back(std::move(tree));
  EXPECT_THROW((void)EncodedSize(parent), InvalidError);

  Blob bytes;  // a Link in a Link in a …
  for (int i = 0; i < 2'000'000; ++i) bytes.insert(bytes.end(), {std::byte{1}, {}, {}, {}, std::byte{1}});
  EXPECT_THROW((void)Decode<Link>(bytes), CorruptError);

  struct Fat {  // 8 KB a level: 1,000 of them would not fit
    std::array<char, 8192> fat{};
    std::vector<Fat> children;
  };
  Blob level(8192 + 64);  // the array, the count, padding up to the next array
  level[8192] = std::byte{1};
  Blob fat;
  for (int i = 0; i < 990; ++i) fat.insert(fat.end(), level.begin(), level.end());
  fat.resize(fat.size() + 8192 + 8);
  try {
    (void)Decode<Fat>(fat);
    FAIL() << "fits after all: make Fat fatter";
  } catch (const CorruptError& error) {
    EXPECT_NE(std::string(error.what()).find("nested too deep"), std::string::npos) << error.what();
  }

  struct Ring {
    std::shared_ptr<Ring> next;
  };
  auto ring = std::make_shared<Ring>();
  ring->next = ring;
  EXPECT_THROW((void)EncodedSize(*ring), InvalidError);
  ring->next = nullptr;
}

TEST(Codec, ABufferOfTheWrongSizeIsAnErrorAndNotOverrun) {
  const auto value = std::make_pair(std::string(300, 'x'), std::vector<Padded>(30));
  const std::size_t size = EncodedSize(value);
  for (std::size_t n = 0; n <= size + 1; ++n) {
    Blob buffer(n + 64, std::byte{0xEE});
    if (n == size) continue;
    EXPECT_THROW(Encode(value, std::span(buffer).first(n)), InvalidError);
    for (std::size_t i = n; i < buffer.size(); ++i) ASSERT_EQ(buffer[i], std::byte{0xEE});
  }
}

struct Rich {
  int number = 7;
  std::string text = std::string(270, 't');
  std::vector<double> doubles = std::vector<double>(40, 1.0);
  std::map<std::string, std::vector<std::optional<int>>> map{{"a", {1, {}}}, {"b", {}}};
  std::variant<int, std::string, Account> variant = Account("bob", 1);
  Tree tree{"root", {Tree{"leaf", {}}}};
  std::unique_ptr<Point> pointer = std::make_unique<Point>();
  Array<Padded> padded{{1, 2, 3}};
  std::vector<bool> bits{true, false};
  WithArrays arrays;
  std::unordered_set<std::string> names{"x", "y"};
};

TEST(Codec, DamagedBytesEitherDecodeOrAreCorrupt) {
  const Blob good = ToBytes(Rich());
  for (std::size_t n = 0; n < good.size(); ++n) {
    EXPECT_THROW((void)Decode<Rich>(std::span(good).first(n)), CorruptError);
  }
  std::mt19937 random(7);
  const auto owner = std::make_shared<int>(0);
  int decoded = 0;
  for (int round = 0; round < 20'000; ++round) {
    // A heap block of exactly this size: a sanitizer sees one byte too many.
    Blob bad(good.begin(),
             good.begin() + static_cast<std::ptrdiff_t>(round % 4 != 0 ? good.size() : random() % good.size()));
    for (unsigned flips = 1 + random() % 4; flips > 0 && !bad.empty(); --flips) {
      bad[random() % bad.size()] = static_cast<std::byte>(random() % 3 == 0 ? 0xFF : random());
    }
    try {
      const Rich value = round % 2 == 0 ? Decode<Rich>(bad) : Decode<Rich>(bad, owner);
      EXPECT_EQ(ToBytes(value).size(), bad.size());
      ++decoded;
    } catch (const CorruptError&) {
    }
  }
  EXPECT_GT(decoded, 0);
}

TEST(Codec, LargeRunsAreCopiedWholeAtAnyAlignment) {
  std::vector<std::uint8_t> source((3U << 20) + 200);
  std::mt19937 random(3);
  for (std::uint8_t& byte : source) byte = static_cast<std::uint8_t>(random());
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{63}, std::size_t{64}, std::size_t{1000},
                                 (std::size_t{1} << 20), (std::size_t{3} << 20) + 77}) {
    for (const std::size_t from : {0, 1, 33}) {
      for (const std::size_t to : {0, 1, 31, 63}) {
        std::vector<std::byte> target(size + 128, std::byte{0xEE});
        internal::CopyLarge(target.data() + to, reinterpret_cast<std::byte*>(source.data()) + from, size);
        ASSERT_EQ(std::memcmp(target.data() + to, source.data() + from, size), 0);
        for (std::size_t i = 0; i < to; ++i) ASSERT_EQ(target[i], std::byte{0xEE});
        for (std::size_t i = to + size; i < target.size(); ++i) ASSERT_EQ(target[i], std::byte{0xEE});
      }
    }
  }
  EXPECT_EQ(RoundTrip(source), source);
}

// So large that a second thread helps.
TEST(Codec, VeryLargeRunsAreCopiedWholeToo) {
  std::vector<std::uint64_t> source((std::size_t{70} << 20) / 8 + 5);
  for (std::size_t i = 0; i < source.size(); ++i) source[i] = i * 0x9e3779b97f4a7c15ULL;
  const std::size_t size = source.size() * 8 - 3;
  for (int round = 0; round < 3; ++round) {
    std::vector<std::byte> target(size + 2, std::byte{0xEE});
    internal::CopyLarge(target.data() + 1, reinterpret_cast<const std::byte*>(source.data()), size);
    ASSERT_EQ(std::memcmp(target.data() + 1, source.data(), size), 0);
    EXPECT_EQ(target.front(), std::byte{0xEE});
    EXPECT_EQ(target.back(), std::byte{0xEE});
  }
}

TEST(Array, IsAnImmutableRunThatCopiesShare) {
  std::vector<int> values{1, 2, 3};
  const int* memory = values.data();
  const Array<int> taken(std::move(values));
  EXPECT_EQ(taken.data(), memory);
  const Array<int> copy = taken;
  EXPECT_EQ(copy.data(), taken.data());
  EXPECT_EQ(copy.size(), 3U);
  EXPECT_EQ(copy[1], 2);
  EXPECT_EQ(copy.front(), 1);
  EXPECT_EQ(copy.back(), 3);
  EXPECT_EQ(copy.at(2), 3);
  EXPECT_THROW((void)copy.at(3), std::out_of_range);
  const std::span<const int> span = copy;
  EXPECT_EQ(Array<int>(span), copy);
  EXPECT_NE(Array<int>(span).data(), copy.data());
  EXPECT_EQ((Array<int>{1, 2, 3}), copy);
  EXPECT_EQ(Array<double>(3, 1.5).to_vector(), std::vector<double>(3, 1.5));
  int sum = 0;
  for (const int value : copy) sum += value;
  EXPECT_EQ(sum, 6);
  EXPECT_TRUE(Array<int>().empty());
  EXPECT_TRUE(Array<int>(std::span<const int>()).empty());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(Array<char>(5, 'x').data()) % 64, 0U);
}

}  // namespace
}  // namespace manta
