// Large values lie in shared memory: written once, read in place by every process of the machine.
#include <chrono>
#include <cstdio>
#include <numeric>
#include <vector>

#include "manta/manta.h"

namespace {

double Sum(const manta::Array<float>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

// A value with a large part: the pixels are read in place, too.
struct Image {
  int width = 0;
  int height = 0;
  manta::Array<std::uint8_t> pixels;
};

Image Checkerboard(int width, int height) {
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(width) * height);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x)
      pixels[static_cast<std::size_t>(y) * width + x] = (x / 8 + y / 8) % 2 == 0 ? 255 : 0;
  }
  return {width, height, manta::Array<std::uint8_t>(std::move(pixels))};
}

double Brightness(const Image& image) {
  return std::accumulate(image.pixels.begin(), image.pixels.end(), 0.0) / static_cast<double>(image.pixels.size());
}

}  // namespace

int main() {
  manta::Init();

  // One copy into the store; four tasks then read the same memory.
  manta::Ref<manta::Array<float>> numbers = manta::Put(std::vector<float>(16 << 20, 0.5F));
  std::vector<manta::Ref<double>> sums;
  for (int i = 0; i < 4; ++i) sums.push_back(manta::Task(Sum).Remote(numbers));
  for (double sum : manta::Get(sums)) std::printf("sum %.0f\n", sum);

  // Getting it back copies nothing, however large it is.
  const auto begin = std::chrono::steady_clock::now();
  const manta::Array<float> here = numbers.Get();
  const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
  std::printf("%zu MiB in %.0f µs, at %p\n", here.size() * sizeof(float) >> 20, time.count(),
              static_cast<const void*>(here.data()));

  // Results of tasks work the same way, and Refs can be handed on without waiting.
  manta::Ref<Image> board = manta::Task(Checkerboard).Remote(1024, 768);
  std::printf("brightness %.1f\n", manta::Task(Brightness).Remote(board).Get());

  manta::Shutdown();
  return 0;
}
