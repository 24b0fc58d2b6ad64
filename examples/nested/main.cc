// Tasks start tasks, to any depth. A task that waits for its own child lets the CPU go on working.
#include <cstdio>
#include <numeric>
#include <vector>

#include "manta/manta.h"

namespace {

int Fib(int n) {
  if (n < 2) return n;
  manta::Ref<int> a = manta::Task(Fib).Remote(n - 1);
  manta::Ref<int> b = manta::Task(Fib).Remote(n - 2);
  return a.Get() + b.Get();
}

// Adds up a large array by halves; the array itself is never copied, only its Ref is.
double TreeSum(manta::Ref<manta::Array<float>> values, std::size_t begin, std::size_t end) {
  if (end - begin <= 1 << 18) {
    const manta::Array<float> array = values.Get();
    return std::accumulate(array.begin() + begin, array.begin() + end, 0.0);
  }
  const std::size_t middle = begin + (end - begin) / 2;
  auto left = manta::Task(TreeSum).Remote(values, begin, middle);
  auto right = manta::Task(TreeSum).Remote(values, middle, end);
  return left.Get() + right.Get();
}

}  // namespace

int main() {
  manta::Init();
  std::printf("fib(16) = %d\n", manta::Task(Fib).Remote(16).Get());

  const std::size_t size = 4 << 20;
  manta::Ref<manta::Array<float>> values = manta::Put(std::vector<float>(size, 0.25F));
  std::printf("sum = %.0f\n", manta::Task(TreeSum).Remote(values, 0, size).Get());
  manta::Shutdown();
  return 0;
}
