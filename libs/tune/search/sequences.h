// Low-discrepancy sequences. A point is a function of its index, so that a searcher needs no state.
#pragma once

#include <cstdint>
#include <vector>

namespace manta::tune {

inline constexpr int kMaxSequenceDimensions = 64;

// The plain points equal those of SciPy's qmc.Sobol and qmc.Halton (scramble=False) bit for bit.
std::vector<double> SobolPoint(std::uint64_t index, int dimensions);
std::vector<double> HaltonPoint(std::uint64_t index, int dimensions);

// Owen's scrambling keyed by the seed: every digit is permuted by a function of the digits before it (Sobol), or of its
// place (Halton). The points stay as evenly spread, and each is uniformly distributed over seeds.
std::vector<double> ScrambledSobolPoint(std::uint64_t index, int dimensions, std::uint64_t seed);
std::vector<double> ScrambledHaltonPoint(std::uint64_t index, int dimensions, std::uint64_t seed);

}  // namespace manta::tune
