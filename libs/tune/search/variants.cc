// The variant generator: every combination of the grid, num_samples times. Each of points_to_evaluate replaces one
// sample; keys of the grid that a point fixes do not multiply. The order is Ray's: the first grid key changes fastest.
#include <algorithm>

#include "tune/search/encoding.h"
#include "tune/search/history.h"
#include "tune/search/random.h"

namespace manta::tune {
namespace {

class Variants : public HistorySearcher {
 public:
  Variants(const Space& space, Random options)
      : HistorySearcher({options.mode}), encoding_(space), options_(std::move(options)) {
    for (const Config& point : options_.points_to_evaluate) (void)encoding_.Encode(point);  // refuses bad values now
  }

 protected:
  Answer Propose(TrialNumber trial) override {
    if (Ended()) return Finished{};
    if (options_.max_concurrent > 0 && running() >= options_.max_concurrent) return Wait{};
    std::vector<double> unit = encoding_.Encode(Point());
    // With constant_grid_search all variants of a sample draw from one stream.
    Stream stream(options_.seed, options_.constant_grid_search ? sample_ : trial, Purpose::kSample);
    std::int64_t variant = variant_;
    for (std::size_t i = 0; i < unit.size(); ++i) {
      const auto& coordinate = encoding_.coordinates()[i];
      bool grid = coordinate.domain.kind == Domain::Kind::kGrid;
      double drawn = grid ? 0 : stream.Uniform();  // drawn also where a point decides: the other keys keep theirs
      if (unit[i] == unit[i]) continue;
      if (grid) {
        drawn = (static_cast<double>(variant % coordinate.cells) + 0.5) / coordinate.cells;
        variant /= coordinate.cells;
      }
      unit[i] = drawn;
    }
    return encoding_.Decode(unit);
  }

  void OnAsk(const HistoryTrial&) override {
    if (++variant_ < VariantsOfSample()) return;
    variant_ = 0;
    ++sample_;
  }

 private:
  bool Ended() const {
    auto points = static_cast<std::int64_t>(options_.points_to_evaluate.size());
    return options_.num_samples >= 0 && sample_ >= std::max<std::int64_t>(options_.num_samples, points);
  }
  Config Point() const {
    auto sample = static_cast<std::size_t>(sample_);
    return sample < options_.points_to_evaluate.size() ? options_.points_to_evaluate[sample] : Config();
  }
  std::int64_t VariantsOfSample() const {
    std::int64_t product = 1;
    Config point = Point();
    for (const auto& coordinate : encoding_.coordinates()) {
      if (coordinate.domain.kind == Domain::Kind::kGrid && !point.contains(coordinate.path))
        product *= coordinate.cells;
    }
    return product;
  }

  Encoding encoding_;
  Random options_;
  std::int64_t sample_ = 0;   // how many samples are complete
  std::int64_t variant_ = 0;  // how many variants of the current sample were given
};

}  // namespace

std::unique_ptr<Searcher> MakeSearcher(const Space& space, Random options) {
  return std::make_unique<Variants>(space, std::move(options));
}

}  // namespace manta::tune
