// Suggestions for misspelt names in error texts.
#pragma once

#include <string>
#include <vector>

namespace manta::tune::trials {

// "a, b, c"; at most twenty names.
std::string Join(const std::vector<std::string>& names);
// " Did you mean accuracy?", or nothing when no name is near.
std::string Suggest(const std::string& wrong, const std::vector<std::string>& names);

}  // namespace manta::tune::trials
