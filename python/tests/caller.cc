// A C++ program that calls Python: test_cross_language.py starts it, with the folder of its module in PYTHONPATH.
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "manta/manta.h"
#include "manta/python.h"

using Numbers = std::vector<double>;

int main() {
  manta::Init();
  std::cout << "sqrt " << *manta::PyTask<double>("math", "sqrt").Remote(2.25).Get() << '\n';
  const auto doubled = manta::PyTask<manta::Array<double>>("helpers", "doubled");
  const manta::Ref<manta::PlainValue<Numbers>> numbers = manta::Put(manta::PlainValue(Numbers(1000, 1.5)));
  auto task = doubled;
  const manta::Ref<manta::PlainValue<manta::Array<double>>> result = task.Remote(numbers);
  double sum = 0;
  for (const double value : *result.Get()) sum += value;
  std::cout << "doubled " << sum << '\n';
  const auto counts = manta::PyTask<std::map<std::string, int>>("helpers", "count")
                          .Remote(std::vector<std::string>{"a", "b", "a"})
                          .Get();
  std::cout << "count " << counts->at("a") << ' ' << counts->at("b") << '\n';

  auto words = manta::PyActor("helpers", "Tally").Remote(10);
  words.Task("add").Remote(5).Get();
  std::cout << "tally " << *words.Task<int>("total").Remote().Get() << '\n';
  // The handle goes to Python, and back comes what the actor said.
  std::cout << "passed " << *manta::PyTask<int>("helpers", "ask").Remote(words).Get() << '\n';
  std::cout << "async " << *manta::PyActor("helpers", "Later").Remote().Task<int>("get").Remote().Get() << '\n';

  try {
    manta::PyTask<int>("helpers", "fails").Remote("badly").Get();
  } catch (const manta::TaskError& error) {
    std::cout << "error " << (std::string(error.what()).find("ValueError: badly") != std::string::npos) << '\n';
  }
  try {
    manta::PyTask<int>("helpers", "thing").Remote().Get();
  } catch (const manta::TaskError& error) {
    std::cout << "unplain " << (std::string(error.what()).find("cannot be sent to another") != std::string::npos)
              << '\n';
  }
  try {
    const int number = *manta::PyTask<int>("helpers", "word").Remote().Get();
    std::cout << number;
  } catch (const manta::InvalidError& error) {
    std::cout << "type " << error.what() << '\n';
  }
  try {
    manta::PyTask<int>("no_such_module", "f").Remote().Get();
  } catch (const manta::TaskError& error) {
    std::cout << "missing " << (std::string(error.what()).find("no_such_module") != std::string::npos) << '\n';
  }
}
